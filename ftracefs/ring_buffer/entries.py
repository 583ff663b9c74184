"""Records as the output code sees them: arrays, merged over the CPUs in order of time.

The common fields of a record (struct trace_entry) are the first eight bytes of its payload:
u16 type, u8 flags, u8 preempt_count, s32 pid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ftracefs.ring_buffer.pages import I64, U32, U64, Pages, decode


@dataclass(frozen=True, slots=True)
class Entries:
    """Records of one or more CPUs, an array element each.

    `words` are the pages' words laid end to end, `at` the index of a record's payload there and
    `length` its bytes. `end` is where it ends in its page's data. `lost` tells, by index, how many
    records of that CPU had been overwritten before this one; -1 when nobody knows.
    """

    words: U32
    at: I64
    length: I64
    ts: U64
    cpu: I64
    end: I64
    lost: Mapping[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, part: slice) -> Entries:
        """A run of them; the words stay shared."""
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise ValueError("entries are cut in whole runs")
        lost = {i - start: n for i, n in self.lost.items() if start <= i < stop}
        return Entries(
            self.words,
            self.at[part],
            self.length[part],
            self.ts[part],
            self.cpu[part],
            self.end[part],
            lost,
        )

    def take(self, indices: I64) -> Entries:
        """Some of them, without what was lost before."""
        return Entries(
            self.words,
            self.at[indices],
            self.length[indices],
            self.ts[indices],
            self.cpu[indices],
            self.end[indices],
        )

    def u32(self, offset: int) -> U32:
        """The 32-bit field at `offset` of each payload."""
        return self.words[self.at + offset // 4]

    def u64(self, offset: int) -> U64:
        """The 64-bit field at `offset` of each payload."""
        low = self.words[self.at + offset // 4].astype(np.uint64)
        high = self.words[self.at + (offset // 4 + 1)].astype(np.uint64)
        return low | high << np.uint64(32)

    def payload(self, index: int) -> bytes:
        """The bytes of one record."""
        start = int(self.at[index])
        words = self.words[start : start + (int(self.length[index]) + 3) // 4]
        return words.tobytes()[: int(self.length[index])]

    @property
    def common(self) -> U32:
        """type | flags << 16 | preempt_count << 24."""
        return self.words[self.at]

    @property
    def type(self) -> U32:
        """common_type: the event's id."""
        return self.common & np.uint32(0xFFFF)

    @property
    def pid(self) -> npt.NDArray[np.int32]:
        """common_pid."""
        return self.words[self.at + 1].view(np.int32)


def merge(pages: Pages, lost: Mapping[int, int] | None = None) -> Entries:
    """The records of `pages` in the order Linux prints them (__find_next_entry).

    Next comes the CPU whose next record is oldest, the lowest CPU when several are. `lost` is told
    by CPU and goes to that CPU's first record.
    """
    records = decode(pages)
    cpu = pages.cpu[records.page]
    order = _order(cpu, records.ts)
    entries = Entries(
        np.ascontiguousarray(pages.words).reshape(-1),
        records.at[order],
        records.length[order],
        records.ts[order],
        cpu[order],
        records.end[order],
        {},
    )
    if not lost:
        return entries
    first = {c: np.flatnonzero(entries.cpu == c)[:1] for c, count in lost.items() if count}
    found = {int(at[0]): lost[c] for c, at in first.items() if len(at)}
    return Entries(
        entries.words, entries.at, entries.length, entries.ts, entries.cpu, entries.end, found
    )


def _order(cpu: I64, ts: U64) -> I64:
    """Indices of records, given CPU after CPU, in order of time."""
    if len(cpu) == 0 or cpu[0] == cpu[-1]:
        return np.arange(len(cpu), dtype=np.int64)
    # A record never overtakes an older one of its CPU, whatever its time stamp says.
    key = ts.copy()
    starts = np.flatnonzero(np.concatenate([[True], cpu[1:] != cpu[:-1]]))
    for start, stop in zip(starts, [*starts[1:], len(cpu)], strict=True):
        np.maximum.accumulate(key[start:stop], out=key[start:stop])
    return np.argsort(key, kind="stable").astype(np.int64)
