"""`ftracefs` with a small tree of its own behind the mount: what a test of the mount needs.

Run as a program; takes the arguments of `ftracefs`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading

from ftracefs import cli
from ftracefs.errors import TracefsError
from ftracefs.files.base import (
    Caller,
    Deferred,
    Directory,
    OpenFile,
    Pending,
    Text,
    TracefsFile,
    WaitQueue,
)
from ftracefs.mount.callers import DirectCallers
from ftracefs.mount.tracefs import Options, Tracefs

AFTERWARDS_US = 200_000
_kept: list[object] = []  # what C still calls
LINES = b"".join(b"line %d of a text that is made afterwards\n" % n for n in range(100))


class ReadOnly(TracefsFile):
    """A text; opening it for writing is root's right, writing it nobody's."""

    mode = 0o440

    def __init__(self, text: str) -> None:
        self._text = text

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return Text(self._text)


class DeferredText(TracefsFile):
    """A text that is made on the reader's thread."""

    mode = 0o440

    def open(self, flags: int, caller: Caller) -> OpenFile:
        class Open(OpenFile):
            def read(self, size: int, offset: int, nonblock: bool) -> Deferred:
                return lambda: LINES[offset : offset + size]

        return Open()


class Words(TracefsFile):
    """Words, as set_ftrace_filter has them: one a write, O_TRUNC applied at release."""

    mode = 0o640

    def __init__(self) -> None:
        self.words: list[str] = []

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return OpenWords(self, bool(flags & os.O_TRUNC))


class OpenWords(OpenFile):
    def __init__(self, file: Words, truncates: bool) -> None:
        self._file = file
        self._truncates = truncates
        self._rest = ""
        self._text = "".join(f"{word}\n" for word in file.words).encode() or b"all\n"

    def read(self, size: int, offset: int, nonblock: bool) -> bytes:
        return self._text[offset : offset + size]

    def write(self, data: bytes, offset: int) -> int:
        text = data.decode()
        word, separator, _ = text.partition(next((c for c in text if c in " \n"), "\n"))
        self._rest += word
        if separator:
            self.flush()
        return len(word) + len(separator)

    def flush(self) -> None:
        if self._rest == "bad":
            self._rest = ""
            raise TracefsError(errno.EINVAL, "bad")
        if self._rest:
            self._file.words = ([] if self._truncates else self._file.words) + [self._rest]
            self._truncates = False
        self._rest = ""

    def release(self) -> None:
        if self._truncates:
            self._file.words = []


class Pipe:
    """What `marker` takes in, `pipe` gives out: the one blocking file, with one reader at most."""

    def __init__(self) -> None:
        self.queue = WaitQueue()
        self.data = b""
        self.is_open = False


class PipeReader(TracefsFile):
    mode = 0o440

    def __init__(self, pipe: Pipe, exclusive: bool) -> None:
        self._pipe = pipe
        self._exclusive = exclusive

    def open(self, flags: int, caller: Caller) -> OpenFile:
        if self._exclusive and self._pipe.is_open:
            raise TracefsError(errno.EBUSY, "another reader")
        self._pipe.is_open = True
        return OpenPipeReader(self._pipe)

    def size(self) -> int:
        return 0


class OpenPipeReader(OpenFile):
    nonseekable = True

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Pending:
        pipe = self._pipe
        ticket = pipe.queue.ticket()
        if not pipe.data:
            if nonblock:
                raise TracefsError(errno.EAGAIN)
            return Pending(pipe.queue, ticket)
        data, pipe.data = pipe.data[:size], pipe.data[size:]
        return data

    def release(self) -> None:
        self._pipe.is_open = False


class PipeWriter(TracefsFile):
    mode = 0o220

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def open(self, flags: int, caller: Caller) -> OpenFile:
        pipe = self._pipe

        class Open(OpenFile):
            def write(self, data: bytes, offset: int) -> int:
                pipe.data += data
                pipe.queue.wake_up()
                return len(data)

        return Open()


class Failing(TracefsFile):
    """Answers each write with the errno of that name; `bug`, `exit` and `hang` are bugs of ours."""

    mode = 0o640

    def open(self, flags: int, caller: Caller) -> OpenFile:
        class Open(OpenFile):
            def read(self, size: int, offset: int, nonblock: bool) -> bytes:
                return b"x" * (size + 1)

            def write(self, data: bytes, offset: int) -> int:
                name = data.decode().strip()
                if name == "bug":
                    raise FileNotFoundError(errno.ENOENT, "a bug that looks like an errno")
                if name == "exit":
                    sys.exit(3)
                if name == "hang":
                    ctypes.PyDLL(None).pause()  # and nobody else has the interpreter
                if name == "nothing":
                    return 0
                raise TracefsError(getattr(errno, name), name)

        return Open()

    def size(self) -> int:
        return 0


class Who(TracefsFile):
    """Shows who opens it."""

    mode = 0o444

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return Text(f"{caller.pid} {caller.uid} {caller.gid}\n")


class Instances(Directory):
    """Makes directories with a busy file in them; one can be removed once nobody has it open."""

    def mkdir(self, name: str) -> None:
        pipe = Pipe()
        files = {"trace_pipe": PipeReader(pipe, exclusive=True), "trace_marker": PipeWriter(pipe)}
        self.add(name, Instance(pipe, files))

    def rmdir(self, name: str) -> None:
        node = self.lookup(name)
        if not isinstance(node, Instance):
            raise TracefsError(errno.ENOTDIR, name)
        if node.pipe.is_open:
            raise TracefsError(errno.EBUSY, name)
        del self._entries[name]


class Instance(Directory):
    def __init__(self, pipe: Pipe, entries: dict[str, TracefsFile]) -> None:
        super().__init__(dict(entries))
        self.pipe = pipe


class Root(Directory):
    mode = 0o700


def build(options: Options) -> Tracefs:
    if options.kernel is not None:
        raise OSError(errno.ENOENT, "no such kernel", str(options.kernel))
    # One that takes the daemon's signals as well as the main thread does, as a machine's may.
    threading.Thread(target=threading.Event().wait, name="bystander", daemon=True).start()
    exclusive, shared = Pipe(), Pipe()
    root = Root(
        {
            "README": ReadOnly("a fake\n"),
            "options": ReadOnly(f"{options}\n"),
            "lines": DeferredText(),
            "set_ftrace_filter": Words(),
            "trace_pipe": PipeReader(exclusive, exclusive=True),
            "trace_marker": PipeWriter(exclusive),
            "shared_pipe": PipeReader(shared, exclusive=False),
            "shared_marker": PipeWriter(shared),
            "failing": Failing(),
            "who": Who(),
            "instances": Instances(),
        }
    )
    return Tracefs(root, DirectCallers(), close=_close)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _callback(_: int | None) -> None:
    pass


def _close() -> None:
    """Leave a thread that C has made and that calls Python once more, a while after all is over:
    so may one of libfuse's that is on its way out. An end that runs through exit(3) is made to
    last longer than that."""
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(libc.usleep, ctypes.c_void_p(2 * AFTERWARDS_US), None)

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def start(_: int | None) -> None:
        # What is registered first is called last.
        libc.__cxa_thread_atexit_impl(_callback, None, _callback)
        libc.__cxa_thread_atexit_impl(libc.usleep, ctypes.c_void_p(AFTERWARDS_US), libc.usleep)
        started.set()

    started = threading.Event()
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, start, None) == 0
    started.wait()
    _kept.append(start)
    print("closed", flush=True)


if __name__ == "__main__":
    sys.exit(cli.main(build=build))
