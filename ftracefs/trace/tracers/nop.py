"""The tracer that does nothing (kernel/trace/trace_nop.c)."""

from __future__ import annotations

from ftracefs.trace.options import NOP_OPTIONS
from ftracefs.trace.tracers.tracer import Tracer

NOP_TRACE = Tracer("nop", options=NOP_OPTIONS, allow_instances=True)
