"""set_graph_function and set_graph_notrace: ftrace_graph_open, _write and _release (ftrace.c)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ftracefs.errors import TracefsError
from ftracefs.ftrace.hashes import Ips
from ftracefs.ftrace.match import find_records
from ftracefs.ftrace.open_filter import OpenFilter
from ftracefs.ftrace.regex import RegexType, filter_parse_regex
from ftracefs.ftrace.state import FtraceState

_GOLDEN_RATIO_64 = 0x61C8864680B583EB
FTRACE_HASH_DEFAULT_BITS = 10
FTRACE_HASH_MAX_BITS = 12


def _bucket_order(ips: Ips, bits: int) -> Ips:
    """`ips`, entered one by one into a hash of 2^bits buckets, in the order they are then met."""
    keys = np.zeros(len(ips), dtype=np.uint64)
    if bits:
        keys = (ips * np.uint64(_GOLDEN_RATIO_64)) >> np.uint64(64 - bits)
    # Whoever is entered into a bucket stands in front of those that are there.
    latest_first = np.arange(len(ips))[::-1]
    return ips[latest_first][np.argsort(keys[latest_first], kind="stable")]


@dataclass(frozen=True, slots=True)
class FtraceGraphHash:
    """Call sites in the order that the file lists them: that of the kernel's hash buckets."""

    ips: Ips = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))

    @property
    def count(self) -> int:
        return len(self.ips)

    @staticmethod
    def of(entered: Ips) -> FtraceGraphHash:
        """The hash of a closed file, whose writer entered `entered` in that order."""
        written = _bucket_order(entered, FTRACE_HASH_DEFAULT_BITS)
        bits = min((len(written) // 2).bit_length(), FTRACE_HASH_MAX_BITS)
        return FtraceGraphHash(_bucket_order(written, bits))


class FtraceGraphRegex(OpenFilter):
    """One open(2) of a graph filter file.

    `hash` is the hash in force and `store` puts another in its place.
    """

    def __init__(
        self,
        state: FtraceState,
        *,
        flags: int,
        hash: FtraceGraphHash,
        store: Callable[[FtraceGraphHash], None],
        on_release: Callable[[OpenFilter], None] = lambda _: None,
    ) -> None:
        super().__init__(state, flags=flags, on_release=on_release)
        self._store = store
        self._entered: Ips = np.zeros(0, dtype=np.uint64) if self._truncating else hash.ips

    def _process(self, word: bytes) -> None:
        self.ftrace_graph_set_hash(word)

    def ftrace_graph_set_hash(self, word: bytes) -> None:
        """Enter the functions a word means, or (`!`) take out those of them that are in."""
        if self.state.ftrace_disabled:
            raise TracefsError(errno.ENODEV, "ftrace is disabled")
        rows, is_not = find_records(self.state.records, word)
        if filter_parse_regex(word)[0].type is RegexType.MATCH_INDEX:
            rows = rows[:0]  # these files take no number
        found = self.state.records.ip[rows]
        is_in = np.isin(found, self._entered)
        if not (is_in.any() if is_not else len(found)):
            raise TracefsError(errno.EINVAL, f"{word!r} names no function")
        if is_not:
            self._entered = self._entered[~np.isin(self._entered, found)]
        else:
            self._entered = np.concatenate((self._entered, found[~is_in]))

    def _put_in_force(self) -> None:
        """The rest of ftrace_graph_release."""
        self._store(FtraceGraphHash.of(self._entered))


def graph_hash_text(state: FtraceState, hash: FtraceGraphHash, *, notrace: bool) -> bytes:
    """What a graph filter file shows."""
    if not hash.count:
        what = b"no functions disabled" if notrace else b"all functions enabled"
        return b"#### " + what + b" ####\n"
    symbol = state.kallsyms.sprint_symbol_no_offset
    return "".join(symbol(ip) + "\n" for ip in hash.ips.tolist()).encode()
