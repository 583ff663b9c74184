"""The files that say how records are kept: tracing_on, sizes, clock, statistics, free_buffer.

Models rb_simple_fops, tracing_entries_fops, buffer_percent_fops, trace_clock_fops and their
neighbours in kernel/trace/trace.c.
"""

from __future__ import annotations

import errno
from functools import partial

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, OpenFile, TracefsFile
from ftracefs.files.simple import SeqFile, ValueFile
from ftracefs.trace.options import TraceIter
from ftracefs.trace.parsers import kstrtoul_from_user, strim
from ftracefs.trace.trace_array import TraceArray

CLOCK_BUFFER_SIZE = 64  # tracing_clock_write's buffer: that many bytes are too many


def tracing_on(tr: TraceArray) -> TracefsFile:
    def rb_simple_write(data: bytes) -> None:
        tr.set_tracing_on(kstrtoul_from_user(data) != 0)

    return ValueFile(lambda: f"{int(tr.tracer_tracing_is_on())}\n", rb_simple_write)


def buffer_size_kb(tr: TraceArray, cpu: int | None = None) -> TracefsFile:
    def tracing_entries_write(data: bytes) -> None:
        size_kb = kstrtoul_from_user(data)
        if not size_kb:
            raise TracefsError(errno.EINVAL, "a buffer needs room for something")
        tr.tracing_resize_ring_buffer(size_kb << 10, cpu)

    return ValueFile(partial(tr.buffer_size_kb, cpu), tracing_entries_write)


def buffer_total_size_kb(tr: TraceArray) -> TracefsFile:
    return ValueFile(tr.buffer_total_size_kb)


def buffer_percent(tr: TraceArray) -> TracefsFile:
    def buffer_percent_write(data: bytes) -> None:
        percent = kstrtoul_from_user(data)
        if percent > 100:
            raise TracefsError(errno.EINVAL, "more than all of it")
        tr.buffer_percent = percent

    return ValueFile(lambda: f"{tr.buffer_percent}\n", buffer_percent_write)


def timestamp_mode(_tr: TraceArray) -> TracefsFile:
    """How records are stamped. Only histograms want absolute stamps, and there are none."""
    return SeqFile(lambda: "[delta] absolute\n")


def trace_clock(tr: TraceArray) -> TracefsFile:
    def tracing_clock_write(data: bytes) -> None:
        if len(data) >= CLOCK_BUFFER_SIZE:
            raise TracefsError(errno.EINVAL, "too long for the name of a clock")
        tr.tracing_set_clock(strim(data).decode("utf-8", "surrogateescape"))

    return SeqFile(tr.trace_clock_text, tracing_clock_write)


class _Stats(ValueFile):
    """per_cpu/cpuN/stats, whose text tells of a reading of the clock, and whose length does not."""

    def __init__(self, tr: TraceArray, cpu: int) -> None:
        super().__init__(partial(tr.tracing_stats, cpu))
        self._peek = partial(tr.tracing_stats, cpu, peek=True)

    def size(self) -> int:
        return len(self._peek())


def stats(tr: TraceArray, cpu: int) -> TracefsFile:
    return _Stats(tr, cpu)


class _FreeBufferOpen(OpenFile):
    def __init__(self, tr: TraceArray) -> None:
        self._tr = tr

    def write(self, data: bytes, offset: int) -> int:
        return len(data)

    def release(self) -> None:
        """tracing_free_buffer_release: the buffer shrinks when the file is closed."""
        if self._tr.trace_flags & TraceIter.STOP_ON_FREE:
            self._tr.tracer_tracing_off()
        try:
            self._tr.tracing_resize_ring_buffer(0)
        except TracefsError:
            pass  # close(2) does not report it


class FreeBuffer(TracefsFile):
    """free_buffer: closing it frees the buffer, whatever was written."""

    def __init__(self, tr: TraceArray) -> None:
        self._tr = tr

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _FreeBufferOpen(self._tr)
