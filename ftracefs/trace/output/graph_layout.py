"""Which columns the function graph tracer prints, and the header above them.

Models TRACE_GRAPH_PRINT_* and print_graph_headers_flags of kernel/trace/trace_functions_graph.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag, auto

from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.header import TraceHeader


class GraphFlags(IntFlag):
    """TRACE_GRAPH_PRINT_*: an option funcgraph-… each, but for REL_TIME."""

    OVERRUN = auto()
    CPU = auto()
    OVERHEAD = auto()
    PROC = auto()
    DURATION = auto()
    ABS_TIME = auto()
    REL_TIME = auto()
    TAIL = auto()


GRAPH_OPTIONS: dict[str, GraphFlags] = {
    "funcgraph-overrun": GraphFlags.OVERRUN,
    "funcgraph-cpu": GraphFlags.CPU,
    "funcgraph-overhead": GraphFlags.OVERHEAD,
    "funcgraph-proc": GraphFlags.PROC,
    "funcgraph-duration": GraphFlags.DURATION,
    "funcgraph-abstime": GraphFlags.ABS_TIME,
    "funcgraph-tail": GraphFlags.TAIL,
}
DEFAULT_GRAPH_FLAGS = GraphFlags.CPU | GraphFlags.OVERHEAD | GraphFlags.DURATION


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """How the function graph tracer prints.

    Without `pipe_open` a reader of trace_pipe does not remember what was printed before.
    """

    flags: GraphFlags = DEFAULT_GRAPH_FLAGS
    nr_cpus: int = 1
    pipe_open: bool = True


_LATENCY_LEGEND = (
    "  _-----=> irqs-off        ",
    " / _----=> need-resched    ",
    "| / _---=> hardirq/softirq ",
    "|| / _--=> preempt-depth   ",
    "||| /                      ",
)


def print_graph_headers_flags(header: TraceHeader, flags: GraphFlags) -> str:
    """The lines that every trace begins with, and the heads of the columns."""
    text = header.top()
    if not header.flags & TraceIter.CONTEXT_INFO:
        return text
    is_latency = bool(header.flags & TraceIter.LATENCY_FMT)
    if is_latency:
        if not header.entries:
            return text
        text += header.print_trace_header()
        widths = {
            GraphFlags.ABS_TIME: 16,
            GraphFlags.REL_TIME: 16,
            GraphFlags.CPU: 4,
            GraphFlags.PROC: 17,
        }
        indent = " " * sum(width for flag, width in widths.items() if flags & flag)
        text += "".join(f"#{indent}{line}\n" for line in _LATENCY_LEGEND)
    columns = (
        (flags & GraphFlags.ABS_TIME, "     TIME       ", "      |         "),
        (flags & GraphFlags.REL_TIME, "   REL TIME     ", "      |         "),
        (flags & GraphFlags.CPU, " CPU", " |  "),
        (flags & GraphFlags.PROC, "  TASK/PID       ", "   |    |        "),
        (is_latency, "||||   ", "||||   "),
        (flags & GraphFlags.DURATION, "  DURATION   ", "   |   |      "),
        (True, "               FUNCTION CALLS", "               |   |   |   |"),
    )
    heads, rules = zip(*((head, rule) for shown, head, rule in columns if shown), strict=True)
    return f"{text}#{''.join(heads)}\n#{''.join(rules)}\n"
