"""A kernel of one's own: an ELF executable, linked for the kernel's addresses.

Compiled with `-pg -mfentry` (gcc, clang) each function begins with a call of `__fentry__`; these
calls are listed in `__mcount_loc`, or are looked for. Its text lies in the 4 MiB from
0xffffffff81000000 on, whatever it writes to in the 8 MiB from 0xffffffff82000000 on; what is only
read may lie in either. It has no scheduler that the host knows of: functions are called, one at a
time. Left out: sections that are loaded elsewhere than they run.
"""

from __future__ import annotations

from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section, SymbolTableSection

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, TEXT_BASE
from emulated_kernel.assembler import load
from emulated_kernel.assembly import Symbol
from emulated_kernel.errors import ImageError
from emulated_kernel.image import KernelImage
from emulated_kernel.images.elf_parts import (
    FENTRY,
    MCOUNT_LOC,
    call_sites,
    is_executable,
    opened,
    section_bytes,
    symbol_kind,
)
from emulated_kernel.machine.memory import DATA_LIMIT, TEXT_LIMIT

_PAGE = 4096
_HOST_TEXT = TEXT_BASE + TEXT_LIMIT - _PAGE  # host_return, if the image has none


def load_elf(path: Path) -> KernelImage:
    """The image in an ELF file. Raises ImageError, with the reason in one line."""
    with opened(path) as elf:
        return _image(path.name, elf)


def _image(name: str, elf: ELFFile) -> KernelImage:
    if elf["e_type"] != "ET_EXEC":
        raise ImageError("not an executable linked for fixed addresses")
    sections = [s for s in elf.iter_sections() if s["sh_flags"] & SH_FLAGS.SHF_ALLOC]
    for section in sections:
        _check_place(section)
    segments = {s.name: (s["sh_addr"], section_bytes(s)) for s in sections if s["sh_size"]}
    texts = [segments[s.name] for s in sections if s["sh_size"] and is_executable(s)]
    symbols = _symbols(elf, {s.name for s in sections})
    if not symbols:
        raise ImageError("it has no symbols")
    labels = {s.name: s.address for s in symbols if s.kind.isupper()}
    if FENTRY not in labels:
        raise ImageError(f"no symbol {FENTRY}")
    if "host_return" not in labels:
        host = load([Path(__file__).parent / "host_return.S"], {".text": _HOST_TEXT}, CONSTANTS)
        segments[".text.host"] = host.segments[".text"]
        symbols += host.symbols
        labels |= host.labels
    _, recorded = segments.get(MCOUNT_LOC, (0, b""))
    functions = (symbol.address for symbol in symbols if symbol.kind in "tT")
    mcount = call_sites(recorded, functions, texts, labels[FENTRY])
    return KernelImage(name, segments, symbols, mcount, labels, {})


def _check_place(section: Section) -> None:
    """A section lies where what it is for is allowed."""
    start, flags = section["sh_addr"], section["sh_flags"]
    end = start + section["sh_size"]
    in_text = start >= TEXT_BASE and end <= _HOST_TEXT
    in_data = start >= DATA_BASE and end <= DATA_BASE + DATA_LIMIT
    if is_executable(section):
        fits, where = in_text, f"{TEXT_BASE:#x} to {_HOST_TEXT:#x}"
    elif flags & SH_FLAGS.SHF_WRITE:
        fits, where = in_data, f"{DATA_BASE:#x} to {DATA_BASE + DATA_LIMIT:#x}"
    else:
        fits, where = in_text or in_data, "the text or the data of the kernel"
    if section["sh_size"] and not fits:
        raise ImageError(f"{section.name} at {start:#x} is not in {where}")


def _symbols(elf: ELFFile, sections: set[str]) -> list[Symbol]:
    table = elf.get_section_by_name(".symtab")
    found = []
    for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
        index, info = symbol["st_shndx"], symbol["st_info"]
        if not symbol.name or not isinstance(index, int):
            continue
        section = elf.get_section(index)
        if section.name not in sections or info["type"] in {"STT_SECTION", "STT_FILE"}:
            continue
        kind = symbol_kind(section, info["bind"])
        found.append(Symbol(symbol.name, symbol["st_value"], symbol["st_size"], section.name, kind))
    return sorted(found, key=lambda symbol: symbol.address)
