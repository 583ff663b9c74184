"""The interrupt controller: two 8259A, the second behind line 2 of the first.

Left out: rotating priorities, polling, special mask mode, level-triggered lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_CASCADE = 2
_ICW1, _OCW3, _READ_REGISTER = 0x10, 0x08, 0x02
_EOI, _SPECIFIC = 0x20, 0x40


@dataclass(slots=True)
class _Chip:
    base: int
    imr: int = 0xFF  # masked
    irr: int = 0  # requested
    isr: int = 0  # in service
    step: int = 0  # of the initialisation: which word comes next
    wants_icw4: bool = False
    auto_eoi: bool = False
    reads_isr: bool = False

    def command(self, value: int) -> None:
        if value & _ICW1:
            self.step, self.wants_icw4 = 1, bool(value & 1)
            self.imr = self.irr = self.isr = 0
        elif value & _OCW3:
            if value & _READ_REGISTER:
                self.reads_isr = bool(value & 1)
        elif value & _EOI:
            # The lowest bit is the one of the highest priority.
            ended = 1 << (value & 7) if value & _SPECIFIC else self.isr & -self.isr
            self.isr &= ~ended

    def data(self, value: int) -> None:
        if self.step == 1:
            self.base, self.step = value, 2
        elif self.step == 2:
            self.step = 3 if self.wants_icw4 else 0
        elif self.step == 3:
            self.auto_eoi, self.step = bool(value & 2), 0
        else:
            self.imr = value

    def pending(self, extra: int = 0) -> int | None:
        """The line to be served next; none while one of higher priority is in service."""
        wanted = (self.irr | extra) & ~self.imr
        first, served = wanted & -wanted, self.isr & -self.isr
        if not wanted or 0 < served <= first:
            return None
        return first.bit_length() - 1


@dataclass(slots=True)
class Pic:
    """Both chips; lines 0 to 15. `wanted` is called when the guest lets a waiting line through."""

    wanted: Callable[[], None] = lambda: None
    ports: tuple[int, ...] = (0x20, 0x21, 0xA0, 0xA1)
    _chips: list[_Chip] = field(default_factory=lambda: [_Chip(8), _Chip(0x70)])

    def read(self, port: int) -> int:
        chip = self._chips[port >= 0xA0]
        if port & 1:
            return chip.imr
        return chip.isr if chip.reads_isr else chip.irr

    def write(self, port: int, value: int) -> None:
        chip = self._chips[port >= 0xA0]
        if port & 1:
            chip.data(value)
        else:
            chip.command(value)
        if self.pending is not None:
            self.wanted()

    def raise_line(self, line: int) -> None:
        """An edge on a line."""
        self._chips[line >> 3].irr |= 1 << (line & 7)

    @property
    def pending(self) -> int | None:
        """The line that the processor is to be interrupted for."""
        first, second = self._chips
        behind = second.pending()
        line = first.pending(1 << _CASCADE if behind is not None else 0)
        if line != _CASCADE:
            return line
        return None if behind is None else 8 + behind

    def acknowledge(self, line: int) -> int:
        """The processor takes the interrupt; its vector."""
        chip, bit = self._chips[line >> 3], 1 << (line & 7)
        chip.irr &= ~bit
        if not chip.auto_eoi:
            chip.isr |= bit
        if line >= 8:
            self._chips[0].isr |= 1 << _CASCADE
        return chip.base + (line & 7)

    def save(self) -> dict[str, Any]:
        """What `restore` takes."""
        names = _Chip.__slots__
        return {"chips": [{n: getattr(chip, n) for n in names} for chip in self._chips]}

    def restore(self, saved: dict[str, Any]) -> None:
        self._chips = [_Chip(**chip) for chip in saved["chips"]]
