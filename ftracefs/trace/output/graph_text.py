"""The pieces a line of the function graph tracer is made of, each made once.

Models print_graph_proc, trace_print_graph_duration, print_graph_abs_time and
print_graph_rel_time of kernel/trace/trace_functions_graph.c.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ftracefs.ring_buffer.pages import U64
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.graph_layout import GraphFlags
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.output.trace_context import trace_find_mark, trace_print_lat_fmt
from ftracefs.trace.saved_cmdlines import find_cmdline

TRACE_GRAPH_INDENT = 2
_PROCINFO_LENGTH = 14
_KEPT = 1 << 17
_TOP_BYTE = 0xFF << 56  # of every address in the kernel

# What a line tells of its function.
NESTED, LEAF, END, TAIL = range(4)

NO_DURATION = b"              |  "


def print_graph_proc(names: Mapping[int, str], pid: int) -> str:
    """A task in the middle of its column."""
    text = f"{find_cmdline(names, pid)[:7]}-{pid}"
    before = max(0, _PROCINFO_LENGTH - len(text)) // 2
    return " " * before + f"{text:<{_PROCINFO_LENGTH - before}}"


def print_graph_cpu(cpu: int, nr_cpus: int) -> str:
    """A CPU as wide as the widest."""
    return f" {cpu:>{len(str(nr_cpus - 1))}}) "


def trace_print_graph_duration(ns: int) -> str:
    """A duration in microseconds with at most seven digits, and blanks up to its column's end."""
    usecs, rest = divmod(ns, 1000)
    text = str(usecs)
    if len(text) < 7:
        text += f".{rest:03d}"[: 8 - len(text)]
    return f"{text} us {'':{max(0, 8 - len(text))}}"


def print_graph_abs_time(ts: U64) -> list[bytes]:
    """Absolute times, cut to microseconds whatever the clock counts."""
    usecs = ts // np.uint64(1000)
    seconds = usecs // np.uint64(1_000_000)
    usecs -= seconds * np.uint64(1_000_000)
    pairs = zip(seconds.tolist(), usecs.tolist(), strict=True)
    return [b"%5d.%06d |  " % pair for pair in pairs]


def print_graph_rel_time(ts: U64, time_start: int) -> list[bytes]:
    """Microseconds since the buffer was emptied, cut likewise."""
    usecs = (ts - np.uint64(time_start)) // np.uint64(1000)
    return [b"%9d us |  " % value for value in usecs.tolist()]


class Durations(dict[int, bytes]):
    """The duration column by nanoseconds."""

    def __init__(self, *, overhead: bool) -> None:
        super().__init__()
        self._overhead = overhead

    def __missing__(self, ns: int) -> bytes:
        if len(self) >= _KEPT:
            self.clear()
        mark = trace_find_mark(ns) if self._overhead else " "
        text = self[ns] = f"{mark} {trace_print_graph_duration(ns)}|  ".encode()
        return text


DURATIONS = {overhead: Durations(overhead=overhead) for overhead in (False, True)}


def graph_body(symbols: SymbolText, func: int, depth: int, kind: int) -> bytes:
    """Function, braces and newline."""
    name = "" if kind == END else symbols.sprint_ps(func)
    ends = {NESTED: f"{name}() {{", LEAF: f"{name}();", END: "}", TAIL: f"}} /* {name} */"}
    return f"{' ' * (depth * TRACE_GRAPH_INDENT)}{ends[kind]}\n".encode()


class Bodies(dict[int, bytes]):
    """The same by `func << 8 | depth << 2 | kind` without what does not fit.

    Kept by the symbols (SymbolText.derived).
    """

    def __init__(self, symbols: SymbolText) -> None:
        super().__init__()
        self._symbols = symbols

    def __missing__(self, key: int) -> bytes:
        if len(self) >= _KEPT:
            self.clear()
        text = graph_body(self._symbols, key >> 8 | _TOP_BYTE, key >> 2 & 0x3F, key & 3)
        self[key] = text
        return text


def graph_bodies(symbols: SymbolText, func: U64, depth: U64, kind: U64) -> list[bytes]:
    """What these lines say behind their columns."""
    bodies = symbols.derived(Bodies)
    keys = func << np.uint64(8) | (depth & np.uint64(0x3F)) << np.uint64(2) | kind
    texts = list(map(bodies.__getitem__, keys.tolist()))
    # A latency tracer may have been called from nowhere.
    strange = (func >> np.uint64(56) != np.uint64(0xFF)) & (kind != np.uint64(END))
    for index in np.flatnonzero(strange).tolist():
        where = int(func[index]), int(depth[index]), int(kind[index])
        texts[index] = graph_body(symbols, *where)
    return texts


class Prologues(dict[int, bytes]):
    """The columns between time and duration, by `pid << 32 | preempt << 24 | flags << 16 | cpu`.

    Of the key only what is printed is set.
    """

    def __init__(self, context: OutputContext, flags: GraphFlags, nr_cpus: int) -> None:
        super().__init__()
        self._context = context
        self._flags = flags
        self._nr_cpus = nr_cpus
        self.has_state = bool(context.flags & TraceIter.LATENCY_FMT)
        self.has_pid = bool(flags & GraphFlags.PROC)
        self.has_cpu = bool(flags & GraphFlags.CPU)

    def __missing__(self, key: int) -> bytes:
        text = ""
        if self.has_cpu:
            text += print_graph_cpu(key & 0xFFFF, self._nr_cpus)
        if self.has_pid:
            pid = key >> 32
            text += print_graph_proc(self._context.names, pid - ((pid & 1 << 31) << 1)) + " | "
        if self.has_state:
            text += f" {trace_print_lat_fmt(key >> 16 & 0xFF, key >> 24 & 0xFF)} | "
        self[key] = line = text.encode(errors="surrogateescape")
        return line
