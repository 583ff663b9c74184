"""Entries as text (print_trace_line), a whole block of them at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from emulated_kernel.distinct import distinct
from ftracefs.ring_buffer.entries import Entries
from ftracefs.ring_buffer.pages import I64, U64
from ftracefs.trace.events.table import EVENTS
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.event_output import (
    TRACE_FN,
    TRACE_PRINT,
    EventText,
    TraceEventFunctions,
    by_type,
    trace_print_msg_only,
)
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.trace_context import trace_print_context, trace_print_lat_context

Pieces = tuple[list[bytes], ...]
_NEWLINE = 0x0A


def _joined(pieces: Pieces) -> bytes:
    """The pieces of each line one behind the other, and so the lines."""
    if len(pieces) == 1:
        return b"".join(pieces[0])
    interleaved: list[bytes] = [b""] * (len(pieces) * len(pieces[0]))
    for number, piece in enumerate(pieces):
        interleaved[number :: len(pieces)] = piece
    return b"".join(interleaved)


def _lines(pieces: Pieces) -> list[bytes]:
    return pieces[0] if len(pieces) == 1 else list(map(b"".join, zip(*pieces, strict=True)))


class LinePrinter:
    """Prints the entries of one reader, block after block.

    It remembers what depends on what has been printed: how many, and of which CPUs. `index` is the
    number of the first one, which the latency format tells; with None each has the number 1.
    Without `relative` no record knows of the one behind it: it has not been looked at.
    """

    def __init__(
        self,
        context: OutputContext,
        events: Mapping[int, TraceEventFunctions] = EVENTS,
        *,
        index: int | None = 0,
        relative: bool = True,
    ) -> None:
        self._context = context
        self._events = events
        self._first = index
        self._relative = relative
        self._index = 0
        self._started: set[int] = set()

    def block(self, entries: Entries, start: int, stop: int) -> bytes:
        """The text of entries[start:stop]; blocks are printed one behind the other."""
        next_ts = int(entries.ts[stop]) if stop < len(entries) else None
        return self.text(entries[start:stop], next_ts)

    def text(self, entries: Entries, next_ts: int | None = None) -> bytes:
        """All of them in one; `next_ts` is the time of the entry that will come behind them."""
        return self.text_before(entries, self._following(entries, next_ts))

    def text_before(self, entries: Entries, following: U64) -> bytes:
        """The same when it is told for each of them what time the one behind it has."""
        return _joined(self._pieces(entries, following, self._places(entries)))

    def lines(self, entries: Entries) -> list[bytes]:
        """The text of each."""
        following = self._following(entries, None)
        return _lines(self._pieces(entries, following, self._places(entries)))

    def lines_at(self, entries: Entries, where: I64, following: U64) -> list[bytes]:
        """The text of those at `where`; somebody else prints the others, which count all the same.

        `following` tells for each entry what time the one behind it has.
        """
        places = self._places(entries)
        if len(where) == 0:
            return []
        return _lines(self._pieces(entries.take(where), following[where], places[where]))

    def text_and_ends(self, entries: Entries) -> tuple[bytes, I64]:
        """The text of all, and where each one's ends."""
        pieces = self._pieces(entries, self._following(entries, None), self._places(entries))
        text = _joined(pieces)
        if not self._context.flags & TraceIter.BIN and (entries.type == TRACE_FN).all():
            # Each of these ends with a newline; a name may have another one, or a loss.
            ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE) + 1
            if len(ends) == len(entries):
                return text, ends
        lengths = [np.fromiter(map(len, piece), np.int64, len(entries)) for piece in pieces]
        return text, np.cumsum(sum(lengths[1:], lengths[0]))

    def _places(self, entries: Entries) -> I64:
        """How many have been printed before each, these among them."""
        first = self._index
        self._index += len(entries)
        return np.arange(first, self._index)

    def _pieces(self, entries: Entries, following: U64, places: I64) -> Pieces:
        flags = self._context.flags
        if flags & TraceIter.BIN:
            pieces = self._bin(entries)
        elif flags & TraceIter.HEX:
            pieces = self._hex(entries)
        elif flags & TraceIter.RAW:
            pieces = self._raw(entries)
        else:
            pieces = self._trace(entries, following, places)
        if flags & TraceIter.PRINTK_MSGONLY and flags & TraceIter.PRINTK:
            pieces = self._printk_msg_only(entries, pieces)
        for index, count in entries.lost.items():
            text = b"CPU:%d [LOST %d EVENTS]\n" % (entries.cpu[index], count)
            if count < 0:
                text = b"CPU:%d [LOST EVENTS]\n" % entries.cpu[index]
            pieces[0][index] = text + pieces[0][index]
        return pieces

    # --- the formats -----------------------------------------------------------------------------

    def _trace(self, entries: Entries, following: U64, places: I64) -> Pieces:
        """For people (print_trace_fmt)."""
        context = self._context

        def printer(number: int) -> EventText:
            event = self._events.get(number)
            return _unknown_type if event is None else event.trace

        bodies = by_type(entries, context, printer)
        pieces: Pieces = (bodies,)
        if context.flags & TraceIter.CONTEXT_INFO:
            if context.is_latency:
                if not self._relative:
                    following = entries.ts
                numbers = self._numbers_of(places)
                before = trace_print_lat_context(entries, context, numbers, following)
            else:
                before = trace_print_context(entries, context)
            pieces = (*before, bodies)
        if context.annotate and context.flags & TraceIter.ANNOTATE:
            self._test_cpu_buff_start(entries, places, pieces[0])
        return pieces

    def _numbers_of(self, places: I64) -> I64:
        """The number of each in the trace."""
        return np.ones_like(places) if self._first is None else places + self._first

    def _following(self, entries: Entries, next_ts: int | None) -> U64:
        """For each the time of the one behind it, as far as it is known, or else its own."""
        if next_ts is None or len(entries) == 0:
            return np.concatenate([entries.ts[1:], entries.ts[-1:]])
        return np.append(entries.ts[1:], np.uint64(next_ts))

    def _test_cpu_buff_start(self, entries: Entries, places: I64, texts: list[bytes]) -> None:
        """Mark where the records of each CPU begin, but not at the top of the trace."""
        for cpu in distinct(entries.cpu).tolist():
            if cpu not in self._started:
                self._started.add(cpu)
                index = int(np.argmax(entries.cpu == cpu))
                if places[index] > 1:
                    texts[index] = b"##### CPU %u buffer started ####\n" % cpu + texts[index]

    def _numbers(self, entries: Entries) -> list[tuple[int, int, int]]:
        return list(
            zip(entries.pid.tolist(), entries.cpu.tolist(), entries.ts.tolist(), strict=True)
        )

    def _raw(self, entries: Entries) -> Pieces:
        """Plain numbers (print_raw_fmt)."""

        def printer(number: int) -> EventText:
            event = self._events.get(number)
            return _unknown_raw if event is None else event.raw

        bodies = by_type(entries, self._context, printer)
        if not self._context.flags & TraceIter.CONTEXT_INFO:
            return (bodies,)
        return [b"%d %d %d " % numbers for numbers in self._numbers(entries)], bodies

    def _hex(self, entries: Entries) -> Pieces:
        """The bytes of each field, the most significant first (print_hex_fmt)."""

        def printer(number: int) -> EventText:
            event = self._events.get(number)
            return _nothing if event is None else event.hex

        bodies = by_type(entries, self._context, printer)
        bodies = [body + b"\n" for body in bodies]
        if not self._context.flags & TraceIter.CONTEXT_INFO:
            return (bodies,)
        numbers = self._numbers(entries)
        return [b"%08x %08x %016x " % (p & 0xFFFFFFFF, c, t) for p, c, t in numbers], bodies

    def _bin(self, entries: Entries) -> Pieces:
        """The bytes of each field as they are (print_bin_fmt)."""

        def printer(number: int) -> EventText:
            event = self._events.get(number)
            return _nothing if event is None else event.binary

        bodies = by_type(entries, self._context, printer)
        if not self._context.flags & TraceIter.CONTEXT_INFO:
            return (bodies,)
        before = [
            p.to_bytes(4, "little", signed=True) + c.to_bytes(4, "little") + t.to_bytes(8, "little")
            for p, c, t in self._numbers(entries)
        ]
        return before, bodies

    def _printk_msg_only(self, entries: Entries, pieces: Pieces) -> Pieces:
        where = np.flatnonzero(entries.type == TRACE_PRINT)
        texts = trace_print_msg_only(entries.take(where), self._context)
        for index, text in zip(where.tolist(), texts, strict=True):
            for piece in pieces:
                piece[index] = b""
            pieces[-1][index] = text
        return pieces


def _unknown_type(entries: Entries, context: OutputContext) -> list[bytes]:
    return [b"Unknown type %d\n" % number for number in entries.type.tolist()]


def _unknown_raw(entries: Entries, context: OutputContext) -> list[bytes]:
    return [b"%d ?\n" % number for number in entries.type.tolist()]


def _nothing(entries: Entries, context: OutputContext) -> list[bytes]:
    return [b""] * len(entries)


def format_entries(
    entries: Entries,
    context: OutputContext,
    events: Mapping[int, TraceEventFunctions] = EVENTS,
) -> bytes:
    """The text of a whole trace."""
    return LinePrinter(context, events).text(entries)
