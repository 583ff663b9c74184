"""Callers that live in the emulated kernel as well: each file operation is their system call there.

The file's own function runs on the machine thread, at the point where the guest's file operation
stops for it; where the guest does not come to that point (a path it does not know, stat), it runs
behind the system call, so that nothing a caller asked for is lost.
"""

from __future__ import annotations

import errno
import logging
import struct
from collections.abc import Callable
from typing import TypeVar

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.machine import Machine
from emulated_kernel.procfs import HostProcess, read_process
from emulated_kernel.tasks import SLEEP, Asleep, Task, TaskDied, Tasks
from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, Operation, Pending

T = TypeVar("T")
log = logging.getLogger(__name__)

ROOT = b"/sys/kernel/tracing"
_AT_FDCWD = 0xFFFFFFFFFFFFFF9C
_PATH_ROOM = 4096  # of the user window; behind it lie the buffers
_FILE_OPS = {
    "openat": CONSTANTS["FOP_OPEN"],
    "read": CONSTANTS["FOP_READ"],
    "write": CONSTANTS["FOP_WRITE"],
    "release": CONSTANTS["FOP_RELEASE"],
    "lseek": CONSTANTS["FOP_LLSEEK"],
    "poll": CONSTANTS["FOP_POLL"],
    "getdents64": CONSTANTS["FOP_ITERATE"],
}


class _Once:
    """The file's own function: performed once, its outcome kept for the caller."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self.done = False
        self.result: object = None
        self.error: TracefsError | None = None
        self.bug: BaseException | None = None

    def perform(self) -> int:
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
            return SLEEP
        if isinstance(self.result, int):
            return self.result
        return len(self.result) if isinstance(self.result, bytes) else 0

    def outcome(self) -> object:
        if not self.done:
            self.perform()
        if self.bug is not None:
            raise self.bug
        if self.error is not None:
            raise self.error
        return self.result


class IsolatedCallers:
    """Nothing of the host reaches the guest: actions run, and nothing else does."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def run(self, caller: Caller, operation: Operation, action: Callable[[], T]) -> T:
        return self._machine.run(action)

    def interrupt(self, caller: Caller, operation: Operation) -> None:
        """Nobody sleeps in the guest."""


class MirroredCallers:
    """Runs every operation as its caller's task; pid 0 is nobody and runs nothing."""

    def __init__(self, machine: Machine, tasks: Tasks) -> None:
        self._machine = machine
        self._memory = machine.memory
        self._tasks = tasks
        self._files: dict[int, int] = {}  # open file of the mount -> the guest's descriptor
        self._last_user: dict[int, Task] = {}

    def run(self, caller: Caller, operation: Operation, action: Callable[[], T]) -> T:
        once = _Once(action)
        process = read_process(caller.pid) if caller.pid > 0 else None
        result: T = self._machine.run(lambda: self._run(process, operation, once))  # type: ignore[assignment]
        return result

    def _run(self, process: HostProcess | None, operation: Operation, once: _Once) -> object:
        try:
            if process is not None:
                self._as_task(self._tasks.task_of(process), operation, once)
            elif operation.name == "release" and operation.handle is not None:
                self._drop(operation.handle)
        except Asleep:
            return once.result
        except (TaskDied, EmulatedKernelError):
            log.exception("%s of %s in the guest", operation.name, operation.path)
        return once.outcome()

    def _as_task(self, task: Task, operation: Operation, once: _Once) -> None:
        wanted = _FILE_OPS.get(operation.name)

        def answer(file_op: int) -> int:
            return once.perform() if file_op == wanted and not once.done else 0

        call = self._system_call(task, operation)
        if call is None:
            return
        name, arguments = call
        result = self._tasks.syscall(task, name, arguments, answer)
        if operation.name == "openat" and operation.handle is not None and result >= 0:
            self._files[operation.handle] = result

    def _system_call(self, task: Task, operation: Operation) -> tuple[str, tuple[int, ...]] | None:
        """The system call an operation is, with its path or buffer in the caller's user memory."""
        window, size = self._machine.user_window(self._tasks.vcpu_of(task.process))
        buffer = window + _PATH_ROOM
        room = size - _PATH_ROOM
        if operation.name in {"openat", "newfstatat", "mkdir", "rmdir"}:
            path = ROOT + (b"/" + operation.path.encode() if operation.path else b"")
            self._memory.write(window, path[: _PATH_ROOM - 1] + b"\0")
            if operation.name == "openat":
                return "openat", (_AT_FDCWD, window, operation.flags, 0o666)
            if operation.name == "newfstatat":
                return "newfstatat", (_AT_FDCWD, window, buffer, 0)
            return operation.name, (window, 0o777)
        descriptor = self._files.get(operation.handle) if operation.handle is not None else None
        if descriptor is None:
            return None
        if operation.name in {"read", "write"}:
            return operation.name, (descriptor, buffer, min(operation.count, room))
        if operation.name == "close":
            return None
        if operation.name == "lseek":
            return "lseek", (descriptor, operation.count, operation.flags)
        if operation.name == "poll":
            self._memory.write(buffer, struct.pack("<ihh", descriptor, 1, 0))
            return "poll", (buffer, 1, 0)
        return None

    def _drop(self, handle: int) -> None:
        self._files.pop(handle, None)

    def interrupt(self, caller: Caller, operation: Operation) -> None:
        def end() -> None:
            task = self._tasks.find(caller.pid)
            if task is not None:
                self._tasks.interrupt(task)

        self._machine.run(end)
