"""The open files of a mount, and which of them are about to be gone.

close(2) is answered after FLUSH; the RELEASE that ends the open file reaches the daemon later, on
another thread. Without care, `cat trace_pipe` twice in a row is refused with EBUSY, and
`> set_ftrace_filter; cat set_ftrace_filter` shows the list that was to be emptied. FLUSH also comes
when one of several descriptors is closed, so it says only that a RELEASE may follow. A handle that
was flushed since its last read or write is called *closing*, and whoever would notice its delay
waits for it as long as it may come (`settle`).

Invariant of the lock: `closing`, `active` and `releasing` of a handle in the table, and the table
itself, change only under it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from ftracefs.files.base import Node, OpenFile
from ftracefs.mount.inodes import Inode

GRACE = 0.25  # seconds a RELEASE that may come is waited for, at most
GRACE_ON_ITS_WAY = 2.0  # the same where it is known to be on its way
RELEASE_TIMEOUT = 10.0  # for a RELEASE that has come and waits for others' work
_LOOKS_S = 0.0005  # how often it is looked whether one may come


class PollHandle(Protocol):
    """What wakes those who poll a file; good for one call of either method."""

    def notify(self) -> None: ...

    def destroy(self) -> None: ...


class Poller:
    """Whoever polls an open file: the kernel wakes all of them by the latest handle it gave."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handle: PollHandle | None = None

    def arm(self, handle: PollHandle) -> None:
        """`notify` uses this handle from now on."""
        with self._lock:
            before, self._handle = self._handle, handle
        if before is not None:
            before.destroy()

    def notify(self) -> None:
        """Have them look again; they bring a new handle if they go on waiting."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            handle.notify()

    def disarm(self) -> None:
        """The file is gone, and who polls it with it."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            handle.destroy()


@dataclass(slots=True, eq=False)
class Handle:
    """One open(2) of a file."""

    number: int
    path: str
    node: Node
    inode: Inode
    file: OpenFile
    writable: bool
    active: int = 0  # reads and writes that are running
    closing: bool = False
    releasing: bool = False
    poller: Poller = field(default_factory=Poller)


class Handles:
    """Every open file, by the number that the kernel knows it by.

    `may_come` tells whether a RELEASE may be on its way that the host's kernel has asked for.
    """

    def __init__(self, may_come: Callable[[], bool], grace: float = GRACE) -> None:
        self._may_come = may_come
        self._grace = grace
        self._condition = threading.Condition()
        self._table: dict[int, Handle] = {}
        self._numbers = itertools.count(1)
        self._releases = 0

    @property
    def releases(self) -> int:
        """How many handles have been released so far."""
        return self._releases

    def reserve(self) -> int:
        """A number for a handle that is being opened."""
        return next(self._numbers)

    def enter(self, handle: Handle) -> None:
        """Put an opened handle into the table."""
        with self._condition:
            self._table[handle.number] = handle

    def __getitem__(self, number: int) -> Handle:
        return self._table[number]

    def __iter__(self) -> Iterator[Handle]:
        with self._condition:
            return iter(list(self._table.values()))

    def __len__(self) -> int:
        return len(self._table)

    @contextmanager
    def using(self, handle: Handle) -> Iterator[None]:
        """A read or write of `handle` runs: it is not about to be gone."""
        with self._condition:
            handle.active += 1
            if handle.closing:
                handle.closing = False
                self._condition.notify_all()
        try:
            yield
        finally:
            with self._condition:
                handle.active -= 1

    def flushed(self, handle: Handle) -> None:
        """A descriptor of `handle` was closed."""
        with self._condition:
            handle.closing = True

    def releasing(self, handle: Handle) -> None:
        """The kernel wants `handle` released: it goes for certain."""
        with self._condition:
            handle.closing = handle.releasing = True
            self._condition.notify_all()

    def leave(self, number: int) -> None:
        """The handle's file was released."""
        with self._condition:
            del self._table[number]
            self._releases += 1
            self._condition.notify_all()

    def settle(self, concerns: Callable[[Handle], bool]) -> None:
        """Wait until no closing handle that `concerns` is left, but for those whose release the
        kernel has not asked for: a shell keeps them.
        """
        with self._condition:
            awaited = [h for h in self._table.values() if self._may_go(h) and concerns(h)]
            end = time.monotonic() + self._grace
            while any(self._may_go(h) and not h.releasing for h in awaited):
                # One may stand behind others that are being released.
                others = any(handle.releasing for handle in self._table.values())
                if time.monotonic() > end or not (others or self._may_come()):
                    break
                self._condition.wait(_LOOKS_S)
            self._condition.wait_for(
                lambda: not any(self._may_go(h) and h.releasing for h in awaited), RELEASE_TIMEOUT
            )

    def _may_go(self, handle: Handle) -> bool:
        return handle.closing and not handle.active and handle.number in self._table
