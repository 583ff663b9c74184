"""fusepy on libfuse 2, with what it leaves out: the only module that imports `fuse`.

fusepy binds neither fuse_interrupted nor fuse_exited, its table of operations ends before poll, and
its ioctl wants a path where libfuse has none to give. Its answer to a Python bug is EINVAL, and a
SystemExit in a callback breaks it: here whatever is no `FuseError` is logged, and EIO. A read
gets libfuse's own buffer to fill.
"""

from __future__ import annotations

import codecs
import ctypes
import errno
import logging
import os
import threading
from typing import Any, Protocol

from ftracefs.files.base import Caller
from ftracefs.mount.thread_state import keep_thread_state

log = logging.getLogger("ftracefs.mount")

LIBFUSE = "libfuse.so.2"

if "FUSE_LIBRARY_PATH" not in os.environ:
    try:
        # fusepy would ask ldconfig and a C compiler, which takes longer than the rest of a start.
        ctypes.CDLL(LIBFUSE)
        os.environ["FUSE_LIBRARY_PATH"] = LIBFUSE
    except OSError:
        pass

try:
    import fuse
except OSError as error:
    raise ImportError(f"libfuse 2 cannot be loaded: {error}") from error

if not hasattr(fuse, "FUSE") or not hasattr(fuse, "fuse_get_context"):
    # fuse-python installs a module of this name too.
    raise ImportError(f"{fuse.__file__} is not fusepy: install fusepy in a fresh environment")

FuseError: type[OSError] = fuse.FuseOSError

_FIELDS = fuse.fuse_operations._fields_
_PyBUF_WRITE = 0x200
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_memory_view.restype = ctypes.py_object

_libfuse = fuse._libfuse
_libfuse.fuse_interrupted.argtypes = []
_libfuse.fuse_interrupted.restype = ctypes.c_int
_libfuse.fuse_exited.argtypes = [ctypes.c_void_p]
_libfuse.fuse_exited.restype = ctypes.c_int
_libfuse.fuse_notify_poll.argtypes = [ctypes.c_void_p]
_libfuse.fuse_notify_poll.restype = ctypes.c_int
_libfuse.fuse_pollhandle_destroy.argtypes = [ctypes.c_void_p]
_libfuse.fuse_pollhandle_destroy.restype = None


# With addresses as numbers, which cost less than objects that point there.
_READ = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int64,
    ctypes.c_void_p,
)


class _FuseOperations(ctypes.Structure):
    """struct fuse_operations of libfuse 2.9, one field further than fusepy has it."""

    _fields_ = (
        *(("read", _READ) if field[0] == "read" else field for field in _FIELDS),
        (
            "poll",
            ctypes.CFUNCTYPE(
                ctypes.c_int,
                ctypes.c_char_p,
                ctypes.POINTER(fuse.fuse_file_info),
                ctypes.c_void_p,
                ctypes.POINTER(ctypes.c_uint),
            ),
        ),
    )


fuse.fuse_operations = _FuseOperations


class _Context(ctypes.Structure):
    """struct fuse_context, as far as it is looked at."""

    _fields_ = (
        ("fuse", ctypes.c_void_p),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
        ("pid", ctypes.c_int32),
    )


# A call that lasts too short to let other threads have the interpreter meanwhile.
_get_context = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("fuse_get_context", _libfuse))


class FileInfo(Protocol):
    """The fields of struct fuse_file_info that matter here; valid during the callback only."""

    flags: int
    fh: int
    direct_io: int
    nonseekable: int
    lock_owner: int


def _encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
    return os.fsencode(text), len(text)


def _decode(data: Any, errors: str = "strict") -> tuple[str, int]:
    raw = bytes(data)
    return os.fsdecode(raw), len(raw)


def _find_codec(name: str) -> codecs.CodecInfo | None:
    return codecs.CodecInfo(_encode, _decode, name=PATHS) if name == PATHS else None


# File names as `os` sees them, so that a name that is no UTF-8 is a name and not an exception.
PATHS = "ftracefs_paths"
codecs.register(_find_codec)


class PollHandle:
    """Tells the kernel once that those who poll a file shall look again (fuse_pollhandle).

    Whoever gets one calls `notify` or `destroy`, from any thread, as often as he likes, and
    `destroy` before the session is: libfuse frees the channel that a notification goes through.
    """

    def __init__(self, address: int) -> None:
        self._address: int | None = address
        self._fuse: int = _Context.from_address(_get_context()).fuse
        self._lock = threading.Lock()

    def notify(self) -> None:
        """Wake who polls; the handle is spent."""
        self._finish(wakes=True)

    def destroy(self) -> None:
        """Nobody will be woken by it any more."""
        self._finish(wakes=False)

    def _finish(self, wakes: bool) -> None:
        with self._lock:
            address, self._address = self._address, None
            if address is None:
                return
            if wakes and not _libfuse.fuse_exited(self._fuse):
                _libfuse.fuse_notify_poll(address)
            _libfuse.fuse_pollhandle_destroy(address)


class _Fuse(fuse.FUSE):  # type: ignore[misc]
    @staticmethod
    def _wrapper(function: Any, *args: Any) -> int:
        keep_thread_state()
        try:
            return function(*args) or 0
        except FuseError as error:
            return -(error.errno or errno.EIO)
        except BaseException:
            log.exception("%s failed: this is a bug", function.__name__)
            return -errno.EIO

    def read(self, path: Any, buffer: int, size: int, offset: int, fip: int) -> int:
        room = _memory_view(buffer, size, _PyBUF_WRITE)
        fi = fuse.fuse_file_info.from_address(fip)
        answer: int = self.operations("read", room, offset, fi)
        return answer

    def ioctl(self, path: Any, cmd: int, arg: Any, fip: Any, flags: int, data: Any) -> int:
        answer: int = self.operations("ioctl", cmd, fip.contents)
        return answer

    def poll(self, path: Any, fip: Any, address: int | None, revents: Any) -> int:
        handle = None if address is None else PollHandle(address)
        try:
            revents[0] = self.operations("poll", fip.contents, handle)
        except BaseException:
            if handle is not None:
                handle.destroy()
            raise
        return 0


def serve(operations: object, mountpoint: str, **options: str | int | bool) -> None:
    """Mount `operations` and answer requests until the mount is gone.

    RuntimeError when libfuse could not mount; it has told why on stderr.
    """
    _Fuse(operations, mountpoint, raw_fi=True, foreground=True, encoding=PATHS, **options)


def caller() -> Caller:
    """The process behind the request that this thread answers; only valid in a callback."""
    context = _Context.from_address(_get_context())
    return Caller(context.pid, context.uid, context.gid)


def is_for_page_cache(fi: FileInfo) -> bool:
    """Whether a read is to fill a page of the host's cache, as splice(2) and sendfile(2) want.

    An open file with direct_io is read past the cache by read(2), whose requests bear an owner.
    """
    return fi.lock_owner == 0


def interrupted() -> bool:
    """Whether the caller of this thread's request got a signal."""
    return bool(_libfuse.fuse_interrupted())


def exited() -> bool:
    """Whether the session of this thread's request is over."""
    return bool(_libfuse.fuse_exited(_Context.from_address(_get_context()).fuse))
