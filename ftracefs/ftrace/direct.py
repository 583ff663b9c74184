"""Direct calls: sites that call a function of somebody else's (kernel/trace/ftrace.c).

A direct op alone on a function has the site itself call its target. Beside others the site calls
ftrace_regs_caller: the list function calls call_direct_funcs among the callbacks, which puts the
target into pt_regs->orig_ax, and the trampoline jumps there on its way out. `trampoline` of a
direct op is ftrace_regs_caller itself and not a copy, which would have no way to do that.
"""

from __future__ import annotations

import errno

from emulated_kernel.text_poke import CALL_INSN_SIZE
from ftracefs.errors import TracefsError
from ftracefs.ftrace.hash_update import ftrace_hash_ipmodify_ask
from ftracefs.ftrace.hashes import FtraceHash, ftrace_hash_empty
from ftracefs.ftrace.modify import ftrace_find_rec_direct
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_DIRECT,
    FTRACE_OPS_FL_ENABLED,
    FTRACE_OPS_FL_SAVE_REGS,
    FTRACE_OPS_FL_STUB,
    FtraceOps,
)
from ftracefs.ftrace.registration import ftrace_startup, unregister_ftrace_function
from ftracefs.ftrace.state import FtraceState

MULTI_FLAGS = FTRACE_OPS_FL_DIRECT | FTRACE_OPS_FL_SAVE_REGS
_CALL_REACH = 1 << 31


def register_ftrace_direct(state: FtraceState, ops: FtraceOps, addr: int) -> None:
    """Have the functions in the filter of `ops`, made with no callback, call `addr` at entry.

    EINVAL for an op in use, one that names no function, or a target out of reach of a call; EBUSY
    when a function has a direct call already, or a live patch that `ops.ops_func` will not share.
    """
    hash = ops.func_hash.filter_hash
    if ops.func or ops.trampoline or ops.flags & FTRACE_OPS_FL_ENABLED:
        raise TracefsError(errno.EINVAL, "the op is in use")
    if ftrace_hash_empty(hash):
        raise TracefsError(errno.EINVAL, "a direct call must name its functions")
    _check_reach(hash, addr)
    if any(ftrace_find_rec_direct(state, ip) for ip in hash.ips.tolist()):
        raise TracefsError(errno.EBUSY, "a function has a direct call")
    state.direct_functions.update((ip, addr) for ip in hash.ips.tolist())
    ops.func = state.labels["call_direct_funcs"]
    ops.flags |= MULTI_FLAGS
    ops.trampoline = state.ftrace_regs_addr
    ops.direct_call = addr
    try:
        ftrace_startup(state, ops, 0)
    except TracefsError:
        _release(state, ops, hash, addr)
        raise


def unregister_ftrace_direct(state: FtraceState, ops: FtraceOps, addr: int) -> None:
    """Undo register_ftrace_direct; `addr` is the present target. The op can be used again."""
    _check_direct_multi(ops)
    hash = ops.func_hash.filter_hash
    try:
        unregister_ftrace_function(state, ops)
    finally:
        _release(state, ops, hash, addr)


def modify_ftrace_direct(state: FtraceState, ops: FtraceOps, addr: int) -> None:
    """Send the functions of a registered direct op to another target.

    A second op on the same functions makes their sites call the list function meanwhile, so that
    each site is rewritten from one target to the other and never to a nop.
    """
    _check_direct_multi(ops)
    hash = ops.func_hash.filter_hash
    _check_reach(hash, addr)
    tmp_ops = _tmp_ops(state, ops)
    ftrace_startup(state, tmp_ops, 0)
    try:
        ftrace_hash_ipmodify_ask(state, ops)
        for ip in hash.ips.tolist():
            if ip in state.direct_functions:
                state.direct_functions[ip] = addr
        ops.direct_call = addr
        ops.write_guest()
    finally:
        unregister_ftrace_function(state, tmp_ops)


def _tmp_ops(state: FtraceState, ops: FtraceOps) -> FtraceOps:
    """The op that stands beside `ops` for a moment."""
    if state.tmp_ops is None:
        stub = state.ftrace_stub
        state.tmp_ops = FtraceOps(state.memory, stub, flags=FTRACE_OPS_FL_STUB, name="tmp_ops")
    state.tmp_ops.func_hash = ops.func_hash
    return state.tmp_ops


def _check_direct_multi(ops: FtraceOps) -> None:
    if ops.flags & MULTI_FLAGS != MULTI_FLAGS or not ops.flags & FTRACE_OPS_FL_ENABLED:
        raise TracefsError(errno.EINVAL, "the op is no registered direct op")


def _check_reach(hash: FtraceHash, addr: int) -> None:
    distances = (addr - (ip + CALL_INSN_SIZE) for ip in hash.ips[hash.ips != 0].tolist())
    if any(not -_CALL_REACH <= distance < _CALL_REACH for distance in distances):
        raise TracefsError(errno.EINVAL, f"{addr:#x} is out of reach of a call")


def _release(state: FtraceState, ops: FtraceOps, hash: FtraceHash, addr: int) -> None:
    """remove_direct_functions_hash, and let `ops` be registered again."""
    for ip in hash.ips.tolist():
        if state.direct_functions.get(ip) == addr:
            del state.direct_functions[ip]
    ops.func = ops.saved_func = ops.trampoline = 0
