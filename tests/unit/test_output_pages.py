"""Pages of records printed at once come out as each record printed alone."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.output_rig import KSYS_READ, VFS_READ, symbols

from ftracefs.ring_buffer.entries import Entries
from ftracefs.trace.events.call import TraceEventCall
from ftracefs.trace.events.output import column, event_functions
from ftracefs.trace.events.print_fmt import compile_print_fmt
from ftracefs.trace.events.table import EVENT_CALLS
from ftracefs.trace.options import TRACE_DEFAULT_FLAGS, TraceIter
from ftracefs.trace.output.ctx_switch import CTX_SWITCH_EVENTS, TRACE_CTX, TRACE_WAKE
from ftracefs.trace.output.event_output import TRACE_ENTRIES, TRACE_STACK, TRACE_USER_STACK
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.output.trace_context import lat_print_times, trace_find_mark

EVENTS = [call for call in EVENT_CALLS if call.can_be_enabled]
ADDRESSES = st.sampled_from([VFS_READ, VFS_READ + 7, KSYS_READ, 0, 0x1234, (1 << 64) - 1])
U64S = st.integers(0, (1 << 64) - 1) | st.integers(0, 20_000_000)
NAMES = {1: "one", 2: "two"}


def entries_of(payloads: list[bytes]) -> Entries:
    """Records with these payloads, each of whole words."""
    data = b"".join(b"\0\0\0\0" + payload for payload in payloads)
    lengths = np.array([len(payload) for payload in payloads], dtype=np.int64)
    ends = np.cumsum(lengths + 4)
    zeros = np.zeros(len(payloads), dtype=np.int64)
    words = np.frombuffer(data, dtype=np.uint32)
    return Entries(words, (ends - lengths) // 4, lengths, zeros.astype(np.uint64), zeros, zeros)


def context(flags: TraceIter = TRACE_DEFAULT_FLAGS) -> OutputContext:
    return OutputContext(SymbolText(symbols()), NAMES, flags)


def repeated(payload: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Some of a few payloads, in any order."""
    few = st.lists(payload, min_size=1, max_size=5)
    return few.flatmap(lambda these: st.lists(st.sampled_from(these), min_size=1, max_size=30))


def payload_of(call: TraceEventCall) -> st.SearchStrategy[bytes]:
    size = max(field.offset + field.size for field in call.fields)
    words = -(-size // 4) * 4
    lengths = st.integers(0, 3).map(lambda more: words + 4 * more)
    bits = st.sampled_from([0, 1, 0x61, 0x80, 0xFF])
    return lengths.flatmap(lambda length: st.lists(bits, min_size=length, max_size=length)).map(
        bytes
    )


@pytest.mark.parametrize("call", EVENTS, ids=lambda call: call.name)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_events(call: TraceEventCall, data: st.DataObject) -> None:
    payloads = data.draw(repeated(payload_of(call)))
    fields = {field.name: field for field in call.fields}
    fmt = compile_print_fmt(call.print_fmt, fields)
    expected = []
    for payload in payloads:
        alone = entries_of([payload])
        values = (column(alone, fields[name], wanted) for name, wanted in fmt.columns)
        (body,) = fmt.render(None, 1, *values)
        expected.append(call.name.encode() + b": " + body + b"\n")
    functions = event_functions(call)
    for _ in range(2):  # the second time everything is known
        assert functions.trace(entries_of(payloads), context()) == expected


@settings(max_examples=30, deadline=None)
@given(
    stacks=repeated(st.lists(ADDRESSES, max_size=6).map(lambda ips: np.uint64(ips).tobytes())),
    flags=st.sampled_from([TRACE_DEFAULT_FLAGS, TraceIter.SYM_OFFSET, TraceIter.SYM_ADDR]),
)
def test_stacks(stacks: list[bytes], flags: TraceIter) -> None:
    shown = context(flags)
    symbol, nothing = shown.symbols.look_up, bytes(16)
    expected = []
    for stack in stacks:
        ips = takewhile(((1 << 64) - 1).__ne__, np.frombuffer(stack, np.uint64).tolist())
        lines = [b" => " + symbol(ip, flags) + b"\n" for ip in ips]
        expected.append(b"<stack trace>\n" + b"".join(lines))
    entries = entries_of([nothing + stack for stack in stacks])
    for _ in range(2):
        assert TRACE_ENTRIES[TRACE_STACK].trace(entries, shown) == expected


@settings(max_examples=30, deadline=None)
@given(repeated(st.lists(ADDRESSES, min_size=8, max_size=8).map(lambda i: np.uint64(i).tobytes())))
def test_user_stacks(stacks: list[bytes]) -> None:
    expected = []
    for stack in stacks:
        ips = takewhile(bool, np.frombuffer(stack, np.uint64).tolist())
        lines = [b" =>  <%016x>\n" % ip for ip in ips]
        expected.append(b"<user stack trace>\n" + b"".join(lines))
    entries = entries_of([bytes(16) + stack for stack in stacks])
    assert TRACE_ENTRIES[TRACE_USER_STACK].trace(entries, context()) == expected


@settings(max_examples=30, deadline=None)
@given(repeated(st.lists(st.integers(0, 3), min_size=16, max_size=16).map(bytes)))
def test_wake_ups_and_switches(records: list[bytes]) -> None:
    entries = entries_of([bytes(8) + record for record in records])
    for kind, arrow in ((TRACE_CTX, "==>"), (TRACE_WAKE, "  +")):
        expected = []
        for record in records:
            prev, pid, cpu, _ = np.frombuffer(record, np.uint32).tolist()
            prev_prio, prev_state, prio, state = record[12:]
            text = f" {prev:7}:{prev_prio:3}:{'RSDT'[prev_state]} {arrow} [{cpu:03}] {pid:7}:"
            text += f"{prio:3}:{'RSDT'[state]} {NAMES.get(pid, '<...>' if pid else '<idle>')}\n"
            expected.append(text.encode())
        assert CTX_SWITCH_EVENTS[kind].trace(entries, context()) == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(U64S, U64S), max_size=40), st.booleans())
def test_times_of_the_latency_format(times: list[tuple[int, int]], in_ns: bool) -> None:
    def plain(absolute: int, relative: int) -> bytes:
        if not in_ns:
            return b" %4d: " % absolute
        usecs, distance = (((ns + 500) % (1 << 64)) // 1000 for ns in (absolute, relative))
        mark = trace_find_mark(distance * 1000 % (1 << 64))
        return b" %4dus%b: " % (usecs, mark.encode())

    columns = np.array(times, dtype=np.uint64).reshape(-1, 2).T
    assert lat_print_times(columns[0], columns[1], in_ns) == [plain(*pair) for pair in times]
