"""An ELF file of a kernel, as its boot loader reads it: what is loaded where, and its sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emulated_kernel.errors import ImageError

_ELFCLASS64, _LITTLE_ENDIAN = 2, 1
_ET_EXEC, _ET_DYN, _EM_X86_64 = 2, 3, 62
_PT_LOAD, _PF_EXECUTE, _PF_WRITE = 1, 1, 2
_SHT_NOBITS = 8
_SEGMENTS_LIMIT, _SECTIONS_LIMIT = 64, 4096
_NAMES_LIMIT, _NAME_LIMIT = 1 << 20, 64
_MEMORY_LIMIT = 1 << 30

_EHDR = np.dtype("V4, u1, u1, V10, <u2, <u2, <u4, <u8, <u8, <u8, <u4, <u2, <u2, <u2, <u2, <u2, <u2")
_EHDR.names = (
    *("magic", "elf_class", "byte_order", "rest", "type", "machine", "version", "entry"),
    *("phoff", "shoff", "flags", "ehsize", "phentsize", "phnum", "shentsize", "shnum", "shstrndx"),
)
_PHDR = np.dtype("<u4, <u4, <u8, <u8, <u8, <u8, <u8, <u8")
_PHDR.names = ("type", "flags", "offset", "vaddr", "paddr", "filesz", "memsz", "align")
_SHDR = np.dtype("<u4, <u4, <u8, <u8, <u8, <u8, <u4, <u4, <u8, <u8")
_SHDR.names = (
    *("name", "type", "flags", "addr", "offset", "size", "link", "info", "align", "entsize"),
)


@dataclass(frozen=True, slots=True)
class Segment:
    """What is loaded as one piece: `data` at `physical`, and zeros up to `memory_size`.

    `virtual` is where the kernel's own page tables have it: of the per-CPU segment of older kernels
    0, the base of its addresses.
    """

    physical: int
    virtual: int
    offset: int  # of `data` in the file
    data: memoryview
    memory_size: int
    executable: bool
    writable: bool

    def holds(self, address: int, size: int = 1) -> bool:
        """Whether [address, address + size), virtual, is in the file's part of it."""
        return self.virtual <= address and address + size <= self.virtual + len(self.data)


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section: `offset` and `data` are where and what it is in the file, if anything."""

    address: int
    size: int
    offset: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class ElfFile:
    """An ELF executable for x86-64 in memory."""

    data: memoryview
    entry: int
    segments: tuple[Segment, ...]
    sections: Mapping[str, ElfSection]

    def read(self, address: int, size: int) -> memoryview:
        """The bytes at a virtual address. Raises ImageError where the file has none."""
        for segment in self.segments:
            if size >= 0 and segment.holds(address, size):
                start = address - segment.virtual
                return segment.data[start : start + size]
        raise ImageError(f"broken: nothing is loaded at {address:#x} (+{size})")

    def has(self, address: int, content: bytes) -> bool:
        """Whether that is what stands at a virtual address."""
        try:
            return self.read(address, len(content)) == content
        except ImageError:
            return False

    def address(self, offset: int) -> int | None:
        """The virtual address of what stands at an offset in the file, if it is loaded."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + len(segment.data):
                return segment.virtual + offset - segment.offset
        return None

    def string(self, address: int, limit: int) -> bytes:
        """The NUL-terminated string at a virtual address, at most `limit` bytes of it."""
        for segment in self.segments:
            if segment.holds(address):
                start = address - segment.virtual
                return bytes(segment.data[start : start + limit]).split(b"\0")[0]
        raise ImageError(f"broken: nothing is loaded at {address:#x}")


def parse_elf(data: bytes | memoryview) -> ElfFile:
    """The file in `data`. Raises ImageError, with the reason in one line."""
    view = memoryview(data).toreadonly()
    if len(view) < _EHDR.itemsize or bytes(view[:4]) != b"\x7fELF":
        raise ImageError("not an ELF file")
    header = np.frombuffer(view[: _EHDR.itemsize], dtype=_EHDR)[0]
    if header["elf_class"] != _ELFCLASS64:
        raise ImageError("a 32-bit kernel")
    if header["byte_order"] != _LITTLE_ENDIAN or header["machine"] != _EM_X86_64:
        raise ImageError("not for x86-64")
    if header["type"] not in (_ET_EXEC, _ET_DYN):
        raise ImageError("not an executable")
    segments = tuple(_segments(view, header))
    if not segments or sum(segment.memory_size for segment in segments) > _MEMORY_LIMIT:
        raise ImageError("broken: nothing to load, or more than a kernel can be")
    return ElfFile(view, int(header["entry"]), segments, _sections(view, header))


def _table(
    view: memoryview, offset: int, count: int, entry_size: int, dtype: np.dtype[np.void]
) -> npt.NDArray[np.void]:
    if count and entry_size != dtype.itemsize:
        raise ImageError("broken: an ELF header of another size")
    if offset + count * dtype.itemsize > len(view):
        raise ImageError("truncated: the ELF headers are not all there")
    return np.frombuffer(view[offset : offset + count * dtype.itemsize], dtype=dtype)


def _segments(view: memoryview, header: np.void) -> Iterator[Segment]:
    count = min(int(header["phnum"]), _SEGMENTS_LIMIT)
    for entry in _table(view, int(header["phoff"]), count, int(header["phentsize"]), _PHDR):
        if entry["type"] != _PT_LOAD:
            continue
        offset, size = int(entry["offset"]), int(entry["filesz"])
        memory_size, physical = int(entry["memsz"]), int(entry["paddr"])
        if offset + size > len(view):
            raise ImageError(f"truncated: {len(view)} bytes of at least {offset + size}")
        if memory_size < size or physical + memory_size > 1 << 32:
            raise ImageError(f"broken: a segment at {physical:#x} of {memory_size:#x} bytes")
        yield Segment(
            physical,
            int(entry["vaddr"]),
            offset,
            view[offset : offset + size],
            memory_size,
            bool(entry["flags"] & _PF_EXECUTE),
            bool(entry["flags"] & _PF_WRITE),
        )


def _sections(view: memoryview, header: np.void) -> dict[str, ElfSection]:
    """By name; empty where the headers were stripped."""
    count, names_index = int(header["shnum"]), int(header["shstrndx"])
    if not count or names_index >= count or count > _SECTIONS_LIMIT:
        return {}
    table = _table(view, int(header["shoff"]), count, int(header["shentsize"]), _SHDR)
    names = bytes(_section_data(view, table[names_index])[:_NAMES_LIMIT])
    sections: dict[str, ElfSection] = {}
    for entry in table:
        start = int(entry["name"])
        name = names[start : start + _NAME_LIMIT].split(b"\0")[0].decode("ascii", "replace")
        data = _section_data(view, entry)
        section = ElfSection(int(entry["addr"]), int(entry["size"]), int(entry["offset"]), data)
        sections.setdefault(name, section)
    return sections


def _section_data(view: memoryview, entry: np.void) -> memoryview:
    if entry["type"] == _SHT_NOBITS:
        return view[:0]
    offset, size = int(entry["offset"]), int(entry["size"])
    if offset + size > len(view):
        raise ImageError(f"truncated: {len(view)} bytes of at least {offset + size}")
    return view[offset : offset + size]
