"""A machine with the built-in kernel in it, its functions called from Python."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from emulated_kernel import assembler
from emulated_kernel.asm_offsets import CONSTANTS, MODULES_DATA, MODULES_VADDR
from emulated_kernel.images import builtin
from emulated_kernel.machine.machine import Machine

U64 = (1 << 64) - 1
_SCRATCH_TEXT = MODULES_VADDR + 0xE00000  # out of the way of engine and modules
_SCRATCH_DATA = MODULES_DATA + 0x700000


class Guest:
    """Calls into a machine. Addresses are plain integers, results unsigned unless asked otherwise."""

    def __init__(self, *, cpus: int = 2, boot: bool = False) -> None:
        self.image = builtin.load_builtin()
        self.machine = Machine(self.image, nr_cpus=cpus, clock="virtual")
        self.memory = self.machine.memory
        self._room = self.machine.alloc(1 << 20)
        self._used = 0
        if boot:
            self.machine.boot()

    def close(self) -> None:
        self.machine.close()

    def reset(self) -> None:
        """Take back all memory that `room` and `place` gave."""
        self._used = 0

    def room(self, size: int, fill: int = 0) -> int:
        """`size` bytes of guest memory."""
        address = self._room + self._used
        self._used += -(-size // 16) * 16
        assert self._used <= 1 << 20
        self.memory.write(address, bytes([fill]) * size)
        return address

    def place(self, data: bytes) -> int:
        """`data` in guest memory."""
        address = self.room(len(data))
        self.memory.write(address, data)
        return address

    def text(self, data: bytes) -> int:
        """A C string in guest memory."""
        return self.place(data + b"\0")

    def words(self, values: Iterable[int]) -> int:
        """An array of u64 in guest memory."""
        return self.place(b"".join(struct.pack("<Q", v & U64) for v in values))

    def label(self, name: str) -> int:
        return self.image.labels[name]

    def constant(self, name: str) -> int:
        """A number of asm_offsets or of the kernel's own includes."""
        return CONSTANTS[name] if name in CONSTANTS else self.image.constants[name]

    def call(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """rax as the function left it."""
        return self.machine.call(function, *(a & U64 for a in arguments), cpu=cpu)

    def call32(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """eax, unsigned."""
        return self.call(function, *arguments, cpu=cpu) & 0xFFFFFFFF

    def call_int(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """eax as a C int."""
        value = self.call32(function, *arguments, cpu=cpu)
        return value - (1 << 32) if value >> 31 else value

    def call_long(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """rax as a C long."""
        value = self.call(function, *arguments, cpu=cpu)
        return value - (1 << 64) if value >> 63 else value

    def load(self, source: str) -> dict[str, int]:
        """Assemble a few functions of the test's own beside the kernel; their labels."""
        bases = {".text": _SCRATCH_TEXT, ".data": _SCRATCH_DATA}
        constants = {**self.image.constants, **CONSTANTS}
        part = assembler.assemble({"test.S": source}, bases, constants, self.image.labels)
        self.machine.run(lambda: self.machine.load_segments(dict(part.segments)))
        return dict(part.labels)
