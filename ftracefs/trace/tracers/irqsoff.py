"""The tracers irqsoff, preemptoff and preemptirqsoff (kernel/trace/trace_irqsoff.c).

    irqsoff_tracer_init → __irqsoff_tracer_init → start_irqsoff_tracer

Where the kernel switches interrupts or preemption it calls guest code, trace_irqsoff.S of
ftracefs/guest, which measures and compares; a new maximum is told to the host, which puts the
records aside.
"""

from __future__ import annotations

from contextlib import suppress
from enum import IntFlag
from functools import partial
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Processor
from ftracefs.errors import TracefsError
from ftracefs.trace.array_buffer import saved_latency, update_max_tr_single
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.graph_layout import GraphFlags, GraphLayout
from ftracefs.trace.output.header import TraceHeader
from ftracefs.trace.tracers.latency import LatencyTracing, is_graph
from ftracefs.trace.tracers.tracer import Tracer

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray
    from ftracefs.trace.tracing import Tracing

IRQSOFF_GRAPH_FLAGS = GraphFlags.CPU | GraphFlags.PROC | GraphFlags.REL_TIME | GraphFlags.DURATION
_LOCK_FUNCTION = "_raw_"  # what the functions in Linux's section of locks begin with


class TraceType(IntFlag):
    """What is measured."""

    TRACER_IRQS_OFF = CONSTANTS["TRACER_IRQS_OFF"]
    TRACER_PREEMPT_OFF = CONSTANTS["TRACER_PREEMPT_OFF"]


_HOOKS = {
    TraceType.TRACER_IRQS_OFF: ("trace_hardirqs_off", "trace_hardirqs_on"),
    TraceType.TRACER_PREEMPT_OFF: ("trace_preempt_off", "trace_preempt_on"),
}
_IDLE_HOOKS = ("stop_critical_timings", "start_critical_timings")


def _hooks(trace_type: TraceType) -> list[str]:
    """What the kernel calls for it."""
    measured = [hooks for kind, hooks in _HOOKS.items() if kind & trace_type]
    return [hook for hooks in (*measured, _IDLE_HOOKS) for hook in hooks]


class CriticalTimings(LatencyTracing):
    """What the three tracers share (the static variables of trace_irqsoff.c)."""

    def __init__(self, tracing: Tracing) -> None:
        needed = TraceIter.OVERWRITE | TraceIter.LATENCY_FMT | TraceIter.PAUSE_ON_TRACE
        super().__init__(tracing, "irqsoff", needed, IRQSOFF_GRAPH_FLAGS)
        tracing.machine.hypercalls[CONSTANTS["HC_UPDATE_MAX_TR"]] = self._update_max_tr

    def start(self, tr: TraceArray, trace_type: TraceType) -> None:
        """__irqsoff_tracer_init. EBUSY while one of the three is in charge somewhere."""
        self.init(tr)
        memory = self.memory
        self._forget_sections()
        memory.set_u64(self.label("irqsoff_max_sequence"), 0)
        memory.set_u32(self.label("irqsoff_trace_type"), trace_type)
        start, end = self._lock_text()
        memory.set_u64(self.label("lock_text"), start)
        memory.set_u64(self.label("lock_text") + 8, end)
        self.set_trace_function(is_graph(tr))
        with suppress(TracefsError):
            # Only the top level has calls recorded through fgraph from the beginning.
            self.start_func_tracer(tr, is_graph(tr) and not tr.name)
        for hook in _hooks(trace_type):
            self.tracing.static_calls.update(self._key(hook), self.label(hook))

    def stop(self, tr: TraceArray) -> None:
        """__irqsoff_tracer_reset."""
        for hook in _hooks(~TraceType(0)):
            self.tracing.static_calls.update(self._key(hook), 0)
        self.stop_func_tracer(tr, is_graph(tr))
        self.reset(tr)

    def forget(self, tr: TraceArray) -> None:
        """See LatencyTracing."""
        self._forget_sections()
        tr.tracing_reset_online_cpus()

    def _forget_sections(self) -> None:
        self.memory.write(self.label("irqsoff_cpu"), bytes(CONSTANTS["IRQSOFF_CPUS_BYTES"]))

    # --- a new maximum ---------------------------------------------------------------------------

    def _update_max_tr(self, vcpu: Processor) -> None:
        """check_critical_timing found one: put the records of this CPU aside."""
        tr = self.trace
        if tr is None or tr.stop_count:
            return
        (told,) = vcpu.get("rdi")

        def word(name: str) -> int:
            return self.memory.u64(told + CONSTANTS[f"IRQSOFF_MAX_{name}"])

        tr.max_latency = word("LATENCY")
        saved = saved_latency(
            tr, vcpu.number, critical_start=word("START"), critical_end=word("END")
        )
        update_max_tr_single(tr, vcpu.number, saved, word("TIMESTAMP"))

    # --- addresses -------------------------------------------------------------------------------

    def _key(self, name: str) -> int:
        return self.tracing.image.labels[f"__SCK__{name}"]

    def _lock_text(self) -> tuple[int, int]:
        """Where the functions that take and give back spin locks lie (in_lock_functions)."""
        locks = [s for s in self.tracing.image.symbols if s.name.startswith(_LOCK_FUNCTION)]
        if not locks:
            return 0, 0
        return min(s.address for s in locks), max(s.address + s.size for s in locks)


def _init(trace_type: TraceType, tr: TraceArray) -> None:
    tr.tracing.critical_timings.start(tr, trace_type)


def irqsoff_tracer_reset(tr: TraceArray) -> None:
    """Measure no more."""
    tr.tracing.critical_timings.stop(tr)


def irqsoff_tracer_start(tr: TraceArray) -> None:
    """tracing_on goes from 0 to 1."""
    tr.tracing.critical_timings.set_tracer_enabled(True)


def irqsoff_tracer_stop(tr: TraceArray) -> None:
    """tracing_on goes from 1 to 0."""
    tr.tracing.critical_timings.set_tracer_enabled(False)


def irqsoff_flag_changed(tr: TraceArray, flag: TraceIter, enabled: bool) -> None:
    """See LatencyTracing.flag_changed."""
    tr.tracing.critical_timings.flag_changed(tr, flag, enabled)


def irqsoff_graph_layout(tr: TraceArray) -> GraphLayout | None:
    """See LatencyTracing.graph_layout."""
    return tr.tracing.critical_timings.graph_layout(tr)


def irqsoff_print_header(tr: TraceArray, header: TraceHeader) -> str:
    """See LatencyTracing.print_header."""
    return tr.tracing.critical_timings.print_header(tr, header)


def _tracer(name: str, trace_type: TraceType) -> Tracer:
    return Tracer(
        name,
        init=partial(_init, trace_type),
        reset=irqsoff_tracer_reset,
        start=irqsoff_tracer_start,
        stop=irqsoff_tracer_stop,
        flag_changed=irqsoff_flag_changed,
        print_header=irqsoff_print_header,
        graph_layout=irqsoff_graph_layout,
        allow_instances=True,
        needs=tuple(f"__SCK__{hook}" for hook in _hooks(trace_type)),
        use_max_tr=True,
        print_max=True,
    )


IRQSOFF_TRACER = _tracer("irqsoff", TraceType.TRACER_IRQS_OFF)
PREEMPTOFF_TRACER = _tracer("preemptoff", TraceType.TRACER_PREEMPT_OFF)
PREEMPTIRQSOFF_TRACER = _tracer(
    "preemptirqsoff", TraceType.TRACER_IRQS_OFF | TraceType.TRACER_PREEMPT_OFF
)
