"""Names for the pids in a trace: kernel/trace/trace_sched_switch.c.

Linux hangs a probe on the scheduler's switches. Here the guest's `__switch_to` leaves the tasks it
switched to in a small ring of each CPU, which is read after every slice, before any of them can be
gone. The task that is current while names begin to be wanted counts as switched to.
"""

from __future__ import annotations

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Machine, Vcpu
from ftracefs.trace.saved_cmdlines import SavedCmdlines

_RING, _ENTRIES = CONSTANTS["SWITCH_RING"], CONSTANTS["SWITCH_RING_ENTRIES"]
_TASK_PID, _TASK_COMM = CONSTANTS["TASK_PID"], CONSTANTS["TASK_COMM"]


class SchedSwitch:
    """Feeds `saved_cmdlines` while somebody wants names."""

    def __init__(self, machine: Machine, saved_cmdlines: SavedCmdlines) -> None:
        self._machine = machine
        self._memory = machine.memory
        self._saved = saved_cmdlines
        self._seen = [vcpu.word("SWITCH_COUNT") for vcpu in machine.cpus]
        machine.after_slice.append(self.probe_sched_switch)

    def probe_sched_switch(self) -> None:
        """Save the names of the tasks that ran since the last time."""
        for vcpu in self._machine.cpus:
            count = vcpu.word("SWITCH_COUNT")
            new = min(count - self._seen[vcpu.number], _ENTRIES)
            self._seen[vcpu.number] = count
            if self._saved.cmdline_ref > 0:
                for index in range(count - new, count):
                    self._save(self._ring_entry(vcpu, index))
                self._save(vcpu.current)

    def _ring_entry(self, vcpu: Vcpu, index: int) -> int:
        return self._memory.u64(vcpu.percpu + _RING + 8 * (index % _ENTRIES))

    def _save(self, task: int) -> None:
        comm = self._memory.cstring(task + _TASK_COMM, 16).decode("utf-8", "replace")
        self._saved.trace_save_cmdline(self._memory.u32(task + _TASK_PID), comm)
