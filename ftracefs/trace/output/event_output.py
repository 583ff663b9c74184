"""How each kind of record is printed (struct trace_event_functions).

An event has four ways to show its own fields, without the context in front: `trace` for people,
`raw`, `hex` and `binary` for the options of these names. Each takes entries of its type and returns
a text for each. An event without one of them is printed by `trace_nop_print`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from emulated_kernel.distinct import distinct
from ftracefs.ring_buffer.entries import Entries
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.payloads import texts_by_payload
from ftracefs.trace.output.symbol_text import ADDRESS_FLAGS, SymbolText
from ftracefs.trace.output.trace_context import trace_print_time

EventText = Callable[[Entries, OutputContext], list[bytes]]

TRACE_FN = 1
TRACE_STACK = 4
TRACE_PRINT = 5
TRACE_GRAPH_RET = 10
TRACE_GRAPH_ENT = 11
TRACE_USER_STACK = 12
TRACE_RAW_DATA = 18
TRACE_FUNC_REPEATS = 19

_BUF = 16  # of print records
_RAW_BUF = 12
_CALLER = 16  # of stack records
_ULONG_MAX = (1 << 64) - 1
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
    names = context.symbols.addresses(context.flags)
    texts = zip(entries.u64(8).tolist(), _texts(entries), strict=True)
    return [b"%b: %b" % (names[ip], text) for ip, text in texts]


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


# --- stack traces ---------------------------------------------------------------------------------


class _Stacks(dict[TraceIter, dict[bytes, bytes]]):
    """Texts of stacks by the options that change them. Kept by the symbols."""

    def __init__(self, _symbols: SymbolText) -> None:
        super().__init__()

    def __missing__(self, flags: TraceIter) -> dict[bytes, bytes]:
        return self.setdefault(flags, {})


def trace_stack_print(entries: Entries, context: OutputContext) -> list[bytes]:
    """A line for each function, the innermost first."""
    names = context.symbols.addresses(context.flags)

    def render(entries: Entries) -> list[bytes]:
        return [
            b"<stack trace>\n"
            + b"".join(b" => %b\n" % names[ip] for ip in takewhile(_ULONG_MAX.__ne__, callers))
            for callers in _callers(entries)
        ]

    kept = context.symbols.derived(_Stacks)[context.flags & ADDRESS_FLAGS]
    return texts_by_payload(entries, kept, render)


_USER_STACKS: dict[bytes, bytes] = {}


def trace_user_stack_print(entries: Entries, context: OutputContext) -> list[bytes]:
    """A line for each address, up to the first that is 0; no file of a process is known here."""

    def render(entries: Entries) -> list[bytes]:
        return [
            b"<user stack trace>\n"
            + b"".join(b" =>  <%016x>\n" % ip for ip in takewhile(bool, callers))
            for callers in _callers(entries)
        ]

    return texts_by_payload(entries, _USER_STACKS, render)


def _callers(entries: Entries) -> list[list[int]]:
    return [
        np.frombuffer(entries.payload(index)[_CALLER:], np.uint64).tolist()
        for index in range(len(entries))
    ]


# --- func_repeats records -------------------------------------------------------------------------


def _func_repeats_fields(entries: Entries) -> list[tuple[int, int, int, int]]:
    """ip, parent_ip, how often, and how long before the record the last time was."""
    count, delta = entries.u32(24) & np.uint32(0xFFFF), entries.u32(24) >> np.uint32(16)
    deltas = delta.astype(np.uint64) << np.uint64(32) | entries.u32(28).astype(np.uint64)
    columns = (entries.u64(8), entries.u64(16), count, deltas)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def trace_func_repeats_print(entries: Entries, context: OutputContext) -> list[bytes]:
    """`vfs_read <-ksys_read (repeats: 3, last_ts:   12.345678)`."""
    fields = _func_repeats_fields(entries)
    deltas = np.array([delta for *_, delta in fields], dtype=np.uint64)
    times = trace_print_time(entries.ts - deltas, context.clock_in_ns)
    return [
        b"%b (repeats: %d, last_ts:%b)\n"
        % (
            context.symbols.call(ip, parent_ip, context.flags).removesuffix(b"\n"),
            count,
            time.removesuffix(b": "),
        )
        for (ip, parent_ip, count, _), time in zip(fields, times, strict=True)
    ]


def trace_func_repeats_raw(entries: Entries, context: OutputContext) -> list[bytes]:
    return [b"%d %d %d %d\n" % fields for fields in _func_repeats_fields(entries)]


# The tracers' own records, the system `ftrace`.
TRACE_ENTRIES: Mapping[int, TraceEventFunctions] = {
    TRACE_FN: TraceEventFunctions(trace_fn_trace, trace_fn_raw, trace_fn_hex, trace_fn_bin),
    TRACE_STACK: TraceEventFunctions(trace_stack_print),
    TRACE_PRINT: TraceEventFunctions(trace_print_print, trace_print_raw),
    TRACE_GRAPH_RET: TraceEventFunctions(),
    TRACE_GRAPH_ENT: TraceEventFunctions(),
    TRACE_USER_STACK: TraceEventFunctions(trace_user_stack_print),
    TRACE_RAW_DATA: TraceEventFunctions(trace_raw_data, trace_raw_data),
    TRACE_FUNC_REPEATS: TraceEventFunctions(trace_func_repeats_print, trace_func_repeats_raw),
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
    for number in distinct(types).tolist():
        where = np.flatnonzero(types == number)
        of_type = printer(number)(entries.take(where), context)
        for index, text in zip(where.tolist(), of_type, strict=True):
            texts[index] = text
    return texts
