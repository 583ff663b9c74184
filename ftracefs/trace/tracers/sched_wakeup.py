"""The tracers wakeup, wakeup_rt and wakeup_dl (kernel/trace/trace_sched_wakeup.c).

    wakeup_tracer_init → __wakeup_tracer_init → start_wakeup_tracer → register_trace_sched_wakeup …
                                                                    → start_func_tracer

The probes are guest code, trace_sched_wakeup.S of ftracefs/guest; a new maximum is told to the
host, which puts the records aside. Tasks are the kernel's own, of the built-in one and of a Linux.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Processor
from ftracefs.errors import TracefsError
from ftracefs.trace.array_buffer import saved_latency, update_max_tr
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.graph_layout import GraphFlags, GraphLayout
from ftracefs.trace.output.header import TraceHeader
from ftracefs.trace.tracers.latency import LatencyTracing, is_graph
from ftracefs.trace.tracers.tracer import Tracer

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray
    from ftracefs.trace.tracing import Tracing

_PROBES = {
    "sched_wakeup": "probe_wakeup",
    "sched_wakeup_new": "probe_wakeup",
    "sched_switch": "probe_wakeup_sched_switch",
    "sched_migrate_task": "probe_wakeup_migrate_task",
}
WAKEUP_GRAPH_FLAGS = (
    GraphFlags.PROC
    | GraphFlags.CPU
    | GraphFlags.REL_TIME
    | GraphFlags.DURATION
    | GraphFlags.OVERHEAD
)
_NOBODY = 0xFFFFFFFF


class WakeupTracing(LatencyTracing):
    """What the three tracers share (the static variables of trace_sched_wakeup.c)."""

    def __init__(self, tracing: Tracing) -> None:
        needed = TraceIter.OVERWRITE | TraceIter.LATENCY_FMT
        super().__init__(tracing, "wakeup", needed, WAKEUP_GRAPH_FLAGS)
        tracing.machine.hypercalls[CONSTANTS["HC_WAKEUP_MAX"]] = self._update_max_tr

    def start(self, tr: TraceArray, *, rt: bool, dl: bool) -> None:
        """__wakeup_tracer_init. EBUSY while one of the three is in charge somewhere."""
        self.init(tr)
        self.memory.set_u32(self.label("wakeup_rt"), int(rt))
        self.memory.set_u32(self.label("wakeup_dl"), int(dl))
        for tracepoint, probe in _PROBES.items():
            self.tracing.tracepoints.tracepoint_probe_register(tracepoint, self.label(probe), 0)
        self.wakeup_reset(tr)
        self.set_trace_function(is_graph(tr))
        with suppress(TracefsError):
            self.start_func_tracer(tr, is_graph(tr))

    def stop(self, tr: TraceArray) -> None:
        """wakeup_tracer_reset."""
        self.stop_func_tracer(tr, is_graph(tr))
        for tracepoint, probe in _PROBES.items():
            self.tracing.tracepoints.tracepoint_probe_unregister(tracepoint, self.label(probe), 0)
        self.wakeup_reset(tr)
        self.reset(tr)

    def wakeup_reset(self, tr: TraceArray) -> None:
        """Wait for nobody, with an empty buffer."""
        tr.tracing_reset_online_cpus()
        self.memory.set_u64(self.label("wakeup_task"), 0)
        self.memory.set_u32(self.label("wakeup_tracing_dl"), 0)
        for name in ("wakeup_cpu", "wakeup_prio"):
            self.memory.set_u32(self.label(name), _NOBODY)

    def forget(self, tr: TraceArray) -> None:
        """See LatencyTracing."""
        self.wakeup_reset(tr)

    # --- a new maximum ---------------------------------------------------------------------------

    def _update_max_tr(self, _vcpu: Processor) -> None:
        """probe_wakeup_sched_switch found one: put the records aside."""
        tr = self.trace
        if tr is None or tr.stop_count:
            return
        tr.max_latency = self.memory.u64(self.label("wakeup_latency"))
        cpu = self.memory.u32(self.label("wakeup_cpu"))
        task = self.memory.u64(self.label("wakeup_task"))
        timestamp = self.memory.u64(self.label("wakeup_timestamp"))
        update_max_tr(tr, cpu, saved_latency(tr, cpu, task), timestamp)


def _init(rt: bool, dl: bool, tr: TraceArray) -> None:
    tr.tracing.wakeup_tracing.start(tr, rt=rt, dl=dl)


def wakeup_tracer_reset(tr: TraceArray) -> None:
    """Measure no more."""
    tr.tracing.wakeup_tracing.stop(tr)


def wakeup_tracer_start(tr: TraceArray) -> None:
    """tracing_on goes from 0 to 1."""
    tr.tracing.wakeup_tracing.wakeup_reset(tr)
    tr.tracing.wakeup_tracing.set_tracer_enabled(True)


def wakeup_tracer_stop(tr: TraceArray) -> None:
    """tracing_on goes from 1 to 0."""
    tr.tracing.wakeup_tracing.set_tracer_enabled(False)


def wakeup_flag_changed(tr: TraceArray, flag: TraceIter, enabled: bool) -> None:
    """See LatencyTracing.flag_changed."""
    tr.tracing.wakeup_tracing.flag_changed(tr, flag, enabled)


def wakeup_graph_layout(tr: TraceArray) -> GraphLayout | None:
    """See LatencyTracing.graph_layout."""
    return tr.tracing.wakeup_tracing.graph_layout(tr)


def wakeup_print_header(tr: TraceArray, header: TraceHeader) -> str:
    """See LatencyTracing.print_header."""
    return tr.tracing.wakeup_tracing.print_header(tr, header)


def _tracer(name: str, *, rt: bool = False, dl: bool = False) -> Tracer:
    return Tracer(
        name,
        init=partial(_init, rt, dl),
        reset=wakeup_tracer_reset,
        start=wakeup_tracer_start,
        stop=wakeup_tracer_stop,
        flag_changed=wakeup_flag_changed,
        print_header=wakeup_print_header,
        graph_layout=wakeup_graph_layout,
        allow_instances=True,
        needs=tuple(f"__tracepoint_{tracepoint}" for tracepoint in _PROBES),
        use_max_tr=True,
        print_max=True,
    )


WAKEUP_TRACER = _tracer("wakeup")
WAKEUP_RT_TRACER = _tracer("wakeup_rt", rt=True)
WAKEUP_DL_TRACER = _tracer("wakeup_dl", dl=True)
