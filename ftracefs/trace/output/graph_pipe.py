"""Batches of trace_pipe while the function graph tracer prints (get_return_for_leaf).

Whether a call is a leaf is told by the next record of its CPU, which may stand on the page behind
the reader's: then that is looked at as well, and the leaf's line takes its first record.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.ring_buffer.pages import PAGE_WORDS
from ftracefs.ring_buffer.per_cpu import RingBufferPerCpu, Unread
from ftracefs.trace.output.batch import Batch, Consumed
from ftracefs.trace.output.event_output import TRACE_GRAPH_ENT, TraceEventFunctions
from ftracefs.trace.output.graph import FgraphData, GraphLines, GraphPrinter
from ftracefs.trace.output.graph_event import StatelessPrinter
from ftracefs.trace.output.lines import LinePrinter
from ftracefs.trace.output.output_context import OutputContext


class _GraphBatch(Batch):
    """`before` is the reader's state in front of its lines.

    `is_open` tells that a call at its end may turn out to be a leaf when there are more records.
    """

    def __init__(
        self,
        printer: GraphPrinter,
        lines: GraphLines,
        consumed: Consumed,
        generations: list[int],
        *,
        is_open: bool,
    ) -> None:
        self.before = printer.data.copy()
        self.lines = lines
        self.is_open = is_open
        super().__init__(printer.lines(lines), consumed, generations)


class GraphPipe:
    """What one reader of trace_pipe has seen, and its next lines."""

    def __init__(self, buffer: RingBuffer) -> None:
        self._buffer = buffer
        self._data = FgraphData()
        self._batch: _GraphBatch | None = None

    @property
    def is_open(self) -> bool:
        """Whether lines made ahead may look otherwise by now."""
        return self._batch is not None and self._batch.is_open and not self._batch.is_done

    def make_batch(
        self,
        chosen: list[RingBufferPerCpu],
        found: list[tuple[int, Unread]],
        context: OutputContext,
        events: Mapping[int, TraceEventFunctions],
    ) -> Batch:
        """Lines for what stands on the readers' pages `found`; those made before are dropped."""
        self._settle(context, events)
        left = {c.cpu: c for c in chosen if c.writer_has_left()}
        lost = {cpu: part.lost for cpu, part in found}
        entries = merge(self._buffer.copy(found), lost)
        found = [(cpu, _with_page_behind(part, left.get(cpu), entries)) for cpu, part in found]
        if any(len(part.addresses) > 1 for _, part in found):
            entries = merge(self._buffer.copy(found), lost)
        pages = [page == 0 for _, part in found for page in range(len(part.addresses))]
        own = np.array(pages)[entries.at // PAGE_WORDS]

        # Behind the last record of a page stands one that may be older than what other CPUs hold.
        certain, is_open = len(entries), False
        for cpu, part in found:
            last = np.flatnonzero(own & (entries.cpu == cpu))[-1:]
            if cpu in left and len(last):
                certain = min(certain, int(last[0]) + 1)
            if len(part.addresses) == 1:
                is_open |= bool((entries.type[last] == TRACE_GRAPH_ENT).any())

        printer = self._printer(context, events)
        lines = printer.plan(entries, 0, certain)
        behind: tuple[int, int] | None = None
        across = np.flatnonzero(~own[lines.last])
        if len(across):
            lines = lines.first(int(across[0]) + 1)
            taken = int(lines.last[-1])
            behind = int(entries.end[taken]), int(entries.ts[taken])
        on_page = np.where(own[lines.last], lines.last, lines.at)
        consumed = Consumed(
            entries.cpu[lines.at],
            np.where(on_page == lines.at, 1, 2),
            entries.end[on_page],
            entries.ts[on_page],
            behind,
        )
        generations = [cpu_buffer.generation for cpu_buffer in chosen]
        self._batch = _GraphBatch(printer, lines, consumed, generations, is_open=is_open)
        return self._batch

    def _settle(self, context: OutputContext, events: Mapping[int, TraceEventFunctions]) -> None:
        """Let the state be that behind the lines taken of the last batch."""
        batch, self._batch = self._batch, None
        if batch is not None and not batch.is_done:
            self._data = batch.before
            self._printer(context, events).advance(batch.lines.first(batch.done))

    def _printer(
        self, context: OutputContext, events: Mapping[int, TraceEventFunctions]
    ) -> GraphPrinter:
        keeps_state = context.graph is None or context.graph.pipe_open
        printer = GraphPrinter if keeps_state else StatelessPrinter
        others = LinePrinter(context, events, relative=False)
        return printer(context, events, self._data, others)


def _with_page_behind(
    part: Unread, cpu_buffer: RingBufferPerCpu | None, entries: Entries
) -> Unread:
    """`part`, and the page behind it if that tells about the call at its end."""
    if cpu_buffer is None:
        return part
    last = np.flatnonzero(entries.cpu == cpu_buffer.cpu)[-1:]
    behind = cpu_buffer.behind_reader_page()
    if not (entries.type[last] == TRACE_GRAPH_ENT).any() or behind is None or behind.lost:
        return part
    return Unread([*part.addresses, *behind.addresses], behind.commit, part.read, part.lost)
