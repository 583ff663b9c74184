"""A daemon that does not answer: nobody waits for it for ever, and what to do is told."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.daemon import FAKE, TIMEOUT, MountedDaemon, run, state_of, wait_until

from emulated_kernel.procfs import read_process
from ftracefs.mount import answers, mountpoint
from ftracefs.mount.mountpoint import Mount, MountError
from ftracefs.testing.leftovers import Adoption

COMMANDS = ("mount", "unmount", "reset")


@pytest.fixture(autouse=True)
def _adopted() -> Iterator[None]:
    """Children that a command has left are ours."""
    adoption = Adoption()
    adoption.begin()
    try:
        yield
    finally:
        adoption.end()


def children() -> set[int]:
    processes = (read_process(int(path.name)) for path in Path("/proc").glob("[0-9]*"))
    return {process.pid for process in processes if process and process.ppid == os.getpid()}


def wait_for(pids: set[int]) -> None:
    def are_gone() -> bool:
        pids.difference_update({pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0]})
        return not pids

    wait_until(are_gone, f"{pids} end")


def told(path: Path) -> str:
    """What each of the commands says of the mount, which is the same."""
    with ThreadPoolExecutor(len(COMMANDS)) as pool:
        results = list(pool.map(lambda command: run(*FAKE, command, path), COMMANDS))
    assert [done.returncode for done in results] == [1, 1, 1]
    (said,) = {done.stderr for done in results}
    assert said.startswith("ftracefs: ")
    assert said.count("\n") == 1
    return said.removeprefix("ftracefs: ").rstrip("\n")


@contextmanager
def stopped(daemon: MountedDaemon) -> Iterator[None]:
    pid = daemon.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        wait_until(lambda: all(state_of(thread) == "T" for thread in threads), "it stands")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_daemon_that_is_stopped_is_not_waited_for_and_goes_on_afterwards(
    daemon: MountedDaemon, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(daemon.path)
    pid = daemon.process.pid
    before = children()
    with stopped(daemon):
        assert told(link) == (
            f"{daemon.path}: its daemon is stopped;"
            f" kill -CONT {pid} lets it go on, kill -KILL {pid} ends it"
        )
        wait_for(children() - before)
        below = run(*FAKE, "mount", daemon.path / "instances")
        assert f"instances is in the ftracefs at {daemon.path}" in below.stderr
    assert (daemon.path / "README").read_text() == "a fake\n"
    assert run(*FAKE, "unmount", daemon.path).returncode == 0


def hangs(pid: int) -> bool:
    """Whether a thread of it is in pause(2) (x86-64: system call 34)."""
    calls = Path(f"/proc/{pid}/task").glob("*/syscall")
    return any(call.read_text(encoding="ascii").split()[0] == "34" for call in calls)


def test_a_daemon_that_has_taken_requests_and_hangs_is_not_waited_for(
    unstarted: MountedDaemon,
) -> None:
    unstarted.start()
    pid = unstarted.process.pid
    writer = subprocess.Popen(["sh", "-c", 'echo hang > "$1"', "-", unstarted.path / "failing"])
    try:
        wait_until(lambda: hangs(pid), "the daemon hangs")
        before = children()
        assert told(unstarted.path) == (
            f"{unstarted.path}: its daemon has not answered for 10 s; kill -KILL {pid} ends it"
        )
    finally:
        unstarted.terminate(signal.SIGKILL)
        writer.wait(TIMEOUT)
    wait_for(children() - before)
    assert run(*FAKE, "unmount", unstarted.path).returncode == 0
    assert not unstarted.is_mounted()


def test_who_cannot_see_the_daemon_is_told_to_detach_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ask(request: object, seconds: float) -> None:
        raise answers.NoAnswer

    path = tmp_path / "my traces"
    ours = Mount(path, "fuse.tracefs", "ftracefs", "0:0")
    monkeypatch.setattr(mountpoint, "mounted_at", lambda _: ours)
    monkeypatch.setattr(answers, "ask", ask)
    for command in (mountpoint.prepare, mountpoint.stop, mountpoint.reset):
        with pytest.raises(MountError) as error:
            command(path)
        assert str(error.value) == (
            f"{path}: its daemon has not answered for 10 s; fusermount -uz '{path}' detaches it"
        )


def test_the_error_of_a_request_is_that_of_who_asks(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        answers.ask(lambda: os.statvfs(tmp_path / "none"), TIMEOUT)
    answers.ask(lambda: os.statvfs(tmp_path), TIMEOUT)
