"""What ELF files of kernels and of their modules have in common."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section

from emulated_kernel.errors import ImageError

MCOUNT_LOC = "__mcount_loc"
FENTRY = "__fentry__"
_CALL, _CALL_BYTES = 0xE8, 5
_ENDBR_BYTES = 4
# What pyelftools answers to a broken file.
BROKEN = (
    *(ELFError, OSError, ValueError, LookupError, AttributeError, TypeError, AssertionError),
    *(ArithmeticError, MemoryError, RecursionError, struct.error),
)


@contextmanager
def opened(path: Path) -> Iterator[ELFFile]:
    """A file for x86-64. Whatever is found to be wrong with it is an ImageError of one line."""
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            if elf.elfclass != 64 or elf["e_machine"] != "EM_X86_64":
                raise ImageError("not for x86-64")
            yield elf
    except ImageError as error:
        raise ImageError(f"{path}: {error}") from error
    except BROKEN as error:
        if isinstance(error, OSError):
            raise ImageError(f"{path}: {error.strerror or error}") from error
        text = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"{path}: broken: {text}") from error


def is_executable(section: Section) -> bool:
    return bool(section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)


def section_bytes(section: Section) -> bytes:
    """Its contents; zeros for one that has none in the file."""
    if section["sh_type"] == "SHT_NOBITS":
        return bytes(section["sh_size"])
    return bytes(section.data())


def symbol_kind(section: Section, bind: str) -> str:
    """kallsyms' letter for a symbol in a section: upper case where others see it."""
    if is_executable(section):
        kind = "t"
    elif section["sh_type"] == "SHT_NOBITS":
        kind = "b"
    else:
        kind = "d" if section["sh_flags"] & SH_FLAGS.SHF_WRITE else "r"
    return kind.upper() if bind in ("STB_GLOBAL", "STB_WEAK") else kind


def call_sites(
    recorded: bytes,
    functions: Iterable[int],
    texts: Sequence[tuple[int, bytes]],
    fentry: int,
) -> list[int]:
    """Where __fentry__ is called, ascending.

    `recorded` is __mcount_loc. Where the compiler left none the beginnings of all functions are
    looked at. Raises ImageError when there is no call, or when something else is recorded.
    """
    recorded = recorded[: len(recorded) & ~7]
    sites = {site for (site,) in struct.iter_unpack("<Q", recorded)}
    sites.discard(0)  # a function that the linker dropped
    for site in sites:
        if not _calls(texts, site, fentry):
            raise ImageError(f"{MCOUNT_LOC}: no call of {FENTRY} at {site:#x}")
    if not sites:
        places = {address + skipped for address in functions for skipped in (0, _ENDBR_BYTES)}
        sites = {place for place in places if _calls(texts, place, fentry)}
    if not sites:
        raise ImageError(f"no function calls {FENTRY}: compile with -pg -mfentry")
    return sorted(sites)


def _calls(texts: Sequence[tuple[int, bytes]], site: int, function: int) -> bool:
    for start, code in texts:
        at = site - start
        if 0 <= at <= len(code) - _CALL_BYTES and code[at] == _CALL:
            distance = int.from_bytes(code[at + 1 : at + _CALL_BYTES], "little", signed=True)
            return site + _CALL_BYTES + distance == function
    return False
