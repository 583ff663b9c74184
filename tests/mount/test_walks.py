"""Directories are looked up again but by those who go through many files."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
from support.daemon import environment

FILES = 1000
FEW = 20


def looked_up(tracing: Path) -> int:
    return int((tracing / "walked/below/file").read_text())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its code is x86-64's")
def test_who_goes_through_many_files_has_their_directories_looked_up_now_and_then(
    tracing: Path,
) -> None:
    before = looked_up(tracing)
    for _ in range(FILES):
        (tracing / "walked/below/file").stat()
    # Less often than each time is enough here: how often goes by how busy the machine is.
    assert looked_up(tracing) - before < FILES * 3 // 4


def test_who_looks_at_few_has_each_walk_seen(tracing: Path) -> None:
    before = looked_up(tracing)
    for _ in range(FEW):
        (tracing / "walked/below").stat()
    assert looked_up(tracing) - before == FEW + 1  # and that of the last look here


def test_a_directory_that_may_go_is_always_looked_up(tracing: Path) -> None:
    directory = tracing / "instances/a"
    for _ in range(5):
        directory.mkdir()
        for _ in range(100):
            (directory / "trace_pipe").stat()
        # By another process, whose kernel has the same names: it must not find what is gone.
        subprocess.run(["rmdir", directory], env=environment(), timeout=60, check=True)
        assert not directory.exists()
