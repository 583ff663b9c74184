"""Calls that are rewritten instead of reading a pointer: kernel/static_call_inline.c,
arch/x86/kernel/static_call.c.

A caller that may not be listed goes to a trampoline, which is one jump; changing where it leads is
rewriting that jump. Callers that are listed in `__static_call_sites` are rewritten themselves, and
hold a nop while there is nothing to call:

    0f 1f 44 00 00      nop
    e8 .. .. .. ..      call func

Left out: trampolines for what is listed, and the tail calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from emulated_kernel.distinct import distinct
from emulated_kernel.text_poke import (
    JMP32_INSN_OPCODE,
    NOP5,
    Addresses,
    Code,
    TextPoke,
    same_code,
    text_gen_call,
    text_gen_insn,
)

STATIC_CALL_SITES_SECTION = "__static_call_sites"
# struct static_call_site: each member is the distance from itself to what is meant.
_SITE = np.dtype([("addr", "<i4"), ("key", "<i4")])


def static_call_update(text_poke: TextPoke, tramp: int, func: int) -> None:
    """Let the calls through the trampoline at `tramp` lead to `func`."""
    site = np.array([tramp], dtype=np.uint64)
    new = text_gen_insn(JMP32_INSN_OPCODE, site, func)
    if (text_poke.read(site) != new).any():
        text_poke.text_poke_bp(tramp, new.tobytes())


class StaticCallImage(Protocol):
    """What is needed of a kernel or a module."""

    @property
    def segments(self) -> Mapping[str, tuple[int, bytes]]: ...


class StaticCallMemory(Protocol):
    """What is needed of the machine's memory."""

    def u64(self, address: int) -> int: ...
    def set_u64(self, address: int, value: int) -> None: ...


class StaticCalls:
    """The listed calls of a kernel, by the address of their key. For the machine thread."""

    def __init__(
        self, memory: StaticCallMemory, image: StaticCallImage, text_poke: TextPoke
    ) -> None:
        self._memory = memory
        self._text_poke = text_poke
        self._sites: dict[int, Addresses] = {}
        self.add(image)

    def add(self, image: StaticCallImage) -> None:
        """Take over the calls of a kernel, or of a module before it runs."""
        for key, sites in _static_call_sites(image).items():
            known = self._sites.get(key, np.empty(0, np.uint64))
            self._sites[key] = np.concatenate((known, sites))
            func = self._memory.u64(key)
            if func:
                self._text_poke.text_poke_bp_batch(sites, *self._change(sites, 0, func))

    def remove(self, image: StaticCallImage) -> None:
        """Forget the calls of a module that goes."""
        for key, sites in _static_call_sites(image).items():
            known = self._sites[key]
            self._sites[key] = known[~np.isin(known, sites)]

    def sites(self, key: int) -> list[int]:
        """The addresses of the calls of a key."""
        sites = self._sites.get(key)
        return [] if sites is None else sites.tolist()

    def update(self, key: int, func: int) -> None:
        """__static_call_update: let all calls of `key` lead to `func`, 0 for nowhere."""
        old = self._memory.u64(key)
        if old == func:
            return
        sites = self._sites.get(key)
        if sites is not None and len(sites):
            self._text_poke.text_poke_bp_batch(sites, *self._change(sites, old, func))
        self._memory.set_u64(key, func)

    @staticmethod
    def _change(sites: Addresses, old: int, new: int) -> tuple[Code, Code]:
        return _insn(sites, new), _insn(sites, old)


def _insn(sites: Addresses, func: int) -> Code:
    return text_gen_call(sites, func) if func else same_code(NOP5, len(sites))


def _static_call_sites(image: StaticCallImage) -> dict[int, Addresses]:
    """The listed calls of an image, by key."""
    section = image.segments.get(STATIC_CALL_SITES_SECTION)
    if section is None:
        return {}
    address, data = section
    entries = np.frombuffer(data, dtype=_SITE)
    at = np.uint64(address) + np.arange(len(entries), dtype=np.uint64) * np.uint64(_SITE.itemsize)
    addr = at + entries["addr"].astype(np.int64).view(np.uint64)
    key = at + np.uint64(4) + entries["key"].astype(np.int64).view(np.uint64)
    return {int(each): addr[key == each] for each in distinct(key)}
