"""The functions of a kernel by name, its modules' included."""

from __future__ import annotations

from collections.abc import Iterator

from emulated_kernel.assembler import Symbol
from emulated_kernel.image import KernelImage

_TEXT_KINDS = frozenset("tTwW")


class KernelFunctions:
    """Every function and data symbol of `image`; several static ones may share a name."""

    def __init__(self, image: KernelImage) -> None:
        self._functions: dict[str, list[Symbol]] = {}
        self._symbols: dict[str, int] = {}
        for symbols in (image.symbols, *(module.symbols for module in image.modules)):
            for symbol in sorted(symbols, key=lambda s: s.address):
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
