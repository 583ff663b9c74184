"""Four-level page tables in guest RAM, of 2 MiB pages (arch/x86/include/asm/pgtable_64.h).

Text is mapped read-execute, everything else read-write and no-execute. All entries are marked as
accessed, and what may be written as dirty, so that the processor never has to write to them.
"""

from __future__ import annotations

import mmap
import struct

from emulated_kernel.errors import EmulatedKernelError

PAGE = 4096
LARGE_PAGE = 2 << 20

_PRESENT, _WRITE, _ACCESSED, _DIRTY, _LARGE, _NX = 1, 2, 0x20, 0x40, 0x80, 1 << 63
_ADDRESS = 0x000FFFFFFFFFF000


class PageTables:
    """The tables under the one at `root`, an offset in `ram`, whoever has made it.

    Tables that are missing are taken from the zeroed pages between `free` and `end`; if the root
    itself is the first of these, it is new.
    """

    def __init__(self, ram: mmap.mmap, root: int, free: int, end: int) -> None:
        self.root = root
        self._ram = ram
        self._free = free + PAGE if free == root else free
        self._end = end

    def map(self, start: int, size: int, physical: int, *, executable: bool = False) -> None:
        """Map whole large pages. Raises EmulatedKernelError where something else is mapped."""
        bits = _PRESENT | _ACCESSED | _DIRTY | (0 if executable else _WRITE | _NX)
        for offset in range(0, size, LARGE_PAGE):
            address = start + offset
            table = self.root
            for shift in (39, 30):
                table = self._next(table + 8 * (address >> shift & 511))
            at = table + 8 * (address >> 21 & 511)
            wanted = (physical + offset) | bits | _LARGE
            if self._get(at) not in {0, wanted}:
                raise EmulatedKernelError(f"{address:#x} is mapped already")
            struct.pack_into("<Q", self._ram, at, wanted)

    def split(self, address: int, table: int) -> None:
        """Have `table` (see small_pages) in place of the large page at `address`."""
        at = self.root
        for shift in (39, 30):
            at = self._next(at + 8 * (address >> shift & 511))
        entry = table | _PRESENT | _WRITE | _ACCESSED
        struct.pack_into("<Q", self._ram, at + 8 * (address >> 21 & 511), entry)

    def _next(self, at: int) -> int:
        """The table that the entry at `at` leads to, made when missing."""
        entry = self._get(at)
        if not entry & _PRESENT:
            if self._free >= self._end:
                raise EmulatedKernelError("out of room for page tables")
            entry = self._free | _PRESENT | _WRITE | _ACCESSED
            self._free += PAGE
            struct.pack_into("<Q", self._ram, at, entry)
        elif entry & _LARGE:
            raise EmulatedKernelError("a larger page is mapped there")
        return entry & _ADDRESS

    def _get(self, at: int) -> int:
        return int(struct.unpack_from("<Q", self._ram, at)[0])


def small_pages(ram: mmap.mmap, table: int, physical: int) -> None:
    """Fill a table with the 4 KiB pages of data of the 2 MiB at `physical`."""
    bits = _PRESENT | _WRITE | _ACCESSED | _DIRTY | _NX
    entries = [(physical + PAGE * index) | bits for index in range(512)]
    struct.pack_into("<512Q", ram, table, *entries)
