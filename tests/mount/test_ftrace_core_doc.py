"""docs/ftrace-core.md is a guided tour: its commands are run, and show what it says they show."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.mounts import mounted

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/ftrace-core.md"


@dataclass(frozen=True, slots=True)
class Row:
    """A mechanism: where it is here, a command, and what its output contains."""

    mechanism: str
    here: str
    command: str
    shows: list[str]


def code_spans(cell: str) -> list[str]:
    return [span.replace("\\|", "|") for span in re.findall(r"`([^`]*)`", cell)]


def read_rows() -> list[Row]:
    rows = []
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and code_spans(cells[3]):
            (command,) = code_spans(cells[3])
            rows.append(Row(cells[1], cells[2], command, code_spans(cells[4])))
    return rows


def functions() -> str:
    """The shell functions of the document."""
    (block,) = re.findall(r"^```sh\n(.*?)^```", DOCUMENT.read_text(), flags=re.S | re.M)
    return str(block)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


ROWS = read_rows()
IN_MOUNT = [row for row in ROWS if not row.command.startswith("pytest ")]
IN_CLONE = [row for row in ROWS if row.command.startswith("pytest ")]


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp("doc") / "tracing", "--isolated") as directory:
        yield directory


@pytest.mark.parametrize("row", IN_MOUNT, ids=lambda row: row.command[:60])
def test_a_command_shows_what_the_document_says(mount: Path, row: Row) -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{functions()}\n{row.command}\n"],
        cwd=mount,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        text=True,
        check=False,
    )
    undone = subprocess.run(
        ["bash", "-c", f"set -e\n{functions()}\nreset\ncat enabled_functions"],
        cwd=mount,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert row.shows
    missing = [part for part in row.shows if squeezed(part) not in squeezed(done.stdout)]
    assert not missing, f"{missing} not in\n{done.stdout}"
    assert (undone.returncode, undone.stdout) == (0, "")


@pytest.mark.parametrize("row", IN_CLONE, ids=lambda row: row.command[:60])
def test_a_test_that_the_document_names_is_there(row: Row) -> None:
    _, path, *selection = row.command.split()
    source = (ROOT / path).read_text()
    assert selection[1:] == [] or f"def test_{selection[1]}" in source or selection[1] in source


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mechanism[:60])
def test_what_the_document_points_at_is_there(row: Row) -> None:
    for part in row.here.split(";"):
        path, *names = code_spans(part)
        source = (ROOT / path).read_text()
        assert names, part
        for name in names:
            assert name in source, f"{name} is not in {path}"


def test_the_table_is_read() -> None:
    assert len(IN_MOUNT) > 30
    assert len(IN_CLONE) >= 3
