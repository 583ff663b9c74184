"""A daemon put behind the shell, by a parent that waits until it is ready or dead.

The child's stderr is a pipe until it is ready, so that its reason for not getting there (its own,
libfuse's, fusermount's) reaches the terminal; from then on it is the log. libfuse's own way of
daemonising would fork after threads exist.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ftracefs.errors import reason

_READY = b"\0"
_ENDED = 125  # the exit code of who has ended before he was ready, and has no reason to tell
_WATCH_INTERVAL = 0.1
# A start that takes longer than this is told about on a terminal.
_PROGRESS_AFTER = 0.5


@dataclass(frozen=True, slots=True)
class Started:
    """What became of a child: ready or dead, and its exit code then."""

    pid: int
    is_ready: bool
    exit_code: int = 0


def start(serve: Callable[[Callable[[], None]], int], log: Path) -> Started:
    """Run `serve` in a child in a session of its own; it calls its argument once it is ready.

    What the child says before that goes to our stderr, what it says later to `log`. To be called
    before there are threads.
    """
    log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    hold(log_fd)
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(serve, write_end, log_fd)
    os.close(write_end)
    os.close(log_fd)
    try:
        return _watch(pid, read_end)
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        raise
    finally:
        os.close(read_end)


def hold(log_fd: int) -> None:
    """Have it seen that the log is somebody's, as long as he has it open."""
    try:
        fcntl.flock(log_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        pass  # a file system without locks


def is_held(log: Path) -> bool:
    """Whether it is the log of a daemon that runs."""
    with log.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def start_apart(serve: Callable[[Callable[[], None]], int], log: Path) -> Started:
    """The same, but the child is nobody's: a program that takes our place will not wait for it."""
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    between = os.fork()
    if between == 0:
        code = 1
        try:
            started = start(serve, log)
            code = 0 if started.is_ready else started.exit_code or _ENDED
            os.write(write_end, b"%d" % started.pid)
        except OSError as error:
            os.write(2, os.fsencode(f"ftracefs: {reason(error)}\n"))
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as told:
        pid = int(told.read() or b"0")
    code = os.waitstatus_to_exitcode(os.waitpid(between, 0)[1])
    return Started(pid, is_ready=code == 0, exit_code=code)


def _child(serve: Callable[[Callable[[], None]], int], write_end: int, log_fd: int) -> None:
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for source, target in ((null, 0), (write_end, 1), (write_end, 2)):
            os.dup2(source, target)
        # A descriptor kept by a daemon keeps somebody's pipe or lock.
        for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
            if number > 2 and number != log_fd:
                try:
                    os.close(number)
                except OSError:
                    pass  # the one that listed the directory

        def ready() -> None:
            try:
                os.write(2, _READY)
            except OSError:
                pass  # the parent was ended while it waited
            os.dup2(log_fd, 1)
            os.dup2(log_fd, 2)

        code = serve(ready)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _watch(pid: int, read_end: int) -> Started:
    """Pass on what the child says until it is ready or dead."""
    began = spoke = time.monotonic()
    shows_progress = sys.stderr.isatty()
    is_told = False
    try:
        while True:
            readable, _, _ = select.select([read_end], [], [], _WATCH_INTERVAL)
            if readable:
                text, ready, _ = os.read(read_end, 65536).partition(_READY)
                os.write(2, text)
                if ready:
                    return Started(pid, is_ready=True)
                if text:
                    spoke = time.monotonic()
                    continue
            # Nothing to read, or the end: a child's child may hold the pipe open longer.
            ended, status = os.waitpid(pid, 0 if readable else os.WNOHANG)
            if ended:
                return Started(pid, is_ready=False, exit_code=os.waitstatus_to_exitcode(status))
            seconds = time.monotonic() - began
            if shows_progress and time.monotonic() - spoke > _PROGRESS_AFTER:
                os.write(2, f"\r\x1b[Kstarting the emulated kernel: {seconds:.0f} s ".encode())
                is_told = True
    finally:
        if is_told:
            os.write(2, b"\r\x1b[K")
