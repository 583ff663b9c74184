"""tracing_max_latency (tracing_max_lat_read and _write of kernel/trace/trace.c)."""

from __future__ import annotations

from ftracefs.files.base import TracefsFile
from ftracefs.files.simple import ValueFile
from ftracefs.trace.parsers import ULONG_MAX, kstrtoul_from_user
from ftracefs.trace.trace_array import TraceArray

_NSEC_PER_USEC = 1000


def tracing_max_latency(tr: TraceArray) -> TracefsFile:
    def tracing_max_lat_write(data: bytes) -> None:
        tr.max_latency = kstrtoul_from_user(data) * _NSEC_PER_USEC & ULONG_MAX

    return ValueFile(lambda: f"{tr.max_latency // _NSEC_PER_USEC}\n", tracing_max_lat_write)
