"""The function profiler's files: function_profile_enabled and trace_stat/functionN.

Models function_stat_headers, function_stat_show and ftrace_profile_fops (kernel/trace/ftrace.c) and
the files of kernel/trace/trace_stat.c, whose order is made at open and whose figures are those of
the read. Left out: that readers of one file share their list, so that the first to close empties it
for the others.
"""

from __future__ import annotations

import errno

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, Directory, Node, OpenFile, TracefsFile
from ftracefs.files.simple import ValueFile
from ftracefs.ftrace.profile import FtraceProfile
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

    def __init__(self, tracing: Tracing, records: list[int]) -> None:
        self._tracing = tracing
        self._records = records
        self._text = b""
        self._is_whole = True

    def read(self, size: int, offset: int, nonblock: bool) -> bytes:
        if offset == 0:
            self._show()
        if offset >= len(self._text) and not self._is_whole:
            raise TracefsError(errno.EBUSY, "the profiler has been started anew")
        return self._text[offset : offset + size]

    def _show(self) -> None:
        profiler = self._tracing.ftrace.profiler
        lines = [_HEADERS]
        for record in self._records:
            profile = profiler.profile(record)
            if not profile.counter:
                break
            lines.append(function_stat_show(self._tracing, profile))
        self._is_whole = len(lines) > len(self._records)
        self._text = "".join(lines).encode()


def function_stat_show(tracing: Tracing, profile: FtraceProfile) -> str:
    """The line of a function; none if its calls were shorter than tracing_thresh on average."""
    average = profile.time // profile.counter
    if average < tracing.ftrace.fgraph.tracing_thresh:
        return ""
    location = tracing.ftrace.kallsyms.kallsyms_lookup(profile.ip)
    name = location.name if location is not None else ""
    times = (profile.time, average, _variance(profile))
    columns = "    ".join(trace_print_graph_duration(time) for time in times)
    return f"  {name[:30]:<30}  {profile.counter:>10}    {columns}\n"


def _variance(profile: FtraceProfile) -> int:
    """s^2 in thousandths of a square microsecond, in the kernel's 64 bits."""
    n = profile.counter
    denominator = n * (n - 1) * _NSEC_PER_USEC & ULONG_MAX
    if not denominator:
        return 0
    return (n * profile.time_squared - profile.time**2 & ULONG_MAX) // denominator
