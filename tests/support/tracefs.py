"""The files over the test kernel, opened, read and written as a mount does it, without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.image import KernelImage, Module
from emulated_kernel.machine import Machine
from ftracefs.files.base import Caller, Directory, Node, OpenFile, Pending, TracefsFile
from ftracefs.files.table import build_tree
from ftracefs.guest import load_guest
from ftracefs.trace.trace_array import TraceArray
from ftracefs.trace.tracing import Tracing
from support.ftrace_kernel import ftrace_machine, kernel_image

T = TypeVar("T")
R, W, RW = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
TRUNC, APPEND = os.O_TRUNC, os.O_APPEND
PID = 1000  # of the task on CPU 0; the others follow


class Descriptor:
    """An open file with an offset, as a process has it; nothing blocks."""

    def __init__(self, tree: Tree, file: OpenFile) -> None:
        self._tree = tree
        self.file = file
        self.offset = 0

    def read(self, size: int, *, nonblock: bool = True) -> bytes | Pending:
        def once() -> object:
            return self.file.read(size, self.offset, nonblock)

        answer = self._tree.run(once)
        if isinstance(answer, Pending):
            return answer
        data = answer() if callable(answer) else answer
        assert isinstance(data, bytes)
        assert len(data) <= size
        self.offset += len(data)
        return data

    def write(self, data: bytes) -> int:
        taken = self._tree.run(lambda: self.file.write(data, self.offset))
        count = taken if isinstance(taken, int) else taken(lambda: False)
        self.offset += count
        return count

    def close(self) -> None:
        self._tree.run(self.file.flush)
        self._tree.run(self.file.fput)


class Tree:
    """A mounted tree without the mount. `acting` is the CPU whose task does everything."""

    def __init__(self, tracing: Tracing, root: Directory) -> None:
        self.tracing = tracing
        self.root = root

    @property
    def machine(self) -> Machine:
        return self.tracing.machine

    @property
    def tr(self) -> TraceArray:
        return self.tracing.global_trace

    def run(self, action: Callable[[], T]) -> T:
        return self.machine.run(action)

    def node(self, path: str) -> Node:
        node: Node = self.root
        for part in path.split("/"):
            assert isinstance(node, Directory), path
            node = node.lookup(part)
        return node

    def open(self, path: str, flags: int = R) -> Descriptor:
        node = self.node(path)
        assert isinstance(node, TracefsFile), path
        return Descriptor(self, self.run(lambda: node.dentry_open(flags, Caller(PID))))

    def read(self, path: str, size: int = 1 << 17) -> str:
        """What cat prints of a file that comes to an end."""
        descriptor = self.open(path)
        parts = []
        try:
            while True:
                data = descriptor.read(size)
                assert isinstance(data, bytes)
                if not data:
                    return b"".join(parts).decode("utf-8", "surrogateescape")
                parts.append(data)
        finally:
            descriptor.close()

    def write(self, path: str, text: str | bytes, flags: int = W) -> None:
        """Open, write all of it, close; without O_TRUNC unless `flags` say so."""
        data = text if isinstance(text, bytes) else text.encode()
        descriptor = self.open(path, flags)
        try:
            while data:
                data = data[descriptor.write(data) :]
        finally:
            descriptor.close()

    def echo(self, text: str, path: str) -> None:
        """`echo text > path`."""
        self.write(path, text + "\n", W | TRUNC)

    def call(self, function: str, *arguments: int, cpu: int = 0) -> int:
        return self.machine.call(function, *arguments, cpu=cpu)


def _add_task(machine: Machine, cpu: int) -> None:
    """A task of its own for a CPU of the test kernel, which has no scheduler."""
    task = machine.alloc(CONSTANTS["TASK_SIZE"])
    machine.memory.set_u32(task + CONSTANTS["TASK_PID"], PID + cpu)
    machine.memory.write(task + CONSTANTS["TASK_COMM"], b"script".ljust(16, b"\0"))
    machine.cpus[cpu].set_word("CURRENT_TASK", task)
    machine.cpus[cpu].set_word("TRACE_CTX", PID + cpu << 32)


@contextmanager
def tracefs(
    *,
    nr_cpus: int = 1,
    pure: bool = False,
    acting_cpu: int = 0,
    clock: str = "virtual",
    modules: Sequence[Module] = (),
    poison: bool = False,
    image: KernelImage | None = None,
) -> Iterator[Tree]:
    """A tree over `image` (the test kernel); everything runs as the task of `acting_cpu`.

    `modules` can be loaded; with `poison` trampolines overwrite all that they may.
    """
    image = replace(image or kernel_image(), modules=list(modules))
    guest = load_guest(image.labels, poison=poison)
    with ftrace_machine(image, nr_cpus=nr_cpus, clock=clock, poison=poison) as ftrace:
        machine = ftrace.machine

        def build() -> Tracing:
            for cpu in range(nr_cpus):
                _add_task(machine, cpu)
            return Tracing(machine, image, ftrace, guest, acting_cpu=lambda: acting_cpu)

        tracing = machine.run(build)
        yield Tree(tracing, build_tree(tracing, pure=pure))
