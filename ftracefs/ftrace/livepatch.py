"""Live patching: calls of one function go to another (kernel/livepatch/patch.c).

    klp_patch_func → ftrace_set_filter_ip → register_ftrace_function    an IPMODIFY op on it
    call site → trampoline → klp_ftrace_handler: regs->ip = new_func    at each call

A function patched again keeps its op: the newest replacement stands on top of the op's stack, and
the one below is back in effect when it goes. Patches of Linux come as modules and are switched on
task by task (klp_transition); here a patch is a pair of functions and takes effect at once.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from ftracefs.errors import TracefsError
from ftracefs.ftrace.hash_update import ftrace_location, ftrace_set_filter_ips
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_DYNAMIC,
    FTRACE_OPS_FL_IPMODIFY,
    FTRACE_OPS_FL_PERMANENT,
    FtraceOps,
)
from ftracefs.ftrace.registration import register_ftrace_function, unregister_ftrace_function
from ftracefs.ftrace.state import FtraceState

# As where HAVE_DYNAMIC_FTRACE_WITH_ARGS is: the frame every trampoline makes has room for the ip.
_KLP_FLAGS = FTRACE_OPS_FL_DYNAMIC | FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT


@dataclass(frozen=True, slots=True)
class KlpFunc:
    """A replacement: calls of `old_func` go to `new_func`."""

    old_func: int
    new_func: int


@dataclass(slots=True, eq=False)
class KlpOps:
    """A function's op and its replacements, the one in effect last."""

    fops: FtraceOps
    func_stack: list[KlpFunc] = field(default_factory=list)

    def update_top(self) -> None:
        """Send calls where the top of the stack says, from the next one on."""
        self.fops.private = self.func_stack[-1].new_func
        self.fops.write_guest()


class Livepatch:
    """All live patches of a machine."""

    def __init__(self, state: FtraceState) -> None:
        self._state = state
        # By call site. An op stays when its function is not patched any more, for the next time.
        self._ops: dict[int, KlpOps] = {}

    def patched(self) -> list[KlpFunc]:
        """Every replacement; of a function patched twice the newer one comes later."""
        return [func for ops in self._ops.values() for func in ops.func_stack]

    def klp_patch_func(self, old_func: int, new_func: int) -> None:
        """Let calls of the function at `old_func` go to `new_func`.

        EINVAL when it has no call site, or when calls would go in a circle for ever; EEXIST when
        this replacement is on its stack; EBUSY when somebody else moves the instruction pointer
        there, or a direct call will not share it.
        """
        site = ftrace_location(self._state, old_func)
        if not site:
            raise TracefsError(errno.EINVAL, "the function cannot be traced")
        ops = self._ops.get(site)
        if ops is None:
            ops = self._ops[site] = KlpOps(self._new_fops())
        func = KlpFunc(old_func, new_func)
        if func in ops.func_stack:
            raise TracefsError(errno.EEXIST, "it is patched so already")
        if self._leads_to(new_func, old_func):
            raise TracefsError(errno.EINVAL, "the replacement would call itself for ever")
        ops.func_stack.append(func)
        ops.update_top()
        if len(ops.func_stack) > 1:
            return
        try:
            ftrace_set_filter_ips(self._state, ops.fops, [site], reset=True)
            register_ftrace_function(self._state, ops.fops)
        except TracefsError:
            ops.func_stack.clear()
            raise

    def _leads_to(self, func: int, goal: int) -> bool:
        """Whether a call of `func` ends at `goal`, by way of the patches in effect."""
        tops = [ops.func_stack[-1] for ops in self._ops.values() if ops.func_stack]
        goes_to = {top.old_func: top.new_func for top in tops}
        for _ in tops:
            if func != goal:
                func = goes_to.get(func, func)
        return func == goal

    def klp_unpatch_func(self, old_func: int, new_func: int | None = None) -> None:
        """Take one replacement of a function back, or (None) all; ENOENT when there is none."""
        ops = self._ops.get(ftrace_location(self._state, old_func))
        gone = [] if ops is None else [f for f in ops.func_stack if new_func in (None, f.new_func)]
        if ops is None or not gone:
            raise TracefsError(errno.ENOENT, "it is not patched so")
        if len(gone) == len(ops.func_stack):
            unregister_ftrace_function(self._state, ops.fops)
            ops.func_stack.clear()
        else:
            ops.func_stack = [f for f in ops.func_stack if f not in gone]
            ops.update_top()

    def klp_module_going(self, start: int, end: int) -> None:
        """Take back what patches functions in [start, end), which are being unloaded.

        With ftrace disabled their call sites go as they are, and the ops stay with nobody.
        """
        for site, ops in list(self._ops.items()):
            if start <= site < end:
                if ops.func_stack and not self._state.ftrace_disabled:
                    self.klp_unpatch_func(ops.func_stack[0].old_func)
                del self._ops[site]
                if not self._state.ftrace_disabled:
                    ops.fops.free()

    def _new_fops(self) -> FtraceOps:
        state = self._state
        handler = state.labels["klp_ftrace_handler"]
        return FtraceOps(state.memory, handler, flags=_KLP_FLAGS, name="livepatch")
