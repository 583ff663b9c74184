"""The commands of set_ftrace_filter that trace, stop or show (kernel/trace/trace_functions.c and,
for snapshot, trace.c).

`FUNC:traceoff`, `FUNC:traceoff:COUNT`; `!` in front takes one back. `mod` is in ftrace/filter.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from emulated_kernel.machine import Processor
from ftracefs.ftrace.filter import FtraceFuncCommand, FtraceRegex
from ftracefs.ftrace.function_probe import UNLIMITED, FtraceFuncProbe, FtraceProbeOps
from ftracefs.trace.array_buffer import tracing_alloc_snapshot_instance
from ftracefs.trace.ftrace_dump import ftrace_dump
from ftracefs.trace.parsers import kstrtoul

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray
    from ftracefs.trace.tracing import Tracing


def ftrace_trace_probe_callback(
    tr: TraceArray,
    ops: FtraceProbeOps,
    glob: bytes,
    param: bytes | None,
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """Set `ops` for functions, with a count if `param` begins with one, or (`!`) take it back.

    `prepare` is done before the first function does it.
    """
    if glob.startswith(b"!"):
        tr.func_probes.unregister_ftrace_function_probe_func(glob[1:], ops)
        return
    number = (param or b"").partition(b":")[0]
    count = kstrtoul(number, 0) if number else UNLIMITED
    prepare()
    tr.func_probes.register_ftrace_function_probe(glob, ops, count)


def function_commands(tr: TraceArray) -> dict[bytes, FtraceFuncCommand]:
    """The commands that set_ftrace_filter of `tr` takes (ftrace_commands)."""
    probes = tr.tracing.probe_ops

    def counted(name: bytes, plain: FtraceProbeOps, counting: FtraceProbeOps) -> None:
        def command(_: FtraceRegex, glob: bytes, _name: bytes, param: bytes | None) -> None:
            ops = plain if param is None else counting
            ftrace_trace_probe_callback(tr, ops, glob, param)

        commands[name] = command

    def once(name: bytes, ops: FtraceProbeOps) -> None:
        def command(_: FtraceRegex, glob: bytes, _name: bytes, _param: bytes | None) -> None:
            ftrace_trace_probe_callback(tr, ops, glob, b"1")

        commands[name] = command

    def snapshot(_: FtraceRegex, glob: bytes, _name: bytes, param: bytes | None) -> None:
        ops = probes.snapshot if param is None else probes.snapshot_count
        room = partial(tracing_alloc_snapshot_instance, tr)
        ftrace_trace_probe_callback(tr, ops, glob, param, prepare=room)

    commands: dict[bytes, FtraceFuncCommand] = {
        b"snapshot": snapshot,
        **tr.tracing.event_commands.commands(tr),
    }
    counted(b"traceon", probes.traceon, probes.traceon_count)
    counted(b"traceoff", probes.traceoff, probes.traceoff_count)
    counted(b"stacktrace", probes.stacktrace, probes.stacktrace_count)
    once(b"dump", probes.dump)
    once(b"cpudump", probes.cpudump)
    return commands


class FunctionProbeOps:
    """The kinds of commands there are, of all trace arrays together."""

    def __init__(self, tracing: Tracing) -> None:
        self.traceon = FtraceProbeOps("traceon", "ftrace_traceon")
        self.traceon_count = FtraceProbeOps("traceon", "ftrace_traceon_count", counts=True)
        self.traceoff = FtraceProbeOps("traceoff", "ftrace_traceoff")
        self.traceoff_count = FtraceProbeOps("traceoff", "ftrace_traceoff_count", counts=True)
        self.stacktrace = FtraceProbeOps("stacktrace", "ftrace_stacktrace")
        self.stacktrace_count = FtraceProbeOps("stacktrace", "ftrace_stacktrace_count", counts=True)
        self.snapshot = FtraceProbeOps("snapshot", "ftrace_snapshot")
        self.snapshot_count = FtraceProbeOps("snapshot", "ftrace_count_snapshot", counts=True)
        self.dump = FtraceProbeOps(
            "dump", "ftrace_dump_probe", counts=True, host=partial(_ftrace_dump_probe, tracing)
        )
        self.cpudump = FtraceProbeOps(
            "cpudump", "ftrace_cpudump_probe", host=partial(_ftrace_cpudump_probe, tracing)
        )


def _ftrace_dump_probe(tracing: Tracing, _probe: FtraceFuncProbe, _vcpu: Processor) -> None:
    ftrace_dump(tracing)


def _ftrace_cpudump_probe(tracing: Tracing, _probe: FtraceFuncProbe, vcpu: Processor) -> None:
    """Only the buffer of the CPU that the function is called on."""
    ftrace_dump(tracing, cpu=vcpu.number)
