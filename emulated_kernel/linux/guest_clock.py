"""The time that a PC's guest lives in: its time stamp counter, its timer's and its date.

A real one is the host's. A virtual one is made by what the guest executes, a nanosecond for each
byte of code; while it is halted time jumps to its next timer, and while nobody wants anything of it
time stands still. So the same guest that is asked for the same does the same at the same times.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod

from emulated_kernel.machine.clock import HostTsc, TscRate
from emulated_kernel.machine.cpu_state import CpuState
from emulated_kernel.machine.native_hooks import NativeHooks

TSC_KHZ_STEP = 16  # of the rates a guest can be told: it multiplies with 32 bits
VIRTUAL_TSC_KHZ = 1_000_000
_VIRTUAL_BOOT = 1767225600.0  # 2026-01-01 00:00 UTC
_NEVER = (1 << 64) - 1


class GuestClock(ABC):
    """`is_virtual` tells which of the two it is."""

    is_virtual: bool

    @property
    @abstractmethod
    def tsc(self) -> int:
        """The guest's time stamp counter."""

    @tsc.setter
    @abstractmethod
    def tsc(self, value: int) -> None: ...

    @abstractmethod
    def seconds(self) -> float:
        """What its timers count, from some time on."""

    @abstractmethod
    def date(self) -> float:
        """Seconds since 1970."""


class RealClock(GuestClock):
    is_virtual = False

    def __init__(self, state: CpuState) -> None:
        self._state = state
        self._host = HostTsc()

    @property
    def tsc(self) -> int:
        return (self._host.read() + self._state.tsc_offset) & 0xFFFFFFFFFFFFFFFF

    @tsc.setter
    def tsc(self, value: int) -> None:
        self._state.tsc_offset = value - self._host.read()

    def seconds(self) -> float:
        return time.monotonic()

    def date(self) -> float:
        return time.time()


class VirtualClock(GuestClock):
    """The ticks of the native hooks are its nanoseconds."""

    is_virtual = True

    def __init__(self, hooks: NativeHooks) -> None:
        self._hooks = hooks

    @property
    def tsc(self) -> int:
        return self._hooks.get("ticks")

    @tsc.setter
    def tsc(self, value: int) -> None:
        self._hooks.set("ticks", value)

    def seconds(self) -> float:
        return self.tsc / 1e9

    def date(self) -> float:
        return _VIRTUAL_BOOT + self.seconds()

    def stop_at(self, seconds: float | None) -> None:
        """Have the guest stop then; None: not at all."""
        self._hooks.set("deadline", _NEVER if seconds is None else _ticks(seconds))

    def jump_to(self, seconds: float) -> None:
        """Nothing happens until then."""
        self.tsc = max(self.tsc, _ticks(seconds))


def _ticks(seconds: float) -> int:
    """The first tick that is surely not before."""
    return math.ceil(seconds * 1e9) + 1


class GuestRate:
    """How fast a guest's time stamp counter runs here; the host's is measured from now on."""

    def __init__(self, *, is_virtual: bool) -> None:
        self._host = None if is_virtual else TscRate()

    def khz(self, span_s: float) -> int:
        """Known to what a span of so many seconds tells."""
        khz = VIRTUAL_TSC_KHZ if self._host is None else self._host.khz(span_s)
        return khz - khz % TSC_KHZ_STEP
