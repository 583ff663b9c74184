"""Records of events as text: the fields by their places, the text by the print format.

Models trace_raw_output_* of include/trace/stages. Only for people: with the options raw, hex and
bin Linux says no more of these records than their type.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ftracefs.ring_buffer.entries import Entries
from ftracefs.trace.events.call import TraceEventCall
from ftracefs.trace.events.fields import EventField
from ftracefs.trace.events.print_fmt import compile_print_fmt
from ftracefs.trace.output.event_output import TraceEventFunctions
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.payloads import texts_by_payload

Column = list[int] | list[bytes]


def column(entries: Entries, field: EventField) -> Column:
    """One field of every record; strings without the NUL that ends them."""
    if field.is_dynamic:
        return _dynamic(entries, field)
    if field.is_string:
        return _strings(entries, field)
    if field.size == 8:
        raw = entries.u64(field.offset)
    else:
        raw = entries.u32(field.offset) >> np.uint32(8 * (field.offset % 4))
    numbers: list[int] = raw.astype(f"<{'i' if field.is_signed else 'u'}{field.size}").tolist()
    return numbers


def _strings(entries: Entries, field: EventField) -> list[bytes]:
    first = field.offset // 4
    nr_words = (field.offset % 4 + field.size + 3) // 4
    words = np.ascontiguousarray(
        entries.words[entries.at[:, None] + np.arange(first, first + nr_words)]
    )
    data = words.view(np.uint8)[:, field.offset % 4 : field.offset % 4 + field.size]
    return [row.partition(b"\0")[0] for row in map(bytes, data)]


def _dynamic(entries: Entries, field: EventField) -> list[bytes]:
    texts = []
    for index, location in enumerate(entries.u32(field.offset).tolist()):
        start, length = location & 0xFFFF, location >> 16
        texts.append(entries.payload(index)[start : start + length].partition(b"\0")[0])
    return texts


def event_functions(call: TraceEventCall) -> TraceEventFunctions:
    """The printers of an event."""
    print_fmt = compile_print_fmt(call.print_fmt)
    by_name: Mapping[str, EventField] = {field.name: field for field in call.fields}
    fields = [by_name[name] for name in print_fmt.fields]
    prefix, newline = f"{call.name}: ".encode(), b"\n"
    kept: dict[bytes, bytes] = {}

    def render(entries: Entries) -> list[bytes]:
        bodies = print_fmt.render(*(column(entries, field) for field in fields))
        return [prefix + body + newline for body in bodies]

    def trace(entries: Entries, context: OutputContext) -> list[bytes]:
        return texts_by_payload(entries, kept, render)

    return TraceEventFunctions(trace)
