"""The trace options: every name of Linux 6.1, its default, and which of them mean something here.

Models TRACE_FLAGS of kernel/trace/trace.h and the per-tracer options (`struct tracer_opt`). An
option is a bit of a trace array's `trace_flags`, a tracer's own option a bit of that tracer's flags
in this trace array.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag, auto


class TraceIter(IntFlag):
    """TRACE_ITER_*: the options that every trace array has, in the order Linux lists them."""

    PRINT_PARENT = auto()
    SYM_OFFSET = auto()
    SYM_ADDR = auto()
    VERBOSE = auto()
    RAW = auto()
    HEX = auto()
    BIN = auto()
    BLOCK = auto()
    PRINTK = auto()
    ANNOTATE = auto()
    USERSTACKTRACE = auto()
    SYM_USEROBJ = auto()
    PRINTK_MSGONLY = auto()
    CONTEXT_INFO = auto()
    LATENCY_FMT = auto()
    RECORD_CMD = auto()
    RECORD_TGID = auto()
    OVERWRITE = auto()
    STOP_ON_FREE = auto()
    IRQ_INFO = auto()
    MARKERS = auto()
    EVENT_FORK = auto()
    PAUSE_ON_TRACE = auto()
    HASH_PTR = auto()
    FUNCTION = auto()
    FUNC_FORK = auto()
    DISPLAY_GRAPH = auto()
    STACKTRACE = auto()


OPTION_NAMES: dict[TraceIter, str] = {
    TraceIter.PRINT_PARENT: "print-parent",
    TraceIter.SYM_OFFSET: "sym-offset",
    TraceIter.SYM_ADDR: "sym-addr",
    TraceIter.VERBOSE: "verbose",
    TraceIter.RAW: "raw",
    TraceIter.HEX: "hex",
    TraceIter.BIN: "bin",
    TraceIter.BLOCK: "block",
    TraceIter.PRINTK: "trace_printk",
    TraceIter.ANNOTATE: "annotate",
    TraceIter.USERSTACKTRACE: "userstacktrace",
    TraceIter.SYM_USEROBJ: "sym-userobj",
    TraceIter.PRINTK_MSGONLY: "printk-msg-only",
    TraceIter.CONTEXT_INFO: "context-info",
    TraceIter.LATENCY_FMT: "latency-format",
    TraceIter.RECORD_CMD: "record-cmd",
    TraceIter.RECORD_TGID: "record-tgid",
    TraceIter.OVERWRITE: "overwrite",
    TraceIter.STOP_ON_FREE: "disable_on_free",
    TraceIter.IRQ_INFO: "irq-info",
    TraceIter.MARKERS: "markers",
    TraceIter.EVENT_FORK: "event-fork",
    TraceIter.PAUSE_ON_TRACE: "pause-on-trace",
    TraceIter.HASH_PTR: "hash-ptr",
    TraceIter.FUNCTION: "function-trace",
    TraceIter.FUNC_FORK: "function-fork",
    TraceIter.DISPLAY_GRAPH: "display-graph",
    TraceIter.STACKTRACE: "stacktrace",
}

TRACE_DEFAULT_FLAGS = (
    TraceIter.PRINT_PARENT
    | TraceIter.PRINTK
    | TraceIter.ANNOTATE
    | TraceIter.CONTEXT_INFO
    | TraceIter.RECORD_CMD
    | TraceIter.OVERWRITE
    | TraceIter.IRQ_INFO
    | TraceIter.MARKERS
    | TraceIter.HASH_PTR
    | TraceIter.FUNCTION
)

# Only the top level's trace array has a file for these in options/.
TOP_LEVEL_TRACE_FLAGS = TraceIter.PRINTK | TraceIter.PRINTK_MSGONLY | TraceIter.RECORD_CMD

# What a new instance does not take over from the top level.
ZEROED_TRACE_FLAGS = TraceIter.EVENT_FORK | TraceIter.FUNC_FORK


@dataclass(frozen=True, slots=True)
class TracerOpt:
    """An option of one tracer (struct tracer_opt)."""

    name: str
    default: bool = False


NOP_OPTIONS = (TracerOpt("test_nop_accept"), TracerOpt("test_nop_refuse"))
FUNCTION_OPTIONS = (TracerOpt("func_stack_trace"), TracerOpt("func-no-repeats"))
FUNCTION_GRAPH_OPTIONS = (
    TracerOpt("funcgraph-overrun"),
    TracerOpt("funcgraph-cpu", default=True),
    TracerOpt("funcgraph-overhead", default=True),
    TracerOpt("funcgraph-proc"),
    TracerOpt("funcgraph-duration", default=True),
    TracerOpt("funcgraph-abstime"),
    TracerOpt("funcgraph-irqs", default=True),
    TracerOpt("funcgraph-tail"),
    TracerOpt("sleep-time", default=True),
    TracerOpt("graph-time", default=True),
)
BLK_OPTIONS = (TracerOpt("blk_classic"), TracerOpt("blk_cgroup"), TracerOpt("blk_cgname"))


def option_line(name: str, is_set: bool) -> str:
    """An option as trace_options lists it."""
    return f"{name}\n" if is_set else f"no{name}\n"


def trace_options_text(flags: TraceIter, tracer: Iterable[tuple[str, bool]]) -> str:
    """The trace_options file: the common options, then those of the current tracer."""
    common = ((name, bool(flags & flag)) for flag, name in OPTION_NAMES.items())
    return "".join(option_line(name, is_set) for name, is_set in (*common, *tracer))
