"""trace and snapshot: a whole buffer as text, of one CPU or of all (tracing_open, tracing_write,
tracing_snapshot_open, tracing_snapshot_write).

Linux walks the living buffer. Here the first read of an open takes a copy of everything unread and
all further reads show that, so a trace that is read in small pieces does not tear and one that
traces its own reading comes to an end; going back to the start looks at the buffer anew.

The length of a text is only known once it is made. So the text of a small buffer that was measured
is kept, and whoever reads it before anything changes gets that one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from ftracefs.files.base import (
    Caller,
    Deferred,
    DeferredSize,
    OpenFile,
    Pending,
    TracefsFile,
)
from ftracefs.files.simple import is_readable, truncates
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.trace.array_buffer import tracing_snapshot_write
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.trace_text import TraceText
from ftracefs.trace.parsers import kstrtoul_from_user
from ftracefs.trace.trace_array import TraceArray

# The text of more records than these is not made for its length alone.
MEASURED_RECORDS = 1 << 16


class _SharedText:
    """A text that is made as far as it is read, by whichever reader comes.

    `state` is that of the buffer when the text was begun.
    """

    def __init__(self, text: TraceText, state: list[tuple[int, ...]]) -> None:
        self._text = text
        self._state = state
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            return self._text.read(offset, size)

    def length(self) -> int:
        with self._lock:
            return self._text.length()

    def is_same(self, other: _SharedText) -> bool:
        """Whether both come out the same."""
        return self._state == other._state and self._text.is_same(other._text)


class _BufferFile(TracefsFile):
    """What `trace` and `snapshot` have in common: a text of a buffer, and its length."""

    def __init__(self, tr: TraceArray, cpu: int | None = None) -> None:
        self._tr = tr
        self._cpu = cpu
        self.measured: _SharedText | None = None

    def buffer(self) -> RingBuffer:
        raise NotImplementedError

    def make(self) -> TraceText:
        raise NotImplementedError

    def text(self) -> _SharedText:
        """The text as of now: the one that was measured if that is the same."""
        text = _SharedText(self.make(), self.buffer().state())
        return self.measured if self.measured and self.measured.is_same(text) else text

    def size(self) -> int | DeferredSize:
        self.measured = None if self._is_long() else self.text()
        return 0 if self.measured is None else self.measured.length

    def _is_long(self) -> bool:
        return self.buffer().entries(self._cpu) > MEASURED_RECORDS


class _TextOpen(OpenFile):
    """One open for reading (struct trace_iterator)."""

    def __init__(self, file: _BufferFile, cpu: int | None) -> None:
        self._file = file
        self._text: _SharedText | None = None
        self._measured = file.measured
        self._buffer = file.buffer()
        self._readers = self._buffer.ring_buffer_read_start(cpu)

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        text = self._text
        if text is None or offset == 0:
            text = self._text = self._file.text()
        return lambda: text.read(offset, size)

    def splice_read(self, size: int, offset: int) -> bytes | Deferred:
        """Pieces of the text whose length the opener was told, for it is cut at that length."""
        text = self._measured
        if text is None:
            return super().splice_read(size, offset)
        return lambda: text.read(offset, size)

    def release(self) -> None:
        self._buffer.ring_buffer_read_finish(self._readers)


class _TraceOpen(_TextOpen):
    """tracing_open: pauses the recording if that is wanted."""

    def __init__(self, file: _BufferFile, tr: TraceArray, cpu: int | None) -> None:
        if tr.trace_flags & TraceIter.PAUSE_ON_TRACE:
            tr.tracing_stop_tr()
        super().__init__(file, cpu)
        self._tr = tr

    def write(self, data: bytes, offset: int) -> int:
        return len(data)

    def release(self) -> None:
        super().release()
        # Whoever paused it: any reader who leaves takes one pause along.
        if self._tr.stop_count:
            self._tr.tracing_start_tr()


class _SnapshotOpen(_TextOpen):
    """tracing_snapshot_open: neither pauses nor is kept from being written."""

    def __init__(self, file: _BufferFile, tr: TraceArray, cpu: int | None) -> None:
        super().__init__(file, cpu)
        self._tr = tr
        self._cpu = cpu

    def write(self, data: bytes, offset: int) -> int:
        return _snapshot_write(self._tr, self._cpu, data)


class _WriteOnlyOpen(OpenFile):
    def __init__(self, write: Callable[[bytes], int] = len) -> None:
        self._write = write

    def write(self, data: bytes, offset: int) -> int:
        return self._write(data)


def _snapshot_write(tr: TraceArray, cpu: int | None, data: bytes) -> int:
    tr.tracing.tracing_update_buffers()
    tracing_snapshot_write(tr, kstrtoul_from_user(data), cpu)
    return len(data)


class TraceFile(_BufferFile):
    """Opening it with O_TRUNC for writing empties the buffer; what is written is ignored."""

    def buffer(self) -> RingBuffer:
        return self._tr.printed_buffer.buffer

    def make(self) -> TraceText:
        return self._tr.trace_text(self._cpu)

    def open(self, flags: int, caller: Caller) -> OpenFile:
        if truncates(flags):
            self._tr.tracing_reset_printed_buffer(self._cpu)
        return _TraceOpen(self, self._tr, self._cpu) if is_readable(flags) else _WriteOnlyOpen()


class SnapshotFile(_BufferFile):
    """snapshot: as `trace`, of the snapshot; a number written to it takes, empties or frees it."""

    def buffer(self) -> RingBuffer:
        return self._tr.max_buffer.buffer

    def make(self) -> TraceText:
        return self._tr.snapshot_text(self._cpu)

    def size(self) -> int | DeferredSize:
        return 0 if self._tr.current_trace.use_max_tr else super().size()

    def open(self, flags: int, caller: Caller) -> OpenFile:
        if is_readable(flags):
            return _SnapshotOpen(self, self._tr, self._cpu)
        return _WriteOnlyOpen(partial(_snapshot_write, self._tr, self._cpu))
