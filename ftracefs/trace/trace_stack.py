"""The stack tracer: the deepest that a task's stack has been, and through which calls.

    stack_trace_sysctl → register_ftrace_function(trace_ops)

Models kernel/trace/trace_stack.c. What runs at a traced function is guest code, stack_trace_call
of ftracefs/guest: it measures, and keeps the maximum with its stack in guest memory, where it is
read from here. Linux marks a CPU whose task reads the file as not to be measured; here no guest
code runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace import Ftrace, FtraceOps

_ENTRIES = CONSTANTS["STACK_TRACE_ENTRIES"]
_HEADERS = "        Depth    Size   Location    ({} entries)\n        -----    ----   --------\n"
_DISABLED = """\
#
#  Stack tracer disabled
#
# To enable the stack tracer, either add 'stacktrace' to the
# kernel command line
# or 'echo 1 > /proc/sys/kernel/stack_tracer_enabled'
#
"""


class StackTracer:
    """The stack tracer of one machine; `label` gives the addresses of the engine's own code."""

    def __init__(self, ftrace: Ftrace, label: Callable[[str], int]) -> None:
        self._ftrace = ftrace
        self._memory = ftrace.memory
        self._label = label
        self.trace_ops: FtraceOps = ftrace.new_ops(label("stack_trace_call"), name="trace_ops")
        self.stack_tracer_enabled = 0

    def stack_trace_sysctl(self, value: int) -> None:
        """Switch it on (any value but 0) and off; that ftrace is disabled is not told."""
        was_enabled, self.stack_tracer_enabled = self.stack_tracer_enabled, value
        if bool(was_enabled) == bool(value):
            return
        with suppress(TracefsError):
            if value:
                self._ftrace.register_ftrace_function(self.trace_ops)
            else:
                self._ftrace.unregister_ftrace_function(self.trace_ops)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Measure nothing meanwhile."""
        word = self._label("disable_stack_tracer")
        self._memory.set_u32(word, 1)
        try:
            yield
        finally:
            self._memory.set_u32(word, 0)

    @property
    def stack_trace_max_size(self) -> int:
        """The deepest so far, in bytes; what is not deeper is not looked at."""
        return self._memory.u64(self._label("stack_trace_max_size"))

    @stack_trace_max_size.setter
    def stack_trace_max_size(self, size: int) -> None:
        self._memory.set_u64(self._label("stack_trace_max_size"), size)

    def forget(self) -> None:
        """Be as if no stack had been measured yet."""
        self.stack_trace_max_size = 0
        self._memory.set_u64(self._label("tracer_frame"), 0)
        self._memory.set_u32(self._label("stack_trace_nr_entries"), 0)

    def stack_trace(self) -> list[tuple[int, int]]:
        """Return addresses, each with the distance of its place from the top of the stack."""
        memory = self._memory
        count = memory.u32(self._label("stack_trace_nr_entries"))
        addresses = memory.array(self._label("stack_dump_trace"), 8 * count, np.uint64)
        depths = memory.array(self._label("stack_trace_index"), 4 * count, np.uint32)
        return list(zip(addresses.tolist(), depths.tolist(), strict=True))

    def text(self) -> str:
        """The file stack_trace."""
        stack = self.stack_trace()
        lines = [_HEADERS.format(len(stack))]
        if not self.stack_tracer_enabled and not self.stack_trace_max_size:
            lines.append(_DISABLED)
        ends = [depth for _, depth in stack[1:]]
        symbol = self._ftrace.kallsyms.sprint_symbol
        ends.append(0)
        for number, ((address, depth), end) in enumerate(zip(stack, ends, strict=False)):
            lines.append(f"{number:>3}) {depth:>8}   {depth - end:>5}   {symbol(address)}\n")
        return "".join(lines)
