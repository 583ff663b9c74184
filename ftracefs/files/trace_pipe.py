"""trace_pipe: records as they come, each given once (tracing_open_pipe, tracing_read_pipe).

Linux stops a read at about 4 KB of text. Here a read for more goes on with whole lines, since each
read through FUSE costs the reader far more than a system call.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, Deferred, OpenFile, Pending, TracefsFile, WaitQueue
from ftracefs.files.trace_poll import TracePoll
from ftracefs.ring_buffer.buffer import Waiter
from ftracefs.ring_buffer.layout import PAGE_SIZE
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.trace_pipe import TracePipe
from ftracefs.trace.trace_array import TraceArray


class _PipeOpen(OpenFile):
    """The one reader of its CPUs."""

    nonseekable = True

    def __init__(self, tr: TraceArray, cpu: int | None) -> None:
        tr.open_pipe_on_cpu(cpu)
        self._tr = tr
        self._cpu = cpu
        self._pipe = TracePipe(tr.buffer, cpu)
        self._queue = WaitQueue()
        self._waiter: Waiter | None = None
        self._has_read = False
        self._lat_fmt = bool(tr.trace_flags & TraceIter.LATENCY_FMT)
        self._poll = TracePoll(tr, tr.buffer, cpu)

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        ticket = self._queue.ticket()
        text = self._text(size)
        if text:
            self._has_read = True
            return text
        if nonblock:
            raise TracefsError(errno.EAGAIN, "nothing to read")
        if self._has_read and not self._tr.tracer_tracing_is_on():
            return b""
        self._stop_waiting()
        self._waiter = self._tr.buffer.wait(self._queue.wake_up, self._cpu)
        return Pending(self._queue, ticket)

    def splice_read(self, size: int, offset: int) -> bytes:
        """Refused: lines do not come by the page."""
        raise TracefsError(errno.EINVAL, "to be read")

    def _text(self, size: int) -> bytes:
        """As many whole lines as fit; one trace_seq, cut where it must be, for a small reader.

        The rest of a line that was cut is given alone, as in Linux.
        """
        parts: list[bytes] = []
        context = replace(self._tr.output_context(), lat_fmt=self._lat_fmt)
        room, is_rest = size, self._pipe.has_leftover
        while not self._pipe.is_empty():
            text = self._pipe.read(room, context, self._tr.tracing.event_functions)
            parts.append(text)
            room -= len(text)
            if text and (is_rest or room < PAGE_SIZE):
                break
        return b"".join(parts)

    def poll(self, notify: Callable[[], None] | None) -> int:
        return self._poll.poll(notify)

    def _stop_waiting(self) -> None:
        if self._waiter is not None:
            self._tr.buffer.cancel(self._waiter)
            self._waiter = None

    def release(self) -> None:
        self._stop_waiting()
        self._poll.stop()
        self._tr.close_pipe_on_cpu(self._cpu)


class TracePipeFile(TracefsFile):
    """Opening it for whatever purpose makes a reader of it; a second one gets EBUSY."""

    def __init__(self, tr: TraceArray, cpu: int | None = None) -> None:
        self._tr = tr
        self._cpu = cpu

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _PipeOpen(self._tr, self._cpu)

    def size(self) -> int:
        return PAGE_SIZE  # for 0 the host's kernel would not ask, and say that the file is empty
