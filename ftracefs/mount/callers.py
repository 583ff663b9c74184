"""Who a file operation runs as: the seam between the mount and the emulated kernel.

The mount says which process called what; a `Callers` runs the matching system call path as that
process's task and performs the file's own function where the kernel would call it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from ftracefs.files.base import Caller, Operation

T = TypeVar("T")


class Callers(Protocol):
    """Runs every file operation of a mount."""

    def run(self, caller: Caller, operation: Operation, action: Callable[[], T]) -> T:
        """Perform `action` inside `operation` of `caller`; what it raises comes back.

        When `action` returns a `Pending`, so does `run`, the caller asleep in the system call;
        `run` with the same caller and operation goes on with that same call.
        """
        ...

    def interrupt(self, caller: Caller, operation: Operation) -> None:
        """End a system call that was left asleep."""
        ...


class DirectCallers:
    """Runs the action and nothing else, one at a time as files expect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, caller: Caller, operation: Operation, action: Callable[[], T]) -> T:
        with self._lock:
            return action()

    def interrupt(self, caller: Caller, operation: Operation) -> None:
        """Nobody sleeps here."""
