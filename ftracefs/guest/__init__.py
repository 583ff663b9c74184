"""The engine's own machine code: assembled against a kernel, at the start of the module area."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from emulated_kernel.asm_offsets import CONSTANTS, MODULES_DATA, MODULES_VADDR
from emulated_kernel.assembler import Assembly, load

ENGINE_DATA = MODULES_DATA + 0x700000  # the modules' own data lies below

_HERE = Path(__file__).parent
_LEAVE, _POISON = "leave.inc", "poison.inc"
# What runs for each traced call stands in front, so that nothing else decides where: an unlucky
# place in Unicorn's jump cache costs 30 ns a call and more.
_HOT = ("ftrace_64.S", "ring_buffer.S", "trace_functions.S", "fgraph.S", "ftrace_pid.S")


def load_guest(
    externs: Mapping[str, int],
    *,
    poison: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Assembly:
    """Assemble every source of this directory; `externs` are the kernel's labels.

    With `poison` the trampolines overwrite all that they may (see poison.inc).
    """
    left_out = _LEAVE if poison else _POISON
    includes = [p for p in sorted(_HERE.glob("*.inc")) if p.name != left_out]
    bases = {".text": MODULES_VADDR, ".data": ENGINE_DATA}
    hot = [_HERE / name for name in _HOT]
    sources = [*includes, *hot, *(p for p in sorted(_HERE.glob("*.S")) if p.name not in _HOT)]
    return load(sources, bases, CONSTANTS, externs, cache_dir)
