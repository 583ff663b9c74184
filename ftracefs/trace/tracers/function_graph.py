"""The function graph tracer (kernel/trace/trace_functions_graph.c).

    graph_trace_init → register_ftrace_graph

What runs in a traced function and when it returns is guest code, ftracefs/guest/fgraph.S. It asks
for filters, limits and clocks only while RB_GUARD_GRAPH is set in the buffers, which is settled
here, by whoever changes one of them; once set it stays until the tracer is put in charge again.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.trace.options import FUNCTION_GRAPH_OPTIONS
from ftracefs.trace.output.graph_layout import (
    GRAPH_OPTIONS,
    GraphFlags,
    GraphLayout,
    print_graph_headers_flags,
)
from ftracefs.trace.output.header import TraceHeader
from ftracefs.trace.tracers.tracer import Tracer

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray

_TIMED_AS_STAMPED = ("local", "global", "perf")  # clocks that are trace_clock_local by other names


def graph_trace_init(tr: TraceArray) -> None:
    """Record calls and returns in the buffers of `tr`. EBUSY when somebody else does so."""
    fgraph = tr.tracing.ftrace.fgraph
    _set_guard(tr, False)
    graph_clock_changed(tr)
    _settle_guard(tr)
    fgraph.register_ftrace_graph(tr.buffer.table, tr.address)
    fgraph.on_change = partial(_settle_guard, tr)
    tr.tracing.saved_cmdlines.tracing_start_cmdline_record()


def graph_trace_reset(tr: TraceArray) -> None:
    """Record no more of them."""
    fgraph = tr.tracing.ftrace.fgraph
    tr.tracing.saved_cmdlines.tracing_stop_cmdline_record()
    fgraph.on_change = lambda: None
    with suppress(TracefsError):
        fgraph.unregister_ftrace_graph()
    _set_guard(tr, False)


def graph_clock_changed(tr: TraceArray) -> None:
    """Durations are always those of the local clock; see to it that it is read if it must be."""
    tr.tracing.ftrace.fgraph.two_clocks = tr.clock.name not in _TIMED_AS_STAMPED


def _settle_guard(tr: TraceArray) -> None:
    if tr.tracing.ftrace.fgraph.asks or tr.function_pids.enabled:
        _set_guard(tr, True)


def _set_guard(tr: TraceArray, asks: bool) -> None:
    for cpu_buffer in tr.buffer.cpus:
        cpu_buffer.set_guard(CONSTANTS["RB_GUARD_GRAPH"], asks)


def func_graph_set_flag(tr: TraceArray, name: str, enabled: bool) -> None:
    """The options that the guest has to know of; all others only say what is printed."""
    fgraph = tr.tracing.ftrace.fgraph
    if name == "funcgraph-irqs":
        fgraph.ftrace_graph_skip_irqs = not enabled
    elif name == "sleep-time":
        fgraph.ftrace_graph_sleep_time_control(enabled)
    elif name == "graph-time":
        fgraph.ftrace_graph_graph_time_control(enabled)


def graph_layout(tr: TraceArray) -> GraphLayout:
    """What the options say is to be printed."""
    flags = GraphFlags(0)
    for name, flag in GRAPH_OPTIONS.items():
        if tr.tracer_flags[name]:
            flags |= flag
    return GraphLayout(flags, tr.nr_cpus)


def print_graph_headers(tr: TraceArray, header: TraceHeader) -> str:
    """What stands above the calls."""
    return print_graph_headers_flags(header, graph_layout(tr).flags)


FUNCTION_GRAPH_TRACE = Tracer(
    "function_graph",
    init=graph_trace_init,
    reset=graph_trace_reset,
    clock_changed=graph_clock_changed,
    set_flag=func_graph_set_flag,
    print_header=print_graph_headers,
    graph_layout=graph_layout,
    options=FUNCTION_GRAPH_OPTIONS,
)
