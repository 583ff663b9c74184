"""The events of power management (include/trace/events/power.h): a CPU that has nothing to do."""

from __future__ import annotations

from ftracefs.trace.events.call import TraceEventCall
from ftracefs.trace.events.fields import field

POWER_EVENTS = (
    TraceEventCall(
        "power",
        "cpu_idle",
        472,
        (field("u32", "state"), field("u32", "cpu_id")),
        '"state=%lu cpu_id=%lu", (unsigned long)REC->state, (unsigned long)REC->cpu_id',
        "cpu",
    ),
)
