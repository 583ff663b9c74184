"""What a reader of `trace_pipe` gets: records in order of time, gone once they are printed.

A read consumes exactly the records whose lines it prints (tracing_read_pipe). The lines are made
ahead, from what stands on the readers' pages of all CPUs: nothing else can touch those records, but
for a reset or another reader, which the buffers' generations tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import merge
from ftracefs.ring_buffer.layout import PAGE_SIZE
from ftracefs.ring_buffer.per_cpu import RingBufferPerCpu, Unread
from ftracefs.trace.events.table import EVENTS
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.batch import Batch, Consumed
from ftracefs.trace.output.event_output import TraceEventFunctions
from ftracefs.trace.output.graph_pipe import GraphPipe
from ftracefs.trace.output.lines import LinePrinter
from ftracefs.trace.output.output_context import OutputContext

_SEQ_BYTES = PAGE_SIZE - 1  # what a trace_seq holds
_TOO_BIG = b"[LINE TOO BIG]\n"


class TracePipe:
    """One reader of one CPU's buffer (`cpu`) or of all. Called on the machine thread."""

    def __init__(self, buffer: RingBuffer, cpu: int | None = None) -> None:
        self._buffer = buffer
        self._cpu = cpu
        self._batch: Batch | None = None
        self._graph = GraphPipe(buffer)
        self._context: OutputContext | None = None
        self._index = 1  # of the next record of this read
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
        is_numbered = context.is_latency and context.flags & TraceIter.VERBOSE
        if is_numbered or (context.graph is not None and self._graph.is_open):
            self._batch = None
        self._index = 1
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
    ) -> Batch | None:
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
    ) -> Batch | None:
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
        if context.graph is not None:
            return self._graph.make_batch(chosen, found, context, events)
        entries = merge(self._buffer.copy(found), {cpu: part.lost for cpu, part in found})
        # Behind the last record of a page stands one that may be older than what other CPUs hold.
        certain = len(entries)
        for cpu in more:
            last = np.flatnonzero(entries.cpu == cpu)
            certain = min(certain, int(last[-1]) + 1) if len(last) else certain
        entries = entries[:certain]
        generations = [cpu_buffer.generation for cpu_buffer in chosen]
        consumed = Consumed(entries.cpu, np.ones_like(entries.cpu), entries.end, entries.ts)
        printer = LinePrinter(context, events, index=self._index, relative=False)
        self._index += len(entries)
        return Batch(printer.lines(entries), consumed, generations)
