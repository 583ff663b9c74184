"""What keeps a quiet kernel from being dead: the timer tick and what arrives from outside.

Each source has a rate per second. The tick goes to every vCPU that stands idle or in user mode; its
handlers run the kernel's own timers, which wake the kernel's own threads. Frames arrive from a peer
on the network. All of it runs on the machine thread, at most a few hundred microseconds at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from emulated_kernel.machine import Machine, Rest
from emulated_kernel.machine.vcpu import Vcpu

TICK_HZ = 20.0


class Workload:
    """The sources that are on, and their rates."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ends: dict[str, Callable[[], None]] = {}
        self._seen: dict[int, int] = {}
        self._ticks = 0
        self.rates: dict[str, float] = {}

    def start(self, name: str, rate: float, event: Callable[[], None]) -> None:
        """Let `event` happen `rate` times a second; it replaces a source of that name."""
        self.stop(name)
        self.rates[name] = rate
        self._ends[name] = self._machine.every(1.0 / rate, event)

    def stop(self, name: str) -> None:
        """Switch a source off, if it is on."""
        end = self._ends.pop(name, None)
        if end is not None:
            end()
            del self.rates[name]

    def stop_all(self) -> None:
        """Switch every source off."""
        for name in list(self._ends):
            self.stop(name)

    def tick(self) -> None:
        """One timer interrupt for each vCPU; a task that did nothing since the last one sleeps.

        A process of the host that makes no system call is computing or waiting, nobody knows
        which; its task leaves the vCPU to others. A vCPU that is idle gets every second tick only:
        Linux would stop the tick there until a timer is due.
        """
        self._ticks += 1
        for vcpu in self._machine.cpus:
            if vcpu.rest is Rest.IDLE and self._ticks % 2 and not vcpu.word("WAKE_LIST"):
                continue
            if vcpu.rest in {Rest.USER, Rest.CALL} and not vcpu.is_lost:
                self._park_when_quiet(vcpu)
            if vcpu.may_be_interrupted:
                if vcpu.word("WAKE_LIST"):  # left by another vCPU, whose IPI this is
                    self._machine.interrupt(vcpu, "asm_sysvec_call_function_single")
                self._machine.interrupt(vcpu, "asm_sysvec_apic_timer_interrupt")

    def _park_when_quiet(self, vcpu: Vcpu) -> None:
        if self._seen.get(vcpu.number) == vcpu.entries:
            self._machine.park(vcpu)
        self._seen[vcpu.number] = vcpu.entries
