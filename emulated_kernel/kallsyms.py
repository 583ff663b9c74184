"""Symbols by address and by name (kernel/kallsyms.c).

As in Linux a symbol reaches up to the next one of its section, padding included. Of several symbols
at one address the first given answers, and one with a size before a bare label. Symbols come and go
in groups: the kernel, the engine's own code, each module.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Symbol(Protocol):
    """What is needed of a symbol; `kind` is kallsyms' letter."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def section(self) -> str: ...
    @property
    def kind(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Location:
    """An address as symbol and offset; `size` is the symbol's, `module` None for the kernel."""

    name: str
    offset: int
    size: int
    module: str | None
    kind: str

    def __str__(self) -> str:
        """As %pS prints it."""
        text = f"{self.name}+{self.offset:#x}/{self.size:#x}"
        return text if self.module is None else f"{text} [{self.module}]"


@dataclass(frozen=True, slots=True)
class _Entry:
    address: int
    end: int
    name: str
    module: str | None
    kind: str


def _entries(module: str | None, symbols: Iterable[Symbol]) -> list[_Entry]:
    by_section: dict[str, list[Symbol]] = {}
    for symbol in symbols:
        by_section.setdefault(symbol.section, []).append(symbol)
    entries: list[_Entry] = []
    for members in by_section.values():
        # A label without a size (an alias, an entry in the middle) comes after a function.
        members.sort(key=lambda s: (s.address, s.size == 0))
        end = max(s.address + s.size for s in members)
        following = end
        for symbol in reversed(members):
            if entries and entries[-1].address == symbol.address:
                end = entries[-1].end
            else:
                end, following = following, symbol.address
            entries.append(_Entry(symbol.address, end, symbol.name, module, symbol.kind))
    entries.reverse()
    entries.sort(key=lambda e: e.address)
    return entries


class Kallsyms:
    """All symbols of the running system."""

    def __init__(self) -> None:
        self._groups: dict[str, list[_Entry]] = {}
        self._entries: list[_Entry] = []
        self._addresses: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._ends: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._by_name: dict[str, int] = {}
        self.generation = 0  # counts the changes

    def add(self, group: str, symbols: Iterable[Symbol], *, module: str | None = None) -> None:
        """Enter the symbols of `group`; `module` is what their addresses are shown to belong to."""
        self._groups[group] = _entries(module, symbols)
        self._rebuild()

    def remove(self, group: str) -> None:
        """Forget a group, as when a module is unloaded."""
        del self._groups[group]
        self._rebuild()

    def _rebuild(self) -> None:
        everything = [e for group in self._groups.values() for e in group]
        everything.sort(key=lambda e: e.address)
        self._by_name = {}
        for entry in everything:
            self._by_name.setdefault(entry.name, entry.address)
        first: list[_Entry] = []
        for entry in everything:
            if not first or first[-1].address != entry.address:
                first.append(entry)
        self._entries = first
        self._addresses = np.array([e.address for e in first], dtype=np.uint64)
        self._ends = np.array([e.end for e in first], dtype=np.uint64)
        self.generation += 1

    def numbers(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """For many addresses the number of their symbol, or -1."""
        numbers = np.searchsorted(self._addresses, addresses, "right").astype(np.int64) - 1
        if len(self._ends):
            numbers[(numbers >= 0) & (addresses >= self._ends[numbers])] = -1
        return numbers

    def location(self, number: int, address: int) -> Location | None:
        """What `numbers` answered for `address`, spelt out."""
        if number < 0:
            return None
        e = self._entries[number]
        return Location(e.name, address - e.address, e.end - e.address, e.module, e.kind)

    def kallsyms_lookup(self, address: int) -> Location | None:
        """The symbol that `address` lies in."""
        number = int(np.searchsorted(self._addresses, np.uint64(address), "right")) - 1
        if number < 0 or address >= self._entries[number].end:
            return None
        return self.location(number, address)

    def kallsyms_lookup_name(self, name: str) -> int | None:
        """The address of a name: the lowest when several symbols bear it."""
        return self._by_name.get(name)

    def sprint_symbol(self, address: int) -> str:
        """%pS: `name+0x0/0x10 [module]`, or the bare address."""
        location = self.kallsyms_lookup(address)
        return f"{address:#x}" if location is None else str(location)

    def sprint_symbol_no_offset(self, address: int) -> str:
        """%ps: `name [module]`, or the bare address."""
        location = self.kallsyms_lookup(address)
        if location is None:
            return f"{address:#x}"
        return location.name if location.module is None else f"{location.name} [{location.module}]"

    def text(self) -> str:
        """As /proc/kallsyms shows it: group by group, each in order of address."""
        lines = []
        for group in self._groups.values():
            for entry in group:
                module = f"\t[{entry.module}]" if entry.module is not None else ""
                lines.append(f"{entry.address:016x} {entry.kind} {entry.name}{module}\n")
        return "".join(lines)
