"""A booted guest on disk, so that the next start need not boot it.

The file is the guest's RAM as it is, pages of zeros being holes, and behind it what else there is
to a machine: the processor's state and the devices', as JSON with a length. On restore RAM is that
file, mapped private: only what the guest touches is read. The guest's time goes on where it stood.

A file is replaced as a whole and never written to again, so whoever has it mapped may keep it.
"""

from __future__ import annotations

import base64
import binascii
import ctypes as C
import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from emulated_kernel.cache_files import keep_newest, touch, write_file
from emulated_kernel.linux.memory import GUEST_BYTES
from emulated_kernel.linux.pc import PcMachine
from emulated_kernel.linux.shell import Shell
from emulated_kernel.machine.cpu_state import UnicornMismatch

SUFFIX = ".snapshot"
KEPT = 4
_PAGE = 4096
_RUN = 64  # pages that are written together
_FOOTER = struct.Struct("<8sQ")
_MAGIC = b"ftfsnap1"
_STATE_LIMIT = 16 << 20
_MAP_FIXED = 0x10
_TSC_TOLERANCE = 1000  # one part in that many


def save(machine: PcMachine, shell: Shell, file: Path) -> None:
    """Keep the machine as it is now; on the machine thread. Raises OSError."""
    ram = machine.memory.ram_array[:GUEST_BYTES].reshape(-1, _RUN * _PAGE)
    state = json.dumps(_state(machine, shell)).encode()

    def write(stream: BinaryIO) -> None:
        for index in np.flatnonzero(ram.any(axis=1)).tolist():
            stream.seek(index * _RUN * _PAGE)
            stream.write(ram[index].data)
        stream.seek(GUEST_BYTES)
        stream.write(state)
        stream.write(_FOOTER.pack(_MAGIC, len(state)))

    write_file(file, write)
    keep_newest(file.parent, f"*{SUFFIX}", KEPT)


def _state(machine: PcMachine, shell: Shell) -> dict[str, Any]:
    return {
        "cpu": base64.b64encode(machine.cpu.state.save()).decode(),
        "tsc": machine.time.tsc,
        "tsc_khz": machine.tsc_khz,
        "machine": machine.save_devices(),
        "console": machine.console.text().decode("latin-1"),
        "shell": shell.save(),
    }


def read_state(file: Path) -> dict[str, Any] | None:
    """What there is beside RAM, or None when there is no whole file of that name."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - _FOOTER.size, 0))
            magic, length = _FOOTER.unpack(stream.read(_FOOTER.size))
            if magic != _MAGIC or size != GUEST_BYTES + length + _FOOTER.size:
                return None
            stream.seek(GUEST_BYTES)
            state = json.loads(stream.read(min(length, _STATE_LIMIT)))
    except (OSError, ValueError, struct.error):
        return None
    return state if isinstance(state, dict) else None


def is_for(state: dict[str, Any], tsc_khz: int) -> bool:
    """Whether a guest that was told how fast time goes can go on where it goes `tsc_khz` fast."""
    told = state.get("tsc_khz")
    return isinstance(told, int) and abs(told - tsc_khz) * _TSC_TOLERANCE <= told


def restore(machine: PcMachine, shell: Shell, file: Path, state: dict[str, Any]) -> bool:
    """Make a machine that has not run yet what was saved; False when it cannot be.

    Then the machine is not to be used.
    """
    cpu = machine.cpu.state
    try:
        saved = base64.b64decode(state["cpu"], validate=True)
        _map(file, machine.memory.host_address)
        cpu.restore(saved)
        machine.time.tsc = state["tsc"]
        machine.restore_devices(state["machine"])
        machine.console.restore(state["console"].encode("latin-1"))
        shell.restore(state["shell"])
    except (OSError, KeyError, TypeError, ValueError, binascii.Error, UnicornMismatch):
        return False
    touch(file)
    return True


def _map(file: Path, address: int) -> None:
    """Have the guest's RAM be the file's, private, in place of what is mapped there."""
    library = C.CDLL(None, use_errno=True)
    library.mmap.restype = C.c_void_p
    library.mmap.argtypes = [C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.c_int, C.c_long]
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_PRIVATE | _MAP_FIXED
        at = library.mmap(address, GUEST_BYTES, protection, flags, descriptor, 0)
    finally:
        os.close(descriptor)
    if at != address:
        raise OSError(C.get_errno(), "mmap")
