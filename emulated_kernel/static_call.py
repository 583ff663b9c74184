"""Calls through a place in text instead of a pointer: arch/x86/kernel/static_call.c.

Whoever calls goes to a trampoline, which is one jump; changing where the calls lead is rewriting
that jump. Linux rewrites the callers themselves where its compiler lists them; here the trampoline
is the only form.
"""

from __future__ import annotations

import numpy as np

from emulated_kernel.text_poke import JMP32_INSN_OPCODE, TextPoke, text_gen_insn


def static_call_update(text_poke: TextPoke, tramp: int, func: int) -> None:
    """Let the calls through the trampoline at `tramp` lead to `func`."""
    site = np.array([tramp], dtype=np.uint64)
    new = text_gen_insn(JMP32_INSN_OPCODE, site, func)
    if (text_poke.read(site) != new).any():
        text_poke.text_poke_bp(tramp, new.tobytes())
