"""A function of the kernel whose entry leads to guest code of ours, which may go on in it.

For functions without a call site: the first instructions, at least as many bytes as a jump has, are
copied, and a jump takes their place. The copy goes on behind them. Like an optimized kprobe
(arch/x86/kernel/kprobes/opt.c) it can be had where those instructions neither branch nor depend on
where they stand; no task stands between two of them, since the guest is stopped where a block
begins.
"""

from __future__ import annotations

import numpy as np

from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.text_poke import CALL_INSN_SIZE, JMP32_INSN_OPCODE, text_gen_insn
from ftracefs.ftrace.state import FtraceState

_LONGEST = 16
_BRANCHES = ("call", "jmp", "ret", "int", "syscall")


class Detour:
    """From `function` to `target`. `rest` is a word, in which `target` finds where to go on."""

    def __init__(self, state: FtraceState, function: int, target: int, rest: int) -> None:
        self._text_poke = state.text_poke
        self._function = function
        code = state.memory.read(function, CALL_INSN_SIZE - 1 + _LONGEST)
        size = _whole_instructions(code, function)
        self._before = code[:CALL_INSN_SIZE]
        self._jump = _jump(function, target)
        self._copy = state.trampoline_pages.alloc_tramp(size + CALL_INSN_SIZE)
        back = _jump(self._copy + size, function + size)
        state.text_poke.text_poke_copy(self._copy, code[:size] + back)
        state.memory.set_u64(rest, self._copy)
        self.is_set = False

    def set(self, on: bool) -> None:
        """Put the jump there, or take it away."""
        if on == self.is_set:
            return
        new, old = (self._jump, self._before) if on else (self._before, self._jump)
        # Who meets an INT3 while the instructions come back runs the copy.
        effect = self._jump if on else _jump(self._function, self._copy)
        self._text_poke.text_poke_bp(self._function, new, old, effect)
        self.is_set = on


def _jump(site: int, target: int) -> bytes:
    return text_gen_insn(JMP32_INSN_OPCODE, np.array([site], dtype=np.uint64), target).tobytes()


def _whole_instructions(code: bytes, address: int) -> int:
    """The bytes of the first instructions that a jump lies in."""
    import capstone  # takes as long as a tenth of a start, and most mounts never need it

    size = 0
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    for _, length, mnemonic, operands in engine.disasm_lite(code, address):
        if size >= CALL_INSN_SIZE:
            return size
        if mnemonic.startswith(("j", *_BRANCHES)) or "rip" in operands:
            break
        size += length
    raise EmulatedKernelError(f"no room for a jump at {address:#x}")
