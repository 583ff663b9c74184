"""trace_marker: what is written becomes a record (tracing_mark_write)."""

from __future__ import annotations

from ftracefs.files.base import Caller, OpenFile, TracefsFile
from ftracefs.trace.trace_array import TraceArray


class _MarkerOpen(OpenFile):
    nonseekable = True

    def __init__(self, tr: TraceArray) -> None:
        self._tr = tr

    def write(self, data: bytes, offset: int) -> int:
        return self._tr.tracing_mark_write(data)


class TraceMarker(TracefsFile):
    def __init__(self, tr: TraceArray) -> None:
        self._tr = tr

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _MarkerOpen(self._tr)
