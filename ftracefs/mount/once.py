"""What a caller that lives in the guest asks of a file, and what is to be known of its stats."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ftracefs.errors import TracefsError
from ftracefs.files.base import Operation, Pending

S = TypeVar("S")

_STAT_SETTLES_S = 0.03


class Once(Generic[S]):
    """The file's own function: performed once, its outcome kept for the caller.

    `sleep` is what the guest's file operation answers while there is nothing to read. `size` is
    what it answers where only the caller's thread will know: the text is yet to be made.
    """

    def __init__(self, action: Callable[[], object], sleep: S, size: int = 0) -> None:
        self._action = action
        self._sleep = sleep
        self._size = size
        self.done = False
        self.result: object = None
        self.error: TracefsError | None = None
        self.bug: BaseException | None = None

    def perform(self) -> int | S:
        """Do it and return what the guest's file operation would."""
        self.done = True
        try:
            self.result = self._action()
        except TracefsError as error:
            self.error = error
            return -error.errno
        except BaseException as error:
            self.bug = error
            return -errno.EIO
        if isinstance(self.result, Pending):
            self.done = False
            return self._sleep
        if isinstance(self.result, int):
            return self.result
        if callable(self.result):
            return self._size
        return len(self.result) if isinstance(self.result, bytes) else 0

    def outcome(self) -> object:
        """What it came to; on the machine thread, if it has not been performed yet."""
        if not self.done:
            self.perform()
        if self.bug is not None:
            raise self.bug
        if self.error is not None:
            raise self.error
        return self.result


class Who(Protocol):
    """A task of the guest that stands for a process of the host."""

    @property
    def pid(self) -> int: ...


W = TypeVar("W", bound=Who)


@dataclass(frozen=True, slots=True)
class _Stat(Generic[W]):
    task: W
    operation: Operation
    since: float


class Stats(Generic[W]):
    """Attributes that tasks were given: because of a stat, or while they walked a path.

    FUSE does not tell. The next operation does: who walked goes on along that path.
    """

    def __init__(self) -> None:
        self._stats: dict[int, _Stat[W]] = {}  # by pid

    def note(self, task: W, operation: Operation) -> None:
        """It was given attributes."""
        self._stats[task.pid] = _Stat(task, operation, time.monotonic())

    def take(self, task: W, operation: Operation | None) -> Operation | None:
        """The stat that its last operation was, unless this one shows it was none."""
        stat = self._stats.pop(task.pid, None)
        if stat is None or stat.task is not task:
            return None
        path = stat.operation.path
        if operation is not None:
            walked_on = operation.path.startswith(f"{path}/" if path else "")
            if walked_on or (operation.path == path and operation.name != "newfstatat"):
                return None
        return stat.operation

    def unfollowed(self) -> list[W]:
        """Who was given attributes and has done nothing for a while."""
        now = time.monotonic()
        return [
            stat.task for stat in list(self._stats.values()) if now - stat.since > _STAT_SETTLES_S
        ]
