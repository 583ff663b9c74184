"""What happens to processes of the host, followed by their tasks in the guest.

The end of a mirrored task is told by a pidfd, which needs no privilege. Forks, execs and changed
names of other processes come from the proc connector (netlink), which only root in the
host's own network namespace can have; without it only callers are mirrored. The rate at which
its events are acted on is bounded, and what was dropped is counted.
"""

from __future__ import annotations

import ctypes
import logging
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from emulated_kernel.errors import EmulatedKernelError, GuestDeadError, MachineOffError
from emulated_kernel.procfs import (
    UNKNOWN_START,
    HostProcess,
    read_other_process,
    read_tgid,
)

log = logging.getLogger(__name__)

EVENTS_PER_SECOND = 200  # of processes that have tasks
BURST = 1000  # at once, after a while in which there were few
_PATIENCE_S = 5.0  # of whoever wants to have followed what was told
_RECEIVE_BUFFER = 4 << 20

# include/uapi/linux/cn_proc.h, connector.h, netlink.h
_NETLINK_CONNECTOR = 11
_CN_IDX_PROC = _CN_VAL_PROC = 1
_PROC_CN_MCAST_LISTEN = 1
_NLMSG_DONE = 3
_SO_ATTACH_FILTER = 26  # include/uapi/asm-generic/socket.h
_PIDFD_THREAD = os.O_EXCL  # since Linux 6.9
_PROC_EVENT_FORK, _PROC_EVENT_EXEC, _PROC_EVENT_COMM = 0x1, 0x2, 0x200
_NLMSGHDR = struct.Struct("=IHHII")
_CN_MSG = struct.Struct("=IIIIHH")
_PROC_EVENT = struct.Struct("=IIQ")


@dataclass(frozen=True, slots=True)
class ProcEvent:
    """An event of the connector: `what` is a PROC_EVENT_* value, `parent` is for forks."""

    what: int
    pid: int
    parent: int = 0


def parse_events(datagram: bytes) -> Iterator[ProcEvent]:
    """The fork, exec and comm events of processes (not of threads) in one netlink datagram."""
    offset = 0
    while offset + _NLMSGHDR.size <= len(datagram):
        length = _NLMSGHDR.unpack_from(datagram, offset)[0]
        at = offset + _NLMSGHDR.size + _CN_MSG.size
        if length < _NLMSGHDR.size or at + _PROC_EVENT.size > len(datagram):
            return
        what = _PROC_EVENT.unpack_from(datagram, at)[0]
        at += _PROC_EVENT.size
        if what == _PROC_EVENT_FORK:
            _, parent_tgid, child, child_tgid = struct.unpack_from("=4I", datagram, at)
            if child == child_tgid:
                yield ProcEvent(what, child, parent_tgid)
        elif what in {_PROC_EVENT_EXEC, _PROC_EVENT_COMM}:
            pid, tgid = struct.unpack_from("=2I", datagram, at)
            if pid == tgid:
                yield ProcEvent(what, pid)
        offset += -(-length // 4) * 4


def drop_the_rest(connector: socket.socket) -> None:
    """Let the kernel drop what `parse_events` would: the ends of processes, and threads.

    A busy host has hundreds of those a second, each of which would wake the thread here.
    """
    what, data = _NLMSGHDR.size + _CN_MSG.size, _NLMSGHDR.size + _CN_MSG.size + _PROC_EVENT.size
    load, load_to_x, is_equal, is_equal_x, leave = 0x20, 0x07, 0x15, 0x1D, 0x06
    program = [
        (load, 0, 0, what),
        (is_equal, 2, 0, socket.htonl(_PROC_EVENT_FORK)),
        (is_equal, 5, 0, socket.htonl(_PROC_EVENT_EXEC)),
        (is_equal, 4, 9, socket.htonl(_PROC_EVENT_COMM)),
        (load, 0, 0, data + 8),  # the child as a thread and as a process
        (load_to_x, 0, 0, 0),
        (load, 0, 0, data + 12),
        (is_equal_x, 4, 5, 0),
        (load, 0, 0, data),
        (load_to_x, 0, 0, 0),
        (load, 0, 0, data + 4),
        (is_equal_x, 0, 1, 0),
        (leave, 0, 0, 0xFFFFFFFF),
        (leave, 0, 0, 0),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    fprog = struct.pack("@HP", len(program), ctypes.addressof(code))
    connector.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)


def open_connector() -> socket.socket | None:
    """A socket that gives the host's process events, or None where that is not allowed."""
    try:
        connector = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_CONNECTOR)
    except OSError:
        return None
    try:
        # Every process of the host is told of: a burst of others' must not cost ours.
        connector.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        drop_the_rest(connector)
        connector.bind((0, _CN_IDX_PROC))
        payload = struct.pack("=I", _PROC_CN_MCAST_LISTEN)
        message = _CN_MSG.pack(_CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(payload), 0) + payload
        header = _NLMSGHDR.pack(_NLMSGHDR.size + len(message), _NLMSG_DONE, 0, 0, 0)
        connector.send(header + message)
        connector.setblocking(False)
    except OSError:
        connector.close()
        return None
    return connector


def _gone_child(pid: int, parent: HostProcess) -> HostProcess:
    """A child that could not be looked at, most likely since it has ended, as its fork left it."""
    return replace(parent, pid=pid, ppid=parent.pid, start_time=UNKNOWN_START, child_faults=0)


def _pidfd_open(task: Mirrored) -> int | None:
    """What tells of a task's end; of its process's where the kernel cannot tell of a thread's."""
    tgid = read_tgid(task.process)
    for pid, flags in ((task.pid, 0), (task.pid, _PIDFD_THREAD), (tgid, 0)):
        with suppress(OSError):
            return os.pidfd_open(pid, flags)
    return None


def concerning(events: list[ProcEvent], is_known: Callable[[int], bool]) -> list[ProcEvent]:
    """The events of processes that have tasks, and of children that these get in `events`."""
    coming: set[int] = set()
    found = []
    for event in events:
        forks = event.what == _PROC_EVENT_FORK
        who = event.parent if forks else event.pid
        if who in coming or is_known(who):
            found.append(event)
            if forks:
                coming.add(event.pid)
    return found


class Mirrored(Protocol):
    """What stands for a process of the host."""

    @property
    def process(self) -> HostProcess: ...

    @property
    def pid(self) -> int: ...


M = TypeVar("M", bound=Mirrored)
T = TypeVar("T")


class Tasks(Protocol[M]):
    """All that stand for processes, and what may happen to them."""

    on_new_task: Callable[[M], None]

    def find(self, pid: int) -> M | None: ...

    def task_of(self, process: HostProcess) -> M: ...

    def exit(self, task: M) -> None: ...


class Runner(Protocol):
    """On what things happen to tasks: a machine's thread."""

    def run(self, work: Callable[[], T]) -> T: ...


class HostEvents:
    """A thread that keeps the guest's tasks in step with the host's processes.

    `dropped` counts events of the connector that came faster than they are acted on.
    """

    def __init__(self, machine: Runner, tasks: Tasks[Any], *, all_processes: bool = True) -> None:
        self._machine = machine
        self._tasks = tasks
        self._connector = open_connector() if all_processes else None
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        if self._connector is not None:
            self._selector.register(self._connector, selectors.EVENT_READ)
        self._following = threading.Lock()  # held until what was told has been followed
        self._new: list[Mirrored] = []
        self._closing = False
        self._allowance = float(BURST)
        self._allowance_at = time.monotonic()
        self.dropped = 0
        tasks.on_new_task = self._watch
        self._thread = threading.Thread(target=self._main, name="host-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._poke()
        self._thread.join()
        with self._following:
            for key in list(self._selector.get_map().values()):
                if key.data is not None:
                    os.close(key.fd)
            self._selector.close()
            if self._connector is not None:
                self._connector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _poke(self) -> None:
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            pass  # it is awake already

    def _watch(self, task: Mirrored) -> None:
        """Called for each new task."""
        self._new.append(task)
        self._poke()

    def _main(self) -> None:
        while not self._closing:
            self._selector.select()
            self.catch_up()

    def catch_up(self) -> None:
        """Have followed all that the host has told so far.

        Whoever has seen a process fork or end, and asks for something then, finds it so in the
        guest. Not for the machine's thread, nor for a process that may be in the middle of execve,
        at which nobody can look.
        """
        if not self._following.acquire(timeout=_PATIENCE_S):
            return  # a guest that does not answer
        try:
            for key, _ in [] if self._closing else self._selector.select(0):
                try:
                    self._handle(key)
                except (GuestDeadError, MachineOffError):
                    pass  # it has said so, and follows nobody any more
                except EmulatedKernelError:
                    if not self._closing:
                        log.exception("a process event was lost")
                    break  # the others later: it may have taken long
        finally:
            self._following.release()

    def _handle(self, key: selectors.SelectorKey) -> None:
        if key.fd == self._wake_read:
            os.read(self._wake_read, 4096)
            while self._new:
                self._watch_end(self._new.pop())
        elif key.data is not None:
            self._selector.unregister(key.fd)
            os.close(key.fd)
            task = key.data
            self._machine.run(lambda: self._tasks.exit(task))
        elif self._connector is not None:
            self._drain(self._connector)

    def _watch_end(self, task: Mirrored) -> None:
        pidfd = _pidfd_open(task)
        if pidfd is None:  # it has ended already
            self._machine.run(lambda: self._tasks.exit(task))
            return
        self._selector.register(pidfd, selectors.EVENT_READ, task)

    def _drain(self, connector: socket.socket) -> None:
        events: list[ProcEvent] = []
        while True:
            try:
                datagram = connector.recv(65536)
            except BlockingIOError:
                break
            except OSError:  # ENOBUFS: the kernel dropped some
                self.dropped += 1
                break
            events += parse_events(datagram)
        # Only what concerns a task counts: a host that compiles something is not ours to follow.
        events = concerning(events, lambda pid: self._tasks.find(pid) is not None)
        allowed = self._take(len(events))
        self.dropped += len(events) - allowed
        if allowed:
            self._machine.run(lambda: self._follow(events[:allowed]))

    def _take(self, wanted: int) -> int:
        """How many of `wanted` events the rate allows now."""
        now = time.monotonic()
        earned = (now - self._allowance_at) * EVENTS_PER_SECOND
        self._allowance = min(float(BURST), self._allowance + earned)
        self._allowance_at = now
        allowed = min(wanted, int(self._allowance))
        self._allowance -= allowed
        return allowed

    def _follow(self, events: list[ProcEvent]) -> None:
        for event in events:
            known = self._tasks.find(event.pid)
            parent = self._tasks.find(event.parent)
            forks = event.what == _PROC_EVENT_FORK
            if (parent if forks else known) is None:
                continue  # its first file operation would bring it, if there ever is one
            process = read_other_process(event.pid)
            if process is None and forks and known is None and parent is not None:
                process = _gone_child(event.pid, parent.process)
            if process is not None and forks and known is None:
                # One that is just ending has no parent any more.
                process = replace(process, ppid=event.parent)
            if process is not None:
                self._tasks.task_of(process)
