"""Which of libfuse's threads may have a request that nobody has seen yet."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ftracefs.mount import workers
from ftracefs.mount.workers import Workers

IN_READ = "0 0x5 0x7f1b30000b60 0x21000 0x0 0x0 0x0 0x7f1b4bffe9c8 0x7f1b5a0f429c\n"
# The interpreter's own lock lies at a low address where it is linked to a fixed one.
IN_FUTEX = "202 0xa5b0c8 0x189 0x0 0x0 0x0 0xffffffff 0x7f1b4bffe9c8 0x7f1b5a0f429c\n"
ITSELF = 1


class Tasks:
    """/proc/self/task, with what each thread does."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def set(self, thread: int, syscall: str) -> None:
        (self._directory / str(thread)).mkdir(exist_ok=True)
        (self._directory / str(thread) / "syscall").write_text(syscall)


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tasks:
    monkeypatch.setattr(workers, "_TASKS", tmp_path)
    tasks = Tasks(tmp_path)
    tasks.set(ITSELF, "running\n")
    return tasks


def test_a_thread_that_waits_for_requests_has_none(tasks: Tasks) -> None:
    threads = Workers()
    tasks.set(2, IN_READ)
    assert not threads.may_bring_more()


@pytest.mark.parametrize("syscall", ["running\n", IN_FUTEX, "-1 0x7ffd5a0f429c 0x7f1b5a0f429c\n"])
def test_a_thread_that_does_something_else_may_have_one(tasks: Tasks, syscall: str) -> None:
    threads = Workers()
    tasks.set(2, IN_READ)
    tasks.set(3, syscall)
    assert threads.may_bring_more()


def test_where_it_cannot_be_told_there_may_be_one(tasks: Tasks, tmp_path: Path) -> None:
    threads = Workers()
    (tmp_path / "2").mkdir()
    assert threads.may_bring_more()


def test_a_thread_in_its_operation_has_no_other(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Workers()
    monkeypatch.setattr(threading, "get_native_id", lambda: 3)
    tasks.set(3, "running\n")
    me = threads.enter()
    assert not threads.may_bring_more()
    threads.leave(me)
    assert threads.may_bring_more()


def test_a_thread_of_pythons_brings_none(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Workers()
    other = threading.Thread()
    monkeypatch.setattr(other, "_native_id", 2)
    monkeypatch.setattr(threading, "enumerate", lambda: [other])
    tasks.set(2, IN_FUTEX)
    assert not threads.may_bring_more()
