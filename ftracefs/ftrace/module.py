"""Modules come and go: ftrace_module_init, ftrace_module_enable, ftrace_release_mod.

load:    ftrace_module_init → ftrace_process_locs        records, nops
         ftrace_module_enable                            sites of ops that are registered already
           → process_cached_mods                         filters that waited for this module
unload:  ftrace_release_mod → clear_mod_from_hash        records and hash entries go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from emulated_kernel.kallsyms import Symbol
from ftracefs.ftrace.hash_update import ftrace_hash_move_and_update_ops, update_rows
from ftracefs.ftrace.hashes import (
    FTRACE_HASH_FL_MOD,
    FtraceHash,
    Ips,
    as_ips,
    ftrace_hash_empty,
    hash_contains_ip,
)
from ftracefs.ftrace.init import ftrace_free_pages, ftrace_process_locs
from ftracefs.ftrace.match import match_records
from ftracefs.ftrace.modify import (
    ftrace_check_record,
    ftrace_get_addr_new,
    ftrace_make_call,
    skip_record,
)
from ftracefs.ftrace.ops import FtraceOps
from ftracefs.ftrace.records import RecordGroup
from ftracefs.ftrace.state import FtraceState


class TracedModule(Protocol):
    """What the core needs of a module whose code is in RAM and has not run."""

    @property
    def name(self) -> str: ...
    @property
    def symbols(self) -> Sequence[Symbol]: ...
    @property
    def mcount(self) -> Sequence[int]: ...


def ftrace_module_load(state: FtraceState, module: TracedModule) -> None:
    """Take over the call sites of a module that is being loaded."""
    state.kallsyms.add(module.name, module.symbols, module=module.name)
    group = ftrace_process_locs(state, module.name, module.mcount)
    ftrace_module_enable(state, group)


def ftrace_module_enable(state: FtraceState, group: RecordGroup) -> None:
    """Let the new sites call what is registered already, then apply the filters that waited."""
    if state.ftrace_disabled:
        return
    records = state.records
    rows = np.arange(group.start, group.end)
    rows = rows[~skip_record(records.flags[rows])]
    if state.ftrace_start_up:
        for ops in reversed(state.ops_list):  # referenced_filters
            wanted = hash_contains_ip(ops.func_hash, records.ip[rows])
            update_rows(state, ops, rows[wanted], inc=True)
        if state.ftrace_enabled:
            actions, flags = ftrace_check_record(records.flags[rows], True)
            called = rows[actions != 0]
            targets = ftrace_get_addr_new(state, called)
            records.flags[rows] = flags
            ftrace_make_call(state, called, targets)
    if group.module is not None:
        process_cached_mods(state, group.module)


def process_cached_mods(state: FtraceState, module: str) -> None:
    """Apply the filters that waited for `module`."""
    for ops in state.filtered_ops:
        for enable in (True, False):
            _process_mod_list(state, ops, module.encode(), enable=enable)


def _process_mod_list(state: FtraceState, ops: FtraceOps, module: bytes, *, enable: bool) -> None:
    mod_list = ops.mod_trace if enable else ops.mod_notrace
    waited = [m for m in mod_list if m.module == module]
    if not waited:
        return
    mod_list[:] = [m for m in mod_list if m.module != module]
    hash = ops.func_hash.filter_hash if enable else ops.func_hash.notrace_hash
    for mod in waited:
        found = match_records(state.records, hash, mod.func, module)
        hash = hash if found is None else found
    if enable and not mod_list:
        hash = hash.with_flags(hash.flags & ~FTRACE_HASH_FL_MOD)
    ftrace_hash_move_and_update_ops(state, ops, hash, enable=enable)


def ftrace_release_mod(state: FtraceState, module: str) -> None:
    """Forget a module that is being unloaded; its text is gone with it."""
    ips = state.records.remove(module)
    state.kallsyms.remove(module)
    ftrace_free_pages(state, len(ips))
    state.ftrace_update_tot_cnt -= len(ips)
    for ops in {id(op): op for op in [*state.filtered_ops, *state.ops_list]}.values():
        pair = ops.func_hash
        pair.filter_hash = clear_mod_from_hash(pair.filter_hash, ips)
        pair.notrace_hash = clear_mod_from_hash(pair.notrace_hash, ips)
        ops.write_guest()


def clear_mod_from_hash(hash: FtraceHash, ips: Ips) -> FtraceHash:
    """`hash` without `ips`, but not empty where it was not: that would mean every function.

    An entry for address 0 stays in their place, as in Linux.
    """
    if ftrace_hash_empty(hash) or not hash.contains(ips).any():
        return hash
    return hash.remove(ips).add(as_ips([0]))
