"""struct trace_array: a buffer with its tracer, clock, options and readers (kernel/trace/trace.c).

Everything here is for the machine thread, which stands for trace_types_lock.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.function_probe import FuncProbes
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.trace.array_buffer import (
    EMPTY_BUFFER_SIZE,
    ArrayBuffer,
    free_snapshot,
    tracing_alloc_snapshot_instance,
)
from ftracefs.trace.clocks import TRACE_CLOCKS, TraceClock, find_clock
from ftracefs.trace.error_log import ErrorLog
from ftracefs.trace.events.event_pids import EventPids
from ftracefs.trace.events.trace_events import TraceEvents
from ftracefs.trace.function_pids import FunctionPids
from ftracefs.trace.options import (
    OPTION_NAMES,
    TraceIter,
    trace_options_text,
)
from ftracefs.trace.output.header import TraceHeader, snapshot_help
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.stats import tracing_stats
from ftracefs.trace.output.trace_text import TraceText
from ftracefs.trace.parsers import ULONG_MAX, strim
from ftracefs.trace.tracers import NOP_TRACE, TRACE_TYPES, Tracer
from ftracefs.trace.tracers.function_graph import graph_layout

if TYPE_CHECKING:
    from ftracefs.trace.tracing import Tracing

TRACE_BUF_SIZE_DEFAULT = 1441792  # what a buffer is expanded to, in bytes
TRACE_BUF_SIZE = 1024  # the longest marker
RAW_DATA_ID_SIZE = 4
RAW_DATA_MAX_SIZE = 3 * 1024  # of what is written to trace_marker_raw, cut to TRACE_BUF_SIZE
DEFAULT_BUFFER_PERCENT = 50


class TraceArray:
    """A trace array; the one with the empty name is the top level's (global_trace)."""

    def __init__(
        self,
        tracing: Tracing,
        name: str,
        ops: FtraceOps,
        size: int,
        trace_flags: TraceIter,
    ) -> None:
        self.tracing = tracing
        self.name = name
        self.ops = ops
        self.allocated_snapshot = False
        self.stop_count = 0  # while it is not 0, nothing is recorded and no snapshot taken
        self.buffer_percent = DEFAULT_BUFFER_PERCENT
        self.current_trace: Tracer = NOP_TRACE
        self.clock: TraceClock = TRACE_CLOCKS[0]
        self.trace_flags = trace_flags
        self.tracer_flags = tracing.tracer_flags
        self.err_log = ErrorLog()
        self.ref = 1  # itself and its open files: the instance may not go meanwhile
        self.trace_ref = 0  # open readers that consume: the tracer may not change meanwhile
        self.tracing_cpumask = (1 << tracing.machine.nr_cpus) - 1
        self._pipe_cpumask: set[int] = set()
        self._clock_words = tracing.clocks.words(self.clock)
        self._allocate_trace_buffers(size)
        self.func_probes = FuncProbes(tracing.ftrace, self.buffer.table)
        self.function_pids = FunctionPids(tracing, self.address)
        ops.trace_array = self.address
        self.events = TraceEvents(self)
        self.event_pids = EventPids(self)

    def _allocate_trace_buffers(self, size: int) -> None:
        """The buffer that is written, of `size` bytes a CPU, and the snapshot's, empty."""
        machine = self.tracing.machine
        percpu = [vcpu.percpu for vcpu in machine.cpus]
        with ExitStack() as undo:
            self._marker_page = machine.alloc(TRACE_BUF_SIZE)
            undo.callback(machine.free, self._marker_page)
            # What guest code knows of the trace array (struct trace_array).
            self.address = machine.alloc(CONSTANTS["TR_SIZE"], 64)
            undo.callback(machine.free, self.address)
            buffer = RingBuffer(machine.memory, percpu, size)
            undo.callback(buffer.free)
            self.array_buffer = ArrayBuffer(buffer)
            self.max_buffer = ArrayBuffer(RingBuffer(machine.memory, percpu, EMPTY_BUFFER_SIZE))
            undo.pop_all()
        machine.memory.set_u64(self.address + CONSTANTS["TR_BUFFERS"], self.buffer.table)
        for buffer in (self.buffer, self.max_buffer.buffer):
            buffer.set_overwrite(bool(self.trace_flags & TraceIter.OVERWRITE))
        self._set_stacktrace()
        self._set_clock_words()

    def _free_trace_buffers(self) -> None:
        self.buffer.free()
        self.max_buffer.buffer.free()
        self.tracing.machine.free(self._marker_page)
        self.tracing.machine.free(self.address)

    def _set_clock_words(self) -> None:
        for array_buffer in (self.array_buffer, self.max_buffer):
            array_buffer.buffer.set_clock(self._clock_words)

    @property
    def buffer(self) -> RingBuffer:
        """The ring buffer that is written."""
        return self.array_buffer.buffer

    @property
    def printed_buffer(self) -> ArrayBuffer:
        """What the file `trace` shows."""
        return self.max_buffer if self.current_trace.print_max else self.array_buffer

    # --- coming and going ------------------------------------------------------------------------

    def trace_array_get(self) -> None:
        """One more file of it is open. ENODEV when it has been removed."""
        if not self.ref:
            raise TracefsError(errno.ENODEV, f"instance {self.name} is gone")
        self.ref += 1

    def trace_array_put(self) -> None:
        """Undo one `trace_array_get`."""
        self.ref -= 1

    def remove_instance(self) -> None:
        """Trace no more and give all memory back (__remove_instance); EBUSY with a file open."""
        if self.ref > 1 or self.trace_ref:
            raise TracefsError(errno.EBUSY, f"a file of instance {self.name} is open")
        self.ref = 0
        self.tracing_set_nop()
        self.func_probes.clear_ftrace_function_probes()
        self.event_pids.free()
        self.function_pids.free()
        self.events.event_trace_del_tracer()
        if self.tracing.ftrace.ftrace_destroy_function_files(self.ops):
            self._free_trace_buffers()

    @property
    def nr_cpus(self) -> int:
        return len(self.buffer.cpus)

    def _chosen(self, cpu: int | None) -> Iterable[int]:
        return range(self.nr_cpus) if cpu is None else (cpu,)

    # --- recording -------------------------------------------------------------------------------

    def tracer_tracing_is_on(self) -> bool:
        """What tracing_on shows."""
        return self.buffer.record_is_on()

    def set_tracing_on(self, on: bool) -> None:
        """rb_simple_write: a change starts or stops the tracer and wakes who reads trace_pipe."""
        if on == self.tracer_tracing_is_on():
            return
        if on:
            self.buffer.record_on()
            self.current_trace.start(self)
        else:
            self.buffer.record_off()
            self.current_trace.stop(self)
            self.buffer.wake_waiters()

    def tracer_tracing_off(self) -> None:
        """Record nothing any more, whatever the tracer thinks of it."""
        self.buffer.record_off()

    def tracing_reset_online_cpus(self) -> None:
        """Empty the buffers of all CPUs."""
        self._reset(self.array_buffer, None)

    def tracing_reset_printed_buffer(self, cpu: int | None) -> None:
        """Empty what the file `trace` shows, of one CPU or of all."""
        self._reset(self.printed_buffer, cpu)

    def tracing_reset_max_buffer(self, cpu: int | None = None) -> None:
        """Empty the snapshot of one CPU, or of all."""
        self._reset(self.max_buffer, cpu)

    def _reset(self, array_buffer: ArrayBuffer, cpu: int | None) -> None:
        array_buffer.buffer.reset(cpu)
        if cpu is None:
            array_buffer.time_start = self.ring_buffer_time_stamp()

    def tracing_mark_write(self, text: bytes) -> int:
        """Record a marker as the task that is acting, and return the bytes taken.

        EINVAL with markers switched off; EBADF when nothing can be recorded, as if the file were
        not open for writing.
        """
        self._check_markers()
        function = self.tracing.label("tracing_mark_write")
        return self._mark(function, text, function)

    def tracing_mark_raw_write(self, data: bytes) -> int:
        """The same for bytes that nobody interprets but for their first four, the id.

        EINVAL without an id, or with more than 3 KB.
        """
        self._check_markers()
        if not RAW_DATA_ID_SIZE <= len(data) <= RAW_DATA_MAX_SIZE:
            raise TracefsError(errno.EINVAL, "an id and at most 3 KB")
        return self._mark(self.tracing.label("tracing_mark_raw_write"), data)

    def _check_markers(self) -> None:
        if not self.trace_flags & TraceIter.MARKERS:
            raise TracefsError(errno.EINVAL, "the option markers is off")

    def _mark(self, function: int, data: bytes, *arguments: int) -> int:
        """Let guest code write the record; it may read `data` until this returns."""
        tracing, page = self.tracing, self._marker_page
        data = data[:TRACE_BUF_SIZE]
        tracing.machine.memory.write(page, data)
        cpu = tracing.acting_cpu()
        table = self.buffer.table
        taken = tracing.machine.call(function, table, page, len(data), *arguments, cpu=cpu)
        if taken >> 63:
            raise TracefsError((1 << 64) - taken, "nothing can be recorded")
        return taken

    def tracing_set_cpumask(self, cpumask: int) -> None:
        """Record on the CPUs of this mask (a bit each) and on no others."""
        for cpu in range(self.nr_cpus):
            was_in, is_in = self.tracing_cpumask >> cpu & 1, cpumask >> cpu & 1
            for buffer in (self.buffer, self.max_buffer.buffer):
                if was_in and not is_in:
                    buffer.cpus[cpu].record_disable()
                elif is_in and not was_in:
                    buffer.cpus[cpu].record_enable()
        self.tracing_cpumask = cpumask

    # --- tracer ----------------------------------------------------------------------------------

    def available_tracers(self) -> list[Tracer]:
        """The tracers this trace array can have (trace_ok_for_array)."""
        image = self.tracing.image
        return [
            tracer
            for tracer in TRACE_TYPES
            if (not self.name or tracer.allow_instances)
            and all(image.find(symbol) is not None for symbol in tracer.needs)
        ]

    def tracing_set_tracer(self, name: str) -> None:
        """Put another tracer in charge, with an empty buffer; nothing happens if it is already.

        EINVAL for a name that is none; EBUSY while somebody consumes the records; ENOMEM when it
        wants a snapshot of its own and there is no room.
        """
        if not self.tracing.ring_buffer_expanded:
            self.expand_buffer()
        tracer = next((t for t in TRACE_TYPES if t.name == name), None)
        if tracer is None:
            raise TracefsError(errno.EINVAL, f"no tracer {name!r}")
        if tracer is self.current_trace:
            return
        if tracer not in self.available_tracers():
            raise TracefsError(errno.EINVAL, f"{name} is not for instances")
        if self.trace_ref:
            raise TracefsError(errno.EBUSY, "trace_pipe is open")
        had_max_tr = self.current_trace.use_max_tr
        self.tracing_set_nop()
        if had_max_tr and not tracer.use_max_tr:
            free_snapshot(self)
        if tracer.use_max_tr:
            tracing_alloc_snapshot_instance(self)
        self.tracing_reset_online_cpus()
        tracer.init(self)
        self.current_trace = tracer

    def tracing_set_nop(self) -> None:
        """Put no tracer in charge."""
        self.current_trace.reset(self)
        self.current_trace = NOP_TRACE

    # --- size ------------------------------------------------------------------------------------

    def expand_buffer(self) -> None:
        """Give every CPU the size its buffer has in use. Whoever comes first is the only one."""
        self._resize(TRACE_BUF_SIZE_DEFAULT, None)

    def tracing_resize_ring_buffer(self, size: int, cpu: int | None = None) -> None:
        """Give one CPU, or all, `size` bytes. ENOMEM when there is no room or `trace` is open."""
        try:
            self._resize(size & ULONG_MAX, cpu)
        except TracefsError as error:
            raise TracefsError(errno.ENOMEM, str(error)) from error

    def _resize(self, size: int, cpu: int | None) -> None:
        """__tracing_resize_ring_buffer."""
        self.tracing.ring_buffer_expanded = True
        before = [self.buffer.size(number) for number in self._chosen(cpu)]
        self.buffer.resize(size, cpu)
        if not self.allocated_snapshot:
            return
        try:
            self.max_buffer.buffer.resize(size, cpu)
        except TracefsError:
            for number, old in zip(self._chosen(cpu), before, strict=True):
                self.buffer.resize(old, number)
            raise

    def buffer_size_kb(self, cpu: int | None) -> str:
        """The file buffer_size_kb of one CPU, or of all (tracing_entries_read)."""
        if cpu is not None:
            return f"{self.buffer.size(cpu) >> 10}\n"
        sizes = {self.buffer.size(number) for number in self._chosen(None)}
        if len(sizes) > 1:
            return "X\n"
        return self._size_text(sizes.pop() >> 10, TRACE_BUF_SIZE_DEFAULT >> 10)

    def buffer_total_size_kb(self) -> str:
        """The file of that name (tracing_total_entries_read)."""
        total = sum(self.buffer.size(number) >> 10 for number in self._chosen(None))
        return self._size_text(total, self.nr_cpus * (TRACE_BUF_SIZE_DEFAULT >> 10))

    def _size_text(self, size_kb: int, expanded_kb: int) -> str:
        if self.tracing.ring_buffer_expanded:
            return f"{size_kb}\n"
        return f"{size_kb} (expanded: {expanded_kb})\n"

    # --- clock -----------------------------------------------------------------------------------

    def tracing_set_clock(self, name: str) -> None:
        """Stamp records with another clock and empty the buffer, also if it is the same one."""
        clock = find_clock(name)
        if clock is None:
            raise TracefsError(errno.EINVAL, f"no clock {name!r}")
        self.clock = clock
        self._clock_words = self.tracing.clocks.words(clock)
        self._set_clock_words()
        self.current_trace.clock_changed(self)
        self.tracing_reset_online_cpus()
        self.tracing_reset_max_buffer()

    def trace_clock_text(self) -> str:
        """The file trace_clock."""
        names = (f"[{c.name}]" if c is self.clock else c.name for c in TRACE_CLOCKS)
        return " ".join(names) + "\n"

    def ring_buffer_time_stamp(self) -> int:
        """The time now, by the clock of this buffer."""
        return self.tracing.clocks.read(self._clock_words)

    # --- options ---------------------------------------------------------------------------------

    def _set_stacktrace(self) -> None:
        flags = self.trace_flags
        kernel, user = flags & TraceIter.STACKTRACE, flags & TraceIter.USERSTACKTRACE
        self.buffer.set_stacktrace(bool(kernel), bool(user))

    def set_tracer_flag(self, flag: TraceIter, enabled: bool, *, asking: bool = True) -> None:
        """Switch a common option; EINVAL if the tracer in charge will not have it.

        Not `asking` is for that tracer itself, on its way out.
        """
        if bool(self.trace_flags & flag) == enabled:
            return
        if asking:
            self.current_trace.flag_changed(self, flag, enabled)
        self.trace_flags = self.trace_flags | flag if enabled else self.trace_flags & ~flag
        if flag is TraceIter.OVERWRITE:
            self.buffer.set_overwrite(enabled)
            self.max_buffer.buffer.set_overwrite(enabled)
        elif flag in (TraceIter.STACKTRACE, TraceIter.USERSTACKTRACE):
            self._set_stacktrace()
        elif flag is TraceIter.RECORD_CMD:
            for tr in self.tracing.trace_arrays():
                tr.events.trace_event_enable_cmd_record(enabled)
        elif flag is TraceIter.RECORD_TGID:
            self.tracing.saved_tgids.alloc_tgid_map()
            for tr in self.tracing.trace_arrays():
                tr.events.trace_event_enable_tgid_record(enabled)
        elif flag is TraceIter.EVENT_FORK:
            self.event_pids.trace_event_follow_fork(enabled)
        elif flag is TraceIter.FUNC_FORK:
            self.function_pids.ftrace_pid_follow_fork(enabled)

    def set_tracer_option(self, tracer: Tracer, name: str, enabled: bool) -> None:
        """Switch an option of a tracer, in charge or not; EINVAL if the tracer will not have it."""
        tracer.set_flag(self, name, enabled)
        self.tracer_flags[name] = enabled

    def trace_set_options(self, option: bytes) -> None:
        """Switch what `option` names, off if it begins with `no`.

        EINVAL unless it is a common option or one of the tracer in charge.
        """
        name = strim(option).decode("utf-8", "surrogateescape")
        enabled = not name.startswith("no")
        name = name.removeprefix("no")
        for flag, flag_name in OPTION_NAMES.items():
            if name == flag_name:
                self.set_tracer_flag(flag, enabled)
                return
        if name not in (opt.name for opt in self.current_trace.options):
            raise TracefsError(errno.EINVAL, f"no option {name!r}")
        self.set_tracer_option(self.current_trace, name, enabled)

    def trace_options_text(self) -> str:
        """The file trace_options."""
        names = (opt.name for opt in self.current_trace.options)
        return trace_options_text(
            self.trace_flags, ((name, self.tracer_flags[name]) for name in names)
        )

    # --- readers ---------------------------------------------------------------------------------

    def tracing_stop_tr(self) -> None:
        """Record nothing until as many `tracing_start_tr`."""
        self.stop_count += 1
        if self.stop_count == 1:
            self.buffer.record_disable()
            self.max_buffer.buffer.record_disable()

    def tracing_start_tr(self) -> None:
        """Undo one `tracing_stop_tr`; one that was undone already is forgiven."""
        if self.stop_count == 0:
            return
        self.stop_count -= 1
        if self.stop_count == 0:
            self.buffer.record_enable()
            self.max_buffer.buffer.record_enable()

    def open_pipe_on_cpu(self, cpu: int | None) -> None:
        """A reader of trace_pipe. EBUSY when another one reads one of its CPUs."""
        wanted = set(self._chosen(cpu))
        if self._pipe_cpumask & wanted:
            raise TracefsError(errno.EBUSY, "trace_pipe has a reader")
        self._pipe_cpumask |= wanted
        self.trace_ref += 1

    def close_pipe_on_cpu(self, cpu: int | None) -> None:
        """Undo one `open_pipe_on_cpu`."""
        self._pipe_cpumask -= set(self._chosen(cpu))
        self.trace_ref -= 1

    # --- latency ---------------------------------------------------------------------------------

    @property
    def max_latency_word(self) -> int:
        """Where guest code finds `max_latency`."""
        return self.address + CONSTANTS["TR_MAX_LATENCY"]

    @property
    def max_latency(self) -> int:
        """The worst that a latency tracer has seen, nanoseconds."""
        return self.tracing.machine.memory.u64(self.max_latency_word)

    @max_latency.setter
    def max_latency(self, nanoseconds: int) -> None:
        self.tracing.machine.memory.set_u64(self.max_latency_word, nanoseconds)

    # --- statistics ------------------------------------------------------------------------------

    def tracing_stats(self, cpu: int, *, peek: bool = False) -> str:
        """The file per_cpu/cpuN/stats (tracing_stats_read); with `peek` no clock is moved."""
        cpu_buffer, clocks = self.buffer.cpus[cpu], self.tracing.clocks
        stats, oldest = cpu_buffer.stats(), cpu_buffer.oldest_event_ts()
        now = (clocks.peek if peek else clocks.read)(self._clock_words)
        return tracing_stats(stats, oldest, now, self.clock.in_ns)

    # --- what a reader needs ---------------------------------------------------------------------

    def output_context(self, array_buffer: ArrayBuffer | None = None) -> OutputContext:
        """How records are to be printed now, those of the buffer that is written if not told."""
        array_buffer = array_buffer or self.array_buffer
        return OutputContext(
            self.tracing.symbols,
            self.tracing.saved_cmdlines.names(),
            self.trace_flags,
            self.clock.in_ns,
            time_start=array_buffer.time_start,
            annotate=array_buffer.buffer.overruns() > 0,
            tgids=self.tracing.saved_tgids.tgids(),
            graph=self.current_trace.graph_layout(self),
            graph_events=graph_layout(self),
        )

    def _ip_sym(self, address: int) -> str:
        """seq_print_ip_sym of one address."""
        return self.tracing.symbols.seq_print_ip_sym(address, self.trace_flags).decode()

    def _header(self, array_buffer: ArrayBuffer) -> TraceHeader:
        entries = array_buffer.buffer.entries()
        return TraceHeader(
            self.current_trace.name,
            self.trace_flags,
            entries,
            entries + array_buffer.buffer.overruns(),
            self.nr_cpus,
            saved=array_buffer.saved,
            release=self.tracing.release,
            preempt_model=self.tracing.preempt_model,
            symbol=self._ip_sym,
            is_dead=self.tracing.ftrace.ftrace_disabled,
        )

    def trace_text(self, cpu: int | None) -> TraceText:
        """The file `trace` of one CPU, or of all, as of now."""
        array_buffer = self.printed_buffer
        header, pages = self._header(array_buffer), array_buffer.buffer.snapshot(cpu)
        entries: Entries | None = None
        if self.current_trace.print_max:
            # What was recorded before the worst case began does not belong to it.
            entries = merge(pages)
            skipped = int(np.searchsorted(entries.ts, np.uint64(array_buffer.time_start)))
            if skipped:
                entries = entries[skipped:]
                header = replace(header, entries=len(entries), written=len(entries))
        text = self.current_trace.print_header(self, header)
        context = self.output_context(array_buffer)
        return TraceText(
            text, pages if entries is None else entries, context, self.tracing.event_functions
        )

    def snapshot_text(self, cpu: int | None) -> TraceText:
        """The file `snapshot` of one CPU, or of all, as of now.

        Only function_graph shows it in the latency format. EBUSY while the tracer in charge has the
        snapshot for itself.
        """
        tracer, array_buffer = self.current_trace, self.max_buffer
        if tracer.use_max_tr:
            raise TracefsError(errno.EBUSY, f"{tracer.name} needs the snapshot itself")
        header = self._header(array_buffer)
        if tracer.graph_layout(self) is None:
            header = replace(header, flags=header.flags & ~TraceIter.LATENCY_FMT)
        if array_buffer.buffer.is_empty(cpu):
            text = header.top() + snapshot_help(self.allocated_snapshot, cpu is not None)
        else:
            text = tracer.print_header(self, header)
        context = replace(self.output_context(array_buffer), lat_fmt=False)
        pages = array_buffer.buffer.snapshot(cpu)
        return TraceText(text, pages, context, self.tracing.event_functions)

    # --- errors ----------------------------------------------------------------------------------

    def tracing_log_err(self, loc: str, cmd: str, error: str, pos: int) -> None:
        """Say in error_log why a command was refused."""
        now = self.tracing.clocks.read(self.tracing.clocks.words(TRACE_CLOCKS[0]))
        self.err_log.tracing_log_err(now, loc, cmd, error, pos)
