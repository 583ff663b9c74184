"""A vCPU that runs one instruction at a time."""

from __future__ import annotations

from typing import Any

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Machine, Vcpu
from emulated_kernel.machine.unicorn_abi import check_exits_at_blocks_only

_STEPS = 10_000
_NO_END = 0xFFFFFFFFFFFFFFFE


class Stepper:
    """A call of a guest function on one vCPU, stepped from its first instruction to its return."""

    def __init__(self, machine: Machine, function: int, *arguments: int, cpu: int = 1) -> None:
        self._machine = machine
        self.vcpu: Vcpu = machine.cpus[cpu]
        self._uc: Any = self.vcpu.cpu._uc
        check_exits_at_blocks_only(self._uc, False)
        self._end = machine.image.labels["host_return"]
        self._stack = machine.alloc(CONSTANTS["STACK_BYTES"])
        rsp = self._stack + CONSTANTS["STACK_BYTES"] - 64
        machine.memory.set_u64(rsp, self._end)
        registers = dict(zip(("rdi", "rsi", "rdx"), arguments, strict=False))
        self.vcpu.set(rsp=rsp, rbp=0, rip=function, **registers)
        self.rip = function
        self.trail: list[int] = []
        self.stood: list[int] = []  # for the test: where it was looked at

    @property
    def is_done(self) -> bool:
        return self.rip == self._end

    def step(self, count: int = 1) -> None:
        """Run `count` instructions, or fewer if it returns before."""
        for _ in range(count):
            if self.is_done:
                return
            self.trail.append(self.rip)
            self._uc.emu_start(self.rip, _NO_END, 0, 1)
            (self.rip,) = self.vcpu.get("rip")

    def finish(self) -> int:
        """Run it to its end and return its rax."""
        for _ in range(_STEPS):
            if self.is_done:
                self._machine.free(self._stack)
                return self.vcpu.get("rax")[0]
            self.step()
        raise AssertionError(f"it does not return: {self.rip:#x}")
