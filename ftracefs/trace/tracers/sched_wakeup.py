"""The tracers wakeup, wakeup_rt and wakeup_dl (kernel/trace/trace_sched_wakeup.c).

    wakeup_tracer_init → __wakeup_tracer_init → start_wakeup_tracer → register_trace_sched_wakeup …
                                                                    → start_func_tracer

The probes are guest code, trace_sched_wakeup.S of ftracefs/guest; a new maximum is told to the
host, which puts the records aside. One of the three can be in charge at a time, in whichever trace
array. Left out: display-graph; deadline tasks, so wakeup_dl finds nobody.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Vcpu
from ftracefs.errors import TracefsError
from ftracefs.trace.array_buffer import saved_latency, update_max_tr
from ftracefs.trace.options import TraceIter
from ftracefs.trace.tracers.tracer import Tracer, trace_keep_overwrite

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray
    from ftracefs.trace.tracing import Tracing

_PROBES = {
    "sched_wakeup": "probe_wakeup",
    "sched_wakeup_new": "probe_wakeup",
    "sched_switch": "probe_wakeup_sched_switch",
    "sched_migrate_task": "probe_wakeup_migrate_task",
}
_NOBODY = 0xFFFFFFFF


class WakeupTracing:
    """What the three tracers share (the static variables of trace_sched_wakeup.c)."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._memory = tracing.machine.memory
        self.wakeup_trace: TraceArray | None = None
        self.function_enabled = False
        self._save_flags = TraceIter(0)
        tracing.machine.hypercalls[CONSTANTS["HC_WAKEUP_MAX"]] = self._update_max_tr

    # --- in charge -------------------------------------------------------------------------------

    def init(self, tr: TraceArray, *, rt: bool, dl: bool) -> None:
        """__wakeup_tracer_init. EBUSY while one of the three is in charge somewhere."""
        if self.wakeup_trace is not None:
            raise TracefsError(errno.EBUSY, "wake-ups are being measured")
        self._save_flags = tr.trace_flags
        for flag in (TraceIter.OVERWRITE, TraceIter.LATENCY_FMT):
            tr.set_tracer_flag(flag, True)
        tr.max_latency = 0
        self.wakeup_trace = tr
        tr.ops.func = self._label("wakeup_tracer_call")
        tr.ops.private = tr.buffer.table
        tr.ops.write_guest()
        memory = self._memory
        memory.set_u64(self._label("wakeup_ops"), tr.ops.address)
        memory.set_u64(self._label("wakeup_max_latency"), tr.max_latency_word)
        memory.set_u32(self._label("wakeup_rt"), int(rt))
        memory.set_u32(self._label("wakeup_dl"), int(dl))
        tr.tracing.saved_cmdlines.tracing_start_cmdline_record()
        for tracepoint, probe in _PROBES.items():
            self._tracing.tracepoints.tracepoint_probe_register(tracepoint, self._label(probe), 0)
        self.wakeup_reset(tr)
        self.register_wakeup_function(tr)
        self.set_tracer_enabled(tr.tracer_tracing_is_on())

    def reset(self, tr: TraceArray) -> None:
        """wakeup_tracer_reset."""
        self.set_tracer_enabled(False)
        self.unregister_wakeup_function(tr)
        for tracepoint, probe in _PROBES.items():
            self._tracing.tracepoints.tracepoint_probe_unregister(tracepoint, self._label(probe), 0)
        self.wakeup_reset(tr)
        tr.tracing.saved_cmdlines.tracing_stop_cmdline_record()
        self.wakeup_trace = None
        for flag in (TraceIter.LATENCY_FMT, TraceIter.OVERWRITE):
            tr.set_tracer_flag(flag, bool(self._save_flags & flag), asking=False)
        tr.ops.func = tr.tracing.label("ftrace_stub")

    def set_tracer_enabled(self, enabled: bool) -> None:
        """Measure, or stop doing so."""
        self._memory.set_u32(self._label("wakeup_tracer_enabled"), int(enabled))

    def wakeup_reset(self, tr: TraceArray) -> None:
        """Wait for nobody, with an empty buffer."""
        tr.tracing_reset_online_cpus()
        self._memory.set_u64(self._label("wakeup_task"), 0)
        for name in ("wakeup_cpu", "wakeup_prio"):
            self._memory.set_u32(self._label(name), _NOBODY)

    def register_wakeup_function(self, tr: TraceArray, *, is_set: bool = False) -> None:
        """Record calls as well, if the option function-trace says so or is about to."""
        if self.function_enabled or not (is_set or tr.trace_flags & TraceIter.FUNCTION):
            return
        with suppress(TracefsError):
            tr.tracing.ftrace.register_ftrace_function(tr.ops)
            self.function_enabled = True

    def unregister_wakeup_function(self, tr: TraceArray) -> None:
        """Undo it."""
        if self.function_enabled:
            with suppress(TracefsError):
                tr.tracing.ftrace.unregister_ftrace_function(tr.ops)
        self.function_enabled = False

    # --- a new maximum ---------------------------------------------------------------------------

    def _update_max_tr(self, _vcpu: Vcpu) -> None:
        """probe_wakeup_sched_switch found one: put the records aside."""
        tr = self.wakeup_trace
        if tr is None or tr.stop_count:
            return
        tr.max_latency = self._memory.u64(self._label("wakeup_latency"))
        cpu = self._memory.u32(self._label("wakeup_cpu"))
        task = self._memory.u64(self._label("wakeup_task"))
        timestamp = self._memory.u64(self._label("wakeup_timestamp"))
        update_max_tr(tr, cpu, saved_latency(tr, cpu, task), timestamp)

    def _label(self, name: str) -> int:
        return self._tracing.label(name)


def _init(rt: bool, dl: bool, tr: TraceArray) -> None:
    tr.tracing.wakeup_tracing.init(tr, rt=rt, dl=dl)


def wakeup_tracer_reset(tr: TraceArray) -> None:
    """Measure no more."""
    tr.tracing.wakeup_tracing.reset(tr)


def wakeup_tracer_start(tr: TraceArray) -> None:
    """tracing_on goes from 0 to 1."""
    tr.tracing.wakeup_tracing.wakeup_reset(tr)
    tr.tracing.wakeup_tracing.set_tracer_enabled(True)


def wakeup_tracer_stop(tr: TraceArray) -> None:
    """tracing_on goes from 1 to 0."""
    tr.tracing.wakeup_tracing.set_tracer_enabled(False)


def wakeup_flag_changed(tr: TraceArray, flag: TraceIter, enabled: bool) -> None:
    """function-trace takes effect at once; EINVAL for what would spoil the measurement."""
    wakeup = tr.tracing.wakeup_tracing
    if flag is TraceIter.FUNCTION:
        if enabled:
            wakeup.register_wakeup_function(tr, is_set=True)
        else:
            wakeup.unregister_wakeup_function(tr)
        return
    if flag is TraceIter.DISPLAY_GRAPH and enabled:
        raise TracefsError(errno.EINVAL, "latency tracers show no graph yet")
    trace_keep_overwrite(flag, enabled)


def _tracer(name: str, *, rt: bool = False, dl: bool = False) -> Tracer:
    return Tracer(
        name,
        init=partial(_init, rt, dl),
        reset=wakeup_tracer_reset,
        start=wakeup_tracer_start,
        stop=wakeup_tracer_stop,
        flag_changed=wakeup_flag_changed,
        allow_instances=True,
        needs=tuple(f"__tracepoint_{tracepoint}" for tracepoint in _PROBES),
        use_max_tr=True,
        print_max=True,
    )


WAKEUP_TRACER = _tracer("wakeup")
WAKEUP_RT_TRACER = _tracer("wakeup_rt", rt=True)
WAKEUP_DL_TRACER = _tracer("wakeup_dl", dl=True)
