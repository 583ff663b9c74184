"""Processes that an ended program has left running, wherever they have gone.

While programs run, this process is the child subreaper of its descendants (prctl(2)): whoever
loses its parent becomes its child. So a leftover is a child of ours that belongs to the session of
one of the programs, or has the programs' mark in its environment. Of strangers only /proc/PID/stat
is read, which never blocks; a read of the `environ` of a process that is stuck does.

Left out: what another subreaper has adopted, as a service manager does that was asked to start it.
A leftover that has made a session of its own and has ended by itself stays a zombie of ours.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from emulated_kernel.procfs import read_process

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_ENVIRON_SECONDS = 1.0
_LOOKS = 2  # a process may change its parent while /proc is walked

_T = TypeVar("_T")


def in_time(work: Callable[[], _T], seconds: float) -> _T:
    """What `work` returns, or TimeoutError; it then goes on: no system call can be called off."""
    results: SimpleQueue[_T | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            results.put(work())
        except BaseException as error:
            results.put(error)

    threading.Thread(target=run, name="in_time", daemon=True).start()
    try:
        result = results.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer after {seconds:.0f} s") from None
    if isinstance(result, BaseException):
        raise result
    return result


class Adoption:
    """That this process adopts orphans: from the first `begin` to the last `end` of anybody."""

    _users = 0
    _was_subreaper = False

    def __init__(self) -> None:
        self._is_on = False

    def begin(self) -> None:
        """Adopt orphans from now on."""
        if self._is_on:
            return
        self._is_on = True
        if Adoption._users == 0:
            Adoption._was_subreaper = _is_subreaper()
            _be_subreaper(True)
        Adoption._users += 1

    def end(self) -> None:
        """No longer, unless somebody else wants it."""
        if not self._is_on:
            return
        self._is_on = False
        Adoption._users -= 1
        if Adoption._users == 0:
            _be_subreaper(Adoption._was_subreaper)


def end_leftovers(sessions: Collection[int], mark: bytes, deadline: float) -> bool:
    """Kill every leftover, and those that it forks meanwhile; False if one lives at `deadline`."""
    looks = 0
    while looks < _LOOKS:
        found = [child for child in _children() if _is_leftover(child, sessions, mark)]
        looks = 0 if found else looks + 1
        for child in found:
            os.kill(child, signal.SIGKILL)  # its number is its own until we have waited for it
        for child in found:
            _wait_for(child, deadline)
        if time.monotonic() > deadline:
            return not found
    return True


def _children() -> list[int]:
    return [
        process.pid
        for directory in Path("/proc").glob("[0-9]*")
        if (process := read_process(int(directory.name))) and process.ppid == os.getpid()
    ]


def _is_leftover(child: int, sessions: Collection[int], mark: bytes) -> bool:
    try:
        if os.getsid(child) in sessions:
            return True
        environ = in_time(Path(f"/proc/{child}/environ").read_bytes, _ENVIRON_SECONDS)
    except OSError:  # it has ended, or TimeoutError
        return False
    return mark in environ.split(b"\0")


def _wait_for(child: int, deadline: float) -> None:
    try:
        pidfd = os.pidfd_open(child)
    except ProcessLookupError:
        return
    try:
        select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))
        os.waitpid(child, os.WNOHANG)
    except ChildProcessError:
        pass
    finally:
        os.close(pidfd)


def _prctl(option: int, argument: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(ctypes.c_int(option), argument, zero, zero, zero):
        raise OSError(ctypes.get_errno(), "prctl")


def _be_subreaper(value: bool) -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(value))


def _is_subreaper() -> bool:
    value = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value))
    return bool(value.value)
