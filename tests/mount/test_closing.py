"""close(2) is answered before the daemon hears of it: nobody may notice."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.daemon import SOON, TIMEOUT, run

from ftracefs.mount.handles import GRACE_ON_ITS_WAY


def test_an_exclusive_file_opens_500_times_in_a_row(tracing: Path) -> None:
    for _ in range(500):
        os.close(os.open(tracing / "trace_pipe", os.O_RDONLY))


def test_an_exclusive_file_opens_for_one_process_after_another(tracing: Path) -> None:
    script = f"for i in $(seq 100); do : < {tracing / 'trace_pipe'} || exit 1; done"
    assert run("bash", "-c", script).returncode == 0


def test_a_reader_that_stays_is_in_the_way_and_told_of_soon(tracing: Path) -> None:
    descriptor = os.open(tracing / "trace_pipe", os.O_RDONLY)
    os.close(os.dup(descriptor))  # looks like the beginning of the end
    try:
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
                os.open(tracing / "trace_pipe", os.O_RDONLY)
            assert time.monotonic() - began < SOON
    finally:
        os.close(descriptor)


def test_what_was_written_shows_at_the_next_read_200_times(tracing: Path) -> None:
    path = tracing / "set_ftrace_filter"
    script = f"""
        for i in $(seq 200); do
            echo word$i > {path}
            read -r word < {path}
            [ "$word" = word$i ] || {{ echo "$i: $word"; exit 1; }}
        done"""
    done = run("bash", "-c", script)
    assert (done.returncode, done.stdout) == (0, "")


def test_an_emptied_file_is_empty_at_the_next_read_200_times(tracing: Path) -> None:
    path = tracing / "set_ftrace_filter"
    script = f"""
        for i in $(seq 200); do
            echo word > {path}
            > {path}
            read -r word < {path}
            [ "$word" = all ] || {{ echo "$i: $word"; exit 1; }}
        done"""
    done = run("bash", "-c", script)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_word_replaces_the_list_that_truncation_was_to_empty(tracing: Path) -> None:
    path = tracing / "set_ftrace_filter"
    path.write_text("one two ")
    run("bash", "-c", f"echo three > {path}")
    assert path.read_text() == "three\n"
    run("bash", "-c", f"echo four >> {path}")
    assert path.read_text() == "three\nfour\n"


def test_a_writer_that_stays_delays_nobody(tracing: Path) -> None:
    path = tracing / "set_ftrace_filter"
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        delays = []
        for _ in range(20):
            os.close(os.dup(descriptor))  # looks like the beginning of the end
            os.write(descriptor, b"word ")
            os.close(os.dup(descriptor))
            began = time.monotonic()
            (tracing / "README").read_text()
            delays.append(time.monotonic() - began)
        assert min(delays) < GRACE_ON_ITS_WAY
    finally:
        os.close(descriptor)


def test_a_shell_that_writes_into_a_file_waits_for_none_of_its_own_descriptors(
    tracing: Path,
) -> None:
    # It opens the file, makes a second descriptor of it, closes the first, and asks for its length.
    script = f"""
        for i in $(seq 5); do
            began=$EPOCHREALTIME
            echo word$i > {tracing / "set_ftrace_filter"}
            echo $((${{EPOCHREALTIME/[.,]/}} - ${{began/[.,]/}}))
        done"""
    done = run("bash", "-c", script)
    assert min(int(line) for line in done.stdout.split()) < GRACE_ON_ITS_WAY * 1e6


def test_a_directory_goes_right_after_its_last_file_was_closed(tracing: Path) -> None:
    directory = tracing / "instances" / "a"
    for _ in range(200):
        directory.mkdir()
        os.close(os.open(directory / "trace_pipe", os.O_RDONLY))
        directory.rmdir()


def test_two_processes_that_close_and_open_at_the_same_time_see_no_false_error(
    tracing: Path,
) -> None:
    program = (
        "import os, sys\n"
        "for _ in range(200):\n"
        "    os.close(os.open(sys.argv[1], os.O_RDONLY))\n"
        "    open(sys.argv[2], 'w').close()\n"
    )
    for name in ("a", "b"):
        (tracing / "instances" / name).mkdir()
    both = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                program,
                tracing / "instances" / name / "trace_pipe",
                tracing / "set_ftrace_filter",
            ]
        )
        for name in ("a", "b")
    ]
    try:
        assert [process.wait(TIMEOUT) for process in both] == [0, 0]
    finally:
        for process in both:
            process.kill()
            process.wait(TIMEOUT)
