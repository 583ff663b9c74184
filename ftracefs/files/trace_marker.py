"""trace_marker and trace_marker_raw: what is written becomes a record (tracing_mark_write,
tracing_mark_raw_write).
"""

from __future__ import annotations

from collections.abc import Callable

from ftracefs.files.base import Caller, OpenFile, TracefsFile
from ftracefs.trace.trace_array import TraceArray


class _MarkerOpen(OpenFile):
    nonseekable = True

    def __init__(self, mark: Callable[[bytes], int]) -> None:
        self._mark = mark

    def write(self, data: bytes, offset: int) -> int:
        return self._mark(data)


class MarkerFile(TracefsFile):
    """A file each write of which `mark` records; it returns the bytes taken."""

    def __init__(self, mark: Callable[[bytes], int]) -> None:
        self._mark = mark

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _MarkerOpen(self._mark)


def trace_marker(tr: TraceArray) -> TracefsFile:
    return MarkerFile(tr.tracing_mark_write)


def trace_marker_raw(tr: TraceArray) -> TracefsFile:
    return MarkerFile(tr.tracing_mark_raw_write)
