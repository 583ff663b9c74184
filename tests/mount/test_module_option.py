"""`--kernel` and `--module` with files of one's own, through a mount."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import FTRACEFS, MountedDaemon, run
from support.elf_kernel import compiled, make
from support.mounts import require_fuse


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_fuse()
    return make(tmp_path_factory.mktemp("elf") / "kernel")


@pytest.fixture(scope="module")
def tracing(kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    second = compiled(kernel.parent / "second-one.o", "int second(void) { return 2; }")
    modules = ("--module", str(kernel.parent / "statistics.o"), "--module", str(second))
    with MountedDaemon(
        tmp_path_factory.mktemp("mount"), "--kernel", str(kernel), *modules
    ) as daemon:
        yield daemon.path


def test_modules_are_loaded_and_go_and_come_by_their_names(tracing: Path) -> None:
    modules = tracing / "emulator/modules"

    def loaded() -> list[str]:
        return [line.split()[0] for line in modules.read_text().splitlines()]

    assert loaded() == ["second_one", "statistics"]
    modules.write_text("unload statistics\n")
    assert loaded() == ["second_one"]
    modules.write_text("load statistics\n")
    (tracing / "set_ftrace_filter").write_text("*:mod:statistics\n")
    (tracing / "current_tracer").write_text("function\n")
    (tracing / "emulator/call").write_text("variance\n")
    assert (tracing / "emulator/call").read_text() == "variance() = 4\n"
    assert "mean <-variance" in (tracing / "trace").read_text()


def test_a_module_that_cannot_be_loaded_ends_the_start(kernel: Path, tmp_path: Path) -> None:
    bad = compiled(tmp_path / "bad.o", "int nothing(void); int f(void) { return nothing(); }")
    mountpoint = tmp_path / "mount"
    mountpoint.mkdir()
    done = run(*FTRACEFS, "mount", mountpoint, "--kernel", kernel, "--module", bad)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f"ftracefs: {bad}: the kernel has no nothing"
    assert not mountpoint.is_mount()
