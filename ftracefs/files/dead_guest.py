"""What a booted guest that is dead is still good for.

Its memory is there, so all files can be read, and what is the host's own goes on: records, the size
of buffers, options. A write by which the guest would be traced otherwise, or would have to do
something, is EIO.
"""

from __future__ import annotations

import errno

from emulated_kernel.errors import GuestDeadError
from emulated_kernel.linux.pc import PcMachine
from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, TracefsFile

_NEED_THE_GUEST = frozenset(
    (
        *("current_tracer", "function_profile_enabled", "stack_tracer_enabled", "ftrace_enabled"),
        *("set_ftrace_filter", "set_ftrace_notrace", "set_graph_function", "set_graph_notrace"),
        *("stack_trace_filter", "set_ftrace_pid", "set_ftrace_notrace_pid"),
        *("enable", "set_event", "set_event_pid", "set_event_notrace_pid"),
        *("trace_marker", "trace_marker_raw"),
        *("call", "sh", "direct", "livepatch", "modules", "inline_callbacks"),
    )
)


def refuse_when_dead(root: Directory, machine: PcMachine) -> None:
    """For all files below `root`, those of later instances too."""

    def check() -> None:
        check_alive(machine)

    def tell(name: str, file: TracefsFile) -> None:
        if name in _NEED_THE_GUEST:
            file.before_write = check

    root.adopt(tell)
    instances = root.lookup("instances")
    assert isinstance(instances, Directory)
    instances.before_change = check


def check_alive(machine: PcMachine) -> None:
    """EIO when the guest is dead."""
    try:
        machine.check_alive()
    except GuestDeadError as error:
        raise TracefsError(errno.EIO, f"the guest is dead: {error}") from error
