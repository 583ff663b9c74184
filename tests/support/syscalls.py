"""System calls of tasks of the guest, and what its allocators have handed out."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.images.builtin import load_builtin
from emulated_kernel.machine import Machine, Rest
from emulated_kernel.procfs import HostProcess
from emulated_kernel.tasks import Answer, Task, Tasks

AT_FDCWD = (1 << 64) - 100
O_RDONLY, O_WRONLY, O_RDWR = 0, 1, 2
O_CREAT, O_EXCL, O_TRUNC, O_APPEND = 0o100, 0o200, 0o1000, 0o2000
O_NONBLOCK, O_DIRECTORY, O_NOFOLLOW, O_CLOEXEC = 0o4000, 0o200000, 0o400000, 0o2000000
PAGE = 4096
_PATHS = 0x4000  # of the user window; behind it lies the buffer


class Kernel:
    """A booted machine, and the bookkeeping of its allocators."""

    def __init__(self, *, cpus: int = 2) -> None:
        self.image = load_builtin()
        self.machine = Machine(self.image, nr_cpus=cpus, clock="virtual")
        self.memory = self.machine.memory
        self.machine.boot()
        self.tasks = Tasks(self.machine)
        self.constants = {**self.image.constants, **CONSTANTS}

    def close(self) -> None:
        self.machine.close()

    def process(self, pid: int = 500, *, comm: str = "sh", ppid: int = 1, cpu: int = 0) -> Process:
        """A new task; on an odd vCPU it has a user window of its own."""
        host = HostProcess(pid, 1, ppid, comm, cpu)
        return Process(self, self.machine.run(lambda: self.tasks.task_of(host)), cpu)

    def call(self, function: str, *arguments: int, cpu: int = 0) -> int:
        """A function outside any task; its rax as a signed number."""
        return _signed(self.machine.call(function, *arguments, cpu=cpu), 64)

    def word(self, symbol: str, offset: str = "") -> int:
        """A u64 of a kernel object."""
        return self.memory.u64(self.image.label(symbol) + (self.constants[offset] if offset else 0))

    def free_pages(self) -> int:
        """Pages on the free lists of the zone and of every vCPU."""
        pages = self.word("contig_zone", "ZONE_NR_FREE")
        for vcpu in self.machine.cpus:
            pages += self.memory.u32(
                vcpu.percpu + self.constants["PERCPU_MM"] + self.constants["PCP_COUNT"]
            )
        return pages

    def caches(self) -> dict[str, tuple[int, int]]:
        """name -> (objects handed out, slabs) of every object cache."""
        found = {}
        for cache in self._cache_addresses():
            name = self.memory.cstring(self.memory.u64(cache + self.constants["CACHE_NAME"]))
            found[name.decode()] = (
                self.memory.u64(cache + self.constants["CACHE_IN_USE"]),
                self.memory.u64(cache + self.constants["CACHE_NR_SLABS"]),
            )
        return found

    def _cache_addresses(self) -> list[int]:
        head = self.image.label("slab_caches")
        entry, found = self.memory.u64(head), []
        while entry != head:
            found.append(entry - self.constants["CACHE_LIST"])
            entry = self.memory.u64(entry)
        return found

    def slab_pages(self) -> int:
        """Pages that the object caches hold."""
        return sum(
            self.memory.u64(cache + self.constants["CACHE_NR_SLABS"])
            << self.memory.u32(cache + self.constants["CACHE_ORDER"])
            for cache in self._cache_addresses()
        )

    def holdings(self) -> dict[str, int]:
        """What is handed out: objects by cache, and pages that are not those of slabs.

        What is only kept for later goes first: unused dentries, what waits for a grace period,
        pages on their way to the LRU.
        """
        self._prune_dentries()
        for _ in range(6):
            self.tick()
        for vcpu in self.machine.cpus:
            self.call("lru_add_drain", cpu=vcpu.number)
        held = {name: objects for name, (objects, _) in self.caches().items()}
        managed = self.word("contig_zone", "ZONE_MANAGED")
        held["pages"] = managed - self.free_pages() - self.slab_pages()
        return held

    def _prune_dentries(self) -> None:
        head = self.image.label("super_blocks")
        block = self.memory.u64(head)
        while block != head:
            unused = block + self.constants["SB_NR_UNUSED"] - self.constants["SB_LIST"]
            for _ in range(64):  # parents become unused with their children
                if not self.memory.u32(unused):
                    break
                self.call("prune_dcache_sb", block - self.constants["SB_LIST"], 100_000)
            block = self.memory.u64(block)

    def tick(self) -> None:
        """A timer interrupt on every vCPU."""

        def interrupt_all() -> None:
            for vcpu in self.machine.cpus:
                if vcpu.rest in {Rest.IDLE, Rest.USER}:
                    self.machine.interrupt(vcpu, "asm_sysvec_apic_timer_interrupt")

        self.machine.run(interrupt_all)


@dataclass
class Process:
    """A task, its user memory and its system calls."""

    kernel: Kernel
    task: Task
    cpu: int
    home: str = "/"

    def __post_init__(self) -> None:
        self._memory = self.kernel.memory
        vcpu = self.kernel.machine.cpus[self.cpu]
        self.window, size = self.kernel.machine.user_window(vcpu)
        self.buffer, self.room = self.window + _PATHS, size - _PATHS

    def call(self, name: str, *arguments: int, answer: Answer | None = None) -> int:
        """A system call; raises Asleep when it sleeps (call it again to go on)."""
        machine, tasks = self.kernel.machine, self.kernel.tasks
        return machine.run(lambda: tasks.syscall(self.task, name, arguments, answer))

    def path(self, text: str, slot: int = 0) -> int:
        address = self.window + 0x1400 * slot
        self._memory.write(address, text.encode() + b"\0")
        return address

    def put(self, data: bytes, offset: int = 0) -> int:
        self._memory.write(self.buffer + offset, data)
        return self.buffer + offset

    def get(self, size: int, offset: int = 0) -> bytes:
        return self._memory.read(self.buffer + offset, size)

    def exit(self) -> None:
        machine, tasks = self.kernel.machine, self.kernel.tasks
        machine.run(lambda: tasks.exit(self.task))

    # --- files -----------------------------------------------------------------------------------

    def open(self, path: str, flags: int = O_RDONLY, mode: int = 0o644) -> int:
        return self.call("openat", AT_FDCWD, self.path(path), flags, mode)

    def close(self, fd: int) -> int:
        return self.call("close", fd)

    def read(self, fd: int, size: int) -> bytes | int:
        """What it read, or the error."""
        result = self.call("read", fd, self.buffer, size)
        return self.get(result) if result >= 0 else result

    def write(self, fd: int, data: bytes) -> int:
        return self.call("write", fd, self.put(data), len(data))

    def pread(self, fd: int, size: int, offset: int) -> bytes | int:
        result = self.call("pread64", fd, self.buffer, size, offset)
        return self.get(result) if result >= 0 else result

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return self.call("pwrite64", fd, self.put(data), len(data), offset)

    def lseek(self, fd: int, offset: int, whence: int = 0) -> int:
        return self.call("lseek", fd, offset & (1 << 64) - 1, whence)

    def cat(self, path: str, chunk: int = PAGE) -> bytes | int:
        """A whole file, or the error of its open or a read."""
        fd = self.open(path)
        if fd < 0:
            return fd
        text = bytearray()
        while part := self.read(fd, chunk):
            if isinstance(part, int):
                self.close(fd)
                return part
            text += part
        assert self.close(fd) == 0
        return bytes(text)

    def save(self, path: str, data: bytes) -> None:
        fd = self.open(path, O_WRONLY | O_CREAT | O_TRUNC)
        assert fd >= 0, fd
        assert self.write(fd, data) == len(data)
        assert self.close(fd) == 0

    def mkdir(self, path: str, mode: int = 0o755) -> int:
        return self.call("mkdir", self.path(path), mode)

    def rmdir(self, path: str) -> int:
        return self.call("rmdir", self.path(path))

    def unlink(self, path: str) -> int:
        return self.call("unlink", self.path(path))

    def rename(self, old: str, new: str) -> int:
        return self.call("rename", self.path(old), self.path(new, 1))

    def symlink(self, target: str, path: str) -> int:
        return self.call("symlink", self.path(target), self.path(path, 1))

    def readlink(self, path: str, size: int = 256) -> bytes | int:
        result = self.call("readlink", self.path(path), self.buffer, size)
        return self.get(result) if result >= 0 else result

    def stat(self, path: str, *, follow: bool = True) -> Stat | int:
        name = "newfstatat" if follow else "newlstat"
        arguments = (AT_FDCWD,) if follow else ()
        result = self.call(name, *arguments, self.path(path), self.buffer, 0)
        return Stat.unpack(self.get(144)) if result == 0 else result

    def fstat(self, fd: int) -> Stat | int:
        result = self.call("newfstat", fd, self.buffer)
        return Stat.unpack(self.get(144)) if result == 0 else result

    def listdir(self, path: str, room: int = 4096) -> dict[str, tuple[int, int]] | int:
        """name -> (inode, type) of a directory, read `room` bytes at a time."""
        fd = self.open(path, O_RDONLY | O_DIRECTORY)
        if fd < 0:
            return fd
        found: dict[str, tuple[int, int]] = {}
        while (size := self.call("getdents64", fd, self.buffer, room)) > 0:
            data, at = self.get(size), 0
            while at < size:
                inode, _, length, kind = struct.unpack_from("<QqHB", data, at)
                name = data[at + 19 : at + length].split(b"\0", 1)[0].decode()
                assert name not in found, name
                found[name] = (inode, kind)
                at += length
        assert self.close(fd) == 0
        return found if size == 0 else size


@dataclass(frozen=True, slots=True)
class Stat:
    """struct stat, as far as the tests look at it."""

    dev: int
    ino: int
    nlink: int
    mode: int
    size: int
    blocks: int
    mtime: tuple[int, int]

    @classmethod
    def unpack(cls, data: bytes) -> Stat:
        dev, ino, nlink, mode = struct.unpack_from("<QQQI", data)
        size, _, blocks = struct.unpack_from("<qqq", data, 48)
        return cls(dev, ino, nlink, mode, size, blocks, struct.unpack_from("<qq", data, 88))


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value
