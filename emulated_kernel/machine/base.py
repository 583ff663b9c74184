"""What every machine gives to the ftrace engine, whatever kernel runs on it and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.image import KernelImage
from emulated_kernel.machine.clock import ClockSource
from emulated_kernel.machine.memory import Memory
from emulated_kernel.machine.thread import MachineThread


class Processor(ABC):
    """A virtual CPU as the engine sees it: its registers and its per-CPU words.

    `percpu` is the guest-virtual address of its page of such words.
    """

    def __init__(self, number: int, memory: Memory, percpu: int) -> None:
        self.number = number
        self.memory = memory
        self.percpu = percpu
        self.hypercalls = 0
        self.int3: Callable[[Processor, int], bool] | None = None

    def word(self, name: str) -> int:
        """A u64 per-CPU word by its name in asm_offsets."""
        return self.memory.u64(self.percpu + CONSTANTS[name])

    def set_word(self, name: str, value: int) -> None:
        self.memory.set_u64(self.percpu + CONSTANTS[name], value)

    @property
    def current(self) -> int:
        """Address of the running task's task_struct, or of the engine's mirror of it."""
        return self.word("CURRENT_TASK")

    @property
    def current_of_kernel(self) -> int:
        """The kernel's own task_struct of whoever runs there now."""
        return self.current

    @property
    def current_pid(self) -> int:
        """Who runs there now, whether it has been traced or not."""
        return self.memory.u32(self.current + CONSTANTS["TASK_PID"])

    @abstractmethod
    def get(self, *names: str) -> tuple[int, ...]:
        """Registers of the stopped vCPU."""

    @abstractmethod
    def set(self, **values: int) -> None:
        """Set registers of the stopped vCPU."""


class EmulatedMachine(MachineThread):
    """A machine with `image` on it.

    `hypercalls` are the host's functions that the engine's guest code may ask for.
    """

    image: KernelImage
    memory: Memory
    cpus: Sequence[Processor]
    clock: ClockSource

    def __init__(self) -> None:
        super().__init__()
        self.hypercalls: dict[int, Callable[[Processor], None]] = {}
        # `call` in a process, where that makes a difference: then the function may sleep.
        self.call_in_process: Callable[..., int] = self.call

    @property
    def nr_cpus(self) -> int:
        return len(self.cpus)

    def alloc(self, size: int, align: int = 4096) -> int:
        """Zeroed guest memory for the host's own structures; its guest-virtual address."""
        return self.memory.alloc(size, align)

    def free(self, address: int) -> None:
        """Give back what `alloc` gave."""
        self.memory.free(address)

    def load_segments(self, segments: dict[str, tuple[int, bytes]]) -> None:
        """Put more code and data into RAM (the engine's, a module's)."""
        for address, data in segments.values():
            self.memory.write(address, data)
            # Asked about a page that is not executable Unicorn faults inside and remembers that:
            # the guest's next fault would be a double one.
            if data and self.memory.is_text(address):
                self.flush_text(address, address + len(data))

    def _hypercall(self, cpu: Processor, number: int) -> None:
        handler = self.hypercalls.get(number)
        if handler is None:
            raise EmulatedKernelError(f"hypercall {number}")
        handler(cpu)

    @property
    def hypercall_count(self) -> int:
        """Guest-to-host calls since the machine was made."""
        return sum(cpu.hypercalls for cpu in self.cpus)

    def flush_text(self, start: int, end: int) -> None:
        """Drop translations of [start, end) on every vCPU, as a sync_core IPI would."""
        raise NotImplementedError

    def call(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """Run a guest function to its return, outside any task, and return rax.

        It runs on a stack of the host's with whatever task is current, so it must not sleep. Raises
        GuestFault or GuestTimeout; the machine goes on.
        """
        raise NotImplementedError

    def stack_end(self, cpu: Processor) -> int:
        """Where the stack ends that a stopped vCPU stands on."""
        raise NotImplementedError
