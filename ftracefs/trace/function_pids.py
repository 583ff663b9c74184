"""Which tasks the function tracers of a trace array trace: the pid half of kernel/trace/ftrace.c.

    set_ftrace_pid → pid_write → trace_pid_write
                               → ftrace_filter_pid_sched_switch_probe hung into sched_switch
                               → ignore_task_cpu, for the tasks that run now
                               → ftrace_update_pid_func: trampolines call ftrace_pid_func
    function-fork  → ftrace_pid_follow_fork: children are listed as they are made, dropped when gone

The probes and ftrace_pid_func are guest code (ftracefs/guest/ftrace_pid.S); they find the lists and
each CPU's word in the guest's struct trace_array, which is kept here.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace.registration import ftrace_startup_all, ftrace_update_pid_func
from ftracefs.trace.pid_list import TracePidList, trace_ignore_this_task, trace_pid_write

if TYPE_CHECKING:
    from ftracefs.trace.tracing import Tracing

_IGNORE, _TRACE = CONSTANTS["FTRACE_PID_IGNORE"], CONSTANTS["FTRACE_PID_TRACE"]
_WORDS = CONSTANTS["TR_FTRACE_IGNORE_PID"]
_SWITCH = ("sched_switch", "ftrace_filter_pid_sched_switch_probe")
_FOLLOW = (
    ("sched_process_fork", "ftrace_pid_follow_sched_process_fork"),
    ("sched_process_free", "ftrace_pid_follow_sched_process_exit"),
)


class PidType(Enum):
    """Which list: of the tasks to trace, or not to trace. The value is its word in guest memory."""

    TRACE_PIDS = CONSTANTS["TR_FUNCTION_PIDS"]
    TRACE_NO_PIDS = CONSTANTS["TR_FUNCTION_NO_PIDS"]


class FunctionPids:
    """Both lists of the trace array whose guest structure is at `array`. For the machine thread."""

    def __init__(self, tracing: Tracing, array: int) -> None:
        self._tracing = tracing
        self._memory = tracing.machine.memory
        self._array = array
        self._lists: dict[PidType, TracePidList | None] = dict.fromkeys(PidType)
        self._has_probe = False
        self._follows_fork = False
        self._trace_everybody()

    @property
    def enabled(self) -> bool:
        """Whether there is a list, if an empty one."""
        return any(pids is not None for pids in self._lists.values())

    def pids(self, type: PidType) -> TracePidList | None:
        """One of the lists (tr->function_pids, tr->function_no_pids)."""
        return self._lists[type]

    def pid_write(self, type: PidType, data: bytes) -> int:
        """Add what one write names and return the bytes taken; see trace_pid_write."""
        old = self._lists[type]
        had_any = self.enabled
        try:
            new, taken = trace_pid_write(self._memory, old, data)
        except MemoryError:
            raise TracefsError(errno.ENOMEM, "no room for a list of pids") from None
        self._assign(type, new)
        if old is not None:
            old.free()
        if self.enabled and not had_any:
            self._set_probe(True)
        self._ignore_task_cpu()
        self._update()
        return taken

    def ftrace_pid_reset(self, type: PidType) -> None:
        """Forget one list (an open with O_TRUNC)."""
        self._clear_ftrace_pids(type)
        self._update()

    def ftrace_clear_pids(self) -> None:
        """Forget both; the trace array is going."""
        for type in PidType:
            self._clear_ftrace_pids(type)

    def free(self) -> None:
        """Take every probe out and give all memory back."""
        self.ftrace_pid_follow_fork(False)
        self.ftrace_clear_pids()
        self._set_probe(False)

    def ftrace_pid_follow_fork(self, enable: bool) -> None:
        """The option function-fork."""
        if enable == self._follows_fork:
            return
        self._follows_fork = enable
        self._tracing.machine.set_after_slice(self._refill, enable)
        for name, probe in _FOLLOW:
            self._hang(name, probe, enable)

    def _set_probe(self, on: bool) -> None:
        """The probe of sched_switch. It may be there with no list: a write that adds nothing puts
        an end to a list that had become empty, and to nothing else.
        """
        if on != self._has_probe:
            self._has_probe = on
            self._hang(*_SWITCH, on)

    def _hang(self, name: str, probe: str, on: bool) -> None:
        """Have a probe called at a tracepoint, or no longer."""
        tracing = self._tracing
        tracing.tracepoints.set_probe(name, tracing.label(probe), self._array, on)

    def _assign(self, type: PidType, pids: TracePidList | None) -> None:
        self._lists[type] = pids
        self._memory.set_u64(self._array + type.value, 0 if pids is None else pids.address)

    def _clear_ftrace_pids(self, type: PidType) -> None:
        old = self._lists[type]
        if old is None:
            return
        self._assign(type, None)
        if not self.enabled:
            self._set_probe(False)
            self._trace_everybody()
        old.free()

    def _trace_everybody(self) -> None:
        for vcpu in self._tracing.machine.cpus:
            self._memory.set_u32(self._array + _WORDS + 4 * vcpu.number, _TRACE)

    def _ignore_task_cpu(self) -> None:
        """What the probe would have said of the tasks that run now."""
        lists = self._lists[PidType.TRACE_PIDS], self._lists[PidType.TRACE_NO_PIDS]
        for vcpu in self._tracing.machine.cpus:
            pid = vcpu.current_pid
            word = _IGNORE if trace_ignore_this_task(*lists, pid) else pid
            self._memory.set_u32(self._array + _WORDS + 4 * vcpu.number, word)

    def _update(self) -> None:
        ftrace = self._tracing.ftrace
        ftrace_update_pid_func(ftrace)
        ftrace_startup_all(ftrace, 0)
        ftrace.fgraph.on_change()

    def _refill(self) -> None:
        """Run after every slice of guest code, which may have made children."""
        for pids in self._lists.values():
            if pids is not None:
                pids.refill()
