"""Fixtures of the engine tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from support.linux_session import LinuxShell, switched_on
from support.shell import Shell, isolated
from support.syscalls import Kernel, Process

DT_DIR = 4


@pytest.fixture
def shell() -> Iterator[Shell]:
    """An isolated session with a virtual clock."""
    with isolated() as made:
        yield made


@pytest.fixture(scope="module")
def booted() -> Iterator[LinuxShell]:
    """A distribution's kernel for the tests of one file."""
    with switched_on() as made:
        yield made


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    """A booted guest for the tests of one file."""
    made = Kernel()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pids() -> Iterator[int]:
    """Process ids nobody has used yet."""
    return itertools.count(500)


@pytest.fixture
def sh(kernel: Kernel, pids: Iterator[int]) -> Iterator[Process]:
    """A process in a directory of its own; what it took is given back in the end."""
    before = kernel.holdings()
    process = kernel.process(next(pids))
    process.home = f"/tmp/{process.task.pid}"
    assert process.mkdir(process.home) == 0
    assert process.call("chdir", process.path(process.home)) == 0
    yield process
    assert process.call("chdir", process.path("/")) == 0
    remove_tree(process, process.home)
    process.exit()
    assert kernel.holdings() == before


def remove_tree(process: Process, path: str) -> None:
    """rm -r"""
    entries = process.listdir(path)
    assert isinstance(entries, dict)
    for name, (_, kind) in entries.items():
        if name in {".", ".."}:
            continue
        if kind == DT_DIR:
            remove_tree(process, f"{path}/{name}")
        else:
            assert process.unlink(f"{path}/{name}") == 0
    assert process.rmdir(path) == 0
