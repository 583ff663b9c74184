"""An event as such, whoever records it: struct trace_event_call of include/linux/trace_events.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ftracefs.trace.events.fields import COMMON_FIELDS, Declaration, EventField, event_fields


@dataclass(frozen=True)
class TraceEventCall:
    """`id` is the type in every record; `print_fmt` a format string in C with its arguments.

    `probe` is the guest code that records it, hung into the tracepoint of the event's name; an
    event without one is recorded by a tracer and cannot be switched. `has_id`: a file tells it.
    """

    system: str
    name: str
    id: int
    declarations: Sequence[Declaration]
    print_fmt: str
    probe: str = ""
    has_id: bool = True

    @cached_property
    def fields(self) -> tuple[EventField, ...]:
        """The fields of its own, in order."""
        return event_fields(self.declarations)

    @property
    def can_be_enabled(self) -> bool:
        return bool(self.probe)

    def format(self) -> str:
        """The file `format` (f_show)."""
        common = "".join(each.text() for each in COMMON_FIELDS)
        own = "".join(each.text() for each in self.fields)
        return (
            f"name: {self.name}\nID: {self.id}\nformat:\n{common}\n{own}"
            f"\nprint fmt: {self.print_fmt}\n"
        )
