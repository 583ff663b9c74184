"""The commands enable_event and disable_event of set_ftrace_filter (kernel/trace/trace_events.c).

`FUNC:enable_event:SYSTEM:EVENT[:COUNT]`. The event is put into soft mode: its probe is in the
tracepoint, and whether it records is a flag that the functions' calls change, in guest code
(ftracefs/guest/function_probes.S). All functions of one command count down the same number.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace.filter import FtraceFuncCommand, FtraceRegex
from ftracefs.ftrace.function_probe import UNLIMITED, FtraceFuncProbe, FtraceProbeOps
from ftracefs.trace.parsers import kstrtoul

if TYPE_CHECKING:
    from ftracefs.trace.events.event_file import TraceEventFile
    from ftracefs.trace.trace_array import TraceArray
    from ftracefs.trace.tracing import Tracing

_U64 = (1 << 64) - 1


@dataclass(slots=True)
class EventProbeData:
    """A command that is set (struct event_probe_data); its functions are `ref`."""

    tr: TraceArray
    file: TraceEventFile
    enable: bool
    ref: int = 0


class EventProbeOps(FtraceProbeOps):
    """One of the two commands, with a count or without."""

    def __init__(self, name: str, func: str, known: dict[int, EventProbeData]) -> None:
        super().__init__(name, func, counts=True)
        self._known = known

    def print(self, probe: FtraceFuncProbe, ip: int) -> str:
        """`vfs_read:enable_event:sched:sched_switch:count=3` (event_enable_print)."""
        found = probe.mapper.find_ip(ip) if probe.mapper is not None else None
        address = (found or 0) & _U64
        call = self._known[address].file.call
        count = probe.state.memory.u64(address + CONSTANTS["EVENT_PROBE_COUNT"])
        left = "unlimited" if count == UNLIMITED & _U64 else f"count={count - (count >> 63 << 64)}"
        function = probe.state.kallsyms.sprint_symbol_no_offset(ip)
        return f"{function}:{self.name}:{call.system}:{call.name}:{left}"

    def free(self, numbers: list[int]) -> None:
        """free_probe_data: an event leaves soft mode with the last function that switches it."""
        for address in numbers:
            data = self._known[address]
            data.ref -= 1
            if not data.ref:
                del self._known[address]
                data.tr.events.trace_event_enable_disable(data.file, False, soft_disable=True)
                data.tr.tracing.machine.free(address)


class EventCommands:
    """Both commands, of all trace arrays together."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._known: dict[int, EventProbeData] = {}
        self._ops = {
            (name, counted): EventProbeOps(name, func, self._known)
            for name in ("enable_event", "disable_event")
            for counted, func in ((False, "event_enable_probe"), (True, "event_enable_count_probe"))
        }

    def commands(self, tr: TraceArray) -> dict[bytes, FtraceFuncCommand]:
        """As set_ftrace_filter of `tr` takes them."""

        def command(_: FtraceRegex, glob: bytes, name: bytes, param: bytes | None) -> None:
            self.event_enable_func(tr, glob, name.decode(), param)

        return {name.encode(): command for name, counted in self._ops if counted}

    def event_enable_func(
        self, tr: TraceArray, glob: bytes, name: str, param: bytes | None
    ) -> None:
        """Have functions switch an event, or (`!`) no longer. EINVAL when there is none."""
        system, colon, rest = (param or b"").partition(b":")
        event, counted, rest = rest.partition(b":")
        file = None
        if colon:
            file = tr.events.find_event_file(
                *(word.decode("utf-8", "surrogateescape") for word in (system, event))
            )
        if file is None:
            raise TracefsError(errno.EINVAL, f"{param!r} is no event")
        ops = self._ops[name, bool(counted)]
        if glob.startswith(b"!"):
            tr.func_probes.unregister_ftrace_function_probe_func(glob[1:], ops)
            return
        count = UNLIMITED
        if counted:
            number = rest.partition(b":")[0]
            if not number:
                raise TracefsError(errno.EINVAL, "no count behind the colon")
            count = kstrtoul(number, 0)
        self._register(tr, glob, ops, EventProbeData(tr, file, name == "enable_event"), count)

    def _register(
        self, tr: TraceArray, glob: bytes, ops: EventProbeOps, data: EventProbeData, count: int
    ) -> None:
        machine = self._tracing.machine
        address = machine.alloc(CONSTANTS["EVENT_PROBE_SIZE"], 64)
        memory = machine.memory
        memory.set_u64(address + CONSTANTS["EVENT_PROBE_FILE"], data.file.address)
        memory.set_u64(address + CONSTANTS["EVENT_PROBE_COUNT"], count & _U64)
        memory.set_u32(address + CONSTANTS["EVENT_PROBE_ENABLE"], data.enable)
        events = tr.events
        events.trace_event_enable_disable(data.file, True, soft_disable=True)
        try:
            data.ref = tr.func_probes.register_ftrace_function_probe(glob, ops, address)
        except BaseException:
            events.trace_event_enable_disable(data.file, False, soft_disable=True)
            machine.free(address)
            raise
        self._known[address] = data
