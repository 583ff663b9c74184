"""Functions and data by name: the kernel's, its loaded modules', and the engine's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emulated_kernel.kallsyms import Symbol
from ftracefs.trace.tracing import Tracing

_TEXT_KINDS = frozenset("tTwW")


class KernelFunctions:
    """The functions and data among `symbols`; several static ones may share a name."""

    def __init__(self, *symbols: Iterable[Symbol]) -> None:
        self._functions: dict[str, list[Symbol]] = {}
        self._symbols: dict[str, int] = {}
        for group in symbols:
            for symbol in sorted(group, key=lambda s: s.address):
                self._symbols.setdefault(symbol.name, symbol.address)
                if symbol.kind in _TEXT_KINDS and symbol.size:  # 0: a label inside one
                    self._functions.setdefault(symbol.name, []).append(symbol)

    def __len__(self) -> int:
        return sum(map(len, self._functions.values()))

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        return iter(sorted(self._functions))

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def named(self, name: str) -> list[Symbol]:
        """All functions of that name, by address."""
        return self._functions.get(name, [])

    def address(self, name: str) -> int | None:
        """The first function of that name."""
        found = self._functions.get(name)
        return found[0].address if found else None

    def symbol(self, name: str) -> int | None:
        """The address of a function or of data."""
        return self._symbols.get(name)


class LoadedFunctions:
    """The functions there are now; with `engine` those of the engine's guest code as well."""

    def __init__(self, tracing: Tracing, *, engine: bool = False) -> None:
        self._tracing = tracing
        self._engine = engine
        self._generation = -1
        self._functions = KernelFunctions()

    def __call__(self) -> KernelFunctions:
        tracing, modules = self._tracing, self._tracing.modules
        if self._generation != modules.generation:
            groups: list[Iterable[Symbol]] = [tracing.image.symbols]
            groups += [module.symbols for module in modules.loaded.values()]
            if self._engine:
                groups.append(tracing.guest.symbols)
            self._functions = KernelFunctions(*groups)
            self._generation = modules.generation
        return self._functions
