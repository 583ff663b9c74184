"""The disk cache: a hit is the same as assembling, and nothing that goes wrong there matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulated_kernel import asm_cache, assembler, cache_files
from emulated_kernel.assembler import AssemblerError, Assembly, assemble, load

BASES = {".text": 0xFFFFFFFF81000000, ".data": 0xFFFFFFFF82000000}
INCLUDE = "SIZE = 24\n.macro NOPS\nnop\nnop\n.endm\n"
SOURCE = (
    "FUNC f\nNOPS\nmov eax, SIZE\nret\nENDFUNC f\n"
    "FUNC_NOTRACE __fentry__\nret\nENDFUNC __fentry__\n"
    ".data\nOBJECT o\n.quad f, DISTANCE\n.zero 5000\nENDOBJECT o\n"
)
CONSTANTS = {"DISTANCE": 8}


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    files = [tmp_path / "kernel" / "f.S", tmp_path / "kernel" / "include" / "a.inc"]
    files[1].parent.mkdir(parents=True)
    files[0].write_text(SOURCE)
    files[1].write_text(INCLUDE)
    return files


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "below"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One element for each time that something was really assembled."""
    counted: list[int] = []

    def counting(*arguments: object, **options: object) -> Assembly:
        counted.append(1)
        return assemble(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(assembler, "assemble", counting)
    return counted


def the_file(cache: Path) -> Path:
    (file,) = cache.iterdir()
    return file


def test_the_second_load_comes_from_the_cache(
    paths: list[Path], cache: Path, runs: list[int]
) -> None:
    first = load(paths, BASES, CONSTANTS, cache_dir=cache)
    second = load(paths, BASES, CONSTANTS, cache_dir=cache)
    assert first == second
    assert first == assemble({"f.S": SOURCE, "a.inc": INCLUDE}, BASES, CONSTANTS)
    assert len(runs) == 1
    assert json.loads(the_file(cache).read_text())["constants"] == {"SIZE": 24}


@pytest.mark.parametrize("change", ["source", "include", "bases", "constants", "externs", "order"])
def test_whatever_goes_in_makes_another_entry(
    paths: list[Path], cache: Path, runs: list[int], change: str
) -> None:
    load(paths, BASES, CONSTANTS, cache_dir=cache)
    bases, constants, externs = dict(BASES), dict(CONSTANTS), {}
    if change == "source":
        paths[0].write_text(SOURCE + "nop\n")
    elif change == "include":
        paths[1].write_text(INCLUDE + "# changed\n")
    elif change == "bases":
        bases[".data"] += 0x1000
    elif change == "constants":
        constants["DISTANCE"] = 16
    elif change == "externs":
        externs = {"printk": 0xFFFFFFFF81100000}
    else:
        paths.reverse()
    load(paths, bases, constants, externs, cache_dir=cache)
    assert len(runs) == 2
    assert len(list(cache.iterdir())) == 2


def test_a_new_assembler_does_not_trust_the_old_one(
    paths: list[Path], cache: Path, runs: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load(paths, BASES, CONSTANTS, cache_dir=cache)
    (tmp_path / "asm_link.py").write_text("changed")
    monkeypatch.setattr(assembler, "__file__", str(tmp_path / "assembler.py"))
    load(paths, BASES, CONSTANTS, cache_dir=cache)
    assert len(runs) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b"[" * 100000,
        b'{"segments": [], "symbols": [], "labels": {}, "mcount": [], "constants": {}}',
        b'{"segments": {}, "symbols": [[1]], "labels": {}, "mcount": [], "constants": {}}',
        b'{"segments": {}, "symbols": [], "labels": {"f": "x"}, "mcount": [], "constants": {}}',
        b'{"segments": {".text": [1, 1, "AAAA"]}, "symbols": [], "labels": {}, "mcount": [],'
        b' "constants": {}}',
        b'{"segments": {".text": [1, 9, "eJwDAAAAAAE="]}, "symbols": [], "labels": {},'
        b' "mcount": [], "constants": {}}',
    ],
)
def test_a_broken_entry_is_made_anew(
    paths: list[Path], cache: Path, runs: list[int], content: bytes
) -> None:
    good = load(paths, BASES, CONSTANTS, cache_dir=cache)
    the_file(cache).write_bytes(content)
    assert load(paths, BASES, CONSTANTS, cache_dir=cache) == good
    assert load(paths, BASES, CONSTANTS, cache_dir=cache) == good
    assert len(runs) == 2


def test_a_cut_entry_is_made_anew(paths: list[Path], cache: Path, runs: list[int]) -> None:
    good = load(paths, BASES, CONSTANTS, cache_dir=cache)
    whole = the_file(cache).read_bytes()
    for length in (1, len(whole) // 2, len(whole) - 1):
        the_file(cache).write_bytes(whole[:length])
        assert load(paths, BASES, CONSTANTS, cache_dir=cache) == good
    assert len(runs) == 4


def test_a_cache_that_cannot_be_written_is_ignored(paths: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assembly = load(paths, BASES, CONSTANTS, cache_dir=tmp_path / "file" / "cache")
    assert assembly.labels["f"] == BASES[".text"]


def test_an_entry_is_complete_or_absent(
    paths: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_self: Path, _target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fails)
    load(paths, BASES, CONSTANTS, cache_dir=cache)
    assert list(cache.iterdir()) == []


def test_old_entries_make_room(paths: list[Path], cache: Path) -> None:
    for number in range(asm_cache.KEPT + 3):
        load(paths, BASES, {"DISTANCE": number}, cache_dir=cache)
        for file in cache.iterdir():
            # Older with every round: the clock of a file system may be too coarse to tell.
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 10))
    newest = load(paths, BASES, {"DISTANCE": asm_cache.KEPT + 2}, cache_dir=cache)
    kept = [asm_cache.read(cache, file.name.split(".")[0]) for file in cache.iterdir()]
    assert len(kept) == asm_cache.KEPT
    assert newest in kept


def test_errors_are_not_remembered(paths: list[Path], cache: Path) -> None:
    paths[0].write_text("jmp nowhere")
    for _ in range(2):
        with pytest.raises(AssemblerError, match=r"f\.S:1: undefined symbol nowhere"):
            load(paths, BASES, CONSTANTS, cache_dir=cache)
    assert not cache.exists()


def test_files_are_named_from_the_directory_they_share(tmp_path: Path) -> None:
    for name in ("fs/super.S", "ext4/super.S"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("call nowhere")
    with pytest.raises(AssemblerError) as caught:
        load([tmp_path / "fs/super.S", tmp_path / "ext4/super.S"], BASES)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "fs/super.S",
        "ext4/super.S",
    ]


def test_a_source_listed_twice_is_refused(paths: list[Path]) -> None:
    with pytest.raises(AssemblerError, match="listed twice"):
        load([*paths, paths[0]], BASES, CONSTANTS)


def test_the_default_directory_follows_xdg(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, paths: list[Path]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load(paths, BASES, CONSTANTS)
    assert len(list((tmp_path / "xdg" / "ftracefs").iterdir())) == 1
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("relative", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_files.default_directory() == tmp_path / "home" / ".cache" / "ftracefs"


def test_without_a_home_there_is_no_cache(
    monkeypatch: pytest.MonkeyPatch, paths: list[Path]
) -> None:
    def no_home() -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_files.default_directory() is None
    assert load(paths, BASES, CONSTANTS).labels["f"] == BASES[".text"]


def test_a_hit_does_not_need_keystone(paths: list[Path], cache: Path) -> None:
    load(paths, BASES, CONSTANTS, cache_dir=cache)
    program = (
        "import sys; sys.modules['keystone'] = None\n"
        "from emulated_kernel.assembler import load\n"
        f"print(load({[str(path) for path in paths]!r}, {BASES!r}, {CONSTANTS!r},"
        f" cache_dir={str(cache)!r}).labels['f'])"
    )
    root = Path(assembler.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == str(BASES[".text"]), done.stderr
