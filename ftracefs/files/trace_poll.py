"""poll(2) on a file that gives records: trace_poll and ring_buffer_poll_wait.

As in Linux only the buffer counts: what a reader was given and has not taken to its end (the rest
of a line, of a page) is not looked at.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from ftracefs.ring_buffer.buffer import Waiter
from ftracefs.trace.options import TraceIter
from ftracefs.trace.trace_array import TraceArray

READABLE = select.POLLIN | select.POLLRDNORM


class TracePoll:
    """Those who poll one open file of the buffer of `cpu`, or of all."""

    def __init__(self, tr: TraceArray, cpu: int | None) -> None:
        self._tr = tr
        self._cpu = cpu
        self._waiter: Waiter | None = None

    def poll(self, notify: Callable[[], None] | None) -> int:
        """As `OpenFile.poll`."""
        if self._tr.trace_flags & TraceIter.BLOCK:
            return READABLE
        if notify is not None:
            self.stop()
        is_ready, waiter = self._tr.buffer.ring_buffer_poll_wait(notify, self._cpu)
        self._waiter = waiter or self._waiter
        return READABLE if is_ready else 0

    def stop(self) -> None:
        """Nobody polls any more."""
        if self._waiter is not None:
            self._tr.buffer.cancel(self._waiter)
            self._waiter = None
