"""The engine's own machine code: assembled against a kernel, at the start of the module area.

Code for a Linux that knows nothing of the engine differs in what it takes from the kernel: whose
context a call is in is asked of Linux (context_linux, task_mirror.S), and the engine's per-CPU
words lie at fixed addresses, since gs is Linux's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emulated_kernel.asm_offsets import CONSTANTS, PAGE_OFFSET
from emulated_kernel.assembler import Assembly, load
from emulated_kernel.image import LinuxOffsets
from emulated_kernel.machine.memory import BUILTIN, Layout

_ENGINE_DATA = 0x700000  # of the area of the modules' data; theirs lies below

_HERE = Path(__file__).parent
_LEAVE, _POISON = "leave.inc", "poison.inc"
_BUILTIN_ONLY = {"context.inc", "ops_words.inc", "unwind_frame.S"}
_LINUX_ONLY = {
    *("context_linux.inc", "context_linux.S", "linux_events.S", "linux_probes.S"),
    "ops_words_linux.inc",
    *("task_mirror.S", "unwind_linux.S", "unwind_orc.S", "unwind_frame_linux.S"),
}
# What runs for each traced call stands in front, so that nothing else decides where: an unlucky
# place in Unicorn's jump cache costs 30 ns a call and more.
_HOT = ("ftrace_64.S", "ring_buffer.S", "trace_functions.S", "fgraph.S", "ftrace_pid.S")


@dataclass(frozen=True, slots=True)
class Linux:
    """What differs for a Linux. `percpu` is where the per-CPU words of the CPU that runs lie."""

    layout: Layout
    percpu: int
    offsets: LinuxOffsets


def load_guest(
    externs: Mapping[str, int],
    *,
    poison: bool = False,
    linux: Linux | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Assembly:
    """Assemble every source of this directory; `externs` are the kernel's labels.

    With `poison` the trampolines overwrite all that they may (see poison.inc).
    """
    left_out = {_LEAVE if poison else _POISON}
    if linux is None:
        left_out |= _LINUX_ONLY
        layout, gs_base = BUILTIN, None
        constants = {**CONSTANTS, "FRAME_POINTERS": 1}
    else:
        has_orc = bool(linux.offsets.orc_lookup)
        left_out |= {*_BUILTIN_ONLY, "unwind_frame_linux.S" if has_orc else "unwind_orc.S"}
        layout, gs_base = linux.layout, linux.percpu
        heap, heap_bytes = layout.heap
        room = {"HOST_HEAP": PAGE_OFFSET + heap, "HOST_HEAP_BYTES": heap_bytes}
        frames = {"FRAME_POINTERS": int(not has_orc)}
        constants = {**CONSTANTS, **linux.offsets.constants(), **room, **frames}
    includes = [p for p in sorted(_HERE.glob("*.inc")) if p.name not in left_out]
    sources = [p for p in sorted(_HERE.glob("*.S")) if p.name not in {*left_out, *_HOT}]
    bases = {".text": layout.modules_vaddr, ".data": layout.modules_data + _ENGINE_DATA}
    return load(
        [*includes, *(_HERE / name for name in _HOT), *sources],
        bases,
        constants,
        externs,
        cache_dir,
        gs_base=gs_base,
    )
