"""Every source we assemble, assembled by GNU `as` and `ld` too: the bytes have to be the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.gnu_as import assemble_with_gnu, require_binutils

import ftracefs.guest
from emulated_kernel.asm_offsets import MODULES_DATA
from emulated_kernel.assembler import Assembly, assemble, load, read_files
from emulated_kernel.image import LinuxOffsets
from emulated_kernel.images import builtin
from emulated_kernel.machine.memory import BUILTIN

ROOT = Path(builtin.__file__).resolve().parents[2]
OFFSETS = replace(LinuxOffsets(*range(8, 8 + 8 * len(fields(LinuxOffsets)), 8)), tif_need_resched=3)
LINUXES = [  # one with ORC tables, one with frame pointers
    ftracefs.guest.Linux(BUILTIN, MODULES_DATA, offsets)
    for offsets in (OFFSETS, replace(OFFSETS, orc_lookup=0))
]
BASES = {".text": 0xFFFFFFFF81000000, ".data": 0xFFFFFFFF82000000}


@pytest.fixture(autouse=True)
def _binutils() -> None:
    require_binutils()


# --- the sources of the repository --------------------------------------------------------------


class Loaded(NamedTuple):
    """What a loader asked the assembler for, and what it got."""

    paths: list[Path]
    sources: dict[str, str]
    bases: Mapping[str, int]
    constants: Mapping[str, int]
    externs: Mapping[str, int]
    assembly: Assembly


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> list[Loaded]:
    """All that the loaders of the kernel, its modules and the engine's own code assemble."""
    recorded: list[Loaded] = []
    cache = tmp_path_factory.mktemp("cache")

    def recording(
        paths: list[Path],
        bases: Mapping[str, int],
        constants: Mapping[str, int],
        externs: Mapping[str, int] | None = None,
        cache_dir: object = None,
        *,
        gs_base: int | None = None,
    ) -> Assembly:
        assembly = load(paths, bases, constants, externs, cache, gs_base=gs_base)
        sources = read_files(paths)
        if gs_base is not None:
            there = f"[{gs_base - (1 << 64)} + "
            sources = {name: text.replace("gs:[", there) for name, text in sources.items()}
        recorded.append(Loaded(list(paths), sources, bases, constants, externs or {}, assembly))
        return assembly

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtin, "load", recording)
        patch.setattr(ftracefs.guest, "load", recording)
        labels = uncached(builtin.load_builtin)().labels
        ftracefs.guest.load_guest(labels)
        ftracefs.guest.load_guest(labels, poison=True)
        for linux in LINUXES:
            ftracefs.guest.load_guest(labels, linux=linux)
    return recorded


def uncached(function: Callable[..., builtin.KernelImage]) -> Callable[..., builtin.KernelImage]:
    return getattr(function, "__wrapped__", function)


def difference(ours: Assembly, gnu: Mapping[str, bytes]) -> str:
    """Where the two differ first, as symbol + offset; empty if nowhere."""
    for section, (base, content) in ours.segments.items():
        other = gnu[section]
        if content == other:
            continue
        pairs = zip(content, other, strict=False)
        short = min(len(content), len(other))
        at = next((n for n, (mine, theirs) in enumerate(pairs) if mine != theirs), short)
        before = [s for s in ours.symbols if s.section == section and s.address <= base + at]
        name = f"{before[-1].name}+{base + at - before[-1].address:#x}" if before else section
        return f"{name}: {content[at : at + 16].hex()}, GNU as: {other[at : at + 16].hex()}"
    return ""


def test_every_source_of_the_repository_is_assembled_like_gnu_as(loads: list[Loaded]) -> None:
    for each in loads:
        gnu = assemble_with_gnu(each.sources, each.bases, each.constants, each.externs)
        assert difference(each.assembly, gnu) == "", each.paths[-1]


def test_no_source_of_the_repository_is_left_out(loads: list[Loaded]) -> None:
    folders = (ROOT / "emulated_kernel" / "kernel", ROOT / "ftracefs" / "guest")
    there = {
        path for folder in folders for kind in ("S", "inc") for path in folder.rglob(f"*.{kind}")
    }
    assert {path.resolve() for each in loads for path in each.paths} == there


# --- sources of our own -------------------------------------------------------------------------

EVERYTHING = {
    "a.inc": """
    SLOT = 8
    MASK = (1 << 5) | 3
    .macro ENTER size
        push rbp
        mov rbp, rsp
        sub rsp, \\size * SLOT
    .endm
    .macro IF_ZERO reg, target
        test \\reg, \\reg
        jne 1f
        jmp \\target
    1:
    .endm
    """,
    "one.S": """
    FUNC first
        ENTER 4
        mov rax, gs:[SLOT + rdi*8]
        mov [rbp - SLOT*2], rdi
        and dword ptr [rdi + MASK], ~MASK
        IF_ZERO rax, .Lout
        IF_ZERO rdi, last
        call helper
        call [rip + table + SLOT]
        cmp qword ptr [rip + table], -1
        jmp [rax*8 + table]
        .balign 16
    .Lout:
        mov rdi, offset table + SLOT
        movabs rsi, offset last - 1
        mov qword ptr [rdi + SLOT], offset helper
        push offset first
        leave
        ret
    ENDFUNC first
    FUNC_NOTRACE_STATIC helper
    1:  dec rdi
        jne 1b
        loop 1b
        lea rax, [rip + .Lhere]
    .Lhere:
        ret
    ENDFUNC helper
    FUNC_NOTRACE __fentry__
        ret
    ENDFUNC __fentry__
    .data
    OBJECT table
        .quad first, helper, . - table, last - first
        .long last - first, -1
        .word 0xfffe, MASK
        .byte 1, SLOT, -2
        .asciz "one\\ttwo\\n\\"three\\"\\\\ \\101"
        .balign 32
        .zero 5
        .balign 8, 0xaa
    ENDOBJECT table
    """,
    "two.S": """
    FUNC_STATIC helper
        call first
        jmp helper
        .zero 200
        jmp helper
    ENDFUNC helper
    FUNC_ENDBR last
        lock xadd [rdi], rax
        rep stosq
        jmp first
    ENDFUNC last
    """,
}


def test_the_whole_language_is_assembled_like_gnu_as() -> None:
    constants = {"UNUSED": 1}
    ours = assemble(EVERYTHING, BASES, constants)
    assert difference(ours, assemble_with_gnu(EVERYTHING, BASES, constants)) == ""


def test_externs_are_reached_like_gnu_as() -> None:
    sources = {
        "m.S": "call printk\nmov rdi, offset printk\nlea rsi, [rip + printk + 4]\njmp printk"
    }
    externs = {"printk": BASES[".text"] + 0x12345}
    ours = assemble(sources, BASES, externs=externs)
    assert difference(ours, assemble_with_gnu(sources, BASES, externs=externs)) == ""


LABELS = 6


@st.composite
def jumps(draw: st.DrawFn) -> str:
    """Jumps over gaps about as long as a short jump reaches, with alignments among them."""
    lines = [f"label{n}:" for n in range(LABELS)]
    for _ in range(draw(st.integers(4, 24))):
        target = f"label{draw(st.integers(0, LABELS - 1))}"
        line = draw(
            st.one_of(
                st.sampled_from([f"jmp {target}", f"jne {target}", f"jb {target} + 1", "nop"]),
                st.integers(20, 130).map(lambda size: f".zero {size}"),
                st.sampled_from([".balign 16", ".balign 64, 0x90", f".long {target} - ."]),
            )
        )
        lines.insert(draw(st.integers(0, len(lines))), line)
    return "\n".join(lines)


@settings(max_examples=40, deadline=None)
@given(jumps())
def test_jumps_get_the_lengths_of_gnu_as(source: str) -> None:
    sources = {"jumps.S": source}
    assert difference(assemble(sources, BASES), assemble_with_gnu(sources, BASES)) == ""


# --- the rule about binutils --------------------------------------------------------------------


def test_missing_binutils_skip_or_fail_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unit.gnu_as.shutil.which", lambda _tool: None)
    monkeypatch.delenv("FTRACEFS_REQUIRE_BINUTILS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="as, ld, objcopy"):
        require_binutils()
    monkeypatch.setenv("FTRACEFS_REQUIRE_BINUTILS", "1")
    with pytest.raises(pytest.fail.Exception, match="as, ld, objcopy"):
        require_binutils()
