"""Guest RAM, its page tables and the host's view of both.

RAM is one anonymous mmap that every vCPU maps at guest-physical 0. Text is mapped read-execute,
everything else read-write and no-execute: with the NX bit on a page Unicorn stores to it at the
speed of a load, without it twenty times slower. Only the host writes text.

Virtual layout (arch/x86/include/asm/page_64_types.h where Linux has the same):

    0xffffffff81000000  kernel text       RX
    0xffffffff82000000  kernel data       RW NX
    0xffffffffc0000000  engine, trampolines, module text   RX
    0xffffffffc1000000  module data       RW NX
    0xffff888000000000  direct map of RAM RW NX
    0xffffc90000000000  stacks for calls outside of tasks  RW NX
    0x00007fff00000000  a window of user memory for each vCPU   RW NX

That is the built-in kernel's (`BUILTIN`). A kernel that brings page tables of its own has another
`Layout`: where its text lies in RAM, what of RAM the host has kept for itself and where that is
seen from inside.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from emulated_kernel.asm_offsets import (
    DATA_BASE,
    MODULES_DATA,
    MODULES_VADDR,
    PAGE_OFFSET,
    TEXT_BASE,
)
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.machine.heap import Heap
from emulated_kernel.machine.page_tables import LARGE_PAGE, PAGE, PageTables

MIB = 1 << 20

RAM_BYTES = 256 * MIB
# Stacks for calls outside of tasks: what overflows there runs through memory that is nobody's, and
# then into nothing.
STACKS_VADDR = 0xFFFFC90000000000
STACKS_START = STACKS_VADDR + 0xC0000
USER_BASE = 0x00007FFF00000000
USER_WINDOW = 256 * 1024  # of each vCPU
MAX_CPUS = 8

# Physical layout.
TABLES = 0x10000  # page tables and the GDT
TABLES_END = 1 * MIB
USER_PHYS = 2 * MIB
STACKS_PHYS, STACKS_LIMIT = 4 * MIB, LARGE_PAGE
TEXT_PHYS, TEXT_LIMIT = 16 * MIB, 4 * MIB
DATA_PHYS, DATA_LIMIT = 32 * MIB, 8 * MIB
MODULES_PHYS, MODULES_LIMIT = 48 * MIB, 16 * MIB
MODULES_DATA_PHYS, MODULES_DATA_LIMIT = 64 * MIB, 8 * MIB
GUEST_PHYS, GUEST_LIMIT = 72 * MIB, 56 * MIB  # what the guest's own page allocator owns
# What the host hands out. Two pages with equal address bits 12..19 share an entry of the soft TLB;
# the first pages are the per-CPU ones, which all code touches, so they keep clear of the lowest
# entries, where text and trampolines begin.
HEAP_PHYS, HEAP_LIMIT = 128 * MIB + 0xE0000, RAM_BYTES - 128 * MIB - 0xE0000

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_TRIM_BYTES, _TRIM_STRETCH = 4 * MIB, 256 * 1024


@dataclass(frozen=True, slots=True)
class Region:
    """A contiguous stretch of guest-virtual addresses over contiguous RAM."""

    start: int
    size: int
    physical: int
    executable: bool = False

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything lies: `regions` are what the host reaches by guest-virtual address.

    `heap` is (offset in RAM, bytes) of what the host hands out, by its direct-map address. Engine,
    trampolines and module text go to `modules_vaddr`, within reach of a call from the kernel's
    text; what of them is written goes to `modules_data`.
    """

    ram_bytes: int
    regions: tuple[Region, ...]
    heap: tuple[int, int]
    modules_vaddr: int
    modules_data: int


BUILTIN = Layout(
    RAM_BYTES,
    (
        Region(TEXT_BASE, TEXT_LIMIT, TEXT_PHYS, executable=True),
        Region(DATA_BASE, DATA_LIMIT, DATA_PHYS),
        Region(MODULES_VADDR, MODULES_LIMIT, MODULES_PHYS, executable=True),
        Region(MODULES_DATA, MODULES_DATA_LIMIT, MODULES_DATA_PHYS),
        Region(PAGE_OFFSET, RAM_BYTES, 0),
        Region(STACKS_VADDR, STACKS_LIMIT, STACKS_PHYS),
        Region(USER_BASE, MAX_CPUS * USER_WINDOW, USER_PHYS),
    ),
    (HEAP_PHYS, HEAP_LIMIT),
    MODULES_VADDR,
    MODULES_DATA,
)


class Memory:
    """RAM by guest-virtual address, and the heap that the host side allocates from.

    Addresses outside the mapped regions raise EmulatedKernelError. Reads and writes do not go
    through a vCPU: translated code keeps running old bytes until `Machine.flush_text`.
    """

    def __init__(self, layout: Layout = BUILTIN) -> None:
        self.layout = layout
        # Looked through at each access: where a region starts and ends, and how far off RAM it is.
        self._spans = [(r.start, r.end, r.start - r.physical) for r in layout.regions]
        self._regions = layout.regions
        self.ram = mmap.mmap(-1, layout.ram_bytes)
        self._bytes = (ctypes.c_char * layout.ram_bytes).from_buffer(self.ram)
        self.host_address = ctypes.addressof(self._bytes)
        self._array = np.frombuffer(self.ram, dtype=np.uint8)
        self._heap = Heap(*layout.heap)
        self._freed = 0  # bytes, since the last time the host was given some back

    # --- addresses -------------------------------------------------------------------------------

    def physical(self, address: int, size: int = 1) -> int:
        """The offset in RAM of a guest-virtual address, with `size` bytes behind it mapped too."""
        end = address + size
        for start, stop, distance in self._spans:
            if start <= address and end <= stop:
                return address - distance
        raise EmulatedKernelError(f"guest address {address:#x} (+{size}) is not mapped")

    def is_mapped(self, address: int, size: int = 1) -> bool:
        """Whether all of [address, address + size) is mapped."""
        return any(r.start <= address and address + size <= r.end for r in self._regions)

    def is_text(self, address: int) -> bool:
        """Whether `address` is mapped executable."""
        return any(r.executable and r.start <= address < r.end for r in self._regions)

    # --- access ----------------------------------------------------------------------------------

    def read(self, address: int, size: int) -> bytes:
        at = self.physical(address, size)
        return self.ram[at : at + size]

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        at = self.physical(address, len(data))
        self.ram[at : at + len(data)] = bytes(data)

    def u8(self, address: int) -> int:
        return self.ram[self.physical(address)]

    def set_u8(self, address: int, value: int) -> None:
        self.ram[self.physical(address)] = value

    def u32(self, address: int) -> int:
        value: int = _U32.unpack_from(self.ram, self.physical(address, 4))[0]
        return value

    def set_u32(self, address: int, value: int) -> None:
        _U32.pack_into(self.ram, self.physical(address, 4), value & 0xFFFFFFFF)

    def u64(self, address: int) -> int:
        value: int = _U64.unpack_from(self.ram, self.physical(address, 8))[0]
        return value

    def u32s(self, addresses: Sequence[int]) -> list[int]:
        """Words at many addresses."""
        return self._words(addresses, np.dtype("<u4"))

    def u64s(self, addresses: Sequence[int]) -> list[int]:
        """The same, of 8 bytes."""
        return self._words(addresses, np.dtype("<u8"))

    def _words(self, addresses: Sequence[int], dtype: np.dtype[Any]) -> list[int]:
        wanted, size = np.array(addresses, dtype=np.uint64), dtype.itemsize
        places = np.full(len(wanted), -1, dtype=np.int64)
        for start, end, distance in self._spans:
            into = wanted - np.uint64(start)  # huge where it lies before
            inside = into <= np.uint64(end - start - size)
            places[inside] = into[inside].astype(np.int64) + (start - distance)
        for row in np.flatnonzero(places < 0).tolist():
            places[row] = self.physical(addresses[row], size)
        found: list[int] = self._array[places[:, None] + np.arange(size)].view(dtype)[:, 0].tolist()
        return found

    def set_u64(self, address: int, value: int) -> None:
        at = self.physical(address, 8)
        _U64.pack_into(self.ram, at, value & 0xFFFFFFFFFFFFFFFF)

    def view(self, address: int, size: int) -> memoryview:
        """A writable window onto RAM."""
        at = self.physical(address, size)
        return memoryview(self.ram)[at : at + size]

    def array(
        self, address: int, size: int, dtype: npt.DTypeLike = np.uint8
    ) -> npt.NDArray[np.generic]:
        """`size` bytes of RAM as a writable numpy view of `dtype`."""
        at = self.physical(address, size)
        return self._array[at : at + size].view(dtype)

    def text_offsets(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """RAM offsets of many text addresses; `ram_array` is indexed with them."""
        out = np.full(addresses.shape, -1, dtype=np.int64)
        for region in self._regions:
            if region.executable:
                inside = (addresses >= np.uint64(region.start)) & (
                    addresses < np.uint64(region.end)
                )
                out[inside] = (addresses[inside] - np.uint64(region.start)).astype(np.int64)
                out[inside] += region.physical
        if (out < 0).any():
            raise EmulatedKernelError("an address outside the text regions")
        return out

    @property
    def ram_array(self) -> npt.NDArray[np.uint8]:
        """All of RAM as bytes."""
        return self._array

    def cstring(self, address: int, limit: int = 256) -> bytes:
        """The NUL-terminated string at `address`, at most `limit` bytes."""
        return self.read(address, limit).split(b"\0", 1)[0]

    # --- heap ------------------------------------------------------------------------------------

    def alloc(self, size: int, align: int = PAGE) -> int:
        """Zeroed memory in the direct map for the host side's own structures.

        Raises MemoryError when none is left.
        """
        address = PAGE_OFFSET + self._heap.alloc(size, align)
        self.write(address, bytes(size))
        return address

    def free(self, address: int) -> None:
        """Give back what `alloc` gave."""
        at = address - PAGE_OFFSET
        self._freed += self._heap.used[at]
        self._heap.free(at)
        if self._freed >= _TRIM_BYTES:
            self._trim()

    def _trim(self) -> None:
        """Give the host back what is behind large free stretches."""
        self._freed = 0
        for start, size in self._heap.stretches():
            first, end = -(-start // PAGE) * PAGE, (start + size) // PAGE * PAGE
            if end - first >= _TRIM_STRETCH:
                self.ram.madvise(mmap.MADV_REMOVE, first, end - first)

    # --- page tables -----------------------------------------------------------------------------

    def build_page_tables(self) -> int:
        """Tables at TABLES for all regions; returns what goes into CR3."""
        tables = PageTables(self.ram, TABLES, TABLES, TABLES_END)
        for region in self._regions:
            tables.map(region.start, region.size, region.physical, executable=region.executable)
        return tables.root

    @property
    def gdt_physical(self) -> int:
        return TABLES_END - PAGE
