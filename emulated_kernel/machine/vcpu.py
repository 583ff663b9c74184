"""One virtual CPU: its Unicorn instance, its per-CPU page and how events reach it.

Unicorn never delivers through the guest's IDT, so exceptions and interrupts are delivered here: the
frame is built in guest memory the way the processor does it and the vCPU goes on at the kernel's
entry point.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum, auto

from emulated_kernel.asm_offsets import CONSTANTS, HYPERCALL_VECTOR, PAGE_OFFSET
from emulated_kernel.errors import EmulatedKernelError, GuestFault
from emulated_kernel.machine.base import Processor
from emulated_kernel.machine.memory import Memory
from emulated_kernel.machine.unicorn_abi import REGISTERS, UnicornCpu

_INDEX = {name: i for i, name in enumerate(REGISTERS)}
_RIP, _RSP, _RAX, _EFLAGS, _CR2 = (_INDEX[n] for n in ("rip", "rsp", "rax", "eflags", "cr2"))
_EFLAGS_IF = 0x200
_FRAME = struct.Struct("<5Q")
_KERNEL_CS, _KERNEL_DS = CONSTANTS["KERNEL_CS"], CONSTANTS["KERNEL_DS"]
_NO_ADDRESS = 0xDEAD000000000000  # in CR2 while no page fault is being told apart from others

INT3, INVALID_OPCODE, DOUBLE_FAULT, GENERAL_PROTECTION, PAGE_FAULT = 3, 6, 8, 13, 14
_WITH_ERROR_CODE = {8, 10, 11, 12, 13, 14, 17}
EXCEPTION_NAMES = {
    0: "divide error",
    1: "debug exception",
    3: "int3",
    6: "invalid opcode",
    13: "general protection fault",
    14: "page fault",
}


class Rest(Enum):
    """Where a vCPU stands still: which safepoint its last `hlt` was."""

    RESET = auto()  # has run nothing yet
    IDLE = auto()  # the idle task, waiting for an interrupt
    USER = auto()  # the current task is in user mode
    FILE_OP = auto()  # the current task is inside a file operation that the host answers
    CALL = auto()  # a function run for the host is done, or its slice is
    RETURN = auto()  # a function run outside any task is done


# Tuples: they are searched by identity, and to hash an Enum takes a call of Python.
IN_USER_MODE = (Rest.USER, Rest.CALL)
_MAY_BE_INTERRUPTED = (Rest.IDLE, *IN_USER_MODE)


class Vcpu(Processor):
    """A processor. `percpu` is the guest-virtual address of its per-CPU page (the gs base)."""

    def __init__(self, number: int, memory: Memory, cr3: int, percpu: int) -> None:
        super().__init__(number, memory, percpu)
        self.rest = Rest.RESET
        self.rip = 0
        self.entries = 0  # system calls entered here, by whoever enters them
        self.in_bare_call = False
        self.is_lost = False  # stopped where no safepoint is; `rest` says nothing
        self.hypercall: Callable[[Vcpu, int], None] | None = None
        self.exception_entry: dict[int, int] = {}
        self.rests: dict[int, Rest] = {}
        self._faulted = False
        self.cpu = UnicornCpu(
            memory.host_address,
            memory.layout.ram_bytes,
            cr3,
            PAGE_OFFSET + memory.gdt_physical,
            self._on_interrupt,
            lambda: self._on_exception(INVALID_OPCODE),
        )
        self.cpu.set_gs_base(percpu)
        self.registers = self.cpu.all
        self.registers.read()
        self.registers.values[_CR2] = _NO_ADDRESS
        self.registers.write()

    @property
    def may_be_interrupted(self) -> bool:
        """Whether an interrupt may arrive: it is idle, in user mode, or between two calls."""
        return not self.is_lost and self.rest in _MAY_BE_INTERRUPTED

    # --- registers -------------------------------------------------------------------------------

    def get(self, *names: str) -> tuple[int, ...]:
        self.registers.read()
        return tuple(int(self.registers.values[_INDEX[n]]) for n in names)

    def set(self, **values: int) -> None:
        self.registers.read()
        for name, value in values.items():
            self.registers.values[_INDEX[name]] = value & 0xFFFFFFFFFFFFFFFF
        self.registers.write()

    # --- running ---------------------------------------------------------------------------------

    def run(self, rip: int | None = None) -> Rest:
        """Run (from `rip`, or on from where it rests) to the next safepoint."""
        try:
            self.rip = self.cpu.start(self.rip if rip is None else rip)
        except EmulatedKernelError:
            self.is_lost = not self.in_bare_call
            raise
        finally:
            if self._faulted:
                self._faulted = False
                self.cpu.clear_exception_state()
        rest = self.rests.get(self.rip)
        if rest is None:
            self.is_lost = not self.in_bare_call
            raise GuestFault(f"hlt at {self.rip - 1:#x}", vector=-1, rip=self.rip - 1)
        self.rest = rest
        return rest

    def deliver(
        self, entry: int, *, return_to: int | None = None, error: int | None = None
    ) -> None:
        """Build an interrupt frame on the current stack and set the vCPU to `entry`."""
        self.registers.read()
        values = self.registers.values
        rsp, eflags = int(values[_RSP]), int(values[_EFLAGS])
        rip = self.rip if return_to is None else return_to
        frame = _FRAME.pack(rip, _KERNEL_CS, eflags, rsp, _KERNEL_DS)
        if error is not None:
            frame = struct.pack("<Q", error) + frame
        top = (rsp & ~15) - len(frame)
        try:
            self.memory.write(top, frame)
        except EmulatedKernelError:
            what = f"no stack at {top:#x} (rip {rip:#x})"
            raise GuestFault(what, vector=DOUBLE_FAULT, rip=rip) from None
        values[_RSP] = top
        values[_EFLAGS] = eflags & ~_EFLAGS_IF
        values[_RIP] = entry
        self.registers.write()
        self.rip = entry

    # --- hooks (called while the vCPU is inside `run`) -------------------------------------------

    def _on_interrupt(self, vector: int) -> None:
        if vector == HYPERCALL_VECTOR:
            self.hypercalls += 1
            self.registers.read()
            if self.hypercall is not None:
                self.hypercall(self, int(self.registers.values[_RAX]) & 0xFFFFFFFF)
            return
        if vector == INT3 and self.int3 is not None:
            self.registers.read()
            if self.int3(self, int(self.registers.values[_RIP]) - 1):
                self.registers.write()
                return
        self._on_exception(vector)

    def _on_exception(self, vector: int) -> None:
        self.registers.read()
        values = self.registers.values
        rip, address = int(values[_RIP]), int(values[_CR2])
        if vector == DOUBLE_FAULT:
            # Every exception is delivered at once, so this is Unicorn not having forgotten an
            # earlier one: tell a page fault by its address.
            vector = GENERAL_PROTECTION if address == _NO_ADDRESS else PAGE_FAULT
        if vector != PAGE_FAULT:
            address = 0
        self._faulted = True
        values[_CR2] = _NO_ADDRESS
        self.registers.write()
        entry = self.exception_entry.get(vector)
        if self.in_bare_call or entry is None:
            what = EXCEPTION_NAMES.get(vector, f"exception {vector}")
            at = f" at address {address:#x}" if vector == PAGE_FAULT else ""
            raise GuestFault(f"{what}{at}, rip {rip:#x}", vector=vector, rip=rip, address=address)
        self.set_word("HOST_ARG", address)
        error = 0 if vector in _WITH_ERROR_CODE else None
        self.deliver(entry, return_to=rip, error=error)
