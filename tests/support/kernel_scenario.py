"""A walk through the built-in kernel: system calls of a few tasks, their results and data."""

from __future__ import annotations

import struct
from collections.abc import Callable

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Machine
from emulated_kernel.procfs import HostProcess
from emulated_kernel.tasks import Asleep, Task, Tasks

AT_FDCWD = (1 << 64) - 100
O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_DIRECTORY = 0, 1, 2, 0o100, 0o1000, 0o200000
SEEK_SET, SEEK_END = 0, 2
AF_INET, SOCK_STREAM, SOCK_DGRAM = 2, 1, 2
LOOPBACK = bytes([127, 0, 0, 1])
PATTERN = bytes(range(256)) * 40  # more than two pages


class Walk:
    """System calls of tasks, with paths and buffers in user memory. Keeps every result."""

    def __init__(self, machine: Machine, tasks: Tasks) -> None:
        self.machine = machine
        self.tasks = tasks
        self.results: list[object] = []
        self._window, _ = machine.user_window(machine.cpus[0])
        self.buffer = self._window + 0x4000

    def task(self, pid: int, comm: str, ppid: int = 1) -> Task:
        process = HostProcess(pid, 1, ppid, comm, 0)
        return self.machine.run(lambda: self.tasks.task_of(process))

    def exit(self, task: Task) -> None:
        self.machine.run(lambda: self.tasks.exit(task))

    def path(self, text: str, slot: int = 0) -> int:
        address = self._window + 0x400 * slot
        self.machine.memory.write(address, text.encode() + b"\0")
        return address

    def put(self, data: bytes, offset: int = 0) -> int:
        self.machine.memory.write(self.buffer + offset, data)
        return self.buffer + offset

    def get(self, size: int, offset: int = 0) -> bytes:
        return self.machine.memory.read(self.buffer + offset, size)

    def call(self, task: Task, name: str, *arguments: int) -> int:
        """A system call that does not sleep; its result is kept."""
        result = self.machine.run(lambda: self.tasks.syscall(task, name, arguments))
        self.results.append((name, result))
        return result

    def note(self, what: object) -> None:
        self.results.append(what)

    def function(self, name: str, *arguments: int) -> None:
        """A function outside any task."""
        value = self.machine.call(name, *arguments)
        self.results.append((name, value))


def files(walk: Walk, task: Task) -> None:
    walk.call(task, "mkdir", walk.path("/tmp/d"), 0o755)
    flags = O_RDWR | O_CREAT | O_TRUNC
    fd = walk.call(task, "openat", AT_FDCWD, walk.path("/tmp/d/f"), flags, 0o644)
    walk.call(task, "write", fd, walk.put(PATTERN), len(PATTERN))
    walk.call(task, "lseek", fd, 0, SEEK_SET)
    walk.put(bytes(len(PATTERN)))
    walk.call(task, "read", fd, walk.buffer, len(PATTERN))
    walk.note(walk.get(len(PATTERN)) == PATTERN)
    walk.call(task, "pread64", fd, walk.buffer, 100, 4000)
    walk.note(walk.get(100) == PATTERN[4000:4100])
    walk.call(task, "lseek", fd, 0, SEEK_END)
    walk.call(task, "newfstat", fd, walk.buffer)
    walk.note(struct.unpack_from("<q", walk.get(144), 48))
    copy = walk.call(task, "dup", fd)
    walk.call(task, "close", fd)
    walk.call(task, "read", copy, walk.buffer, 10)
    walk.call(task, "close", copy)
    walk.call(task, "read", copy, walk.buffer, 10)
    walk.call(task, "rename", walk.path("/tmp/d/f"), walk.path("/tmp/d/g", 1))
    walk.call(task, "symlink", walk.path("/tmp/d/g"), walk.path("/tmp/d/link", 1))
    walk.call(task, "readlink", walk.path("/tmp/d/link"), walk.buffer, 100)
    walk.note(walk.get(8))
    fd = walk.call(task, "openat", AT_FDCWD, walk.path("/tmp/d"), O_DIRECTORY, 0)
    walk.call(task, "getdents64", fd, walk.buffer, 4096)
    walk.call(task, "close", fd)
    walk.call(task, "unlink", walk.path("/tmp/d/link"))
    walk.call(task, "rmdir", walk.path("/tmp/d"))
    walk.call(task, "unlink", walk.path("/tmp/d/g"))
    walk.call(task, "rmdir", walk.path("/tmp/d"))
    walk.call(task, "openat", AT_FDCWD, walk.path("/no/such"), O_RDONLY, 0)
    walk.call(task, "newfstatat", AT_FDCWD, walk.path("/etc/hostname"), walk.buffer, 0)


def pipes(walk: Walk, task: Task) -> None:
    walk.call(task, "pipe", walk.buffer)
    read_end, write_end = struct.unpack("<ii", walk.get(8))
    walk.call(task, "write", write_end, walk.put(b"through the pipe", 64), 16)
    walk.call(task, "read", read_end, walk.buffer + 128, 100)
    walk.note(walk.get(16, 128))
    walk.call(task, "close", read_end)
    walk.call(task, "close", write_end)


def processes(walk: Walk) -> None:
    parent = walk.task(500, "bash")
    child = walk.task(501, "cat", ppid=500)
    walk.call(child, "getpid")
    walk.call(child, "getppid")
    walk.note(walk.machine.memory.cstring(child.address + CONSTANTS["TASK_COMM"], 16))
    walk.call(parent, "kill", 501, 17)
    walk.put(struct.pack("<qq", 3600, 0))
    try:
        walk.call(child, "nanosleep", walk.buffer, 0)
    except Asleep:
        walk.note("asleep")
    walk.call(parent, "kill", 501, 0)
    walk.exit(child)
    walk.call(parent, "wait4", (1 << 64) - 1, 0, 1, 0)
    walk.call(parent, "kill", 501, 0)


def memory(walk: Walk, task: Task) -> None:
    private_anonymous = 0x22
    address = walk.call(task, "mmap", 0, 3 * 4096, 3, private_anonymous, (1 << 64) - 1, 0)
    walk.call(task, "mprotect", address, 4096, 1)
    walk.call(task, "munmap", address, 3 * 4096)
    start = walk.call(task, "brk", 0)
    walk.call(task, "brk", start + 0x3000)


def sockets(walk: Walk, task: Task) -> None:
    def address(port: int) -> bytes:
        return struct.pack("<H", AF_INET) + struct.pack(">H", port) + LOOPBACK + bytes(8)

    listener = walk.call(task, "socket", AF_INET, SOCK_STREAM, 0)
    walk.call(task, "bind", listener, walk.put(address(80)), 16)
    walk.call(task, "listen", listener, 5)
    client = walk.call(task, "socket", AF_INET, SOCK_STREAM, 0)
    walk.call(task, "connect", client, walk.put(address(80)), 16)
    server = walk.call(task, "accept", listener, 0, 0)
    walk.call(task, "sendto", client, walk.put(b"over tcp", 64), 8, 0, 0, 0)
    walk.call(task, "recvfrom", server, walk.buffer + 128, 100, 0, 0, 0)
    walk.note(walk.get(8, 128))
    for fd in (client, server, listener):
        walk.call(task, "close", fd)
    first = walk.call(task, "socket", AF_INET, SOCK_DGRAM, 0)
    walk.call(task, "bind", first, walk.put(address(5353)), 16)
    second = walk.call(task, "socket", AF_INET, SOCK_DGRAM, 0)
    walk.put(address(5353))
    walk.call(task, "sendto", second, walk.put(b"by udp", 64), 6, 0, walk.buffer, 16)
    walk.call(task, "recvfrom", first, walk.buffer + 128, 100, 0, 0, 0)
    walk.note(walk.get(6, 128))
    walk.call(task, "close", first)
    walk.call(task, "close", second)


def interrupts(walk: Walk) -> None:
    def ticks() -> None:
        for vcpu in walk.machine.cpus:
            walk.machine.park(vcpu) if vcpu.rest.name == "USER" else None
            for _ in range(10):
                walk.machine.interrupt(vcpu, "asm_sysvec_apic_timer_interrupt")

    walk.machine.run(ticks)


STATIONS: tuple[Callable[[Walk, Task], None], ...] = (files, pipes, memory, sockets)


def walk_through(machine: Machine, tasks: Tasks) -> list[object]:
    """Everything, in one order; what came back."""
    walk = Walk(machine, tasks)
    processes(walk)
    task = walk.task(600, "worker")
    for station in STATIONS:
        station(walk, task)
    for pair in ((12, 18), (17, 5)):
        walk.function("gcd", *pair)
        walk.function("lcm", *pair)
    walk.function("int_sqrt", 1 << 40)
    walk.exit(task)
    interrupts(walk)
    return walk.results
