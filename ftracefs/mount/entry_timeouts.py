"""How long the host's kernel keeps a name that it has looked up, told for each name.

libfuse 2 has one time for all of a mount. What it tells the kernel of a name goes through a call of
its own exported fuse_reply_entry: that is replaced by a few instructions that take the time from
the attributes, where the number of a device has room for it. Where it cannot be replaced (another
processor, a libfuse that calls itself directly) no name is kept, which is slower and nothing else.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import platform
import struct
from pathlib import Path
from typing import Any

from emulated_kernel.assembler import load
from emulated_kernel.machine.import_slots import import_slots

log = logging.getLogger("ftracefs.mount")

_NAME = "fuse_reply_entry"
_SOURCE = Path(__file__).with_suffix(".S")
_DATA, _BYTES = 0x1000, 0x2000
# struct fuse_entry_param of libfuse 2.9: ino, generation, struct stat, two times.
_CONSTANTS = {"ENTRY_ST_DEV": 16, "ENTRY_ATTR_TIMEOUT": 160, "ENTRY_ENTRY_TIMEOUT": 168}
_kept: list[mmap.mmap] = []  # the code; it stays, for libfuse jumps there


def install(libfuse: Any) -> bool:
    """Have times told, in this process; whether that is so now."""
    if _kept:
        return True
    if platform.machine() != "x86_64":
        return False
    slot = import_slots(libfuse[_NAME], [_NAME]).get(_NAME)
    if slot is None:
        return False
    built = load([_SOURCE], {".text": 0, ".data": _DATA}, _CONSTANTS)
    page = mmap.mmap(-1, _BYTES, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    for address, code in built.segments.values():
        page[address : address + len(code)] = code
    struct.pack_into("<Q", page, built.labels["reply_entry_before"], slot.get())
    try:
        slot.set(ctypes.addressof(ctypes.c_char.from_buffer(page)) + built.labels["reply_entry"])
    except OSError as error:
        log.info("names are not kept by the host's kernel: %s", error)
        return False
    _kept.append(page)
    return True


def valid_for(seconds: float) -> dict[str, int]:
    """The attribute that has a name kept for so long, if `install` could see to that."""
    return {"st_dev": int.from_bytes(struct.pack("<d", seconds), "little")}
