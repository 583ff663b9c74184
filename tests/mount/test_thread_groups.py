"""Threads of a host process: tasks of one thread group, each for as long as its thread lives."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import MountedDaemon


@pytest.fixture
def tracing(fuse: None, tmp_path: Path) -> Iterator[Path]:
    with MountedDaemon(tmp_path) as running:
        yield running.path


class Worker:
    """A thread that reads a file as often as it is asked to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asked, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._going = True
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    @property
    def tid(self) -> int:
        assert self._thread.native_id is not None
        return self._thread.native_id

    def _main(self) -> None:
        while self._asked.acquire() and self._going:
            self._path.read_text()
            self._done.release()

    def read(self) -> None:
        self._asked.release()
        assert self._done.acquire(timeout=30)

    def end(self) -> None:
        self._going = False
        self._asked.release()
        self._thread.join()


def test_a_thread_is_one_task_of_its_processs_group(tracing: Path) -> None:
    worker = Worker(tracing / "tracing_on")
    try:
        (tracing / "set_ftrace_filter").write_text("kernel_clone do_exit vfs_read")
        (tracing / "current_tracer").write_text("function")
        for _ in range(3):
            worker.read()
        trace = (tracing / "trace").read_text()
        assert len(re.findall(rf"-{worker.tid} .*: vfs_read <-ksys_read", trace)) >= 3
        assert not re.search(rf"-{worker.tid} .*: do_exit", trace)

        (tracing / "options/record-tgid").write_text("1")
        (tracing / "events/sched/sched_switch/enable").write_text("1")
        for _ in range(3):
            worker.read()
            (tracing / "tracing_on").read_text()
        (tracing / "events/sched/sched_switch/enable").write_text("0")
        tgids = (tracing / "saved_tgids").read_text().splitlines()
        assert f"{worker.tid} {os.getpid()}" in tgids
        assert f"{os.getpid()} {os.getpid()}" in tgids
        line = rf"-{worker.tid} +\( *{os.getpid()}\) \[\d+\] .*: vfs_read <-ksys_read"
        assert re.search(line, (tracing / "trace").read_text())
    finally:
        worker.end()


def test_a_list_of_pids_tells_threads_apart(tracing: Path) -> None:
    worker = Worker(tracing / "tracing_on")
    try:
        (tracing / "set_ftrace_filter").write_text("vfs_read")
        (tracing / "set_ftrace_pid").write_text(f"{worker.tid}")
        (tracing / "current_tracer").write_text("function")
        worker.read()
        (tracing / "tracing_on").read_text()
        pids = re.findall(r"-(\d+) +\[.*: vfs_read <-", (tracing / "trace").read_text())
        assert set(map(int, pids)) == {worker.tid}
    finally:
        worker.end()
