"""Callers that live in the emulated kernel as well: each file operation is their system call there.

The file's own function runs on the machine thread, at the point where the guest's file operation
stops for it; where the guest does not come to that point (a path it does not know, stat), it runs
behind the system call, so that nothing a caller asked for is lost.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.machine import EmulatedMachine, Machine
from emulated_kernel.procfs import HostProcess, read_process
from emulated_kernel.tasks import Answer, Asleep, Task, TaskDied, Tasks
from ftracefs.files.base import Caller, Operation, Pending
from ftracefs.mount.guest_files import GuestFiles
from ftracefs.mount.once import Once, Stats

T = TypeVar("T")
log = logging.getLogger(__name__)

ROOT = b"/sys/kernel/tracing"
_AT_FDCWD = 0xFFFFFFFFFFFFFF9C
_PATH_ROOM = 4096  # of the user window; behind it lie the buffers
_FILE_OPS = {
    "openat": "HOST_FOP_OPEN",
    "read": "HOST_FOP_READ",
    "write": "HOST_FOP_WRITE",
    "release": "HOST_FOP_RELEASE",
    "lseek": "HOST_FOP_LLSEEK",
    "poll": "HOST_FOP_POLL",
    "mkdir": "HOST_FOP_MKDIR",
    "rmdir": "HOST_FOP_RMDIR",
}


@dataclass(slots=True)
class _GuestFile:
    """A struct file of the guest, and the descriptors that tasks (by address) have for it."""

    address: int
    last_user: Task
    descriptors: dict[int, int]


class IsolatedCallers:
    """Nothing of the host reaches the guest: actions run, and nothing else does."""

    def __init__(self, machine: EmulatedMachine) -> None:
        self._machine = machine

    def run(self, caller: Caller, operation: Operation, action: Callable[[], T]) -> T:
        return self._machine.run(action)

    def interrupt(self, caller: Caller, operation: Operation) -> None:
        """Nobody sleeps in the guest."""


class MirroredCallers:
    """Runs every operation as its caller's task; pid 0 is nobody and runs nothing.

    `catch_up` brings in what the host's processes have done before an operation.
    """

    def __init__(
        self,
        machine: Machine,
        tasks: Tasks,
        guest_files: GuestFiles,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._catch_up = catch_up
        self._guest_files = guest_files
        self._machine = machine
        self._memory = machine.memory
        self._constants = machine.image.constants
        self._tasks = tasks
        self._files: dict[int, _GuestFile] = {}  # by the mount's number of the open file
        self._stats: Stats[Task] = Stats()
        tasks.before_exit = lambda task: self._settle_stat(task, None)

    def run(self, caller: Caller, operation: Operation, action: Callable[[], T]) -> T:
        once = Once(action, self._constants["HOST_FOP_SLEEP"])
        process = None
        if operation.name == "close":
            # Maybe in the middle of execve, where Linux lets nobody look at a process until this is
            # answered. Who had something to do with the file is known already.
            task = self._tasks.find(caller.pid)
            process = None if task is None else task.process
        elif caller.pid > 0:
            self._catch_up()
            process = read_process(caller.pid)
        result: T = self._machine.run(lambda: self._run(process, operation, once))  # type: ignore[assignment]
        return result

    def _run(self, process: HostProcess | None, operation: Operation, once: Once[int]) -> object:
        try:
            if operation.name == "release":
                self._release(operation, once)
            elif process is not None:
                task = self._tasks.task_of(process)
                self._settle_stat(task, operation)
                if operation.name == "newfstatat":
                    self._stats.note(task, operation)
                else:
                    self._as_task(task, operation, once)
        except Asleep:
            if isinstance(once.result, Pending) and not once.done:
                return once.result
            self._give_up(process)  # it sleeps for something else, which nobody will bring
        except (TaskDied, EmulatedKernelError):
            log.exception("%s of %s in the guest", operation.name, operation.path)
        return once.outcome()

    def _give_up(self, process: HostProcess | None) -> None:
        task = self._tasks.find(process.pid) if process is not None else None
        if task is not None:
            self._tasks.interrupt(task)

    def _as_task(self, task: Task, operation: Operation, once: Once[int]) -> None:
        call = self._system_call(task, operation)
        if call is None:
            return
        name, arguments = call
        result = self._tasks.syscall(task, name, arguments, self._answerer(operation, once))
        if operation.handle is None:
            return
        if operation.name == "openat" and result >= 0:
            self._opened(task, operation.handle, result)
        elif operation.name == "close":
            self._files[operation.handle].descriptors.pop(task.address, None)

    # --- stat or look-up -------------------------------------------------------------------------

    def _settle_stat(self, task: Task, operation: Operation | None) -> None:
        """Run the stat that the task's last operation was, unless this one shows it was none."""
        stat = self._stats.take(task, operation)
        if stat is None:
            return
        try:
            call = self._system_call(task, stat)
            if call is not None:
                self._tasks.syscall(task, *call)
        except (Asleep, TaskDied, EmulatedKernelError):
            log.exception("stat of %s in the guest", stat.path)

    def settle_stats(self) -> None:
        """Run the stats that nothing followed for a while; on the machine thread, now and then."""
        for task in self._stats.unfollowed():
            self._settle_stat(task, None)

    # --- system calls ----------------------------------------------------------------------------

    def _system_call(self, task: Task, operation: Operation) -> tuple[str, tuple[int, ...]] | None:
        """The system call an operation is, with its path or buffer in the caller's user memory."""
        window, size = self._machine.user_window(self._tasks.vcpu_of(task.process))
        buffer = window + _PATH_ROOM
        room = size - _PATH_ROOM
        if operation.name in {"openat", "newfstatat", "mkdir", "rmdir"}:
            name = self._guest_files.path(operation.path)
            path = ROOT + (b"/" + os.fsencode(name) if name else b"")
            self._memory.write(window, path[: _PATH_ROOM - 1] + b"\0")
            if operation.name == "openat":
                return "openat", (_AT_FDCWD, window, operation.flags, 0o666)
            if operation.name == "newfstatat":
                return "newfstatat", (_AT_FDCWD, window, buffer, 0)
            return operation.name, (window, 0o777)
        if operation.handle is None or operation.handle not in self._files:
            return None
        file = self._files[operation.handle]
        file.last_user = task
        if task.asleep:
            return operation.name, ()  # the call goes on; its arguments are where they were
        if operation.name == "close" and task.address not in file.descriptors:
            return None  # a descriptor that was never used: nobody has seen it in the guest
        descriptor = self._descriptor(task, file)
        if operation.name in {"read", "write", "getdents64"}:
            return operation.name, (descriptor, buffer, min(operation.count, room))
        if operation.name == "newfstat":
            return "newfstat", (descriptor, buffer)
        if operation.name == "lseek":
            return "lseek", (descriptor, operation.count, operation.flags)
        if operation.name == "poll":
            self._memory.write(buffer, struct.pack("<ihh", descriptor, 1, 0))
            return "poll", (buffer, 1, 0)
        return ("close", (descriptor,)) if operation.name == "close" else None

    def _answerer(self, operation: Operation, once: Once[int]) -> Answer:
        """Performs the action at the file operation that it belongs to."""
        wanted = self._constants.get(_FILE_OPS.get(operation.name, ""))

        def answer(file_op: int) -> int:
            if file_op != wanted or once.done:
                return 0
            result = once.perform()
            if result == 0 and operation.name in {"mkdir", "rmdir"}:
                self._follow_instance(operation)
            return result

        return answer

    def _follow_instance(self, operation: Operation) -> None:
        name = operation.path.rpartition("/")[2]
        cpu = self._tasks.acting.number
        if operation.name == "mkdir":
            self._guest_files.create_instance(name, cpu)
        else:
            self._guest_files.remove_instance(name, cpu)

    # --- the guest's files -----------------------------------------------------------------------

    def _opened(self, task: Task, handle: int, descriptor: int) -> None:
        """Keep a reference of our own: the mount's file lives until its release."""
        cpu = self._tasks.vcpu_of(task.process).number
        with self._tasks.quiet():
            address = self._machine.call("fget", descriptor, cpu=cpu)
        self._files[handle] = _GuestFile(address, task, {task.address: descriptor})

    def _descriptor(self, task: Task, file: _GuestFile) -> int:
        """The task's descriptor of a file; a process that inherited one gets it on first use."""
        descriptor = file.descriptors.get(task.address)
        if descriptor is None:
            cpu = self._tasks.bring(task).number
            with self._tasks.quiet():
                descriptor = self._machine.call("get_unused_fd_flags", 0, cpu=cpu)
                self._machine.call("get_file", file.address, cpu=cpu)
                self._machine.call("fd_install", descriptor, file.address, cpu=cpu)
            file.descriptors[task.address] = descriptor
        return descriptor

    def _release(self, operation: Operation, once: Once[int]) -> None:
        """The last reference goes, as work of whoever used the file last."""
        if operation.handle is None or operation.handle not in self._files:
            return
        file = self._files.pop(operation.handle)
        answer = self._answerer(operation, once)
        task = file.last_user
        if self._tasks.find(task.pid) is not task or task.asleep:
            task = self._tasks.init
        descriptor = file.descriptors.get(task.address)
        if descriptor is not None:  # a directory: FUSE does not tell of its close
            self._tasks.syscall(task, "close", (descriptor,))
        self._tasks.call_once(task, self._machine.image.labels["fput"], (file.address,), answer)

    def interrupt(self, caller: Caller, operation: Operation) -> None:
        def end() -> None:
            task = self._tasks.find(caller.pid)
            if task is not None:
                self._tasks.interrupt(task)

        self._machine.run(end)
