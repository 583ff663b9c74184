"""poll, select and epoll on the files that make a reader wait."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.daemon import SOON, TIMEOUT, MountedDaemon, run, wait_until, wait_until_reading

READABLE = select.POLLIN | select.POLLRDNORM
ALL = READABLE | select.POLLOUT | select.POLLWRNORM
MILLISECONDS = TIMEOUT * 1000


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MountedDaemon]:
    """A mount with the built-in kernel, where nobody records but `trace_marker`."""
    from support.mounts import require_fuse

    require_fuse()
    with MountedDaemon(tmp_path_factory.mktemp("kernel"), "--isolated") as daemon:
        yield daemon


@pytest.fixture
def tracing(kernel: MountedDaemon) -> Path:
    """That mount, its buffer empty and its settings those after boot."""
    (kernel.path / "tracing_on").write_text("1\n")
    (kernel.path / "options" / "block").write_text("0\n")
    (kernel.path / "buffer_percent").write_text("0\n")
    (kernel.path / "trace").write_text("\n")
    return kernel.path


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def mark(tracing: Path, text: str) -> None:
    (tracing / "trace_marker").write_text(text)


def poller(descriptor: int, events: int = READABLE) -> select.poll:
    poll = select.poll()
    poll.register(descriptor, events)
    return poll


def polled(path: Path) -> subprocess.Popen[bytes]:
    """A process that polls the file until it is readable, then reads and prints it once."""
    program = (
        "import os, select, sys\n"
        "descriptor = os.open(sys.argv[1], os.O_RDONLY)\n"
        "poll = select.poll()\n"
        "poll.register(descriptor, select.POLLIN)\n"
        "assert poll.poll()[0][1] == select.POLLIN\n"
        "os.write(1, os.read(descriptor, 4096))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )


def is_polling(pid: int) -> bool:
    """Whether the process sleeps in poll(2) (x86-64: system call 7)."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").startswith("7 ")
    except OSError:
        return False


def test_an_empty_trace_pipe_is_not_ready_and_a_record_makes_it_so(tracing: Path) -> None:
    with opened(tracing / "trace_pipe") as pipe:
        assert poller(pipe).poll(0) == []
        mark(tracing, "here\n")
        assert poller(pipe, ALL).poll(0) == [(pipe, READABLE)]
        assert b"tracing_mark_write: here" in os.read(pipe, 4096)
        assert poller(pipe).poll(0) == []


def test_a_sleeping_poll_is_woken_by_a_record(tracing: Path) -> None:
    with polled(tracing / "trace_pipe") as process:
        wait_until(lambda: is_polling(process.pid), "it polls")
        mark(tracing, "wake up\n")
        output, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert output.endswith(b"tracing_mark_write: wake up\n")


def test_select_is_woken_by_a_record(tracing: Path) -> None:
    with opened(tracing / "trace_pipe") as pipe:
        assert select.select([pipe], [], [], 0) == ([], [], [])
        writer = threading.Timer(0.05, mark, (tracing, "x"))
        writer.start()
        assert select.select([pipe], [], [], TIMEOUT) == ([pipe], [], [])
        writer.join()


@pytest.mark.parametrize("extra", [0, select.EPOLLET, select.EPOLLONESHOT])
def test_epoll_tells_of_every_record(tracing: Path, extra: int) -> None:
    with opened(tracing / "trace_pipe") as pipe, select.epoll() as epoll:
        epoll.register(pipe, select.EPOLLIN | extra)
        for number in range(100):
            assert epoll.poll(0) == []
            writer = threading.Thread(target=mark, args=(tracing, f"number {number}"))
            writer.start()
            assert epoll.poll(TIMEOUT) == [(pipe, select.EPOLLIN)]
            writer.join()
            assert f"number {number}\n".encode() in os.read(pipe, 65536)
            if extra == select.EPOLLET:
                epoll.poll(0)  # of the edge that came while this one was looked at
            if extra == select.EPOLLONESHOT:
                epoll.modify(pipe, select.EPOLLIN | extra)


def test_an_edge_triggered_epoll_tells_of_more_though_nothing_was_read(tracing: Path) -> None:
    with opened(tracing / "trace_pipe") as pipe, select.epoll() as epoll:
        epoll.register(pipe, select.EPOLLIN | select.EPOLLET)
        for number in range(10):
            mark(tracing, f"{number}\n")
            assert epoll.poll(TIMEOUT) == [(pipe, select.EPOLLIN)]
            assert epoll.poll(0) == []


def test_no_wake_up_is_lost_between_a_look_and_the_sleep(tracing: Path) -> None:
    lines = 300
    received = b""
    with opened(tracing / "trace_pipe") as pipe:
        poll = poller(pipe)
        script = f'for i in {{1..{lines}}}; do echo "line $i" > "{tracing}/trace_marker"; done'
        with subprocess.Popen(["bash", "-c", script]) as writer:
            while received.count(b"\n") < lines:
                assert poll.poll(MILLISECONDS), received[-200:]
                received += os.read(pipe, 65536)
            assert writer.wait(TIMEOUT) == 0
    assert [line.split(b": ")[-1] for line in received.splitlines()] == [
        b"line %d" % number for number in range(1, lines + 1)
    ]


def test_a_cpus_pipe_is_ready_for_its_own_records_only(tracing: Path) -> None:
    with (
        opened(tracing / "per_cpu/cpu0/trace_pipe") as first,
        opened(tracing / "per_cpu/cpu1/trace_pipe") as second,
    ):
        mark(tracing, "on cpu 0\n")  # where the one task of an isolated mount lives
        assert poller(first).poll(0) == [(first, READABLE)]
        assert poller(second).poll(0) == []


def test_a_raw_pipe_wakes_those_who_poll_it(tracing: Path) -> None:
    raw = tracing / "per_cpu/cpu0/trace_pipe_raw"
    with polled(raw) as process:
        wait_until(lambda: is_polling(process.pid), "it polls")
        mark(tracing, "wake up\n")
        page, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert len(page) == 4096
    assert b"wake up\n" in page


def test_a_cpus_pipe_is_ready_when_buffer_percent_of_it_is_written(tracing: Path) -> None:
    (tracing / "buffer_size_kb").write_text("16\n")  # five pages
    (tracing / "buffer_percent").write_text("50\n")
    (tracing / "trace").write_text("\n")
    with (
        opened(tracing / "per_cpu/cpu0/trace_pipe_raw") as raw,
        opened(tracing / "per_cpu/cpu0/trace_pipe") as pipe,
    ):
        for _ in range(8):  # four to a page
            mark(tracing, "x" * 900)
            assert poller(raw).poll(0) == poller(pipe).poll(0) == []
        mark(tracing, "x" * 900)
        assert poller(raw).poll(MILLISECONDS) == [(raw, READABLE)]
        assert poller(pipe).poll(MILLISECONDS) == [(pipe, READABLE)]
        os.read(pipe, 1 << 17)
        assert poller(raw).poll(0) == []
    (tracing / "buffer_size_kb").write_text("1408\n")


def test_with_the_option_block_a_pipe_is_always_ready(tracing: Path) -> None:
    with opened(tracing / "trace_pipe") as pipe:
        (tracing / "options" / "block").write_text("1\n")
        assert poller(pipe).poll(0) == [(pipe, READABLE)]
        with pytest.raises(BlockingIOError):
            os.read(pipe, 1)


def test_a_file_that_never_makes_anybody_wait_is_always_ready(tracing: Path) -> None:
    with opened(tracing / "current_tracer") as descriptor:
        assert poller(descriptor, ALL).poll(0) == [(descriptor, ALL)]


def test_two_who_poll_one_open_file_are_both_woken(tracing: Path) -> None:
    with opened(tracing / "trace_pipe") as pipe:
        found: list[list[tuple[int, int]]] = []
        threads = [
            threading.Thread(target=lambda: found.append(poller(pipe).poll(MILLISECONDS)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        mark(tracing, "for both")
        for thread in threads:
            thread.join(TIMEOUT)
        assert found == [[(pipe, READABLE)]] * 2


def test_thirty_who_poll_and_thirty_who_read_disturb_nobody(tracing: Path) -> None:
    raw = tracing / "per_cpu/cpu1/trace_pipe_raw"  # nothing is recorded there
    readers = [subprocess.Popen(["cat", raw], stdout=subprocess.DEVNULL) for _ in range(30)]
    descriptors = [os.open(raw, os.O_RDONLY) for _ in range(30)]
    poll = select.poll()
    try:
        for descriptor in descriptors:
            poll.register(descriptor, READABLE)
        for process in readers:
            wait_until_reading(process)
        waiting = threading.Thread(target=poll.poll, args=(500,))
        waiting.start()
        began = time.monotonic()
        assert run("ls", "-l", tracing).returncode == 0
        assert run("cat", tracing / "current_tracer").stdout == "nop\n"
        mark(tracing, "for somebody else\n")
        assert "for somebody else" in run("cat", tracing / "trace").stdout
        assert time.monotonic() - began < SOON
        waiting.join(TIMEOUT)
        began = time.monotonic()
        for process in readers:
            process.terminate()
        assert [process.wait(TIMEOUT) for process in readers] == [-signal.SIGTERM] * 30
        assert time.monotonic() - began < SOON
    finally:
        for process in readers:
            process.kill()
            process.wait(TIMEOUT)
        for descriptor in descriptors:
            os.close(descriptor)


def test_who_polls_is_woken_when_the_daemon_ends(fuse: None, tmp_path: Path) -> None:
    with MountedDaemon(tmp_path, "--isolated") as daemon:
        with polled(daemon.path / "trace_pipe") as process:
            wait_until(lambda: is_polling(process.pid), "it polls")
            daemon.process.terminate()
            output, _ = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, output) == (0, b"")
        assert daemon.process.wait(TIMEOUT) == 0


def test_a_killed_poller_leaves_the_file_to_the_next_one(tracing: Path) -> None:
    for _ in range(5):
        with polled(tracing / "trace_pipe") as process:
            wait_until(lambda: is_polling(process.pid), "it polls")
            process.kill()
            assert process.wait(TIMEOUT) == -signal.SIGKILL
    mark(tracing, "still works\n")
    with opened(tracing / "trace_pipe") as pipe:
        assert poller(pipe).poll(0) == [(pipe, READABLE)]
