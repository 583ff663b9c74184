"""What a tracefs file is, without a mount: the counterpart of `struct file_operations`.

A node of the tree is a `TracefsFile` or a `Directory`. Opening a file gives an `OpenFile`, one per
open(2), which lives until `release`. Offsets: control files ignore the offset of a write, since
clients keep one descriptor open and write at growing offsets.

A read may return a callable instead of bytes: what it captured is taken on the machine thread, the
text is made afterwards by calling it on the reader's own thread. Likewise a write that takes long
(a function to be called a million times) returns a callable that does it on the writer's thread and
returns the bytes taken; it is given a function that tells whether the writer got a signal.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ftracefs.errors import TracefsError

DEFAULT_POLLMASK = select.POLLIN | select.POLLOUT | select.POLLRDNORM | select.POLLWRNORM

_ALL = 1 << 40  # bytes; more than any file has
_making = threading.RLock()

Deferred = Callable[[], bytes]
DeferredSize = Callable[[], int]
DeferredWrite = Callable[[Callable[[], bool]], int]


@dataclass(frozen=True, slots=True)
class Caller:
    """The process behind a file operation; pid 0 is nobody (a RELEASE, another pid namespace)."""

    pid: int
    uid: int = 0
    gid: int = 0


NOBODY = Caller(0)


class WaitQueue:
    """Where readers sleep until something changes (wait_queue_head_t).

    A reader takes a `ticket` before it looks for data, so a wake-up between the look and the wait
    is not lost.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._generation = 0

    def ticket(self) -> int:
        """The number of wake-ups so far."""
        return self._generation

    def wait(self, ticket: int, timeout: float) -> bool:
        """Sleep until a wake-up after `ticket`, at most `timeout` seconds; True if one came."""
        with self._condition:
            return self._condition.wait_for(lambda: self._generation != ticket, timeout)

    def wake_up(self) -> None:
        """Wake every sleeper."""
        with self._condition:
            self._generation += 1
            self._condition.notify_all()


@dataclass(frozen=True, slots=True)
class Pending:
    """The answer of a read that would block: wait on `queue` from `ticket`, then read again.

    Files never block themselves; whoever called `read` waits, on its own thread.
    """

    queue: WaitQueue
    ticket: int


class Owner(Protocol):
    """What must not go away while one of its files is open (struct trace_array, by its `ref`)."""

    def trace_array_get(self) -> None:
        """Count one more open file; ENODEV when it is gone already."""

    def trace_array_put(self) -> None:
        """Count one less."""


class OpenFile:
    """One open(2) of a tracefs file. The defaults are a file that can be neither read nor written.

    Every method raises `TracefsError` with Linux's errno. `release` cannot fail.
    """

    before_write: Callable[[], None] | None = None  # as that of its file
    nonseekable = False  # lseek answers ESPIPE (stream_open, nonseekable_open)
    owner: Owner | None = None

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        """Return at most `size` bytes from `offset`; b"" is end of file.

        `nonblock` is the descriptor's O_NONBLOCK at this moment: EAGAIN instead of `Pending`.
        """
        raise TracefsError(errno.EINVAL, "not readable")

    def read_into(
        self, room: memoryview, offset: int, nonblock: bool
    ) -> int | bytes | Deferred | Pending:
        """`read` of as much as there is room for; may put it there itself and return how much.

        `room` is the caller's: it is not to be used after the call.
        """
        return self.read(len(room), offset, nonblock)

    def splice_read(self, size: int, offset: int) -> bytes | Deferred:
        """A piece for splice(2) or sendfile(2): what a read gives from there, and never `Pending`.

        Where there is nothing yet the answer is EAGAIN. After EINVAL the caller tries read(2).
        """
        answer = self.read(size, offset, True)
        if isinstance(answer, Pending):
            raise TracefsError(errno.EAGAIN, "nothing to read")
        return answer

    def write(self, data: bytes, offset: int) -> int | DeferredWrite:
        """Consume and return at least 1 byte of `data`, the way one write(2) does."""
        raise TracefsError(errno.EINVAL, "not writable")

    def vfs_write(self, data: bytes, offset: int) -> int | DeferredWrite:
        """`write`, where it may be done."""
        if self.before_write is not None:
            self.before_write()
        return self.write(data, offset)

    def poll(self, notify: Callable[[], None] | None) -> int:
        """What is ready, as POLL* bits; the default is a file that never makes anybody wait.

        `notify` is called once when the answer may have changed, or when there is more of what is
        ready already: an edge-triggered epoll waits for that. It takes the place of the one before.
        """
        return DEFAULT_POLLMASK

    def flush(self) -> None:
        """One close(2) of a descriptor of this open file; may come several times."""

    def release(self) -> None:
        """The last descriptor is gone."""

    def fput(self) -> None:
        """`release`, and let go of the owner."""
        try:
            self.release()
        finally:
            if self.owner is not None:
                self.owner.trace_array_put()


class Text(OpenFile):
    """A file read from a text taken at open, as seq_file's single_open gives."""

    def __init__(self, text: str | bytes) -> None:
        self._text = text if isinstance(text, bytes) else text.encode()

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        return self._text[offset : offset + size]


class TracefsFile:
    """A regular file. `mode` holds the permission bits that Linux shows for it."""

    mode: int = 0o440
    owner: Owner | None = None
    before_write: Callable[[], None] | None = None  # raises when nobody may write
    size_in_list: int | None = None  # a bound of `size`, which takes long, for a list of many
    settles_at_close = False  # its text changes when a writer closes it, not when he writes

    def open(self, flags: int, caller: Caller) -> OpenFile:
        """Open with O_* `flags`; O_TRUNC is in them, as in the kernel (atomic_o_trunc)."""
        raise NotImplementedError

    def dentry_open(self, flags: int, caller: Caller) -> OpenFile:
        """`open`, holding the owner until `OpenFile.fput`."""
        if self.before_write is not None and accmode(flags) != os.O_RDONLY:
            self.before_write()
        if self.owner is not None:
            self.owner.trace_array_get()
        try:
            file = self.open(flags, caller)
        except BaseException:
            if self.owner is not None:
                self.owner.trace_array_put()
            raise
        file.owner, file.before_write = self.owner, self.before_write
        return file

    def size(self) -> int | DeferredSize:
        """st_size: the length of what a reader would be given now, 0 where that cannot be known.

        A callable is called on a thread of the mount's, as a `Deferred` is. It is asked for at
        each look-up of the name, so it changes nothing. The default opens and reads: for files
        whose open for reading changes nothing either.
        """
        if not self.mode & 0o444:
            return 0
        file = self.open(os.O_RDONLY, NOBODY)
        try:
            text = file.splice_read(_ALL, 0)
        finally:
            file.release()
        return len(text) if isinstance(text, bytes) else lambda: len(text())


class Directory:
    """A directory. Linux: 0750 below the root; only `instances` answers mkdir and rmdir."""

    mode: int = 0o750
    before_change: Callable[[], None] = staticmethod(lambda: None)  # raises when there is none
    makes_entries = False  # all alike, when they are looked up, and as many as there are functions

    def __init__(
        self,
        entries: dict[str, Node] | None = None,
        make: Callable[[], dict[str, Node]] | None = None,
    ) -> None:
        """`make` gives what else there is, when somebody looks for the first time."""
        self._given: dict[str, Node] = dict(entries or {})
        self._make = make
        self._adopt: Callable[[str, TracefsFile], None] | None = None

    @property
    def _entries(self) -> dict[str, Node]:
        if self._make is not None:
            with _making:
                if self._make is not None:
                    self._given.update(self._make())
                    self._make = None
                    if self._adopt is not None:
                        self.adopt(self._adopt)
        return self._given

    def adopt(self, tell: Callable[[str, TracefsFile], None]) -> None:
        """Have `tell` called for every file here and below, with its name, when it is there."""
        self._adopt = tell
        if self._make is None:
            for name, node in self._given.items():
                if isinstance(node, Directory):
                    node.adopt(tell)
                else:
                    tell(name, node)

    def lookup(self, name: str) -> Node:
        """Return the entry, or raise ENOENT."""
        try:
            return self._entries[name]
        except KeyError:
            raise TracefsError(errno.ENOENT, name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def subdirectories(self) -> int:
        """How many entries are directories, for st_nlink."""
        return sum(isinstance(node, Directory) for node in self._entries.values())

    def add(self, name: str, node: Node) -> None:
        """Enter `node` under `name` (EEXIST when taken)."""
        if name in self._entries:
            raise TracefsError(errno.EEXIST, name)
        self._entries[name] = node

    def mkdir(self, name: str) -> None:
        raise TracefsError(errno.EPERM, "only instances/ takes new directories")

    def rmdir(self, name: str) -> None:
        raise TracefsError(errno.EPERM, "only instances/ gives directories back")


Node = TracefsFile | Directory


def accmode(flags: int) -> int:
    """O_RDONLY, O_WRONLY or O_RDWR of an open's flags."""
    return flags & os.O_ACCMODE


@dataclass(frozen=True, slots=True)
class Operation:
    """A file operation as a system call of its caller: what the emulated kernel is to run for it.

    `name` is the system call without its prefix (openat, read, write, close, lseek, poll,
    getdents64, newfstatat, mkdir, rmdir, ftruncate), or `release` when the last descriptor is gone
    (which no system call of anybody's says); `path` is relative to the mount; `handle` is the key
    of the open file, None where there is none; `count` the bytes asked or given.
    """

    name: str
    path: str
    handle: int | None = None
    count: int = 0
    flags: int = 0
