"""The function profiler's files: function_profile_enabled and trace_stat/functionN.

Models function_stat_headers, function_stat_show and ftrace_profile_fops (kernel/trace/ftrace.c) and
the files of kernel/trace/trace_stat.c, whose order is made at open and whose figures are those of
the read. Left out: that readers of one file share their list, so that the first to close empties it
for the others.
"""

from __future__ import annotations

import errno
from itertools import takewhile
from operator import itemgetter

from emulated_kernel.kallsyms import Kallsyms
from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, Deferred, Directory, Node, OpenFile, TracefsFile
from ftracefs.files.simple import ValueFile
from ftracefs.ftrace.profile import U64
from ftracefs.trace.output.graph_text import trace_print_graph_duration
from ftracefs.trace.parsers import ULONG_MAX, kstrtoul_from_user
from ftracefs.trace.trace_array import TraceArray
from ftracefs.trace.tracing import Tracing

STAT_MODE = 0o640
_HEADERS = (
    "  Function                               Hit    Time            Avg             s^2\n"
    "  --------                               ---    ----            ---             ---\n"
)
_NSEC_PER_USEC = 1000
_COUNTER, _TIME = 1, 2  # in a row of FunctionProfiler.profiles


def function_profile_enabled(tr: TraceArray) -> TracefsFile:
    profiler = tr.tracing.ftrace.profiler

    def ftrace_profile_write(data: bytes) -> None:
        profiler.ftrace_profile_write(bool(kstrtoul_from_user(data)))

    return ValueFile(lambda: f"{int(profiler.ftrace_profile_enabled)}\n", ftrace_profile_write)


def trace_stat(tr: TraceArray) -> Directory:
    """trace_stat/: a file for each CPU."""
    entries: dict[str, Node] = {}
    for cpu in range(tr.nr_cpus):
        file = entries[f"function{cpu}"] = _StatFile(tr.tracing, cpu)
        file.mode = STAT_MODE
    return Directory(entries)


class _StatFile(TracefsFile):
    def __init__(self, tracing: Tracing, cpu: int) -> None:
        self._tracing = tracing
        self._cpu = cpu

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _StatOpen(self._tracing, self._tracing.ftrace.profiler.function_stats(self._cpu))


class _StatOpen(OpenFile):
    """A reader keeps its records, and looks at what is in them when it reads from the start."""

    def __init__(self, tracing: Tracing, records: U64) -> None:
        self._tracing = tracing
        self._records = records
        self._profiles: list[list[int]] = []
        self._thresh = 0
        self._text: bytes | None = None

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred:
        ftrace = self._tracing.ftrace
        if offset == 0:
            self._profiles = ftrace.profiler.profiles(self._records).tolist()
            self._thresh = ftrace.fgraph.tracing_thresh
            self._text = None
        return lambda: self._part(size, offset)

    def _part(self, size: int, offset: int) -> bytes:
        valid = list(takewhile(itemgetter(_COUNTER), self._profiles))
        if self._text is None:
            shown = (p for p in valid if p[_TIME] // p[_COUNTER] >= self._thresh)
            kallsyms = self._tracing.ftrace.kallsyms
            lines = [function_stat_show(kallsyms, *profile) for profile in shown]
            self._text = "".join([_HEADERS, *lines]).encode()
        if offset >= len(self._text) and len(valid) < len(self._profiles):
            raise TracefsError(errno.EBUSY, "the profiler has been started anew")
        return self._text[offset : offset + size]


def function_stat_show(
    kallsyms: Kallsyms, ip: int, counter: int, time: int, time_squared: int
) -> str:
    """The line of a function."""
    location = kallsyms.kallsyms_lookup(ip)
    name = location.name if location is not None else ""
    times = (time, time // counter, _variance(counter, time, time_squared))
    columns = "    ".join(trace_print_graph_duration(time) for time in times)
    return f"  {name[:30]:<30}  {counter:>10}    {columns}\n"


def _variance(n: int, time: int, time_squared: int) -> int:
    """s^2 in thousandths of a square microsecond, in the kernel's 64 bits."""
    denominator = n * (n - 1) * _NSEC_PER_USEC & ULONG_MAX
    if not denominator:
        return 0
    return (n * time_squared - time**2 & ULONG_MAX) // denominator
