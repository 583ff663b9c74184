"""Whose events a trace array records: the files set_event_pid and set_event_notrace_pid.

    event_pid_write → trace_pid_write
                    → register_pid_events: probes in front of and behind those of the events
                    → ignore_task_cpu, for the tasks that run now
    event-fork      → trace_event_follow_fork: children are listed as they are made, and dropped
                      when they are gone

The probes are guest code (ftracefs/guest/event_pids.S); what they find out for a CPU is read by
those of the events whose file has the flag PID_FILTER. Models kernel/trace/trace_events.c.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.tracepoint import INT_MAX, INT_MIN
from ftracefs.errors import TracefsError
from ftracefs.trace.events.event_file import EVENT_FILE_FL_PID_FILTER
from ftracefs.trace.pid_list import TracePidList, trace_ignore_this_task, trace_pid_write

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray

_IGNORE_PID = CONSTANTS["TR_IGNORE_PID"]
# Tracepoint, probe, priority. The events' own probes come between the first and the second of each.
_WAKEUPS = ("sched_wakeup", "sched_wakeup_new", "sched_waking")
_FILTER = (
    ("sched_switch", "event_filter_pid_sched_switch_probe_pre", INT_MAX),
    ("sched_switch", "event_filter_pid_sched_switch_probe_post", 0),
    *((name, "event_filter_pid_sched_wakeup_probe_pre", INT_MAX) for name in _WAKEUPS),
    *((name, "event_filter_pid_sched_wakeup_probe_post", 0) for name in _WAKEUPS),
)
_FOLLOW = (
    ("sched_process_fork", "event_filter_pid_sched_process_fork", INT_MIN),
    ("sched_process_free", "event_filter_pid_sched_process_exit", INT_MAX),
)


class EventPidType(Enum):
    """Which list: of the tasks to trace, or not to trace. The value is its word in guest memory."""

    TRACE_PIDS = CONSTANTS["TR_FILTERED_PIDS"]
    TRACE_NO_PIDS = CONSTANTS["TR_FILTERED_NO_PIDS"]


class EventPids:
    """Both lists of a trace array. For the machine thread."""

    def __init__(self, tr: TraceArray) -> None:
        self._tr = tr
        self._tracing = tr.tracing
        self._memory = tr.tracing.machine.memory
        self._lists: dict[EventPidType, TracePidList | None] = dict.fromkeys(EventPidType)
        self._has_probes = False
        self._follows_fork = False

    def free(self) -> None:
        """Take every probe out and give all memory back: the trace array goes."""
        self.trace_event_follow_fork(False)
        for type in EventPidType:
            self.ftrace_clear_event_pids(type)

    def text(self, type: EventPidType) -> str:
        """The file of one list."""
        pids = self._lists[type]
        return "" if pids is None else "".join(f"{pid}\n" for pid in pids)

    def event_pid_write(self, type: EventPidType, data: bytes) -> int:
        """Add what one write names and return the bytes taken; see trace_pid_write."""
        self._tr.tracing.tracing_update_buffers()
        old = self._lists[type]
        try:
            new, taken = trace_pid_write(self._memory, old, data)
        except MemoryError:
            raise TracefsError(errno.ENOMEM, "no room for a list of pids") from None
        self._assign(type, new)
        for file in self._tr.events:
            file.set_flag(EVENT_FILE_FL_PID_FILTER)
        if old is not None:
            old.free()
        if new is not None:
            self._watch(True)
        self._ignore_task_cpu()
        return taken

    def ftrace_clear_event_pids(self, type: EventPidType) -> None:
        """Forget one list (an open with O_TRUNC)."""
        old = self._lists[type]
        if old is None:
            return
        self._assign(type, None)
        if all(pids is None for pids in self._lists.values()):
            self._watch(False)
            for file in self._tr.events:
                file.set_flag(EVENT_FILE_FL_PID_FILTER, False)
            for vcpu in self._tracing.machine.cpus:
                self._set_ignore_pid(vcpu.number, False)
        old.free()

    def trace_event_follow_fork(self, enable: bool) -> None:
        """The option event-fork."""
        if enable != self._follows_fork:
            self._follows_fork = enable
            self._tracing.machine.set_after_slice(self._refill, enable)
            self._hang(_FOLLOW, enable)

    def _watch(self, on: bool) -> None:
        """register_pid_events, unregister_pid_events."""
        if on != self._has_probes:
            self._has_probes = on
            self._hang(_FILTER, on)

    def _hang(self, probes: tuple[tuple[str, str, int], ...], on: bool) -> None:
        """Put probes into their tracepoints, or take them out."""
        tracing = self._tracing
        for name, probe, prio in probes:
            tracing.tracepoints.set_probe(name, tracing.label(probe), self._tr.address, on, prio)

    def _assign(self, type: EventPidType, pids: TracePidList | None) -> None:
        self._lists[type] = pids
        self._memory.set_u64(self._tr.address + type.value, 0 if pids is None else pids.address)

    def _ignore_task_cpu(self) -> None:
        """What the probes would have said of the tasks that run now."""
        lists = self._lists[EventPidType.TRACE_PIDS], self._lists[EventPidType.TRACE_NO_PIDS]
        for vcpu in self._tracing.machine.cpus:
            self._set_ignore_pid(vcpu.number, trace_ignore_this_task(*lists, vcpu.current_pid))

    def _set_ignore_pid(self, cpu: int, ignore: bool) -> None:
        self._memory.set_u8(self._tr.address + _IGNORE_PID + cpu, int(ignore))

    def _refill(self) -> None:
        """Run after every slice of guest code, which may have made children."""
        for pids in self._lists.values():
            if pids is not None:
                pids.refill()
