"""The machine: RAM, and vCPUs that its thread runs one after the other.

A slice of guest code ends at a safepoint (`hlt`).
"""

from __future__ import annotations

import time

from emulated_kernel.asm_offsets import CONSTANTS, PAGE_OFFSET
from emulated_kernel.errors import EmulatedKernelError, GuestFault, GuestTimeout
from emulated_kernel.image import KernelImage
from emulated_kernel.machine import thread
from emulated_kernel.machine.base import EmulatedMachine, Processor
from emulated_kernel.machine.clock import ClockSource
from emulated_kernel.machine.memory import (
    GUEST_LIMIT,
    GUEST_PHYS,
    MAX_CPUS,
    STACKS_START,
    USER_BASE,
    USER_WINDOW,
    Memory,
)
from emulated_kernel.machine.vcpu import (
    GENERAL_PROTECTION,
    INVALID_OPCODE,
    PAGE_FAULT,
    Rest,
    Vcpu,
)

_STACK_BYTES = CONSTANTS["STACK_BYTES"]

_SAFEPOINTS = {
    "idle_halt": Rest.IDLE,
    "user_mode_halt": Rest.USER,
    "host_fop_halt": Rest.FILE_OP,
    "host_call_halt": Rest.CALL,
    "host_return_halt": Rest.RETURN,
}
_EXCEPTION_ENTRIES = {
    0: "asm_exc_divide_error",
    INVALID_OPCODE: "asm_exc_invalid_op",
    GENERAL_PROTECTION: "asm_exc_general_protection",
    PAGE_FAULT: "asm_exc_page_fault",
}
# Per-CPU: in which context code runs, how often preemption is off, and in which callbacks it is.
_CONTEXT = [(CONSTANTS[n], size) for n, size in (("IRQ_FLAGS", 2), ("TRACE_RECURSION", 4))]
assert CONSTANTS["PREEMPT_DEPTH"] == CONSTANTS["IRQ_FLAGS"] + 1
_SYSV_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")


class Machine(EmulatedMachine):
    """An emulated machine running `image` on `nr_cpus` vCPUs (1 to 8).

    `clock` is "real" (the host's monotonic time) or "virtual" (a fixed step per reading).
    The machine is created stopped; `boot` brings the kernel to its idle loop.
    """

    memory: Memory
    cpus: list[Vcpu]

    def __init__(self, image: KernelImage, *, nr_cpus: int = 2, clock: str = "real") -> None:
        if not 1 <= nr_cpus <= MAX_CPUS:
            raise ValueError(f"1 to {MAX_CPUS} vCPUs, not {nr_cpus}")
        super().__init__()
        self.image = image
        self.memory = Memory()
        self._cr3 = self.memory.build_page_tables()
        self._write_gdt()
        self._exception_entry = {
            vector: image.labels[name]
            for vector, name in _EXCEPTION_ENTRIES.items()
            if name in image.labels
        }
        self._rests = {
            image.labels[name]: rest for name, rest in _SAFEPOINTS.items() if name in image.labels
        }
        # At equal distances, as are the words of a ring buffer: one tells where the other is.
        percpu = self.memory.alloc(CONSTANTS["PERCPU_BYTES"] * nr_cpus)
        self.cpus = [
            self._new_vcpu(number, percpu + CONSTANTS["PERCPU_BYTES"] * number)
            for number in range(nr_cpus)
        ]
        self._bare_stacks = [STACKS_START + (n + 1) * _STACK_BYTES for n in range(nr_cpus)]
        self.clock = ClockSource(self.memory, [vcpu.percpu for vcpu in self.cpus], clock)
        self._load(image)
        self._start_thread()

    # --- making ----------------------------------------------------------------------------------

    def _write_gdt(self) -> None:
        gdt = PAGE_OFFSET + self.memory.gdt_physical
        for index, descriptor in enumerate((0, 0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF)):
            self.memory.set_u64(gdt + 8 * index, descriptor)

    def _new_vcpu(self, number: int, percpu: int) -> Vcpu:
        vcpu = Vcpu(number, self.memory, self._cr3, percpu)
        vcpu.exception_entry = self._exception_entry
        vcpu.rests = self._rests
        vcpu.hypercall = self._hypercall
        vcpu.set_word("PERCPU_SELF", vcpu.percpu)
        vcpu.set_word("HARDIRQ_STACK", self.alloc(_STACK_BYTES) + _STACK_BYTES)
        self.memory.set_u32(vcpu.percpu + CONSTANTS["CPU_NUMBER"], number)
        return vcpu

    def _load(self, image: KernelImage) -> None:
        for address, data in image.segments.values():
            self.memory.write(address, data)
        boot_params = image.labels.get("boot_params")
        if boot_params is not None:
            self.memory.set_u64(boot_params, PAGE_OFFSET + GUEST_PHYS)
            self.memory.set_u64(boot_params + 8, PAGE_OFFSET + GUEST_PHYS + GUEST_LIMIT)
            self.memory.set_u64(boot_params + 16, len(self.cpus))
            for vcpu in self.cpus:
                self.memory.set_u64(boot_params + 24 + 8 * vcpu.number, vcpu.percpu)

    def boot(self) -> None:
        """Run the kernel from its entry points until every vCPU idles.

        Raises GuestFault or GuestTimeout when it does not come up.
        """
        self.run(self._boot)

    def _boot(self) -> None:
        labels = self.image.labels
        idle_tasks, task_size = labels["idle_threads"], CONSTANTS["TASK_SIZE"]
        for vcpu in self.cpus:
            task = idle_tasks + vcpu.number * task_size
            stack = self.alloc(_STACK_BYTES)
            self.memory.set_u64(task + CONSTANTS["TASK_STACK"], stack)
            vcpu.set_word("CURRENT_TASK", task)
            entry = "startup_64" if vcpu.number == 0 else "secondary_startup_64"
            vcpu.set(rsp=stack + _STACK_BYTES - 64)
            vcpu.in_bare_call = True  # a fault during boot is nobody's oops
            rest = self.run_slice(vcpu, labels[entry])
            vcpu.in_bare_call = False
            if rest is not Rest.IDLE:
                self._settle_boot(vcpu)

    def _settle_boot(self, vcpu: Vcpu) -> None:
        """Send init, which has reached user mode, to sleep; what is left is the idle task."""
        self.park(vcpu)

    def park(self, vcpu: Vcpu) -> Rest:
        """Put the task that is in user mode on this vCPU to sleep, so that others can run.

        The guest sees a reschedule on the way to user mode; who sleeps there is not runnable until
        somebody wakes it.
        """
        self.memory.set_u32(vcpu.current + CONSTANTS["TASK_STATE"], CONSTANTS["TASK_INTERRUPTIBLE"])
        self.memory.set_u32(vcpu.percpu + CONSTANTS["NEED_RESCHED"], 1)
        return self.interrupt(vcpu, "asm_sysvec_reschedule_ipi")

    def user_window(self, vcpu: Vcpu) -> tuple[int, int]:
        """(address, size) of the user memory that callers on this vCPU use as their buffers."""
        return USER_BASE + vcpu.number * USER_WINDOW, USER_WINDOW

    def stack_end(self, cpu: Processor) -> int:
        """Where the stack ends that a stopped vCPU stands on: its task's, or one of the CPU's."""
        (rsp,) = cpu.get("rsp")
        ends = [cpu.word("HARDIRQ_STACK"), self._bare_stacks[cpu.number]]
        if cpu.current:
            ends.append(self.memory.u64(cpu.current + CONSTANTS["TASK_STACK"]) + _STACK_BYTES)
        return next((end for end in ends if end - _STACK_BYTES <= rsp < end), rsp + _STACK_BYTES)

    # --- running guest code ----------------------------------------------------------------------

    def run_slice(self, vcpu: Vcpu, rip: int | None = None) -> Rest:
        """Run one vCPU to its next safepoint, on the machine thread."""
        outer = self._running
        self._running, self._slice_since = vcpu.cpu, time.monotonic()
        try:
            return vcpu.run(rip)
        except EmulatedKernelError as error:
            if self._timed_out:
                at = vcpu.get("rip")[0]
                raise GuestTimeout(f"no return within {thread.BUDGET_S:g} s, at {at:#x}") from error
            raise
        finally:
            self._timed_out = False
            self._running, self._slice_since = outer, time.monotonic()

    def interrupt(self, vcpu: Vcpu, entry: str) -> Rest:
        """Let an interrupt arrive at a resting vCPU: run the handler `entry`, then on to rest."""
        vcpu.deliver(self.image.labels[entry])
        return self.run_slice(vcpu)

    def call(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        address = self.image.labels[function] if isinstance(function, str) else function
        return self.run(lambda: self._bare_call(self.cpus[cpu], address, arguments))

    def _bare_call(self, vcpu: Vcpu, address: int, arguments: tuple[int, ...]) -> int:
        saved_rip, saved_rest = vcpu.rip, vcpu.rest
        vcpu.registers.read()
        saved = list(vcpu.registers.values)
        stack = self._bare_stacks[vcpu.number] - 64
        extra = arguments[len(_SYSV_ARGUMENTS) :]
        for index, value in enumerate(extra):
            self.memory.set_u64(stack + 8 + 8 * index, value)
        self.memory.set_u64(stack, self.image.labels["host_return"])
        named = dict(zip(_SYSV_ARGUMENTS, arguments, strict=False))
        vcpu.set(rsp=stack, rbp=0, **named)
        outer, vcpu.in_bare_call = vcpu.in_bare_call, True
        context = [self.memory.read(vcpu.percpu + at, size) for at, size in _CONTEXT]
        task = vcpu.current
        frames = self.memory.u64(task + CONSTANTS["TASK_RET_TOP"]) if task else 0
        try:
            rest = self.run_slice(vcpu, address)
            if rest is not Rest.RETURN:
                raise GuestFault(f"call ended at {rest}", vector=-1, rip=vcpu.rip)
            return vcpu.get("rax")[0]
        except BaseException:
            for (at, _), word in zip(_CONTEXT, context, strict=True):
                self.memory.write(vcpu.percpu + at, word)
            if task:
                # What it called will not return, so the task's shadow stack is as it was before.
                frames = frames or self.memory.u64(task + CONSTANTS["TASK_RET_BASE"])
                self.memory.set_u64(task + CONSTANTS["TASK_RET_TOP"], frames)
            raise
        finally:
            vcpu.in_bare_call = outer
            for index, value in enumerate(saved):
                vcpu.registers.values[index] = value
            vcpu.registers.write()
            vcpu.rip, vcpu.rest = saved_rip, saved_rest

    def flush_text(self, start: int, end: int) -> None:
        """Drop translations of [start, end) on every vCPU, as a sync_core IPI would."""
        for vcpu in self.cpus:
            vcpu.cpu.remove_cache(start, end)
