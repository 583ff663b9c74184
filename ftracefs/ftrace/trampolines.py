"""A trampoline of its own for each op (create_trampoline of arch/x86/kernel/ftrace.c).

    ftrace_caller … ftrace_caller_end      copied
    ret
    op pointer                             8-byte aligned, behind the code

In the copy the load of the op is pointed at that word and the call at the op's callback. A copy of
ftrace_regs_caller loses its jump to the direct-call path: an op alone on a function whose callback
asked for a direct call would not be called through a copy.
"""

from __future__ import annotations

import struct

import numpy as np

from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.text_poke import RET_INSN_OPCODE, text_gen_call
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_ALLOC_TRAMP,
    FTRACE_OPS_FL_RCU,
    FTRACE_OPS_FL_RECURSION,
    FTRACE_OPS_FL_SAVE_REGS,
    FtraceOps,
)
from ftracefs.ftrace.records import FTRACE_FL_REGS_EN
from ftracefs.ftrace.state import FtraceState

_LOAD_OP = bytes.fromhex("488b15")  # mov rdx, [rip + …]
_LOAD_OP_SIZE = 7
_JNZ_OPCODE = 0x75
_NOP2 = bytes.fromhex("6690")


def _template(state: FtraceState, save_regs: bool) -> tuple[int, int, int, int]:
    """Addresses of a template: start, load of the op, call, end."""
    prefix, call = (
        ("ftrace_regs_caller", "ftrace_regs_call")
        if save_regs
        else ("ftrace_caller", "ftrace_call")
    )
    labels = state.labels
    return labels[prefix], labels[f"{prefix}_op_ptr"], labels[call], labels[f"{prefix}_end"]


def calc_trampoline_call_offset(state: FtraceState, save_regs: bool) -> int:
    """Where in a trampoline its callback is called."""
    start, _, call, _ = _template(state, save_regs)
    return call - start


def ftrace_ops_get_func(state: FtraceState, ops: FtraceOps) -> int:
    """What a trampoline calls for `ops`: its callback, or the assistant that guards it."""
    if ops.flags & (FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_RCU):
        return state.labels["ftrace_ops_assist_func"]
    return ops.func


def create_trampoline(state: FtraceState, ops: FtraceOps) -> tuple[int, int]:
    """Copy and patch the template that suits `ops`; returns the trampoline's address and size."""
    save_regs = bool(ops.flags & FTRACE_OPS_FL_SAVE_REGS)
    start, op_load, call, end = _template(state, save_regs)
    code = bytearray(state.memory.read(start, end - start))
    load = op_load - start
    if code[load : load + 3] != _LOAD_OP:
        raise EmulatedKernelError("the trampoline template does not load its op where it should")
    code.append(RET_INSN_OPCODE)
    code += b"\xcc" * (-len(code) % 8)
    struct.pack_into("<i", code, load + 3, len(code) - (load + _LOAD_OP_SIZE))
    code += struct.pack("<Q", ops.address)

    address = state.trampoline_pages.alloc_tramp(len(code))
    site = np.array([address + call - start], dtype=np.uint64)
    code[call - start : call - start + 5] = text_gen_call(
        site, ftrace_ops_get_func(state, ops)
    ).tobytes()
    if save_regs:
        jump = state.labels["ftrace_regs_caller_jmp"] - start
        if code[jump] != _JNZ_OPCODE:
            raise EmulatedKernelError(
                "the trampoline template has no short jump to its direct path"
            )
        code[jump : jump + 2] = _NOP2
    state.text_poke.text_poke_copy(address, bytes(code))
    return address, len(code)


def arch_ftrace_update_trampoline(state: FtraceState, ops: FtraceOps) -> None:
    """Make the op's trampoline, or let the one it has call the op's present callback."""
    if not ops.trampoline:
        ops.trampoline, ops.trampoline_size = create_trampoline(state, ops)
        ops.flags |= FTRACE_OPS_FL_ALLOC_TRAMP
        return
    if not ops.flags & FTRACE_OPS_FL_ALLOC_TRAMP:
        return
    save_regs = bool(ops.flags & FTRACE_OPS_FL_SAVE_REGS)
    ip = ops.trampoline + calc_trampoline_call_offset(state, save_regs)
    site = np.array([ip], dtype=np.uint64)
    state.text_poke.text_poke_bp_batch(site, text_gen_call(site, ftrace_ops_get_func(state, ops)))


def arch_ftrace_trampoline_func(state: FtraceState, ops: FtraceOps | None, flags: int) -> int:
    """The callback that a site with these record flags ends in, read from text (0: unknown)."""
    if ops is not None and ops.flags & FTRACE_OPS_FL_ALLOC_TRAMP:
        save_regs = bool(ops.flags & FTRACE_OPS_FL_SAVE_REGS)
        return addr_from_call(state, ops.trampoline + calc_trampoline_call_offset(state, save_regs))
    if ops is not None and ops.trampoline:
        return 0
    which = "ftrace_regs_call" if flags & FTRACE_FL_REGS_EN else "ftrace_call"
    return addr_from_call(state, state.labels[which])
