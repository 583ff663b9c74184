"""A PC that runs a kernel of its own: processors, RAM, and the devices of the 1980s.

Unlike the built-in machine its guest runs all the time, on the machine thread, between the jobs of
others. It stands still at `hlt` until a device wants something. Time is the host's or virtual
(guest_clock.py). With a virtual one the guest runs only between `rouse` and `settle`, and comes to
rest where it is idle: what the host does then, it does at a point of the guest's own choice.

A guest that can go on no more (a triple fault, a reset, halted for good, an error of Unicorn's) is
dead: `failure` says why, what is asked of it raises GuestDeadError, and the host lives on.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.assembly import Assembly
from emulated_kernel.errors import EmulatedKernelError, GuestDeadError, GuestFault, GuestTimeout
from emulated_kernel.image import KernelImage
from emulated_kernel.linux.acpi import PowerManagement
from emulated_kernel.linux.devices import Bus, Cmos, Keyboard, Pic, Pit, Uart, lapic
from emulated_kernel.linux.guest_clock import TSC_KHZ_STEP, GuestClock, RealClock, VirtualClock
from emulated_kernel.linux.memory import (
    ENGINE_TEXT,
    ENGINE_TEXT_BYTES,
    HOST_TEXT,
    PcMemory,
)
from emulated_kernel.linux.processors import Processors
from emulated_kernel.linux.vmlinux import Vmlinux
from emulated_kernel.machine import thread
from emulated_kernel.machine.base import EmulatedMachine, Processor
from emulated_kernel.machine.clock import ClockSource, GuestTime
from emulated_kernel.machine.pc_cpu import INT3, Cpuid, PcCpu, Stop, native_cpuid
from emulated_kernel.machine.self_test import native_hooks_work

log = logging.getLogger(__name__)

_TIMER_LINE, _COM2_LINE, _COM1_LINE = 0, 3, 4
HOST_LINE = 5  # of the device that the host is (host_device.S)
_COM1, _COM2 = 0x3F8, 0x2F8
_CYC2NS_OFFSET = 8  # struct cyc2ns_data: multiplier, shift, offset
_NAG_S = 0.0005
_BETWEEN_S = 0.0005  # that the guest runs between two steps of a text patch
_REST_S = 0.5  # of virtual time, after which a guest that is never idle is taken to be at rest
STACK_BYTES = 16384  # THREAD_SIZE, of the guest's too
_SYSV_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
CONSOLE_BYTES, _LINE_BYTES = 1 << 18, 1 << 12
_APIC, _TSC_DEADLINE, _X2APIC, _RDRAND = 1 << 9, 1 << 24, 1 << 21, 1 << 30
_CRYSTAL_HZ = 1_000_000 * TSC_KHZ_STEP  # of the APICs' timers, too
_TOPOLOGY, _TOPOLOGY_V2 = 0x0B, 0x1F


def cpuid_leaves(tsc_khz: int, cpus: int = 1) -> list[Mapping[int, Cpuid]]:
    """What is told otherwise than the model would: which processor of how many, and how fast its
    counter runs. One alone has no APIC."""
    _, *vendor = native_cpuid(0)
    eax, ebx, ecx, edx = native_cpuid(1)
    mhz = tsc_khz // 1000
    ecx &= ~(_TSC_DEADLINE | _X2APIC | _RDRAND)
    edx = edx | _APIC if cpus > 1 else edx & ~_APIC
    return [
        {
            0x00: (0x16, vendor[0], vendor[1], vendor[2]),
            0x01: (eax, ebx & 0x00FFFFFF | number << 24, ecx, edx),
            _TOPOLOGY: (0, 0, 0, 0),
            0x15: (1000, tsc_khz // TSC_KHZ_STEP, _CRYSTAL_HZ, 0),
            0x16: (mhz, mhz, 100, 0),
            _TOPOLOGY_V2: (0, 0, 0, 0),
        }
        for number in range(cpus)
    ]


class Console:
    """What came out of a serial line, the last of it."""

    def __init__(self) -> None:
        self._text = bytearray()
        self.on_line: Callable[[bytes], None] = lambda line: None
        self._line = bytearray()

    def put(self, data: bytes) -> None:
        for byte in data:
            if byte != 0x0D:
                self._put(byte)

    def _put(self, byte: int) -> None:
        self._text.append(byte)
        self._line.append(byte)
        if byte == 0x0A or len(self._line) > _LINE_BYTES:
            line, self._line = bytes(self._line), bytearray()
            if len(self._text) > CONSOLE_BYTES:
                del self._text[: len(self._text) - CONSOLE_BYTES // 2]
                del self._text[: self._text.find(b"\n") + 1]
            self.on_line(line.rstrip())

    def text(self) -> bytes:
        return bytes(self._text)

    def restore(self, text: bytes) -> None:
        self._text, self._line = bytearray(text), bytearray()


class PcProcessor(Processor):
    """One of the PC's processors as the engine sees it."""

    def __init__(self, number: int, machine: PcMachine) -> None:
        super().__init__(number, machine.memory, machine.memory.percpu(number))
        self._machine = machine
        machine.memory.set_u32(self.percpu + CONSTANTS["CPU_NUMBER"], number)
        self.set_word("PERCPU_SELF", self.percpu)
        self._current_at = self._pid = 0

    def knows(self, current_at: int, pid: int) -> None:
        """Where the kernel has the running task, and the offset of its pid there."""
        self._current_at, self._pid = current_at, pid

    @property
    def current_of_kernel(self) -> int:
        return self.memory.u64(self._current_at)

    @property
    def current_pid(self) -> int:
        return self.memory.u32(self.current_of_kernel + self._pid)

    def get(self, *names: str) -> tuple[int, ...]:
        return self._machine.processors.registers(self.number, *names)

    def set(self, **values: int) -> None:
        self._machine.processors.switch_to(self.number)
        self._machine.cpu.set(**values)


class PcMachine(EmulatedMachine):
    """The machine, switched off until `power_on`.

    `console` is what the first serial line shows; the second one is `line`, whose bytes go to
    `on_line_output`. Of several processors one runs at a time (processors.py).
    """

    memory: PcMemory
    cpus: list[PcProcessor]

    def __init__(
        self,
        *,
        tsc_khz: int,
        cpus: int = 1,
        is_virtual: bool = False,
        native: bool | None = None,
    ) -> None:
        super().__init__()
        self.tsc_khz = tsc_khz
        self.memory = PcMemory(cpus)
        self.console = Console()
        self.on_line_output: Callable[[bytes], None] = lambda data: None
        self.pic = Pic(lambda: self._want_interrupt())
        self.pit = Pit(lambda: self.time.seconds(), self._deadline_changed)
        self.line = Uart(_COM2, lambda data: self.on_line_output(data), self._raise(_COM2_LINE))
        com1 = Uart(_COM1, self.console.put, self._raise(_COM1_LINE))
        self.devices: dict[str, Any] = {
            "pic": self.pic,
            "pit": self.pit,
            "com1": com1,
            "com2": self.line,
            "cmos": Cmos(lambda: self.time.date()),
        }
        leaves = cpuid_leaves(tsc_khz, cpus)
        self.processors = Processors(
            cpus,
            self.memory,
            self.pic,
            leaves,
            apic_hz=_CRYSTAL_HZ,
            stands_until=lambda: self.stands_until(),
            switched=self._show_open_records,
            now=lambda: self.time.seconds(),
            wanted=lambda: self.cpu.hooks.want_turn(),
            changed=self._deadline_changed,
        )
        others = [Keyboard()] if cpus == 1 else [Keyboard(), PowerManagement()]
        self.cpu = PcCpu(
            self.memory.ram,
            Bus([*self.devices.values(), *others]),
            leaves[0],
            registers=(lapic.BASE, self.processors) if cpus > 1 else None,
            native=native_hooks_work() if native is None else native,
            counted=is_virtual,
            on_interrupt=self._on_interrupt,
        )
        self._virtual = VirtualClock(self.cpu.hooks) if is_virtual else None
        self.time: GuestClock = self._virtual or RealClock(self.cpu.state)
        self.processors.attach(self.cpu)
        self.memory.walk = self.cpu.physical
        self.cpus = [PcProcessor(number, self) for number in range(cpus)]
        # By the address behind a hypercall of the host's own code in the guest.
        self.host_stops: dict[int, Callable[[], bool]] = {}
        # Both of the first processor: it is about to run on; how long it stands still for the host.
        self.before_guest: Callable[[], None] = lambda: None
        self.stands_until: Callable[[], float | None] = lambda: None
        self.failure: str | None = None
        self.on_failure: list[Callable[[], None]] = []
        self._is_on = self._has_engine = False
        self._is_driven = False
        self._is_changed = True  # what says when the guest is due
        self._interrupts = 0
        self._is_at_rest = False
        self._rest_by: float | None = None
        self._wanted = 0  # how many want something of it
        self._on_rest: list[Callable[[], None]] = []
        self._clock_changed = threading.Condition()
        self._timer = threading.Thread(target=self._nag, name="pc-timer", daemon=True)
        if not is_virtual:
            self._timer.start()
        self._start_thread()

    # --- switches --------------------------------------------------------------------------------

    def power_on(self) -> None:
        """Let the guest run on from what its processor's state says."""
        self.run(self._power_on)

    def _power_on(self) -> None:
        self._set_clock(0)
        self._is_on = self._is_changed = True

    def _set_clock(self, start_ns: int) -> None:
        guest = GuestTime(lambda: self.time.tsc, self.tsc_khz, start_ns)
        percpu = [cpu.percpu for cpu in self.cpus]
        self.clock = ClockSource(self.memory, percpu, "real", guest=guest)

    def close(self) -> None:
        super().close()
        if not self.time.is_virtual:
            with self._clock_changed:
                self._clock_changed.notify()
            self._timer.join()
        self.cpu.close()

    def check_alive(self) -> None:
        """Raise GuestDeadError when the guest runs no more."""
        if self.failure is not None:
            raise GuestDeadError(self.failure)

    def die(self, why: str) -> None:
        """The guest is not to run any more."""
        if self.failure is None:
            self.failure = self._last_words() or why
            self.pit.stop()
            log.error("the guest is dead, what it would have to do is EIO now: %s", self.failure)
            for callback in self.on_failure:
                callback()

    # --- interrupts ------------------------------------------------------------------------------

    def _raise(self, line: int) -> Callable[[], None]:
        return lambda: self.raise_line(line)

    def raise_line(self, line: int) -> None:
        """An edge on an interrupt line."""
        self.pic.raise_line(line)
        self._want_interrupt()

    def _want_interrupt(self) -> None:
        """A device's interrupt waits, for the first processor."""
        self._is_changed = True
        if self.processors.number == 0:
            self.cpu.hooks.want_interrupt()
        else:
            self.cpu.hooks.want_turn()

    @property
    def _deadline(self) -> float | None:
        """When a timer is due."""
        return min(
            (end for end in (self.pit.deadline, *self.processors.deadlines()) if end is not None),
            default=None,
        )

    def _deadline_changed(self) -> None:
        self._is_changed = True
        if self._virtual is None:
            with self._clock_changed:
                self._clock_changed.notify()
        else:
            every = (self._deadline, self._rest_by, self.processors.turn_ends)
            ends = [end for end in every if end is not None]
            self._virtual.stop_at(min(ends, default=None))

    def _nag(self) -> None:
        """Stop the guest when its timer is due, until it has been seen to."""
        while not self._off.is_set():
            with self._clock_changed:
                ends = [end for end in (self._deadline, self.processors.turn_ends) if end]
                left = min(ends) - time.monotonic() if ends else None
                if left is None or left > 0:
                    self._clock_changed.wait(left)
                    continue
            if self.processors.count == 1:
                self.cpu.hooks.want_interrupt()
            else:
                self.cpu.hooks.want_turn()
            self._off.wait(_NAG_S)

    def _on_interrupt(self, vector: int) -> bool:
        """A hypercall of the engine's code, or int3 while text is being patched."""
        processor = self.cpus[self.processors.number]
        if vector == INT3:
            return processor.int3 is not None and processor.int3(
                processor, processor.get("rip")[0] - 1
            )
        stop = self.host_stops.get(processor.get("rip")[0])
        if stop is not None:
            return stop()
        if not self._has_engine:
            return False
        processor.hypercalls += 1
        self._hypercall(processor, processor.get("rax")[0] & 0xFFFFFFFF)
        return True

    # --- running ---------------------------------------------------------------------------------

    def rouse(self) -> None:
        """Somebody wants something of the guest; on the machine thread."""
        self._is_changed = True
        self._wanted += 1
        if self._virtual is not None:
            self._is_at_rest, self._rest_by = False, None
            self._deadline_changed()

    def settle(self, then: Callable[[], None]) -> None:
        """The guest has done what was wanted; `then` is called when it has come to rest."""
        if self._virtual is None:
            then()
            return
        self._wanted = max(self._wanted - 1, 0)
        self._on_rest.append(then)
        if not self._wanted:
            self._rest_by = self._virtual.seconds() + _REST_S
            self._deadline_changed()

    def _come_to_rest(self) -> None:
        if self._rest_by is None or self._virtual is None:
            return
        if not self.processors.somebody_may_go_on or self._virtual.seconds() >= self._rest_by:
            self._is_at_rest, self._rest_by = True, None
            callbacks, self._on_rest = self._on_rest, []
            for callback in callbacks:
                callback()

    def _background_due(self) -> float | None:
        if not self._is_on or self._is_at_rest or self.failure is not None:
            return None
        if self.processors.somebody_may_go_on:
            return 0.0
        ends = [end for end in (self._deadline, self.stands_until()) if end is not None]
        if self._virtual is not None:
            return 0.0 if ends else None
        return min(ends, default=None)

    def _background_changed(self) -> bool:
        changed, self._is_changed = self._is_changed, False
        return changed

    def _interrupt_background(self) -> None:
        self.cpu.hooks.want_turn()

    def _allow_background(self) -> None:
        self.cpu.hooks.clear_turn()

    def _background(self) -> None:
        if not self._is_on or self._is_at_rest or self.failure is not None:
            return
        try:
            self._run_guest()
            self._come_to_rest()
        except EmulatedKernelError as error:
            self.die(str(error))
        except Exception as error:
            log.exception("running the guest failed")
            self.die(f"internal error: {error!r}")

    def _run_guest(self) -> None:
        cpu, state = self.cpu, self.cpu.state
        self._is_changed = True
        cpu.hooks.clear_interrupt()
        self._skip_idle_time()
        if self.pit.expire():
            self.pic.raise_line(_TIMER_LINE)
        processors = self.processors
        processors.take_turns()
        if processors.number == 0:
            self.before_guest()
            if self.failure is not None:
                return
        waits = processors.has_interrupt()
        if waits and state.may_be_interrupted:
            cpu.deliver_interrupt(processors.acknowledge())
            self._interrupts += 1
            processors.is_halted = False
            waits = processors.has_interrupt()
        elif processors.is_halted or processors.stands:
            return
        if waits:
            cpu.hooks.want_interrupt()
        if cpu.run() is Stop.HALT:
            state.end_interrupt_shadow()
            processors.is_halted = True
            if not cpu.is_behind_hlt:
                self.die(f"triple fault at {cpu.rip:#x}")
            elif processors.all_have_stopped:
                self.die("the guest has halted for good")

    def _skip_idle_time(self) -> None:
        deadline = self._deadline
        if self._virtual is None or deadline is None:
            return
        if not self.processors.somebody_may_go_on:
            self._virtual.jump_to(deadline)

    def run_guest(self) -> None:
        """Let it run until it stops, for whatever reason; on the machine thread."""
        self.cpu.hooks.clear_turn()
        self._background()

    @property
    def guest_waits(self) -> bool:
        """Whether it does nothing before a device wants something."""
        due = self._background_due()
        return due is None or due > time.monotonic()

    @property
    def is_coming_to_rest(self) -> bool:
        """Whether it is not where time stands still, and will be without anything more."""
        is_wanted = self._wanted or self.failure is not None or not self._is_on
        return self._virtual is not None and not self._is_at_rest and not is_wanted

    def wait_for_guest(self, timeout: float) -> None:
        """Sleep until it has something to do again."""
        due = self._background_due()
        left = timeout if due is None else min(timeout, due - time.monotonic())
        if left > 0:
            time.sleep(left)

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Who has the machine lets the guest run in there: he gets it back now and then."""
        outer, self._is_driven = self._is_driven, True
        try:
            yield
        finally:
            self._is_driven = outer

    def _on_watch(self) -> None:
        if self._is_driven:
            self.cpu.hooks.want_turn()

    def let_guest_run(self) -> None:
        """Between two steps of a text patch: the guest goes on, and may meet an int3 of ours."""
        if not self._is_on or not self.processors.somebody_may_go_on or self._is_at_rest:
            return
        hooks = self.cpu.hooks
        hooks.clear_turn()
        hooks.set("int3_to_host", 1)
        timer = threading.Timer(_BETWEEN_S, hooks.want_turn)
        timer.start()
        try:
            self._background()
        finally:
            hooks.set("int3_to_host", 0)
            timer.cancel()
            timer.join()

    def _last_words(self) -> str | None:
        """The panic's own line, if there was one."""
        text = self.console.text()
        at = text.rfind(b"Kernel panic")
        return None if at < 0 else text[at:].split(b"\n", 1)[0].decode("utf-8", "replace")

    # --- as a whole ------------------------------------------------------------------------------

    def save_devices(self) -> dict[str, Any]:
        """What `restore_devices` takes; on the machine thread."""
        devices = {name: device.save() for name, device in self.devices.items()}
        processors = self.processors.save(lambda state: base64.b64encode(state).decode())
        return {"devices": devices, "processors": processors, "interrupts": self._interrupts}

    def restore_devices(self, saved: dict[str, Any]) -> None:
        """A guest that was kept had been told all that was wanted of it."""
        self._is_at_rest = self.time.is_virtual
        for name, device in self.devices.items():
            device.restore(saved["devices"][name])
        self.processors.restore(saved["processors"], base64.b64decode)
        self._interrupts = saved["interrupts"]

    # --- the engine's side -----------------------------------------------------------------------

    def enter_host_code(self, code: Assembly, user_stop: int) -> None:
        """Load the host's own code, from which it is called, and from the address `user_stop`."""
        self.load_segments(dict(code.segments))
        hooks = self.cpu.hooks
        hooks.set("hypercalls_start", ENGINE_TEXT)
        hooks.set("hypercalls_bytes", ENGINE_TEXT_BYTES)
        hooks.set("user_stop", user_stop)
        self._return, self._returned = (code.labels[n] for n in ("host_return", "host_return_halt"))

    def take_kernel(self, image: KernelImage, vmlinux: Vmlinux) -> None:
        """What runs is `image`: from now on functions of it and of the engine can be called."""
        self.image = image
        offsets = vmlinux.symbol("__per_cpu_offset")
        self._gs_bases = [self.memory.u64(offsets + 8 * cpu.number) for cpu in self.cpus]
        assert image.linux is not None
        for cpu, base in zip(self.cpus, self._gs_bases, strict=True):
            cpu.knows(base + image.linux.current, image.linux.pid)
        self._set_clock(self._sched_clock_start(vmlinux))
        hooks = self.cpu.hooks
        hooks.set("uninterrupted_start", ENGINE_TEXT)
        hooks.set("uninterrupted_bytes", HOST_TEXT - ENGINE_TEXT)
        self._has_engine = True
        self._stack = self.alloc(STACK_BYTES) + STACK_BYTES
        self._show_open_records()

    def _show_open_records(self) -> None:
        """Have the hooks look at the word of the processor that runs."""
        if self._has_engine:
            percpu = self.memory.physical(self.cpus[self.processors.number].percpu)
            at = self.memory.host_address + percpu + CONSTANTS["OPEN_RECORDS"]
            self.cpu.hooks.set("open_records", at)

    def _sched_clock_start(self, vmlinux: Vmlinux) -> int:
        """What local_clock() would have been at 0 of the counter (arch/x86/kernel/tsc.c)."""
        cyc2ns, offset = (vmlinux.symbols.get(n) for n in ("cyc2ns", "__sched_clock_offset"))
        if cyc2ns is None or offset is None:
            return 0
        words = self.memory.u64(self._gs_bases[0] + cyc2ns + _CYC2NS_OFFSET) + self.memory.u64(
            offset
        )
        return ((words + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)

    def flush_text(self, start: int, end: int) -> None:
        self.cpu.invalidate(self.memory.physical(start), end - start)

    def stack_end(self, cpu: Processor) -> int:
        (rsp,) = cpu.get("rsp")
        return (rsp | STACK_BYTES - 1) + 1

    def call(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        address = self.image.labels[function] if isinstance(function, str) else function
        return self.run(lambda: self._bare_call(address, arguments))

    def _bare_call(self, address: int, arguments: tuple[int, ...]) -> int:
        """Wherever the guest stands, it is not in the engine's code: as if by an NMI."""
        self.check_alive()
        cpu = self.cpu
        saved, halted = cpu.state.save(), self.processors.is_halted
        gs_base = self._gs_bases[self.processors.number]
        stack = self._stack - 64
        for index, value in enumerate(arguments[len(_SYSV_ARGUMENTS) :]):
            self.memory.set_u64(stack + 8 + 8 * index, value)
        self.memory.set_u64(stack, self._return)
        cpu.enter_kernel(address, stack, gs_base)
        cpu.set(**dict(zip(_SYSV_ARGUMENTS, arguments, strict=False)))
        assert self.image.linux is not None
        count_at = gs_base + self.image.linux.preempt_count
        count = self.memory.u32(count_at)
        outer, self._running, self._slice_since = self._running, cpu, time.monotonic()
        if self._virtual is not None:
            self._virtual.stop_at(None)  # it is not to be stopped
        try:
            # Interrupts are off: it runs to its end, whoever waits for a turn meanwhile.
            while cpu.rip != self._returned:
                cpu.hooks.clear_turn()
                stop = cpu.run()
                if self._timed_out:
                    raise GuestTimeout(f"no return within {thread.BUDGET_S:g} s")
                if stop is Stop.HALT and cpu.rip != self._returned:
                    raise GuestFault(f"hlt at {cpu.rip - 1:#x}", vector=-1, rip=cpu.rip - 1)
            return cpu.get("rax")[0]
        except EmulatedKernelError:
            self.forget_frames(self._stack)
            self.memory.set_u32(count_at, count)
            raise
        finally:
            self._timed_out = False
            self._running, self._slice_since = outer, time.monotonic()
            cpu.state.restore(saved, forget_translations=False)
            self._is_changed = True
            self.processors.is_halted = halted
            if self._virtual is not None:
                self._deadline_changed()

    def forget_frames(self, stack_end: int) -> None:
        """Calls on a stack that will not return: their frames go off the shadow stack."""
        memory, task = self.memory, self.cpus[self.processors.number].current
        if not task:
            return
        base, top = (memory.u64(task + CONSTANTS[f"TASK_RET_{end}"]) for end in ("BASE", "TOP"))
        stack = range(stack_end - STACK_BYTES, stack_end)
        frame, retp = CONSTANTS["FG_SIZE"], CONSTANTS["FG_RETP"]
        while top > base and memory.u64(top - frame + retp) in stack:
            top -= frame
        memory.set_u64(task + CONSTANTS["TASK_RET_TOP"], top)
