"""trace: the whole buffer as text, of one CPU or of all (tracing_open, tracing_write).

Linux walks the living buffer. Here the first read of an open takes a copy of everything unread and
all further reads show that, so a trace that is read in small pieces does not tear and one that
traces its own reading comes to an end; going back to the start looks at the buffer anew.
"""

from __future__ import annotations

import threading

from ftracefs.files.base import Caller, Deferred, OpenFile, Pending, TracefsFile
from ftracefs.files.simple import is_readable, truncates
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.trace_text import TraceText
from ftracefs.trace.trace_array import TraceArray


class _SharedText:
    """A text that is made as far as it is read, by whichever reader comes."""

    def __init__(self, text: TraceText) -> None:
        self._text = text
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            return self._text.read(offset, size)


class _TraceOpen(OpenFile):
    """One open for reading (struct trace_iterator)."""

    def __init__(self, tr: TraceArray, cpu: int | None) -> None:
        self._tr = tr
        self._cpu = cpu
        self._text: _SharedText | None = None
        self._paused = bool(tr.trace_flags & TraceIter.PAUSE_ON_TRACE)
        tr.tracing_open(cpu)
        if self._paused:
            tr.tracing_stop_tr()

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        text = self._text
        if text is None or offset == 0:
            text = self._text = _SharedText(self._tr.trace_text(self._cpu))
        return lambda: text.read(offset, size)

    def write(self, data: bytes, offset: int) -> int:
        return len(data)

    def release(self) -> None:
        self._tr.tracing_release(self._cpu)
        if self._paused:
            self._tr.tracing_start_tr()


class _WriteOnlyOpen(OpenFile):
    def write(self, data: bytes, offset: int) -> int:
        return len(data)


class TraceFile(TracefsFile):
    """Opening it with O_TRUNC for writing empties the buffer; what is written is ignored."""

    def __init__(self, tr: TraceArray, cpu: int | None = None) -> None:
        self._tr = tr
        self._cpu = cpu

    def open(self, flags: int, caller: Caller) -> OpenFile:
        if truncates(flags):
            self._tr.tracing_reset_cpu(self._cpu)
        return _TraceOpen(self._tr, self._cpu) if is_readable(flags) else _WriteOnlyOpen()
