"""trace_pipe_raw and snapshot_raw: the ring buffer's own pages (tracing_buffers_open, ..._read).

A read gives the rest of the page that was begun, or else as many whole pages as were asked for and
are there; Linux stops at one. Who asks for less than a page gets a page with as few records as fit
into what is asked for; with no room for one record the answer is 0 bytes, as at the end of a file.
Readers of the same CPU share what there is, as in Linux. A splice gives pages that the writer has
left, and never waits: it is a page of the host's cache that would wait, and nobody could use it
meanwhile.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import numpy as np

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, OpenFile, Pending, TracefsFile, WaitQueue
from ftracefs.files.trace_poll import TracePoll
from ftracefs.ring_buffer.buffer import Waiter
from ftracefs.ring_buffer.layout import BUF_PAGE_HDR_SIZE, PAGE_SIZE
from ftracefs.ring_buffer.pages import PAGE_WORDS
from ftracefs.trace.trace_array import TraceArray

# What one request of the host's kernel asks for at most; a longer read comes as several.
MAX_REQUEST = 1 << 17


class _RawOpen(OpenFile):
    """One reader, with the page it has not read to the end."""

    nonseekable = True

    def __init__(self, tr: TraceArray, cpu: int, *, snapshot: bool) -> None:
        if snapshot and tr.current_trace.use_max_tr:
            raise TracefsError(errno.EBUSY, f"{tr.current_trace.name} needs the snapshot itself")
        self._tr = tr
        self._cpu = cpu
        self._is_snapshot = snapshot
        self._buffer = (tr.max_buffer if snapshot else tr.array_buffer).buffer
        self._spare = b""
        self._queue = WaitQueue()
        self._waiter: Waiter | None = None
        self._poll = TracePoll(tr, self._buffer, cpu)
        tr.trace_ref += 1

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Pending:
        room = bytearray(size)
        answer = self.read_into(memoryview(room), offset, nonblock)
        return bytes(room[:answer]) if isinstance(answer, int) else answer

    def read_into(self, room: memoryview, offset: int, nonblock: bool) -> int | bytes | Pending:
        size = len(room)
        if self._is_snapshot and self._tr.current_trace.use_max_tr:
            raise TracefsError(errno.EBUSY, "the snapshot is in use")
        ticket = self._queue.ticket()
        if not self._spare and size >= PAGE_SIZE and (count := self._read_pages(room)):
            return count * PAGE_SIZE
        if not self._spare:
            if size > BUF_PAGE_HDR_SIZE:
                page = self._buffer.cpus[self._cpu].read_page(size - BUF_PAGE_HDR_SIZE)
                self._spare = page or b""
            if not self._spare and self._buffer.is_empty(self._cpu):
                return self._wait(ticket, nonblock)
        data, self._spare = self._spare[:size], self._spare[size:]
        return data

    def _read_pages(self, room: memoryview) -> int:
        """Whole pages, at least one left behind a piece that may be one of a longer read.

        A piece that is full makes the host's kernel ask for the next one, which must not wait while
        the reader has not been given the first.
        """
        cpu_buffer = self._buffer.cpus[self._cpu]
        count = len(room) // PAGE_SIZE
        pages = np.frombuffer(room, dtype=np.uint32, count=count * PAGE_WORDS)
        if len(room) >= MAX_REQUEST and cpu_buffer.nr_dirty_pages() < count:
            count -= 1
        return cpu_buffer.read_pages(pages.reshape(-1, PAGE_WORDS)[:count])

    def _wait(self, ticket: int, nonblock: bool) -> Pending:
        if nonblock:
            raise TracefsError(errno.EAGAIN, "nothing to read")
        self._stop_waiting()
        self._waiter = self._buffer.wait(self._queue.wake_up, self._cpu)
        return Pending(self._queue, ticket)

    def splice_read(self, size: int, offset: int) -> bytes:
        """tracing_buffers_splice_read."""
        if self._is_snapshot and self._tr.current_trace.use_max_tr:
            raise TracefsError(errno.EBUSY, "the snapshot is in use")
        if size < PAGE_SIZE or offset % PAGE_SIZE:
            raise TracefsError(errno.EINVAL, "whole pages only")
        pages: list[bytes] = []
        for _ in range(size // PAGE_SIZE):
            page = self._buffer.cpus[self._cpu].read_page(full=True)
            if page is None:
                break
            pages.append(page)
        if not pages:
            raise TracefsError(errno.EAGAIN, "no full page")
        return b"".join(pages)

    def poll(self, notify: Callable[[], None] | None) -> int:
        return super().poll(notify) if self._is_snapshot else self._poll.poll(notify)

    def _stop_waiting(self) -> None:
        if self._waiter is not None:
            self._buffer.cancel(self._waiter)
            self._waiter = None

    def release(self) -> None:
        self._stop_waiting()
        self._poll.stop()
        self._tr.trace_ref -= 1


# The host's kernel asks for what is to be spliced only within the file's size.
ENDLESS = 1 << 40


class TracePipeRawFile(TracefsFile):
    """per_cpu/cpuN/trace_pipe_raw, or with `snapshot` per_cpu/cpuN/snapshot_raw."""

    def __init__(self, tr: TraceArray, cpu: int, *, snapshot: bool = False) -> None:
        self._tr = tr
        self._cpu = cpu
        self._is_snapshot = snapshot

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _RawOpen(self._tr, self._cpu, snapshot=self._is_snapshot)

    def size(self) -> int:
        return ENDLESS


def snapshot_raw(tr: TraceArray, cpu: int) -> TracefsFile:
    return TracePipeRawFile(tr, cpu, snapshot=True)
