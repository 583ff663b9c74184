"""Symbols by address and by name (kernel/kallsyms.c).

As in Linux a symbol reaches up to the next one of its section, padding included. Of several symbols
at one address the first given answers, and one with a size before a bare label. Symbols come and go
in groups: the kernel, the engine's own code, each module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
_NOWHERE = 1 << 64


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


class TableSymbol(NamedTuple):
    """One of a SymbolTable, where `section` is not known."""

    name: str
    address: int
    size: int
    section: str
    kind: str


@dataclass(frozen=True, eq=False, slots=True)
class SymbolTable:
    """Many symbols, in order of address: where each begins and ends, its name and its letter."""

    addresses: U64
    ends: U64
    names: Sequence[str]
    kinds: Sequence[str]

    def __len__(self) -> int:
        return len(self.addresses)

    def __iter__(self) -> Iterator[TableSymbol]:
        columns = (self.addresses.tolist(), self.ends.tolist(), self.names, self.kinds)
        for address, end, name, kind in zip(*columns, strict=True):
            yield TableSymbol(name, address, end - address, "", kind)


def symbol_table(symbols: Iterable[Symbol]) -> SymbolTable:
    """The symbols of some sections, each up to where the next one of its section begins."""
    by_section: dict[str, list[Symbol]] = {}
    for symbol in symbols:
        by_section.setdefault(symbol.section, []).append(symbol)
    entries: list[tuple[int, int, str, str]] = []
    for members in by_section.values():
        # A label without a size (an alias, an entry in the middle) comes after a function.
        members.sort(key=lambda s: (s.address, s.size == 0))
        end = max(s.address + s.size for s in members)
        following = end
        for symbol in reversed(members):
            if entries and entries[-1][0] == symbol.address:
                end = entries[-1][1]
            else:
                end, following = following, symbol.address
            entries.append((symbol.address, end, symbol.name, symbol.kind))
    entries.reverse()
    entries.sort(key=lambda entry: entry[0])
    columns = list(zip(*entries, strict=True)) or [(), (), (), ()]
    addresses, ends = (np.array(column, dtype=np.uint64) for column in columns[:2])
    return SymbolTable(addresses, ends, columns[2], columns[3])


class Kallsyms:
    """All symbols of the running system."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[str | None, SymbolTable]] = {}
        self._tables: list[tuple[str | None, SymbolTable]] = []
        # Of each address that has a symbol: the address, the table, the number in that.
        self._addresses: U64 = np.zeros(0, dtype=np.uint64)
        self._ends: U64 = np.zeros(0, dtype=np.uint64)
        self._table_of = self._row_of = np.zeros(0, dtype=np.intp)
        self._by_name: dict[str, int] | None = None
        self.generation = 0  # counts the changes

    def add(
        self, group: str, symbols: Iterable[Symbol] | SymbolTable, *, module: str | None = None
    ) -> None:
        """Enter the symbols of `group`; `module` is what their addresses are shown to belong to."""
        table = symbols if isinstance(symbols, SymbolTable) else symbol_table(symbols)
        self._groups[group] = (module, table)
        self._rebuild()

    def remove(self, group: str) -> None:
        """Forget a group, as when a module is unloaded."""
        del self._groups[group]
        self._rebuild()

    def _rebuild(self) -> None:
        self._tables = list(self._groups.values())
        tables = [table for _, table in self._tables]
        addresses = np.concatenate([self._addresses[:0], *(table.addresses for table in tables)])
        order = np.argsort(addresses, kind="stable")
        addresses = addresses[order]
        is_first = np.ones(len(order), dtype=np.bool_)
        is_first[1:] = addresses[1:] != addresses[:-1]
        order = order[is_first]
        ends = np.concatenate([self._ends[:0], *(table.ends for table in tables)])
        sizes = [len(table) for table in tables]
        rows = [np.arange(size, dtype=np.intp) for size in sizes]
        self._addresses, self._ends = addresses[is_first], ends[order]
        self._table_of = np.repeat(np.arange(len(tables)), sizes)[order]
        self._row_of = np.concatenate([self._row_of[:0], *rows])[order]
        self._by_name = None
        self.generation += 1

    def numbers(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """For many addresses the number of their symbol, or -1."""
        numbers = np.searchsorted(self._addresses, addresses, "right").astype(np.int64) - 1
        if len(self._ends):
            numbers[(numbers >= 0) & (addresses >= self._ends[numbers])] = -1
        return numbers

    def spell(
        self, numbers: npt.NDArray[np.int64], addresses: U64
    ) -> tuple[list[str], npt.NDArray[np.int64]]:
        """Of what `numbers` answered the symbols' names, and how far into them the addresses are.

        "" and 0 where there is no symbol.
        """
        known = numbers >= 0
        offsets = np.zeros(len(numbers), dtype=np.int64)
        offsets[known] = (addresses[known] - self._addresses[numbers[known]]).astype(np.int64)
        tables = [table.names for _, table in self._tables]
        places = zip(
            self._table_of[numbers[known]].tolist(),
            self._row_of[numbers[known]].tolist(),
            strict=True,
        )
        names = [tables[table][row] for table, row in places]
        if len(names) < len(numbers):
            found = iter(names)
            names = [next(found) if is_known else "" for is_known in known.tolist()]
        return names, offsets

    def location(self, number: int, address: int) -> Location | None:
        """What `numbers` answered for `address`, spelt out."""
        if number < 0:
            return None
        module, table = self._tables[self._table_of[number]]
        row = self._row_of[number]
        begin, end = int(self._addresses[number]), int(self._ends[number])
        return Location(table.names[row], address - begin, end - begin, module, table.kinds[row])

    def kallsyms_lookup(self, address: int) -> Location | None:
        """The symbol that `address` lies in."""
        number = int(np.searchsorted(self._addresses, np.uint64(address), "right")) - 1
        if number < 0 or address >= int(self._ends[number]):
            return None
        return self.location(number, address)

    def kallsyms_lookup_name(self, name: str) -> int | None:
        """The address of a name: the lowest when several symbols bear it."""
        if self._by_name is None:
            self._by_name = {}
            for _, table in self._tables:
                for known, address in zip(table.names, table.addresses.tolist(), strict=True):
                    if address < self._by_name.get(known, _NOWHERE):
                        self._by_name[known] = address
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
        for module, table in self._groups.values():
            shown = "" if module is None else f"\t[{module}]"
            lines += [
                f"{address:016x} {kind} {name}{shown}\n"
                for address, kind, name in zip(
                    table.addresses.tolist(), table.kinds, table.names, strict=True
                )
            ]
        return "".join(lines)
