"""A kernel with the module ext4 in it, whose time goes on when a test says so."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from emulated_kernel import assembler
from emulated_kernel.asm_offsets import CONSTANTS, MODULES_DATA, MODULES_VADDR
from emulated_kernel.machine import Rest, Vcpu
from emulated_kernel.modules import Modules
from emulated_kernel.tasks import Asleep
from support.ext4_disk import BLOCK, Disk
from support.syscalls import O_CREAT, O_RDWR, Kernel, Process

T = TypeVar("T")

FIRST_FILES = {"motd", "hostname", "syslog"}
COMMIT_INTERVAL_S = 5
_COMMIT_SEQUENCE = 56  # of the journal

# Stands for __fentry__: remembers which functions of the module were called, and clobbers all that
# a callback may.
WATCH = """# Watch.
.text
FUNC_NOTRACE watch_fentry
    mov r10, [rsp]
    movabs r11, MODULE
    sub r10, r11
    cmp r10, MODULE_BYTES
    jae 1f
    shr r10, 4
    mov r11, offset seen
    mov byte ptr [r11 + r10], 1
1:
    movabs r10, 0xdeadbeefdeadbe10
    movabs r11, 0xdeadbeefdeadbe11
    cmp r10, r11
    ret
ENDFUNC watch_fentry
.data
seen:
    .zero MODULE_BYTES / 16 + 1
"""


class Mounted(Kernel):
    """Which of the module's functions were called, what its disk holds, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.modules = Modules(self.machine, self.image.modules)
        self.module = self.modules.available["ext4"]
        self._seen = self._watch()
        self.load()

    def _watch(self) -> int:
        address, text = self.module.segments[".text"]
        bases = {".text": MODULES_VADDR + 0xE00000, ".data": MODULES_DATA + 0x700000}
        sizes = {"MODULE": address, "MODULE_BYTES": len(text)}
        part = assembler.assemble({"watch.S": WATCH}, bases, sizes)
        fentry = self.image.label("__fentry__")
        jump = part.labels["watch_fentry"] - (fentry + 5)
        self.machine.run(lambda: self.machine.load_segments(dict(part.segments)))
        self.memory.write(fentry, b"\xe9" + struct.pack("<i", jump))
        self.machine.run(lambda: self.machine.flush_text(fentry, fentry + 5))
        return part.labels["seen"]

    def functions(self) -> set[str]:
        """The module's functions with a call site."""
        return {s.name for s in self.module.symbols if s.address in self._sites()}

    def called(self) -> set[str]:
        """Those of them that have been called."""
        base = self.module.segments[".text"][0]
        marks = {s.name: self._seen + (s.address - base >> 4) for s in self.module.symbols}
        return {name for name in self.functions() if self.memory.u8(marks[name])}

    def _sites(self) -> set[int]:
        return set(self.module.mcount)

    def load(self) -> None:
        self.machine.run(lambda: self.modules.load_module("ext4"))

    def unload(self) -> None:
        self.machine.run(lambda: self.modules.delete_module("ext4"))

    @property
    def disk(self) -> Disk:
        """The disk as it is now, the log not replayed."""
        address = self.memory.u64(self.module.labels["vda1"])
        nr_blocks = self.memory.u32(address + 1028)
        return Disk(self.memory.read(address, nr_blocks * BLOCK))

    def poke_disk(self, block: int, data: bytes) -> None:
        self.memory.write(self.memory.u64(self.module.labels["vda1"]) + block * BLOCK, data)

    def free_blocks(self) -> int:
        """Blocks that a write could have."""
        labels = self.module.labels
        free = self.memory.u32(labels["ext4_s_freeclusters"])
        return free - self.memory.u32(labels["ext4_s_dirtyclusters"])

    def settle(self) -> None:
        """Let every vCPU run what there is for it to run, up to its idle task."""
        for _ in range(60):
            busy = False
            for vcpu in self.machine.cpus:
                if vcpu.rest is Rest.USER:
                    self._park(vcpu)
                entry = "asm_sysvec_reschedule_ipi"
                if vcpu.word("WAKE_LIST"):
                    entry = "asm_sysvec_call_function_single"
                elif not self.memory.u32(vcpu.percpu + CONSTANTS["NEED_RESCHED"]):
                    continue
                busy = True
                self._interrupt(vcpu, entry)
            if not busy:
                return
        raise AssertionError("the guest does not come to rest")

    def _park(self, vcpu: Vcpu) -> None:
        self.machine.run(lambda: self.machine.park(vcpu))

    def _interrupt(self, vcpu: Vcpu, entry: str) -> None:
        self.machine.run(lambda: self.machine.interrupt(vcpu, entry))

    def forget_unused(self) -> None:
        """Drop the dentries nobody uses, and with them inodes and pages."""
        self._prune_dentries()

    def pass_time(self, seconds: float, step: float = 0.05) -> None:
        for _ in range(round(seconds / step)):
            clock = self.machine.cpus[0].word("CLOCK_PTR")
            self.memory.set_u64(clock, self.memory.u64(clock) + round(step * 1e9))
            self.tick()
            self.settle()

    def finish(self, call: Callable[[], T]) -> T:
        """The result of a system call, which may sleep meanwhile."""
        for _ in range(20):
            try:
                return call()
            except Asleep:
                self.pass_time(0.1)
        raise AssertionError("the system call does not come back")

    def sync(self, process: Process) -> None:
        assert self.finish(lambda: process.call("sync")) == 0

    def fsync(self, process: Process, path: str) -> None:
        fd = process.open(path, O_RDWR)
        assert self.finish(lambda: process.call("fsync", fd)) == 0
        assert process.close(fd) == 0

    @property
    def committed(self) -> int:
        """The sequence number of the last transaction that is in the log."""
        return self.memory.u32(self.module.labels["ext4_journal"] + _COMMIT_SEQUENCE)


@contextmanager
def tidy_process(kernel: Mounted, pid: int) -> Iterator[Process]:
    """A process; its files go in the end, and with them all that they took."""
    process = kernel.process(pid)
    yield process
    clean(process)
    kernel.sync(process)
    disk = kernel.disk.replayed()
    assert disk.problems() == []
    assert set(disk.files()) == FIRST_FILES
    assert disk.free_blocks - kernel.free_blocks() in {0, 2}  # promised to the log
    process.exit()


def clean(process: Process) -> None:
    names = process.listdir("/mnt")
    assert isinstance(names, dict)
    for name in set(names) - FIRST_FILES - {".", "..", "lost+found"}:
        assert process.unlink(f"/mnt/{name}") == 0


def pattern(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def pwrite(process: Process, path: str, data: bytes, offset: int) -> int:
    fd = process.open(path, O_RDWR | O_CREAT)
    result = process.pwrite(fd, data, offset)
    assert process.close(fd) == 0
    return result


def truncate(process: Process, path: str, size: int) -> int:
    return process.call("truncate", process.path(path), size)


def size_of(process: Process, path: str) -> int:
    stat = process.stat(path)
    assert not isinstance(stat, int)
    return stat.size


def inode_of(kernel: Mounted, process: Process, fd: int) -> int:
    memory, constants = kernel.memory, kernel.constants
    files = memory.u64(process.task.address + constants["TASK_FILES"])
    table = memory.u64(memory.u64(files + constants["FILES_FDT"]) + constants["FDT_FD"])
    return memory.u64(memory.u64(table + 8 * fd) + constants["FILE_INODE"])


def page_content(kernel: Mounted, mapping: int, number: int) -> int:
    page = kernel.machine.call("xas_load", mapping, number)
    frame = (page - kernel.word("mem_map")) // kernel.constants["STRUCT_PAGE_BYTES"]
    return kernel.word("memory_start") + frame * BLOCK


def write_and_fsync_often(kernel: Mounted, sh: Process) -> None:
    """The log wraps, and its blocks come home."""
    seen = set()
    for number in range(60):
        assert pwrite(sh, "/mnt/f", pattern(50, number), 50 * number) == 50
        kernel.fsync(sh, "/mnt/f")
        log = kernel.disk.log()
        seen.add(log[0].sequence)
        assert kernel.disk.replayed().problems() == []
    assert len(seen) > 2  # the log began anew
    expected = b"".join(pattern(50, n) for n in range(60))
    assert kernel.disk.replayed().contents()["f"] == expected


def meet_in_a_commit(kernel: Mounted, sh: Process, pid: int) -> None:
    """A commit waits for the handles, and new ones for the commit."""
    labels, call = kernel.module.labels, kernel.machine.call
    writer = kernel.process(pid)
    fd = writer.open("/mnt/f", O_RDWR | O_CREAT)
    kernel.settle()  # the handle is the idle task's
    handle = call(labels["jbd2_journal_start"], labels["ext4_journal"], 4)
    with pytest.raises(Asleep):
        sh.call("sync")
    with pytest.raises(Asleep):
        writer.write(fd, b"later")
    assert "f" not in kernel.disk.replayed().files()
    kernel.settle()
    call(labels["jbd2_journal_stop"], handle)
    kernel.sync(sh)
    assert kernel.disk.replayed().contents()["f"] == b""
    assert kernel.finish(lambda: writer.write(fd, b"later")) == 5
    assert writer.close(fd) == 0
    kernel.fsync(writer, "/mnt/f")
    assert kernel.disk.replayed().contents()["f"] == b"later"
    writer.exit()
