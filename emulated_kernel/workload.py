"""What keeps a quiet kernel from being dead: the timer tick and what arrives from outside.

Each source has a rate per second. The tick goes to every vCPU that stands idle or in user mode; its
handlers run the kernel's own timers, which wake the kernel's own threads. Frames arrive from a peer
on the network. All of it runs on the machine thread, at most a few hundred microseconds at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from emulated_kernel.machine import Machine, Rest
from emulated_kernel.machine.vcpu import IN_USER_MODE, Vcpu

TICK_HZ = 20.0


class Workload:
    """The sources that are on, and their rates; they end with the machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._events: dict[str, Callable[[], int | None]] = {}
        self._ends: dict[str, Callable[[], None]] = {}
        self._seen: dict[int, int] = {}
        self._ticks = 0
        self._left_out = 0.0  # when the turn of the tick would have been that is left out
        self.rates: dict[str, float] = {}

    def start(self, name: str, rate: float, event: Callable[[], int | None]) -> None:
        """Let `event` happen `rate` times a second; it replaces a source of that name.

        What it returns is in how many turns it is to happen again, if not in one.
        """
        self.stop(name)
        self.rates[name] = rate
        self._events[name] = event
        self._ends[name] = self._machine.every(1.0 / rate, event)

    def stop(self, name: str) -> None:
        """Switch a source off, if it is on; on the machine thread, or before it has begun."""
        end = self._ends.pop(name, None)
        if end is not None:
            end()
            del self.rates[name], self._events[name]

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
            if vcpu.rest in IN_USER_MODE and not vcpu.is_lost:
                self._park_when_quiet(vcpu)
            if vcpu.may_be_interrupted:
                if vcpu.word("WAKE_LIST"):  # left by another vCPU, whose IPI this is
                    self._machine.interrupt(vcpu, "asm_sysvec_call_function_single")
                self._machine.interrupt(vcpu, "asm_sysvec_apic_timer_interrupt")

    def tick_or_rest(self) -> int:
        """`tick` as the event of the source "tick": how many turns later it is needed again.

        A turn at which every vCPU is idle and gets none is left out, host and all; if somebody
        comes before it was to be, it is not.
        """
        self._machine.set_after_slice(self._stir, False)
        self.tick()
        if self._ticks % 2 or not self._all_idle():
            return 1
        self._ticks += 1
        self._left_out = time.monotonic() + 1 / self.rates["tick"]
        self._machine.set_after_slice(self._stir, True)
        return 2

    def _all_idle(self) -> bool:
        return all(
            vcpu.rest is Rest.IDLE and not vcpu.word("WAKE_LIST") for vcpu in self._machine.cpus
        )

    def _stir(self) -> None:
        """Run after every slice while a turn is to be left out."""
        if self._all_idle():
            return
        self._machine.set_after_slice(self._stir, False)
        left = self._left_out - time.monotonic()
        if left > 0 and "tick" in self._ends:
            self._ticks -= 1
            self._ends["tick"]()
            period = 1 / self.rates["tick"]
            self._ends["tick"] = self._machine.every(period, self._events["tick"], left)

    def _park_when_quiet(self, vcpu: Vcpu) -> None:
        if self._seen.get(vcpu.number) == vcpu.entries:
            self._machine.park(vcpu)
        self._seen[vcpu.number] = vcpu.entries
