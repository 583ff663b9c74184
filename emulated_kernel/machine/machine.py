"""The machine: RAM, vCPUs and the one thread that runs them.

Every vCPU belongs to the machine thread, which runs them one after the other; a slice ends at a
safepoint (`hlt`). Everybody else hands work over with `run` and waits for the result, holding no
lock; the machine thread never waits for them. Work given from the machine thread itself runs at
once.

A slice that does not come to an end is ended by the watchdog. That stop is not one to resume from
(a read-modify-write may be half done), so whoever asked for the slice gets GuestTimeout.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from emulated_kernel.asm_offsets import CONSTANTS, PAGE_OFFSET
from emulated_kernel.errors import EmulatedKernelError, GuestFault, GuestTimeout, MachineOffError
from emulated_kernel.image import KernelImage
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
from emulated_kernel.machine.unicorn_abi import force_stop
from emulated_kernel.machine.vcpu import (
    GENERAL_PROTECTION,
    INVALID_OPCODE,
    PAGE_FAULT,
    Rest,
    Vcpu,
)

T = TypeVar("T")
log = logging.getLogger(__name__)

BUDGET_S = 5.0  # a slice of a few milliseconds is normal
_WATCH_S = 0.5
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


class _Job(Generic[T]):
    """Work handed to the machine thread, and its result."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Lock()
        self._done.acquire()
        self._result: T | None = None
        self._error: BaseException | None = None

    def execute(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self._done.release()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._done.release()

    def wait(self) -> T:
        with self._done:
            if self._error is not None:
                raise self._error
            return self._result  # type: ignore[return-value]


class _SlicedJob(_Job[T]):
    """Work in slices: a generator whose return value is the result."""

    def __init__(self, slices: Generator[None, None, T]) -> None:
        super().__init__(lambda: None)  # type: ignore[arg-type, return-value]
        self._slices = slices

    def step(self) -> bool:
        """Run one slice; True when there is another."""
        try:
            next(self._slices)
        except StopIteration as stop:
            self._result = stop.value
        except BaseException as error:
            self._error = error
        else:
            return True
        self._done.release()
        return False


class Machine:
    """An emulated machine running `image` on `nr_cpus` vCPUs (1 to 8).

    `clock` is "real" (the host's monotonic time) or "virtual" (a fixed step per reading).
    The machine is created stopped; `boot` brings the kernel to its idle loop.
    """

    def __init__(self, image: KernelImage, *, nr_cpus: int = 2, clock: str = "real") -> None:
        if not 1 <= nr_cpus <= MAX_CPUS:
            raise ValueError(f"1 to {MAX_CPUS} vCPUs, not {nr_cpus}")
        self.image = image
        self.nr_cpus = nr_cpus
        self.memory = Memory()
        self._write_gdt()
        self.after_slice: list[Callable[[], None]] = []
        self.hypercalls: dict[int, Callable[[Vcpu], None]] = {}
        self._exception_entry = {
            vector: image.labels[name]
            for vector, name in _EXCEPTION_ENTRIES.items()
            if name in image.labels
        }
        self._rests = {
            image.labels[name]: rest for name, rest in _SAFEPOINTS.items() if name in image.labels
        }
        self.cpus = [self._new_vcpu(number) for number in range(nr_cpus)]
        self._bare_stacks = [STACKS_START + (n + 1) * _STACK_BYTES for n in range(nr_cpus)]
        self.clock = ClockSource(self.memory, self.cpus, clock)
        self._load(image)

        self._queue: deque[_Job[Any]] = deque()
        self._timers: list[tuple[float, int, float, Callable[[], None]]] = []
        self._timer_ids = itertools.count()
        self._wake = threading.Condition()
        self._closing = False
        self._off = threading.Event()
        self._slice_since = 0.0
        self._running: Vcpu | None = None
        self._timed_out = False
        self._thread = threading.Thread(target=self._main, name="machine", daemon=True)
        self._watchdog = threading.Thread(target=self._watch, name="machine-watchdog", daemon=True)
        self._thread.start()
        self._watchdog.start()

    # --- making ----------------------------------------------------------------------------------

    def _write_gdt(self) -> None:
        gdt = PAGE_OFFSET + self.memory.gdt_physical
        for index, descriptor in enumerate((0, 0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF)):
            self.memory.set_u64(gdt + 8 * index, descriptor)

    def _new_vcpu(self, number: int) -> Vcpu:
        vcpu = Vcpu(number, self.memory, self.memory.alloc(CONSTANTS["PERCPU_BYTES"]))
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
            self.memory.set_u64(boot_params + 16, self.nr_cpus)
            for vcpu in self.cpus:
                self.memory.set_u64(boot_params + 24 + 8 * vcpu.number, vcpu.percpu)

    def load_segments(self, segments: dict[str, tuple[int, bytes]]) -> None:
        """Put more code and data into RAM (the engine's, a module's)."""
        for address, data in segments.values():
            self.memory.write(address, data)
            # Asked about a page that is not executable Unicorn faults inside and remembers that:
            # the guest's next fault would be a double one.
            if data and self.memory.is_text(address):
                self.flush_text(address, address + len(data))

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

    # --- heap ------------------------------------------------------------------------------------

    def alloc(self, size: int, align: int = 4096) -> int:
        """Zeroed guest memory for the host's own structures, by its direct-map address."""
        return self.memory.alloc(size, align)

    def free(self, address: int) -> None:
        """Give back what `alloc` gave."""
        self.memory.free(address)

    def user_window(self, vcpu: Vcpu) -> tuple[int, int]:
        """(address, size) of the user memory that callers on this vCPU use as their buffers."""
        return USER_BASE + vcpu.number * USER_WINDOW, USER_WINDOW

    def stack_end(self, vcpu: Vcpu) -> int:
        """Where the stack ends that a stopped vCPU stands on: its task's, or one of the CPU's."""
        (rsp,) = vcpu.get("rsp")
        ends = [vcpu.word("HARDIRQ_STACK"), self._bare_stacks[vcpu.number]]
        if vcpu.current:
            ends.append(self.memory.u64(vcpu.current + CONSTANTS["TASK_STACK"]) + _STACK_BYTES)
        return next((end for end in ends if end - _STACK_BYTES <= rsp < end), rsp + _STACK_BYTES)

    # --- work ------------------------------------------------------------------------------------

    def run(self, work: Callable[[], T]) -> T:
        """Do `work` on the machine thread and return its result; at once if already there."""
        if threading.current_thread() is self._thread:
            return work()
        job = _Job(work)
        self._submit(job)
        return job.wait()

    def run_sliced(self, slices: Generator[None, None, T]) -> T:
        """Run a generator on the machine thread, other work between its steps."""
        if threading.current_thread() is self._thread:
            raise EmulatedKernelError("sliced work cannot be waited for on the machine thread")
        job = _SlicedJob(slices)
        self._submit(job)
        return job.wait()

    def every(self, period_s: float, work: Callable[[], None]) -> Callable[[], None]:
        """Do `work` on the machine thread each `period_s` seconds; returns how to end that."""
        ended = False

        def tick() -> None:
            if not ended:
                work()
                self._add_timer(period_s, tick)

        def end() -> None:
            nonlocal ended
            ended = True

        self._add_timer(period_s, tick)
        return end

    def _add_timer(self, delay: float, work: Callable[[], None]) -> None:
        with self._wake:
            entry = (time.monotonic() + delay, next(self._timer_ids), delay, work)
            heapq.heappush(self._timers, entry)
            self._wake.notify()

    def _submit(self, job: _Job[Any]) -> None:
        with self._wake:
            if self._closing:
                raise MachineOffError("the machine is switched off")
            self._queue.append(job)
            self._wake.notify()

    def close(self) -> None:
        """Switch the machine off; work still queued fails."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._off.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _main(self) -> None:
        while True:
            with self._wake:
                now = time.monotonic()
                while not self._queue and not self._closing:
                    due = self._timers[0][0] - now if self._timers else None
                    if due is not None and due <= 0:
                        break
                    self._wake.wait(due)
                    now = time.monotonic()
                if self._closing:
                    break
                job = self._queue.popleft() if self._queue else None
                timer = None
                if self._timers and self._timers[0][0] <= now:
                    timer = heapq.heappop(self._timers)[3]
            if timer is not None:
                self._run_timer(timer)
            if isinstance(job, _SlicedJob):
                if job.step():
                    with self._wake:
                        self._queue.append(job)
            elif job is not None:
                job.execute()
            self._notify_after_slice()
        error = MachineOffError("the machine is switched off")
        for left in self._queue:
            left.fail(error)

    def _run_timer(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.exception("a timer of the machine failed")

    def _notify_after_slice(self) -> None:
        for callback in self.after_slice:
            callback()

    # --- running guest code ----------------------------------------------------------------------

    def run_slice(self, vcpu: Vcpu, rip: int | None = None) -> Rest:
        """Run one vCPU to its next safepoint, on the machine thread."""
        outer = self._running
        self._running, self._slice_since = vcpu, time.monotonic()
        try:
            return vcpu.run(rip)
        except EmulatedKernelError as error:
            if self._timed_out:
                at = vcpu.get("rip")[0]
                raise GuestTimeout(f"no return within {BUDGET_S:g} s, at {at:#x}") from error
            raise
        finally:
            self._timed_out = False
            self._running, self._slice_since = outer, time.monotonic()

    def _watch(self) -> None:
        while not self._off.wait(_WATCH_S):
            vcpu = self._running
            if vcpu is not None and time.monotonic() - self._slice_since > BUDGET_S:
                self._timed_out = True
                force_stop(vcpu.cpu)

    def interrupt(self, vcpu: Vcpu, entry: str) -> Rest:
        """Let an interrupt arrive at a resting vCPU: run the handler `entry`, then on to rest."""
        vcpu.deliver(self.image.labels[entry])
        return self.run_slice(vcpu)

    def call(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """Run a guest function to its return, outside any task, and return rax.

        For boot and tests: it runs on a stack of the host's with whatever task is current, so it
        must not sleep. Raises GuestFault or GuestTimeout; the machine goes on.
        """
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

    def _hypercall(self, vcpu: Vcpu, number: int) -> None:
        handler = self.hypercalls.get(number)
        if handler is None:
            raise EmulatedKernelError(f"hypercall {number}")
        handler(vcpu)

    @property
    def hypercall_count(self) -> int:
        """Guest-to-host calls since the machine was made."""
        return sum(vcpu.hypercalls for vcpu in self.cpus)
