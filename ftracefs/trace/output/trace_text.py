"""What an open `trace` file shows: everything unread, as of one moment.

Linux walks the living buffer, which can go on for ever when the reading itself is traced. Here the
pages are copied at the open, and the text is made from the copies, block after block as it is read.
Only calls and returns are put in order all at once: a line may need a return that is far behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from ftracefs.ring_buffer.entries import Entries
from ftracefs.ring_buffer.merging import Merging
from ftracefs.ring_buffer.pages import Pages
from ftracefs.trace.events.table import EVENTS
from ftracefs.trace.output.event_output import TraceEventFunctions
from ftracefs.trace.output.graph import GraphPrinter
from ftracefs.trace.output.graph_event import EventPrinter
from ftracefs.trace.output.output_context import OutputContext

_BLOCK = 8192  # entries
_RUN = 48  # pages
_FIRST_RUN = 4


class TraceText:
    """The text of a trace, which need not be made on the machine thread.

    Not for two threads at once.
    """

    def __init__(
        self,
        header: str,
        pages: Pages | Entries,
        context: OutputContext,
        events: Mapping[int, TraceEventFunctions] = EVENTS,
    ) -> None:
        self._header = header
        self._context = context
        self._text = bytearray(header, "utf-8", "surrogateescape")
        self._merging = Merging(pages) if isinstance(pages, Pages) else None
        self._run = _FIRST_RUN
        self._entries = None if isinstance(pages, Pages) else pages
        self._done = 0
        printer = EventPrinter if context.graph is None else GraphPrinter
        self._printer: EventPrinter | GraphPrinter = printer(context, events)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the text, less than `size` only at its end."""
        while len(self._text) < offset + size and self._more():
            pass
        return bytes(self._text[offset : offset + size])

    def is_same(self, other: TraceText) -> bool:
        """Whether the same pages would come out the same."""
        mine, its = self._context, other._context
        return (
            self._header == other._header
            and mine == its
            and mine.names is its.names
            and mine.tgids == its.tgids
        )

    def length(self) -> int:
        """Of the whole text, which is made for it."""
        while self._more():
            pass
        return len(self._text)

    def _more(self) -> bool:
        """Print another block; False when there is none."""
        if self._merging is not None:
            if self._print_run(self._merging):
                return True
            self._entries, self._merging = self._merging.rest(), None
        entries = self._entries
        if entries is None:
            return False
        stop = min(self._done + _BLOCK, len(entries))
        is_last = stop == len(entries)
        self._text += self._printer.block(entries, self._done, stop)
        self._done = stop
        if is_last:
            self._entries = None
        return True

    def _print_run(self, merging: Merging) -> bool:
        """Print the next records, if that is possible without those behind them."""
        if isinstance(self._printer, GraphPrinter):
            return False
        run = merging.run(self._run)
        self._run = _RUN
        if not len(run) or not self._printer.is_alone(run):
            return False
        merging.advance(run)
        following = merging.run(1).ts[:1].tolist() if self._context.is_latency else []
        self._text += self._printer.text(run, *following)
        return True
