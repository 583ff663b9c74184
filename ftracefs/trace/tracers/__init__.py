"""The tracers that current_tracer takes, one module each."""

from __future__ import annotations

from ftracefs.trace.tracers.function import FUNCTION_TRACE
from ftracefs.trace.tracers.function_graph import FUNCTION_GRAPH_TRACE
from ftracefs.trace.tracers.irqsoff import (
    IRQSOFF_TRACER,
    PREEMPTIRQSOFF_TRACER,
    PREEMPTOFF_TRACER,
)
from ftracefs.trace.tracers.nop import NOP_TRACE
from ftracefs.trace.tracers.sched_wakeup import (
    WAKEUP_DL_TRACER,
    WAKEUP_RT_TRACER,
    WAKEUP_TRACER,
)
from ftracefs.trace.tracers.tracer import Tracer

# trace_types: the tracer registered last comes first.
TRACE_TYPES: tuple[Tracer, ...] = (
    FUNCTION_GRAPH_TRACE,
    WAKEUP_DL_TRACER,
    WAKEUP_RT_TRACER,
    WAKEUP_TRACER,
    PREEMPTIRQSOFF_TRACER,
    PREEMPTOFF_TRACER,
    IRQSOFF_TRACER,
    FUNCTION_TRACE,
    NOP_TRACE,
)

__all__ = ["FUNCTION_GRAPH_TRACE", "FUNCTION_TRACE", "NOP_TRACE", "TRACE_TYPES", "Tracer"]
