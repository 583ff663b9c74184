"""Where a shared library that this process has loaded keeps the addresses of functions it calls.

A library that calls one of its own exported functions does it by a table of imports, as for any
other library's (ELF: a relocation for each entry). What stands there is called. Nothing is found in
a library that was linked to call its own functions directly.
"""

from __future__ import annotations

import ctypes as C
import mmap
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
_PAGE = mmap.PAGESIZE


@dataclass(frozen=True, slots=True)
class ImportSlot:
    """An entry of the table; of a page that may not be written, since relocation has ended."""

    address: int

    def get(self) -> int:
        return C.c_uint64.from_address(self.address).value

    def set(self, function: int) -> None:
        """Have another function called. OSError where the page cannot be made writable."""
        is_protected = not _mapping(self.address)[1].startswith("rw")
        if is_protected:
            self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
        C.c_uint64.from_address(self.address).value = function
        if is_protected:
            self._protect(mmap.PROT_READ)

    def _protect(self, how: int) -> None:
        page = C.c_void_p(self.address & -_PAGE)
        if _mprotect(page, C.c_size_t(_PAGE), how):
            raise OSError(C.get_errno(), "mprotect")


_mprotect = C.CDLL(None, use_errno=True).mprotect


def import_slots(landmark: Any, names: Collection[str]) -> dict[str, ImportSlot]:
    """The entries for functions of the library that `landmark` is a ctypes function of.

    What is not found is left out; all of it, if the library cannot be read.
    """
    address = C.cast(landmark, C.c_void_p).value or 0
    path, _ = _mapping(address)
    try:
        with Path(path).open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        return _find(data, landmark.__name__, address, names)
    except (OSError, ValueError, IndexError, struct.error):
        return {}


def _mapping(address: int) -> tuple[str, str]:
    """The file that an address is of, and what may be done there."""
    with Path("/proc/self/maps").open(encoding="ascii", errors="replace") as maps:
        for line in maps:
            span, mode, _, _, _, *path = line.split(maxsplit=5)
            start, end = (int(part, 16) for part in span.split("-"))
            if start <= address < end:
                return (path[0].strip() if path else ""), mode
    return "", ""


def _find(
    data: mmap.mmap, landmark: str, address: int, names: Collection[str]
) -> dict[str, ImportSlot]:
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

    base = address - int(symbols["value"][number(landmark)])
    wanted = {number(name): name for name in names}
    found = {}
    for section in sections[sections["type"] == _SHT_RELA]:
        rows = contents(section, _RELOCATION)
        for row in rows[np.isin(rows["symbol"], list(wanted))]:
            found[wanted[int(row["symbol"])]] = ImportSlot(base + int(row["offset"]))
    return found
