"""Whether one of libfuse's threads has a request that it has not come to an operation with yet.

close(2) puts a RELEASE in the daemon's queue before it returns, and requests are taken off the
queue one after the other. So who is asked something after a close knows that the RELEASE has been
taken, if there was one: by a thread that is in its operation, or on the way there. A thread that
waits for requests sleeps in a read of FUSE's device; that it does is looked up in /proc.
"""

from __future__ import annotations

import threading
from pathlib import Path

_TASKS = Path("/proc/self/task")
_READ = "0"  # the number of the system call in which libfuse waits


class Workers:
    """Threads that this process gets from now on, other than Python's, are libfuse's.

    Where `can_tell` is False any of them may have a request at any time.
    """

    def __init__(self) -> None:
        self._others = _threads()
        self._seen: set[int] = set()
        self._busy: set[int] = set()
        self.can_tell = _can_be_told()

    def enter(self) -> int:
        """This thread has come to its operation; what `leave` takes."""
        me = threading.get_native_id()
        self._seen.add(me)
        self._busy.add(me)
        return me

    def leave(self, me: int) -> None:
        """The operation has ended."""
        self._busy.discard(me)

    def may_bring_more(self) -> bool:
        """Whether a request that has been taken may still come to its operation."""
        threads = _threads()
        self._others &= threads
        self._seen &= threads
        python = {thread.native_id for thread in threading.enumerate()} - self._seen
        left = threads - self._others - python - self._busy
        return any(not _waits_for_requests(thread) for thread in left)


def _can_be_told() -> bool:
    try:
        (_TASKS / str(threading.get_native_id()) / "syscall").read_bytes()
    except OSError:
        return False
    return True


def _threads() -> set[int]:
    return {int(task.name) for task in _TASKS.iterdir()}


def _waits_for_requests(thread: int) -> bool:
    """Whether it sleeps in read(2), or has ended."""
    task = _TASKS / str(thread)
    try:
        return (task / "syscall").read_text().split()[0] == _READ
    except ProcessLookupError:
        return True
    except OSError:  # or such a file is not to be had here
        return not task.exists()
