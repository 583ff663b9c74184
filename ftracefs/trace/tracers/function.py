"""The function tracer (kernel/trace/trace_functions.c).

    function_trace_init → tracing_start_function_trace → register_function_trace
                        → register_ftrace_function(tr->ops)

What runs in a traced function is guest code, ftracefs/guest/trace_functions.S, or with one of the
options on trace_function_options.S.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.trace.options import FUNCTION_OPTIONS
from ftracefs.trace.output.header import SavedLatency
from ftracefs.trace.tracers.tracer import Tracer

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray

# By the options func_stack_trace and func-no-repeats.
_CALLBACKS = {
    (False, False): "function_trace_call",
    (True, False): "function_stack_trace_call",
    (False, True): "function_no_repeats_trace_call",
    (True, True): "function_stack_no_repeats_trace_call",
}


def select_trace_function(tr: TraceArray, stack: bool, no_repeats: bool) -> int:
    """The callback that these options ask for; it has what it needs."""
    if no_repeats:
        tr.ops.alloc_func_repeats(tr.nr_cpus)
    return tr.tracing.label(_CALLBACKS[stack, no_repeats])


def function_trace_init(tr: TraceArray) -> None:
    """Hang this trace array's op into the functions its filter lets through.

    As in Linux nobody asks whether that went well: with ftrace disabled the tracer is in charge and
    traces nothing.
    """
    flags = tr.tracer_flags
    tr.ops.func = select_trace_function(tr, flags["func_stack_trace"], flags["func-no-repeats"])
    tr.ops.private = tr.buffer.table
    tr.array_buffer.saved = SavedLatency(cpu=tr.tracing.acting_cpu())
    tr.tracing.saved_cmdlines.tracing_start_cmdline_record()
    _set_function_enabled(tr, True)
    with suppress(TracefsError):
        tr.tracing.ftrace.register_ftrace_function(tr.ops)


def function_trace_reset(tr: TraceArray) -> None:
    """Take it out again."""
    with suppress(TracefsError):
        tr.tracing.ftrace.unregister_ftrace_function(tr.ops)
    if tr.tracing.ftrace.ftrace_disabled:
        _set_function_enabled(tr, False)
    tr.tracing.saved_cmdlines.tracing_stop_cmdline_record()
    tr.ops.func = tr.tracing.label("ftrace_stub")


def _set_function_enabled(tr: TraceArray, enabled: bool) -> None:
    """tr->function_enabled: whether a callback that is still called records anything.

    It makes a difference only with ftrace disabled, when call sites cannot be changed any more.
    """
    for cpu_buffer in tr.buffer.cpus:
        cpu_buffer.set_guard(CONSTANTS["RB_GUARD_FUNCTION"], not enabled)


def function_trace_start(tr: TraceArray) -> None:
    """tracing_on goes from 0 to 1: begin with an empty buffer."""
    tr.tracing_reset_online_cpus()


def func_set_flag(tr: TraceArray, name: str, enabled: bool) -> None:
    """With the tracer in charge the op comes back with another callback."""
    if tr.tracer_flags[name] == enabled or tr.current_trace is not FUNCTION_TRACE:
        return
    flags = {**tr.tracer_flags, name: enabled}
    func = select_trace_function(tr, flags["func_stack_trace"], flags["func-no-repeats"])
    if func == tr.ops.func:
        return
    ftrace = tr.tracing.ftrace
    with suppress(TracefsError):
        ftrace.unregister_ftrace_function(tr.ops)
    tr.ops.func = func
    with suppress(TracefsError):
        ftrace.register_ftrace_function(tr.ops)


FUNCTION_TRACE = Tracer(
    "function",
    init=function_trace_init,
    reset=function_trace_reset,
    start=function_trace_start,
    set_flag=func_set_flag,
    options=FUNCTION_OPTIONS,
    allow_instances=True,
)
