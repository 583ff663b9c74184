"""Ops whose callback is a Python function, for experiments; no tracer is made of them.

    trampoline → ftrace_python_func → HC_CALLBACK → the function, while the vCPU stands still

The function may look at and change what a callback in guest code might: registers, and with them
where the call goes on. It runs on the machine thread and must not call guest functions on the vCPU
that is calling it.
"""

from __future__ import annotations

from collections.abc import Callable

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Processor
from ftracefs.ftrace.ops import FtraceOps, GuestMemory
from ftracefs.ftrace.state import FtraceState

_SCRATCH = ["RAX", "RCX", "RDX", "RSI", "RDI", "R8", "R9", "R10", "R11"]
_SAVED = ["RBX", "RBP", "R12", "R13", "R14", "R15"]
_FIELDS = [*_SCRATCH, *_SAVED, "RIP", "RSP", "EFLAGS"]
_OFFSETS = {name.lower(): CONSTANTS[f"PT_{name}"] for name in _FIELDS}


class FtraceRegs:
    """struct ftrace_regs: registers at the call site, by name, to be read and assigned.

    A frame of ftrace_caller holds the argument registers, rax, rip and rsp only (`has_regs` False);
    what the traced function finds in its registers afterwards is what the frame holds.
    """

    def __init__(self, memory: GuestMemory, address: int) -> None:
        self._memory = memory
        self._address = address

    @property
    def has_regs(self) -> bool:
        """Whether all registers are there: the op has SAVE_REGS."""
        return self._memory.u64(self._address + CONSTANTS["PT_CS"]) != 0

    def __getitem__(self, name: str) -> int:
        return self._memory.u64(self._address + _OFFSETS[name])

    def __setitem__(self, name: str, value: int) -> None:
        self._memory.set_u64(self._address + _OFFSETS[name], value & 0xFFFFFFFFFFFFFFFF)


PythonFunc = Callable[[int, int, FtraceOps, FtraceRegs], None]


class PythonCallbacks:
    """The Python functions of one machine's ops."""

    def __init__(self, state: FtraceState) -> None:
        self._state = state
        self._functions: dict[int, tuple[FtraceOps, PythonFunc]] = {}

    def new_ops(self, func: PythonFunc, *, flags: int = 0, name: str = "") -> FtraceOps:
        """An op that calls `func(ip, parent_ip, op, fregs)`; not registered yet."""
        state = self._state
        name = name or getattr(func, "__name__", "")
        guest_func = state.labels["ftrace_python_func"]
        ops = FtraceOps(state.memory, guest_func, flags=flags, name=name)
        self._functions[ops.address] = (ops, func)
        state.machine.hypercalls[CONSTANTS["HC_CALLBACK"]] = self._call
        return ops

    def _call(self, vcpu: Processor) -> None:
        ip, parent_ip, op, fregs = vcpu.get("rdi", "rsi", "rdx", "rcx")
        ops, func = self._functions[op]
        func(ip, parent_ip, ops, FtraceRegs(self._state.memory, fregs))
