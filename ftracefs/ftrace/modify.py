"""From flags to text: ftrace_modify_all_code and what it calls.

Models ftrace_modify_all_code, ftrace_check_record, ftrace_get_addr_new/_curr and ftrace_bug of
kernel/trace/ftrace.c, and ftrace_replace_code of arch/x86/kernel/ftrace.c, which verifies all sites
before it queues the first write. Records are handled as arrays, so __ftrace_replace_code and
ftrace_modify_call, which take them one at a time on other architectures, have no counterpart.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from emulated_kernel.text_poke import (
    CALL_INSN_SIZE,
    NOP5,
    Code,
    TextMismatch,
    same_code,
    text_gen_call,
)
from ftracefs.ftrace.hashes import Ips, hash_contains_ip
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_ADDING,
    FTRACE_OPS_FL_MODIFYING,
    FtraceOps,
)
from ftracefs.ftrace.records import (
    FTRACE_FL_DIRECT,
    FTRACE_FL_DIRECT_EN,
    FTRACE_FL_DISABLED,
    FTRACE_FL_ENABLED,
    FTRACE_FL_IPMODIFY,
    FTRACE_FL_MODIFIED,
    FTRACE_FL_REGS,
    FTRACE_FL_REGS_EN,
    FTRACE_FL_TOUCHED,
    FTRACE_FL_TRAMP,
    FTRACE_FL_TRAMP_EN,
    FTRACE_NOCLEAR_FLAGS,
    FTRACE_REF_MAX,
    Flags,
    Numbers,
)
from ftracefs.ftrace.state import FtraceState

# Commands of ftrace_run_update_code.
FTRACE_UPDATE_CALLS = 1 << 0
FTRACE_DISABLE_CALLS = 1 << 1
FTRACE_UPDATE_TRACE_FUNC = 1 << 2
FTRACE_START_FUNC_RET = 1 << 3
FTRACE_STOP_FUNC_RET = 1 << 4

Mask = npt.NDArray[np.bool_]


class Update(IntEnum):
    """What a record's flags ask for."""

    FTRACE_UPDATE_IGNORE = 0
    FTRACE_UPDATE_MAKE_CALL = 1
    FTRACE_UPDATE_MODIFY_CALL = 2
    FTRACE_UPDATE_MAKE_NOP = 3


_BUG_TYPES = {
    Update.FTRACE_UPDATE_MAKE_CALL: "Setting ftrace call site to call ftrace function",
    Update.FTRACE_UPDATE_MODIFY_CALL: (
        "Updating ftrace call site to call a different ftrace function"
    ),
    Update.FTRACE_UPDATE_MAKE_NOP: "Setting ftrace call site to NOP",
}
BUG_INIT = "Initializing ftrace call sites"


# --- records --------------------------------------------------------------------------------------


def skip_record(flags: Flags) -> Mask:
    """Records that are out of the game: disabled and not patched now."""
    skipped: Mask = (flags & np.uint64(FTRACE_FL_DISABLED | FTRACE_FL_ENABLED)) == np.uint64(
        FTRACE_FL_DISABLED
    )
    return skipped


def ftrace_check_record(flags: Flags, enable: bool) -> tuple[npt.NDArray[np.int8], Flags]:
    """For each record what is to be done with its site, and its flags once that is done."""

    def has(bits: int) -> Mask:
        found: Mask = (flags & np.uint64(bits)) != 0
        return found

    def with_bit(values: Flags, bit: int, where: Mask) -> Flags:
        return np.where(where, values | np.uint64(bit), values & ~np.uint64(bit))

    count = flags & np.uint64(FTRACE_REF_MAX)
    enabled = has(FTRACE_FL_ENABLED)
    used = (count > 0) & bool(enable)
    direct = has(FTRACE_FL_DIRECT) & (count == 1)
    # A site that keeps being called is looked at again when a flag differs from what is in effect.
    # A direct call is made straight from the site only by its sole user.
    changed = has(FTRACE_FL_REGS) != has(FTRACE_FL_REGS_EN)
    changed |= has(FTRACE_FL_TRAMP) != has(FTRACE_FL_TRAMP_EN)
    changed |= direct != has(FTRACE_FL_DIRECT_EN)

    actions = np.zeros(len(flags), dtype=np.int8)
    actions[used & enabled & changed] = Update.FTRACE_UPDATE_MODIFY_CALL
    actions[used & ~enabled] = Update.FTRACE_UPDATE_MAKE_CALL
    actions[~used & enabled] = Update.FTRACE_UPDATE_MAKE_NOP
    actions[skip_record(flags)] = Update.FTRACE_UPDATE_IGNORE

    on = flags | np.uint64(FTRACE_FL_ENABLED | FTRACE_FL_TOUCHED)
    on = with_bit(on, FTRACE_FL_REGS_EN, has(FTRACE_FL_REGS))
    on = with_bit(on, FTRACE_FL_TRAMP_EN, has(FTRACE_FL_TRAMP))
    on = with_bit(on, FTRACE_FL_DIRECT_EN, direct)
    on = np.where(
        has(FTRACE_FL_DIRECT | FTRACE_FL_IPMODIFY), on | np.uint64(FTRACE_FL_MODIFIED), on
    )
    in_effect = FTRACE_FL_ENABLED | FTRACE_FL_TRAMP_EN | FTRACE_FL_REGS_EN | FTRACE_FL_DIRECT_EN
    off = np.where(
        count == 0, flags & np.uint64(FTRACE_NOCLEAR_FLAGS), flags & ~np.uint64(in_effect)
    )
    after = np.where(actions == Update.FTRACE_UPDATE_MAKE_NOP, off, on)
    return actions, np.where(actions == Update.FTRACE_UPDATE_IGNORE, flags, after)


def ftrace_test_record(flags: Flags, enable: bool) -> npt.NDArray[np.int8]:
    """What is to be done with each record's site."""
    return ftrace_check_record(flags, enable)[0]


# --- where a site calls ---------------------------------------------------------------------------


def ftrace_find_rec_direct(state: FtraceState, ip: int) -> int:
    """The target of the direct call at `ip`, or 0."""
    return state.direct_functions.get(ip, 0)


def _targets(state: FtraceState, rows: Numbers, *, new: bool) -> Ips:
    """ftrace_get_addr_new or _curr of each row."""
    records = state.records
    ips, flags = records.ip[rows], records.flags[rows]
    regs, tramp, direct = (
        (FTRACE_FL_REGS, FTRACE_FL_TRAMP, FTRACE_FL_DIRECT)
        if new
        else (FTRACE_FL_REGS_EN, FTRACE_FL_TRAMP_EN, FTRACE_FL_DIRECT_EN)
    )
    targets = np.where(
        (flags & np.uint64(regs)) != 0,
        np.uint64(state.ftrace_regs_addr),
        np.uint64(state.ftrace_addr),
    )
    is_direct = (flags & np.uint64(direct)) != 0
    if new:
        is_direct &= (flags & np.uint64(FTRACE_REF_MAX)) == 1
    missing = (flags & np.uint64(tramp)) != 0
    for ops, wanted in _trampoline_owners(state, ips, new=new):
        found = missing & wanted
        targets[found] = ops.trampoline
        missing &= ~wanted
    for number in np.flatnonzero(is_direct).tolist():
        # 0: the site came into the filter of a direct op that was registered already.
        targets[number] = ftrace_find_rec_direct(state, int(ips[number])) or targets[number]
    lost = np.flatnonzero(missing & ~is_direct)
    if len(lost):
        ip = int(ips[lost[0]])
        state.report_bug(f"Bad trampoline accounting at: {state.kallsyms.sprint_symbol(ip)}")
    return targets


def _trampoline_owners(state: FtraceState, ips: Ips, *, new: bool) -> list[tuple[FtraceOps, Mask]]:
    """Ops with a trampoline in the order they are asked, and which of `ips` each of them owns."""
    if new:  # ftrace_find_tramp_ops_new
        return [(op, hash_contains_ip(op.func_hash, ips)) for op in state.ops_list if op.trampoline]
    # ftrace_find_tramp_ops_curr: an op that is being removed or modified owns what it had, one that
    # is being added has nothing yet.
    owners = []
    if state.removed_ops is not None:
        owners.append((state.removed_ops, hash_contains_ip(state.removed_ops.old_hash, ips)))
    for op in state.ops_list:
        if op.trampoline and not op.flags & FTRACE_OPS_FL_ADDING:
            hash = op.old_hash if op.flags & FTRACE_OPS_FL_MODIFYING else op.func_hash
            owners.append((op, hash_contains_ip(hash, ips)))
    return owners


def ftrace_get_addr_new(state: FtraceState, rows: Numbers) -> Ips:
    """What each site is to call: a direct target, its only op's trampoline, or ftrace_caller."""
    return _targets(state, rows, new=True)


def ftrace_get_addr_curr(state: FtraceState, rows: Numbers) -> Ips:
    """What each site calls now."""
    return _targets(state, rows, new=False)


# --- text -----------------------------------------------------------------------------------------


def ftrace_nop_replace(count: int) -> Code:
    """The instruction of an untraced site, `count` times."""
    return same_code(NOP5, count)


def ftrace_replace_code(state: FtraceState, enable: bool) -> None:
    """Bring every site in line with its record; nothing is written if one is not as expected."""
    records = state.records
    if state.ftrace_disabled:
        return
    all_actions, all_flags = ftrace_check_record(records.flags, enable)
    rows = np.flatnonzero(all_actions)
    if not len(rows):
        return
    ips, actions = records.ip[rows], all_actions[rows]
    was_nop = actions == Update.FTRACE_UPDATE_MAKE_CALL
    old = ftrace_nop_replace(len(rows))
    old[~was_nop] = text_gen_call(ips[~was_nop], ftrace_get_addr_curr(state, rows[~was_nop]))
    try:
        state.text_poke.verify(ips, old)
    except TextMismatch as mismatch:
        action = Update(int(actions[mismatch.row]))
        ftrace_bug(state, mismatch, _BUG_TYPES[action], int(rows[mismatch.row]))
        return
    gets_call = actions != Update.FTRACE_UPDATE_MAKE_NOP
    new = ftrace_nop_replace(len(rows))
    new[gets_call] = text_gen_call(ips[gets_call], ftrace_get_addr_new(state, rows[gets_call]))
    if state.ftrace_disabled:
        return
    records.flags[rows] = all_flags[rows]
    state.text_poke.text_poke_bp_batch(ips, new)


def ftrace_make_nop(state: FtraceState, rows: Numbers, address: int) -> None:
    """Turn `call address` into a nop at sites that have never run; ftrace_bug if one differs."""
    ips = state.records.ip[rows]
    _modify_code_direct(state, rows, text_gen_call(ips, address), ftrace_nop_replace(len(ips)))


def ftrace_expect_nop(state: FtraceState, rows: Numbers) -> None:
    """See that sites are nops, whoever made them; ftrace_bug if one is not."""
    nops = ftrace_nop_replace(len(rows))
    _modify_code_direct(state, rows, nops, nops)


def ftrace_make_call(state: FtraceState, rows: Numbers, targets: Ips) -> None:
    """Turn nops into calls at sites that have never run (a module that is being loaded)."""
    ips = state.records.ip[rows]
    _modify_code_direct(state, rows, ftrace_nop_replace(len(ips)), text_gen_call(ips, targets))


def _modify_code_direct(state: FtraceState, rows: Numbers, old: Code, new: Code) -> None:
    try:
        state.text_poke.text_poke_early(state.records.ip[rows], old, new)
    except TextMismatch as mismatch:
        ftrace_bug(state, mismatch, BUG_INIT, int(rows[mismatch.row]))


def ftrace_bug(state: FtraceState, mismatch: TextMismatch, what: str, row: int) -> None:
    """Report a site that does not hold what it should, and switch ftrace off."""
    flags = int(state.records.flags[row])
    symbol = state.kallsyms.sprint_symbol
    tramps = "".join(
        f"\ttramp: {symbol(op.trampoline)} ({symbol(op.func)})" for op in _tramp_ops_any(state, row)
    )
    if not flags & FTRACE_FL_TRAMP_EN:
        tramps = ""
    elif not tramps:
        tramps = "\ttramp: ERROR!"
    expected = int(ftrace_get_addr_curr(state, np.array([row]))[0])
    state.report_bug(
        "------------[ ftrace bug ]------------\n"
        f"ftrace failed to modify [<{mismatch.address:016x}>] {symbol(mismatch.address)}\n"
        f" actual:   {mismatch.actual.hex(':')}\n"
        f" expected: {mismatch.expected.hex(':')}\n"
        f"{what}\n"
        f"ftrace record flags: {flags:x}\n"
        f" ({flags & FTRACE_REF_MAX}){' R' if flags & FTRACE_FL_REGS else '  '}{tramps}\n"
        f" expected tramp: {expected:x}"
    )


def _tramp_ops_any(state: FtraceState, row: int) -> list[FtraceOps]:
    """ftrace_find_tramp_ops_any and _next: registered ops with a trampoline that want the site."""
    ips = state.records.ip[row : row + 1]
    return [op for op in state.ops_list if op.trampoline and state.ops_on(ips, [op]).any()]


def update_ftrace_func(state: FtraceState, func: int) -> None:
    """Let the uncopied ftrace_caller and ftrace_regs_caller call `func`."""
    if func == state.called_function:
        return
    state.called_function = func
    sites = np.array([state.labels["ftrace_call"], state.labels["ftrace_regs_call"]], np.uint64)
    state.text_poke.text_poke_bp_batch(sites, text_gen_call(sites, func))


def ftrace_modify_all_code(state: FtraceState, command: int) -> None:
    """Patch what `command` names, in an order that never lets a wrong callback be called.

    While sites change hands ftrace_caller calls the list function, which asks each op's hashes;
    a callback that would be called directly comes last.
    """
    update = command & FTRACE_UPDATE_TRACE_FUNC
    if update:
        update_ftrace_func(state, state.ftrace_ops_list_func)
    if command & FTRACE_UPDATE_CALLS:
        ftrace_replace_code(state, True)
    elif command & FTRACE_DISABLE_CALLS:
        ftrace_replace_code(state, False)
    if update and state.ftrace_trace_function != state.ftrace_ops_list_func:
        state.memory.set_u64(state.labels["function_trace_op"], state.set_function_trace_op)
        state.text_poke.between_phases()  # ftrace_sync_ipi
        update_ftrace_func(state, state.ftrace_trace_function)


def ftrace_run_update_code(state: FtraceState, command: int) -> None:
    """arch_ftrace_update_code: x86 patches live, and TextPoke's method decides how."""
    ftrace_modify_all_code(state, command)


def ftrace_run_modify_code(state: FtraceState, users: list[FtraceOps], command: int) -> None:
    """Patch for ops whose hashes changed; their `old_hash` holds what they were."""
    for ops in users:
        ops.flags |= FTRACE_OPS_FL_MODIFYING
    try:
        ftrace_run_update_code(state, command)
    finally:
        for ops in users:
            ops.flags &= ~FTRACE_OPS_FL_MODIFYING


def addr_from_call(state: FtraceState, ip: int) -> int:
    """Where the call instruction at `ip` goes (0: there is none), read from text."""
    code = state.memory.read(ip, CALL_INSN_SIZE)
    if code[0] != 0xE8:
        return 0
    distance = int.from_bytes(code[1:], "little", signed=True)
    return (ip + CALL_INSN_SIZE + distance) & 0xFFFFFFFFFFFFFFFF
