"""All events there are, and the printers of all records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ftracefs.trace.events.call import EventCall, TraceEventCall
from ftracefs.trace.events.ftrace_entries import FTRACE_EVENTS
from ftracefs.trace.events.irq import IRQ_EVENTS
from ftracefs.trace.events.output import event_functions
from ftracefs.trace.events.power import POWER_EVENTS
from ftracefs.trace.events.sched import SCHED_EVENTS
from ftracefs.trace.output.ctx_switch import CTX_SWITCH_EVENTS
from ftracefs.trace.output.event_output import TRACE_ENTRIES, TraceEventFunctions

# In the order of their ids, which is that of every list.
EVENT_CALLS: tuple[TraceEventCall, ...] = (
    *FTRACE_EVENTS,
    *IRQ_EVENTS,
    *SCHED_EVENTS,
    *POWER_EVENTS,
)


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a kernel, and the printers of all records by type."""

    calls: Sequence[EventCall]
    functions: Mapping[int, TraceEventFunctions]


def own_events(exists: Callable[[str], bool]) -> Events:
    """Those of ours whose tracepoint is there."""
    return Events([c for c in EVENT_CALLS if not c.can_be_enabled or exists(c.name)], EVENTS)


EVENTS: Mapping[int, TraceEventFunctions] = {
    **TRACE_ENTRIES,
    **CTX_SWITCH_EVENTS,
    **{call.id: event_functions(call) for call in EVENT_CALLS if call.can_be_enabled},
}
