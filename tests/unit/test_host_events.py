"""Events of the host's processes: which of them concern a task."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from emulated_kernel import host_events
from emulated_kernel.host_events import (
    HostEvents,
    ProcEvent,
    concerning,
    drop_the_rest,
    parse_events,
)
from emulated_kernel.procfs import HostProcess

FORK, EXEC, COMM = 0x1, 0x2, 0x200


def test_what_other_processes_do_does_not_count() -> None:
    others = [ProcEvent(FORK, 5000 + n, 4000) for n in range(1000)]
    others += [ProcEvent(EXEC, 5000 + n) for n in range(1000)]
    ours = [ProcEvent(EXEC, 10)]
    assert concerning([*others, *ours, *others], {10}.__contains__) == ours


def test_a_child_and_its_children_are_followed_from_their_fork_on() -> None:
    events = [
        ProcEvent(EXEC, 11),  # not known yet
        ProcEvent(FORK, 11, 10),
        ProcEvent(EXEC, 11),
        ProcEvent(FORK, 12, 11),
        ProcEvent(COMM, 12),
        ProcEvent(FORK, 14, 13),
    ]
    assert concerning(events, {10}.__contains__) == events[1:5]


def datagram(what: int, *words: int) -> bytes:
    """As the connector sends it: netlink header, connector header, event."""
    event = struct.pack("=IIQ8I", what, 0, 12345, *words, *[0] * (8 - len(words)))
    connector = struct.pack("=IIIIHH", 1, 1, 7, 0, len(event), 0)
    return struct.pack("=IHHII", 16 + len(connector) + len(event), 3, 0, 0, 0) + connector + event


def test_the_kernel_drops_ends_and_threads_and_what_else_is_not_parsed() -> None:
    wanted = [datagram(FORK, 10, 10, 11, 11), datagram(EXEC, 11, 11), datagram(COMM, 11, 11)]
    others = [
        datagram(FORK, 10, 10, 12, 11),  # a thread
        datagram(EXEC, 12, 11),
        datagram(COMM, 12, 11),
        datagram(0x80000000, 11, 11),  # an end
        datagram(0x4, 11, 11),  # another user
        datagram(0x0, 0),  # the answer to whoever starts to listen
    ]
    assert not [event for other in others for event in parse_events(other)]
    sender, connector = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sender, connector:
        drop_the_rest(connector)
        for message in [*others, *wanted, *others]:
            sender.send(message)
        assert [connector.recv(4096) for _ in wanted] == wanted
        connector.setblocking(False)
        with pytest.raises(BlockingIOError):
            connector.recv(4096)


class KnownTasks:
    """Tasks of the processes of these pids, and what they were asked for."""

    def __init__(self, *pids: int) -> None:
        self._known = {pid: SimpleNamespace(process=process(pid, 1)) for pid in pids}
        self.asked: list[HostProcess] = []
        self.ended: list[Any] = []
        self.on_new_task: Callable[[Any], None] = lambda task: None

    def find(self, pid: int) -> Any:
        return self._known.get(pid)

    def task_of(self, process: HostProcess) -> None:
        self.asked.append(process)

    def exit(self, task: Any) -> None:
        self.ended.append(task)


class Thread:
    """A machine's."""

    def run(self, work: Callable[[], Any]) -> Any:
        return work()


@pytest.fixture
def no_thread_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is followed but for whom asks."""
    monkeypatch.setattr(HostEvents, "_main", lambda self: None)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where the connector gets its datagrams from; all processes are children of 10."""
    sender, connector = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    connector.setblocking(False)
    monkeypatch.setattr(host_events, "open_connector", lambda: connector)
    monkeypatch.setattr(host_events, "read_other_process", lambda pid: process(pid, 10))
    with sender:
        yield sender


@pytest.mark.usefixtures("no_thread_follows")
def test_whoever_asks_for_something_finds_what_was_told_before(host: socket.socket) -> None:
    tasks = KnownTasks(10)
    events = HostEvents(Thread(), tasks)
    try:
        host.send(datagram(FORK, 10, 10, 11, 11))
        events.catch_up()
        assert [child.pid for child in tasks.asked] == [11]
    finally:
        events.close()


@pytest.mark.usefixtures("no_thread_follows")
def test_who_has_been_waited_for_has_ended() -> None:
    tasks = KnownTasks()
    events = HostEvents(Thread(), tasks, all_processes=False)
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
            task = SimpleNamespace(process=process(child.pid, os.getpid()), pid=child.pid)
            tasks.on_new_task(task)
            events.catch_up()
            assert tasks.ended == []
        events.catch_up()
        assert tasks.ended == [task]
    finally:
        events.close()


def test_nobody_goes_on_while_what_was_told_is_being_followed(host: socket.socket) -> None:
    begun, may_end = threading.Event(), threading.Event()

    class Slow(Thread):
        def run(self, work: Callable[[], Any]) -> Any:
            begun.set()
            assert may_end.wait(10)
            return work()

    tasks = KnownTasks(10)
    events = HostEvents(Slow(), tasks)
    try:
        host.send(datagram(EXEC, 10, 10))
        assert begun.wait(10)
        asker = threading.Thread(target=events.catch_up)
        asker.start()
        asker.join(0.2)
        assert asker.is_alive()
        may_end.set()
        asker.join(10)
        assert [one.pid for one in tasks.asked] == [10]
    finally:
        may_end.set()
        events.close()


def process(pid: int, ppid: int) -> HostProcess:
    return HostProcess(pid, 1000, ppid, "true", 0)


@pytest.mark.parametrize("found", [process(11, 0), process(11, 1), process(11, 10), None])
def test_a_child_is_its_parents_however_far_its_end_has_come(
    monkeypatch: pytest.MonkeyPatch, found: HostProcess | None
) -> None:
    monkeypatch.setattr(host_events, "read_other_process", lambda pid: found)
    tasks = KnownTasks(10)
    events = HostEvents(SimpleNamespace(), tasks, all_processes=False)  # type: ignore[arg-type]
    try:
        events._follow([ProcEvent(FORK, 11, 10)])
    finally:
        events.close()
    assert [(child.pid, child.ppid) for child in tasks.asked] == [(11, 10)]
