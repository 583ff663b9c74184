"""current_tracer and available_tracers."""

from __future__ import annotations

from ftracefs.files.base import TracefsFile
from ftracefs.files.simple import SeqFile, ValueFile
from ftracefs.trace.parsers import strim
from ftracefs.trace.trace_array import TraceArray

MAX_TRACER_SIZE = 100


def current_tracer(tr: TraceArray) -> TracefsFile:
    def tracing_set_trace_write(data: bytes) -> None:
        name = strim(data[:MAX_TRACER_SIZE])
        tr.tracing_set_tracer(name.decode("utf-8", "surrogateescape"))

    return ValueFile(lambda: f"{tr.current_trace.name}\n", tracing_set_trace_write)


def available_tracers(tr: TraceArray) -> TracefsFile:
    return SeqFile(lambda: " ".join(t.name for t in tr.available_tracers()) + "\n")
