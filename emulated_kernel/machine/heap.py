"""Which parts of a stretch of memory are in use: first fit, neighbours joined when freed."""

from __future__ import annotations

from bisect import bisect_left


class Heap:
    """Hands out parts of [start, start + size), the lowest that fits first."""

    def __init__(self, start: int, size: int) -> None:
        self._starts = [start]  # of the free stretches, ascending
        self._sizes = {start: size}
        self.used: dict[int, int] = {}

    def alloc(self, size: int, align: int) -> int:
        """`size` bytes at a multiple of `align`; MemoryError when none are left."""
        for index, start in enumerate(self._starts):
            at = -(-start // align) * align
            end = start + self._sizes[start]
            if at + size <= end:
                self._take(index, start, at, at + size, end)
                self.used[at] = size
                return at
        raise MemoryError("the emulated machine's memory is used up")

    def _take(self, index: int, start: int, at: int, stop: int, end: int) -> None:
        rest = []
        if start < at:
            rest.append((start, at - start))
        if stop < end:
            rest.append((stop, end - stop))
        del self._sizes[start]
        self._starts[index : index + 1] = [where for where, _ in rest]
        self._sizes.update(rest)

    def stretches(self) -> list[tuple[int, int]]:
        """What is free: (start, size), ascending."""
        return [(start, self._sizes[start]) for start in self._starts]

    def free(self, at: int) -> None:
        """Take back what `alloc` gave."""
        size = self.used.pop(at)
        index = bisect_left(self._starts, at)
        if index < len(self._starts) and self._starts[index] == at + size:
            size += self._sizes.pop(self._starts.pop(index))
        if index:
            before = self._starts[index - 1]
            if before + self._sizes[before] == at:
                self._sizes[before] += size
                return
        self._starts.insert(index, at)
        self._sizes[at] = size
