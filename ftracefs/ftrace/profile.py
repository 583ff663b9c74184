"""The function profiler: how often each function is called and how long it takes, a CPU at a time.

    ftrace_profile_write → ftrace_profile_init
                         → register_ftrace_profiler → register_ftrace_graph

It is a user of function graph tracing, of which there is one at a time, so it and the tracer
function_graph keep each other out; what it profiles set_ftrace_filter decides. Guest code counts
and times (ftracefs/guest/profile.S): fgraph calls it instead of making records where the "buffer"
of a CPU is a struct ftrace_profile_stat. Here are its tables made, emptied and read.

Left out: `disabled`, which keeps an NMI out in the middle of an entry; guest code is never
interrupted there.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emulated_kernel.asm_offsets import CONSTANTS, PAGE_OFFSET
from ftracefs.errors import TracefsError
from ftracefs.ftrace.fgraph import FgraphOps, FunctionGraph
from ftracefs.ftrace.state import FtraceState

U64 = npt.NDArray[np.uint64]

_C = CONSTANTS
_PAGE_BYTES = _C["PAGE_BYTES"]
_RECORDS = _C["PROFILE_PAGE_RECORDS"]
_RECORD_BYTES = _C["PROFILE_SIZE"]
_HASH_BYTES = 8 << _C["FTRACE_PROFILE_HASH_BITS"]
_TIME = 2  # in a row of `profiles`
_U64_MAX = np.uint64((1 << 64) - 1)


@dataclass(frozen=True, slots=True)
class _Stat:
    """A CPU's struct ftrace_profile_stat, its table and all its pages."""

    address: int
    hash: int
    pages: list[int]


class FunctionProfiler:
    """The function profiler of one machine."""

    def __init__(self, state: FtraceState, fgraph: FunctionGraph) -> None:
        self._state = state
        self._memory = state.memory
        self._fgraph = fgraph
        self._stats: list[_Stat] = []
        self._table = 0  # of the CPUs' ftrace_profile_stat, as register_ftrace_graph takes it
        self.ftrace_profile_enabled = False

    # --- on and off ------------------------------------------------------------------------------

    def ftrace_profile_write(self, enabled: bool) -> None:
        """Begin with empty tables, or stop and keep them.

        EBUSY when function graph tracing has a user, ENODEV when ftrace is disabled, ENOMEM.
        """
        if enabled == self.ftrace_profile_enabled:
            return
        if enabled:
            self._ftrace_profile_init()
            labels = self._state.labels
            gops = FgraphOps(labels["profile_graph_entry"], labels["profile_graph_return"])
            self._fgraph.register_ftrace_graph(self._table, gops=gops)
            self._set_enabled(True)
        else:
            self._set_enabled(False)
            with suppress(TracefsError):
                self._fgraph.unregister_ftrace_graph()
        self.ftrace_profile_enabled = enabled

    def _set_enabled(self, enabled: bool) -> None:
        self._memory.set_u32(self._state.labels["ftrace_profile_enabled"], enabled)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Count nothing meanwhile."""
        self._set_enabled(False)
        try:
            yield
        finally:
            self._set_enabled(self.ftrace_profile_enabled)

    # --- tables ----------------------------------------------------------------------------------

    def _ftrace_profile_init(self) -> None:
        """A table for each CPU: made the first time, emptied from then on."""
        if self._stats:
            for stat in self._stats:
                self._ftrace_profile_reset(stat)
            return
        stats: list[_Stat] = []
        cpus = self._state.machine.cpus
        try:
            stats.extend(self._ftrace_profile_init_cpu() for _ in cpus)
            self._table = self._memory.alloc(8 * len(cpus), 64)
        except MemoryError:
            for stat in stats:
                self._free(stat.address, stat.hash, *stat.pages)
            raise TracefsError(errno.ENOMEM, "no room for profiles") from None
        for number, stat in enumerate(stats):
            self._memory.set_u64(self._table + 8 * number, stat.address)
        self._stats = stats

    def _ftrace_profile_init_cpu(self) -> _Stat:
        """With a record for every function there is."""
        memory = self._memory
        functions = max(1, self._state.ftrace_update_tot_cnt)
        count = -(-functions // _C["PROFILES_PER_PAGE"])
        taken: list[int] = []
        try:
            taken.append(memory.alloc(_C["PROFILE_STAT_SIZE"], 64))
            taken.append(memory.alloc(_HASH_BYTES, 64))
            taken.extend(memory.alloc(_PAGE_BYTES, _PAGE_BYTES) for _ in range(count))
        except MemoryError:
            self._free(*taken)
            raise
        stat = _Stat(taken[0], taken[1], taken[2:])
        for page, following in zip(stat.pages, [*stat.pages[1:], 0], strict=True):
            memory.set_u64(page + _C["PROFILE_PAGE_NEXT"], following)
        memory.set_u32(stat.address + _C["PROFILE_STAT_GUARD"], _C["RB_GUARD_FGRAPH_OPS"])
        memory.set_u64(stat.address + _C["PROFILE_STAT_HASH"], stat.hash)
        memory.set_u64(stat.address + _C["PROFILE_STAT_START"], stat.pages[0])
        self._ftrace_profile_reset(stat)
        return stat

    def forget(self) -> None:
        """Give the tables back, unless they are in use."""
        if self.ftrace_profile_enabled or not self._stats:
            return
        self._free(self._table)
        for stat in self._stats:
            self._free(stat.address, stat.hash, *stat.pages)
        self._stats, self._table = [], 0

    def _free(self, *addresses: int) -> None:
        for address in addresses:
            self._memory.free(address)

    def _ftrace_profile_reset(self, stat: _Stat) -> None:
        memory = self._memory
        memory.set_u64(stat.address + _C["PROFILE_STAT_PAGES"], stat.pages[0])
        for page in stat.pages:
            memory.set_u64(page + _C["PROFILE_PAGE_INDEX"], 0)
            memory.write(page + _RECORDS, bytes(_PAGE_BYTES - _RECORDS))
        memory.write(stat.hash, bytes(_HASH_BYTES))

    # --- reading ---------------------------------------------------------------------------------

    def function_stats(self, cpu: int) -> U64:
        """The records of a CPU, the longest time first; of equal ones the younger.

        A record is its address, which stays what it is until the profiler starts anew.
        """
        pages = self._stats[cpu].pages if self._stats else []
        counts = [self._memory.u64(page + _C["PROFILE_PAGE_INDEX"]) for page in pages]
        parts = [
            np.arange(count, dtype=np.uint64) * np.uint64(_RECORD_BYTES)
            + np.uint64(page + _RECORDS)
            for page, count in zip(pages, counts, strict=True)
        ]
        records = np.concatenate([np.zeros(0, dtype=np.uint64), *parts])[::-1]
        return records[np.argsort(_U64_MAX - self.profiles(records)[:, _TIME], kind="stable")]

    def profiles(self, records: U64) -> U64:
        """What records hold now, a row each: ip, counter, time and time_squared.

        The counter is 0 when the profiler has been started anew.
        """
        words = self._memory.ram_array.view(np.uint64)
        first = (records - np.uint64(PAGE_OFFSET) + np.uint64(_C["PROFILE_IP"])) // np.uint64(8)
        rows: U64 = words[first[:, None] + np.arange(4, dtype=np.uint64)]
        return rows
