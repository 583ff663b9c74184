"""Builds what is mounted: machine, kernel, engine and files, and whoever keeps them going.

The one module that knows every room.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from emulated_kernel.host_events import HostEvents
from emulated_kernel.image import KernelImage
from emulated_kernel.images import is_linux, load_image
from emulated_kernel.machine import Machine
from emulated_kernel.modules import Modules
from emulated_kernel.network import Network
from emulated_kernel.procfs import HostProcess, read_process
from emulated_kernel.tasks import CallResult, Task, Tasks
from emulated_kernel.workload import TICK_HZ, Workload
from ftracefs.bare_session import BareSession, load_ftrace
from ftracefs.files.reset import FirstValues
from ftracefs.files.table import build_tree
from ftracefs.ftrace import function_probe
from ftracefs.guest import load_guest
from ftracefs.linux_session import LinuxSession
from ftracefs.mount.callers import Callers
from ftracefs.mount.guest_files import GuestFiles
from ftracefs.mount.mirrored import IsolatedCallers, MirroredCallers
from ftracefs.mount.tracefs import Options, Tracefs
from ftracefs.trace.tracing import FunctionCall, Tracing

SCRIPT = HostProcess(pid=1000, start_time=0, ppid=1, comm="script", cpu=0)
"""The one task of an isolated session."""

NET_HZ = 5.0


class Session:
    """A running tracefs without its mount. `close` ends every thread of it."""

    def __init__(self, options: Options) -> None:
        self.image: KernelImage = load_image(None, options.modules)
        self._isolated = options.isolated
        self.machine = Machine(self.image, nr_cpus=options.cpus, clock=options.clock)
        try:
            self._start(options)
        except BaseException:
            self.machine.close()
            raise

    def _start(self, options: Options) -> None:
        machine, image = self.machine, self.image
        guest = load_guest(image.labels)
        self.ftrace = load_ftrace(machine, image, guest)
        machine.boot()
        self.modules = Modules(machine, image.modules)
        self.ftrace.watch(self.modules)
        machine.run(self._load_modules)
        self.tasks = Tasks(machine)
        self.tracing = machine.run(
            lambda: Tracing(
                machine,
                image,
                self.ftrace,
                guest,
                modules=self.modules,
                acting_cpu=lambda: self.tasks.acting.number,
                call_function=self.call_function,
            )
        )
        self.tasks.quiet = self._paused
        self.workload = Workload(machine)
        self.host_events: HostEvents | None = None
        self.root = build_tree(self.tracing, pure=options.pure)
        first_values = machine.run(lambda: FirstValues(self.tracing, self.root))
        self.reset = lambda: machine.run(first_values.restore)
        self.callers: Callers
        if options.isolated:
            self.callers = IsolatedCallers(machine)
            machine.run(lambda: self.tasks.adopt(SCRIPT))
        else:
            guest_files = GuestFiles(machine)
            machine.run(lambda: guest_files.create(self.root))
            self.host_events = HostEvents(machine, self.tasks)
            self.callers = mirrored = MirroredCallers(
                machine, self.tasks, guest_files, self.host_events.catch_up
            )
            self.ftrace.text_poke.between_phases = self._let_others_run
            self.ftrace.text_poke.others_running = lambda: machine.nr_cpus > 1
            self.workload.start("tick", TICK_HZ, lambda: self._tick(mirrored))
            self.network = Network(machine)
            self.workload.start("net", NET_HZ, self.network.traffic)

    def _tick(self, mirrored: MirroredCallers) -> int:
        turns = self.workload.tick_or_rest()
        mirrored.settle_stats()
        return turns

    def kallsyms_text(self) -> str:
        """The symbols of kernel, engine and modules, as /proc/kallsyms has them."""
        return self.machine.run(self.ftrace.kallsyms.text)

    def _load_modules(self) -> None:
        for name in self.modules.available:
            self.modules.load_module(name)

    def close(self) -> None:
        """Switch the machine off, and with it what runs by itself; events have nobody then."""
        self.machine.close()
        if self.host_events is not None:
            self.host_events.close()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Nothing is recorded meanwhile, profiled or measured, and no command does anything."""
        buffers = [tr.buffer for tr in self.tracing.trace_arrays()]
        for buffer in buffers:
            buffer.record_disable()
        try:
            with (
                self.ftrace.profiler.quiet(),
                self.tracing.stack_tracer.quiet(),
                function_probe.quiet(self.ftrace),
            ):
                yield
        finally:
            for buffer in buffers:
                buffer.record_enable()

    def _let_others_run(self) -> None:
        """Between two steps of a text patch the other vCPUs take an interrupt each."""
        for vcpu in self.machine.cpus:
            if vcpu is not self.tasks.acting and vcpu.may_be_interrupted:
                self.machine.interrupt(vcpu, "asm_sysvec_apic_timer_interrupt")

    def call_function(self, call: FunctionCall) -> CallResult:
        """Run a function as its caller's task (the file emulator/call); may take its time."""
        task = self.machine.run(lambda: self._task_of(call.pid))
        slices = self.tasks.call_slices(task, call.address, call.arguments, call.count)
        return self.machine.run_sliced(slices)

    def _task_of(self, pid: int) -> Task:
        process = None if self._isolated else read_process(pid)
        return self.tasks.adopt(SCRIPT) if process is None else self.tasks.task_of(process)


def build(options: Options) -> Tracefs:
    """What `ftracefs mount` mounts. Raises ImageError for a kernel that cannot be run."""
    session: Session | BareSession | LinuxSession
    if options.kernel is None:
        session = Session(options)
    elif is_linux(options.kernel):
        session = LinuxSession(options)
    else:
        session = BareSession(options)
    return Tracefs(
        session.root, session.callers, session.close, session.reset, session.kallsyms_text
    )
