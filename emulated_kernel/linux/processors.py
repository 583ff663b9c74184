"""The processors of a PC: one runs, the others are kept, and they take turns.

All of them are the one Unicorn instance's (machine/pc_cpu.py), so that there is one set of
translations whoever writes text. A processor's turn ends when it halts, after a while if others
have something to do, and when it interrupts another one, for it may be about to wait for that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from emulated_kernel.linux.devices.lapic import INIT, STARTUP, LocalApic
from emulated_kernel.linux.memory import PcMemory
from emulated_kernel.machine import cpu_state
from emulated_kernel.machine.pc_cpu import Cpuid, PcCpu, register_word

TURN_S = 0.001
_SHORT_TURN_S = 0.0001  # of who has been interrupted by another one that may be waiting


class Interrupts(Protocol):
    """The controller whose interrupts the first processor takes."""

    @property
    def pending(self) -> int | None: ...
    def acknowledge(self, line: int) -> int: ...


@dataclass(slots=True)
class _Processor:
    """`saved` is its state while another one runs; `begins_at` a page where it is to begin."""

    saved: bytes
    is_on: bool = False  # it has been started
    is_halted: bool = False
    begins_at: int | None = None


class Processors:
    """`count` processors. The first is on; it alone, it has no APIC.

    `cpuid` has each one's leaves. `stands_until` tells how long the first one is to do nothing but
    take interrupts. `switched` is called when another one runs, `wanted` when another one should
    have a turn, `changed` when `deadlines` or `turn_ends` come earlier.
    """

    def __init__(
        self,
        count: int,
        memory: PcMemory,
        pic: Interrupts,
        cpuid: list[Mapping[int, Cpuid]],
        *,
        apic_hz: int,
        stands_until: Callable[[], float | None],
        switched: Callable[[], None],
        now: Callable[[], float],
        wanted: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self.count = count
        self.number = 0  # of the one that runs
        self._memory, self._pic, self._cpuid = memory, pic, cpuid
        self._stands_until, self._switched, self._now = stands_until, switched, now
        self._wanted, self._changed = wanted, changed
        self._all = [_Processor(b"", is_on=number == 0) for number in range(count)]
        self.apics = [
            LocalApic(number, count, apic_hz, now, self._send, changed)
            for number in range(count if count > 1 else 0)
        ]
        self._preferred: int | None = None
        self.turn_ends: float | None = None  # by `now`, when others wait for theirs

    def attach(self, cpu: PcCpu) -> None:
        """`cpu` is what they are all made of."""
        self._cpu = cpu

    # --- the page of the APIC --------------------------------------------------------------------

    def read(self, offset: int) -> int:
        """A register of the APIC of the one that runs."""
        return self.apics[self.number].read(offset & ~15)

    def write(self, offset: int, value: int) -> None:
        self.apics[self.number].write(offset & ~15, value)

    def _send(self, mode: int, vector: int, to: list[int]) -> None:
        for number in to:
            processor = self._all[number]
            if mode == INIT:
                if number != self.number:
                    processor.is_on = False
                    self.apics[number].reset()
            elif mode == STARTUP:
                if not processor.is_on:
                    processor.begins_at = vector
            else:
                self.apics[number].request(vector)
            self.prefer(number)

    def prefer(self, number: int) -> None:
        """Somebody waits for what this one has to do."""
        if number != self.number:
            self._preferred = number
            self._wanted()

    # --- who runs --------------------------------------------------------------------------------

    @property
    def is_halted(self) -> bool:
        """Of the one that runs."""
        return self._all[self.number].is_halted

    @is_halted.setter
    def is_halted(self, value: bool) -> None:
        self._all[self.number].is_halted = value

    def deadlines(self) -> list[float]:
        """When one of their timers is due."""
        return [apic.deadline for apic in self.apics if apic.deadline is not None]

    def has_interrupt(self, number: int | None = None) -> bool:
        """Whether an interrupt waits for it (for the one that runs)."""
        number = self.number if number is None else number
        if not self.apics:
            return self._pic.pending is not None
        apic = self.apics[number]
        return apic.pending is not None or (apic.takes_pic and self._pic.pending is not None)

    def acknowledge(self) -> int:
        """Take the interrupt that waits for the one that runs; its vector."""
        if self.apics:
            apic = self.apics[self.number]
            vector = apic.pending
            if vector is not None:
                apic.acknowledge(vector)
                return vector
        line = self._pic.pending
        assert line is not None
        return self._pic.acknowledge(line)

    def _may_go_on(self, number: int) -> bool:
        processor = self._all[number]
        if processor.begins_at is not None:
            return True
        if not processor.is_on:
            return False
        stands = processor.is_halted or (number == 0 and self._stands_until() is not None)
        return not stands or (self.has_interrupt(number) and self._takes(number))

    @property
    def stands(self) -> bool:
        """The one that runs is to do nothing but take interrupts."""
        return self.number == 0 and self._stands_until() is not None

    def _takes(self, number: int) -> bool:
        """One that has halted with interrupts off is there no more."""
        return bool(self.registers(number, "eflags")[0] & cpu_state.EFLAGS_IF)

    @property
    def somebody_may_go_on(self) -> bool:
        return any(map(self._may_go_on, range(self.count)))

    @property
    def all_have_stopped(self) -> bool:
        """Nothing will ever happen again: each has halted with interrupts off, or is not on."""
        return all(
            not processor.is_on or (processor.is_halted and not self._takes(number))
            for number, processor in enumerate(self._all)
        )

    def take_turns(self) -> None:
        """Let the next one run, if it is its turn."""
        if self.count == 1:
            return
        for apic in self.apics:
            apic.expire()
        now = self._now()
        preferred, self._preferred = self._preferred, None
        others = [
            number % self.count
            for number in range(self.number + 1, self.number + self.count)
            if self._may_go_on(number % self.count)
        ]
        is_over = self.turn_ends is not None and now >= self.turn_ends
        if preferred in others:
            self.switch_to(preferred)
            self._set_turn(now + _SHORT_TURN_S)
        elif others and (is_over or not self._may_go_on(self.number)):
            self.switch_to(others[0])
            self._set_turn(now + TURN_S)
        elif not others:
            self.turn_ends = None
        elif self.turn_ends is None:
            self._set_turn(now + TURN_S)

    def _set_turn(self, ends: float) -> None:
        before, self.turn_ends = self.turn_ends, ends
        if before is None or ends < before:
            self._changed()

    def switch_to(self, number: int) -> None:
        """Keep the one that runs, and have another one run, by the same time stamp counter."""
        if number == self.number:
            return
        state = self._cpu.state
        tsc_offset = state.tsc_offset
        self._all[self.number].saved = state.save()
        to = self._all[number]
        if to.begins_at is not None:
            to.saved = self._cpu.startup_state(to.begins_at)
            to.begins_at, to.is_on, to.is_halted = None, True, False
        self.number = number
        self._memory.show_percpu(number)
        self._cpu.cpuid = self._cpuid[number]
        state.restore(to.saved)
        state.tsc_offset = tsc_offset
        self._switched()

    def registers(self, number: int, *names: str) -> tuple[int, ...]:
        """Of one of them; of `eflags` not the arithmetic ones if it does not run."""
        if number == self.number:
            return self._cpu.get(*names)
        saved = self._all[number].saved
        if not saved:
            return (0,) * len(names)
        return tuple(struct.unpack_from("<Q", saved, 8 * register_word(n))[0] for n in names)

    def cpl(self, number: int) -> int:
        """The privilege level at which one of them is."""
        state = self._cpu.state
        return state.cpl if number == self.number else state.cpl_of(self._all[number].saved)

    # --- as a whole ------------------------------------------------------------------------------

    def save(self, encode: Callable[[bytes], str]) -> dict[str, Any]:
        """What `restore` takes; the state of the one that runs is left to the caller."""
        return {
            "number": self.number,
            "apics": [apic.save() for apic in self.apics],
            "all": [[encode(p.saved), p.is_on, p.is_halted, p.begins_at] for p in self._all],
        }

    def restore(self, saved: dict[str, Any], decode: Callable[[str], bytes]) -> None:
        self.number = saved["number"]
        self._all = [
            _Processor(decode(state), is_on, is_halted, begins_at)
            for state, is_on, is_halted, begins_at in saved["all"]
        ]
        if len(self._all) != self.count:
            raise ValueError("another number of processors")
        for apic, registers in zip(self.apics, saved["apics"], strict=True):
            apic.restore(registers)
        self._cpu.cpuid = self._cpuid[self.number]
        if self.count > 1:
            self._memory.show_percpu(self.number)
