"""What the latency tracers have in common: they show the worst case that they have seen.

Models what kernel/trace/trace_irqsoff.c and trace_sched_wakeup.c do alike. A kind of latency tracer
has one state for the whole machine, so one trace array at a time can have a tracer of that kind.
With the option display-graph calls are recorded through fgraph, together with their returns.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from ftracefs.errors import TracefsError
from ftracefs.ftrace.fgraph import FgraphOps
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.graph_layout import (
    GraphFlags,
    GraphLayout,
    print_graph_headers_flags,
)
from ftracefs.trace.output.header import TraceHeader
from ftracefs.trace.tracers.tracer import trace_keep_overwrite

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray
    from ftracefs.trace.tracing import Tracing


def is_graph(tr: TraceArray) -> bool:
    """Whether a latency tracer of `tr` shows calls and returns."""
    return bool(tr.trace_flags & TraceIter.DISPLAY_GRAPH)


class LatencyTracing:
    """The state of one kind; its guest code calls its words and callbacks by `kind`.

    `needed` are the options that it must have, `graph_flags` the columns that it prints of calls
    and returns, whatever the options of function_graph say.
    """

    def __init__(
        self, tracing: Tracing, kind: str, needed: TraceIter, graph_flags: GraphFlags
    ) -> None:
        self.tracing = tracing
        self.memory = tracing.machine.memory
        self.trace: TraceArray | None = None  # whose tracer is in charge
        self._kind = kind
        self._needed = needed
        self._graph_flags = graph_flags
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
        tr.ops.func = self.label(f"{self._kind}_tracer_call")
        tr.ops.private = tr.buffer.table
        tr.ops.write_guest()
        self.memory.set_u64(self.label(f"{self._kind}_ops"), tr.ops.address)
        self.memory.set_u64(self.label(f"{self._kind}_max_latency"), tr.max_latency_word)
        tr.tracing.saved_cmdlines.tracing_start_cmdline_record()

    def start_func_tracer(self, tr: TraceArray, graph: bool) -> None:
        """Begin, if the top level's tracing is on. Raises what keeps calls from being recorded."""
        self.set_tracer_enabled(False)
        self._register_function(tr, graph, is_wanted=bool(tr.trace_flags & TraceIter.FUNCTION))
        self.set_tracer_enabled(self.tracing.global_trace.tracer_tracing_is_on())

    def stop_func_tracer(self, tr: TraceArray, graph: bool) -> None:
        """End."""
        self.set_tracer_enabled(False)
        self._unregister_function(tr, graph)

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
        """function-trace and display-graph take effect at once.

        EINVAL for what would spoil the measurement.
        """
        if flag is TraceIter.FUNCTION:
            if enabled:
                with suppress(TracefsError):
                    self._register_function(tr, is_graph(tr), is_wanted=True)
            else:
                self._unregister_function(tr, is_graph(tr))
        elif flag is TraceIter.DISPLAY_GRAPH:
            try:
                self.display_graph(tr, enabled)
            except TracefsError as error:
                raise TracefsError(errno.EINVAL, str(error)) from error
        else:
            trace_keep_overwrite(flag, enabled)

    def display_graph(self, tr: TraceArray, enabled: bool) -> None:
        """irqsoff_display_graph, wakeup_display_graph: begin anew in the other way."""
        self.stop_func_tracer(tr, not enabled)
        self.forget(tr)
        tr.max_latency = 0
        self.start_func_tracer(tr, enabled)
        self.set_trace_function(enabled)

    def forget(self, tr: TraceArray) -> None:
        """Empty the buffer, whatever was being measured."""
        raise NotImplementedError

    def set_trace_function(self, graph: bool) -> None:
        """__trace_function: how the tracer itself records where a section begins and ends."""
        function = "trace_graph_function" if graph else "function_trace_call"
        self.memory.set_u64(self.label(f"{self._kind}_trace_function"), self.label(function))

    def _register_function(self, tr: TraceArray, graph: bool, *, is_wanted: bool) -> None:
        """Record calls as well."""
        if self._function_enabled or not is_wanted:
            return
        if graph:
            kind = self._kind
            gops = FgraphOps(self.label(f"{kind}_graph_entry"), self.label(f"{kind}_graph_return"))
            tr.tracing.ftrace.fgraph.register_ftrace_graph(gops=gops)
        else:
            tr.tracing.ftrace.register_ftrace_function(tr.ops)
        self._function_enabled = True

    def _unregister_function(self, tr: TraceArray, graph: bool) -> None:
        """As in Linux `graph` tells what is ended, and not what was begun."""
        if self._function_enabled:
            with suppress(TracefsError):
                if graph:
                    tr.tracing.ftrace.fgraph.unregister_ftrace_graph()
                else:
                    tr.tracing.ftrace.unregister_ftrace_function(tr.ops)
        self._function_enabled = False

    # --- output ----------------------------------------------------------------------------------

    def graph_layout(self, tr: TraceArray) -> GraphLayout | None:
        """How calls and returns are printed, if they are."""
        if not is_graph(tr):
            return None
        return GraphLayout(self._graph_flags, tr.nr_cpus, pipe_open=False)

    def print_header(self, tr: TraceArray, header: TraceHeader) -> str:
        """What stands above the records."""
        if is_graph(tr):
            return print_graph_headers_flags(header, self._graph_flags)
        return header.text()
