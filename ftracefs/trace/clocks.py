"""The trace clocks: which there are and what each leaves beside the code that stamps records.

Models `trace_clocks[]` of kernel/trace/trace.c and kernel/trace/trace_clock.c. Guest code reads
every clock with one form (see emulated_kernel/machine/clock.py), so a clock is four words.

On the real clock `local`, `global` and `perf` count from the machine's boot; `mono`, `mono_raw`,
`boot` and `tai` are the host's clocks of these names, so records can be matched with times taken by
a program on the host. On the virtual clock all of them are the virtual time, `boot` and `tai`
included, since nothing of the host may show there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from emulated_kernel.machine import ClockWords, EmulatedMachine

USER_HZ = 100  # what the uptime clock counts in
_NS_PER_JIFFY = 1_000_000_000 // USER_HZ
_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class TraceClock:
    """An entry of trace_clocks[]: `in_ns` clocks are shown as seconds, others as they are."""

    name: str
    in_ns: bool = True


TRACE_CLOCKS = (
    TraceClock("local"),
    TraceClock("global"),
    TraceClock("counter", in_ns=False),
    TraceClock("uptime", in_ns=False),
    TraceClock("perf"),
    TraceClock("mono"),
    TraceClock("mono_raw"),
    TraceClock("boot"),
    TraceClock("tai"),
    TraceClock("x86-tsc", in_ns=False),
)
_BY_NAME = {clock.name: clock for clock in TRACE_CLOCKS}
_HOST_CLOCKS = {
    "mono": time.CLOCK_MONOTONIC,
    "mono_raw": time.CLOCK_MONOTONIC_RAW,
    "boot": time.CLOCK_BOOTTIME,
    "tai": getattr(time, "CLOCK_TAI", time.CLOCK_REALTIME),
}


def find_clock(name: str) -> TraceClock | None:
    """The clock of that name."""
    return _BY_NAME.get(name)


class Clocks:
    """The words of each clock on one machine.

    The counter and the uptime are shared by everything that reads them, as trace_counter and
    jiffies are, so each has one word in guest memory.
    """

    def __init__(self, machine: EmulatedMachine) -> None:
        self._machine = machine
        self._source = machine.clock
        words = machine.alloc(64)
        self._counter, self._uptime = words, words + 8
        self._local = self._source.nanoseconds()

    def tick(self) -> None:
        """Bring the uptime up to date, as the timer interrupt does with jiffies."""
        jiffies = self._source.now(self._local) // _NS_PER_JIFFY
        self._machine.memory.set_u64(self._uptime, jiffies)

    def words(self, clock: TraceClock) -> ClockWords:
        """What to leave beside the writer for this clock."""
        match clock.name:
            case "local" | "global" | "perf":
                return self._local
            case "counter":
                return self._source.counter(self._counter)
            case "uptime":
                self._machine.set_after_slice(self.tick, True)
                self.tick()
                return self._source.word(self._uptime)
            case "x86-tsc":
                return self._source.raw_tsc()
        if self._source.kind == "virtual":
            return self._local
        host = time.clock_gettime_ns(_HOST_CLOCKS[clock.name])
        return self._source.nanoseconds(host - self._source.now(self._local))

    def read(self, words: ClockWords) -> int:
        """One reading by the host, which counts as any other reading does."""
        if words.step:
            memory = self._machine.memory
            advanced = (memory.u64(words.pointer) + words.step) & _U64
            memory.set_u64(words.pointer, advanced)
        return self._source.now(words)

    def peek(self, words: ClockWords) -> int:
        """What `read` would give, without being a reading."""
        return (self._source.now(words) + words.step) & _U64
