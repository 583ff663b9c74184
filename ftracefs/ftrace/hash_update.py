"""Hashes into records: who counts on which site (kernel/trace/ftrace.c).

ftrace_hash_rec_enable/disable count an op in and out of the records its hashes let through;
ftrace_hash_move_and_update_ops replaces a hash of an op, registered or not; ftrace_hash_ipmodify_*
keep two ops that both move the instruction pointer off one function.
"""

from __future__ import annotations

import errno

import numpy as np

from ftracefs.errors import TracefsError
from ftracefs.ftrace.hashes import (
    EMPTY_HASH,
    FtraceHash,
    Ips,
    as_ips,
    ftrace_hash_empty,
    hash_contains_ip,
)
from ftracefs.ftrace.match import match_records
from ftracefs.ftrace.modify import (
    FTRACE_UPDATE_CALLS,
    Mask,
    Update,
    ftrace_run_modify_code,
    ftrace_test_record,
    skip_record,
)
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_DIRECT,
    FTRACE_OPS_FL_ENABLED,
    FTRACE_OPS_FL_IPMODIFY,
    FTRACE_OPS_FL_SAVE_REGS,
    FtraceOps,
    OpsCommand,
)
from ftracefs.ftrace.records import (
    FTRACE_FL_DIRECT,
    FTRACE_FL_DISABLED,
    FTRACE_FL_IPMODIFY,
    FTRACE_FL_REGS,
    FTRACE_FL_TRAMP,
    FTRACE_REF_MAX,
    Numbers,
)
from ftracefs.ftrace.state import FtraceState

# --- counting -------------------------------------------------------------------------------------


def ftrace_hash_rec_enable(state: FtraceState, ops: FtraceOps) -> bool:
    """Count `ops` in; True when a site has to change for it."""
    return _hash_rec_update(state, ops, inc=True)


def ftrace_hash_rec_disable(state: FtraceState, ops: FtraceOps) -> bool:
    """Count `ops` out; True when a site has to change for it."""
    return _hash_rec_update(state, ops, inc=False)


def _hash_rec_update(state: FtraceState, ops: FtraceOps, *, inc: bool) -> bool:
    if not ops.flags & FTRACE_OPS_FL_ENABLED:
        return False
    records = state.records
    wanted = hash_contains_ip(ops.func_hash, records.ip) & ~skip_record(records.flags)
    return update_rows(state, ops, np.flatnonzero(wanted), inc=inc)


def update_rows(state: FtraceState, ops: FtraceOps, rows: Numbers, *, inc: bool) -> bool:
    """__ftrace_hash_rec_update for `rows`."""
    records = state.records
    flags, ips = records.flags[rows], records.ip[rows]
    count = flags & np.uint64(FTRACE_REF_MAX)
    limit = FTRACE_REF_MAX if inc else 0
    if (count == limit).any():
        state.report_bug(f"ftrace: reference count of a record is {limit} already")
        return False
    one = np.uint64(1)
    others = [op for op in state.ops_list if op is not ops]

    def put(bit: int, where: Mask) -> None:
        flags[where] |= np.uint64(bit)
        flags[~where] &= ~np.uint64(bit)

    if inc:
        flags += one
        if ops.flags & FTRACE_OPS_FL_DIRECT:
            flags |= np.uint64(FTRACE_FL_DIRECT)
        if ops.flags & FTRACE_OPS_FL_SAVE_REGS:
            flags |= np.uint64(FTRACE_FL_REGS)
        # Only the sole user of a function can have the site call its own trampoline.
        put(FTRACE_FL_TRAMP, (count == 0) & bool(ops.trampoline))
    else:
        flags -= one
        if ops.flags & FTRACE_OPS_FL_DIRECT:
            flags &= ~np.uint64(FTRACE_FL_DIRECT)
        if ops.flags & FTRACE_OPS_FL_SAVE_REGS:
            # Linux asks this op as well while it is only being modified, and so keeps REGS longer
            # than somebody wants registers.
            savers = [op for op in others if op.flags & FTRACE_OPS_FL_SAVE_REGS]
            flags[~state.ops_on(ips, savers)] &= ~np.uint64(FTRACE_FL_REGS)
        owners = [op for op in others if op.trampoline]
        put(FTRACE_FL_TRAMP, (count == 2) & state.ops_on(ips, owners))
    records.flags[rows] = flags
    return bool((ftrace_test_record(flags, True) != Update.FTRACE_UPDATE_IGNORE).any())


def _rec_update_modify(state: FtraceState, ops: FtraceOps, *, inc: bool) -> None:
    """Count `ops` in or out, and every op that shares its hashes."""
    for op in sharing(state, ops):
        _hash_rec_update(state, op, inc=inc)


def sharing(state: FtraceState, ops: FtraceOps) -> list[FtraceOps]:
    """`ops` and the registered ops with the same pair of hashes."""
    others = [op for op in state.ops_list if op is not ops and op.func_hash is ops.func_hash]
    return [ops, *others]


# --- replacing a hash -----------------------------------------------------------------------------


def ftrace_hash_move_and_update_ops(
    state: FtraceState, ops: FtraceOps, hash: FtraceHash, *, enable: bool
) -> None:
    """Make `hash` the filter (`enable`) or notrace hash of `ops`, and patch if it is in use."""
    old = ops.func_hash.copy()
    _ftrace_hash_move(state, ops, hash, enable=enable)
    _ftrace_ops_update_code(state, ops, old.filter_hash, old.notrace_hash)


def _ftrace_hash_move(state: FtraceState, ops: FtraceOps, src: FtraceHash, *, enable: bool) -> None:
    if ops.flags & FTRACE_OPS_FL_IPMODIFY and not enable:
        raise TracefsError(errno.EINVAL, "an IPMODIFY op has no notrace hash")
    new = EMPTY_HASH if ftrace_hash_empty(src) else src
    if enable:
        ftrace_hash_ipmodify_update(state, ops, new)
    _rec_update_modify(state, ops, inc=False)
    if enable:
        ops.func_hash.filter_hash = new
    else:
        ops.func_hash.notrace_hash = new
    _rec_update_modify(state, ops, inc=True)
    for op in sharing(state, ops):
        op.write_guest()


def _ftrace_ops_update_code(
    state: FtraceState, ops: FtraceOps, old_filter: FtraceHash, old_notrace: FtraceHash
) -> None:
    """Patch for the op, or for a registered op that shares its hashes."""
    if not state.ftrace_enabled:
        return
    users = [op for op in sharing(state, ops) if op.flags & FTRACE_OPS_FL_ENABLED]
    if not users:
        return
    for op in users:
        op.old_hash.filter_hash, op.old_hash.notrace_hash = old_filter, old_notrace
    ftrace_run_modify_code(state, users, FTRACE_UPDATE_CALLS)


def ftrace_set_hash(
    state: FtraceState,
    ops: FtraceOps,
    ips: Ips | list[int],
    *,
    remove: bool = False,
    reset: bool = False,
    enable: bool = True,
) -> None:
    """Add sites to a hash of `ops`, take them out, or (`reset`) start afresh with them.

    Addresses may be those of functions. One without a site raises EINVAL, removing a site that is
    not in the hash ENOENT.
    """
    if state.ftrace_disabled:
        raise TracefsError(errno.ENODEV, "ftrace is disabled")
    now = ops.func_hash.filter_hash if enable else ops.func_hash.notrace_hash
    hash = EMPTY_HASH if reset else now
    sites = [ftrace_location(state, int(ip)) for ip in ips]
    if not all(sites):
        raise TracefsError(errno.EINVAL, "an address that is no call site")
    wanted = as_ips(sites)
    if remove:
        if not hash.contains(wanted).all():
            raise TracefsError(errno.ENOENT, "a site that is not in the hash")
        hash = hash.remove(wanted)
    else:
        hash = hash.add(wanted)
    ftrace_hash_move_and_update_ops(state, ops, hash, enable=enable)


def ftrace_set_filter_ips(
    state: FtraceState,
    ops: FtraceOps,
    ips: Ips | list[int],
    *,
    remove: bool = False,
    reset: bool = False,
) -> None:
    """`ftrace_set_hash` of the filter, before or after registration."""
    ftrace_set_hash(state, ops, ips, remove=remove, reset=reset)


def ftrace_set_filter(
    state: FtraceState,
    ops: FtraceOps,
    pattern: bytes | None,
    *,
    reset: bool = False,
    enable: bool = True,
) -> None:
    """Add the functions that a word means to the filter (`enable`) or notrace hash of `ops`.

    None adds nothing, which with `reset` leaves every function in. EINVAL when it means none.
    """
    if state.ftrace_disabled:
        raise TracefsError(errno.ENODEV, "ftrace is disabled")
    now = ops.func_hash.filter_hash if enable else ops.func_hash.notrace_hash
    hash = EMPTY_HASH if reset else now
    found = hash if pattern is None else match_records(state.records, hash, pattern)
    if found is None:
        raise TracefsError(errno.EINVAL, f"{pattern!r} names no function")
    ftrace_hash_move_and_update_ops(state, ops, found, enable=enable)


def ftrace_location(state: FtraceState, ip: int) -> int:
    """The call site at `ip`, or that of the function that begins at `ip`; 0 when there is none."""
    records = state.records
    site = records.ftrace_location_range(ip, ip)
    if not site:
        location = state.kallsyms.kallsyms_lookup(ip)
        if location is not None and not location.offset:
            site = records.ftrace_location_range(ip, ip + location.size - 1)
    return site


# --- IPMODIFY -------------------------------------------------------------------------------------


def ftrace_hash_ipmodify_enable(state: FtraceState, ops: FtraceOps) -> None:
    """Claim the functions of an op that is being registered; EBUSY when one is taken."""
    hash = ops.func_hash.filter_hash
    _update_ipmodify(state, ops, EMPTY_HASH, None if ftrace_hash_empty(hash) else hash)


def ftrace_hash_ipmodify_disable(state: FtraceState, ops: FtraceOps) -> None:
    """Give back the functions of an op that is being dropped."""
    hash = ops.func_hash.filter_hash
    if not ftrace_hash_empty(hash):
        _update_ipmodify(state, ops, hash, EMPTY_HASH)


def ftrace_hash_ipmodify_update(state: FtraceState, ops: FtraceOps, new: FtraceHash) -> None:
    """Claim and give back what differs between the op's filter and `new`."""
    old = ops.func_hash.filter_hash
    _update_ipmodify(
        state,
        ops,
        None if ftrace_hash_empty(old) else old,
        None if ftrace_hash_empty(new) else new,
    )


def ftrace_hash_ipmodify_ask(state: FtraceState, ops: FtraceOps) -> None:
    """Ask a direct op once more whether it shares its functions, before its target changes."""
    hash = ops.func_hash.filter_hash
    _update_ipmodify(state, ops, hash, hash, update_target=True)


def _update_ipmodify(
    state: FtraceState,
    ops: FtraceOps,
    old: FtraceHash | None,
    new: FtraceHash | None,
    *,
    update_target: bool = False,
) -> None:
    """__ftrace_hash_update_ipmodify: from `old` to `new`; None stands for every function."""
    is_ipmodify = bool(ops.flags & FTRACE_OPS_FL_IPMODIFY)
    if not ops.flags & FTRACE_OPS_FL_ENABLED:
        return
    if not is_ipmodify and not ops.flags & FTRACE_OPS_FL_DIRECT:
        return
    if old is None or new is None:
        raise TracefsError(errno.EINVAL, "an IPMODIFY or DIRECT op must name its functions")
    records = state.records
    usable = ~records.has(FTRACE_FL_DISABLED)
    in_old, in_new = old.contains(records.ip), new.contains(records.ip)
    added, removed = usable & in_new & ~in_old, usable & in_old & ~in_new
    asked = usable & in_new if update_target else added
    if (asked & records.has(FTRACE_FL_IPMODIFY)).any():
        if is_ipmodify:
            raise TracefsError(errno.EBUSY, "another op moves the instruction pointer there")
        command = OpsCommand.FTRACE_OPS_CMD_ENABLE_SHARE_IPMODIFY_SELF
        if ops.ops_func is None:
            raise TracefsError(errno.EBUSY, "the direct op cannot share with an IPMODIFY op")
        result = ops.ops_func(ops, command)
        if result:
            raise TracefsError(-result, "the direct op will not share with an IPMODIFY op")
    if is_ipmodify:
        records.flags[added] |= np.uint64(FTRACE_FL_IPMODIFY)
        records.flags[removed] &= ~np.uint64(FTRACE_FL_IPMODIFY)
