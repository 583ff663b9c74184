"""Where things are in a PC's RAM, and how the host finds them by guest-virtual address.

    physical            virtual
    0                   0xffff888000000000  all of RAM: the direct map                RW NX
                        0xffffffff80000000  the guest's: the kernel's own mapping     (text RX)
    GUEST_BYTES         0xffffffffe0000000  the engine's text and trampolines         RX
    + 16 MiB            0xffffffffe1000000  its data                                  RW NX
    + 8 MiB             (direct map)        the host's heap

The guest is not told of the RAM behind GUEST_BYTES, so nothing of it is in its page tables until
the host enters it there. The engine's addresses lie in the last GiB, where the kernel has its fixed
mappings: in reach of a call from its text and of a 32-bit address, and in every process.

The engine's per-CPU words have one address for all processors: behind it is the page of the one
that runs. Each page has an address of its own besides, for the host and for guest code.
"""

from __future__ import annotations

from collections.abc import Callable

from emulated_kernel.asm_offsets import PAGE_OFFSET
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.linux.vmlinux import START_KERNEL_MAP
from emulated_kernel.machine.memory import MAX_CPUS, MIB, Layout, Memory, Region
from emulated_kernel.machine.page_tables import LARGE_PAGE, PAGE, PageTables, small_pages

GUEST_BYTES = 192 * MIB
ENGINE_TEXT, ENGINE_TEXT_BYTES = 0xFFFFFFFFE0000000, 16 * MIB
ENGINE_DATA, ENGINE_DATA_BYTES = ENGINE_TEXT + ENGINE_TEXT_BYTES, 8 * MIB
HEAP_PHYS, HEAP_BYTES = GUEST_BYTES + ENGINE_TEXT_BYTES + ENGINE_DATA_BYTES, 40 * MIB
RAM_BYTES = HEAP_PHYS + HEAP_BYTES
HOST_TEXT = ENGINE_TEXT + ENGINE_TEXT_BYTES - PAGE  # the host's own, in which it may be stopped
# The per-CPU words and the ops, at the start of the heap, are touched by each record: their entries
# of the soft TLB (bits 12 to 19) are none with which the engine's text or data begins.
PERCPU = ENGINE_DATA + 0x5D8000  # the engine's per-CPU words; behind them each processor's
_HEAP_OFFSET = 0xE0000
# Entries for the 4 KiB pages around.
_WINDOW_TABLE = GUEST_BYTES + PERCPU - ENGINE_TEXT + (MAX_CPUS + 1) * PAGE

_ENGINE = (
    Region(ENGINE_TEXT, ENGINE_TEXT_BYTES, GUEST_BYTES, executable=True),
    Region(ENGINE_DATA, ENGINE_DATA_BYTES, GUEST_BYTES + ENGINE_TEXT_BYTES),
    Region(PAGE_OFFSET + GUEST_BYTES, RAM_BYTES - GUEST_BYTES, GUEST_BYTES),
)
PC = Layout(
    RAM_BYTES,
    (
        Region(PAGE_OFFSET, RAM_BYTES, 0),
        Region(START_KERNEL_MAP, GUEST_BYTES, 0, executable=True),
        *_ENGINE[:2],
    ),
    (HEAP_PHYS + _HEAP_OFFSET, HEAP_BYTES - _HEAP_OFFSET),
    ENGINE_TEXT,
    ENGINE_DATA,
)


class PcMemory(Memory):
    """RAM of a PC of `cpus` processors. `walk` looks an address up in the guest's page tables."""

    def __init__(self, cpus: int = 1) -> None:
        super().__init__(PC)
        self._cpus = cpus
        if cpus > 1:
            region = _ENGINE[1]
            slot = (PERCPU - region.start) & -LARGE_PAGE
            small_pages(self.ram, _WINDOW_TABLE, region.physical + slot)
            self.show_percpu(0)
        self.walk: Callable[[int], int | None] = lambda address: None

    def physical(self, address: int, size: int = 1) -> int:
        """As in Memory; outside of the regions by page table, within one page."""
        end = address + size
        for start, stop, distance in self._spans:
            if start <= address and end <= stop:
                return address - distance
        at = self.walk(address)
        if at is None or at + size > RAM_BYTES or (address & PAGE - 1) + size > PAGE:
            raise EmulatedKernelError(f"guest address {address:#x} (+{size}) is not mapped")
        return at

    def is_mapped(self, address: int, size: int = 1) -> bool:
        try:
            self.physical(address, size)
        except EmulatedKernelError:
            return False
        return True

    def percpu(self, number: int) -> int:
        """The address of a processor's page of words, whoever runs."""
        return PERCPU if self._cpus == 1 else PERCPU + PAGE * (number + 1)

    def show_percpu(self, number: int) -> None:
        """Processor `number` runs from now on: its page lies at PERCPU."""
        at = _WINDOW_TABLE + 8 * (PERCPU >> 12 & 511)
        linear = _WINDOW_TABLE + 8 * ((PERCPU >> 12) + number + 1 & 511)
        self.ram[at : at + 8] = self.ram[linear : linear + 8]

    def enter_engine(self, root: int) -> None:
        """Enter the host's RAM in the guest's page tables, whose root is at physical `root`.

        Raises EmulatedKernelError when something else is there already.
        """
        tables = PageTables(self.ram, root, 0, 0)
        for region in _ENGINE:
            tables.map(region.start, region.size, region.physical, executable=region.executable)
        if self._cpus > 1:
            tables.split(PERCPU, _WINDOW_TABLE)
