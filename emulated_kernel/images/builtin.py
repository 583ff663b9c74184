"""The built-in kernel: assembled from kernel/*.S, one source per subsystem."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, MODULES_DATA, MODULES_VADDR, TEXT_BASE
from emulated_kernel.assembler import Symbol, load
from emulated_kernel.image import KernelImage, Module

KERNEL = Path(__file__).resolve().parent.parent / "kernel"
# Module text begins behind the engine's own code and its trampolines.
MODULE_TEXT = MODULES_VADDR + 0x800000
_MODULE_ROOM = 0x40000
# The kernel's own data lies below.
JUMP_TABLE = DATA_BASE + 0x700000
STATIC_CALL_SITES = DATA_BASE + 0x780000


def kernel_sources() -> list[Path]:
    """Every source of the kernel itself: constants and macros first, then text in link order."""
    includes = sorted((KERNEL / "include").glob("*.inc"))
    sources = (p for p in KERNEL.rglob("*.S") if "modules" not in p.relative_to(KERNEL).parts)
    return includes + sorted(sources, key=lambda p: p.relative_to(KERNEL).as_posix())


def kernel_bases() -> dict[str, int]:
    """Section -> address of the kernel itself."""
    return {
        ".text": TEXT_BASE,
        ".data": DATA_BASE,
        "__jump_table": JUMP_TABLE,
        "__static_call_sites": STATIC_CALL_SITES,
    }


def module_sources(name: str) -> list[Path]:
    """The sources of one module: its own file, and what lies in a directory of its name."""
    modules = KERNEL / "modules"
    includes = [
        *sorted((KERNEL / "include").glob("*.inc")),
        *sorted((modules / name).glob("*.inc")),
    ]
    return [*includes, modules / f"{name}.S", *sorted((modules / name).glob("*.S"))]


def module_bases(index: int) -> dict[str, int]:
    """Section -> address of the module at `index` in alphabetical order."""
    return {
        ".text": MODULE_TEXT + index * _MODULE_ROOM,
        ".data": MODULES_DATA + index * _MODULE_ROOM,
        "__static_call_sites": MODULES_DATA + index * _MODULE_ROOM + _MODULE_ROOM // 2,
    }


def module_names() -> list[str]:
    """The modules that come with the kernel."""
    return sorted(p.stem for p in (KERNEL / "modules").glob("*.S"))


def _linker_symbols(segments: Mapping[str, tuple[int, bytes]]) -> list[Symbol]:
    """What vmlinux.lds gives: where the sections begin and end."""
    text, data, jumps, calls = (
        segments[name] for name in (".text", ".data", "__jump_table", "__static_call_sites")
    )
    places = (
        *(("_text", text[0], ".text"), ("_stext", text[0], ".text")),
        *(("_etext", text[0] + len(text[1]), ".text"), ("_sdata", data[0], ".data")),
        ("__start___jump_table", jumps[0], "__jump_table"),
        ("__stop___jump_table", jumps[0] + len(jumps[1]), "__jump_table"),
        ("__start_static_call_sites", calls[0], "__static_call_sites"),
        ("__stop_static_call_sites", calls[0] + len(calls[1]), "__static_call_sites"),
        *(("_edata", data[0] + len(data[1]), ".data"), ("_end", data[0] + len(data[1]), ".data")),
    )
    return [
        Symbol(name, address, 0, section, "T" if section == ".text" else "D")
        for name, address, section in places
    ]


@cache
def load_builtin() -> KernelImage:
    """Assemble the kernel and its modules, or fetch them from the assembler's cache."""
    core = load(kernel_sources(), kernel_bases(), CONSTANTS)
    modules = []
    for index, name in enumerate(module_names()):
        part = load(module_sources(name), module_bases(index), CONSTANTS, core.labels)
        modules.append(Module(name, part.segments, part.symbols, part.mcount, part.labels))
    return KernelImage(
        "builtin",
        core.segments,
        [*core.symbols, *_linker_symbols(core.segments)],
        core.mcount,
        core.labels,
        core.constants,
        modules,
    )
