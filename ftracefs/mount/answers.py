"""Whether the daemon behind a mount answers, and which process it is.

Whoever asks a daemon that is stopped or hangs waits for it in the kernel, and once the daemon has
taken the request not even SIGKILL ends that. So a child asks, which can be abandoned: it ends with
the daemon. It keeps nothing open that somebody else waits for.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_OTHER_ERROR = 255  # no errno is that large
_ALL_DESCRIPTORS = 1 << 20


class NoAnswer(Exception):
    """The daemon has not answered in time."""


def ask(request: Callable[[], object], seconds: float) -> None:
    """Have a child make a request of a daemon. Raises the OSError that it comes to, and NoAnswer.

    Who has threads cannot be forked safely: he makes it himself, and is patient in his own way.
    """
    if threading.active_count() > 1:
        request()
        return
    child = os.fork()
    if child == 0:
        _make(request)
    pidfd = os.pidfd_open(child)
    try:
        if not select.select([pidfd], [], [], seconds)[0]:
            raise NoAnswer
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(pidfd)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def _make(request: Callable[[], object]) -> None:
    code = _OTHER_ERROR
    try:
        os.closerange(0, _ALL_DESCRIPTORS)
        request()
        code = 0
    except OSError as error:
        code = error.errno or _OTHER_ERROR
    finally:
        os._exit(code)


def sign(device: str) -> None:
    """Be known as who serves the mount of that device number, as long as this process lives."""
    os.memfd_create(_signature(device))


def _signature(device: str) -> str:
    return f"ftracefs {device}"


def who_signed(device: str) -> int | None:
    """The pid of who serves the mount; None where he cannot be seen from here."""
    link = f"/memfd:{_signature(device)} (deleted)"
    for directory in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):  # somebody else's, or gone
            for descriptor in directory.iterdir():
                if str(descriptor.readlink()) == link:
                    return int(directory.parent.name)
    return None
