"""Hooks in host machine code: what a PC's processor does by itself is done without Python.

QEMU's own code for exceptions is still in libunicorn and exported: an INTR hook that calls it gives
delivery through the guest's IDT with stacks and error codes as they should be. Two functions of the
library are replaced in its table of imports (PLT), because Unicorn forgets to drop translations
when code is written through another mapping. The table is the process's, so each vCPU's replacement
answers for its own instance and passes on what is another's.

All of it is for the pinned Unicorn on an x86-64 host. `pc_cpu` tries it out before it is used.
"""

from __future__ import annotations

import ctypes as C
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
from unicorn.unicorn_py3.unicorn import uclib

from emulated_kernel.asm_offsets import HYPERCALL_VECTOR
from emulated_kernel.assembler import load
from emulated_kernel.machine import cpu_state
from emulated_kernel.machine.cpu_state import CpuState, UnicornMismatch

_SOURCE = Path(__file__).with_name("native_hooks.S")
_DATA, _BYTES = 0x1000, 0x2000
_PATIENCE = 1_000_000  # blocks: some milliseconds
_SENT_MAX = 256  # bytes to a port that are kept
_NOWHERE = (1 << 64) - 1
_FUNCTIONS = (
    *("x86_cpu_do_interrupt", "helper_read_eflags", "tb_invalidate_phys_page_range"),
    "tlb_reset_dirty",
)
# Function of the library -> (what stands in for it, where what was there before is kept).
_REPLACED = {
    "tb_invalidate_phys_page_fast": ("native_tb_invalidate", "tb_invalidate_before"),
    "tlb_protect_code": ("native_tlb_protect", "tlb_protect_before"),
}
_kept: list[object] = []  # pages that the library may still jump to


def _segment(index: int) -> int:
    return 8 * 23 + 24 * index


def _constants(state: CpuState) -> dict[str, int]:
    return {
        "ENV_RAX": 0,
        "ENV_RCX": 8,
        "ENV_RDX": 16,
        "ENV_R11": 88,
        "ENV_RIP": 8 * cpu_state.RIP,
        "ENV_EFLAGS": 8 * cpu_state.EFLAGS,
        "ENV_CC_SRC": 8 * cpu_state.CC_SRC,
        "ENV_CC_OP": 168,
        "ENV_DF": 172,
        "ENV_HFLAGS": 176,
        "ENV_CS": _segment(cpu_state.CS),
        "ENV_SS": _segment(cpu_state.SS),
        "ENV_STAR": 8 * state.star,
        "ENV_LSTAR": 8 * state.lstar,
        "ENV_FMASK": 8 * state.fmask,
        "CC_OP_EFLAGS": cpu_state.CC_OP_EFLAGS,
        "CC_MASK": 0x8D5,
        "EFLAGS_IF": cpu_state.EFLAGS_IF,
        "EFLAGS_DF": 0x400,
        "EFLAGS_RF": cpu_state.EFLAGS_RF,
        "HF_INHIBIT_IRQ": cpu_state.HF_INHIBIT_IRQ,
        "FLAT_CODE": cpu_state.FLAT_CODE,
        "FLAT_DATA": cpu_state.FLAT_DATA,
        "HYPERCALL": HYPERCALL_VECTOR,
        "PATIENCE": _PATIENCE,
        "SENT_MAX": _SENT_MAX,
    }


def library_function(name: str) -> int:
    """The address of an x86-64 function of the library that its header does not name."""
    try:
        function = getattr(uclib, f"{name}_x86_64")
    except AttributeError:
        raise UnicornMismatch(f"libunicorn does not export {name}") from None
    return C.cast(function, C.c_void_p).value or 0


class NativeHooks:
    """The hooks of one vCPU, not installed yet."""

    def __init__(self, uc: Any, state: CpuState, ram_address: int) -> None:
        built = load([_SOURCE], {".text": 0, ".data": _DATA}, _constants(state))
        self._page = mmap.mmap(-1, _BYTES, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        for address, code in built.segments.values():
            self._page[address : address + len(code)] = code
        self._labels = built.labels
        self._base = C.addressof(C.c_char.from_buffer(self._page))
        self._words = memoryview(self._page).cast("Q")
        self._bytes = memoryview(self._page)
        self._flags = built.labels["stop_flags"]
        self.set("native_uc", uc._uch.value)
        self.set("native_cpu", state.cpu_address)
        self.set("native_env", state.address)
        self.set("native_ram", ram_address)
        self.set("uc_emu_stop", C.cast(uclib.uc_emu_stop, C.c_void_p).value or 0)
        _kept.append(self._page)

    def address(self, name: str) -> int:
        """Where in the process a function stands."""
        return self._base + self._labels[name]

    def set(self, word: str, value: int) -> None:
        self._words[self._labels[word] // 8] = value

    def get(self, word: str) -> int:
        return self._words[self._labels[word] // 8]

    # --- bytes to a port -------------------------------------------------------------------------

    def keep_sent(self, port: int) -> None:
        """Keep the bytes that are written to `port` from now on."""
        self.set("sending_port", port)

    def take_sent(self) -> bytes:
        """What has been kept; no more is."""
        self.set("sending_port", _NOWHERE)
        at, count = self._labels["sent_bytes"], self.get("sent")
        self.set("sent", 0)
        return bytes(self._bytes[at : at + count])

    # --- stopping (from any thread) --------------------------------------------------------------

    def want_interrupt(self) -> None:
        """Stop as soon as an interrupt may be delivered."""
        self._bytes[self._flags] = 1

    def want_turn(self) -> None:
        """Stop at the next block."""
        self._bytes[self._flags + 1] = 1

    def clear_interrupt(self) -> None:
        self._bytes[self._flags] = 0

    def clear_turn(self) -> None:
        self._bytes[self._flags + 1] = 0

    # --- the library -----------------------------------------------------------------------------

    def link(self) -> None:
        """Find the functions of the library that the hooks call."""
        for name in _FUNCTIONS:
            self.set(name, library_function(name))

    def replace_functions(self) -> None:
        """Put the stand-ins into the library's table."""
        for name, at in _import_slots().items():
            stand_in, before = _REPLACED[name]
            slot = C.c_uint64.from_address(at)
            self.set(before, slot.value)
            slot.value = self.address(stand_in)

    def close(self) -> None:
        """The instance is gone: pass everything on."""
        self.set("native_uc", 0)


def _is_writable(address: int) -> bool:
    with Path("/proc/self/maps").open(encoding="ascii", errors="replace") as maps:
        for line in maps:
            span, mode, *_ = line.split()
            start, end = (int(part, 16) for part in span.split("-"))
            if start <= address < end:
                return mode.startswith("rw")
    return False


_SECTION = np.dtype(
    [
        *(("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8")),
        *(("offset", "<u8"), ("size", "<u8"), ("link", "<u4"), ("info", "<u4")),
        *(("align", "<u8"), ("entry", "<u8")),
    ]
)
_SYMBOL = np.dtype(
    [
        *(("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")),
        *(("value", "<u8"), ("size", "<u8")),
    ]
)
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_SHT_RELA, _SHT_DYNSYM = 4, 11
_slots: dict[str, int] = {}


def _import_slots() -> dict[str, int]:
    """Where in the process the library keeps the addresses of the functions in _REPLACED."""
    if not _slots:
        with Path(uclib._name).open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        try:
            found = _find_slots(data)
        except (ValueError, IndexError, struct.error) as error:
            raise UnicornMismatch(f"libunicorn cannot be read: {error}") from error
        if found.keys() != _REPLACED.keys() or not all(map(_is_writable, found.values())):
            raise UnicornMismatch("libunicorn's table of imports cannot be written")
        _slots.update(found)
    return _slots


def _find_slots(data: mmap.mmap) -> dict[str, int]:
    (table,) = struct.unpack_from("<Q", data, 0x28)
    (count,) = struct.unpack_from("<H", data, 0x3C)
    sections = np.frombuffer(data, _SECTION, count, table)

    def contents(section: np.void, dtype: np.dtype[np.void]) -> np.ndarray[tuple[int], Any]:
        return np.frombuffer(
            data, dtype, int(section["size"]) // dtype.itemsize, int(section["offset"])
        )

    dynsym = sections[sections["type"] == _SHT_DYNSYM][0]
    symbols = contents(dynsym, _SYMBOL)
    strings = sections[int(dynsym["link"])]
    start, end = int(strings["offset"]), int(strings["offset"]) + int(strings["size"])

    def number(name: str) -> int:
        at = data.find(b"\0" + name.encode() + b"\0", start, end) + 1 - start
        return int(np.flatnonzero(symbols["name"] == at)[0])

    address = C.cast(uclib.uc_emu_stop, C.c_void_p).value or 0
    base = address - int(symbols["value"][number("uc_emu_stop")])
    wanted = {number(f"{name}_x86_64"): name for name in _REPLACED}
    found = {}
    for section in sections[sections["type"] == _SHT_RELA]:
        rows = contents(section, _RELOCATION)
        for row in rows[np.isin(rows["symbol"], list(wanted))]:
            found[wanted[int(row["symbol"])]] = base + int(row["offset"])
    return found
