"""Names and thread groups for the pids in a trace: kernel/trace/trace_sched_switch.c.

While somebody wants either, probes of the scheduler's tracepoints are there (guest/sched_switch.S).
Linux's write into the maps themselves; here they fill a ring of each CPU, which is read after every
slice. The task that is current then counts as seen, too, so that one that is never switched has a
name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import EmulatedMachine
from emulated_kernel.tracepoint import Tracepoints
from ftracefs.trace.saved_cmdlines import SavedCmdlines
from ftracefs.trace.saved_tgids import SavedTgids

_ENTRIES, _ENTRY_BYTES = CONSTANTS["TASKINFO_ENTRIES"], CONSTANTS["TASKINFO_BYTES"]
_FIRST, _RING_BYTES = CONSTANTS["TASKINFO_FIRST"], CONSTANTS["TASKINFO_RING_BYTES"]
_TASKINFO = struct.Struct("<II16s")
_PROBES = (
    ("sched_wakeup", "probe_sched_wakeup"),
    ("sched_wakeup_new", "probe_sched_wakeup"),
    ("sched_switch", "probe_sched_switch"),
)


class SchedSwitch:
    """Feeds `saved_cmdlines` and `saved_tgids`. `label` tells where the engine's code is."""

    def __init__(
        self,
        machine: EmulatedMachine,
        tracepoints: Tracepoints,
        label: Callable[[str], int],
        saved_cmdlines: SavedCmdlines,
        saved_tgids: SavedTgids,
    ) -> None:
        self._machine = machine
        self._memory = machine.memory
        self._tracepoints = tracepoints
        self._label = label
        self._cmdlines = saved_cmdlines
        self._tgids = saved_tgids
        self._rings = label("taskinfo_rings")
        self._seen = [0] * len(machine.cpus)
        self._has_probes = False
        saved_cmdlines.on_ref = saved_tgids.on_ref = self._update

    @property
    def _is_wanted(self) -> bool:
        return self._cmdlines.cmdline_ref > 0 or self._tgids.tgid_ref > 0

    def _update(self) -> None:
        """tracing_start_sched_switch, tracing_stop_sched_switch."""
        if self._is_wanted == self._has_probes:
            return
        self._has_probes = self._is_wanted
        self._machine.set_after_slice(self._read_rings, self._has_probes)
        for name, probe in _PROBES:
            self._tracepoints.set_probe(name, self._label(probe), 0, self._has_probes)

    def _read_rings(self) -> None:
        """Save what is wanted of the tasks that the probes have seen since the last time."""
        for vcpu in self._machine.cpus:
            ring = self._rings + vcpu.number * _RING_BYTES
            count = self._memory.u64(ring)
            for index in range(max(self._seen[vcpu.number], count - _ENTRIES), count):
                at = ring + _FIRST + index % _ENTRIES * _ENTRY_BYTES
                self._tracing_record_taskinfo(self._memory.read(at, _TASKINFO.size))
            self._seen[vcpu.number] = count
            self._tracing_record_taskinfo(self._taskinfo(vcpu.current))

    def _taskinfo(self, task: int) -> bytes:
        """A task as the probes record it."""
        memory = self._memory
        pid, tgid = (memory.u32(task + CONSTANTS[name]) for name in ("TASK_PID", "TASK_TGID"))
        return _TASKINFO.pack(pid, tgid, memory.read(task + CONSTANTS["TASK_COMM"], 16))

    def _tracing_record_taskinfo(self, entry: bytes) -> None:
        pid, tgid, comm = _TASKINFO.unpack(entry)
        if self._cmdlines.cmdline_ref > 0:
            name = comm.partition(b"\0")[0].decode("utf-8", "replace")
            self._cmdlines.trace_save_cmdline(pid, name)
        if self._tgids.tgid_ref > 0:
            self._tgids.trace_save_tgid(pid, tgid)
