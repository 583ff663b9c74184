"""What a reader of `trace_pipe` gets: records in order of time, gone once they are printed.

A read consumes exactly the records whose lines it prints (tracing_read_pipe). The lines are made
ahead, from what stands on the readers' pages of all CPUs: nothing else can touch those records, but
for a reset or another reader, which the buffers' generations tell.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import numpy as np

from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.ring_buffer.layout import PAGE_SIZE
from ftracefs.ring_buffer.per_cpu import RingBufferPerCpu, Unread
from ftracefs.trace.output.event_output import EVENTS, TraceEventFunctions
from ftracefs.trace.output.lines import LinePrinter
from ftracefs.trace.output.output_context import OutputContext

_SEQ_BYTES = PAGE_SIZE - 1  # what a trace_seq holds
_TOO_BIG = b"[LINE TOO BIG]\n"


class _Batch:
    """Lines made ahead, and the records they stand for."""

    def __init__(self, entries: Entries, lines: list[bytes], generations: list[int]) -> None:
        self.generations = generations
        self.done = 0
        self._lines = lines
        self._starts = list(accumulate(map(len, lines), initial=0))
        self._entries = entries
        self._cpus: list[int] = np.unique(entries.cpu).tolist()

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
        entries = self._entries
        for cpu in self._cpus:
            of_cpu = np.flatnonzero(entries.cpu[self.done : self.done + count] == cpu)
            if len(of_cpu):
                last = self.done + int(of_cpu[-1])
                cpus[cpu].consume(len(of_cpu), int(entries.end[last]), int(entries.ts[last]))
        self.done += count
        return text


class TracePipe:
    """One reader of one CPU's buffer (`cpu`) or of all. Called on the machine thread."""

    def __init__(self, buffer: RingBuffer, cpu: int | None = None) -> None:
        self._buffer = buffer
        self._cpu = cpu
        self._batch: _Batch | None = None
        self._context: OutputContext | None = None
        self._leftover = b""  # of a line longer than what the reader asked for

    @property
    def has_leftover(self) -> bool:
        """Whether the last read cut a line, whose rest comes next."""
        return bool(self._leftover)

    def is_empty(self) -> bool:
        """Whether a read would have to wait."""
        return not self._leftover and self._buffer.is_empty(self._cpu)

    def read(
        self,
        size: int,
        context: OutputContext,
        events: Mapping[int, TraceEventFunctions] = EVENTS,
    ) -> bytes:
        """Print records until `size` bytes or a trace_seq is full; b"" when there are none.

        Lines are whole unless `size` is less than one; the rest of such a line comes first the next
        time.
        """
        if context.annotate:
            context = replace(context, annotate=False)  # only `trace` shows where a CPU begins
        if not self._leftover:
            self._leftover = self._fill(min(size, _SEQ_BYTES), context, events)
        text, self._leftover = self._leftover[:size], self._leftover[size:]
        return text

    def _fill(
        self, size: int, context: OutputContext, events: Mapping[int, TraceEventFunctions]
    ) -> bytes:
        parts: list[bytes] = []
        used = 0
        cpus = {cpu_buffer.cpu: cpu_buffer for cpu_buffer in self._chosen()}
        while used < size:
            batch = self._next_batch(context, events)
            if batch is None:
                break
            count = batch.count(size - used, _SEQ_BYTES - used)
            if count == 0 and parts:
                break
            text = batch.take(max(count, 1), cpus)
            parts.append(text if count else _TOO_BIG)
            used += len(parts[-1])
            if count == 0:
                break
        return b"".join(parts)

    def _chosen(self) -> list[RingBufferPerCpu]:
        cpus = self._buffer.cpus
        return cpus if self._cpu is None else [cpus[self._cpu]]

    def _next_batch(
        self, context: OutputContext, events: Mapping[int, TraceEventFunctions]
    ) -> _Batch | None:
        """The lines made ahead if there are any left and they still hold, or new ones."""
        batch, chosen = self._batch, self._chosen()
        if (
            batch is not None
            and not batch.is_done
            and batch.generations == [cpu_buffer.generation for cpu_buffer in chosen]
            and self._is_current(context)
        ):
            return batch
        self._context = context
        self._batch = self._make_batch(chosen, context, events)
        return self._batch

    def _is_current(self, context: OutputContext) -> bool:
        """Whether lines made ahead would come out the same now."""
        before = self._context
        return before is not None and before.names is context.names and before == context

    def _make_batch(
        self,
        chosen: list[RingBufferPerCpu],
        context: OutputContext,
        events: Mapping[int, TraceEventFunctions],
    ) -> _Batch | None:
        found: list[tuple[int, Unread]] = []
        more: list[int] = []
        for cpu_buffer in chosen:
            unread = cpu_buffer.rb_get_reader_page()
            if unread is not None:
                found.append((cpu_buffer.cpu, unread))
                if cpu_buffer.writer_has_left():
                    more.append(cpu_buffer.cpu)
        if not found:
            return None
        entries = merge(self._buffer.copy(found), {cpu: part.lost for cpu, part in found})
        # Behind the last record of a page stands one that may be older than what other CPUs hold.
        certain = len(entries)
        for cpu in more:
            last = np.flatnonzero(entries.cpu == cpu)
            certain = min(certain, int(last[-1]) + 1) if len(last) else certain
        entries = entries[:certain]
        generations = [cpu_buffer.generation for cpu_buffer in chosen]
        return _Batch(entries, LinePrinter(context, events).lines(entries), generations)
