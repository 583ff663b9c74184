"""Page tables: what an address is translated to, and what is refused."""

from __future__ import annotations

import mmap
import struct

import pytest

from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.machine.page_tables import LARGE_PAGE, PAGE, PageTables

ROOT, END = 4 * PAGE, 12 * PAGE
START = 0xFFFFFFFFE0000000
NX = 1 << 63


def entry_of(ram: mmap.mmap, root: int, address: int) -> int:
    """The processor's walk; 0 where nothing is mapped."""
    table = root
    for shift in (39, 30, 21):
        (entry,) = struct.unpack_from("<Q", ram, table + 8 * (address >> shift & 511))
        table = entry & 0x000FFFFFFFFFF000
    return int(entry)


def test_text_may_be_executed_and_not_written_and_data_the_other_way_round() -> None:
    ram = mmap.mmap(-1, END)
    tables = PageTables(ram, ROOT, ROOT, END)
    tables.map(START, LARGE_PAGE, 0x400000, executable=True)
    tables.map(START + LARGE_PAGE, 2 * LARGE_PAGE, 0x600000)
    text, data, last = (entry_of(ram, ROOT, START + n * LARGE_PAGE) for n in range(3))
    assert (text, data, last) == (0x4000E1, 0x6000E3 | NX, 0x8000E3 | NX)
    assert entry_of(ram, ROOT, START + 3 * LARGE_PAGE) == 0


def test_tables_that_are_there_are_used_and_left_as_they_are() -> None:
    ram = mmap.mmap(-1, END)
    PageTables(ram, ROOT, ROOT, END).map(START, LARGE_PAGE, 0)
    before = ram[:]
    PageTables(ram, ROOT, END, END).map(START + LARGE_PAGE, LARGE_PAGE, 0)
    changed = [at for at in range(0, END, 8) if ram[at : at + 8] != before[at : at + 8]]
    assert len(changed) == 1


def test_what_is_mapped_is_not_mapped_to_something_else() -> None:
    ram = mmap.mmap(-1, END)
    tables = PageTables(ram, ROOT, ROOT, END)
    tables.map(START, LARGE_PAGE, 0)
    tables.map(START, LARGE_PAGE, 0)
    with pytest.raises(EmulatedKernelError, match="mapped already"):
        tables.map(START, LARGE_PAGE, LARGE_PAGE)


def test_room_for_tables_comes_to_an_end() -> None:
    ram = mmap.mmap(-1, END)
    tables = PageTables(ram, ROOT, ROOT, ROOT + 2 * PAGE)
    with pytest.raises(EmulatedKernelError, match="out of room"):
        tables.map(START, LARGE_PAGE, 0)
