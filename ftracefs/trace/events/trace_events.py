"""The events of a trace array, on and off: kernel/trace/trace_events.c.

An event that is enabled has its probe in the tracepoint of its name. Enabled in several trace
arrays it has one probe for each, the same code with another word to go by.

Left out: filters, triggers, events of modules.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace.trace_parser import TraceParser
from ftracefs.trace.events.event_file import (
    EVENT_FILE_FL_ENABLED,
    EVENT_FILE_FL_RECORDED_CMD,
    EVENT_FILE_FL_RECORDED_TGID,
    EVENT_FILE_FL_SOFT_DISABLED,
    EVENT_FILE_FL_SOFT_MODE,
    EVENT_FILE_FL_WAS_ENABLED,
    TraceEventFile,
)
from ftracefs.trace.options import TraceIter

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray
    from ftracefs.trace.tracing import Tracing

EVENT_BUF_SIZE = 127
_SET_TO_CHAR = {0: "?", 1: "0", 2: "1", 3: "X"}


def available_events(tracing: Tracing) -> str:
    """The file of that name."""
    return "".join(
        f"{call.system}:{call.name}\n" for call in tracing.event_calls if call.can_be_enabled
    )


class TraceEvents:
    """tr->events. For the machine thread."""

    def __init__(self, tr: TraceArray) -> None:
        self._tr = tr
        self._tracing = tr.tracing
        self._machine = tr.tracing.machine
        calls = [call for call in tr.tracing.event_calls if call.can_be_enabled]
        size = CONSTANTS["EVENT_FILE_SIZE"]
        # One stretch of memory for all: there may be well over a thousand.
        self._memory = self._machine.alloc(size * max(len(calls), 1), 64)
        self.files = [
            TraceEventFile(self._machine.memory, call, self._memory + index * size, tr.address)
            for index, call in enumerate(calls)
        ]
        self._by_name = {(file.call.system, file.call.name): file for file in self.files}
        self._systems: dict[str, list[TraceEventFile]] = {}
        for file in self.files:
            self._systems.setdefault(file.call.system, []).append(file)

    def event_trace_del_tracer(self) -> None:
        """Disable everything and give the memory back: the trace array goes."""
        self.ftrace_clear_events()
        for file in self.files:
            if file.sm_ref:
                file.sm_ref = 1
                self.trace_event_enable_disable(file, False, soft_disable=True)
        self._tracing.tracepoints.tracepoint_synchronize_unregister()
        self._machine.free(self._memory)
        self.files = []
        self._by_name.clear()
        self._systems.clear()

    def __iter__(self) -> Iterator[TraceEventFile]:
        return iter(self.files)

    def find_event_file(self, system: str, name: str) -> TraceEventFile | None:
        """The event of that name."""
        return self._by_name.get((system, name))

    def of_system(self, system: str | None) -> list[TraceEventFile]:
        """The events of a system, or all of them."""
        return self.files if system is None else self._systems.get(system, [])

    # --- on and off ------------------------------------------------------------------------------

    def trace_event_enable_disable(
        self, file: TraceEventFile, enable: bool, *, soft_disable: bool = False
    ) -> None:
        """Enable or disable an event.

        With `soft_disable` it is put into soft mode, or taken out of it: the probe is there, and
        records only if the event is enabled as well or somebody clears SOFT_DISABLED.
        """
        if enable:
            self._enable(file, soft_disable)
        else:
            self._disable(file, soft_disable)

    def _enable(self, file: TraceEventFile, soft_disable: bool) -> None:
        if not soft_disable:
            file.set_flag(EVENT_FILE_FL_SOFT_DISABLED, False)
        else:
            file.sm_ref += 1
            if file.sm_ref > 1:
                return
            file.set_flag(EVENT_FILE_FL_SOFT_MODE)
        if file.is_enabled:
            return
        if soft_disable:
            file.set_flag(EVENT_FILE_FL_SOFT_DISABLED)
        if self._tr.trace_flags & TraceIter.RECORD_CMD:
            self._record_cmd(file, True)
        if self._tr.trace_flags & TraceIter.RECORD_TGID:
            self._record_tgid(file, True)
        file.call.reg(self._tracing, file.address, True)
        file.set_flag(EVENT_FILE_FL_ENABLED | EVENT_FILE_FL_WAS_ENABLED)

    def _disable(self, file: TraceEventFile, soft_disable: bool) -> None:
        if soft_disable:
            file.sm_ref -= 1
            if file.sm_ref > 0:
                return
            disable = file.has(EVENT_FILE_FL_SOFT_DISABLED)
            file.set_flag(EVENT_FILE_FL_SOFT_MODE, False)
        else:
            disable = not file.has(EVENT_FILE_FL_SOFT_MODE)
        if disable and file.is_enabled:
            file.set_flag(EVENT_FILE_FL_ENABLED, False)
            self._record_cmd(file, False)
            self._record_tgid(file, False)
            file.call.reg(self._tracing, file.address, False)
        file.set_flag(EVENT_FILE_FL_SOFT_DISABLED, file.has(EVENT_FILE_FL_SOFT_MODE))

    def _record_cmd(self, file: TraceEventFile, on: bool) -> None:
        """Want names, or no longer, because of this event."""
        if file.has(EVENT_FILE_FL_RECORDED_CMD) == on:
            return
        file.set_flag(EVENT_FILE_FL_RECORDED_CMD, on)
        names = self._tracing.saved_cmdlines
        if on:
            names.tracing_start_cmdline_record()
        else:
            names.tracing_stop_cmdline_record()

    def _record_tgid(self, file: TraceEventFile, on: bool) -> None:
        """Want thread groups, or no longer, because of this event."""
        if file.has(EVENT_FILE_FL_RECORDED_TGID) == on:
            return
        file.set_flag(EVENT_FILE_FL_RECORDED_TGID, on)
        tgids = self._tracing.saved_tgids
        if on:
            tgids.tracing_start_tgid_record()
        else:
            tgids.tracing_stop_tgid_record()

    def trace_event_enable_cmd_record(self, enable: bool) -> None:
        """The option record-cmd has changed: it holds for what is enabled already."""
        for file in self.files:
            if file.is_enabled:
                self._record_cmd(file, enable)

    def trace_event_enable_tgid_record(self, enable: bool) -> None:
        """The same of record-tgid."""
        for file in self.files:
            if file.is_enabled:
                self._record_tgid(file, enable)

    def ftrace_clear_events(self) -> None:
        """Disable every event."""
        for file in self.files:
            self.trace_event_enable_disable(file, False)

    # --- by name ---------------------------------------------------------------------------------

    def set_clr_event(
        self,
        *,
        match: str | None = None,
        sub: str | None = None,
        event: str | None = None,
        enable: bool,
    ) -> None:
        """Enable or disable what fits all that is given. EINVAL when nothing does.

        `sub` is a system, `event` an event's name, `match` either of them (__ftrace_set_clr_event).
        All events may be none, as in a kernel that passes no tracepoint we know.
        """
        fitting = [
            file
            for file in self.files
            if match in (None, file.call.name, file.call.system)
            and sub in (None, file.call.system)
            and event in (None, file.call.name)
        ]
        if not fitting and (match, sub, event) != (None, None, None):
            raise TracefsError(errno.EINVAL, "no such event")
        for file in fitting:
            self.trace_event_enable_disable(file, enable)

    def ftrace_set_clr_event(self, text: str, enable: bool) -> None:
        """`system:event`, either of which may be * or nothing; or the name of one of them."""
        before, colon, after = text.partition(":")
        if not colon:
            self.set_clr_event(match=before, enable=enable)
            return
        sub = None if before in ("", "*") else before
        event = None if after in ("", "*") else after
        self.set_clr_event(sub=sub, event=event, enable=enable)

    def ftrace_event_write(self, data: bytes) -> int:
        """The first word written to set_event; ! in front of it disables. The bytes consumed."""
        self._tr.tracing.tracing_update_buffers()
        parser = TraceParser(EVENT_BUF_SIZE + 1)
        taken = parser.trace_get_user(data)
        if parser.loaded:
            word = parser.buffer.decode("utf-8", "surrogateescape")
            self.ftrace_set_clr_event(word.removeprefix("!"), not word.startswith("!"))
        return taken

    def set_event_text(self) -> str:
        """The file set_event: what is enabled."""
        return "".join(
            f"{file.call.system}:{file.call.name}\n" for file in self.files if file.is_enabled
        )


def system_enable_text(files: Iterable[TraceEventFile]) -> str:
    """The file `enable` of a system, or of all (system_enable_read)."""
    found = 0
    for file in files:
        found |= 2 if file.is_enabled else 1
    return f"{_SET_TO_CHAR[found]}\n"
