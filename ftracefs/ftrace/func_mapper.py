"""A number for each of some functions (struct ftrace_func_mapper of kernel/trace/ftrace.c).

Guest code reads it and counts it down, so the numbers are in guest memory and nowhere else: beside
the table of call sites, which is searched as an op's hashes are, stands one with a number each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Memory
from ftracefs.ftrace.hashes import EMPTY_HASH, FtraceHash, Ips, hash_table

_U64 = (1 << 64) - 1


class FtraceFuncMapper:
    """The numbers of one probe; `address` is the structure in guest memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._hash = EMPTY_HASH
        self._table = self._counts = 0
        self._slots: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.address = memory.alloc(CONSTANTS["MAPPER_SIZE"], 64)
        self._write(EMPTY_HASH, np.zeros(0, dtype=np.uint64))

    def free(self) -> None:
        """free_ftrace_func_mapper; guest code no longer reaches it."""
        for address in (self._table, self._counts, self.address):
            self._memory.free(address)

    def add_ips(self, ips: Ips, number: int) -> None:
        """Give each of `ips`, which ascend, the same number (ftrace_func_mapper_add_ip)."""
        numbers = self._numbers()
        hash = self._hash.add(ips)
        at = np.searchsorted(hash.ips, self._hash.ips)
        new = np.full(hash.count, number & _U64, dtype=np.uint64)
        new[at] = numbers
        self._write(hash, new)

    def find_ip(self, ip: int) -> int | None:
        """The number of a function, as a long (ftrace_func_mapper_find_ip)."""
        ips = self._hash.ips
        at = int(np.searchsorted(ips, np.uint64(ip)))
        if at == len(ips) or int(ips[at]) != ip:
            return None
        value = self._memory.u64(self._counts + 8 * int(self._slots[at]))
        return value - (1 << 64) if value >> 63 else value

    def numbers(self, ips: Ips) -> list[int]:
        """The numbers of those of `ips` that have one, as unsigned longs."""
        numbers: list[int] = self._numbers()[np.isin(self._hash.ips, ips)].tolist()
        return numbers

    def remove_ips(self, ips: Ips) -> None:
        """Forget some functions, which ascend (ftrace_func_mapper_remove_ip)."""
        numbers = self._numbers()
        self._write(self._hash.remove(ips), numbers[~np.isin(self._hash.ips, ips)])

    def _numbers(self) -> Ips:
        """What guest code has left of the numbers, in order of the call sites."""
        if not len(self._slots):
            return np.zeros(0, dtype=np.uint64)
        counts = self._memory.array(self._counts, 8 * int(self._slots.max() + 1), np.uint64)
        return np.array(counts[self._slots], dtype=np.uint64)

    def _write(self, hash: FtraceHash, numbers: Ips) -> None:
        """Put new tables in the place of the old ones. Guest code stands at a safepoint."""
        memory = self._memory
        table = hash_table(hash)
        slots = np.flatnonzero(table)
        counts = np.zeros(len(table), dtype=np.uint64)
        order = np.argsort(table[slots])
        self._slots = slots[order]
        counts[self._slots] = numbers
        old = self._table, self._counts
        self._table, self._counts = (memory.alloc(table.nbytes, 64) for _ in range(2))
        memory.write(self._table, table.tobytes())
        memory.write(self._counts, counts.tobytes())
        memory.set_u64(self.address + CONSTANTS["MAPPER_TABLE"], self._table)
        memory.set_u64(self.address + CONSTANTS["MAPPER_MASK"], len(table) - 1)
        memory.set_u64(self.address + CONSTANTS["MAPPER_COUNTS"], self._counts)
        for address in old:
            if address:
                memory.free(address)
        self._hash = hash
