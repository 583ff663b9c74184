"""The events of a booted Linux: its own structures tell of them, its own probes record them.

    trace_event_enable_disable → class->reg(call, TRACE_REG_REGISTER, file)
                                 the kernel's own function, run in the guest: the event's probe is
                                 in its tracepoint, with `file` as its word

`file` is a struct trace_event_file in the host's memory. The kernel's trace_event_buffer_reserve
and trace_event_buffer_commit lead to ours (guest/linux_events.S) while any event is on. What an
event looks like is read when somebody asks (emulated_kernel/linux/trace_events.py).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.linux.trace_events import LinuxEvent, LinuxEvents
from ftracefs.errors import TracefsError
from ftracefs.ftrace import Ftrace
from ftracefs.ftrace.detour import Detour
from ftracefs.ftrace.linux_tracepoints import kernel_errno
from ftracefs.ring_buffer.entries import Entries
from ftracefs.trace.events.call import EventCall
from ftracefs.trace.events.fields import EventField
from ftracefs.trace.events.ftrace_entries import FTRACE_EVENTS
from ftracefs.trace.events.output import KernelValues, event_functions
from ftracefs.trace.events.table import Events
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.ctx_switch import CTX_SWITCH_EVENTS
from ftracefs.trace.output.event_output import TRACE_ENTRIES, TraceEventFunctions
from ftracefs.trace.output.output_context import OutputContext

if TYPE_CHECKING:
    from ftracefs.trace.tracing import Tracing

_FTRACE, _SYSCALLS = "ftrace", "syscalls"
_SYSCALL, _ENTER, _EXIT = "sys_", "sys_enter_", "sys_exit_"
_TRACE_REG_REGISTER, _TRACE_REG_UNREGISTER = 0, 1  # enum trace_reg
_LINUX_FILE = CONSTANTS["EVENT_FILE_LINUX"]
# The kernel's function, ours, and the word in which ours finds where to go on.
_DETOURS = tuple(
    (f"trace_{name}", f"linux_{name}", f"linux_{name}_rest")
    for name in ("event_buffer_reserve", "event_buffer_commit")
)


class LinuxRecording:
    """Switches the events of one machine. For the machine thread."""

    def __init__(self, ftrace: Ftrace, events: LinuxEvents) -> None:
        self._ftrace = ftrace
        self._machine = ftrace.machine
        self._events = events
        self._on = 0
        self._trace_arrays: dict[int, int] = {}

    @cached_property
    def _detours(self) -> list[Detour]:
        ftrace = self._ftrace
        return [
            Detour(ftrace, self._events.symbol(name), ftrace.labels[ours], ftrace.labels[rest])
            for name, ours, rest in _DETOURS
        ]

    def _trace_array(self, event: LinuxEvent, file: int) -> int:
        """What the kernel takes for a trace array; only system calls keep something in it."""
        if event.system != _SYSCALLS:
            return 0
        array = self._machine.memory.u64(file + CONSTANTS["EVENT_FILE_TR"])
        if array not in self._trace_arrays:
            self._trace_arrays[array] = self._machine.alloc(self._events.array_bytes, 64)
        return self._trace_arrays[array]

    def reg(self, event: LinuxEvent, file: int, enable: bool) -> None:
        """Have it recorded for the trace_event_file of ours at `file`, or no longer."""
        if enable:
            self._events.fill_file(file + _LINUX_FILE, event, self._trace_array(event, file))
            self._hold()
        kind = _TRACE_REG_REGISTER if enable else _TRACE_REG_UNREGISTER
        error = 0
        try:
            answer = self._machine.call_in_process(
                event.reg, event.address, kind, file + _LINUX_FILE
            )
            error = kernel_errno(answer)
        finally:
            if error or not enable:
                self._drop()
        if error:
            raise TracefsError(error, f"{event.system}:{event.name}")

    def _hold(self) -> None:
        self._on += 1
        if self._on == 1:
            for detour in self._detours:
                detour.set(True)

    def _drop(self) -> None:
        self._on -= 1
        if not self._on:
            for detour in self._detours:
                detour.set(False)


class LinuxEventCall(EventCall):
    """One of them."""

    has_id = True

    def __init__(self, events: LinuxEvents, recording: LinuxRecording, event: LinuxEvent) -> None:
        self.system = event.system
        self.name = event.name
        self.id = event.id
        self._events = events
        self._recording = recording
        self._event = event

    @cached_property
    def print_fmt(self) -> str:
        return self._events.print_fmt(self._event)

    @cached_property
    def fields(self) -> tuple[EventField, ...]:
        return tuple(
            EventField(each.type, each.name, each.offset, each.size, each.is_signed, each.length)
            for each in self._events.fields(self._event)
        )

    @property
    def can_be_enabled(self) -> bool:
        return self._event.can_be_enabled

    def reg(self, tracing: Tracing, file: int, enable: bool) -> None:
        self._recording.reg(self._event, file, enable)


class SyscallPrinter:
    """print_syscall_enter and print_syscall_exit of kernel/trace/trace_syscalls.c."""

    def __init__(self, call: EventCall) -> None:
        self._call = call

    @cached_property
    def _arguments(self) -> tuple[EventField, ...]:
        return self._call.fields[1:]  # behind the number

    def enter(self, entries: Entries, context: OutputContext) -> list[bytes]:
        is_verbose = bool(context.flags & TraceIter.VERBOSE)
        form = ", ".join(
            f"{each.type} {each.name}: %x" if is_verbose else f"{each.name}: %x"
            for each in self._arguments
        )
        line = f"{_SYSCALL}{self._call.name.removeprefix(_ENTER)}({form})\n".encode()
        columns = [entries.u64(each.offset).tolist() for each in self._arguments]
        if not columns:
            return [line] * len(entries)
        return [line % values for values in zip(*columns, strict=True)]

    def exit(self, entries: Entries, context: OutputContext) -> list[bytes]:
        line = f"{_SYSCALL}{self._call.name.removeprefix(_EXIT)} -> 0x%x\n".encode()
        (ret,) = self._arguments
        return [line % value for value in entries.u64(ret.offset).tolist()]


def _functions(call: EventCall, values: KernelValues) -> TraceEventFunctions:
    if call.system != _SYSCALLS:
        return event_functions(call, values)
    printer = SyscallPrinter(call)
    return TraceEventFunctions(printer.enter if call.name.startswith(_ENTER) else printer.exit)


def linux_events(ftrace: Ftrace, events: LinuxEvents, values: KernelValues) -> Events:
    """Every event, in the kernel's order; of the tracers' own those that our tracers have."""
    recording = LinuxRecording(ftrace, events)
    others = [LinuxEventCall(events, recording, each) for each in events.ftrace_events()]
    calls = [*FTRACE_EVENTS, *(call for call in others if call.system != _FTRACE)]
    functions = {call.id: _functions(call, values) for call in calls if call.can_be_enabled}
    return Events(calls, {**TRACE_ENTRIES, **CTX_SWITCH_EVENTS, **functions})
