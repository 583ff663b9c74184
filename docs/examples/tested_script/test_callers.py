"""Tests of callers.sh: copy both files, `pip install ftracefs`, run pytest."""

import signal
from pathlib import Path

import pytest

from ftracefs.testing import MountedTracefs

CALLERS = Path(__file__).with_name("callers.sh")


def test_it_tells_who_reads(tracefs: MountedTracefs) -> None:
    done = tracefs.run(CALLERS, "vfs_read", "cat", "README")
    counts = {caller: int(count) for count, caller in map(str.split, done.stdout.splitlines())}
    assert counts["ksys_read"] >= 2  # the file, and its end


@pytest.mark.tracefs(isolated=True, clock="virtual")
def test_it_counts_every_caller_and_no_other(tracefs: MountedTracefs) -> None:
    # Nothing runs in an isolated kernel but what it is told to run, so the counts are exact.
    calls = "echo 'lcm 4 6 x3' > emulator/call; echo 'gcd 4 6' > emulator/call"
    lines = tracefs.run(CALLERS, "gcd", "sh", "-c", calls).stdout.splitlines()
    assert lines[0].split() == ["3", "lcm"]
    assert len(lines) == 2  # and the one who called gcd itself


def test_a_function_of_a_module_can_be_asked_for(tracefs: MountedTracefs) -> None:
    assert tracefs.run(CALLERS, "ext4_file_read_iter", "true").stdout == ""


def test_a_function_that_is_none_is_refused(tracefs: MountedTracefs) -> None:
    done = tracefs.run(CALLERS, "no_such_function", "true", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "callers.sh: no_such_function cannot be traced\n"
    assert tracefs.read("current_tracer") == "nop\n"


@pytest.mark.parametrize("command", ["true", "false", "no_such_command"])
def test_tracing_is_as_before_afterwards(tracefs: MountedTracefs, command: str) -> None:
    tracefs.run(CALLERS, "vfs_read", command)
    assert tracefs.read("current_tracer") == "nop\n"
    assert tracefs.read("set_ftrace_filter") == "#### all functions enabled ####\n"
    assert tracefs.read("tracing_on") == "1\n"


def test_and_so_it_is_after_an_interrupt(tracefs: MountedTracefs) -> None:
    script = tracefs.popen(CALLERS, "vfs_read", "sh", "-c", "echo traced >&2; exec sleep 1000")
    assert script.stderr is not None
    assert script.stderr.readline() == "traced\n"
    tracefs.interrupt(script)
    assert script.wait(30) in (130, -signal.SIGINT)
    assert tracefs.read("current_tracer") == "nop\n"
    assert tracefs.read("set_ftrace_filter") == "#### all functions enabled ####\n"
