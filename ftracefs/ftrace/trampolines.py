"""A trampoline of its own for each op (create_trampoline of arch/x86/kernel/ftrace.c).

    ftrace_caller … ftrace_caller_end      copied
    ret
    op pointer                             8-byte aligned, behind the code

In the copy the load of the op is pointed at that word and the call at the op's callback. A copy of
ftrace_regs_caller loses its jump to the direct-call path: an op alone on a function whose callback
asked for a direct call would not be called through a copy.

Linux has nothing but that. Here an op whose callback is one of INLINED gets more: that callback in
line, in front of the copy of ftrace_caller, which then is only gone to while the op has another
callback. The first instruction is a static branch that says which. Where gs is the engine's,
constants of the copy tell how far the words of the op's buffer are from the CPU's own, which is the
same on all CPUs.
"""

from __future__ import annotations

import struct

import numpy as np

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.text_poke import (
    CALL_INSN_SIZE,
    JMP32_INSN_OPCODE,
    NOP5,
    RET_INSN_OPCODE,
    Addresses,
    Code,
    same_code,
    text_gen_call,
    text_gen_insn,
)
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_ALLOC_TRAMP,
    FTRACE_OPS_FL_ENABLED,
    FTRACE_OPS_FL_RCU,
    FTRACE_OPS_FL_RECURSION,
    FTRACE_OPS_FL_SAVE_REGS,
    FtraceOps,
)
from ftracefs.ftrace.rcu_tasks import ftrace_trampoline_free, reap_trampolines
from ftracefs.ftrace.records import FTRACE_FL_REGS_EN
from ftracefs.ftrace.state import FtraceState

_LOAD_OP = bytes.fromhex("488b15")  # mov rdx, [rip + …]
_LOAD_OP_SIZE = 7
_LOAD_BUFFERS = bytes.fromhex("49ba")  # movabs r10, …
_OPS_WORDS = CONSTANTS["OPS_WORDS"].to_bytes(4, "little")[1:]  # of which the last byte is free
_JNZ_OPCODE = 0x75
_NOP2 = bytes.fromhex("6690")

# Callbacks, and the code that stands in a trampoline for each.
INLINED = {
    "function_trace_call": "ftrace_function_caller",
    "ftrace_graph_func": "ftrace_graph_caller",
}


def _template(state: FtraceState, save_regs: bool) -> tuple[int, int, int, int]:
    """Addresses of a template: start, load of the op, call, end."""
    prefix, call = (
        ("ftrace_regs_caller", "ftrace_regs_call")
        if save_regs
        else ("ftrace_caller", "ftrace_call")
    )
    labels = state.labels
    return labels[prefix], labels[f"{prefix}_op_ptr"], labels[call], labels[f"{prefix}_end"]


def calc_trampoline_call_offset(state: FtraceState, ops: FtraceOps) -> int:
    """Where in the trampoline of `ops` its callback is called."""
    start, _, call, _ = _template(state, bool(ops.flags & FTRACE_OPS_FL_SAVE_REGS))
    return ops.inline_size + call - start


def ftrace_ops_get_func(state: FtraceState, ops: FtraceOps) -> int:
    """What a trampoline calls for `ops`: its callback, or the assistant that guards it."""
    if ops.flags & (FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_RCU):
        return state.labels["ftrace_ops_assist_func"]
    return ops.func


def inline_template(state: FtraceState, ops: FtraceOps) -> str | None:
    """The code that does in line what the callback of `ops` does, if there is such."""
    if not state.inline_callbacks or ops.flags & FTRACE_OPS_FL_SAVE_REGS:
        return None
    func = ftrace_ops_get_func(state, ops)
    return next(
        (name for callback, name in INLINED.items() if state.labels[callback] == func), None
    )


def _inline_code(state: FtraceState, ops: FtraceOps) -> tuple[bytearray, int | None]:
    """What goes in front of a copy of ftrace_caller, and where in it rb_reserve_rare is called."""
    name = inline_template(state, ops)
    if name is None:
        return bytearray(), None
    start, rare, end = (state.labels[name + part] for part in ("", "_rare", "_end"))
    code = bytearray(state.memory.read(start, end - start))
    if buffers := state.labels.get(f"{name}_buffers"):
        load = buffers - start
        if code[load : load + 2] != _LOAD_BUFFERS:
            raise EmulatedKernelError(f"{name} does not load its buffers where it should")
        struct.pack_into("<Q", code, load + 2, state.memory.u64(ops.private))
    elif _OPS_WORDS in code:
        _point_at_words(code, buffer_distance(state, ops))
    return code, rare - start


def buffer_distance(state: FtraceState, ops: FtraceOps) -> int:
    """How far the buffer of `ops`, an op of the function tracer, is from the words of its CPU."""
    return state.memory.u64(ops.private) - state.machine.cpus[0].percpu


def _point_at_words(code: bytearray, distance: int) -> None:
    """Put where a buffer's words are, as seen from the CPU's own, in the place of OPS_WORDS."""
    at = code.find(_OPS_WORDS)
    while at >= 0:
        word = code[at - 1]  # which of them: the last byte of OPS_WORDS is zero
        struct.pack_into("<i", code, at - 1, distance + word)
        at = code.find(_OPS_WORDS, at)


def create_trampoline(state: FtraceState, ops: FtraceOps) -> tuple[int, int, int]:
    """Copy and patch the templates that suit `ops`.

    Returns the trampoline's address, its size, and how much of that is in front of the frame.
    """
    save_regs = bool(ops.flags & FTRACE_OPS_FL_SAVE_REGS)
    start, op_load, call, end = _template(state, save_regs)
    code, rare = _inline_code(state, ops)
    inline_size = len(code)
    load = inline_size + op_load - start
    code += state.memory.read(start, end - start)
    if code[load : load + 3] != _LOAD_OP:
        raise EmulatedKernelError("the trampoline template does not load its op where it should")
    code.append(RET_INSN_OPCODE)
    code += b"\xcc" * (-len(code) % 8)
    struct.pack_into("<i", code, load + 3, len(code) - (load + _LOAD_OP_SIZE))
    code += struct.pack("<Q", ops.address)

    address = state.trampoline_pages.alloc_tramp(len(code))

    def call_to(at: int, target: int) -> None:
        code[at : at + CALL_INSN_SIZE] = text_gen_call(_site(address + at), target).tobytes()

    call_to(inline_size + call - start, ftrace_ops_get_func(state, ops))
    if rare is not None:
        call_to(rare, state.labels["rb_reserve_rare"])
    if save_regs:
        jump = state.labels["ftrace_regs_caller_jmp"] - start
        if code[jump] != _JNZ_OPCODE:
            raise EmulatedKernelError(
                "the trampoline template has no short jump to its direct path"
            )
        code[jump : jump + 2] = _NOP2
    state.text_poke.text_poke_copy(address, bytes(code))
    return address, len(code), inline_size


def arch_ftrace_update_trampoline(state: FtraceState, ops: FtraceOps) -> None:
    """Make the op's trampoline, or let the one it has call the op's present callback.

    Code in line is made for the op as it is, so one that no site calls yet gets a new trampoline.
    """
    inlined = inline_template(state, ops) is not None
    allocated = ops.flags & FTRACE_OPS_FL_ALLOC_TRAMP
    if allocated and not ops.flags & FTRACE_OPS_FL_ENABLED and (inlined or ops.inline_size):
        ftrace_trampoline_free(state, ops)
        reap_trampolines(state)
    if not ops.trampoline:
        ops.trampoline, ops.trampoline_size, ops.inline_size = create_trampoline(state, ops)
        ops.flags |= FTRACE_OPS_FL_ALLOC_TRAMP
        return
    if not allocated:
        return
    site = _site(ops.trampoline + calc_trampoline_call_offset(state, ops))
    state.text_poke.text_poke_bp_batch(site, text_gen_call(site, ftrace_ops_get_func(state, ops)))
    if ops.inline_size:
        # The call in the frame is right already, whichever way this is passed meanwhile.
        branch = _site(ops.trampoline)
        state.text_poke.text_poke_bp_batch(branch, _static_branch(ops, branch, inlined))


def _site(address: int) -> Addresses:
    return np.array([address], dtype=np.uint64)


def _static_branch(ops: FtraceOps, site: Addresses, inlined: bool) -> Code:
    if inlined:
        return same_code(NOP5, 1)
    return text_gen_insn(JMP32_INSN_OPCODE, site, ops.trampoline + ops.inline_size)


def arch_ftrace_trampoline_func(state: FtraceState, ops: FtraceOps | None, flags: int) -> int:
    """The callback that a site with these record flags ends in, read from text (0: unknown)."""
    if ops is not None and ops.flags & FTRACE_OPS_FL_ALLOC_TRAMP:
        return addr_from_call(state, ops.trampoline + calc_trampoline_call_offset(state, ops))
    if ops is not None and ops.trampoline:
        return 0
    which = "ftrace_regs_call" if flags & FTRACE_FL_REGS_EN else "ftrace_call"
    return addr_from_call(state, state.labels[which])
