"""struct ftrace_ops: who wants to be called, from which functions, with what.

The part that guest code reads (callback, flags, hash tables) is a structure in guest memory whose
address is the op's identity there: it is what a callback gets as its third argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.ftrace.hashes import (
    EMPTY_HASH,
    FTRACE_HASH_FL_MOD,
    FtraceHash,
    FtraceOpsHash,
    ftrace_hash_empty,
    hash_table,
)

FTRACE_OPS_FL_ENABLED = 1 << 0
FTRACE_OPS_FL_DYNAMIC = 1 << 1
FTRACE_OPS_FL_SAVE_REGS = 1 << 2
FTRACE_OPS_FL_SAVE_REGS_IF_SUPPORTED = 1 << 3
FTRACE_OPS_FL_RECURSION = 1 << 4
FTRACE_OPS_FL_STUB = 1 << 5
FTRACE_OPS_FL_INITIALIZED = 1 << 6
FTRACE_OPS_FL_DELETED = 1 << 7
FTRACE_OPS_FL_ADDING = 1 << 8
FTRACE_OPS_FL_REMOVING = 1 << 9
FTRACE_OPS_FL_MODIFYING = 1 << 10
FTRACE_OPS_FL_ALLOC_TRAMP = 1 << 11
FTRACE_OPS_FL_IPMODIFY = 1 << 12
FTRACE_OPS_FL_PID = 1 << 13
FTRACE_OPS_FL_RCU = 1 << 14
FTRACE_OPS_FL_TRACE_ARRAY = 1 << 15
FTRACE_OPS_FL_PERMANENT = 1 << 16
FTRACE_OPS_FL_DIRECT = 1 << 17


class OpsCommand(Enum):
    """What `ops_func` is asked (enum ftrace_ops_cmd)."""

    FTRACE_OPS_CMD_ENABLE_SHARE_IPMODIFY_SELF = auto()
    FTRACE_OPS_CMD_ENABLE_SHARE_IPMODIFY_PEER = auto()
    FTRACE_OPS_CMD_DISABLE_SHARE_IPMODIFY_PEER = auto()


class GuestMemory(Protocol):
    """What the engine needs of the machine's memory."""

    def alloc(self, size: int, align: int = ...) -> int: ...
    def free(self, address: int) -> None: ...
    def write(self, address: int, data: bytes) -> None: ...
    def set_u64(self, address: int, value: int) -> None: ...
    def u64(self, address: int) -> int: ...


@dataclass(slots=True)
class FtraceModLoad:
    """A filter that waits for its module (struct ftrace_mod_load)."""

    func: bytes
    module: bytes


@dataclass(slots=True, eq=False)
class FtraceOps:
    """An op. `func` is the guest address of its callback; `private` is handed to it in the op.

    `trace_array` is the guest address of the trace array it traces for, whose lists of pids an op
    with FTRACE_OPS_FL_PID obeys. Linux has one pointer for both.
    Linux keeps `mod_trace` and `mod_notrace` in the trace_array that owns the op.
    """

    memory: GuestMemory
    func: int
    flags: int = 0
    private: int = 0
    trace_array: int = 0
    name: str = ""
    local_hash: FtraceOpsHash = field(default_factory=FtraceOpsHash)
    func_hash: FtraceOpsHash = field(init=False)
    old_hash: FtraceOpsHash = field(default_factory=FtraceOpsHash)
    saved_func: int = 0
    list_func: int = 0  # what the list function calls instead of `func`, which it leads to
    # In the place of which callback the list function writes, and how far its buffers are from the
    # CPUs' own words.
    list_buffer: tuple[int, int] = (0, CONSTANTS["NO_BUFFER"])
    trampoline: int = 0
    trampoline_size: int = 0
    inline_size: int = 0  # what stands in its trampoline in front of the copy of ftrace_caller
    ops_func: Callable[[FtraceOps, OpsCommand], int] | None = None
    direct_call: int = 0
    mod_trace: list[FtraceModLoad] = field(default_factory=list)
    mod_notrace: list[FtraceModLoad] = field(default_factory=list)
    func_repeats: int = 0  # the last call of each CPU, with the option func-no-repeats
    address: int = field(init=False)
    _written: tuple[FtraceHash | None, FtraceHash | None] = field(init=False, default=(None, None))
    _tables: dict[str, tuple[FtraceHash, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.func_hash = self.local_hash
        self.address = self.memory.alloc(CONSTANTS["OP_SIZE"], 64)
        self.flags |= FTRACE_OPS_FL_INITIALIZED
        self.write_guest()

    def write_guest(self) -> None:
        """Bring the structure in guest memory up to date."""
        memory, at = self.memory, self.address
        memory.set_u64(at + CONSTANTS["OP_FUNC"], self.func)
        called = self.list_func or self.func
        callback, buffer = self.list_buffer
        memory.set_u64(at + CONSTANTS["OP_LIST_FUNC"], called)
        where = buffer if called == callback else CONSTANTS["NO_BUFFER"]
        memory.set_u64(at + CONSTANTS["OP_LIST_BUFFER"], where)
        memory.set_u64(at + CONSTANTS["OP_FLAGS"], self.flags)
        memory.set_u64(at + CONSTANTS["OP_PRIVATE"], self.private)
        memory.set_u64(at + CONSTANTS["OP_TRACE_ARRAY"], self.trace_array)
        memory.set_u64(at + CONSTANTS["OP_SAVED_FUNC"], self.saved_func)
        memory.set_u64(at + CONSTANTS["OP_DIRECT_CALL"], self.direct_call)
        self._write_tables()

    def _write_tables(self) -> None:
        """The hashes as guest code asks them: with a filter it looks nowhere else."""
        filter_hash, notrace_hash = self.func_hash.filter_hash, self.func_hash.notrace_hash
        if self._written[0] is filter_hash and self._written[1] is notrace_hash:
            return
        if not ftrace_hash_empty(filter_hash) and not ftrace_hash_empty(notrace_hash):
            left = filter_hash.remove(notrace_hash.ips)
            self._write_table("FILTER", left.with_flags(FTRACE_HASH_FL_MOD))  # empty: nothing
            self._write_table("NOTRACE", EMPTY_HASH)
        else:
            self._write_table("FILTER", filter_hash)
            self._write_table("NOTRACE", notrace_hash)
        self._written = filter_hash, notrace_hash

    def _write_table(self, which: str, hash: FtraceHash) -> None:
        memory = self.memory
        held = self._tables.get(which)
        if held is not None and held[0] is hash:
            return
        table = mask = 0
        if not ftrace_hash_empty(hash):
            image = hash_table(hash)
            table = memory.alloc(image.nbytes, 64)
            memory.write(table, image.tobytes())
            mask = len(image) - 1
        # Guest code stands at a safepoint, and none lies inside a search: nobody sees half of this.
        memory.set_u64(self.address + CONSTANTS[f"OP_{which}_MASK"], mask)
        memory.set_u64(self.address + CONSTANTS[f"OP_{which}_TABLE"], table)
        if held is not None and held[1]:
            memory.free(held[1])
        self._tables[which] = (hash, table)

    def alloc_func_repeats(self, nr_cpus: int) -> None:
        """Make room to remember the last call of each CPU, once (handle_func_repeats)."""
        if not self.func_repeats:
            self.func_repeats = self.memory.alloc(nr_cpus * CONSTANTS["REPEATS_SIZE"], 64)
            self.memory.set_u64(self.address + CONSTANTS["OP_FUNC_REPEATS"], self.func_repeats)

    def free(self) -> None:
        """Give the guest memory back; the op must not be registered."""
        for _, table in self._tables.values():
            if table:
                self.memory.free(table)
        if self.func_repeats:
            self.memory.free(self.func_repeats)
        self.memory.free(self.address)
        self._tables.clear()


def reset_hash(ops: FtraceOps) -> None:
    """Filter everything in, nothing out; for an op that is not registered."""
    ops.func_hash.filter_hash = EMPTY_HASH
    ops.func_hash.notrace_hash = EMPTY_HASH
