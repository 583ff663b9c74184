"""Reads that sleep: what wakes them, what ends them, and what they leave alone."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.daemon import SOON, TIMEOUT, run, wait_until_reading
from support.fake_daemon import LINES


@contextmanager
def reader(*command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program asleep in a read; ended by pid if the test does not."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE)
    try:
        wait_until_reading(process)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=TIMEOUT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_sleeping_reader_at_once(tracing: Path, number: signal.Signals) -> None:
    with reader("cat", tracing / "trace_pipe") as cat:
        began = time.monotonic()
        cat.send_signal(number)
        assert cat.wait(TIMEOUT) == -number
        assert time.monotonic() - began < SOON


def test_a_killed_reader_leaves_the_file_to_the_next_one(tracing: Path) -> None:
    for _ in range(5):
        with reader("cat", tracing / "trace_pipe") as cat:
            cat.kill()
            assert cat.wait(TIMEOUT) == -signal.SIGKILL


def test_a_stopped_reader_goes_on(tracing: Path) -> None:
    with reader("cat", tracing / "trace_pipe") as cat:
        cat.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, cat.pid, os.WSTOPPED | os.WNOWAIT)
        cat.send_signal(signal.SIGCONT)
        wait_until_reading(cat)
        (tracing / "trace_marker").write_bytes(b"after it\n")
        assert cat.stdout is not None
        assert cat.stdout.readline() == b"after it\n"


def test_a_sleeping_reader_wakes_within_milliseconds(tracing: Path) -> None:
    delays = []
    with (
        reader("cat", tracing / "trace_pipe") as cat,
        (tracing / "trace_marker").open("wb") as marker,
    ):
        assert cat.stdout is not None
        for number in range(20):
            began = time.monotonic()
            marker.write(b"%d\n" % number)
            marker.flush()
            assert cat.stdout.readline() == b"%d\n" % number
            delays.append(time.monotonic() - began)
    # A reader that nobody wakes comes back after 20 ms of polling; a busy machine may lose some.
    assert sorted(delays)[len(delays) // 4] < 0.015


def test_closing_one_of_two_descriptors_does_not_end_the_reader(tracing: Path) -> None:
    first = os.open(tracing / "trace_pipe", os.O_RDONLY)
    second = os.dup(first)
    os.close(first)
    try:
        (tracing / "trace_marker").write_bytes(b"still here\n")
        assert os.read(second, 100) == b"still here\n"
        with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
            os.open(tracing / "trace_pipe", os.O_RDONLY)
    finally:
        os.close(second)


def test_thirty_sleeping_readers_disturb_nobody(tracing: Path) -> None:
    readers = [
        subprocess.Popen(["cat", tracing / "shared_pipe"], stdout=subprocess.DEVNULL)
        for _ in range(30)
    ]
    try:
        for process in readers:
            wait_until_reading(process)
        began = time.monotonic()
        assert run("ls", "-l", tracing).returncode == 0
        assert run("cat", tracing / "README").stdout == "a fake\n"
        assert time.monotonic() - began < SOON
        began = time.monotonic()
        for process in readers:
            process.terminate()
        assert [process.wait(TIMEOUT) for process in readers] == [-signal.SIGTERM] * 30
        assert time.monotonic() - began < SOON
    finally:
        for process in readers:
            process.kill()
            process.wait(TIMEOUT)


def test_nonblock_is_the_descriptors_at_the_time_of_the_read(tracing: Path) -> None:
    descriptor = os.open(tracing / "trace_pipe", os.O_RDONLY)
    try:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        with pytest.raises(BlockingIOError):
            os.read(descriptor, 100)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
        with reader("cat", tracing / "shared_pipe"):
            (tracing / "trace_marker").write_bytes(b"x")
            assert os.read(descriptor, 100) == b"x"
    finally:
        os.close(descriptor)


def test_a_pipe_cannot_be_sought(tracing: Path) -> None:
    descriptor = os.open(tracing / "trace_pipe", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ESPIPE)):
            os.lseek(descriptor, 0, os.SEEK_SET)
    finally:
        os.close(descriptor)


def test_a_text_made_on_the_readers_thread_is_whole_by_any_piece(tracing: Path) -> None:
    for size in (1, 7, 4096):
        done = subprocess.run(
            ["dd", f"if={tracing / 'lines'}", f"bs={size}"],
            capture_output=True,
            timeout=TIMEOUT,
            check=True,
        )
        assert done.stdout == LINES


def test_a_sleeping_reader_in_a_directory_does_not_hold_up_its_removal(tracing: Path) -> None:
    (tracing / "instances" / "a").mkdir()
    with reader("cat", tracing / "instances" / "a" / "trace_pipe"):
        done = run("rmdir", tracing / "instances" / "a")
        assert done.returncode == 1
        assert os.strerror(errno.EBUSY) in done.stderr
        assert run("ls", tracing / "instances" / "a").stdout == "trace_marker\ntrace_pipe\n"


def test_the_caller_is_known_by_pid_and_user(tracing: Path) -> None:
    done = run("sh", "-c", f"echo $$; exec cat {tracing / 'who'}")
    pid, who = done.stdout.splitlines()
    assert who == f"{pid} {os.getuid()} {os.getgid()}"
