"""Writes, and what an error of one looks like from a shell."""

from __future__ import annotations

import errno
import fcntl
import os
import termios
from pathlib import Path

import pytest
from support.daemon import MountedDaemon, run

ERRNOS = ["EINVAL", "EBUSY", "ENODEV", "ENOMEM", "EBADF", "EPERM", "ESRCH", "EOVERFLOW", "ENOSPC"]


@pytest.mark.parametrize("name", ERRNOS)
def test_an_errno_arrives_at_the_writer(tracing: Path, name: str) -> None:
    done = run("bash", "-c", f"echo {name} > {tracing / 'failing'}")
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"echo: write error: {os.strerror(getattr(errno, name))}")


@pytest.mark.parametrize("bug", ["bug", "exit", "nothing"])
def test_a_bug_in_a_file_is_eio_and_the_daemon_lives(daemon: MountedDaemon, bug: str) -> None:
    daemon.expects_traceback = True
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        (daemon.path / "failing").write_text(bug)
    assert (daemon.path / "README").read_text() == "a fake\n"
    assert "Traceback" in daemon.log_text()


def test_a_read_that_gives_too_much_is_a_bug_too(daemon: MountedDaemon) -> None:
    daemon.expects_traceback = True
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        (daemon.path / "failing").read_bytes()
    assert (daemon.path / "README").read_text() == "a fake\n"


def test_a_shell_writes_word_by_word(tracing: Path) -> None:
    assert run("bash", "-c", f"echo 'one two three' > {tracing / 'set_ftrace_filter'}").stderr == ""
    assert (tracing / "set_ftrace_filter").read_text() == "one\ntwo\nthree\n"


def test_words_before_a_bad_one_stay(tracing: Path) -> None:
    done = run("bash", "-c", f"echo 'one bad two' > {tracing / 'set_ftrace_filter'}")
    assert done.stderr.strip().endswith("write error: Invalid argument")
    assert (tracing / "set_ftrace_filter").read_text() == "one\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="root only may open a read-only file for writing")
def test_root_may_open_a_read_only_file_for_writing_but_not_write(tracing: Path) -> None:
    descriptor = os.open(tracing / "README", os.O_WRONLY | os.O_TRUNC)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            os.write(descriptor, b"x")
    finally:
        os.close(descriptor)


def test_truncate_does_nothing(tracing: Path) -> None:
    path = tracing / "set_ftrace_filter"
    path.write_text("one\n")
    os.truncate(path, 0)
    with path.open("r+") as opened:
        os.ftruncate(opened.fileno(), 0)
    assert path.read_text() == "one\n"


def test_sync_is_invalid(tracing: Path) -> None:
    with (tracing / "set_ftrace_filter").open("r+") as opened:
        for sync in (os.fsync, os.fdatasync):
            with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
                sync(opened.fileno())


def test_a_file_is_no_terminal(tracing: Path) -> None:
    with (tracing / "README").open() as opened:
        with pytest.raises(OSError, match=os.strerror(errno.ENOTTY)):
            fcntl.ioctl(opened, termios.TCGETS, bytes(64))
        assert not os.isatty(opened.fileno())
