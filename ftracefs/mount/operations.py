"""The tree of `Directory` and `TracefsFile` nodes as fusepy operations.

Models what the VFS and fs/tracefs/inode.c do around the files' own functions: path walk, modes,
errors of namespace changes, and a read that sleeps and can be interrupted. FUSE answers some calls
without asking (a write of 0 bytes, SEEK_END), and a stat(2) looks like a step of a path walk here.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import select
import stat
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from emulated_kernel.errors import GuestDeadError, MachineOffError
from ftracefs.errors import TracefsError
from ftracefs.files.base import (
    Caller,
    Deferred,
    DeferredSize,
    Directory,
    Node,
    Operation,
    Pending,
    TracefsFile,
    accmode,
)
from ftracefs.mount import binding
from ftracefs.mount.binding import FileInfo
from ftracefs.mount.callers import Callers
from ftracefs.mount.handles import GRACE, GRACE_ON_ITS_WAY, Handle, Handles
from ftracefs.mount.inodes import Inode, Inodes
from ftracefs.mount.listings import Listings
from ftracefs.mount.mountpoint import RESET_ATTRIBUTE, STOP_ATTRIBUTE
from ftracefs.mount.workers import Workers

T = TypeVar("T")
log = logging.getLogger("ftracefs.mount")

# How often a sleeping read looks whether its caller got a signal.
POLL_INTERVAL = 0.02

# The files of the buffers themselves. Every other file is a control file: opening one must show
# what an earlier close of another one did.
BUFFER_FILES = frozenset(
    {
        "snapshot",
        "snapshot_raw",
        "trace",
        "trace_marker",
        "trace_marker_raw",
        "trace_pipe",
        "trace_pipe_raw",
    }
)


def is_control_file(path: str) -> bool:
    return path.rpartition("/")[2] not in BUFFER_FILES


def _writes_control_file(handle: Handle) -> bool:
    return handle.writable and is_control_file(handle.path)


def _any(handle: Handle) -> bool:
    return True


class Operations:
    """fusepy calls the instance with an operation's name; a missing method is an absent operation.

    `on_mounted` is called once the kernel talks to us, `on_stop` when somebody asks us to end; both
    on a FUSE thread.
    """

    use_ns = True
    # Operations on an open file come without its path, so libfuse locks no path for them: with the
    # lock, rmdir of an instance would wait for a sleeping reader in it, and everybody else for it.
    flag_nullpath_ok = 1
    flag_nopath = 1

    def __init__(
        self,
        root: Directory,
        callers: Callers,
        *,
        on_mounted: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
        reset: Callable[[], None] | None = None,
    ) -> None:
        self._root = root
        self._callers = callers
        self._on_mounted = on_mounted
        self._on_stop = on_stop
        self._reset = reset
        self._closing = threading.Event()
        self._inodes = Inodes(os.getuid(), os.getgid())
        self._workers = Workers()
        grace = GRACE_ON_ITS_WAY if self._workers.can_tell else GRACE
        self._handles = Handles(self._workers.may_bring_more, grace)
        self._listings = Listings()
        self._directories: dict[int, tuple[str, Directory]] = {}
        self._directory_numbers = itertools.count(1)

    def close(self) -> None:
        """From now on a read that would sleep is at end of file, and so are those asleep."""
        self._closing.set()
        for handle in self._handles:
            handle.poller.notify()

    def __call__(self, name: str, *args: Any) -> Any:
        """Perform an operation; nothing but `FuseError` leaves."""
        try:
            if name == "release":  # to be waited for until it says so itself
                return self.release(*args)
            worker = self._workers.enter()
            try:
                return getattr(self, name)(*args)
            finally:
                self._workers.leave(worker)
        except TracefsError as error:
            log.debug("%s: %s (%s)", name, error, errno.errorcode.get(error.errno, error.errno))
            code = error.errno
        except MachineOffError:
            code = errno.ENOTCONN  # the mount is on its way out
        except GuestDeadError as error:
            log.info("%s: %s", name, error)
            code = errno.EIO
        except BaseException:
            log.exception("%s%.200r failed: this is a bug", name, args)
            code = errno.EIO
        if name in ("init", "destroy"):  # fusepy cannot pass an error of these on
            return 0
        raise binding.FuseError(code)

    # Session

    def init(self, path: str) -> None:
        self._on_mounted()

    def destroy(self, path: str) -> None:
        """The session is over, however it came to it: nobody can be woken any more."""
        self._closing.set()
        for handle in self._handles:
            handle.poller.disarm()

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": 4096, "f_frsize": 4096, "f_namemax": 255}

    # Names

    def getattr(self, path: str | None, fi: FileInfo | None = None) -> dict[str, int]:
        if fi is not None:
            handle = self._handle(fi)
            node, inode = handle.node, handle.inode
            operation = Operation("newfstat", handle.path, handle.number)
        else:
            name, node = self._lookup(path)
            inode = self._inodes.of(name)
            if self._listings.looks(binding.caller().pid, name, node):
                listed = node.size_in_list if isinstance(node, TracefsFile) else 0
                return _with_size(self._attributes(node, inode), listed or 0)
            operation = Operation("newfstatat", name)
            if isinstance(node, TracefsFile) and node.settles_at_close:
                self._handles.settle(lambda handle: handle.writable and handle.node is node)
        attributes, size = self._callers.run(
            binding.caller(), operation, lambda: self._stat(node, inode)
        )
        return _with_size(attributes, size if isinstance(size, int) else size())

    def opendir(self, path: str) -> int:
        name, node = self._lookup(path)
        if not isinstance(node, Directory):
            raise TracefsError(errno.ENOTDIR, name)
        number = next(self._directory_numbers)
        operation = Operation("openat", name, ~number, flags=os.O_DIRECTORY)
        self._callers.run(binding.caller(), operation, lambda: None)
        self._directories[number] = name, node
        return number

    def readdir(self, path: str | None, number: int) -> list[tuple[str, dict[str, int], int]]:
        name, node = self._directories[number]
        return self._callers.run(
            binding.caller(), Operation("getdents64", name, ~number), lambda: self._list(name, node)
        )

    def releasedir(self, path: str | None, number: int) -> None:
        name, _ = self._directories.pop(number)
        self._callers.run(binding.caller(), Operation("release", name, ~number), lambda: None)

    def mkdir(self, path: str, mode: int) -> None:
        name, parent, last = self._parent(path)
        caller = binding.caller()

        def make() -> None:
            parent.mkdir(last)
            if not self._is_owner(caller):
                parent.rmdir(last)
                # What Linux answers to one who may not look up names in the new directory.
                raise TracefsError(errno.ENOMEM, f"{name} would not be the caller's")

        self._patiently(caller, Operation("mkdir", name), make)
        self._inodes.made(name)

    def rmdir(self, path: str) -> None:
        name, parent, last = self._parent(path)
        self._patiently(binding.caller(), Operation("rmdir", name), lambda: parent.rmdir(last))
        self._inodes.gone(name)

    def create(self, path: str, mode: int, fi: FileInfo) -> None:
        raise TracefsError(errno.EACCES, "nobody creates files here")

    def mknod(self, path: str, mode: int, device: int) -> None:
        raise TracefsError(errno.EACCES if stat.S_ISREG(mode) else errno.EPERM, "no new files")

    def symlink(self, path: str, target: str) -> None:
        raise TracefsError(errno.EPERM, "no new files")

    def link(self, path: str, existing: str) -> None:
        raise TracefsError(errno.EPERM, "no new files")

    def unlink(self, path: str) -> None:
        raise TracefsError(errno.EPERM, "files stay")

    def rename(self, old: str, new: str) -> None:
        raise TracefsError(errno.EPERM, "files keep their names")

    # Inodes

    def chmod(self, path: str, mode: int) -> None:
        self._inodes.of(self._lookup(path)[0]).mode = stat.S_IMODE(mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        inode = self._inodes.of(self._lookup(path)[0])
        if uid != -1:
            inode.uid = uid
        if gid != -1:
            inode.gid = gid

    def utimens(self, path: str, times: tuple[int, int]) -> None:
        inode = self._inodes.of(self._lookup(path)[0])
        inode.atime_ns, inode.mtime_ns = times

    def truncate(self, path: str | None, length: int, fi: FileInfo | None = None) -> None:
        """Succeed and do nothing, as in Linux: only O_TRUNC of an open means something."""
        if fi is None:
            name, number = self._lookup(path)[0], None
        else:
            name, number = self._handle(fi).path, fi.fh
        operation = Operation("ftruncate", name, number, length)
        self._callers.run(binding.caller(), operation, lambda: None)

    def _is_owner(self, caller: Caller) -> bool:
        """Whether it is he who mounted, or root."""
        return caller.uid in (0, os.getuid())

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> None:
        if not self._is_owner(binding.caller()):
            raise TracefsError(errno.EPERM, name)
        if path == "/" and name == STOP_ATTRIBUTE:
            self._on_stop()
        elif path == "/" and name == RESET_ATTRIBUTE and self._reset is not None:
            self._start_afresh(self._reset)
        else:
            raise TracefsError(errno.EOPNOTSUPP, name)

    def _start_afresh(self, reset: Callable[[], None]) -> None:
        """Everything back to its first value; refused while a file is open."""
        self._handles.settle(_any)
        try:
            if used := sorted({handle.path for handle in self._handles}):
                raise TracefsError(errno.EBUSY, f"open: {', '.join(used)}")
            reset()
        except TracefsError as error:
            log.info("not reset: %s", error)
            raise
        self._inodes.forget()

    # Open files

    def open(self, path: str, fi: FileInfo) -> None:
        name, node = self._lookup(path)
        if not isinstance(node, TracefsFile):
            raise TracefsError(errno.EISDIR, name)
        caller, flags = binding.caller(), fi.flags
        self._listings.opened(caller.pid)
        if is_control_file(name):
            self._handles.settle(_writes_control_file)
        number = self._handles.reserve()
        operation = Operation("openat", name, number, flags=flags)
        file = self._patiently(caller, operation, lambda: node.dentry_open(flags, caller))
        writable = accmode(flags) != os.O_RDONLY
        inode = self._inodes.of(name)
        self._handles.enter(Handle(number, name, node, inode, file, writable))
        fi.fh = number
        fi.direct_io = 1
        fi.nonseekable = int(file.nonseekable)

    def read(self, room: memoryview, offset: int, fi: FileInfo) -> int:
        """Put what there is into `room`; returns how much that was."""
        handle, caller, flags = self._handle(fi), binding.caller(), fi.flags
        size = len(room)
        operation = Operation("read", handle.path, handle.number, size, flags)
        action: Callable[[], int | bytes | Deferred | Pending]
        if binding.is_for_page_cache(fi):
            action = partial(handle.file.splice_read, size, offset)
        else:
            action = partial(handle.file.read_into, room, offset, bool(flags & os.O_NONBLOCK))
        with self._handles.using(handle):
            while isinstance(answer := self._callers.run(caller, operation, action), Pending):
                try:
                    is_open = self._sleep(answer)
                except TracefsError:
                    self._callers.interrupt(caller, operation)
                    raise
                if not is_open:
                    self._callers.interrupt(caller, operation)
                    return 0
            if isinstance(answer, int):
                return answer
            data = answer if isinstance(answer, bytes) else answer()
        count = len(data)
        if count > size:
            raise AssertionError(f"{handle.path} gave {count} bytes to a read of {size}")
        room[:count] = data
        return count

    def write(self, path: str | None, data: bytes, offset: int, fi: FileInfo) -> int:
        handle, caller = self._handle(fi), binding.caller()
        operation = Operation("write", handle.path, handle.number, len(data), fi.flags)
        with self._handles.using(handle):
            taken = self._patiently(caller, operation, partial(handle.file.vfs_write, data, offset))
            count = taken if isinstance(taken, int) else taken(binding.interrupted)
        if not 1 <= count <= len(data):
            raise AssertionError(f"{handle.path} took {count} of {len(data)} bytes")
        return count

    def flush(self, path: str | None, fi: FileInfo) -> None:
        handle = self._handle(fi)
        operation = Operation("close", handle.path, handle.number)
        try:
            self._callers.run(binding.caller(), operation, handle.file.flush)
        finally:
            self._handles.flushed(handle)

    def release(self, path: str | None, fi: FileInfo) -> None:
        handle = self._handle(fi)
        operation = Operation("release", handle.path, handle.number)
        self._handles.releasing(handle)
        try:
            self._callers.run(binding.caller(), operation, handle.file.fput)
        finally:
            handle.poller.disarm()
            self._handles.leave(handle.number)

    def fsync(self, path: str | None, datasync: int, fi: FileInfo) -> None:
        raise TracefsError(errno.EINVAL, "nothing to sync")

    def poll(self, fi: FileInfo, pollhandle: binding.PollHandle | None) -> int:
        """Answer with what is ready; who polls with a `pollhandle` waits for its notification."""
        handle, caller = self._handle(fi), binding.caller()
        notify = None
        if pollhandle is not None:
            # First of all: what wakes from here on must find the one that the poller waits for.
            handle.poller.arm(pollhandle)
            notify = handle.poller.notify
        if self._closing.is_set():
            handle.poller.disarm()
            return select.POLLIN | select.POLLRDNORM  # of the end of file
        operation = Operation("poll", handle.path, handle.number)
        return self._callers.run(caller, operation, partial(handle.file.poll, notify))

    def ioctl(self, command: int, fi: FileInfo) -> int:
        raise TracefsError(errno.ENOTTY, f"ioctl {command:#x}")

    # Helpers

    def _handle(self, fi: FileInfo) -> Handle:
        try:
            return self._handles[fi.fh]
        except KeyError:
            raise TracefsError(errno.EBADF, f"no handle {fi.fh}") from None

    def _lookup(self, path: str | None) -> tuple[str, Node]:
        """Walk to `path`; returns it relative to the mount, with its node."""
        name = (path or "").strip("/")
        node: Node = self._root
        for part in name.split("/") if name else []:
            if not isinstance(node, Directory):
                raise TracefsError(errno.ENOTDIR, name)
            node = node.lookup(part)
        return name, node

    def _parent(self, path: str) -> tuple[str, Directory, str]:
        name = path.strip("/")
        head, _, last = name.rpartition("/")
        _, parent = self._lookup(head)
        if not isinstance(parent, Directory):
            raise TracefsError(errno.ENOTDIR, head)
        return name, parent, last

    def _size(self, node: Node) -> int | DeferredSize:
        if isinstance(node, Directory):
            return 0
        try:
            return node.size()
        except TracefsError:
            return 0  # what cannot be read has no length

    def _stat(self, node: Node, inode: Inode) -> tuple[dict[str, int], int | DeferredSize]:
        return self._attributes(node, inode), self._size(node)

    def _attributes(self, node: Node, inode: Inode) -> dict[str, int]:
        is_directory = isinstance(node, Directory)
        mode = node.mode if inode.mode is None else inode.mode
        return {
            "st_ino": inode.number,
            "st_mode": (stat.S_IFDIR if is_directory else stat.S_IFREG) | mode,
            "st_nlink": 2 + node.subdirectories() if isinstance(node, Directory) else 1,
            "st_uid": inode.uid,
            "st_gid": inode.gid,
            "st_blksize": 4096,
            "st_atime": inode.atime_ns,
            "st_mtime": inode.mtime_ns,
            "st_ctime": inode.ctime_ns,
        }

    def _list(self, name: str, directory: Directory) -> list[tuple[str, dict[str, int], int]]:
        """Names with inode number and type, which is all that getdents64 shows."""
        prefix = f"{name}/" if name else ""
        parent = name.rpartition("/")[0]
        found: list[tuple[str, Node, str]] = [(".", directory, name), ("..", directory, parent)]
        for entry in directory:
            try:
                found.append((entry, directory.lookup(entry), prefix + entry))
            except TracefsError:
                continue  # gone meanwhile
        return [
            (
                entry,
                {
                    "st_ino": self._inodes.of(path).number,
                    "st_mode": stat.S_IFDIR if isinstance(node, Directory) else stat.S_IFREG,
                },
                0,
            )
            for entry, node, path in found
        ]

    def _patiently(self, caller: Caller, operation: Operation, action: Callable[[], T]) -> T:
        """Run `action`; when another open file is in its way, see first if that one still is."""
        releases = self._handles.releases
        try:
            return self._callers.run(caller, operation, action)
        except TracefsError as error:
            if error.errno not in (errno.EBUSY, errno.ENOMEM):
                raise
            self._handles.settle(_any)
            if self._handles.releases == releases:
                raise
        return self._callers.run(caller, operation, action)

    def _sleep(self, pending: Pending) -> bool:
        """Wait for a wake-up; False when the mount is about to go. EINTR for a signal."""
        while not (self._closing.is_set() or binding.exited()):
            woken = pending.queue.wait(pending.ticket, POLL_INTERVAL)
            if binding.interrupted():
                raise TracefsError(errno.EINTR, "interrupted")
            if woken:
                return True
        return False


def _with_size(attributes: dict[str, int], size: int) -> dict[str, int]:
    """With blocks enough for it: cp looks for holes in a file with fewer."""
    return {**attributes, "st_size": size, "st_blocks": -(-size // 512)}
