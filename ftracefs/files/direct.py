"""emulator/direct: functions whose site calls a target itself (Linux: BPF and modules do that).

A target is entered as a trampoline is and must keep the traced function's arguments; guest/direct.S
tells how. `my_tramp` and `bpf_trampoline` of ftracefs/guest are such targets.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ftracefs.errors import TracefsError
from ftracefs.files.base import TracefsFile
from ftracefs.files.redirect import RedirectFile
from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.hash_update import ftrace_location, ftrace_set_filter_ips
from ftracefs.trace.tracing import Tracing


def direct(tracing: Tracing) -> TracefsFile:
    """`emulator/direct`. It shows every direct call, and changes those that were made here."""
    calls = DirectCalls(tracing)
    return RedirectFile(tracing.ftrace, calls.pairs, calls.add, calls.remove)


class DirectCalls:
    """The direct calls made through the file: an op for each function."""

    def __init__(self, tracing: Tracing) -> None:
        self._ftrace = tracing.ftrace
        self._ops: dict[int, FtraceOps] = {}  # by call site

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(function, target) of every direct call there is."""
        yield from self._ftrace.direct_functions.items()

    def add(self, function: int, target: int) -> None:
        """Have `function` call `target`, be it instead of another one."""
        ftrace = self._ftrace
        site = ftrace_location(ftrace, function)
        if not site:
            raise TracefsError(errno.EINVAL, "the function cannot be traced")
        if target == function:
            raise TracefsError(errno.EINVAL, "the function would call itself for ever")
        if site not in self._ops:
            # It goes on wherever its return address leads, so a live patch is no obstacle.
            ops = ftrace.new_ops(name="direct")
            ops.ops_func = lambda _ops, _command: 0
            ftrace_set_filter_ips(ftrace, ops, [site])
            self._ops[site] = ops
        ops = self._ops[site]
        if ops.func:
            ftrace.modify_ftrace_direct(ops, target)
        else:
            ftrace.register_ftrace_direct(ops, target)

    def remove(self, function: int, target: int) -> None:
        """Undo `add`. ENOENT when there is no such call, or somebody else made it."""
        ops = self._ops.get(ftrace_location(self._ftrace, function))
        if ops is None or not ops.func or target not in (0, ops.direct_call):
            raise TracefsError(errno.ENOENT, "there is no such direct call")
        self._ftrace.unregister_ftrace_direct(ops, ops.direct_call)
