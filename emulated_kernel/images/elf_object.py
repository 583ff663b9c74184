"""A module of one's own: a relocatable object, as a compiler leaves it or `ld -r` joins some.

Compiled like a kernel of one's own (images/elf.py), not linked: its sections are given their places
here, all code in one piece and all else in another, and what it refers to is looked up among its
own symbols, then the kernel's (kernel/module/main.c: layout_sections, simplify_symbols,
apply_relocate_add). `int init_module(void)` and `int cleanup_module(void)` are called where it has
them. Left out: what an object of Linux itself says of its module (.modinfo, struct module).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Section, SymbolTableSection
from elftools.elf.sections import Symbol as ElfSymbol

from emulated_kernel.asm_offsets import MODULES_DATA, MODULES_VADDR
from emulated_kernel.assembly import Symbol
from emulated_kernel.errors import ImageError
from emulated_kernel.image import KernelImage, Module
from emulated_kernel.images.builtin import MODULE_TEXT
from emulated_kernel.images.elf_parts import (
    FENTRY,
    MCOUNT_LOC,
    call_sites,
    is_executable,
    opened,
    section_bytes,
    symbol_kind,
)
from emulated_kernel.machine.memory import MODULES_DATA_LIMIT, MODULES_LIMIT
from emulated_kernel.machine.page_tables import PAGE

_INT3 = b"\xcc"
_NOT_PIC = "compile with -fno-pic -mcmodel=kernel"
_GOT = "_GLOBAL_OFFSET_TABLE_"
_LEFT_OUT = {".eh_frame", ".modinfo", ".comment"}


@dataclass(frozen=True, slots=True)
class _Relocation:
    """How a relocation is written down: so many bytes, from where it stands on or not."""

    size: int
    is_relative: bool = False
    is_signed: bool = True

    def encode(self, value: int) -> bytes:
        """Raises OverflowError where it does not fit."""
        if self.size == 8:
            return (value & (1 << 64) - 1).to_bytes(8, "little")
        value = (value + (1 << 63)) % (1 << 64) - (1 << 63) if self.is_signed else value % (1 << 64)
        return value.to_bytes(self.size, "little", signed=self.is_signed)


_RELOCATIONS = {
    1: _Relocation(8),  # R_X86_64_64
    2: _Relocation(4, is_relative=True),  # PC32
    4: _Relocation(4, is_relative=True),  # PLT32: there is no table, what is meant is in reach
    10: _Relocation(4, is_signed=False),  # 32
    11: _Relocation(4),  # 32S
    24: _Relocation(8, is_relative=True),  # PC64
}


@dataclass(frozen=True, slots=True)
class Room:
    """Addresses that are free."""

    start: int
    end: int


@dataclass(slots=True)
class _Area:
    """Where sections lie one behind the other."""

    room: Room
    filler: bytes
    data: bytearray = field(default_factory=bytearray)

    def place(self, section: Section) -> int:
        """The address that a section is given."""
        align = max(1, int(section["sh_addralign"]))
        behind = self.room.start + len(self.data)
        address = -(-behind // align) * align
        if address + section["sh_size"] > self.room.end:
            raise ImageError(
                f"no room for {section.name}: {self.room.end - behind:#x} bytes are left"
            )
        self.data += self.filler * (address - behind)
        self.data += section_bytes(section)
        return address

    def write(self, address: int, data: bytes) -> None:
        at = address - self.room.start
        self.data[at : at + len(data)] = data


def load_objects(image: KernelImage, paths: Sequence[Path]) -> list[Module]:
    """The modules in object files, behind those that a kernel has already.

    Raises ImageError, with the reason in one line.
    """
    found = list(image.modules)
    for path in paths:
        text = _room(MODULE_TEXT, MODULES_VADDR + MODULES_LIMIT, found)
        data = _room(MODULES_DATA, MODULES_DATA + MODULES_DATA_LIMIT, found)
        module = load_object(path, image.labels, text, data)
        if any(module.name == other.name for other in found):
            raise ImageError(f"{path}: there is another module {module.name}")
        found.append(module)
    return found[len(image.modules) :]


def _room(start: int, end: int, modules: Iterable[Module]) -> Room:
    """What the modules leave of an area, from a new page on."""
    parts = (part for module in modules for part in module.segments.values())
    used = [address + len(data) for address, data in parts if start <= address < end]
    return Room(-(-max(used, default=start) // PAGE) * PAGE, end)


def load_object(path: Path, kernel: Mapping[str, int], text: Room, data: Room) -> Module:
    """The module in an object file. `kernel` are the symbols that it may refer to.

    Raises ImageError, with the reason in one line.
    """
    with opened(path) as elf:
        if elf["e_type"] != "ET_REL":
            raise ImageError("not an object file, which gcc -c makes")
        return _Loader(elf, kernel, text, data).module(path.stem.replace("-", "_"))


class _Loader:
    """An object on its way to its place."""

    def __init__(self, elf: ELFFile, kernel: Mapping[str, int], text: Room, data: Room) -> None:
        self._kernel = kernel
        self._text = _Area(text, _INT3)
        self._data = _Area(data, b"\0")
        self._mcount = _Area(Room(0, 1 << 24), b"\0")  # read here, never loaded
        self._sections: list[Section] = list(elf.iter_sections())
        table = elf.get_section_by_name(".symtab")
        if not isinstance(table, SymbolTableSection):
            raise ImageError("it has no symbols")
        self._symbols: list[ElfSymbol] = list(table.iter_symbols())
        self._areas: dict[int, _Area] = {}  # by the number of a section, as what follows
        self._places: dict[int, int] = {}

    def module(self, name: str) -> Module:
        """All steps of loading it."""
        self._layout_sections()
        if not self._text.data:
            raise ImageError("there is no code in it")
        values = self._simplify_symbols()
        for section in self._sections:
            if isinstance(section, RelocationSection) and section["sh_info"] in self._places:
                self._apply_relocate(section, values)
        symbols = self._named_symbols(values)
        labels = {symbol.name: symbol.address for symbol in symbols if symbol.kind.isupper()}
        text = (self._text.room.start, bytes(self._text.data))
        functions = (symbol.address for symbol in symbols if symbol.kind in "tT")
        fentry = self._kernel[FENTRY]
        sites = call_sites(bytes(self._mcount.data), functions, [text], fentry)
        segments = {".text": text}
        if self._data.data:
            segments[".data"] = (self._data.room.start, bytes(self._data.data))
        return Module(name, segments, symbols, sites, labels)

    def _layout_sections(self) -> None:
        for number, section in enumerate(self._sections):
            if not section["sh_flags"] & SH_FLAGS.SHF_ALLOC or not section["sh_size"]:
                continue
            if section.name == MCOUNT_LOC:
                area = self._mcount
            elif section.name in _LEFT_OUT or section["sh_type"] == "SHT_NOTE":
                continue
            else:
                area = self._text if is_executable(section) else self._data
            self._areas[number] = area
            self._places[number] = area.place(section)

    def _simplify_symbols(self) -> list[int | None]:
        """What each symbol stands for; None for one in a section that is not loaded."""
        values: list[int | None] = []
        missing = []
        for symbol in self._symbols:
            index, value = symbol["st_shndx"], symbol["st_value"]
            if index == "SHN_UNDEF":
                found = self._kernel.get(symbol.name, 0 if _may_be_missing(symbol) else None)
                if found is None:
                    missing.append(symbol.name)
                values.append(found)
            elif index == "SHN_COMMON":
                raise ImageError(f"{symbol.name} has no section: compile with -fno-common")
            elif index == "SHN_ABS":
                values.append(value)
            else:
                place = self._places.get(index)
                values.append(None if place is None else place + value)
        if _GOT in missing:
            raise ImageError(f"it goes through a table of addresses: {_NOT_PIC}")
        if missing:
            raise ImageError(f"the kernel has no {', '.join(sorted(missing))}")
        return values

    def _apply_relocate(self, section: RelocationSection, values: list[int | None]) -> None:
        target, place = section["sh_info"], self._places[section["sh_info"]]
        if not section.is_RELA():
            raise ImageError(f"{section.name}: relocations without addends")
        for relocation in section.iter_relocations():
            where = f"{self._sections[target].name}+{relocation['r_offset']:#x}"
            kind = _RELOCATIONS.get(relocation["r_info_type"])
            value = values[relocation["r_info_sym"]]
            if relocation["r_info_type"] == 0:
                continue
            if kind is None:
                raise ImageError(f"{where}: relocation {relocation['r_info_type']}: {_NOT_PIC}")
            if (
                value is None
                or relocation["r_offset"] + kind.size > self._sections[target]["sh_size"]
            ):
                raise ImageError(f"{where}: a relocation that leads nowhere")
            at = place + relocation["r_offset"]
            result = value + relocation["r_addend"] - (at if kind.is_relative else 0)
            try:
                self._areas[target].write(at, kind.encode(result))
            except OverflowError:
                name = self._symbols[relocation["r_info_sym"]].name
                raise ImageError(
                    f"{where}: {name or hex(result)} is out of reach: {_NOT_PIC}"
                ) from None

    def _named_symbols(self, values: list[int | None]) -> list[Symbol]:
        """Those that kallsyms shows."""
        found = []
        for symbol, address in zip(self._symbols, values, strict=True):
            number, info = symbol["st_shndx"], symbol["st_info"]
            if not symbol.name or address is None or self._areas.get(number) is None:
                continue
            if info["type"] in ("STT_SECTION", "STT_FILE") or self._areas[number] is self._mcount:
                continue
            section = self._sections[number]
            kind = symbol_kind(section, info["bind"])
            found.append(Symbol(symbol.name, address, symbol["st_size"], section.name, kind))
        return sorted(found, key=lambda symbol: symbol.address)


def _may_be_missing(symbol: ElfSymbol) -> bool:
    """The first symbol of all is none; a weak one that nobody has is 0."""
    return not symbol.name or symbol["st_info"]["bind"] == "STB_WEAK"
