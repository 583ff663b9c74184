"""Sockets and clocks as user space sees them: system calls of tasks, which may sleep."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from support.guest import Guest
from support.kernel_scenario import Walk

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.network import Network
from emulated_kernel.procfs import HostProcess
from emulated_kernel.tasks import Asleep, Task, Tasks

EBADF, EAGAIN, EFAULT, EINVAL, ENOTSOCK, EINTR = -9, -11, -14, -22, -88, -4
O_NONBLOCK, SOCK_NONBLOCK = 0o4000, 0o4000


class Users:
    """Two tasks on CPUs of their own, with sockets."""

    def __init__(self) -> None:
        self.guest = Guest(cpus=2, boot=True)
        self.machine = self.guest.machine
        self.tasks = self.machine.run(lambda: Tasks(self.machine))
        self.walk = Walk(self.machine, self.tasks)
        self.network = Network(self.machine)
        self.server = self._task(700, "server", 0)
        self.client = self._task(701, "client", 1)
        self._next_port = 2000

    def _task(self, pid: int, comm: str, cpu: int) -> Task:
        process = HostProcess(pid, 1, 1, comm, cpu)
        return self.machine.run(lambda: self.tasks.task_of(process))

    def call(self, task: Task, name: str, *arguments: int) -> int:
        return self.walk.call(task, name, *arguments)

    def sleeps(self, task: Task, name: str, *arguments: int) -> None:
        with pytest.raises(Asleep):
            self.call(task, name, *arguments)

    def address(self, port: int, slot: int = 0x1000, ip: str = "127.0.0.1") -> int:
        packed = struct.pack("<H", socket.AF_INET) + struct.pack(">H", port)
        return self.walk.put(packed + socket.inet_aton(ip) + bytes(8), slot)

    def port(self) -> int:
        self._next_port += 1
        return self._next_port

    def listener(self, port: int, flags: int = 0) -> int:
        fd = self.call(self.server, "socket", socket.AF_INET, socket.SOCK_STREAM | flags, 0)
        assert fd >= 0
        assert self.call(self.server, "bind", fd, self.address(port), 16) == 0
        assert self.call(self.server, "listen", fd, 5) == 0
        return fd

    def connection(self) -> tuple[int, int, int]:
        """Descriptors: listener and connection of the server, connection of the client."""
        port = self.port()
        listener = self.listener(port)
        client = self.call(self.client, "socket", socket.AF_INET, socket.SOCK_STREAM, 0)
        assert self.call(self.client, "connect", client, self.address(port), 16) == 0
        return listener, self.call(self.server, "accept", listener, 0, 0), client

    def send(self, task: Task, fd: int, data: bytes, flags: int = 0) -> int:
        return self.call(task, "sendto", fd, self.walk.put(data), len(data), flags, 0, 0)

    def receive(self, task: Task, fd: int, size: int = 0x4000, flags: int = 0) -> bytes | int:
        buffer = self.walk.buffer + 0x8000
        got = self.call(task, "recvfrom", fd, buffer, size, flags, 0, 0)
        return got if got < 0 else self.walk.get(got, 0x8000)

    def close(self, task: Task, *fds: int) -> None:
        for fd in fds:
            assert self.call(task, "close", fd) == 0


@pytest.fixture(scope="module")
def users() -> Iterator[Users]:
    made = Users()
    try:
        yield made
    finally:
        made.guest.close()


# --- sleeping -------------------------------------------------------------------------------------


def test_accept_sleeps_until_somebody_connects(users: Users) -> None:
    port = users.port()
    listener = users.listener(port)
    peer, length = users.walk.buffer + 0x1800, users.walk.put(struct.pack("<I", 16), 0x1900)
    users.sleeps(users.server, "accept", listener, peer, length)
    client = users.call(users.client, "socket", socket.AF_INET, socket.SOCK_STREAM, 0)
    assert users.call(users.client, "connect", client, users.address(port), 16) == 0
    users.call(users.client, "getsockname", client, users.walk.buffer + 0x1A00, length)
    server = users.call(users.server, "accept", listener, peer, length)
    assert server > listener
    family, _, ip = struct.unpack("<HH4s", users.walk.get(8, 0x1800))
    assert (family, ip) == (socket.AF_INET, socket.inet_aton("127.0.0.1"))
    assert users.walk.get(16, 0x1800) == users.walk.get(16, 0x1A00)
    users.close(users.server, server, listener)
    users.close(users.client, client)


def test_a_reader_sleeps_until_there_is_data(users: Users) -> None:
    listener, server, client = users.connection()
    users.sleeps(users.server, "recvfrom", server, users.walk.buffer + 0x8000, 100, 0, 0, 0)
    assert users.send(users.client, client, b"wake up") == 7
    assert users.receive(users.server, server, 100) == b"wake up"
    users.sleeps(users.server, "recvfrom", server, users.walk.buffer + 0x8000, 100, 0, 0, 0)
    assert users.call(users.client, "shutdown", client, 1) == 0
    assert users.receive(users.server, server, 100) == b""
    users.close(users.server, server, listener)
    users.close(users.client, client)


def test_a_writer_sleeps_until_there_is_room(users: Users) -> None:
    listener, server, client = users.connection()
    chunk = bytes(range(256)) * 64
    total = asleep = 0
    for _ in range(100):
        try:
            sent = users.send(users.client, client, chunk)
        except Asleep:
            asleep += 1
            break
        total += sent
    assert asleep == 1
    got = b""
    for _ in range(400):
        try:
            sent = users.send(users.client, client, chunk)
            break
        except Asleep:
            part = users.receive(users.server, server)
            assert isinstance(part, bytes)
            got += part
    assert sent == len(chunk)
    total += sent
    assert users.call(users.client, "shutdown", client, 1) == 0
    while part := users.receive(users.server, server):
        assert isinstance(part, bytes)
        got += part
    assert got == chunk * (total // len(chunk))
    users.close(users.server, server, listener)
    users.close(users.client, client)


def test_a_sleeping_reader_can_be_interrupted(users: Users) -> None:
    listener, server, client = users.connection()
    users.sleeps(users.server, "recvfrom", server, users.walk.buffer, 100, 0, 0, 0)
    users.machine.run(lambda: users.tasks.interrupt(users.server))
    assert not users.server.asleep
    assert users.send(users.client, client, b"later") == 5
    assert users.receive(users.server, server) == b"later"
    users.close(users.server, server, listener)
    users.close(users.client, client)


def test_a_datagram_wakes_its_reader(users: Users) -> None:
    port = users.port()
    here = users.call(users.server, "socket", socket.AF_INET, socket.SOCK_DGRAM, 0)
    assert users.call(users.server, "bind", here, users.address(port), 16) == 0
    users.sleeps(users.server, "recvfrom", here, users.walk.buffer + 0x8000, 100, 0, 0, 0)
    there = users.call(users.client, "socket", socket.AF_INET, socket.SOCK_DGRAM, 0)
    data = users.walk.put(b"datagram")
    assert users.call(users.client, "sendto", there, data, 8, 0, users.address(port), 16) == 8
    assert users.receive(users.server, here, 100) == b"datagram"
    users.close(users.server, here)
    users.close(users.client, there)


def test_connecting_over_the_wire_sleeps_and_gives_up(users: Users) -> None:
    fd = users.call(users.client, "socket", socket.AF_INET, socket.SOCK_STREAM, 0)
    users.machine.run(users.network._transmit)
    users.network.sent.clear()
    users.sleeps(users.client, "connect", fd, users.address(80, ip="10.0.2.2"), 16)
    for _ in range(40):  # the peer never answers: the SYN goes out again and again
        users.guest.tick(1)
        clock = users.machine.cpus[0].word("CLOCK_PTR")
        users.guest.memory.set_u64(clock, users.guest.memory.u64(clock) + 130 * 10**9)
    users.machine.run(users.network._transmit)
    syns = [frame for frame in users.network.sent if frame[23] == 6]
    assert len(syns) == 16
    assert len({frame[38:42] for frame in syns}) == 1
    address = users.address(80, ip="10.0.2.2")
    assert users.call(users.client, "connect", fd, address, 16) == -110  # ETIMEDOUT
    users.close(users.client, fd)


# --- not sleeping ---------------------------------------------------------------------------------


def test_nonblocking_sockets_never_sleep(users: Users) -> None:
    port = users.port()
    listener = users.listener(port, SOCK_NONBLOCK)
    assert users.call(users.server, "accept", listener, 0, 0) == EAGAIN
    client = users.call(
        users.client, "socket", socket.AF_INET, socket.SOCK_STREAM | SOCK_NONBLOCK, 0
    )
    assert users.call(users.client, "connect", client, users.address(port), 16) in {0, -115}
    assert users.call(users.client, "connect", client, users.address(port), 16) in {0, -106}
    server = users.call(users.server, "accept", listener, 0, 0)
    assert users.receive(users.client, client) == EAGAIN
    assert users.receive(users.server, server, flags=0x40) == EAGAIN
    users.close(users.server, server, listener)
    users.close(users.client, client)


def test_read_and_write_work_on_sockets(users: Users) -> None:
    listener, server, client = users.connection()
    assert users.call(users.client, "write", client, users.walk.put(b"by write"), 8) == 8
    assert users.call(users.server, "read", server, users.walk.buffer + 64, 3) == 3
    assert users.call(users.server, "read", server, users.walk.buffer + 67, 100) == 5
    assert users.walk.get(8, 64) == b"by write"
    assert users.call(users.server, "lseek", server, 0, 1) == -29  # ESPIPE
    users.close(users.server, server, listener)
    users.close(users.client, client)


def test_poll_sees_a_socket_become_readable(users: Users) -> None:
    listener, server, client = users.connection()
    pollfd = users.walk.put(struct.pack("<ihh", server, 5, 0), 0x2000)
    assert users.call(users.server, "poll", pollfd, 1, 0) == 1
    assert struct.unpack("<ihh", users.walk.get(8, 0x2000))[2] == 4
    users.send(users.client, client, b"!")
    assert users.call(users.server, "poll", pollfd, 1, 0) == 1
    assert struct.unpack("<ihh", users.walk.get(8, 0x2000))[2] == 5
    users.close(users.server, server, listener)
    users.close(users.client, client)


def test_errors_of_the_system_calls(users: Users) -> None:
    call, task = users.call, users.server
    assert call(task, "socket", 99, socket.SOCK_STREAM, 0) == -97
    assert call(task, "socket", socket.AF_INET, 5, 0) == -94
    assert call(task, "socket", socket.AF_INET, socket.SOCK_STREAM, 17) == -93
    assert call(task, "socket", socket.AF_INET, 0x100, 0) == EINVAL
    assert call(task, "bind", 77, users.address(1), 16) == EBADF
    assert call(task, "pipe", users.walk.buffer) == 0
    read_end, write_end = struct.unpack("<ii", users.walk.get(8))
    assert call(task, "listen", read_end, 1) == ENOTSOCK
    users.close(task, read_end, write_end)
    fd = call(task, "socket", socket.AF_INET, socket.SOCK_DGRAM, 0)
    assert call(task, "listen", fd, 1) == -95
    assert call(task, "accept", fd, 0, 0) == -95
    assert call(task, "bind", fd, users.address(9, ip="9.9.9.9"), 16) == -99
    assert call(task, "bind", fd, users.address(9), 7) == EINVAL
    assert call(task, "bind", fd, 0x1000, 16) == EFAULT
    assert call(task, "sendto", fd, users.walk.buffer, 1, 0, 0, 0) == -89
    assert call(task, "sendto", fd, 0x1000, 10, 0, users.address(9), 16) == EFAULT
    assert call(task, "sendto", fd, users.walk.buffer, 70_000, 0, users.address(9), 16) == -90
    assert call(task, "shutdown", fd, 2) == -107
    users.close(task, fd)
    assert call(task, "getsockname", fd, users.walk.buffer, users.walk.buffer) == EBADF


def test_an_exiting_task_closes_its_connections(users: Users) -> None:
    port = users.port()
    listener = users.listener(port)
    guest_task = users._task(702, "short-lived", 1)
    fd = users.call(guest_task, "socket", socket.AF_INET, socket.SOCK_STREAM, 0)
    assert users.call(guest_task, "connect", fd, users.address(port), 16) == 0
    server = users.call(users.server, "accept", listener, 0, 0)
    users.walk.exit(guest_task)
    assert users.receive(users.server, server) == b""
    users.close(users.server, server, listener)


# --- clocks ---------------------------------------------------------------------------------------


def _clock(users: Users, number: int) -> int:
    assert users.call(users.server, "clock_gettime", number, users.walk.buffer) == 0
    seconds, nanoseconds = struct.unpack("<QQ", users.walk.get(16))
    assert nanoseconds < 10**9
    return seconds * 10**9 + nanoseconds


def test_clock_gettime(users: Users) -> None:
    users.guest.tick(3)
    monotonic = [_clock(users, 1) for _ in range(3)]
    assert monotonic == sorted(monotonic)
    assert _clock(users, 7) > monotonic[-1]
    assert _clock(users, 6) <= _clock(users, 1)
    offset = users.guest.memory.u64(
        users.guest.label("tk_core") + users.guest.constant("TK_OFFS_REAL")
    )
    assert abs(_clock(users, 0) - offset - _clock(users, 1)) < 10**6
    assert _clock(users, 5) <= _clock(users, 0)
    for number in (2, 3, 8, 99):
        assert users.call(users.server, "clock_gettime", number, users.walk.buffer) == EINVAL
    assert users.call(users.server, "clock_gettime", 0, 0x1000) == EFAULT


def test_gettimeofday(users: Users) -> None:
    assert users.call(users.server, "gettimeofday", users.walk.buffer, 0) == 0
    seconds, microseconds = struct.unpack("<QQ", users.walk.get(16))
    assert microseconds < 10**6
    assert abs(seconds - _clock(users, 0) // 10**9) <= 1
    assert users.call(users.server, "gettimeofday", 0, users.walk.put(b"\xff" * 8)) == 0
    assert users.walk.get(8) == bytes(8)


def test_nanosleep_sleeps_and_tells_what_is_left(users: Users) -> None:
    request = users.walk.put(struct.pack("<qq", 0, 30_000_000))
    left = users.walk.put(bytes(16), 64)
    users.sleeps(users.server, "nanosleep", request, left)
    users.guest.tick(10)
    assert users.call(users.server, "nanosleep", request, left) == 0
    request = users.walk.put(struct.pack("<qq", 100, 0))
    users.sleeps(users.server, "nanosleep", request, left)
    users.machine.run(lambda: users.tasks.interrupt(users.server))
    seconds, nanoseconds = struct.unpack("<qq", users.walk.get(16, 64))
    assert 99 * 10**9 < seconds * 10**9 + nanoseconds <= 100 * 10**9
    returned = users.guest.memory.u64(users.server.address + CONSTANTS["TASK_RETVAL"])
    assert returned == (1 << 64) + EINTR
    bad = users.walk.put(struct.pack("<qq", 0, 10**9))
    assert users.call(users.server, "nanosleep", bad, 0) == EINVAL
