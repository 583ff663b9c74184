"""The machine's time: how a guest clock word becomes nanoseconds.

Guest code reads every clock with one branch-free form, with the four words it finds beside it:

    now = ((rdtsc * MULT) >> 32) + (*PTR += STEP) + OFFSET

A real clock has STEP 0 and scales the time stamp counter; a virtual one has MULT 0 and advances by
STEP per reading, the word being shared by all vCPUs, so the same input gives the same times.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine.memory import Memory

VIRTUAL_STEP_NS = 1000
_CALIBRATION_S = 0.01
_RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret


@dataclass(frozen=True, slots=True)
class ClockWords:
    """What a clock leaves beside the code that reads it. `pointer` is a guest address.

    `is_tsc`: STEP and the word at PTR are always 0, so that whoever is in a hurry leaves them out.
    """

    mult: int
    step: int
    pointer: int
    offset: int
    is_tsc: bool = False


@dataclass(frozen=True, slots=True)
class GuestTime:
    """How a guest counts time: by a time stamp counter that `read` reads.

    It takes the counter to run `tsc_khz` fast, and to have been 0 when it was `start_ns`.
    """

    read: Callable[[], int]
    tsc_khz: int
    start_ns: int = 0


class HostTsc:
    """The host's time stamp counter."""

    def __init__(self) -> None:
        if platform.machine() not in {"x86_64", "AMD64"}:
            raise OSError("the real clock needs an x86-64 host; use --clock virtual")
        self._page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(_RDTSC)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self._host = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)

    def read(self) -> int:
        """What it shows now."""
        return int(self._host())

    def sample(self) -> tuple[int, int]:
        """A (tsc, monotonic ns) pair taken as close together as three tries give."""
        best: tuple[int, int, int] | None = None
        for _ in range(3):
            before = self.read()
            now = time.monotonic_ns()
            after = self.read()
            if best is None or after - before < best[0]:
                best = (after - before, (before + after) // 2, now)
        assert best is not None
        return best[1], best[2]


class TscRate:
    """How fast it runs, measured from now on."""

    def __init__(self) -> None:
        self._tsc = HostTsc()
        self._first, self._began = self._tsc.sample()

    def khz(self, span_s: float) -> int:
        """Over all that has passed meanwhile, and at least `span_s`."""
        left = span_s - (time.monotonic_ns() - self._began) / 1e9
        if left > 0:
            time.sleep(left)  # not for synchronisation: a span to measure the TSC against
        last, ended = self._tsc.sample()
        return (last - self._first) * 1_000_000 // (ended - self._began)


class ClockSource:
    """The time base of some vCPUs, by their per-CPU pages. `kind` is "real" or "virtual".

    A guest that keeps time by itself is told of by `guest`.
    """

    def __init__(
        self,
        memory: Memory,
        percpus: Iterable[int],
        kind: str,
        *,
        guest: GuestTime | None = None,
    ) -> None:
        if kind not in {"real", "virtual"}:
            raise ValueError(f"clock {kind!r}: real or virtual")
        self.kind = kind
        self._memory = memory
        self._start_ns = guest.start_ns if guest is not None else 0
        self._word = memory.alloc(64)
        self._zero_word = self._word + 8
        self._read_tsc: Callable[[], int] = lambda: 0
        if guest is not None:
            self._read_tsc = guest.read
            self.tsc_base = self.ns_base = 0
            self.mult = (1_000_000 << 32) // guest.tsc_khz
        elif kind == "real":
            counter = HostTsc()
            self._read_tsc = counter.read
            self.tsc_base, self.ns_base = counter.sample()
            time.sleep(_CALIBRATION_S)  # not for synchronisation: a span to measure the TSC against
            tsc, ns = counter.sample()
            self.mult = ((ns - self.ns_base) << 32) // (tsc - self.tsc_base)
        words = self.nanoseconds()
        values = (words.mult, words.step, words.pointer, words.offset)
        for percpu in percpus:
            for name, value in zip(CLOCK_WORD_NAMES, values, strict=True):
                memory.set_u64(percpu + CONSTANTS[name], value)

    def nanoseconds(self, base_ns: int = 0) -> ClockWords:
        """Words for nanoseconds since the machine was made or began to count, plus `base_ns`."""
        if self.kind == "virtual":
            return ClockWords(0, VIRTUAL_STEP_NS, self._word, base_ns)
        start = ((self.tsc_base * self.mult) >> 32) - self._start_ns
        return ClockWords(self.mult, 0, self._zero_word, base_ns - start, is_tsc=True)

    def monotonic(self) -> ClockWords:
        """Words for the host's CLOCK_MONOTONIC, or the guest's that has a counter of its own.

        With a virtual clock it is the virtual time.
        """
        return self.nanoseconds(0 if self.kind == "virtual" else self.ns_base)

    def raw_tsc(self) -> ClockWords:
        """Words for the unscaled time stamp counter (with a virtual clock: the virtual time)."""
        if self.kind == "virtual":
            return self.nanoseconds()
        return ClockWords(1 << 32, 0, self._zero_word, 0, is_tsc=True)

    def counter(self, word: int) -> ClockWords:
        """Words for a count of readings kept at guest address `word`."""
        return ClockWords(0, 1, word, 0)

    def word(self, word: int) -> ClockWords:
        """Words for a value that somebody else advances at guest address `word`."""
        return ClockWords(0, 0, word, 0)

    def now(self, words: ClockWords) -> int:
        """What a reading would give now, without advancing anything."""
        tsc = self._read_tsc() if words.mult else 0
        scaled = (tsc * words.mult) >> 32
        return (scaled + self._memory.u64(words.pointer) + words.offset) & 0xFFFFFFFFFFFFFFFF


CLOCK_WORD_NAMES = tuple(f"CLOCK_{name}" for name in ("MULT", "STEP", "PTR", "OFFSET"))
assert all(name in CONSTANTS for name in CLOCK_WORD_NAMES)
