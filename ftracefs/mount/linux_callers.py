"""Callers that live in a booted Linux as well: each file operation is their system call there.

A file is a descriptor of the host's own device (linux/host_device.S), in whose operations the
file's own function runs; directories and stats are those of the guest's own tracefs, new instances
are directories in its /dev. What the guest does not come to, or does not do in time, is done
without it, so that nothing a caller asked for is lost.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from typing import TypeVar

from emulated_kernel.errors import EmulatedKernelError, MachineOffError
from emulated_kernel.linux.agent import Agents
from emulated_kernel.linux.agent_work import (
    DEVICE_OPEN,
    DEVICE_POLL,
    DEVICE_READ,
    DEVICE_RELEASE,
    DEVICE_WRITE,
    SLEEP,
    Poke,
    Program,
    Work,
)
from emulated_kernel.linux.mirrors import Mirror, Mirrors, system_call
from emulated_kernel.linux.pc import PcMachine
from emulated_kernel.procfs import read_process
from ftracefs.files.base import Caller, Operation, Pending
from ftracefs.mount.mirrored import ROOT
from ftracefs.mount.once import Once, Stats

T = TypeVar("T")
log = logging.getLogger(__name__)

_READ, _WRITE, _CLOSE, _FSTAT, _POLL, _MKDIR, _RMDIR = 0, 1, 3, 5, 7, 83, 84
_GETDENTS64, _OPENAT, _NEWFSTATAT = 217, 257, 262
_NUMBERS = {"read": _READ, "write": _WRITE, "mkdir": _MKDIR, "rmdir": _RMDIR}
_FILE_OPS = {
    "openat": DEVICE_OPEN,
    "read": DEVICE_READ,
    "write": DEVICE_WRITE,
    "poll": DEVICE_POLL,
}
_AT_FDCWD = 0xFFFFFFFFFFFFFF9C
# What of an open's flags means something for a device.
_OPEN_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_TRUNC
_NOWHERE = 0x10000000  # an address of user mode where nothing is: buffers are the host's
_WORDS_BYTES, _BUFFER_BYTES = 112, 1024
_POLLIN = 1


class LinuxCallers:
    """Runs every operation as its caller's mirror; pid 0 is nobody and runs nothing.

    `catch_up` brings in what the host's processes have done before an operation.
    """

    def __init__(
        self,
        machine: PcMachine,
        agents: Agents,
        mirrors: Mirrors,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._catch_up = catch_up
        self._machine = machine
        self._agents = agents
        self._mirrors = mirrors
        self._last_users: dict[int, Mirror] = {}  # of open files, by the mount's number
        self._stats: Stats[Mirror] = Stats()
        mirrors.before_exit = lambda mirror: self._settle_stat(mirror, None)

    def run(self, caller: Caller, operation: Operation, action: Callable[[], T]) -> T:
        once = Once(action, SLEEP, operation.count)
        if self._machine.failure is None:
            try:
                self._in_guest(caller, operation, once)
            except MachineOffError:
                raise
            except EmulatedKernelError as error:
                log.warning("%s of %s in the guest: %s", operation.name, operation.path, error)
        result: object
        if isinstance(once.result, Pending) and not once.done:
            result = once.result
        else:
            result = once.outcome() if once.done else self._machine.run(once.outcome)
        return result  # type: ignore[return-value]

    def _in_guest(self, caller: Caller, operation: Operation, once: Once[str]) -> None:
        if operation.name == "close":
            return  # of one descriptor: FUSE does not tell whether there are others
        if operation.name == "release":
            self._release(operation, once)
            return
        if caller.pid <= 0:
            return
        self._catch_up()
        process = read_process(caller.pid)
        if process is None:
            return
        mirror = self._mirrors.task_of(process)
        self._settle_stat(mirror, operation)
        if operation.name == "newfstatat":
            self._stats.note(mirror, operation)
            return
        asleep = self._mirrors.asleep_in(mirror)
        if asleep is not None and operation.name == "read":
            self._mirrors.go_on(mirror, asleep, once.perform)
            return
        self._mirrors.interrupt(mirror)
        program = self._program(mirror, operation)
        if program is not None:
            work = Work(program, _FILE_OPS.get(operation.name), once.perform)
            self._mirrors.do(mirror, work)

    def interrupt(self, caller: Caller, operation: Operation) -> None:
        mirror = self._mirrors.find(caller.pid)
        if mirror is not None:
            try:
                self._mirrors.interrupt(mirror)
            except EmulatedKernelError as error:
                log.warning("interrupting %d in the guest: %s", mirror.pid, error)

    # --- stat or look-up -------------------------------------------------------------------------

    def _settle_stat(self, mirror: Mirror, operation: Operation | None) -> None:
        """Run the stat that its last operation was, unless this one shows it was none."""
        stat = self._stats.take(mirror, operation)
        if stat is not None:
            self._mirrors.do(mirror, Work(self._on_path(_NEWFSTATAT, stat.path)))

    # --- system calls ----------------------------------------------------------------------------

    def _program(self, mirror: Mirror, operation: Operation) -> Program[int] | None:
        """The system calls that an operation is."""
        name, handle = operation.name, operation.handle
        if name in ("mkdir", "rmdir"):
            return self._on_path(_NUMBERS[name], operation.path)
        if handle is None:
            return None
        self._last_users[handle] = mirror
        if name == "openat" and operation.flags & os.O_DIRECTORY:
            return self._open(mirror, handle, self._on_path(_OPENAT, operation.path))
        if name == "openat":
            flags = operation.flags & _OPEN_FLAGS
            device = self._agents.address("device")
            return self._open(mirror, handle, system_call(_OPENAT, _AT_FDCWD, device, flags, 0))
        return self._on_file(mirror, operation, handle)

    def _open(self, mirror: Mirror, handle: int, program: Program[int]) -> Program[int]:
        descriptor = yield from program
        if descriptor >= 0:
            mirror.descriptors[handle] = descriptor
        return descriptor

    def _on_file(self, mirror: Mirror, operation: Operation, handle: int) -> Program[int]:
        """Something with an open file; a process that has it from elsewhere opens it first."""
        descriptor = mirror.descriptors.get(handle)
        if descriptor is None and handle >= 0:
            device = self._agents.address("device")
            opening = system_call(_OPENAT, _AT_FDCWD, device, os.O_RDWR, 0)
            descriptor = yield from self._open(mirror, handle, opening)
        if descriptor is None or descriptor < 0:
            return -1
        buffer = self._agents.address("buffer")
        match operation.name:
            case "read" | "write":
                number = _NUMBERS[operation.name]
                return (yield from system_call(number, descriptor, _NOWHERE, operation.count))
            case "getdents64":
                call = system_call(_GETDENTS64, descriptor, buffer, _BUFFER_BYTES)
                return (yield from call)
            case "newfstat":
                return (yield from system_call(_FSTAT, descriptor, buffer))
            case "poll":
                yield Poke((int.from_bytes(struct.pack("<ihh", descriptor, _POLLIN, 0), "little"),))
                return (yield from system_call(_POLL, self._agents.words, 1, 0))
        return -1

    def _on_path(self, number: int, path: str) -> Program[int]:
        """A system call with a path in the guest."""
        name = os.fsencode(path)
        if number in (_MKDIR, _RMDIR):
            whole = b"/dev/ftracefs-instances/" + name.rpartition(b"/")[2]
        else:
            whole = ROOT + (b"/" + name if name else b"")
        text = whole[: _WORDS_BYTES - 1].ljust(_WORDS_BYTES, b"\0")
        yield Poke(struct.unpack(f"<{_WORDS_BYTES // 8}Q", text))
        at, buffer = self._agents.words, self._agents.address("buffer")
        if number == _OPENAT:
            return (yield from system_call(number, _AT_FDCWD, at, os.O_DIRECTORY, 0))
        if number == _NEWFSTATAT:
            return (yield from system_call(number, _AT_FDCWD, at, buffer, 0))
        return (yield from system_call(number, at, 0o755))

    def _release(self, operation: Operation, once: Once[str]) -> None:
        """The last descriptor of a file was closed, by who used it last."""
        handle = operation.handle
        mirror = self._last_users.pop(handle, None) if handle is not None else None
        if mirror is None or handle is None or self._mirrors.find(mirror.pid) is not mirror:
            return
        descriptor = mirror.descriptors.pop(handle, None)
        if descriptor is not None:
            self._mirrors.interrupt(mirror)
            program = system_call(_CLOSE, descriptor)
            self._mirrors.do(mirror, Work(program, DEVICE_RELEASE, once.perform))
