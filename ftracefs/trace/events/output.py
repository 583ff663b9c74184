"""Records of events as text: the fields by their places, the text by the print format.

Models trace_raw_output_* of include/trace/stages. Only for people: with the options raw, hex and
bin Linux says no more of these records than their type.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Protocol

import numpy as np

from ftracefs.ring_buffer.entries import Entries
from ftracefs.trace.events.call import EventCall
from ftracefs.trace.events.fields import REL_LOC, EventField
from ftracefs.trace.events.print_fmt import KernelNames, PrintFmt, PrintFmtError, compile_print_fmt
from ftracefs.trace.events.print_helpers import raw_pointer
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.event_output import TraceEventFunctions
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.payloads import texts_by_payload

Column = list[int] | list[bytes]
log = logging.getLogger(__name__)


class KernelValues(KernelNames, Protocol):
    """What a text may say of the kernel, as it is when the text is made; for any thread."""

    @property
    def has_pointers(self) -> bool:
        """Whether it has what its pointers are hashed with."""

    def hashed(self, address: int) -> bytes:
        """A pointer as %p shows it."""

    def string(self, address: int) -> bytes | None:
        """A string of the kernel's own; None where there is none."""

    def variable(self, name: str) -> int:
        """One of `has_variable`, or HZ."""


def column(entries: Entries, field: EventField, wanted: str = "") -> Column:
    """One field of every record, as print formats want it.

    Of a dynamic one the bytes, with `text` up to the NUL that ends them, or with `length` how many.
    """
    if field.is_dynamic:
        return _dynamic(entries, field, wanted)
    if field.length is not None or field.size not in (1, 2, 4, 8):
        return _arrays(entries, field)
    if field.size == 8:
        raw = entries.u64(field.offset)
    else:
        raw = entries.u32(field.offset) >> np.uint32(8 * (field.offset % 4))
    numbers: list[int] = raw.astype(f"<{'i' if field.is_signed else 'u'}{field.size}").tolist()
    return numbers


def _arrays(entries: Entries, field: EventField) -> list[bytes]:
    first = field.offset // 4
    nr_words = (field.offset % 4 + field.size + 3) // 4
    words = np.ascontiguousarray(
        entries.words[entries.at[:, None] + np.arange(first, first + nr_words)]
    )
    data = words.view(np.uint8)[:, field.offset % 4 : field.offset % 4 + field.size]
    return list(map(bytes, data))


def _dynamic(entries: Entries, field: EventField, wanted: str) -> Column:
    locations = entries.u32(field.offset)
    lengths: list[int] = (locations >> np.uint32(16)).tolist()
    if wanted == "length":
        return lengths
    base = field.offset + field.size if field.type.startswith(REL_LOC) else 0
    starts = ((locations & np.uint32(0xFFFF)) + np.uint32(base)).tolist()
    texts = [
        entries.payload(index)[start : start + length]
        for index, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]
    return [text.partition(b"\0")[0] for text in texts] if wanted == "text" else texts


class Environment:
    """What the text of a record depends on beside it."""

    def __init__(self, context: OutputContext, kernel: KernelValues | None) -> None:
        self._symbols = context.symbols
        self._hashes = bool(context.flags & TraceIter.HASH_PTR)
        self._kernel = kernel

    def symbol(self, address: int) -> bytes:
        return self._symbols.sprint_ps(address).encode()

    def symbol_offset(self, address: int) -> bytes:
        return self._symbols.sprint_pS(address).encode()

    def pointer(self, address: int) -> bytes:
        if self._kernel is None or not self._hashes:
            return raw_pointer(address)
        return self._kernel.hashed(address)

    def string(self, address: int) -> bytes:
        if not address:
            return b"(null)"
        text = None if self._kernel is None else self._kernel.string(address)
        return b"[UNSAFE-MEMORY]" if text is None else text

    def variable(self, name: str) -> int:
        return 0 if self._kernel is None else self._kernel.variable(name)


class EventPrinter:
    """Prints the records of an event; its format is translated with the first of them.

    A format that cannot be translated is shown field by field, as the option `fields` of newer
    kernels does.
    """

    def __init__(self, call: EventCall, kernel: KernelValues | None) -> None:
        self._call = call
        self._kernel = kernel
        self._kept: dict[tuple[bool, bool], dict[bytes, bytes]] = {}

    @cached_property
    def _by_name(self) -> dict[str, EventField]:
        return {field.name: field for field in self._call.fields}

    @cached_property
    def print_fmt(self) -> PrintFmt | None:
        """None if it cannot be translated."""
        try:
            return compile_print_fmt(self._call.print_fmt, self._by_name, self._kernel)
        except PrintFmtError as error:
            log.info("%s:%s: %s", self._call.system, self._call.name, error)
            return None

    def trace(self, entries: Entries, context: OutputContext) -> list[bytes]:
        """A line for each, without its context."""
        environment, print_fmt = Environment(context, self._kernel), self.print_fmt

        def render(entries: Entries) -> list[bytes]:
            bodies = self._render(print_fmt, entries, environment)
            prefix = f"{self._call.name}: ".encode()
            return [b"%b%b\n" % (prefix, body) for body in bodies]

        if print_fmt is not None and not print_fmt.is_lasting:
            return render(entries)
        is_final = self._kernel is None or self._kernel.has_pointers
        kept = self._kept.setdefault((bool(context.flags & TraceIter.HASH_PTR), is_final), {})
        return texts_by_payload(entries, kept, render)

    def _render(
        self, print_fmt: PrintFmt | None, entries: Entries, environment: Environment
    ) -> list[bytes]:
        if print_fmt is None:
            columns = [_shown(entries, field) for field in self._call.fields]
            return [b" ".join(row) for row in zip(*columns, strict=True)]
        by_name = self._by_name
        values = [column(entries, by_name[name], wanted) for name, wanted in print_fmt.columns]
        return print_fmt.render(environment, len(entries), *values)


def _shown(entries: Entries, field: EventField) -> list[bytes]:
    """`name=value` for each record."""
    name = field.name.encode()
    if field.is_string:
        texts = (text.partition(b"\0")[0] for text in column(entries, field, "text"))  # type: ignore[union-attr]
        return [b"%b=%b" % (name, text) for text in texts]
    values = column(entries, field)
    return [
        b"%b=%b" % (name, value.hex().encode() if isinstance(value, bytes) else b"%d" % value)
        for value in values
    ]


def event_functions(call: EventCall, kernel: KernelValues | None = None) -> TraceEventFunctions:
    """The printers of an event."""
    return TraceEventFunctions(EventPrinter(call, kernel).trace)
