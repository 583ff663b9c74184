"""How each kind of record is printed (struct trace_event_functions).

An event has four ways to show its own fields, without the context in front: `trace` for people,
`raw`, `hex` and `binary` for the options of these names. Each takes entries of its type and returns
a text for each. An event without one of them is printed by `trace_nop_print`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ftracefs.ring_buffer.entries import Entries
from ftracefs.trace.output.output_context import OutputContext

EventText = Callable[[Entries, OutputContext], list[bytes]]

TRACE_FN = 1
TRACE_PRINT = 5
TRACE_RAW_DATA = 18

_BUF = 16  # of print records
_RAW_BUF = 12
_KERNEL_HALF = np.uint32(0xFFFFFFFF)


def trace_nop_print(entries: Entries, context: OutputContext) -> list[bytes]:
    """All that can be said of a record without a printer of its own."""
    return [b"type: %d\n" % number for number in entries.type.tolist()]


@dataclass(frozen=True, slots=True)
class TraceEventFunctions:
    """The printers of one event."""

    trace: EventText = trace_nop_print
    raw: EventText = trace_nop_print
    hex: EventText = trace_nop_print
    binary: EventText = trace_nop_print


# --- function records -----------------------------------------------------------------------------


def trace_fn_trace(entries: Entries, context: OutputContext) -> list[bytes]:
    """`vfs_read <-ksys_read`."""
    ip, ip_high = entries.u32(8), entries.u32(12)
    parent, parent_high = entries.u32(16), entries.u32(20)
    if (ip_high == _KERNEL_HALF).all() and (parent_high == _KERNEL_HALF).all():
        keys = (ip.astype(np.uint64) << np.uint64(32) | parent).tolist()
        return list(map(context.symbols.calls(context.flags).__getitem__, keys))
    pairs = zip(entries.u64(8).tolist(), entries.u64(16).tolist(), strict=True)
    return [context.symbols.call(ip, parent_ip, context.flags) for ip, parent_ip in pairs]


def _fn_fields(entries: Entries) -> list[tuple[int, int]]:
    return list(zip(entries.u64(8).tolist(), entries.u64(16).tolist(), strict=True))


def trace_fn_raw(entries: Entries, context: OutputContext) -> list[bytes]:
    return [b"%x %x\n" % fields for fields in _fn_fields(entries)]


def trace_fn_hex(entries: Entries, context: OutputContext) -> list[bytes]:
    return [b"%016x %016x " % fields for fields in _fn_fields(entries)]


def trace_fn_bin(entries: Entries, context: OutputContext) -> list[bytes]:
    return [entries.payload(i)[8:24] for i in range(len(entries))]


# --- print records --------------------------------------------------------------------------------


def _texts(entries: Entries) -> list[bytes]:
    """What was written: a C string, so a NUL in it ends it."""
    return [entries.payload(i)[_BUF:].partition(b"\0")[0] for i in range(len(entries))]


def trace_print_print(entries: Entries, context: OutputContext) -> list[bytes]:
    """`tracing_mark_write: text`; the newline is the text's own."""
    texts = zip(entries.u64(8).tolist(), _texts(entries), strict=True)
    return [
        b"%b: %b" % (context.symbols.seq_print_ip_sym(ip, context.flags), text)
        for ip, text in texts
    ]


def trace_print_raw(entries: Entries, context: OutputContext) -> list[bytes]:
    texts = zip(entries.u64(8).tolist(), _texts(entries), strict=True)
    return [b"# %x %b" % fields for fields in texts]


def trace_print_msg_only(entries: Entries, context: OutputContext) -> list[bytes]:
    """The text alone, as the option printk-msg-only wants it."""
    return _texts(entries)


# --- raw_data records -----------------------------------------------------------------------------


def trace_raw_data(entries: Entries, context: OutputContext) -> list[bytes]:
    """`# id buf: bytes`, as many as the record has room for."""
    lines = []
    for index, number in enumerate(entries.u32(8).tolist()):
        data = entries.payload(index)[_RAW_BUF:].hex(" ")
        lines.append(f"# {number:x} buf:{' ' if data else ''}{data}\n".encode())
    return lines


EVENTS: Mapping[int, TraceEventFunctions] = {
    TRACE_FN: TraceEventFunctions(trace_fn_trace, trace_fn_raw, trace_fn_hex, trace_fn_bin),
    TRACE_PRINT: TraceEventFunctions(trace_print_print, trace_print_raw),
    TRACE_RAW_DATA: TraceEventFunctions(trace_raw_data, trace_raw_data),
}


def by_type(
    entries: Entries, context: OutputContext, printer: Callable[[int], EventText]
) -> list[bytes]:
    """The text of each entry by the printer of its type."""
    types = entries.type
    if len(types) == 0:
        return []
    first = int(types[0])
    if (types == first).all():
        return printer(first)(entries, context)
    texts: list[bytes] = [b""] * len(entries)
    for number in np.unique(types).tolist():
        where = np.flatnonzero(types == number)
        of_type = printer(number)(entries.take(where), context)
        for index, text in zip(where.tolist(), of_type, strict=True):
            texts[index] = text
    return texts
