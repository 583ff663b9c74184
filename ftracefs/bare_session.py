"""A session over a kernel of one's own, of which nothing is known but its functions.

No tasks, no system calls, no interrupts: `emulator/call` runs one function at a time, on the first
vCPU, as the one task there is.
"""

from __future__ import annotations

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.assembler import Assembly
from emulated_kernel.image import KernelImage
from emulated_kernel.images import load_image
from emulated_kernel.kallsyms import Kallsyms
from emulated_kernel.machine import EmulatedMachine, Machine, Vcpu
from ftracefs.files.reset import FirstValues
from ftracefs.files.table import build_tree
from ftracefs.ftrace import Ftrace
from ftracefs.guest import load_guest
from ftracefs.mount.mirrored import IsolatedCallers
from ftracefs.mount.tracefs import Options
from ftracefs.trace.tracing import Tracing

PID, COMM = 1000, "script"


def load_ftrace(machine: EmulatedMachine, image: KernelImage, guest: Assembly) -> Ftrace:
    """ftrace on a machine whose kernel has not run yet, with the engine's code in memory."""
    machine.load_segments(dict(guest.segments))
    kallsyms = Kallsyms()
    kallsyms.add("kernel", image.symbols)
    kallsyms.add("ftracefs", guest.symbols)
    return machine.run(lambda: Ftrace(machine, image, guest, kallsyms=kallsyms))


class BareSession:
    """A running tracefs without its mount. Raises ImageError for a file that is no such kernel."""

    def __init__(self, options: Options) -> None:
        self.image = load_image(options.kernel, options.modules)
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
        for vcpu in machine.cpus:
            machine.run(lambda vcpu=vcpu: self._add_task(vcpu))  # type: ignore[misc]
        self.tracing = machine.run(lambda: Tracing(machine, image, self.ftrace, guest))
        for name in self.tracing.modules.available:
            machine.run(lambda name=name: self.tracing.modules.load_module(name))  # type: ignore[misc]
        self.root = build_tree(self.tracing, pure=options.pure)
        first_values = machine.run(lambda: FirstValues(self.tracing, self.root))
        self.reset = lambda: machine.run(first_values.restore)
        self.callers = IsolatedCallers(machine)

    def _add_task(self, vcpu: Vcpu) -> None:
        """Who the records of a CPU are of."""
        memory = self.machine.memory
        task = self.machine.alloc(CONSTANTS["TASK_SIZE"])
        memory.set_u32(task + CONSTANTS["TASK_PID"], PID)
        memory.write(task + CONSTANTS["TASK_COMM"], COMM.encode().ljust(16, b"\0"))
        vcpu.set_word("CURRENT_TASK", task)
        vcpu.set_word("TRACE_CTX", PID << 32)

    def kallsyms_text(self) -> str:
        """The symbols of kernel and engine, as /proc/kallsyms has them."""
        return self.machine.run(self.ftrace.kallsyms.text)

    def close(self) -> None:
        """Stop the machine."""
        self.machine.close()
