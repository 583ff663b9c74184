"""Everything that tracing is made of, for the files to hold on to."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emulated_kernel.console import Console
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.image import KernelImage
from emulated_kernel.machine import EmulatedMachine
from emulated_kernel.modules import Modules
from emulated_kernel.static_call import StaticCalls
from emulated_kernel.tasks import CallResult
from ftracefs.errors import TracefsError
from ftracefs.ftrace import Ftrace
from ftracefs.ftrace.state import GuestCode
from ftracefs.trace.array_buffer import EMPTY_BUFFER_SIZE, Snapshots
from ftracefs.trace.clocks import TRACE_CLOCKS, Clocks
from ftracefs.trace.events.event_commands import EventCommands
from ftracefs.trace.events.table import Events, own_events
from ftracefs.trace.ftrace_dump import DumpOnOops
from ftracefs.trace.function_commands import FunctionProbeOps
from ftracefs.trace.options import TRACE_DEFAULT_FLAGS, ZEROED_TRACE_FLAGS
from ftracefs.trace.output.header import PREEMPT_MODEL, UTS_RELEASE
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.saved_cmdlines import SavedCmdlines
from ftracefs.trace.saved_tgids import SavedTgids
from ftracefs.trace.sched_switch import SchedSwitch
from ftracefs.trace.trace_array import TRACE_BUF_SIZE_DEFAULT, TraceArray
from ftracefs.trace.trace_stack import StackTracer
from ftracefs.trace.tracers import TRACE_TYPES
from ftracefs.trace.tracers.irqsoff import CriticalTimings
from ftracefs.trace.tracers.sched_wakeup import WakeupTracing

_PREEMPT_MODES = {0: "server", 1: "desktop", 2: "preempt"}  # preempt_dynamic_mode


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function that a caller wants run: `arguments` in registers, `count` times in a row.

    `is_interrupted` tells whether he got a signal; it is for his thread.
    """

    pid: int
    name: str
    address: int
    arguments: tuple[int, ...]
    count: int
    is_interrupted: Callable[[], bool] = lambda: False


class Tracing:
    """The tracing of one machine: `global_trace` is the top level's trace array.

    `guest` is the engine's code as assembled; `modules` are the kernel's, which ftrace watches, and
    if not given none is loaded. `acting_cpu` tells on which CPU the caller of the
    file operation at hand runs. `call_function` runs a function as its caller's task; it is called
    on a thread of the caller's own, where it may wait for the machine. `events` are those
    of a kernel that has others than ours.
    """

    def __init__(
        self,
        machine: EmulatedMachine,
        image: KernelImage,
        ftrace: Ftrace,
        guest: GuestCode,
        *,
        modules: Modules | None = None,
        acting_cpu: Callable[[], int] = lambda: 0,
        call_function: Callable[[FunctionCall], CallResult] | None = None,
        events: Events | None = None,
    ) -> None:
        self.machine = machine
        self.image = image
        self.ftrace = ftrace
        self.guest = guest
        if modules is None:
            modules = Modules(machine, image.modules)
            ftrace.watch(modules)
        self.modules = modules
        self.acting_cpu = acting_cpu
        self.call_function = call_function or self._call_outside_tasks
        self.ring_buffer_expanded = False
        self.clocks = Clocks(machine)
        self.tracepoints = ftrace.tracepoints
        events = events or own_events(self.tracepoints.exists)
        self.event_calls, self.event_functions = events.calls, events.functions
        self.symbols = SymbolText(ftrace.kallsyms)
        self.saved_cmdlines = SavedCmdlines()
        self.stack_tracer = StackTracer(ftrace, self.label)
        self.console = Console(machine)
        self.probe_ops = FunctionProbeOps(self)
        self.dump_on_oops = DumpOnOops(self)
        self.event_commands = EventCommands(self)
        self.saved_tgids = SavedTgids()
        self.sched_switch = SchedSwitch(
            machine, self.tracepoints, self.label, self.saved_cmdlines, self.saved_tgids
        )
        # Of all trace arrays together: Linux 6.1 keeps them in the tracers.
        self.tracer_flags = {
            option.name: option.default for tracer in TRACE_TYPES for option in tracer.options
        }
        self.global_trace = TraceArray(
            self, "", ftrace.global_ops, EMPTY_BUFFER_SIZE, TRACE_DEFAULT_FLAGS
        )
        self._ftrace_trace_arrays = [self.global_trace]
        machine.memory.set_u64(self.label("global_trace_buffers"), self.global_trace.buffer.table)
        self.snapshots = Snapshots(self)
        self.static_calls = StaticCalls(machine.memory, image, ftrace.text_poke)
        for module in self.modules.loaded.values():
            self.static_calls.add(module)
        self.modules.coming.append(self.static_calls.add)
        self.modules.going.append(self.static_calls.remove)
        self.critical_timings = CriticalTimings(self)
        self.wakeup_tracing = WakeupTracing(self)
        machine.after_slice.append(self._after_slice)

    @property
    def release(self) -> str:
        """The kernel's, as uname(2) tells it."""
        return UTS_RELEASE if self.image.linux is None else self.image.name

    @property
    def preempt_model(self) -> str:
        """When the kernel lets a task be preempted, in the words of print_trace_header."""
        find = self.image.find
        mode = find("preempt_dynamic_mode")
        if find("rt_spin_lock") is not None:
            return "preempt_rt"
        if mode is not None:
            return _PREEMPT_MODES.get(self.machine.memory.u32(mode), "unknown")
        return PREEMPT_MODEL if find("preempt_schedule") is None else "preempt"

    def label(self, name: str) -> int:
        """The address of a function of the engine's own code."""
        return self.guest.labels[name]

    def printk(self, text: bytes) -> None:
        """Show a text on the console."""
        self.console.printk(text, self.clocks.read(self.clocks.words(TRACE_CLOCKS[0])))

    # --- trace arrays ----------------------------------------------------------------------------

    def trace_arrays(self) -> Sequence[TraceArray]:
        """Every trace array, the top level's first (ftrace_trace_arrays)."""
        return self._ftrace_trace_arrays

    def trace_array_create(self, name: str) -> TraceArray:
        """A trace array of its own, with the top level's options. EEXIST; ENOMEM."""
        if any(tr.name == name for tr in self._ftrace_trace_arrays):
            raise TracefsError(errno.EEXIST, name)
        ops = self.ftrace.ftrace_allocate_ftrace_ops(f"instances/{name}")
        flags = self.global_trace.trace_flags & ~ZEROED_TRACE_FLAGS
        try:
            tr = TraceArray(self, name, ops, TRACE_BUF_SIZE_DEFAULT, flags)
        except (MemoryError, TracefsError) as error:
            self.ftrace.ftrace_destroy_function_files(ops)
            raise TracefsError(errno.ENOMEM, f"no room for instance {name}") from error
        self._ftrace_trace_arrays.append(tr)
        return tr

    def remove_instance(self, tr: TraceArray) -> None:
        """Undo one `trace_array_create`. EBUSY while a file of it is open."""
        tr.remove_instance()
        self._ftrace_trace_arrays.remove(tr)

    def tracing_update_buffers(self) -> None:
        """Give the top level's buffer the size it has in use, unless one has been given."""
        if not self.ring_buffer_expanded:
            self.global_trace.expand_buffer()

    def _after_slice(self) -> None:
        for tr in self._ftrace_trace_arrays:
            tr.buffer.rb_wake_up_waiters()
            tr.max_buffer.buffer.rb_wake_up_waiters()

    # --- functions on demand ---------------------------------------------------------------------

    def _call_outside_tasks(self, call: FunctionCall) -> CallResult:
        value = 0
        try:
            for _ in range(call.count):
                value = self.machine.call(call.address, *call.arguments)
        except EmulatedKernelError as error:
            return CallResult(0, str(error))
        return CallResult(value)
