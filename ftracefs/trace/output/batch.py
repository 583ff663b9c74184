"""Lines of trace_pipe that were made ahead, and the records they stand for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from emulated_kernel.distinct import distinct
from ftracefs.ring_buffer.pages import I64, U64
from ftracefs.ring_buffer.per_cpu import RingBufferPerCpu


@dataclass(frozen=True, slots=True)
class Consumed:
    """What each line takes off the buffers: `count` records of `cpu` up to the one at `end`.

    `behind` tells that the last line takes one record more, the first of its CPU's next page, which
    ends at behind[0] and bears the time behind[1].
    """

    cpu: I64
    count: I64
    end: I64
    ts: U64
    behind: tuple[int, int] | None = None


class Batch:
    """Lines made ahead. They hold as long as the buffers' generations are `generations`."""

    def __init__(self, lines: list[bytes], consumed: Consumed, generations: list[int]) -> None:
        self.generations = generations
        self.done = 0
        self._lines = lines
        self._starts = list(accumulate(map(len, lines), initial=0))
        self._consumed = consumed
        self._cpus: list[int] = distinct(consumed.cpu).tolist()

    @property
    def is_done(self) -> bool:
        return self.done == len(self._lines)

    def count(self, size: int, room: int) -> int:
        """How many lines give `size` bytes or more and do not take more than `room`."""
        start = self._starts[self.done]
        enough = bisect_left(self._starts, start + size, self.done)
        fitting = bisect_right(self._starts, start + room, self.done) - 1
        return min(enough, fitting, len(self._lines)) - self.done

    def take(self, count: int, cpus: Mapping[int, RingBufferPerCpu]) -> bytes:
        """The next `count` lines, their records taken off the buffers."""
        text = b"".join(self._lines[self.done : self.done + count])
        consumed = self._consumed
        for cpu in self._cpus:
            of_cpu = self.done + np.flatnonzero(consumed.cpu[self.done : self.done + count] == cpu)
            if len(of_cpu):
                last = int(of_cpu[-1])
                records = int(consumed.count[of_cpu].sum())
                cpus[cpu].consume(records, int(consumed.end[last]), int(consumed.ts[last]))
        self.done += count
        if self.is_done and consumed.behind is not None:
            cpu_buffer = cpus[int(consumed.cpu[-1])]
            cpu_buffer.rb_get_reader_page()
            cpu_buffer.consume(1, *consumed.behind)
        return text
