"""events/: a directory for each system and each of its events, and the files about all of them.

Models event_trace_add_tracer, create_event_toplevel_files and event_create_dir of
kernel/trace/trace_events.c. Left out: trigger and hist; a `filter` says that there is none and can
be told so, as clients do when they start.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from functools import partial

from ftracefs.errors import TracefsError
from ftracefs.files.base import (
    Caller,
    Deferred,
    Directory,
    Node,
    OpenFile,
    Pending,
    Text,
    TracefsFile,
)
from ftracefs.files.simple import SeqFile, ValueFile
from ftracefs.ring_buffer.layout import PAGE_SIZE
from ftracefs.trace.events.call import EventCall
from ftracefs.trace.events.event_file import TraceEventFile
from ftracefs.trace.events.event_pids import EventPidType
from ftracefs.trace.events.header import header_event, header_page
from ftracefs.trace.events.trace_events import available_events as available_events_text
from ftracefs.trace.events.trace_events import system_enable_text
from ftracefs.trace.parsers import kstrtoul_from_user, strim
from ftracefs.trace.trace_array import TraceArray

TRACE_MODE_WRITE, TRACE_MODE_READ = 0o640, 0o440

NO_FILTER = "none\n"
NO_SYSTEM_FILTER = """\
### global filter ###
# Use this to set filters for multiple events.
# Only events with the given fields will be affected.
# If no events are modified, an error message will be displayed here
"""


def _with_mode(file: TracefsFile, mode: int) -> TracefsFile:
    file.mode = mode
    return file


def _switch(tr: TraceArray, show: Callable[[], str], switch: Callable[[bool], None]) -> TracefsFile:
    """A file that takes 0 and 1."""

    def write(data: bytes) -> None:
        value = kstrtoul_from_user(data)
        tr.tracing.tracing_update_buffers()
        if value not in (0, 1):
            raise TracefsError(errno.EINVAL, "an event is enabled by 1 and disabled by 0")
        switch(bool(value))

    return _with_mode(ValueFile(show, write), TRACE_MODE_WRITE)


def event_enable(tr: TraceArray, file: TraceEventFile) -> TracefsFile:
    """events/SYSTEM/EVENT/enable."""
    return _switch(tr, file.enable_text, lambda on: tr.events.trace_event_enable_disable(file, on))


def system_enable(tr: TraceArray, system: str | None) -> TracefsFile:
    """events/SYSTEM/enable, or events/enable."""
    return _switch(
        tr,
        lambda: system_enable_text(tr.events.of_system(system)),
        lambda on: tr.events.set_clr_event(sub=system, enable=on),
    )


def event_filter(text: str) -> TracefsFile:
    """The `filter` of a system or an event: 0 removes the filter that is not there."""

    def event_filter_write(data: bytes) -> None:
        if len(data) >= PAGE_SIZE or strim(data) != b"0":
            raise TracefsError(errno.EINVAL, "there are no event filters yet")

    return _with_mode(ValueFile(lambda: text, event_filter_write), TRACE_MODE_WRITE)


def _told(text: Callable[[], str]) -> TracefsFile:
    return _with_mode(ValueFile(text), TRACE_MODE_READ)


class _HeaderOpen(Text):
    """show_header: all of it, or as much as the first read asks for."""

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        return b"" if offset else super().read(size, offset, nonblock)


class HeaderFile(TracefsFile):
    """events/header_page and events/header_event."""

    mode = TRACE_MODE_READ

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _HeaderOpen(self._text())


def event_create_dir(tr: TraceArray, call: EventCall) -> dict[str, Node]:
    """events/SYSTEM/EVENT."""
    entries: dict[str, Node] = {}
    file = tr.events.find_event_file(call.system, call.name)
    if file is not None:
        entries["enable"] = event_enable(tr, file)
        entries["filter"] = event_filter(NO_FILTER)
    entries["format"] = _with_mode(SeqFile(call.format), TRACE_MODE_READ)
    if call.has_id:
        entries["id"] = _told(lambda: f"{call.id}\n")
    return entries


def event_subsystem_dir(tr: TraceArray, system: str, calls: Iterable[EventCall]) -> dict[str, Node]:
    """events/SYSTEM."""
    entries: dict[str, Node] = {
        call.name: Directory(make=partial(event_create_dir, tr, call)) for call in calls
    }
    if tr.events.of_system(system):
        entries["enable"] = system_enable(tr, system)
        entries["filter"] = event_filter(NO_SYSTEM_FILTER)
    return dict(sorted(entries.items()))


class EventsDirectory(Directory):
    """events/ of a trace array; what is below it is made when somebody looks."""


def events_directory(tr: TraceArray) -> Directory:
    """event_trace_add_tracer."""
    systems: dict[str, list[EventCall]] = {}
    for call in tr.tracing.event_calls:
        systems.setdefault(call.system, []).append(call)
    top: dict[str, Node] = {
        "enable": system_enable(tr, None),
        "header_event": HeaderFile(header_event),
        "header_page": HeaderFile(header_page),
        **{
            system: Directory(make=partial(event_subsystem_dir, tr, system, calls))
            for system, calls in systems.items()
        },
    }
    return EventsDirectory(dict(sorted(top.items())))


def set_event(tr: TraceArray) -> TracefsFile:
    events = tr.events
    return SeqFile(events.set_event_text, events.ftrace_event_write, events.ftrace_clear_events)


def _event_pid(tr: TraceArray, type: EventPidType) -> TracefsFile:
    pids = tr.event_pids
    return SeqFile(
        lambda: pids.text(type),
        lambda data: pids.event_pid_write(type, data),
        lambda: pids.ftrace_clear_event_pids(type),
    )


def set_event_pid(tr: TraceArray) -> TracefsFile:
    return _event_pid(tr, EventPidType.TRACE_PIDS)


def set_event_notrace_pid(tr: TraceArray) -> TracefsFile:
    return _event_pid(tr, EventPidType.TRACE_NO_PIDS)


def available_events(tr: TraceArray) -> TracefsFile:
    return SeqFile(lambda: available_events_text(tr.tracing))
