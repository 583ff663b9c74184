"""The lines above a trace that begin with # (s_show and the header functions of trace.c)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ftracefs.trace.options import TraceIter

PREEMPT_MODEL = "desktop"
UTS_RELEASE = "6.1.0-ftracefs"

_TGID_WIDTH = 10
_LEGEND = (
    "  _-----=> irqs-off/BH-disabled",
    " / _----=> need-resched",
    "| / _---=> hardirq/softirq",
    "|| / _--=> preempt-depth",
    "||| / _-=> migrate-disable",
    "|||| /     delay",
)
_LEGEND_INDENT = 30
_LATENCY_COLUMNS = """\
#                    _------=> CPU#            
#                   / _-----=> irqs-off/BH-disabled
#                  | / _----=> need-resched    
#                  || / _---=> hardirq/softirq 
#                  ||| / _--=> preempt-depth   
#                  |||| / _-=> migrate-disable 
#                  ||||| /     delay           
#  cmd     pid     |||||| time  |   caller     
#     \\   /        ||||||  \\    |    /       
"""  # noqa: W291


@dataclass(frozen=True, slots=True)
class SavedLatency:
    """What a latency tracer remembers of the worst case (struct trace_array_cpu)."""

    latency_us: int = 0
    cpu: int = 0
    comm: str = ""
    pid: int = 0
    uid: int = 0
    nice: int = 0
    policy: int = 0
    rt_priority: int = 0
    critical_start: int = 0  # where the section began and ended, as addresses
    critical_end: int = 0


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """What the header tells: `entries` are in the buffer now, `written` with those overwritten.

    `is_dead` when the tracer had to be shut down (ftrace_is_dead).
    """

    tracer: str
    flags: TraceIter
    entries: int
    written: int
    nr_cpus: int
    saved: SavedLatency = SavedLatency()
    release: str = UTS_RELEASE
    preempt_model: str = PREEMPT_MODEL
    is_dead: bool = False
    symbol: Callable[[int], str] = hex  # how an address is shown

    def text(self) -> str:
        """The header of a tracer that has none of its own."""
        return self.top() + self.trace_default_header()

    def top(self) -> str:
        """The lines that every trace begins with."""
        text = f"# tracer: {self.tracer}\n#\n"
        if self.is_dead:
            text += (
                "# WARNING: FUNCTION TRACING IS CORRUPTED\n"
                "#          MAY BE MISSING FUNCTION EVENTS\n"
            )
        return text

    def trace_default_header(self) -> str:
        """Counts and column heads, as far as the options leave any."""
        flags = self.flags
        if not flags & TraceIter.CONTEXT_INFO:
            return ""
        if flags & TraceIter.LATENCY_FMT:
            return self._latency_header() if self.entries else ""
        if flags & TraceIter.VERBOSE:
            return ""
        tgid = bool(flags & TraceIter.RECORD_TGID)
        columns = (
            print_func_help_header_irq if flags & TraceIter.IRQ_INFO else print_func_help_header
        )
        return self.print_event_info() + columns(tgid)

    def print_event_info(self) -> str:
        """How much is in the buffer."""
        return (
            f"# entries-in-buffer/entries-written: {self.entries}/{self.written}"
            f"   #P:{self.nr_cpus}\n#\n"
        )

    def _latency_header(self) -> str:
        text = self.print_trace_header()
        return text if self.flags & TraceIter.VERBOSE else text + _LATENCY_COLUMNS

    def print_trace_header(self) -> str:
        """Whose latency this is."""
        saved = self.saved
        rule = "#    -----------------\n"
        critical = ""
        if saved.critical_start:
            critical = (
                f"#  => started at: {self.symbol(saved.critical_start)}\n"
                f"#  => ended at:   {self.symbol(saved.critical_end)}\n#\n"
            )
        return (
            f"# {self.tracer} latency trace v1.1.5 on {self.release}\n"
            f"# {'-' * 68}\n"
            f"# latency: {saved.latency_us} us, #{self.entries}/{self.written}, CPU#{saved.cpu} |"
            f" (M:{self.preempt_model} VP:0, KP:0, SP:0 HP:0 #P:{self.nr_cpus})\n"
            f"{rule}"
            f"#    | task: {saved.comm:.16}-{saved.pid} (uid:{saved.uid} nice:{saved.nice}"
            f" policy:{saved.policy} rt_prio:{saved.rt_priority})\n"
            f"{rule}{critical}#\n"
        )


def print_func_help_header(tgid: bool) -> str:
    """Column heads without the state columns."""
    first, second = ("   TGID   ", "     |    ") if tgid else ("", "")
    return (
        f"#           TASK-PID    {first} CPU#     TIMESTAMP  FUNCTION\n"
        f"#              | |      {second}   |         |         |\n"
    )


def print_func_help_header_irq(tgid: bool) -> str:
    """Column heads with the legend of the state columns."""
    indent = " " * (_LEGEND_INDENT + _TGID_WIDTH * tgid)
    first, second = ("     TGID   ", "       |    ") if tgid else ("  ", "  ")
    legend = "".join(f"#{indent}{text}\n" for text in _LEGEND)
    return (
        f"{legend}"
        f"#           TASK-PID  {first} CPU#  |||||  TIMESTAMP  FUNCTION\n"
        f"#              | |    {second}   |   |||||     |         |\n"
    )


_SNAPSHOT_HELP = """\
# echo 0 > snapshot : Clears and frees snapshot buffer
# echo 1 > snapshot : Allocates snapshot buffer, if not already allocated.
#                      Takes a snapshot of the main buffer.
# echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)
"""
_SNAPSHOT_PERCPU_HELP = """\
# echo 0 > snapshot : Invalid for per_cpu snapshot file.
# echo 1 > snapshot : Not supported with this kernel.
#                     Must use main snapshot file to allocate.
# echo 2 > snapshot : Clears this cpu's snapshot buffer (but does not allocate)
"""
_SNAPSHOT_ANY_NUMBER = """\
#                      (Doesn't have to be '2' works with any number that
#                       is not a '0' or '1')
"""


def snapshot_help(allocated: bool, per_cpu: bool) -> str:
    """What an empty snapshot shows instead of column heads (print_snapshot_help)."""
    state = "allocated" if allocated else "freed"
    commands = _SNAPSHOT_PERCPU_HELP if per_cpu else _SNAPSHOT_HELP
    return (
        f"#\n# * Snapshot is {state} *\n#\n# Snapshot commands:\n{commands}{_SNAPSHOT_ANY_NUMBER}"
    )
