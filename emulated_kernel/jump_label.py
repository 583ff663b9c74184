"""Code that runs only while a static key is on: kernel/jump_label.c, arch/x86/kernel/jump_label.c.

A place in the kernel's text that asks for a key holds no test but five bytes, which are rewritten
when the key changes:

    0f 1f 44 00 00      nop                 the key is off
    e9 .. .. .. ..      jmp l_yes           the key is on

`__jump_table` lists these places with their targets and keys. Left out: keys that are on from the
beginning, and the two-byte form of the jump.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emulated_kernel.distinct import distinct
from emulated_kernel.image import KernelImage
from emulated_kernel.machine import EmulatedMachine
from emulated_kernel.text_poke import (
    JMP32_INSN_OPCODE,
    NOP5,
    Addresses,
    TextPoke,
    same_code,
    text_gen_insn,
)

JUMP_TABLE_SECTION = "__jump_table"
# struct jump_entry: each member is the distance from itself to what is meant.
_JUMP_ENTRY = np.dtype([("code", "<i4"), ("target", "<i4"), ("key", "<i8")])


@dataclass(frozen=True, slots=True)
class _Branches:
    """The branches of one key: where they are and where they lead."""

    code: Addresses
    target: Addresses


def _jump_table(address: int, data: bytes) -> Mapping[int, _Branches]:
    """The branches of a section that stands at `address`, by key."""
    entries = np.frombuffer(data, dtype=_JUMP_ENTRY)
    at = np.uint64(address) + np.arange(len(entries), dtype=np.uint64) * np.uint64(
        _JUMP_ENTRY.itemsize
    )

    def absolute(member: str) -> npt.NDArray[np.uint64]:
        fields = _JUMP_ENTRY.fields
        assert fields is not None
        offset = np.uint64(fields[member][1])
        return at + offset + entries[member].astype(np.int64).view(np.uint64)

    code, target, key = absolute("code"), absolute("target"), absolute("key")
    return {int(each): _Branches(code[key == each], target[key == each]) for each in distinct(key)}


class JumpLabels:
    """The static keys of a kernel. For the machine thread.

    A key is the address of a `struct static_key`; whether it is on is told by its first word.
    """

    def __init__(self, machine: EmulatedMachine, image: KernelImage, text_poke: TextPoke) -> None:
        self._memory = machine.memory
        self._text_poke = text_poke
        section = image.segments.get(JUMP_TABLE_SECTION)
        self._branches = _jump_table(*section) if section is not None else {}

    def sites(self, key: int) -> list[int]:
        """The addresses that change with a key."""
        branches = self._branches.get(key)
        return [] if branches is None else branches.code.tolist()

    def static_key_enabled(self, key: int) -> bool:
        return self._memory.u32(key) != 0

    def static_key_enable(self, key: int) -> None:
        """Let the code behind `key` run; nothing happens if it does already."""
        self._set(key, True)

    def static_key_disable(self, key: int) -> None:
        """Undo `static_key_enable`."""
        self._set(key, False)

    def _set(self, key: int, on: bool) -> None:
        if self.static_key_enabled(key) != on:
            self._jump_label_update(key, on)
            self._memory.set_u32(key, int(on))

    def _jump_label_update(self, key: int, on: bool) -> None:
        """arch_jump_label_transform of every branch, all in one batch."""
        branches = self._branches.get(key)
        if branches is None:
            return
        nop = same_code(NOP5, len(branches.code))
        jump = text_gen_insn(JMP32_INSN_OPCODE, branches.code, branches.target)
        new, old = (jump, nop) if on else (nop, jump)
        self._text_poke.text_poke_bp_batch(branches.code, new, old)
