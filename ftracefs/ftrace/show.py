"""Texts about records and ops: enabled_functions, touched_functions, dyn_ftrace_total_info."""

from __future__ import annotations

import numpy as np

from ftracefs.ftrace.hashes import hash_contains_ip
from ftracefs.ftrace.modify import ftrace_find_rec_direct
from ftracefs.ftrace.ops import FtraceOps
from ftracefs.ftrace.records import (
    FTRACE_FL_DIRECT,
    FTRACE_FL_ENABLED,
    FTRACE_FL_IPMODIFY,
    FTRACE_FL_REGS,
    FTRACE_FL_TOUCHED,
    FTRACE_FL_TRAMP_EN,
    FTRACE_REF_MAX,
)
from ftracefs.ftrace.state import FtraceState
from ftracefs.ftrace.trampolines import arch_ftrace_trampoline_func

_FLAGS = ((FTRACE_FL_REGS, " R"), (FTRACE_FL_IPMODIFY, " I"), (FTRACE_FL_DIRECT, " D"))


def enabled_functions(state: FtraceState) -> bytes:
    """The file of that name: each patched function, its users and where it calls."""
    return _show(state, FTRACE_FL_ENABLED)


def touched_functions(state: FtraceState) -> bytes:
    """Each function that was ever patched, as enabled_functions shows it."""
    return _show(state, FTRACE_FL_TOUCHED)


def forget_touched(state: FtraceState) -> None:
    """Only functions that are patched now count as touched."""
    idle = ~state.records.has(FTRACE_FL_ENABLED)
    state.records.flags[idle] &= ~np.uint64(FTRACE_FL_TOUCHED)


def _show(state: FtraceState, which: int) -> bytes:
    records = state.records
    rows = np.flatnonzero(records.has(which))
    ips = records.ip[rows]
    owners = [(op, hash_contains_ip(op.func_hash, ips)) for op in state.ops_list if op.trampoline]
    kinds: dict[tuple[int, tuple[FtraceOps, ...]], bytes] = {}
    lines = []
    all_flags = records.flags[rows].tolist()
    for number, name in enumerate(records.lines(rows)):
        flags = all_flags[number]
        users: tuple[FtraceOps, ...] = ()
        if flags & FTRACE_FL_TRAMP_EN:
            users = tuple(op for op, wanted in owners if wanted[number])
        key = (flags, users)
        tail = kinds.get(key)
        if tail is None:
            tail = kinds[key] = _t_show_enabled(state, flags, users).encode()
        lines.append(name + tail + _direct(state, flags, int(ips[number])).encode() + b"\n")
    return b"".join(lines)


def _t_show_enabled(state: FtraceState, flags: int, users: tuple[FtraceOps, ...]) -> str:
    """What t_show prints behind a function's name."""
    text = f" ({flags & FTRACE_REF_MAX})"
    text += "".join(letter if flags & bit else "  " for bit, letter in _FLAGS)
    if not flags & FTRACE_FL_TRAMP_EN:
        return text + _add_trampoline_func(state, None, flags)
    if not users:
        return text + "\ttramp: ERROR!"
    symbol = state.kallsyms.sprint_symbol
    for ops in users:
        text += f"\ttramp: {symbol(ops.trampoline)} ({symbol(ops.func)})"
        text += _add_trampoline_func(state, ops, flags)
    return text


def _add_trampoline_func(state: FtraceState, ops: FtraceOps | None, flags: int) -> str:
    func = arch_ftrace_trampoline_func(state, ops, flags)
    return f" ->{state.kallsyms.sprint_symbol(func)}" if func else ""


def _direct(state: FtraceState, flags: int, ip: int) -> str:
    if not flags & FTRACE_FL_DIRECT:
        return ""
    target = ftrace_find_rec_direct(state, ip)
    return f"\n\tdirect-->{state.kallsyms.sprint_symbol(target)}" if target else ""


def dyn_ftrace_total_info(state: FtraceState) -> bytes:
    """The file of that name: how many sites there are, and the pages Linux keeps them in."""
    return (
        f"{state.ftrace_update_tot_cnt} pages:{state.ftrace_number_of_pages} "
        f"groups: {state.ftrace_number_of_groups}\n"
    ).encode()
