"""Calls of a booted kernel's functions in process context, by processes that the host commands."""

from __future__ import annotations

import errno
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.linux_kernel import require_linux
from support.linux_session import LinuxShell, switched_on

from emulated_kernel.errors import CallInterrupted, GuestFault, GuestTimeout
from emulated_kernel.linux import load_vmlinuz
from emulated_kernel.linux.agent import AgentProcess
from emulated_kernel.linux.guest import start
from emulated_kernel.linux.initramfs import init_code
from ftracefs.errors import TracefsError

pytestmark = pytest.mark.timeout(300)

UNMAPPED = 0xDEAD000000000100


@pytest.fixture
def linux(booted: LinuxShell) -> Iterator[LinuxShell]:
    """The guest with nothing traced."""
    yield booted
    booted.session.reset()
    assert booted.session.machine.failure is None


def call(linux: LinuxShell, function: str, *arguments: int, count: int = 1) -> int:
    session = linux.session
    address = session.vmlinux.symbol(function)
    return session.guest.agents.call_in_process(address, *arguments, count=count)


def agents(linux: LinuxShell) -> list[int]:
    """The pids of the agent's processes, by the guest's own account."""
    return [int(line.split()[0]) for line in linux.sh("ps").splitlines() if "{ftracefs}" in line]


def test_a_function_is_called_with_six_arguments_and_answers(linux: LinuxShell) -> None:
    assert call(linux, "gcd", 12, 18) == 6
    assert linux.machine.run(lambda: call(linux, "gcd", 144, 60)) == 12


def test_a_function_is_called_as_often_as_is_asked(linux: LinuxShell) -> None:
    linux.echo("gcd", "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    call(linux, "gcd", 12, 18, count=1000)
    pids = re.findall(r"^ *ftracefs-(\d+) .*: gcd <-", linux.cat("trace"), re.M)
    assert len(pids) == 1000
    assert {int(pid) for pid in pids} <= set(agents(linux))


@pytest.mark.parametrize("has_machine", [False, True])
def test_a_function_that_sleeps_comes_back(linux: LinuxShell, has_machine: bool) -> None:
    began = time.monotonic()
    if has_machine:
        linux.machine.run(lambda: call(linux, "msleep", 50))
    else:
        call(linux, "msleep", 50)
    assert time.monotonic() - began > 0.049


def test_the_guest_goes_on_while_a_function_sleeps(linux: LinuxShell) -> None:
    linux.sh("> /tmp/beats; (while [ ! -e /tmp/stop ]; do usleep 1000; echo; done >> /tmp/beats) &")
    before = int(linux.sh("wc -l < /tmp/beats"))
    call(linux, "msleep", 300)
    assert int(linux.sh("touch /tmp/stop; wc -l < /tmp/beats")) > before + 2


def test_a_fault_ends_the_process_that_called_and_no_other(linux: LinuxShell) -> None:
    assert call(linux, "gcd", 12, 18) == 6
    before = agents(linux)
    linux.sh("dmesg -c > /dev/null")
    with pytest.raises(GuestFault, match="Oops"):
        call(linux, "strlen", UNMAPPED)
    log = linux.sh("dmesg")
    (died,) = re.findall(r"PID: (\d+) Comm: ftracefs", log)
    assert int(died) in before
    assert len(re.findall(r"Oops|general protection fault", log)) == 1
    assert "RIP: 0010:strlen" in log
    assert call(linux, "gcd", 12, 18) == 6
    assert int(died) not in agents(linux)
    assert len(agents(linux)) == len(before)


def test_many_faults_leave_as_many_processes_as_before(linux: LinuxShell) -> None:
    call(linux, "gcd", 12, 18)
    before = len(agents(linux))
    for _ in range(10):
        with pytest.raises(GuestFault):
            call(linux, "strlen", UNMAPPED)
        assert call(linux, "gcd", 12, 18) == 6
    assert len(agents(linux)) == before


@pytest.mark.parametrize("function", ["__delay", "msleep"])
def test_a_function_that_does_not_come_back_is_given_up(
    linux: LinuxShell, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulated_kernel.linux.agent.CALL_TIMEOUT_S", 0.3)
    linux.echo(f"{function} gcd", "set_ftrace_filter")
    linux.echo("function_graph", "current_tracer")
    for _ in range(3):
        with pytest.raises(GuestTimeout):
            call(linux, function, 0x7FFFFFFF if function == "msleep" else 0xFFFFFFFFFFFF)
        assert call(linux, "gcd", 12, 18) == 6
    assert linux.sh("echo here") == "here\n"
    assert "scheduling while atomic" not in linux.sh("dmesg")


def test_the_agent_comes_back_when_somebody_kills_it(linux: LinuxShell) -> None:
    before = agents(linux)
    assert len(before) > 1
    linux.sh("kill -9 " + " ".join(map(str, before)))
    assert call(linux, "gcd", 12, 18) == 6
    with pytest.raises(GuestFault):
        call(linux, "strlen", UNMAPPED)
    assert call(linux, "gcd", 12, 18) == 6
    assert min(before) not in agents(linux)  # the one that has forked the others


def test_the_first_agent_may_be_killed_while_it_is_to_fork_another(
    linux: LinuxShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = linux.session.guest.agents
    finish, killed = agents.finish, []

    def finish_after_a_kill(process: AgentProcess, *rest: Any) -> Any:
        if process is agents.root and not killed:
            killed.append(process)
            raise GuestFault("Oops: the task was killed", vector=-1, rip=0)
        return finish(process, *rest)

    with pytest.raises(GuestFault):
        call(linux, "strlen", UNMAPPED)  # so that the next call needs a new process
    monkeypatch.setattr(agents, "finish", finish_after_a_kill)
    assert call(linux, "gcd", 12, 18) == 6
    assert killed


def test_no_other_process_can_pretend_to_be_the_agent(linux: LinuxShell) -> None:
    """The hypercall of another program is the fault that it is on any PC."""
    linux.sh("dmesg -c > /dev/null")
    entry = init_code().labels["agent_loop"].to_bytes(4, "little")
    patch = "".join(f"\\{byte:03o}" for byte in entry)
    linux.sh(f"cp /init /tmp/init; printf '{patch}' | dd of=/tmp/init bs=1 seek=24 conv=notrunc")
    linux.sh("/tmp/init")
    assert linux.cat("emulator/sh_status") == "139\n"  # SIGSEGV
    assert "general protection" in linux.sh("dmesg")


def test_a_guest_that_has_just_booted_has_an_agent() -> None:
    vmlinux = load_vmlinuz(require_linux())
    guest = start(vmlinux, cache=None)
    try:
        assert not guest.was_restored
        assert guest.agents.call_in_process(vmlinux.symbol("gcd"), 12, 18) == 6
        assert guest.agents.call_in_process(vmlinux.symbol("msleep"), 10) == 0
    finally:
        guest.close()


def test_a_guest_from_a_snapshot_has_an_agent() -> None:
    with switched_on():
        pass  # there is a snapshot from now on
    with switched_on() as made:
        assert made.session.guest.was_restored
        assert call(made, "gcd", 12, 18) == 6
        assert call(made, "msleep", 10) == 0


# --- emulator/call --------------------------------------------------------------------------------


def test_emulator_call_runs_functions_in_a_process(linux: LinuxShell) -> None:
    linux.echo("msleep 20 x2", "emulator/call")
    assert linux.cat("emulator/call") == "msleep(20) = 0 (2 times)\n"
    linux.echo("gcd 12 18 x1000", "emulator/call")
    assert linux.cat("emulator/call") == "gcd(12, 18) = 6 (1000 times)\n"


def test_arguments_that_are_not_given_are_zero(linux: LinuxShell) -> None:
    for _ in range(2):
        linux.echo("gcd 1000003", "emulator/call")
        assert linux.cat("emulator/call") == "gcd(1000003) = 1000003\n"
        linux.echo("msleep 1", "emulator/call")


@pytest.mark.parametrize(
    ("function", "argument"),
    [("msleep", 4500), ("msleep_interruptible", 100_000_000), ("__delay", 1 << 48)],
)
def test_a_writer_who_is_interrupted_ends_his_call(
    linux: LinuxShell, function: str, argument: int
) -> None:
    linux.echo(function, "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    linux.interrupt(f"{function} {argument}", "emulator/call", lambda: callers(linux, function))
    assert linux.cat("emulator/call") == f"{function}({argument}): interrupted\n"
    linux.echo("gcd 12 18", "emulator/call")
    assert linux.cat("emulator/call") == "gcd(12, 18) = 6\n"


def callers(linux: LinuxShell, function: str) -> list[str]:
    """The pids of those who have called a function, a pid for each time."""
    return re.findall(rf"-(\d+) .*: {function} <-", linux.cat("trace"))


@pytest.mark.parametrize("function", ["msleep", "msleep_interruptible"])
def test_who_sleeps_in_a_call_that_is_given_up_ends_without_a_trace(
    linux: LinuxShell, function: str
) -> None:
    """At once if a signal wakes him, and he calls no more."""
    linux.sh("dmesg -c > /dev/null")
    linux.echo(function, "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    session = linux.session
    with pytest.raises(CallInterrupted):
        session.guest.agents.call_in_process(
            session.vmlinux.symbol(function),
            4000 if function == "msleep" else 100_000_000,
            count=9,
            is_interrupted=lambda: bool(callers(linux, function)),
        )
    (caller,) = callers(linux, function)
    linux.sh(f"while [ -e /proc/{caller} ]; do usleep 10000; done")
    assert callers(linux, function) == [caller]
    assert not re.findall("Oops|BUG|fault", linux.sh("dmesg"))
    assert call(linux, "gcd", 12, 18) == 6


def test_whose_turn_does_not_come_can_be_interrupted(linux: LinuxShell) -> None:
    """Another writer's call is none of his."""
    session = linux.session
    address = session.vmlinux.symbol("msleep")
    results: list[int] = []

    def sleep() -> None:
        results.append(session.guest.agents.call_in_process(address, 4000))

    linux.echo("msleep", "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    other = threading.Thread(target=sleep)
    other.start()
    try:
        while ": msleep <-" not in linux.cat("trace"):
            assert other.is_alive()
        linux.interrupt("gcd 12 18", "emulator/call")
    finally:
        other.join()
    assert results == [0]


def test_emulator_call_of_a_bad_pointer_is_efault_and_the_guest_lives_on(
    linux: LinuxShell,
) -> None:
    with pytest.raises(TracefsError) as error:
        linux.echo(f"strlen {UNMAPPED:#x}", "emulator/call")
    assert error.value.errno == errno.EFAULT
    assert "Oops" in linux.cat("emulator/call")
    assert linux.sh("echo here") == "here\n"
    linux.echo("gcd 12 18", "emulator/call")
    assert linux.cat("emulator/call") == "gcd(12, 18) = 6\n"
