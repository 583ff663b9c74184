"""The buffers on the console (ftrace_dump of kernel/trace/trace.c)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.graph import GraphPrinter
from ftracefs.trace.output.lines import LinePrinter
from ftracefs.trace.output.output_context import OutputContext

if TYPE_CHECKING:
    from ftracefs.trace.tracing import Tracing

TRACE_MAX_PRINT = 1000  # bytes of a record that are shown
_RULE = b"-" * 33 + b"\n"


def ftrace_dump(tracing: Tracing, cpu: int | None = None) -> None:
    """Stop the top level's tracing, and take its records, of one CPU or of all, to the console."""
    tr = tracing.global_trace
    tr.buffer.record_off()
    tracing.printk(b"Dumping ftrace buffer:\n")
    if tracing.ftrace.ftrace_disabled:
        tracing.printk(b"# WARNING: FUNCTION TRACING IS CORRUPTED\n")
        tracing.printk(b"#          MAY BE MISSING FUNCTION EVENTS\n")
    pages, lost = tr.buffer.consume_all(cpu)
    entries = merge(pages, lost)
    if not len(entries):
        tracing.printk(b"   (ftrace buffer empty)\n")
        return
    tracing.printk(_RULE)
    context = replace(tr.output_context(), annotate=False)
    for line in _lines(context, entries):
        tracing.printk(line[:TRACE_MAX_PRINT])
    tracing.printk(_RULE)


def _lines(context: OutputContext, entries: Entries) -> list[bytes]:
    """The text of each record: in the latency format but for what the graph tracer prints."""
    latency = replace(context, flags=context.flags | TraceIter.LATENCY_FMT)
    lines = LinePrinter(latency, alone=True)
    if context.graph is None:
        return lines.lines(entries)
    printer = GraphPrinter(context, others=lines)
    return printer.lines(printer.plan(entries, 0, len(entries)))
