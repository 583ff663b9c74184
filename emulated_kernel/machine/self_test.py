"""Whether the native hooks of a PC's processor do on this host what they should: tried out once.

A guest of a few instructions takes exceptions and system calls and changes code through another
mapping. What it saw is compared with what a processor shows.
"""

from __future__ import annotations

import functools
import logging
import mmap
import struct
from pathlib import Path

from emulated_kernel.assembler import load
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.machine.pc_cpu import PcCpu, Stop, is_known_unicorn

log = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("self_test.S")
_RAM = 2 << 20
_TEXT, _DATA, _TABLES, _GDT, _IDT, _STACK = 0x10000, 0x20000, 0x40000, 0x50000, 0x51000, 0x60000
_ALIAS = 2 << 20
_UNMAPPED = 0x7000000000
_FMASK = 0x700
_EXCEPTIONS = {6: "on_ud", 8: "on_double_fault", 14: "on_page_fault"}


class NoPorts:
    """A bus without devices."""

    def read(self, port: int, size: int) -> int:
        return 0

    def write(self, port: int, size: int, value: int) -> None:
        pass

    def only_sends(self, port: int) -> bool:
        return False

    def send(self, port: int, data: bytes) -> None:
        pass


@functools.cache
def native_hooks_work() -> bool:
    """Whether PcCpu may be made with native hooks."""
    if not is_known_unicorn():
        log.info("an unknown Unicorn: exceptions are delivered by Python")
        return False
    try:
        wrong = differences(native=True)
    except EmulatedKernelError as error:
        wrong = [str(error)]
    if wrong:
        log.info("exceptions are delivered by Python: %s", "; ".join(wrong))
    return not wrong


def differences(*, native: bool) -> list[str]:
    """Run the guest; what it saw that it should not have."""
    constants = {"ALIAS": _ALIAS, "UNMAPPED": _UNMAPPED}
    built = load([_SOURCE], {".text": _TEXT, ".data": _DATA}, constants)
    labels = built.labels
    ram = mmap.mmap(-1, _RAM)
    cpu = PcCpu(ram, NoPorts(), {}, native=native)
    try:
        for address, code in built.segments.values():
            ram[address : address + len(code)] = code
        for at, entry in (
            *((_TABLES, _TABLES + 0x1003), (_TABLES + 0x1000, _TABLES + 0x2003)),
            *((_TABLES + 0x2000, 0x83), (_TABLES + 0x2008, 1 << 63 | 0x83)),
        ):
            struct.pack_into("<Q", ram, at, entry)
        struct.pack_into("<4Q", ram, _GDT, 0, 0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF)
        for vector, name in _EXCEPTIONS.items():
            gate = (labels[name] & 0xFFFF, 0x10, 0, 0x8E, labels[name] >> 16, 0, 0)
            struct.pack_into("<HHBBHII", ram, _IDT + 16 * vector, *gate)
        cpu.boot_state(labels["self_test"], 0, _TABLES, _GDT, _STACK)
        cpu.set_tables(idt=_IDT, syscall=labels["on_syscall"], fmask=_FMASK)
        if cpu.run() is not Stop.HALT:
            return ["the guest did not halt"]

        def word(name: str) -> int:
            return int(struct.unpack_from("<Q", ram, labels[name])[0])

        expected = {
            "seen_ud": 1,
            "seen_faults": 0x010103,  # error codes, each and 1
            "seen_address": _UNMAPPED,
            "seen_double": 0,
            "seen_return": labels["after_syscall"],
            "seen_fresh": int(native),
        }
        wrong = [
            f"{name} is {word(name):#x}, not {value:#x}"
            for name, value in expected.items()
            if word(name) != value and (native or name != "seen_fresh")
        ]
        if word("seen_flags") & _FMASK != 0x400 or word("seen_masked") & _FMASK:
            wrong.append(f"flags {word('seen_flags'):#x}, masked {word('seen_masked'):#x}")
        return wrong
    finally:
        cpu.close()
