"""An event as such, whoever records it: struct trace_event_call of include/linux/trace_events.h."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ftracefs.trace.events.fields import COMMON_FIELDS, Declaration, EventField, event_fields

if TYPE_CHECKING:
    from ftracefs.trace.tracing import Tracing


class EventCall(ABC):
    """`id` is the type in every record; `has_id`: a file tells it."""

    system: str
    name: str
    id: int
    has_id: bool

    @property
    @abstractmethod
    def print_fmt(self) -> str:
        """A format string in C with its arguments."""

    @property
    @abstractmethod
    def fields(self) -> tuple[EventField, ...]:
        """The fields of its own, in order."""

    @property
    @abstractmethod
    def can_be_enabled(self) -> bool:
        """Whether it is recorded when somebody wants it, and not by a tracer."""

    @abstractmethod
    def reg(self, tracing: Tracing, file: int, enable: bool) -> None:
        """Have it recorded for the trace_event_file at `file`, or no longer (class->reg)."""

    def format(self) -> str:
        """The file `format` (f_show)."""
        common = "".join(each.text() for each in COMMON_FIELDS)
        own = "".join(each.text() for each in self.fields)
        return (
            f"name: {self.name}\nID: {self.id}\nformat:\n{common}\n{own}"
            f"\nprint fmt: {self.print_fmt}\n"
        )


@dataclass(frozen=True)
class TraceEventCall(EventCall):
    """An event of ours.

    `probe` is the guest code that records it, hung into the tracepoint of the event's name; an
    event without one is recorded by a tracer and cannot be switched.
    """

    system: str
    name: str
    id: int
    declarations: Sequence[Declaration]
    declared_fmt: str
    probe: str = ""
    has_id: bool = True

    @property
    def print_fmt(self) -> str:
        return self.declared_fmt

    @cached_property
    def fields(self) -> tuple[EventField, ...]:
        return event_fields(self.declarations)

    @property
    def can_be_enabled(self) -> bool:
        return bool(self.probe)

    def reg(self, tracing: Tracing, file: int, enable: bool) -> None:
        tracepoints, probe = tracing.tracepoints, f"trace_event_raw_event_{self.probe}"
        if enable:
            tracepoints.tracepoint_probe_register(self.name, tracing.label(probe), file)
        else:
            tracepoints.tracepoint_probe_unregister(self.name, tracing.label(probe), file)
