"""The names and modes of Linux 6.1's files: our tree has them, or docs/files.md says why not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.shell import Shell, isolated

from ftracefs.files.base import Directory

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).parent / "tree.txt"
DOCUMENT = ROOT / "docs/files.md"
SECTION = "## Every file of Linux 6.1\n"

Modes = dict[str, int]  # by path, which a slash ends when it is a directory's


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table in docs/files.md."""

    files: tuple[str, ...]
    mode: int
    here: str

    @property
    def is_here(self) -> bool:
        return not self.here.startswith("not here")


def recorded() -> Modes:
    modes: Modes = {}
    mode = 0
    for word in re.sub(r"^#.*", "", RECORDED.read_text(), flags=re.M).split():
        if word.isdecimal():
            mode = int(word, 8)
        else:
            modes[word] = mode
    return modes


def table() -> list[Row]:
    section = DOCUMENT.read_text().split(SECTION)[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    return [Row(tuple(re.findall(r"`([^`]+)`", f)), int(mode, 8), here) for f, mode, here in cells]


def general(path: str) -> str:
    """`path` as the recording and the table spell it, with placeholders."""
    path = re.sub(r"^instances/i/events/.+", lambda m: m[0].removeprefix("instances/i/"), path)
    path = re.sub(r"^instances/i/per_cpu/.+", lambda m: m[0].removeprefix("instances/i/"), path)
    path = re.sub(r"^instances/i/", "instances/NAME/", path)
    path = re.sub(r"^per_cpu/cpu\d+/", "per_cpu/cpuN/", path)
    path = re.sub(r"^trace_stat/function\d+", "trace_stat/functionN", path)
    path = re.sub(r"^events/ftrace/\w+/(format|hist|hist_debug)$", r"events/ftrace/RECORD/\1", path)
    if not path.startswith("events/ftrace/"):
        path = re.sub(r"^events/\w+/\w+/", "events/SYSTEM/EVENT/", path)
        path = re.sub(r"^events/(?!SYSTEM)\w+/", "events/SYSTEM/", path)
    return path


def modes_of(directory: Directory, prefix: str = "") -> Modes:
    modes: Modes = {}
    for name in directory:
        node = directory.lookup(name)
        if isinstance(node, Directory):
            modes[f"{prefix}{name}/"] = node.mode
            if f"{prefix}{name}" != "emulator":
                modes |= modes_of(node, f"{prefix}{name}/")
        else:
            modes[f"{prefix}{name}"] = node.mode
    return modes


@pytest.fixture(scope="module")
def ours() -> Modes:
    """Every file of ours that Linux could have."""
    with isolated() as shell:
        shell.mkdir("instances/i")
        found = modes_of_tree(shell)
        shell.rmdir("instances/i")
    return found


def modes_of_tree(shell: Shell) -> Modes:
    root = shell.session.root
    assert isinstance(root, Directory)
    every = shell.machine.run(lambda: modes_of(root))
    modes: Modes = {}
    for path, mode in every.items():
        if path != "emulator/":
            assert modes.setdefault(general(path), mode) == mode, path
    return modes


@pytest.mark.oracle
def test_what_is_here_has_the_names_and_modes_of_linux(ours: Modes) -> None:
    linux = recorded()
    assert {path: oct(mode) for path, mode in ours.items()} == {
        path: oct(linux.get(path, 0)) for path in ours
    }


def test_the_table_names_every_file_of_linux_once() -> None:
    rows = table()
    named = [file for row in rows for file in row.files]
    assert len(named) == len(set(named)) > 200
    assert {file: row.mode for row in rows for file in row.files} == recorded()


def test_the_table_says_of_each_file_whether_it_is_here(ours: Modes) -> None:
    said = {file for row in table() if row.is_here for file in row.files}
    assert said == set(ours)


def test_every_row_says_something() -> None:
    assert all(row.here for row in table())
