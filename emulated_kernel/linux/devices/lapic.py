"""The local APIC of a processor (Intel SDM, volume 3, chapter "APIC"), as memory at 0xfee00000.

It takes the other processors' interrupts and has a timer of its own; the first processor's lets
the interrupts of the 8259s through at LINT0. Left out: x2APIC, the deadline timer, thermal and
performance interrupts, clusters of logical addresses, errors, interrupts that cannot be masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BASE, SIZE = 0xFEE00000, 0x1000
_ID, _VERSION, _TPR, _PPR, _EOI, _LDR, _DFR, _SVR = 0x20, 0x30, 0x80, 0xA0, 0xB0, 0xD0, 0xE0, 0xF0
_ISR, _TMR, _IRR = 0x100, 0x180, 0x200
_ICR, _ICR_HIGH, _LVT_TIMER, _LINT0 = 0x300, 0x310, 0x320, 0x350
_INITIAL, _CURRENT, _DIVIDE = 0x380, 0x390, 0x3E0
_LVT = range(_LVT_TIMER, 0x380, 0x10)
_KEPT = {_TPR, _LDR, _DFR, _SVR, _ICR_HIGH, *_LVT, _DIVIDE}
_VERSION_VALUE = 0x50014  # six local vectors
_MASKED, _PERIODIC, _ENABLED = 1 << 16, 1 << 17, 1 << 8
FIXED, _LOWEST, INIT, STARTUP, _EXTINT = 0, 1, 5, 6, 7
_SELF, _ALL, _OTHERS = 1, 2, 3

# What an interrupt command asks for: the mode and vector, of the processors of these numbers.
Send = Callable[[int, int, list[int]], None]


class LocalApic:
    """The APIC of processor `number` of `count`, which ticks `hz` times a second of `now`.

    `send` passes on what is for processors, `changed` is called when `deadline` has.
    """

    def __init__(
        self,
        number: int,
        count: int,
        hz: int,
        now: Callable[[], float],
        send: Send,
        changed: Callable[[], None],
    ) -> None:
        self.number = number
        self._count, self._hz, self._now = count, hz, now
        self._send, self._changed = send, changed
        self._requested = self._in_service = 0  # a bit for each vector
        self._registers = dict.fromkeys(_KEPT, 0)
        self._registers.update(dict.fromkeys(_LVT, _MASKED))
        self._registers[_SVR], self._registers[_DFR] = 0xFF, 0xFFFFFFFF
        self._command = 0
        self._initial = 0
        self._began = 0.0
        self.deadline: float | None = None

    # --- registers -------------------------------------------------------------------------------

    def read(self, register: int) -> int:
        if register == _ID:
            return self.number << 24
        if register == _VERSION:
            return _VERSION_VALUE
        if register == _PPR:
            return self._priority << 4
        if register == _ICR:
            return self._command
        if register == _INITIAL:
            return self._initial
        if register == _CURRENT:
            return self._current()
        for first, bits in ((_ISR, self._in_service), (_IRR, self._requested)):
            if first <= register < first + 0x80:
                return bits >> 2 * (register - first) & 0xFFFFFFFF
        return self._registers.get(register, 0)

    def write(self, register: int, value: int) -> None:
        if register == _EOI:
            if self._in_service:
                self._in_service &= ~(1 << self._in_service.bit_length() - 1)
        elif register == _ICR:
            self._command = value & ~(1 << 12)
            self._interrupt_command(value)
        elif register == _INITIAL:
            self._initial = value
            self._start_timer()
        elif register in _KEPT:
            self._registers[register] = value
            if register in (_LVT_TIMER, _DIVIDE):
                self._start_timer()

    def _interrupt_command(self, value: int) -> None:
        shorthand = value >> 18 & 3
        everybody = range(self._count)
        if shorthand == _SELF:
            to = [self.number]
        elif shorthand == _ALL:
            to = list(everybody)
        elif shorthand == _OTHERS:
            to = [number for number in everybody if number != self.number]
        else:
            destination = self._registers[_ICR_HIGH] >> 24
            is_logical = bool(value >> 11 & 1)
            to = [n for n in everybody if self._is_meant(n, destination, is_logical)]
        mode = value >> 8 & 7
        if mode == INIT and not value >> 14 & 1:
            return  # the end of one that is level-triggered
        if mode == _LOWEST:
            mode, to = FIXED, to[:1]
        if mode in (FIXED, INIT, STARTUP):
            self._send(mode, value & 0xFF, to)

    @staticmethod
    def _is_meant(number: int, destination: int, is_logical: bool) -> bool:
        if is_logical:  # flat: Linux gives processor n bit n
            return bool(destination >> number & 1)
        return destination in (number, 0xFF)

    # --- interrupts ------------------------------------------------------------------------------

    def request(self, vector: int) -> None:
        """Somebody's interrupt arrives."""
        self._requested |= 1 << vector

    @property
    def _priority(self) -> int:
        """The class of vectors that must be exceeded."""
        in_service = max(self._in_service.bit_length() - 1, 0) >> 4
        return max(in_service, self._registers[_TPR] >> 4 & 15)

    @property
    def pending(self) -> int | None:
        """The vector that the processor is to be interrupted with."""
        if not self._requested or not self._registers[_SVR] & _ENABLED:
            return None
        vector = self._requested.bit_length() - 1
        return vector if vector >> 4 > self._priority else None

    def acknowledge(self, vector: int) -> int:
        """The processor takes the interrupt."""
        self._requested &= ~(1 << vector)
        self._in_service |= 1 << vector
        return vector

    @property
    def takes_pic(self) -> bool:
        """The 8259s' interrupts get through."""
        value = self._registers[_LINT0]
        if not self._registers[_SVR] & _ENABLED:
            return self.number == 0  # as if there were no APIC
        return not value & _MASKED and value >> 8 & 7 == _EXTINT

    # --- the timer -------------------------------------------------------------------------------

    @property
    def _tick(self) -> float:
        divide = self._registers[_DIVIDE]
        power = (divide & 3 | divide >> 1 & 4) + 1 & 7
        return (1 << power) / self._hz

    def _current(self) -> int:
        if self.deadline is None:
            return 0
        return max(int((self.deadline - self._now()) / self._tick), 0)

    def _start_timer(self) -> None:
        self._set_deadline(self._now() + self._initial * self._tick if self._initial else None)

    def _set_deadline(self, deadline: float | None) -> None:
        self.deadline = deadline
        self._changed()

    def expire(self) -> None:
        """Ask for the timer's interrupt if it is due."""
        if self.deadline is None or self._now() < self.deadline:
            return
        timer = self._registers[_LVT_TIMER]
        if not timer & _MASKED:
            self.request(timer & 0xFF)
        if timer & _PERIODIC:
            self._set_deadline(max(self.deadline + self._initial * self._tick, self._now()))
        else:
            self._set_deadline(None)

    # --- as a whole ------------------------------------------------------------------------------

    def reset(self) -> None:
        """What INIT does."""
        fresh = LocalApic(self.number, self._count, self._hz, self._now, self._send, self._changed)
        self.__dict__.update(fresh.__dict__)

    def save(self) -> dict[str, Any]:
        """What `restore` takes; times are told from now on."""
        return {
            "registers": list(self._registers.items()),
            "requested": self._requested,
            "in_service": self._in_service,
            "command": self._command,
            "initial": self._initial,
            "left": None if self.deadline is None else self.deadline - self._now(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        self._registers = dict(saved["registers"])
        self._requested, self._in_service = saved["requested"], saved["in_service"]
        self._command, self._initial = saved["command"], saved["initial"]
        left = saved["left"]
        self._set_deadline(None if left is None else self._now() + left)
