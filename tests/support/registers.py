"""A traced function that keeps every register it finds, called with a known value in each."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.ftrace import Ftrace
from support.ftrace_kernel import assembled_module, load_module

# As `with_registers` of the test kernel takes and leaves them; flags stand in the place of rsp.
REGISTERS = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "flags")
REGISTERS += tuple(f"r{n}" for n in range(8, 16))
CALLEE_SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")
ARITHMETIC_FLAGS = 0x8D5  # CF PF AF ZF SF OF
_FIXED_FLAGS = 0x2
_RSP = REGISTERS.index("flags")

FRAME_OFFSETS = {name: CONSTANTS[f"PT_{name.upper()}"] for name in REGISTERS if name != "flags"}
FRAME_OFFSETS["flags"] = CONSTANTS["PT_EFLAGS"]
# What ftrace_caller has in its pt_regs; ftrace_regs_caller has everything.
ARGUMENT_FRAME = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9")

MARK = """# A traced function and its company.
.text
FUNC mark                        # keeps what it finds, rsp in the eighth word, and changes nothing
    mov [rip + marked], rax
    mov [rip + marked + 8], rbx
    mov [rip + marked + 16], rcx
    mov [rip + marked + 24], rdx
    mov [rip + marked + 32], rsi
    mov [rip + marked + 40], rdi
    mov [rip + marked + 48], rbp
    mov [rip + marked + 56], rsp
    mov [rip + marked + 64], r8
    mov [rip + marked + 72], r9
    mov [rip + marked + 80], r10
    mov [rip + marked + 88], r11
    mov [rip + marked + 96], r12
    mov [rip + marked + 104], r13
    mov [rip + marked + 112], r14
    mov [rip + marked + 120], r15
    pushfq
    pop qword ptr [rip + marked + 128]
    push qword ptr [rsp]
    pop qword ptr [rip + marked + 136]
    ret
ENDFUNC mark
FUNC_NOTRACE target_of_mark      # of a direct call: changes nothing
    ret
ENDFUNC target_of_mark
FUNC_NOTRACE change_frame        # a callback: the pt_regs are exclusive-ored with OP_PRIVATE's
    mov r8, [rdx + OP_PRIVATE]
    mov r9d, FRAME_BYTES
1:  mov rax, [r8 + r9 - 8]
    xor [rcx + r9 - 8], rax
    sub r9, 8
    jne 1b
    ret
ENDFUNC change_frame
.data
OBJECT marked
    .zero 144
ENDOBJECT marked
"""


@dataclass(frozen=True, slots=True)
class Registers:
    """What went in, what `mark` found, and what its caller found afterwards."""

    given: dict[str, int]
    found: dict[str, int]
    left: dict[str, int]
    rsp: int  # in `mark`: the address of its caller's return address
    ret: int  # and what stood there

    def lost(self) -> set[str]:
        """What `mark` did not find, or its caller not afterwards."""
        return {r for r in REGISTERS if not self.given[r] == self.found[r] == self.left[r]}


class Marked:
    """`mark` on a machine."""

    def __init__(self, ftrace: Ftrace, seed: int) -> None:
        self._ftrace = ftrace
        self._choice = random.Random(seed)
        self._buffer = ftrace.machine.alloc(4096)
        module = assembled_module("marking", MARK)
        load_module(ftrace, module)
        self.labels = module.labels

    def call(self) -> Registers:
        """Call it with a value of its own in every register and every flag up or down."""
        memory = self._ftrace.memory
        given = {name: self._choice.getrandbits(64) for name in REGISTERS}
        given["flags"] = given["flags"] & ARITHMETIC_FLAGS | _FIXED_FLAGS
        memory.write(self._buffer, struct.pack("<16Q", *given.values()))
        memory.write(self.labels["marked"], bytes(144))
        mark = self.labels["mark"]
        self._ftrace.machine.call("with_registers", mark, self._buffer, self._buffer + 1024)
        found, left = self._read(self.labels["marked"]), self._read(self._buffer + 1024)
        rsp, ret = (memory.u64(self.labels["marked"] + 8 * word) for word in (_RSP, 17))
        return Registers(given, found, left, rsp, ret)

    def _read(self, address: int) -> dict[str, int]:
        values = struct.unpack("<17Q", self._ftrace.memory.read(address, 136))
        registers = dict(zip(REGISTERS, values[:16], strict=True))
        registers["flags"] = values[16] & ARITHMETIC_FLAGS | _FIXED_FLAGS
        return registers
