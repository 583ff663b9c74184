"""A kernel of one's own: an ELF executable, linked for the kernel's addresses.

Compiled with `-pg -mfentry -mrecord-mcount` (gcc, clang) it has a call of `__fentry__` at each
function's entry and their addresses in `__mcount_loc`. Its text lies in the 4 MiB from
0xffffffff81000000 on, whatever it writes to in the 8 MiB from 0xffffffff82000000 on; what is only
read may lie in either. It has no scheduler that the host knows of: functions are called, one at a
time. Left out: relocatable files, sections that are loaded elsewhere than they run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section, SymbolTableSection

from emulated_kernel.asm_link import Symbol
from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, TEXT_BASE
from emulated_kernel.assembler import load
from emulated_kernel.errors import ImageError
from emulated_kernel.image import KernelImage
from emulated_kernel.machine.memory import DATA_LIMIT, TEXT_LIMIT

_PAGE = 4096
_HOST_TEXT = TEXT_BASE + TEXT_LIMIT - _PAGE  # host_return, if the image has none
_MCOUNT_LOC = "__mcount_loc"
_FENTRY = "__fentry__"
_CALL_BYTES = 5
_LEVELS = {"STB_GLOBAL": str.upper, "STB_WEAK": str.upper, "STB_LOCAL": str.lower}


def load_elf(path: Path) -> KernelImage:
    """The image in an ELF file. Raises ImageError, with the reason in one line."""
    try:
        with path.open("rb") as file:
            return _image(path, ELFFile(file))
    except (ELFError, OSError, UnicodeDecodeError, ValueError) as error:
        raise ImageError(f"{path}: {error}") from error


def _image(path: Path, elf: ELFFile) -> KernelImage:
    if elf.elfclass != 64 or elf["e_machine"] != "EM_X86_64":
        raise ImageError(f"{path}: not for x86-64")
    if elf["e_type"] != "ET_EXEC":
        raise ImageError(f"{path}: not an executable linked for fixed addresses")
    sections = [s for s in elf.iter_sections() if s["sh_flags"] & SH_FLAGS.SHF_ALLOC]
    segments = {s.name: (s["sh_addr"], _bytes(s)) for s in sections if s["sh_size"]}
    for section in sections:
        _check_place(path, section)
    symbols = _symbols(elf, {s.name: s for s in sections})
    labels = {s.name: s.address for s in symbols if s.kind.isupper()}
    if _MCOUNT_LOC not in segments:
        raise ImageError(f"{path}: no {_MCOUNT_LOC}: compile with -pg -mfentry -mrecord-mcount")
    if _FENTRY not in labels:
        raise ImageError(f"{path}: no symbol {_FENTRY}")
    if "host_return" not in labels:
        host = load([Path(__file__).parent / "host_return.S"], {".text": _HOST_TEXT}, CONSTANTS)
        segments[".text.host"] = host.segments[".text"]
        symbols += host.symbols
        labels |= host.labels
    mcount = np.frombuffer(segments[_MCOUNT_LOC][1], dtype=np.uint64)
    mcount = np.unique(mcount[mcount != 0])  # a function that the linker dropped leaves a 0
    _check_sites(path, mcount, segments, labels[_FENTRY])
    return KernelImage(path.name, segments, symbols, mcount.tolist(), labels, {})


def _bytes(section: Section) -> bytes:
    if section["sh_type"] == "SHT_NOBITS":
        return bytes(section["sh_size"])
    return bytes(section.data())


def _check_place(path: Path, section: Section) -> None:
    """A section lies where what it is for is allowed."""
    start, flags = section["sh_addr"], section["sh_flags"]
    end = start + section["sh_size"]
    in_text = start >= TEXT_BASE and end <= _HOST_TEXT
    in_data = start >= DATA_BASE and end <= DATA_BASE + DATA_LIMIT
    if flags & SH_FLAGS.SHF_EXECINSTR:
        fits, where = in_text, f"{TEXT_BASE:#x} to {_HOST_TEXT:#x}"
    elif flags & SH_FLAGS.SHF_WRITE:
        fits, where = in_data, f"{DATA_BASE:#x} to {DATA_BASE + DATA_LIMIT:#x}"
    else:
        fits, where = in_text or in_data, "the text or the data of the kernel"
    if section["sh_size"] and not fits:
        raise ImageError(f"{path}: {section.name} at {start:#x} is not in {where}")


def _symbols(elf: ELFFile, sections: dict[str, Section]) -> list[Symbol]:
    table = elf.get_section_by_name(".symtab")
    found = []
    for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
        index = symbol["st_shndx"]
        if not symbol.name or not isinstance(index, int):
            continue
        section = elf.get_section(index)
        if section.name not in sections or symbol["st_info"]["type"] in {
            "STT_SECTION",
            "STT_FILE",
        }:
            continue
        level = _LEVELS.get(symbol["st_info"]["bind"], str.lower)
        kind = level(_kind(section))
        found.append(Symbol(symbol.name, symbol["st_value"], symbol["st_size"], section.name, kind))
    if not found:
        raise ELFError("it has no symbols")
    return sorted(found, key=lambda symbol: symbol.address)


def _kind(section: Section) -> str:
    """kallsyms' letter."""
    if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR:
        return "t"
    if section["sh_type"] == "SHT_NOBITS":
        return "b"
    return "d" if section["sh_flags"] & SH_FLAGS.SHF_WRITE else "r"


def _check_sites(
    path: Path,
    mcount: np.ndarray[tuple[int], np.dtype[np.uint64]],
    segments: dict[str, tuple[int, bytes]],
    fentry: int,
) -> None:
    """Each call site is in text and holds a call of __fentry__."""
    texts = [part for name, part in segments.items() if name.startswith(".text")]
    for site in mcount.tolist():
        for start, code in texts:
            offset = site - start
            if 0 <= offset <= len(code) - _CALL_BYTES:
                distance = int.from_bytes(code[offset + 1 : offset + 5], "little", signed=True)
                if code[offset] == 0xE8 and site + _CALL_BYTES + distance == fentry:
                    break
        else:
            raise ImageError(f"{path}: {_MCOUNT_LOC}: no call of {_FENTRY} at {site:#x}")
