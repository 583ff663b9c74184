"""An event of one trace array: struct trace_event_file (kernel/trace/trace_events.c).

Its probe, guest code, is given the address of a structure of this name in guest memory, which leads
to the buffers of its trace array; the flags there are the only ones there are.
"""

from __future__ import annotations

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import EmulatedMachine
from ftracefs.trace.events.call import TraceEventCall

EVENT_FILE_FL_ENABLED = CONSTANTS["EVENT_FILE_FL_ENABLED"]
EVENT_FILE_FL_RECORDED_CMD = CONSTANTS["EVENT_FILE_FL_RECORDED_CMD"]
EVENT_FILE_FL_RECORDED_TGID = CONSTANTS["EVENT_FILE_FL_RECORDED_TGID"]
EVENT_FILE_FL_SOFT_MODE = CONSTANTS["EVENT_FILE_FL_SOFT_MODE"]
EVENT_FILE_FL_SOFT_DISABLED = CONSTANTS["EVENT_FILE_FL_SOFT_DISABLED"]
EVENT_FILE_FL_PID_FILTER = CONSTANTS["EVENT_FILE_FL_PID_FILTER"]
EVENT_FILE_FL_WAS_ENABLED = CONSTANTS["EVENT_FILE_FL_WAS_ENABLED"]


class TraceEventFile:
    """`array` is the address of the trace array's own structure in guest memory."""

    def __init__(self, machine: EmulatedMachine, call: TraceEventCall, array: int) -> None:
        self.call = call
        self.sm_ref = 0  # how many want it to be there, recording or not
        self._machine = machine
        self._memory = machine.memory
        self.address = machine.alloc(CONSTANTS["EVENT_FILE_SIZE"], 64)
        self._memory.set_u32(self.address + CONSTANTS["EVENT_FILE_TYPE"], call.id)
        self._memory.set_u64(self.address + CONSTANTS["EVENT_FILE_TR"], array)

    def free(self) -> None:
        """Give the memory back; no probe may know of it any more."""
        self._machine.free(self.address)

    @property
    def flags(self) -> int:
        return self._memory.u32(self.address + CONSTANTS["EVENT_FILE_FLAGS"])

    def has(self, flag: int) -> bool:
        return bool(self.flags & flag)

    def set_flag(self, flag: int, on: bool = True) -> None:
        """set_bit, clear_bit."""
        flags = self.flags | flag if on else self.flags & ~flag
        self._memory.set_u32(self.address + CONSTANTS["EVENT_FILE_FLAGS"], flags)

    @property
    def is_enabled(self) -> bool:
        """Whether the probe is there."""
        return self.has(EVENT_FILE_FL_ENABLED)

    def enable_text(self) -> str:
        """The file `enable` (event_enable_read)."""
        flags = self.flags
        is_on = flags & EVENT_FILE_FL_ENABLED and not flags & EVENT_FILE_FL_SOFT_DISABLED
        is_soft = flags & (EVENT_FILE_FL_SOFT_DISABLED | EVENT_FILE_FL_SOFT_MODE)
        return f"{'1' if is_on else '0'}{'*' if is_soft else ''}\n"
