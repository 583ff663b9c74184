"""What the function graph tracer is told: functions, depth, threshold.

Models the files of ftrace_graph_fops (kernel/trace/ftrace.c), max_graph_depth
(kernel/trace/trace_functions_graph.c) and tracing_thresh (kernel/trace/trace.c).
"""

from __future__ import annotations

from ftracefs.files.base import Caller, Deferred, OpenFile, Pending, TracefsFile
from ftracefs.files.simple import ValueFile
from ftracefs.ftrace.core import Ftrace
from ftracefs.ftrace.graph_filter import FtraceGraphRegex
from ftracefs.trace.parsers import ULONG_MAX, kstrtoul_from_user
from ftracefs.trace.trace_array import TraceArray

_NSEC_PER_USEC = 1000
_INT = 1 << 32


class _GraphFilterOpen(OpenFile):
    """A reader sees the filter in force, whatever it has written itself."""

    def __init__(self, ftrace: Ftrace, regex: FtraceGraphRegex, *, notrace: bool) -> None:
        self._ftrace = ftrace
        self._regex = regex
        self._notrace = notrace
        self._text = b""

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        if offset == 0 or not self._text:
            self._text = self._ftrace.graph_text(notrace=self._notrace)
        return self._text[offset : offset + size]

    def write(self, data: bytes, offset: int) -> int:
        return self._regex.write(data)

    def flush(self) -> None:
        self._regex.flush()

    def release(self) -> None:
        self._regex.release()


class GraphFilterFile(TracefsFile):
    """set_graph_function, or with `notrace` set_graph_notrace."""

    settles_at_close = True

    def __init__(self, tr: TraceArray, *, notrace: bool) -> None:
        self._ftrace = tr.tracing.ftrace
        self._notrace = notrace

    def open(self, flags: int, caller: Caller) -> OpenFile:
        regex = self._ftrace.open_graph(notrace=self._notrace, flags=flags)
        return _GraphFilterOpen(self._ftrace, regex, notrace=self._notrace)

    def size(self) -> int:
        return len(self._ftrace.graph_text(notrace=self._notrace))


def set_graph_function(tr: TraceArray) -> TracefsFile:
    return GraphFilterFile(tr, notrace=False)


def set_graph_notrace(tr: TraceArray) -> TracefsFile:
    return GraphFilterFile(tr, notrace=True)


def max_graph_depth(tr: TraceArray) -> TracefsFile:
    fgraph = tr.tracing.ftrace.fgraph

    def graph_depth_read() -> str:
        depth = fgraph.fgraph_max_depth
        return f"{depth - _INT if depth >= _INT // 2 else depth}\n"

    def graph_depth_write(data: bytes) -> None:
        fgraph.fgraph_max_depth = kstrtoul_from_user(data) % _INT

    return ValueFile(graph_depth_read, graph_depth_write)


def tracing_thresh(tr: TraceArray) -> TracefsFile:
    fgraph = tr.tracing.ftrace.fgraph

    def tracing_thresh_write(data: bytes) -> None:
        fgraph.tracing_thresh = kstrtoul_from_user(data) * _NSEC_PER_USEC & ULONG_MAX

    return ValueFile(lambda: f"{fgraph.tracing_thresh // _NSEC_PER_USEC}\n", tracing_thresh_write)
