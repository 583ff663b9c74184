"""The buffers on the console (ftrace_dump of kernel/trace/trace.c)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Processor
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.event_output import TraceEventFunctions
from ftracefs.trace.output.graph import GraphPrinter
from ftracefs.trace.output.lines import LinePrinter
from ftracefs.trace.output.output_context import OutputContext

if TYPE_CHECKING:
    from ftracefs.trace.tracing import Tracing

TRACE_MAX_PRINT = 1000  # bytes of a record that are shown
# More than the console keeps, whatever the records are: one is seldom shorter in text.
_SHOWN_PAGES = 64  # of each CPU
_SHOWN_ENTRIES = 16384
_RULE = b"-" * 33 + b"\n"
DUMP_ALL, DUMP_ORIG = 1, 2  # enum ftrace_dump_mode


class DumpOnOops:
    """The sysctl ftrace_dump_on_oops, and what comes of it when a task dies."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._word = tracing.label("ftrace_dump_on_oops")
        machine = tracing.machine
        machine.hypercalls[CONSTANTS["HC_DUMP"]] = self._dump
        register = tracing.image.labels.get("register_die_notifier")
        if register is not None:
            machine.call(register, tracing.label("trace_die_notifier"))

    @property
    def mode(self) -> int:
        """An int of 32 bits: 0 no dump, DUMP_ORIG only the buffer of the CPU, else all."""
        value = self._tracing.machine.memory.u32(self._word)
        return value - ((value & 1 << 31) << 1)

    @mode.setter
    def mode(self, value: int) -> None:
        self._tracing.machine.memory.set_u32(self._word, value)

    def _dump(self, vcpu: Processor) -> None:
        if self.mode not in (DUMP_ALL, DUMP_ORIG):
            self._tracing.printk(b"Bad dumping mode, switching to all CPUs dump\n")
        ftrace_dump(self._tracing, cpu=vcpu.number if self.mode == DUMP_ORIG else None)


def ftrace_dump(tracing: Tracing, cpu: int | None = None) -> None:
    """Stop the top level's tracing, and take its records, of one CPU or of all, to the console.

    All are taken, and as many shown as the console keeps: the guest stands still meanwhile.
    """
    tr = tracing.global_trace
    tr.buffer.record_off()
    tracing.printk(b"Dumping ftrace buffer:\n")
    if tracing.ftrace.ftrace_disabled:
        tracing.printk(b"# WARNING: FUNCTION TRACING IS CORRUPTED\n")
        tracing.printk(b"#          MAY BE MISSING FUNCTION EVENTS\n")
    pages, lost = tr.buffer.consume_all(_SHOWN_PAGES, cpu)
    entries = merge(pages, lost)[-_SHOWN_ENTRIES:]
    if not len(entries):
        tracing.printk(b"   (ftrace buffer empty)\n")
        return
    tracing.printk(_RULE)
    context = replace(tr.output_context(), annotate=False)
    for line in _lines(context, entries, tracing.event_functions):
        tracing.printk(line[:TRACE_MAX_PRINT])
    tracing.printk(_RULE)


def _lines(
    context: OutputContext, entries: Entries, events: Mapping[int, TraceEventFunctions]
) -> list[bytes]:
    """The text of each record: in the latency format but for what the graph tracer prints."""
    latency = replace(context, flags=context.flags | TraceIter.LATENCY_FMT)
    lines = LinePrinter(latency, events, index=None, relative=False)
    if context.graph is None:
        return lines.lines(entries)
    printer = GraphPrinter(context, events, others=lines)
    return printer.lines(printer.plan(entries, 0, len(entries)))
