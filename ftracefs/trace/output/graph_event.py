"""Calls and returns where another tracer is in charge (print_graph_function_event).

They get there by a snapshot only: another tracer starts with an empty buffer, but finds the
snapshot that function_graph left, or a latency tracer what it saw with display-graph. Each line has
the context of every other record in front. There is no state, so no banner tells of another task
and every brace is taken to be the right one.

Left out: the same in a `trace_pipe`, where such a record is told by its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ftracefs.ring_buffer.entries import Entries
from ftracefs.ring_buffer.pages import I64
from ftracefs.trace.events.table import EVENTS
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.event_output import (
    TRACE_GRAPH_ENT,
    TRACE_GRAPH_RET,
    EventText,
    TraceEventFunctions,
)
from ftracefs.trace.output.graph import NO_PID, GraphLines, GraphPrinter, Mask
from ftracefs.trace.output.lines import LinePrinter
from ftracefs.trace.output.output_context import OutputContext

_GRAPH = (TRACE_GRAPH_ENT, TRACE_GRAPH_RET)
_NUMBERS_ONLY = TraceIter.RAW | TraceIter.HEX | TraceIter.BIN


class StatelessPrinter(GraphPrinter):
    """Prints each line as if nothing had been printed before."""

    def advance(self, lines: GraphLines) -> tuple[I64, Mask, I64]:
        count = len(lines)
        nobody = np.full(count, NO_PID, dtype=np.int64)
        return nobody, np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)


def _given(texts: list[bytes]) -> EventText:
    """A printer whose texts are there already."""
    return lambda _entries, _context: texts


class EventPrinter:
    """Prints the entries of one reader: as LinePrinter, and calls and returns as told above."""

    def __init__(
        self, context: OutputContext, events: Mapping[int, TraceEventFunctions] = EVENTS
    ) -> None:
        self._flags = context.flags
        self._events = dict(events)
        self._lines = LinePrinter(context, self._events)
        self._graph = StatelessPrinter(replace(context, graph=context.graph_events), events)

    def is_alone(self, entries: Entries) -> bool:
        """Whether these can be printed without knowing what comes behind them."""
        return bool(self._flags & _NUMBERS_ONLY or not np.isin(entries.type, _GRAPH).any())

    def text(self, entries: Entries, next_ts: int | None = None) -> bytes:
        """The text of entries that are `is_alone`; `next_ts` is the time of the one behind them."""
        return self._lines.text(entries, next_ts)

    def block(self, entries: Entries, start: int, stop: int) -> bytes:
        """The text of entries[start:stop]; blocks are printed one behind the other."""
        next_ts = int(entries.ts[stop]) if stop < len(entries) else None
        part = entries[start:stop]
        if self.is_alone(part):
            return self.text(part, next_ts)
        planned = self._graph.plan(entries, start, stop)
        texts = self._graph.lines(planned)
        for kind in _GRAPH:
            of_kind = [texts[index] for index in np.flatnonzero(planned.type == kind).tolist()]
            self._events[kind] = TraceEventFunctions(_given(of_kind))
        return self._lines.text_before(planned.entries, planned.following)
