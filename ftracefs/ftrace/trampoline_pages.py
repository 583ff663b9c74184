"""Where trampolines stand: pages of the module area, a page each as alloc_tramp gives them."""

from __future__ import annotations

PAGE_SIZE = 4096
# Behind the engine's own code. A trampoline reads its op pointer from its own page, so that page's
# entry in Unicorn's soft TLB (address bits 12..19) is to be one that no hot data uses.
_AREA_START, _AREA_END = 0x280000, 0x800000  # of the module area; module text begins there


class TrampolinePages:
    """Hands out pages of the module area at `area`, within reach of a call from kernel text."""

    def __init__(self, area: int) -> None:
        self._next = area + _AREA_START
        self._end = area + _AREA_END
        self._free: list[int] = []

    def alloc_tramp(self, size: int) -> int:
        """A page for a trampoline of `size` bytes; MemoryError when there is none."""
        if size > PAGE_SIZE:
            raise MemoryError(f"a trampoline of {size} bytes")
        if self._free:
            return self._free.pop()
        if self._next + PAGE_SIZE > self._end:
            raise MemoryError("no room for another trampoline")
        self._next += PAGE_SIZE
        return self._next - PAGE_SIZE

    def tramp_free(self, address: int) -> None:
        """Give a page back."""
        self._free.append(address)
