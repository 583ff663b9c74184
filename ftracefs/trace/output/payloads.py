"""Records whose text depends on nothing but their bytes, each different one printed once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from emulated_kernel.distinct import distinct
from ftracefs.ring_buffer.entries import Entries

_COMMON_WORDS = 2  # struct trace_entry, which the context tells
_KEPT = 1 << 13


def payload_keys(entries: Entries) -> list[bytes]:
    """The bytes of each record behind the common fields; there must be some."""
    if len(entries) == 0:
        return []
    lengths = entries.length
    if (lengths == lengths[0]).all():
        return _keys(entries, int(lengths[0]))
    keys = [b""] * len(entries)
    for length in distinct(lengths).tolist():
        where = np.flatnonzero(lengths == length)
        for index, key in zip(where.tolist(), _keys(entries.take(where), length), strict=True):
            keys[index] = key
    return keys


def _keys(entries: Entries, length: int) -> list[bytes]:
    offsets = np.arange(_COMMON_WORDS, (length + 3) // 4)
    rows = np.ascontiguousarray(entries.words[entries.at[:, None] + offsets])
    keys: list[bytes] = rows.view(f"V{4 * len(offsets)}").ravel().tolist()
    return keys


def texts_by_payload(
    entries: Entries, kept: dict[bytes, bytes], render: Callable[[Entries], list[bytes]]
) -> list[bytes]:
    """The text of each, by `render` for those that are not in `kept` yet, where they go.

    Several threads may use the same `kept`.
    """
    keys = payload_keys(entries)
    with suppress(KeyError):
        return list(map(kept.__getitem__, keys))
    places = dict(zip(keys, range(len(keys)), strict=True))
    texts = {key: kept.get(key, b"") for key in places}
    new = [key for key, text in texts.items() if not text]
    if new:
        where = np.array([places[key] for key in new], dtype=np.int64)
        made = dict(zip(new, render(entries.take(where)), strict=True))
        texts.update(made)
        if len(kept) + len(made) > _KEPT:
            kept.clear()
        kept.update(made)
    return list(map(texts.__getitem__, keys))
