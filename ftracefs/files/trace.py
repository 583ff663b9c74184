"""trace and snapshot: a whole buffer as text, of one CPU or of all (tracing_open, tracing_write,
tracing_snapshot_open, tracing_snapshot_write).

Linux walks the living buffer. Here the first read of an open takes a copy of everything unread and
all further reads show that, so a trace that is read in small pieces does not tear and one that
traces its own reading comes to an end; going back to the start looks at the buffer anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from ftracefs.files.base import Caller, Deferred, OpenFile, Pending, TracefsFile
from ftracefs.files.simple import is_readable, truncates
from ftracefs.trace.array_buffer import tracing_snapshot_write
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.trace_text import TraceText
from ftracefs.trace.parsers import kstrtoul_from_user
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
        if tr.trace_flags & TraceIter.PAUSE_ON_TRACE:
            tr.tracing_stop_tr()
        self._readers = tr.buffer.ring_buffer_read_start(cpu)

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        text = self._text
        if text is None or offset == 0:
            text = self._text = _SharedText(self._tr.trace_text(self._cpu))
        return lambda: text.read(offset, size)

    def write(self, data: bytes, offset: int) -> int:
        return len(data)

    def release(self) -> None:
        self._tr.buffer.ring_buffer_read_finish(self._readers)
        # Whoever paused it: any reader who leaves takes one pause along.
        if self._tr.stop_count:
            self._tr.tracing_start_tr()


class _SnapshotOpen(_TraceOpen):
    """tracing_snapshot_open: neither pauses nor is kept from being written."""

    def __init__(self, tr: TraceArray, cpu: int | None) -> None:
        self._tr = tr
        self._cpu = cpu
        self._text = None
        self._readers = tr.max_buffer.buffer.ring_buffer_read_start(cpu)

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        text = self._text
        if text is None or offset == 0:
            text = self._text = _SharedText(self._tr.snapshot_text(self._cpu))
        return lambda: text.read(offset, size)

    def write(self, data: bytes, offset: int) -> int:
        return _snapshot_write(self._tr, self._cpu, data)

    def release(self) -> None:
        self._tr.max_buffer.buffer.ring_buffer_read_finish(self._readers)


class _WriteOnlyOpen(OpenFile):
    def __init__(self, write: Callable[[bytes], int] = len) -> None:
        self._write = write

    def write(self, data: bytes, offset: int) -> int:
        return self._write(data)


def _snapshot_write(tr: TraceArray, cpu: int | None, data: bytes) -> int:
    tr.tracing_update_buffers()
    tracing_snapshot_write(tr, kstrtoul_from_user(data), cpu)
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


class SnapshotFile(TracefsFile):
    """snapshot: as `trace`, of the snapshot; a number written to it takes, empties or frees it."""

    def __init__(self, tr: TraceArray, cpu: int | None = None) -> None:
        self._tr = tr
        self._cpu = cpu

    def open(self, flags: int, caller: Caller) -> OpenFile:
        if is_readable(flags):
            return _SnapshotOpen(self._tr, self._cpu)
        return _WriteOnlyOpen(partial(_snapshot_write, self._tr, self._cpu))
