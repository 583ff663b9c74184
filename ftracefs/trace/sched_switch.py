"""Names and thread groups for the pids in a trace: kernel/trace/trace_sched_switch.c.

Linux hangs a probe on the scheduler's switches. Here the guest's `__switch_to` leaves the tasks it
switched to in a small ring of each CPU, which is read after every slice, before any of them can be
gone. The task that is current while they begin to be wanted counts as switched to.
"""

from __future__ import annotations

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Machine, Vcpu
from ftracefs.trace.saved_cmdlines import SavedCmdlines
from ftracefs.trace.saved_tgids import SavedTgids

_RING, _ENTRIES = CONSTANTS["SWITCH_RING"], CONSTANTS["SWITCH_RING_ENTRIES"]
_TASK_PID, _TASK_TGID = CONSTANTS["TASK_PID"], CONSTANTS["TASK_TGID"]
_TASK_COMM = CONSTANTS["TASK_COMM"]


class SchedSwitch:
    """Feeds `saved_cmdlines` and `saved_tgids` while somebody wants either."""

    def __init__(
        self, machine: Machine, saved_cmdlines: SavedCmdlines, saved_tgids: SavedTgids
    ) -> None:
        self._machine = machine
        self._memory = machine.memory
        self._cmdlines = saved_cmdlines
        self._tgids = saved_tgids
        self._seen = [vcpu.word("SWITCH_COUNT") for vcpu in machine.cpus]
        machine.after_slice.append(self.probe_sched_switch)

    def probe_sched_switch(self) -> None:
        """Save what is wanted of the tasks that ran since the last time."""
        for vcpu in self._machine.cpus:
            count = vcpu.word("SWITCH_COUNT")
            new = min(count - self._seen[vcpu.number], _ENTRIES)
            self._seen[vcpu.number] = count
            if self._cmdlines.cmdline_ref > 0 or self._tgids.tgid_ref > 0:
                for index in range(count - new, count):
                    self._save(self._ring_entry(vcpu, index))
                self._save(vcpu.current)

    def _ring_entry(self, vcpu: Vcpu, index: int) -> int:
        return self._memory.u64(vcpu.percpu + _RING + 8 * (index % _ENTRIES))

    def _save(self, task: int) -> None:
        """tracing_record_taskinfo."""
        pid = self._memory.u32(task + _TASK_PID)
        if self._cmdlines.cmdline_ref > 0:
            comm = self._memory.cstring(task + _TASK_COMM, 16).decode("utf-8", "replace")
            self._cmdlines.trace_save_cmdline(pid, comm)
        if self._tgids.tgid_ref > 0:
            self._tgids.trace_save_tgid(pid, self._memory.u32(task + _TASK_TGID))
