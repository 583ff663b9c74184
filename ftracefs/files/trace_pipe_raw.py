"""trace_pipe_raw: the ring buffer's own pages (tracing_buffers_open, tracing_buffers_read).

A read gives the rest of the page that was begun, or the next one; readers of the same CPU share
what there is, as in Linux. Not there: splice, which FUSE answers from reads, and waking by
`buffer_percent`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, OpenFile, Pending, TracefsFile, WaitQueue
from ftracefs.files.trace_poll import TracePoll
from ftracefs.ring_buffer.buffer import Waiter
from ftracefs.ring_buffer.layout import PAGE_SIZE
from ftracefs.trace.trace_array import TraceArray


class _RawOpen(OpenFile):
    """One reader, with the page it has not read to the end."""

    nonseekable = True

    def __init__(self, tr: TraceArray, cpu: int) -> None:
        self._tr = tr
        self._cpu = cpu
        self._spare = b""
        self._queue = WaitQueue()
        self._waiter: Waiter | None = None
        self._poll = TracePoll(tr, cpu)
        tr.trace_ref += 1

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Pending:
        ticket = self._queue.ticket()
        parts: list[bytes] = []
        while size > 0:
            if not self._spare:
                # A reader who wants more than a page is given whole pages only.
                if parts and size < PAGE_SIZE:
                    break
                self._spare = self._tr.buffer.cpus[self._cpu].read_page() or b""
                if not self._spare:
                    break
            parts.append(self._spare[:size])
            self._spare = self._spare[size:]
            size -= len(parts[-1])
        if parts:
            return b"".join(parts)
        if nonblock:
            raise TracefsError(errno.EAGAIN, "nothing to read")
        self._stop_waiting()
        self._waiter = self._tr.buffer.wait(self._queue.wake_up, self._cpu)
        return Pending(self._queue, ticket)

    def poll(self, notify: Callable[[], None] | None) -> int:
        return self._poll.poll(notify)

    def _stop_waiting(self) -> None:
        if self._waiter is not None:
            self._tr.buffer.cancel(self._waiter)
            self._waiter = None

    def release(self) -> None:
        self._stop_waiting()
        self._poll.stop()
        self._tr.trace_ref -= 1


class TracePipeRawFile(TracefsFile):
    """per_cpu/cpuN/trace_pipe_raw."""

    def __init__(self, tr: TraceArray, cpu: int) -> None:
        self._tr = tr
        self._cpu = cpu

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _RawOpen(self._tr, self._cpu)
