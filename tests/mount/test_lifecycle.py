"""Start and end of a mount: signals, crashes, what is refused, what a person is told."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.daemon import (
    FAKE,
    TIMEOUT,
    MountedDaemon,
    run,
    state_of,
    wait_until,
    wait_until_reading,
)

from ftracefs import cli
from ftracefs.mount import mountpoint

_TGKILL = 234  # the number of the system call


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_unmounts_under_a_sleeping_reader_who_gets_end_of_file(
    daemon: MountedDaemon, number: signal.Signals
) -> None:
    cat = subprocess.Popen(["cat", daemon.path / "trace_pipe"])
    wait_until_reading(cat)
    assert daemon.terminate(number) == 0
    assert cat.wait(TIMEOUT) == 0
    assert not daemon.is_mounted()
    assert daemon.log_text().endswith("closed\n")


def test_a_signal_ends_the_daemon_whichever_of_its_threads_takes_it(daemon: MountedDaemon) -> None:
    pid = daemon.process.pid
    tasks = Path(f"/proc/{pid}/task").iterdir()
    others = [int(task.name) for task in tasks if _takes_sigterm(task) and int(task.name) != pid]
    assert others, "none but the main thread"
    for thread in others:
        assert ctypes.CDLL(None).syscall(_TGKILL, pid, thread, signal.SIGTERM) == 0
    assert daemon.process.wait(TIMEOUT) == 0
    assert not daemon.is_mounted()


def _takes_sigterm(task: Path) -> bool:
    (blocked,) = (
        int(line.split()[1], 16)
        for line in (task / "status").read_text().splitlines()
        if line.startswith("SigBlk:")
    )
    return not blocked >> (signal.SIGTERM - 1) & 1


def test_a_file_held_open_does_not_keep_the_mount(daemon: MountedDaemon) -> None:
    descriptor = os.open(daemon.path / "README", os.O_RDONLY)
    try:
        assert daemon.terminate() == 0
        assert not daemon.is_mounted()
    finally:
        with pytest.raises(OSError, match=os.strerror(errno.ENOTCONN)):
            os.close(descriptor)


def test_the_daemon_ends_when_somebody_else_unmounts(daemon: MountedDaemon) -> None:
    assert mountpoint.unmount(daemon.path) == ""
    assert daemon.process.wait(TIMEOUT) == 0
    assert daemon.log_text().endswith("closed\n")


def test_unmount_ends_the_daemon_though_a_reader_sleeps(daemon: MountedDaemon) -> None:
    cat = subprocess.Popen(["cat", daemon.path / "trace_pipe"])
    wait_until_reading(cat)
    done = run(*FAKE, "unmount", daemon.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert cat.wait(TIMEOUT) == 0
    assert not daemon.is_mounted()
    assert daemon.process.wait(TIMEOUT) == 0


def test_the_next_mount_clears_away_what_a_killed_daemon_left(unstarted: MountedDaemon) -> None:
    unstarted.start()
    cat = subprocess.Popen(["cat", unstarted.path / "trace_pipe"], stderr=subprocess.DEVNULL)
    wait_until_reading(cat)
    assert unstarted.terminate(signal.SIGKILL) == -signal.SIGKILL
    assert cat.wait(TIMEOUT) == 1
    assert unstarted.is_mounted()
    done = run(*FAKE, "mount", unstarted.path)
    assert done.returncode == 0, done.stderr
    assert "cleared a dead mount away" in done.stderr
    assert (unstarted.path / "README").read_text() == "a fake\n"
    assert run(*FAKE, "unmount", unstarted.path).returncode == 0


def test_a_dead_mount_that_a_shell_stands_in_is_cleared_away(unstarted: MountedDaemon) -> None:
    unstarted.start()
    shell = subprocess.Popen(["sleep", "60"], cwd=unstarted.path)
    try:
        unstarted.terminate(signal.SIGKILL)
        assert unstarted.is_mounted()
        assert run(*FAKE, "unmount", unstarted.path).returncode == 0
        assert not unstarted.is_mounted()
    finally:
        shell.kill()
        shell.wait(TIMEOUT)


def test_mount_returns_when_it_answers_and_says_how_to_go_on(unstarted: MountedDaemon) -> None:
    unstarted.path.mkdir()
    log = unstarted.path.with_name("mount.log")
    done = run(*FAKE, "mount", unstarted.path, "--log", log, "--cpus", "3", "--isolated")
    assert done.returncode == 0, done.stderr
    try:
        options = (unstarted.path / "options").read_text()
        assert "cpus=3, clock='real', isolated=True, pure=False" in options
        assert f"cd {unstarted.path}\n" in done.stdout
        assert f"unmount {unstarted.path}\n" in done.stdout
        pid = int(done.stdout.partition("(pid ")[2].partition(",")[0])
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        assert os.getsid(pid) == pid
    finally:
        assert run(*FAKE, "unmount", unstarted.path).returncode == 0
    wait_until(lambda: state_of(pid) in "XZ", "the daemon ends")
    assert log.read_text().endswith("closed\n")


def test_logs_do_not_pile_up_but_of_those_who_run(unstarted: MountedDaemon, tmp_path: Path) -> None:
    logs = tmp_path / "state" / "ftracefs"
    unstarted.path.mkdir()
    (tmp_path / "other").mkdir()
    try:
        assert run(*FAKE, "mount", unstarted.path).returncode == 0
        (first,) = logs.iterdir()
        os.utime(first, (0, 0))
        for number in range(cli.LOGS_KEPT + 5):
            (logs / f"{number}.log").touch()
        assert run(*FAKE, "mount", tmp_path / "other").returncode == 0
        assert first.exists()
        assert len(list(logs.iterdir())) == cli.LOGS_KEPT + 1
    finally:
        for path in (unstarted.path, tmp_path / "other"):
            run(*FAKE, "unmount", path)


def test_mount_keeps_none_of_its_parents_descriptors(unstarted: MountedDaemon) -> None:
    unstarted.path.mkdir()
    script = f"exec 9>&1; {' '.join(FAKE)} mount {unstarted.path} >&2"
    # The command substitution would wait for a daemon that holds descriptor 9.
    assert run("bash", "-c", f"echo got-$({script})").stdout == "got-\n"
    assert run(*FAKE, "unmount", unstarted.path).returncode == 0


@pytest.mark.parametrize("foreground", [[], ["--foreground"]], ids=["background", "foreground"])
def test_a_daemon_that_cannot_start_says_why(
    unstarted: MountedDaemon, foreground: list[str]
) -> None:
    unstarted.path.mkdir()
    done = run(*FAKE, "mount", unstarted.path, "--kernel", "/no/such/kernel", *foreground)
    assert done.returncode == 1
    assert done.stderr == "ftracefs: /no/such/kernel: no such kernel\n"
    assert not unstarted.is_mounted()


def test_a_fuse_that_cannot_mount_says_why(unstarted: MountedDaemon) -> None:
    unstarted.path.mkdir()
    # Without capabilities libfuse asks fusermount, which then lacks them as well.
    drop = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
    if os.geteuid() != 0 or run(*drop, "true").returncode != 0:
        pytest.skip("setpriv cannot take CAP_SYS_ADMIN away")
    done = run(*drop, *FAKE, "mount", unstarted.path)
    assert done.returncode == 1
    assert "no right to mount" in done.stderr


def test_a_live_mount_is_not_mounted_over(daemon: MountedDaemon) -> None:
    done = run(*FAKE, "mount", daemon.path)
    assert done.returncode == 1
    assert "is mounted there already" in done.stderr
    assert (daemon.path / "README").read_text() == "a fake\n"


def test_a_directory_with_something_in_it_is_refused(fuse: None, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = run(*FAKE, "mount", tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path} is not empty" in done.stderr


def test_relative_paths_and_blanks_in_them_are_fine(fuse: None, tmp_path: Path) -> None:
    path = tmp_path / "my traces"
    path.mkdir()
    script = """
        cd "$1" && shift && "$@" mount "my traces" && cat "my traces/README"
        "$@" unmount "my traces" """
    done = run("bash", "-c", script, "-", tmp_path, *FAKE)
    assert "a fake" in done.stdout
    assert done.returncode == 0, done.stderr
    assert mountpoint.mounted_at(path) is None


def test_the_daemon_starts_from_a_directory_that_has_no_ftracefs(
    fuse: None, tmp_path: Path
) -> None:
    with MountedDaemon(tmp_path, command=[sys.executable, *FAKE[1:]]) as daemon:
        assert Path(f"/proc/{daemon.process.pid}/cwd").readlink() == Path("/")
