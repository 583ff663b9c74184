"""The function tracer (kernel/trace/trace_functions.c).

    function_trace_init → tracing_start_function_trace → register_function_trace
                        → register_ftrace_function(tr->ops)

What runs in a traced function is guest code, function_trace_call of ftracefs/guest.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from ftracefs.errors import TracefsError
from ftracefs.trace.options import FUNCTION_OPTIONS
from ftracefs.trace.tracers.tracer import Tracer

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray


def function_trace_init(tr: TraceArray) -> None:
    """Hang this trace array's op into the functions its filter lets through.

    As in Linux nobody asks whether that went well: with ftrace disabled the tracer is in charge and
    traces nothing.
    """
    tr.ops.func = tr.tracing.label("function_trace_call")
    tr.ops.private = tr.buffer.table
    tr.tracing.saved_cmdlines.tracing_start_cmdline_record()
    with suppress(TracefsError):
        tr.tracing.ftrace.register_ftrace_function(tr.ops)


def function_trace_reset(tr: TraceArray) -> None:
    """Take it out again."""
    with suppress(TracefsError):
        tr.tracing.ftrace.unregister_ftrace_function(tr.ops)
    tr.tracing.saved_cmdlines.tracing_stop_cmdline_record()
    tr.ops.func = tr.tracing.label("ftrace_stub")


def function_trace_start(tr: TraceArray) -> None:
    """tracing_on goes from 0 to 1: begin with an empty buffer."""
    tr.tracing_reset_online_cpus()


def func_set_flag(_tr: TraceArray, name: str, enabled: bool) -> None:
    """Neither stack traces nor the count of repeats are there yet: the options stay off."""
    if enabled:
        raise TracefsError(errno.EINVAL, f"{name} is not there yet")


FUNCTION_TRACE = Tracer(
    "function",
    init=function_trace_init,
    reset=function_trace_reset,
    start=function_trace_start,
    set_flag=func_set_flag,
    options=FUNCTION_OPTIONS,
    allow_instances=True,
)
