"""Everything that tracing is made of, for the files to hold on to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.image import KernelImage
from emulated_kernel.machine import Machine
from emulated_kernel.modules import Modules
from emulated_kernel.tasks import CallResult
from ftracefs.ftrace import Ftrace
from ftracefs.ftrace.state import GuestCode
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.trace.array_buffer import EMPTY_BUFFER_SIZE, Snapshots
from ftracefs.trace.clocks import Clocks
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.saved_cmdlines import SavedCmdlines
from ftracefs.trace.sched_switch import SchedSwitch
from ftracefs.trace.trace_array import TraceArray


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function that a caller wants run: `arguments` in registers, `count` times in a row."""

    pid: int
    name: str
    address: int
    arguments: tuple[int, ...]
    count: int


class Tracing:
    """The tracing of one machine: `global_trace` is the top level's trace array.

    `guest` is the engine's code as assembled; `modules` are the kernel's, which ftrace watches, and
    if not given none is loaded. `acting_cpu` tells on which CPU the caller of the
    file operation at hand runs. `call_function` runs a function as its caller's task; it is called
    on a thread of the caller's own, where it may wait for the machine.
    """

    def __init__(
        self,
        machine: Machine,
        image: KernelImage,
        ftrace: Ftrace,
        guest: GuestCode,
        *,
        modules: Modules | None = None,
        acting_cpu: Callable[[], int] = lambda: 0,
        call_function: Callable[[FunctionCall], CallResult] | None = None,
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
        self.symbols = SymbolText(ftrace.kallsyms)
        self.saved_cmdlines = SavedCmdlines()
        self.sched_switch = SchedSwitch(machine, self.saved_cmdlines)
        percpu = [vcpu.percpu for vcpu in machine.cpus]
        buffer = RingBuffer(machine.memory, percpu, EMPTY_BUFFER_SIZE)
        self.global_trace = TraceArray(self, "", ftrace.global_ops, buffer)
        machine.memory.set_u64(self.label("global_trace_buffers"), buffer.table)
        self.snapshots = Snapshots(self)
        machine.after_slice.append(self._after_slice)

    def label(self, name: str) -> int:
        """The address of a function of the engine's own code."""
        return self.guest.labels[name]

    def trace_arrays(self) -> Iterable[TraceArray]:
        """Every trace array, the top level's first (ftrace_trace_arrays)."""
        return (self.global_trace,)

    def _after_slice(self) -> None:
        for tr in self.trace_arrays():
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
