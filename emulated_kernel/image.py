"""What every kernel gives to the machine and to the ftrace engine, whatever it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from emulated_kernel.assembler import Symbol


@dataclass(frozen=True, slots=True)
class Module:
    """A loadable part of a kernel: its text lies in the module area."""

    name: str
    segments: Mapping[str, tuple[int, bytes]]
    symbols: list[Symbol]
    mcount: list[int]
    labels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KernelImage:
    """A kernel ready to be put into RAM.

    `segments` maps a section to (virtual address, bytes); `mcount` is __mcount_loc, the addresses
    of the call sites, ascending; `labels` are the addresses of all global labels; `constants` what
    the sources defined beside asm_offsets.
    """

    name: str
    segments: Mapping[str, tuple[int, bytes]]
    symbols: list[Symbol]
    mcount: list[int]
    labels: Mapping[str, int]
    constants: Mapping[str, int]
    modules: list[Module] = field(default_factory=list)

    def label(self, name: str) -> int:
        """The address of a global label; KeyError when there is none."""
        return self.labels[name]
