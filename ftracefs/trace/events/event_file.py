"""An event of one trace array: struct trace_event_file (kernel/trace/trace_events.c).

Its probe, guest code, is given the address of a structure of this name in guest memory, which leads
to the buffers of its trace array; the flags there are the only ones there are.
"""

from __future__ import annotations

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine.memory import Memory
from ftracefs.trace.events.call import EventCall

EVENT_FILE_FL_ENABLED = CONSTANTS["EVENT_FILE_FL_ENABLED"]
EVENT_FILE_FL_RECORDED_CMD = CONSTANTS["EVENT_FILE_FL_RECORDED_CMD"]
EVENT_FILE_FL_RECORDED_TGID = CONSTANTS["EVENT_FILE_FL_RECORDED_TGID"]
EVENT_FILE_FL_SOFT_MODE = CONSTANTS["EVENT_FILE_FL_SOFT_MODE"]
EVENT_FILE_FL_SOFT_DISABLED = CONSTANTS["EVENT_FILE_FL_SOFT_DISABLED"]
EVENT_FILE_FL_PID_FILTER = CONSTANTS["EVENT_FILE_FL_PID_FILTER"]
EVENT_FILE_FL_WAS_ENABLED = CONSTANTS["EVENT_FILE_FL_WAS_ENABLED"]


class TraceEventFile:
    """`address` is that of EVENT_FILE_SIZE zeroed bytes, `array` of the trace array's structure."""

    def __init__(self, memory: Memory, call: EventCall, address: int, array: int) -> None:
        self.call = call
        self.address = address
        self.sm_ref = 0  # how many want it to be there, recording or not
        self._memory = memory
        memory.set_u32(address + CONSTANTS["EVENT_FILE_TYPE"], call.id)
        memory.set_u64(address + CONSTANTS["EVENT_FILE_TR"], array)

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
