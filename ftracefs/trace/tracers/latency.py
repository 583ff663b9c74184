"""What the latency tracers have in common: they show the worst case that they have seen.

Models what kernel/trace/trace_irqsoff.c and trace_sched_wakeup.c do alike. A kind of latency tracer
has one state for the whole machine, so one trace array at a time can have a tracer of that kind.
Left out: display-graph.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from ftracefs.errors import TracefsError
from ftracefs.trace.options import TraceIter
from ftracefs.trace.tracers.tracer import trace_keep_overwrite

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray
    from ftracefs.trace.tracing import Tracing


class LatencyTracing:
    """The state of one kind; its guest code calls its words by `kind`.

    `callback` is what runs in traced functions, `needed` the options that it must have.
    """

    def __init__(self, tracing: Tracing, kind: str, callback: str, needed: TraceIter) -> None:
        self.tracing = tracing
        self.memory = tracing.machine.memory
        self.trace: TraceArray | None = None  # whose tracer is in charge
        self._kind = kind
        self._callback = callback
        self._needed = needed
        self._function_enabled = False
        self._save_flags = TraceIter(0)

    def label(self, name: str) -> int:
        """The address of something in the engine's own code."""
        return self.tracing.label(name)

    def init(self, tr: TraceArray) -> None:
        """Get ready, with nothing seen. EBUSY while one of this kind is in charge somewhere."""
        if self.trace is not None:
            raise TracefsError(errno.EBUSY, f"{self.trace.current_trace.name} is in charge")
        self._save_flags = tr.trace_flags
        for flag in self._needed:
            tr.set_tracer_flag(flag, True)
        tr.max_latency = 0
        self.trace = tr
        tr.ops.func = self.label(self._callback)
        tr.ops.private = tr.buffer.table
        tr.ops.write_guest()
        self.memory.set_u64(self.label(f"{self._kind}_ops"), tr.ops.address)
        self.memory.set_u64(self.label(f"{self._kind}_max_latency"), tr.max_latency_word)
        tr.tracing.saved_cmdlines.tracing_start_cmdline_record()

    def start_func_tracer(self, tr: TraceArray) -> None:
        """Begin, if tracing is on."""
        self._register_function(tr, is_wanted=bool(tr.trace_flags & TraceIter.FUNCTION))
        self.set_tracer_enabled(tr.tracer_tracing_is_on())

    def stop_func_tracer(self, tr: TraceArray) -> None:
        """End."""
        self.set_tracer_enabled(False)
        self._unregister_function(tr)

    def reset(self, tr: TraceArray) -> None:
        """Undo `init`, options and all."""
        tr.tracing.saved_cmdlines.tracing_stop_cmdline_record()
        self.trace = None
        for flag in self._needed:
            tr.set_tracer_flag(flag, bool(self._save_flags & flag), asking=False)
        tr.ops.func = self.label("ftrace_stub")

    def set_tracer_enabled(self, enabled: bool) -> None:
        """Measure, or stop doing so."""
        self.memory.set_u32(self.label(f"{self._kind}_tracer_enabled"), int(enabled))

    def flag_changed(self, tr: TraceArray, flag: TraceIter, enabled: bool) -> None:
        """function-trace takes effect at once; EINVAL for what would spoil the measurement."""
        if flag is TraceIter.FUNCTION:
            if enabled:
                self._register_function(tr, is_wanted=True)
            else:
                self._unregister_function(tr)
            return
        if flag is TraceIter.DISPLAY_GRAPH and enabled:
            raise TracefsError(errno.EINVAL, "latency tracers show no graph yet")
        trace_keep_overwrite(flag, enabled)

    def _register_function(self, tr: TraceArray, *, is_wanted: bool) -> None:
        """Record calls as well."""
        if self._function_enabled or not is_wanted:
            return
        with suppress(TracefsError):
            tr.tracing.ftrace.register_ftrace_function(tr.ops)
            self._function_enabled = True

    def _unregister_function(self, tr: TraceArray) -> None:
        if self._function_enabled:
            with suppress(TracefsError):
                tr.tracing.ftrace.unregister_ftrace_function(tr.ops)
        self._function_enabled = False
