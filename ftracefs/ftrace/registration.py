"""An op comes and goes: register_ftrace_function and its mirror image (kernel/trace/ftrace.c).

register_ftrace_function → ftrace_startup → __register_ftrace_function → ftrace_update_trampoline
                                          → ftrace_hash_ipmodify_enable
                                          → ftrace_hash_rec_enable
                                          → ftrace_startup_enable → ftrace_run_update_code
"""

from __future__ import annotations

import errno

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace.hash_update import (
    ftrace_hash_ipmodify_disable,
    ftrace_hash_ipmodify_enable,
    ftrace_hash_rec_disable,
    ftrace_hash_rec_enable,
)
from ftracefs.ftrace.modify import (
    FTRACE_DISABLE_CALLS,
    FTRACE_UPDATE_CALLS,
    FTRACE_UPDATE_TRACE_FUNC,
    ftrace_run_update_code,
)
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_ADDING,
    FTRACE_OPS_FL_DELETED,
    FTRACE_OPS_FL_DIRECT,
    FTRACE_OPS_FL_DYNAMIC,
    FTRACE_OPS_FL_ENABLED,
    FTRACE_OPS_FL_IPMODIFY,
    FTRACE_OPS_FL_PERMANENT,
    FTRACE_OPS_FL_PID,
    FTRACE_OPS_FL_RCU,
    FTRACE_OPS_FL_REMOVING,
    FTRACE_OPS_FL_SAVE_REGS,
    FtraceOps,
    OpsCommand,
)
from ftracefs.ftrace.rcu_tasks import ftrace_trampoline_free, reap_trampolines
from ftracefs.ftrace.records import FTRACE_NOCLEAR_FLAGS
from ftracefs.ftrace.state import FtraceState
from ftracefs.ftrace.trampolines import (
    arch_ftrace_update_trampoline,
    buffer_distance,
    ftrace_ops_get_func,
)

# --- up ------------------------------------------------------------------------------------------


def register_ftrace_function(state: FtraceState, ops: FtraceOps) -> None:
    """Have `ops` called from the functions that its hashes let through.

    ENODEV when ftrace is disabled, EBUSY when it is registered already, cannot have its
    functions, or ftrace is switched off and it must not be missed; EINVAL when it names none.
    """
    _prepare_direct_functions_for_ipmodify(state, ops)
    ftrace_startup(state, ops, 0)


def _prepare_direct_functions_for_ipmodify(state: FtraceState, ops: FtraceOps) -> None:
    """Ask direct ops whether they can live with an IPMODIFY op on their functions."""
    for op in _direct_peers(state, ops):
        if op.ops_func is None:
            raise TracefsError(errno.EBUSY, "a direct call is on one of the functions")
        result = op.ops_func(op, OpsCommand.FTRACE_OPS_CMD_ENABLE_SHARE_IPMODIFY_PEER)
        if result:
            raise TracefsError(-result, "a direct call will not share its function")


def _direct_peers(state: FtraceState, ops: FtraceOps) -> list[FtraceOps]:
    """The direct ops on functions whose instruction pointer `ops` moves, if it moves any."""
    if not ops.flags & FTRACE_OPS_FL_IPMODIFY:
        return []
    ips = ops.func_hash.filter_hash.ips
    direct = [op for op in state.ops_list if op.flags & FTRACE_OPS_FL_DIRECT]
    return [op for op in direct if state.ops_on(ips, [op]).any()]


def ftrace_startup(state: FtraceState, ops: FtraceOps, command: int) -> None:
    """Register `ops` and bring text in line."""
    if state.ftrace_disabled:
        raise TracefsError(errno.ENODEV, "ftrace is disabled")
    reap_trampolines(state)
    _register(state, ops)
    state.ftrace_start_up += 1
    ops.flags |= FTRACE_OPS_FL_ENABLED | FTRACE_OPS_FL_ADDING
    try:
        ftrace_hash_ipmodify_enable(state, ops)
    except TracefsError:
        _unregister(state, ops)
        state.ftrace_start_up -= 1
        ops.flags &= ~(FTRACE_OPS_FL_ENABLED | FTRACE_OPS_FL_ADDING)
        if ops.flags & FTRACE_OPS_FL_DYNAMIC:
            ftrace_trampoline_free(state, ops)
        raise
    if ftrace_hash_rec_enable(state, ops):
        command |= FTRACE_UPDATE_CALLS
    _ftrace_startup_enable(state, command)
    if state.ftrace_disabled:
        _unregister(state, ops)
        raise TracefsError(errno.ENODEV, "ftrace has been disabled")
    ops.flags &= ~FTRACE_OPS_FL_ADDING
    ops.write_guest()


def _register(state: FtraceState, ops: FtraceOps) -> None:
    """__register_ftrace_function."""
    if ops.flags & FTRACE_OPS_FL_DELETED:
        raise TracefsError(errno.EINVAL, "the op is deleted")
    if ops.flags & FTRACE_OPS_FL_ENABLED:
        raise TracefsError(errno.EBUSY, "the op is registered")
    if not state.ftrace_enabled and ops.flags & FTRACE_OPS_FL_PERMANENT:
        raise TracefsError(errno.EBUSY, "ftrace is switched off")
    ops.saved_func = ops.func
    if ftrace_pids_enabled(state, ops):
        ops.func = state.labels["ftrace_pid_func"]
    needs_regs = ops.flags & FTRACE_OPS_FL_SAVE_REGS
    ops.list_func = state.labels["ftrace_ops_regs_func"] if needs_regs else 0
    if ops.saved_func == state.labels["function_trace_call"]:
        ops.list_buffer = (ops.saved_func, buffer_distance(state, ops))
    ops.write_guest()
    state.ops_list.insert(0, ops)
    state.write_ops_list()
    ftrace_update_trampoline(state, ops)
    if state.ftrace_enabled:
        update_ftrace_function(state)


def ftrace_update_trampoline(state: FtraceState, ops: FtraceOps) -> None:
    """Give `ops` a trampoline, or let its trampoline call what `ops.func` is now."""
    arch_ftrace_update_trampoline(state, ops)


def set_inline_callbacks(state: FtraceState, enabled: bool) -> None:
    """Let trampolines have a callback in line, or have every one call its op's.

    One that has none in line gets it when its op is registered the next time.
    """
    state.inline_callbacks = enabled
    for ops in state.ops_list:
        if ops.inline_size and not state.ftrace_disabled:
            ftrace_update_trampoline(state, ops)


def update_ftrace_function(state: FtraceState) -> None:
    """Decide what ftrace_caller itself calls: nothing, the only op's callback, or the list."""
    if not state.ops_list:
        state.set_function_trace_op = state.labels["ftrace_list_end"]
        state.ftrace_trace_function = state.ftrace_stub
    elif len(state.ops_list) == 1:
        ops = state.ops_list[0]
        state.set_function_trace_op = ops.address
        state.ftrace_trace_function = _ftrace_ops_get_list_func(state, ops)
    else:
        state.set_function_trace_op = state.labels["ftrace_list_end"]
        state.ftrace_trace_function = state.ftrace_ops_list_func


def _ftrace_ops_get_list_func(state: FtraceState, ops: FtraceOps) -> int:
    if ops.flags & (FTRACE_OPS_FL_DYNAMIC | FTRACE_OPS_FL_RCU):
        return state.ftrace_ops_list_func
    return ftrace_ops_get_func(state, ops)


def _trace_func_changed(state: FtraceState) -> int:
    if state.saved_ftrace_func == state.ftrace_trace_function:
        return 0
    state.saved_ftrace_func = state.ftrace_trace_function
    return FTRACE_UPDATE_TRACE_FUNC


def _ftrace_startup_enable(state: FtraceState, command: int) -> None:
    command |= _trace_func_changed(state)
    if command and state.ftrace_enabled:
        ftrace_run_update_code(state, command)


# --- down ----------------------------------------------------------------------------------------


def unregister_ftrace_function(state: FtraceState, ops: FtraceOps) -> None:
    """Have `ops` called no more. EBUSY when it is not registered."""
    ftrace_shutdown(state, ops, 0)
    _cleanup_direct_functions_after_ipmodify(state, ops)


def _cleanup_direct_functions_after_ipmodify(state: FtraceState, ops: FtraceOps) -> None:
    """Tell direct ops that they have their functions to themselves again; they may ignore it."""
    for op in _direct_peers(state, ops):
        if op.ops_func is not None:
            op.ops_func(op, OpsCommand.FTRACE_OPS_CMD_DISABLE_SHARE_IPMODIFY_PEER)


def ftrace_shutdown(state: FtraceState, ops: FtraceOps, command: int) -> None:
    """Take `ops` off the list and bring text in line."""
    if state.ftrace_disabled:
        raise TracefsError(errno.ENODEV, "ftrace is disabled")
    if not ops.flags & FTRACE_OPS_FL_ENABLED:
        raise TracefsError(errno.EBUSY, "the op is not registered")
    _unregister(state, ops)
    state.ftrace_start_up -= 1
    ftrace_hash_ipmodify_disable(state, ops)
    if ftrace_hash_rec_disable(state, ops):
        command |= FTRACE_UPDATE_CALLS
    ops.flags &= ~FTRACE_OPS_FL_ENABLED
    command |= _trace_func_changed(state)
    if command and state.ftrace_enabled:
        # Its sites call its trampoline until they are patched, though it is on no list.
        ops.flags |= FTRACE_OPS_FL_REMOVING
        ops.old_hash = ops.func_hash.copy()
        state.removed_ops = ops
        try:
            ftrace_run_update_code(state, command)
        finally:
            state.removed_ops = None
            ops.flags &= ~FTRACE_OPS_FL_REMOVING
        if not state.ops_list and state.records.has(~FTRACE_NOCLEAR_FLAGS & 0xFFFFFFFF).any():
            state.report_bug("ftrace: records are in use with no op registered")
    ops.write_guest()
    # Linux frees it even if its call sites could not be changed.
    if ops.flags & FTRACE_OPS_FL_DYNAMIC and not state.ftrace_disabled:
        ftrace_trampoline_free(state, ops)
        reap_trampolines(state)


def _unregister(state: FtraceState, ops: FtraceOps) -> None:
    """__unregister_ftrace_function."""
    state.ops_list.remove(ops)
    state.write_ops_list()
    if state.ftrace_enabled:
        update_ftrace_function(state)
    ops.func = ops.saved_func


# --- pids ----------------------------------------------------------------------------------------


def ftrace_pids_enabled(state: FtraceState, ops: FtraceOps) -> bool:
    """Whether `ops` traces some tasks only: its trace array has a list of pids."""
    if not ops.flags & FTRACE_OPS_FL_PID or not ops.trace_array:
        return False
    lists = ("TR_FUNCTION_PIDS", "TR_FUNCTION_NO_PIDS")
    return any(state.memory.u64(ops.trace_array + CONSTANTS[name]) for name in lists)


def ftrace_update_pid_func(state: FtraceState) -> None:
    """Let each op's trampoline call ftrace_pid_func if it has to ask for pids, else the callback.

    The call inside the trampoline is patched, the sites that lead there are not.
    """
    if state.ftrace_trace_function == state.ftrace_stub:
        return
    for ops in state.ops_list:
        if ops.flags & FTRACE_OPS_FL_PID:
            asks = ftrace_pids_enabled(state, ops)
            ops.func = state.labels["ftrace_pid_func"] if asks else ops.saved_func
            ops.write_guest()
            ftrace_update_trampoline(state, ops)
    update_ftrace_function(state)


def ftrace_startup_all(state: FtraceState, command: int) -> None:
    """Bring text in line with what `update_ftrace_function` has decided."""
    _ftrace_startup_enable(state, command)


# --- /proc/sys/kernel/ftrace_enabled ---------------------------------------------------------


def ftrace_enable_sysctl(state: FtraceState, enabled: bool) -> None:
    """Switch all tracing of functions off and on; EBUSY while a PERMANENT op is registered."""
    if state.ftrace_disabled:
        raise TracefsError(errno.ENODEV, "ftrace is disabled")
    if enabled == state.ftrace_enabled:
        return
    if enabled:
        state.ftrace_enabled = True
        if state.ops_list:
            update_ftrace_function(state)
        state.saved_ftrace_func = 0  # what ftrace_caller calls is written anew
        if state.ftrace_start_up:
            _ftrace_startup_enable(state, FTRACE_UPDATE_CALLS)
        return
    if any(op.flags & FTRACE_OPS_FL_PERMANENT for op in state.ops_list):
        raise TracefsError(errno.EBUSY, "a permanent op is registered")
    state.ftrace_enabled = False
    state.ftrace_trace_function = state.ftrace_stub
    if state.ftrace_start_up:
        ftrace_run_update_code(state, FTRACE_DISABLE_CALLS)
