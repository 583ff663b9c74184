"""What an assembler makes of an image's sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Symbol(NamedTuple):
    """A symbol as kallsyms knows it; a plain label has size 0."""

    name: str
    address: int
    size: int
    section: str
    kind: str


@dataclass(frozen=True, slots=True)
class Assembly:
    """The result: bytes at addresses, and what is where."""

    segments: dict[str, tuple[int, bytes]]
    symbols: list[Symbol]
    labels: dict[str, int]
    mcount: list[int]
    constants: dict[str, int]
