"""poll(2) on a file that gives records: trace_poll and ring_buffer_poll_wait.

Who polls the file of one CPU waits until `buffer_percent` of its buffer is written, 50 by default.

As in Linux only the buffer counts: what a reader was given and has not taken to its end (the rest
of a line, of a page) is not looked at.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from ftracefs.ring_buffer.buffer import RingBuffer, Waiter
from ftracefs.trace.options import TraceIter
from ftracefs.trace.trace_array import TraceArray

READABLE = select.POLLIN | select.POLLRDNORM


class TracePoll:
    """Those who poll one open file of `buffer`, a buffer of `tr`, of `cpu` or of all."""

    def __init__(self, tr: TraceArray, buffer: RingBuffer, cpu: int | None) -> None:
        self._tr = tr
        self._buffer = buffer
        self._cpu = cpu
        self._waiter: Waiter | None = None

    def poll(self, notify: Callable[[], None] | None) -> int:
        """As `OpenFile.poll`."""
        if self._tr.trace_flags & TraceIter.BLOCK:
            return READABLE
        if notify is not None:
            self.stop()
        percent = self._tr.buffer_percent
        is_ready, waiter = self._buffer.ring_buffer_poll_wait(notify, self._cpu, percent)
        self._waiter = waiter or self._waiter
        return READABLE if is_ready else 0

    def stop(self) -> None:
        """Nobody polls any more."""
        if self._waiter is not None:
            self._buffer.cancel(self._waiter)
            self._waiter = None
