"""A distribution's kernel in virtual time: the same commands give the same bytes."""

from __future__ import annotations

import logging
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path

import pytest
from support.linux_session import LinuxShell, switched_on

from ftracefs.linux_session import NO_CALLERS

pytestmark = pytest.mark.timeout(600)

WORK = (
    "for i in 1 2; do seq 20 | md5sum; sleep 0.1; done; (while :; do :; done) & sleep 0.05;"
    " kill $!; cat /proc/stat /proc/interrupts /proc/uptime; head -c 16 /dev/urandom | od -x; date"
)


def script(linux: LinuxShell) -> dict[str, str]:
    """What there is to see in the end."""
    seen = {"version": linux.sh("cat /proc/version /proc/uptime")}
    linux.echo("24000", "buffer_size_kb")
    for tracer in ("function_graph", "function"):
        linux.echo(tracer, "current_tracer")
        seen[f"output of {tracer}"] = linux.sh(WORK)
        linux.echo("0", "tracing_on")
        seen[tracer] = linux.cat("trace")
        linux.echo("1", "tracing_on")
        linux.echo("nop", "current_tracer")
    for subsystem in ("sched", "irq", "timer", "syscalls"):
        linux.echo(f"{subsystem}:*", "set_event", append=True)
    seen["output of events"] = linux.sh("seq 20 | md5sum; sleep 0.1")
    linux.echo("gcd 12 18", "emulator/call")
    linux.echo("0", "events/enable")
    seen["events"] = linux.cat("trace")
    seen["console"] = linux.cat("emulator/console")
    return seen


def assert_same(first: dict[str, str], second: dict[str, str]) -> None:
    """Without a diff of some hundred thousand lines."""
    for name, text in first.items():
        pairs = enumerate(zip_longest(text.splitlines(), second[name].splitlines()))
        different = next((found for found in pairs if found[1][0] != found[1][1]), None)
        assert different is None, name
        assert text == second[name], name


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    with switched_on(clock="virtual") as linux:
        return script(linux)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Others who want the processor."""
    with ExitStack() as stack:
        for _ in range(processes):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        yield


@contextmanager
def stops(linux: LinuxShell, seed: int) -> Iterator[list[int]]:
    """Somebody who has the machine again and again, and takes it from the guest."""
    rng = random.Random(seed)
    end, ticks = threading.Event(), [0]

    def stop() -> None:
        while not end.wait(rng.random() * 0.002):
            ticks.append(linux.machine.run(lambda: linux.session.machine.time.tsc))

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield ticks
    finally:
        end.set()
        thread.join()


def test_the_trace_is_one_of_what_was_asked_for(expected: dict[str, str]) -> None:
    assert " md5sum-" in expected["function"]
    assert expected["function"].count("\n") > 100_000
    assert "vfs_read() {" in expected["function_graph"]
    assert ": sched_switch: " in expected["events"]
    assert expected["output of function"] != expected["output of function_graph"]  # as time goes on


def test_a_guest_that_is_stopped_all_the_time_on_a_busy_host_does_the_same(
    expected: dict[str, str],
) -> None:
    with switched_on(clock="virtual") as linux, load(3), stops(linux, 1) as ticks:
        assert linux.session.guest.was_restored
        assert_same(expected, script(linux))
        assert len(set(ticks)) > 100


def test_a_guest_that_has_booted_elsewhere_does_the_same(
    expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with load(1), switched_on(clock="virtual") as linux:
        assert not linux.session.guest.was_restored
        assert_same(expected, script(linux))


# --- how time goes --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared() -> Iterator[LinuxShell]:
    with switched_on(clock="virtual") as made:
        yield made


@pytest.fixture
def linux(shared: LinuxShell) -> Iterator[LinuxShell]:
    yield shared
    shared.session.reset()
    assert shared.session.machine.failure is None


def now(linux: LinuxShell) -> float:
    return linux.machine.run(lambda: linux.session.machine.time.seconds())


def uptime(linux: LinuxShell) -> float:
    return float(linux.sh("cat /proc/uptime").split()[0])


def test_time_stands_still_while_nobody_wants_anything(linux: LinuxShell) -> None:
    linux.sh("true")
    before = now(linux)
    time.sleep(0.3)  # not for synchronisation: a span in which nothing is to happen
    assert now(linux) == before


def test_idle_time_does_not_last(linux: LinuxShell) -> None:
    before, began = uptime(linux), time.monotonic()
    linux.sh("sleep 1000")
    assert 1000 <= uptime(linux) - before < 1010
    assert time.monotonic() - began < 100


def test_what_is_left_running_goes_on_while_others_are_asked(linux: LinuxShell) -> None:
    linux.sh("(while :; do :; done) & echo $! > /tmp/spins; (sleep 3; echo > /tmp/slept) &")
    assert linux.sh("ls /tmp/slept 2> /dev/null") == ""
    assert linux.sh("sleep 4; ls /tmp/slept; kill $(cat /tmp/spins)") == "/tmp/slept\n"
    assert linux.sh("rm /tmp/slept; echo here") == "here\n"


def test_the_date_is_always_the_same(linux: LinuxShell) -> None:
    assert linux.sh("date -u +%Y-%m-%d") == "2026-01-01\n"


@pytest.mark.parametrize("command", ["while :; do sleep 1; done", "while :; do :; done"])
def test_a_writer_who_is_interrupted_ends_his_command(linux: LinuxShell, command: str) -> None:
    linux.interrupt(command)
    assert linux.sh("echo here") == "here\n"


def test_functions_are_called_in_virtual_time_as_well(linux: LinuxShell) -> None:
    linux.echo("gcd", "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    linux.echo("gcd 12 18 x3", "emulator/call")
    assert linux.cat("trace").count(": gcd <-") == 3
    before = now(linux)
    assert linux.sh("echo here") == "here\n"
    assert now(linux) > before


def test_pids_are_the_guests_own_and_markers_of_nobody(linux: LinuxShell) -> None:
    shell = linux.sh("echo $$").strip()
    linux.echo(shell, "set_ftrace_pid")
    linux.echo("vfs_read", "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    linux.echo("hello", "trace_marker")
    linux.sh("read version < /proc/version; cat /proc/version")
    records = re.findall(r"^ *(\S+)-(\d+) .*: (\S+)(?: <-|: )", linux.cat("trace"), re.M)
    assert records[0] == ("<idle>", "0", "tracing_mark_write")
    assert {(pid, function) for _, pid, function in records[1:]} == {(shell, "vfs_read")}


@pytest.mark.parametrize(("clock", "told"), [("virtual", 1), ("real", 0)])
def test_that_callers_do_not_live_in_the_guest_is_told(
    caplog: pytest.LogCaptureFixture, clock: str, told: int
) -> None:
    with caplog.at_level(logging.WARNING), switched_on(clock=clock):
        pass
    assert [record.message for record in caplog.records].count(NO_CALLERS) == told
