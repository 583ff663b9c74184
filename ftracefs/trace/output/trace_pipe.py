"""What a reader of `trace_pipe` gets: records in order of time, gone once they are printed.

A read consumes exactly the records whose lines it prints (tracing_read_pipe). A read for about a
page is given lines made ahead, from what stands on the readers' pages of all CPUs: nothing else can
touch those records, but for a reset or another reader, which the buffers' generations tell. For a
read of more than a page as many lines are made as fit, from pages all over the rings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.ring_buffer.layout import PAGE_SIZE
from ftracefs.ring_buffer.pages import PAGE_WORDS
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
_LINE_BYTES = 64.0  # how long a line is, as long as nothing has been printed
_PAGE_RECORDS = 128


class TracePipe:
    """One reader of one CPU's buffer (`cpu`) or of all. Called on the machine thread."""

    def __init__(self, buffer: RingBuffer, cpu: int | None = None) -> None:
        self._buffer = buffer
        self._cpu = cpu
        self._batch: Batch | None = None
        self._graph = GraphPipe(buffer)
        self._context: OutputContext | None = None
        self._index = 1  # of the next record of this read
        self._line_bytes = _LINE_BYTES
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
        """Print records until `size` bytes are full; b"" when there are none.

        Lines are whole unless `size` is less than one; the rest of such a line comes first the next
        time. There may be room left for a trace_seq; where lines depend on how a read began, or on
        each other, no more than one is given.
        """
        if context.annotate:
            context = replace(context, annotate=False)  # only `trace` shows where a CPU begins
        is_numbered = context.is_latency and context.flags & TraceIter.VERBOSE
        if is_numbered or (context.graph is not None and self._graph.is_open):
            self._batch = None
        self._index = 1
        if size > PAGE_SIZE and not (self._leftover or is_numbered or context.graph):
            text = self._read_lines(size, context, events)
            if text:
                return text
        if not self._leftover:
            self._leftover = self._fill(min(size, _SEQ_BYTES), context, events)
        text, self._leftover = self._leftover[:size], self._leftover[size:]
        return text

    def _read_lines(
        self, size: int, context: OutputContext, events: Mapping[int, TraceEventFunctions]
    ) -> bytes:
        """Whole lines of at most `size` bytes, less only by what a trace_seq holds.

        It ends in front of a line that a trace_seq does not hold.
        """
        self._batch = None
        parts: list[bytes] = []
        room = size
        while room >= PAGE_SIZE and (part := self._lines_within(room, context, events)):
            parts.append(part)
            room -= len(part)
        return b"".join(parts)

    def _lines_within(
        self, room: int, context: OutputContext, events: Mapping[int, TraceEventFunctions]
    ) -> bytes:
        wanted = int((room - PAGE_SIZE // 2) / self._line_bytes) + 1
        chosen = self._chosen()
        found: list[tuple[int, Unread]] = []
        more: list[int] = []
        for cpu_buffer in chosen:
            unread = cpu_buffer.rb_get_reader_pages(wanted // (_PAGE_RECORDS * len(chosen)) + 1)
            if unread is not None:
                found.append((cpu_buffer.cpu, unread[0]))
                if unread[1]:
                    more.append(cpu_buffer.cpu)
        entries = self._merged(found, more)[:wanted]
        if not len(entries):
            return b""
        printer = LinePrinter(context, events, relative=False)
        text, ends = printer.text_and_ends(entries)
        self._line_bytes = max(1.0, len(text) / len(entries))
        too_long = np.flatnonzero(ends - np.concatenate([[0], ends[:-1]]) > _SEQ_BYTES)
        count = int(np.searchsorted(ends, room, "right"))
        if len(too_long):
            count = min(count, int(too_long[0]))
        if count == 0:
            return b""
        self._consume(entries[:count], found)
        return text[: ends[count - 1]]

    def _consume(self, entries: Entries, found: list[tuple[int, Unread]]) -> None:
        """Take these off the buffers; they are the first ones of the pages `found`."""
        page = entries.at // PAGE_WORDS
        first = 0
        for cpu, unread in found:
            of_cpu = np.flatnonzero(entries.cpu == cpu)
            if len(of_cpu):
                last = int(of_cpu[-1])
                self._buffer.cpus[cpu].consume_pages(
                    int(page[last]) - first,
                    len(of_cpu),
                    int(entries.end[last]),
                    int(entries.ts[last]),
                )
            first += len(unread.addresses)

    def _merged(self, found: list[tuple[int, Unread]], more: list[int]) -> Entries:
        """The records on these pages, as far as it is certain that nothing comes between them.

        The CPUs in `more` have records behind them, of which nothing is known but that they come
        after the last one here.
        """
        entries = merge(self._buffer.copy(found), {cpu: part.lost for cpu, part in found})
        certain = len(entries)
        for cpu in more:
            last = np.flatnonzero(entries.cpu == cpu)
            certain = min(certain, int(last[-1]) + 1) if len(last) else certain
        return entries[:certain]

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
        entries = self._merged(found, more)
        generations = [cpu_buffer.generation for cpu_buffer in chosen]
        consumed = Consumed(entries.cpu, np.ones_like(entries.cpu), entries.end, entries.ts)
        printer = LinePrinter(context, events, index=self._index, relative=False)
        self._index += len(entries)
        return Batch(printer.lines(entries), consumed, generations)
