"""What is in a Linux kernel's image: what to load where, its symbols, its call sites.

All addresses are those it was linked for, at which it runs with `nokaslr`.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emulated_kernel.errors import ImageError
from emulated_kernel.linux.btf import Btf
from emulated_kernel.linux.elf_file import ElfFile, Segment
from emulated_kernel.linux.symbols import U64, KernelSymbols

START_KERNEL_MAP = 0xFFFFFFFF80000000  # __START_KERNEL_map: where physical 0 would be
_BANNER_LIMIT = 512
_CONFIG_LIMIT = 4 << 20
_NEEDED = "a kernel with CONFIG_DYNAMIC_FTRACE and CONFIG_KALLSYMS_ALL is needed"
_IKCONFIG, _PACKED_CONFIG_LIMIT = re.compile(rb"IKCFG_ST(?=\x1f\x8b)"), 1 << 20


def btf_data(elf: ElfFile, symbols: KernelSymbols) -> memoryview:
    """The kernel's type information. Raises ImageError where there is none."""
    if section := elf.sections.get(".BTF"):
        return section.data
    start, end = symbols.get("__start_BTF"), symbols.get("__stop_BTF")
    if start is None or end is None or start >= end:
        raise ImageError("no BTF in it: a kernel with CONFIG_DEBUG_INFO_BTF is needed")
    return elf.read(start, end - start)


class Range(NamedTuple):
    """Addresses from `start` on, up to but without `end`."""

    start: int
    end: int

    def has(self, addresses: U64) -> npt.NDArray[np.bool_]:
        """Which of many addresses lie in it."""
        return (addresses >= np.uint64(self.start)) & (addresses < np.uint64(self.end))


@dataclass(frozen=True, eq=False)
class Vmlinux:
    """A kernel's image, read and checked. `digest` is the SHA-256 of the file it came in."""

    name: str
    digest: str
    elf: ElfFile
    symbols: KernelSymbols
    btf: Btf

    def check(self) -> None:
        """Raises ImageError for a kernel that cannot be booted or traced."""
        _ = self.release, self.text, self.init_text, self.mcount

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What is loaded where in physical memory."""
        return self.elf.segments

    @property
    def entry(self) -> int:
        """Where a 64-bit boot loader jumps to, physical (startup_64)."""
        entry = self.elf.entry
        return entry - START_KERNEL_MAP if entry >= START_KERNEL_MAP else entry

    @cached_property
    def banner(self) -> str:
        """What /proc/version shows: `Linux version 6.1.0 (…) #1 SMP …`."""
        text = self.elf.string(self.symbol("linux_banner"), _BANNER_LIMIT)
        return text.decode("utf-8", "replace").rstrip("\n")

    @property
    def release(self) -> str:
        """What `uname -r` shows."""
        words = self.banner.split()
        if words[:2] != ["Linux", "version"] or len(words) < 3:
            raise ImageError("broken: its version is not where it should be")
        return words[2]

    @cached_property
    def text(self) -> Range:
        """The text that stays."""
        return self._range("_stext", "_etext")

    @cached_property
    def init_text(self) -> Range:
        """The text that is only run while booting."""
        return self._range("_sinittext", "_einittext")

    @cached_property
    def init(self) -> Range:
        """All that is freed after boot (free_initmem), `init_text` in it."""
        return self._range("__init_begin", "__init_end")

    @cached_property
    def mcount(self) -> U64:
        """The call sites of __fentry__, ascending, those in `init_text` included."""
        start, end = self._range("__start_mcount_loc", "__stop_mcount_loc")
        sites = np.frombuffer(self.elf.read(start, (end - start) & ~7), dtype="<u8")
        # What the linker dropped leaves a 0. Before 5.17 they are sorted when the kernel boots.
        sites = np.sort(sites[sites != 0]).astype(np.uint64)
        if not (self.text.has(sites) | self.init.has(sites)).all():
            raise ImageError("broken: call sites outside its text")
        return sites

    @property
    def mcount_after_boot(self) -> U64:
        """The call sites that are left when init has been freed (ftrace_free_init_mem)."""
        return self.mcount[~self.init.has(self.mcount)]

    @cached_property
    def config(self) -> dict[str, str] | None:
        """The options it was built with, where it carries them (CONFIG_IKCONFIG)."""
        found = _IKCONFIG.search(self.elf.data)
        if found is None:
            return None
        try:
            packed = self.elf.data[found.end() : found.end() + _PACKED_CONFIG_LIMIT]
            text = zlib.decompressobj(wbits=31).decompress(packed, _CONFIG_LIMIT)
        except zlib.error:
            return None
        lines = text.decode("utf-8", "replace").splitlines()
        pairs = (line.partition("=") for line in lines if line.startswith("CONFIG_"))
        return {name: value.strip('"') for name, _, value in pairs}

    def symbol(self, name: str) -> int:
        """The address of a symbol that every kernel has. Raises ImageError."""
        address = self.symbols.get(name)
        if address is None:
            raise ImageError(f"no symbol {name}: {_NEEDED}")
        return address

    def physical(self, address: int) -> int:
        """Where the kernel's own mapping has a virtual address of text or data."""
        return address - START_KERNEL_MAP

    def read(self, address: int, size: int) -> bytes:
        """What the file has at a virtual address. Raises ImageError where it has nothing."""
        return bytes(self.elf.read(address, size))

    def _range(self, start: str, end: str) -> Range:
        found = Range(self.symbol(start), self.symbol(end))
        if found.start > found.end:
            raise ImageError(f"broken: {start} lies behind {end}")
        return found
