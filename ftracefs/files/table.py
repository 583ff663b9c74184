"""The list of all files: where, with which mode, made by what.

Models init_tracer_tracefs, tracing_init_tracefs_percpu and tracer_init_tracefs_work_func of
kernel/trace/trace.c, and the ftrace_init_tracefs family of kernel/trace/ftrace.c.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ftracefs.files import (
    buffer,
    cpumask,
    emulator,
    events,
    filters,
    graph,
    info,
    latency,
    options,
    pids,
    profile,
    stack,
    sysctl,
    tracer,
)
from ftracefs.files.base import Directory, Node, TracefsFile
from ftracefs.files.direct import direct
from ftracefs.files.disassembly import TextDirectory
from ftracefs.files.instances import Instances
from ftracefs.files.livepatch import livepatch
from ftracefs.files.modules import modules
from ftracefs.files.ops import ops
from ftracefs.files.options import options_directory
from ftracefs.files.trace import SnapshotFile, TraceFile
from ftracefs.files.trace_marker import trace_marker, trace_marker_raw
from ftracefs.files.trace_pipe import TracePipeFile
from ftracefs.files.trace_pipe_raw import TracePipeRawFile, snapshot_raw
from ftracefs.files.trampolines import trampolines
from ftracefs.trace.trace_array import TraceArray
from ftracefs.trace.tracing import Tracing

ROOT_MODE = 0o700


@dataclass(frozen=True, slots=True)
class File:
    """A file of a trace array's directory."""

    name: str
    mode: int
    make: Callable[[TraceArray], TracefsFile]


@dataclass(frozen=True, slots=True)
class PerCpuFile:
    """A file of per_cpu/cpuN."""

    name: str
    mode: int
    make: Callable[[TraceArray, int], TracefsFile]


@dataclass(frozen=True, slots=True)
class EmulatorFile:
    """A file of emulator/."""

    name: str
    mode: int
    make: Callable[[Tracing], TracefsFile]


# Only at the top.
TOP_FILES = (
    File("README", 0o440, info.readme),
    File("available_events", 0o440, events.available_events),
    File("available_filter_functions", 0o440, filters.available_filter_functions),
    File("dyn_ftrace_total_info", 0o440, filters.dyn_ftrace_total_info),
    File("enabled_functions", 0o440, filters.enabled_functions),
    File("function_profile_enabled", 0o640, profile.function_profile_enabled),
    File("max_graph_depth", 0o640, graph.max_graph_depth),
    File("printk_formats", 0o440, info.printk_formats),
    File("saved_cmdlines", 0o440, info.saved_cmdlines),
    File("saved_cmdlines_size", 0o640, info.saved_cmdlines_size),
    File("saved_tgids", 0o440, info.saved_tgids),
    File("set_graph_function", 0o640, graph.set_graph_function),
    File("set_graph_notrace", 0o640, graph.set_graph_notrace),
    File("stack_max_size", 0o640, stack.stack_max_size),
    File("stack_trace", 0o440, stack.stack_trace),
    File("stack_trace_filter", 0o640, stack.stack_trace_filter),
    File("tracing_thresh", 0o640, graph.tracing_thresh),
)

# For every trace array.
TRACE_ARRAY_FILES = (
    File("available_tracers", 0o440, tracer.available_tracers),
    File("buffer_percent", 0o640, buffer.buffer_percent),
    File("buffer_size_kb", 0o640, buffer.buffer_size_kb),
    File("buffer_total_size_kb", 0o440, buffer.buffer_total_size_kb),
    File("current_tracer", 0o640, tracer.current_tracer),
    File("error_log", 0o640, info.error_log),
    File("free_buffer", 0o200, buffer.FreeBuffer),
    File("set_event", 0o640, events.set_event),
    File("set_event_notrace_pid", 0o640, events.set_event_notrace_pid),
    File("set_event_pid", 0o640, events.set_event_pid),
    File("set_ftrace_filter", 0o640, filters.set_ftrace_filter),
    File("set_ftrace_notrace", 0o640, filters.set_ftrace_notrace),
    File("set_ftrace_notrace_pid", 0o640, pids.set_ftrace_notrace_pid),
    File("set_ftrace_pid", 0o640, pids.set_ftrace_pid),
    File("snapshot", 0o640, SnapshotFile),
    File("timestamp_mode", 0o440, buffer.timestamp_mode),
    File("trace", 0o640, TraceFile),
    File("trace_clock", 0o640, buffer.trace_clock),
    File("trace_marker", 0o220, trace_marker),
    File("trace_marker_raw", 0o220, trace_marker_raw),
    File("trace_options", 0o640, options.trace_options),
    File("trace_pipe", 0o440, TracePipeFile),
    File("tracing_cpumask", 0o640, cpumask.tracing_cpumask),
    File("tracing_max_latency", 0o640, latency.tracing_max_latency),
    File("tracing_on", 0o640, buffer.tracing_on),
)

PER_CPU_FILES = (
    PerCpuFile("buffer_size_kb", 0o640, buffer.buffer_size_kb),
    PerCpuFile("snapshot", 0o640, SnapshotFile),
    PerCpuFile("snapshot_raw", 0o440, snapshot_raw),
    PerCpuFile("stats", 0o440, buffer.stats),
    PerCpuFile("trace", 0o640, TraceFile),
    PerCpuFile("trace_pipe", 0o440, TracePipeFile),
    PerCpuFile("trace_pipe_raw", 0o440, TracePipeRawFile),
)

EMULATOR_FILES = (
    EmulatorFile("call", 0o640, emulator.CallFile),
    EmulatorFile("console", 0o440, emulator.console),
    EmulatorFile("direct", 0o640, direct),
    EmulatorFile("inline_callbacks", 0o640, emulator.inline_callbacks),
    EmulatorFile("kallsyms", 0o440, emulator.kallsyms),
    EmulatorFile("kernel", 0o440, emulator.kernel),
    EmulatorFile("livepatch", 0o640, livepatch),
    EmulatorFile("modules", 0o640, modules),
    EmulatorFile("ops", 0o440, ops),
    EmulatorFile("patch_log", 0o440, emulator.patch_log),
    EmulatorFile("patching", 0o640, emulator.patching),
    EmulatorFile("touched_functions", 0o440, emulator.touched_functions),
    EmulatorFile("trampolines", 0o440, trampolines),
)

# emulator/sysctl/: what is in /proc/sys/kernel of Linux.
SYSCTL_FILES = (
    EmulatorFile("ftrace_dump_on_oops", 0o644, sysctl.ftrace_dump_on_oops),
    EmulatorFile("ftrace_enabled", 0o644, sysctl.ftrace_enabled),
    EmulatorFile("stack_tracer_enabled", 0o644, sysctl.stack_tracer_enabled),
)


def build_tree(
    tracing: Tracing, *, pure: bool = False, emulator: Mapping[str, Node] | None = None
) -> Directory:
    """The root of the mount; `pure` leaves out what Linux does not have.

    `emulator` is what a kernel has in emulator/ for itself, some of it in place of the usual.
    """
    tr = tracing.global_trace
    entries = init_tracer_tracefs(tr)
    entries |= {file.name: _with_mode(file.make(tr), file.mode) for file in TOP_FILES}
    entries["trace_stat"] = profile.trace_stat(tr)
    entries["instances"] = Instances(tracing, trace_array_create_dir)
    if not pure:
        entries["emulator"] = _emulator(tracing, emulator or {})
        entries["README"] = _with_mode(info.readme_with_emulator(), entries["README"].mode)
    root = Directory({name: entries[name] for name in sorted(entries)})
    root.mode = ROOT_MODE
    return root


def init_tracer_tracefs(tr: TraceArray) -> dict[str, Node]:
    """What every trace array has."""
    entries: dict[str, Node] = {
        file.name: _with_mode(file.make(tr), file.mode) for file in TRACE_ARRAY_FILES
    }
    entries["events"] = events.events_directory(tr)
    entries["options"] = options_directory(tr)
    entries["per_cpu"] = tracing_init_tracefs_percpu(tr)
    return entries


def trace_array_create_dir(tr: TraceArray) -> Directory:
    """The directory of an instance."""
    entries = init_tracer_tracefs(tr)
    return Directory({name: entries[name] for name in sorted(entries)})


def tracing_init_tracefs_percpu(tr: TraceArray) -> Directory:
    """per_cpu/ of a trace array."""
    return Directory(
        {
            f"cpu{cpu}": Directory(
                {file.name: _with_mode(file.make(tr, cpu), file.mode) for file in PER_CPU_FILES}
            )
            for cpu in range(tr.nr_cpus)
        }
    )


def _emulator(tracing: Tracing, own: Mapping[str, Node]) -> Directory:
    entries: dict[str, Node] = {
        file.name: _with_mode(file.make(tracing), file.mode) for file in EMULATOR_FILES
    }
    entries["sysctl"] = Directory(
        {file.name: _with_mode(file.make(tracing), file.mode) for file in SYSCTL_FILES}
    )
    return Directory({**entries, "text": TextDirectory(tracing), **own})


def _with_mode(file: TracefsFile, mode: int) -> TracefsFile:
    file.mode = mode
    return file
