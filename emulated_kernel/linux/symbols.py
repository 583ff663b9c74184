"""The symbols of a kernel by name and by address (kernel/kallsyms.c)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KernelSymbols:
    """Symbols in order of address, as /proc/kallsyms has them.

    `text` is their names, one a line; `kinds` their letters. Linux keeps no sizes: a symbol reaches
    up to the next one.
    """

    addresses: U64
    kinds: bytes
    text: bytes

    def __len__(self) -> int:
        return len(self.addresses)

    @cached_property
    def names(self) -> list[str]:
        return self.text.decode("utf-8", "replace").split("\n")

    @cached_property
    def _by_name(self) -> dict[str, int]:
        names = self.names
        return dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def address(self, name: str) -> int:
        """The address of a symbol, the lowest if there are several. Raises KeyError."""
        return int(self.addresses[self._by_name[name]])

    def get(self, name: str) -> int | None:
        """The same, or None where there is no such symbol."""
        number = self._by_name.get(name)
        return None if number is None else int(self.addresses[number])

    def numbers(self, addresses: U64) -> I64:
        """For each address the number of the symbol it is in, or -1 below the first one.

        Of several symbols at one address it is the first (get_symbol_pos).
        """
        last = np.searchsorted(self.addresses, addresses, "right").astype(np.int64) - 1
        first = np.searchsorted(self.addresses, self.addresses[last], "left").astype(np.int64)
        return np.where(last < 0, -1, first)
