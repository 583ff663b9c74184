"""Sets of call sites: struct ftrace_hash and what is done with a pair of them.

A hash is a value: changing one makes another, so whoever still holds the old one (a reader of
set_ftrace_filter, `old_hash` of an op that is being modified) is undisturbed, as RCU has it in
Linux. Guest code sees a hash as an open-addressing table (`hash_table`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emulated_kernel.distinct import distinct, first_of_each

Ips = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

FTRACE_HASH_FL_MOD = 1 << 0  # a `mod:` filter waits for its module: empty, yet not "everything"

_MIN_TABLE = 8


def as_ips(values: Ips | list[int] | set[int]) -> Ips:
    """Sorted, without duplicates."""
    if isinstance(values, set):
        values = list(values)
    return distinct(np.asarray(values, dtype=np.uint64))


@dataclass(frozen=True, slots=True, eq=False)
class FtraceHash:
    """A set of call sites, sorted and never written to; 0 stands for sites that are gone."""

    ips: Ips
    flags: int = 0

    @property
    def count(self) -> int:
        return len(self.ips)

    def contains(self, ips: Ips) -> Mask:
        """ftrace_lookup_ip for many addresses."""
        if not len(self.ips):
            return np.zeros(len(ips), dtype=np.bool_)
        at = np.searchsorted(self.ips, ips)
        at[at == len(self.ips)] = 0
        found: Mask = self.ips[at] == ips
        return found

    def __contains__(self, ip: int) -> bool:
        return bool(self.contains(np.array([ip], dtype=np.uint64))[0])

    def add(self, ips: Ips) -> FtraceHash:
        """add_hash_entry for each of `ips`, which ascend."""
        new = ips[~self.contains(ips)]
        return FtraceHash(np.insert(self.ips, np.searchsorted(self.ips, new), new), self.flags)

    def remove(self, ips: Ips) -> FtraceHash:
        """free_hash_entry for each of `ips`, which ascend."""
        gone = ips[self.contains(ips)]
        return FtraceHash(np.delete(self.ips, np.searchsorted(self.ips, gone)), self.flags)

    def with_flags(self, flags: int) -> FtraceHash:
        return FtraceHash(self.ips, flags)


EMPTY_HASH = FtraceHash(np.zeros(0, dtype=np.uint64))


def ftrace_hash_empty(hash: FtraceHash) -> bool:
    """Whether a hash says nothing: as a filter, that everything is wanted."""
    return not hash.count and not hash.flags & FTRACE_HASH_FL_MOD


@dataclass(slots=True)
class FtraceOpsHash:
    """struct ftrace_ops_hash; several ops may share one (`ops.func_hash`)."""

    filter_hash: FtraceHash = EMPTY_HASH
    notrace_hash: FtraceHash = EMPTY_HASH

    def copy(self) -> FtraceOpsHash:
        return FtraceOpsHash(self.filter_hash, self.notrace_hash)


def hash_contains_ip(hash: FtraceOpsHash, ips: Ips) -> Mask:
    """Which of `ips` the pair lets through."""
    if ftrace_hash_empty(hash.filter_hash):
        wanted = np.ones(len(ips), dtype=np.bool_)
    else:
        wanted = hash.filter_hash.contains(ips)
    if not ftrace_hash_empty(hash.notrace_hash):
        wanted &= ~hash.notrace_hash.contains(ips)
    return wanted


def hash_table(hash: FtraceHash) -> Ips:
    """The hash as guest code searches it.

    A power of two of u64, 0 = free, an ip at (ip >> 4) & mask or in the next slots behind; at most
    half full, so a search always meets a free slot.
    """
    size = _MIN_TABLE
    while size < 2 * hash.count:
        size *= 2
    table = np.zeros(size, dtype=np.uint64)
    waiting = hash.ips[hash.ips != 0]
    slots = ((waiting >> np.uint64(4)) & np.uint64(size - 1)).astype(np.int64)
    while len(waiting):
        # Each slot that is free takes the first that asks for it; all others move on by one, so an
        # ip never stands behind a slot that was free when it came by.
        free = table[slots] == 0
        first = first_of_each(slots)
        takes = np.zeros(len(waiting), dtype=np.bool_)
        takes[first] = True
        takes &= free
        table[slots[takes]] = waiting[takes]
        waiting = waiting[~takes]
        slots = (slots[~takes] + 1) % size
    return table
