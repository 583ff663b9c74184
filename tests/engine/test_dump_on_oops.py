"""ftrace_dump_on_oops: a task dies, and what was recorded before goes to the console."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.shell import Shell, isolated

from ftracefs.errors import TracefsError

SYSCTL = "emulator/sysctl/ftrace_dump_on_oops"
RULE = "-" * 33


@pytest.fixture
def shell() -> Iterator[Shell]:
    with isolated() as shell:
        shell.echo("die page_fault_oops __die __die_body gcd", "set_ftrace_filter")
        shell.echo("function", "current_tracer")
        yield shell


def oops(shell: Shell) -> None:
    """A page fault in the kernel."""
    with pytest.raises(TracefsError, match="Oops"):
        shell.echo("mutex_lock 0xdead0000", "emulator/call")


def console(shell: Shell) -> list[str]:
    return re.findall(r"^\[ *\d+\.\d{6}\] (.*)$", shell.cat("emulator/console"), re.MULTILINE)


def functions(lines: list[str]) -> list[str]:
    return [line.split(" : ")[1].split(" <-")[0] for line in lines]


def test_0_dumps_nothing_and_tracing_goes_on(shell: Shell) -> None:
    oops(shell)
    assert console(shell) == []
    assert shell.cat("tracing_on") == "1\n"
    assert "__die_body <-__die" in shell.cat("trace")


def test_1_takes_the_records_of_every_cpu_to_the_console(shell: Shell) -> None:
    shell.echo("1", SYSCTL)
    shell.machine.call("gcd", 12, 18, cpu=1)
    oops(shell)
    title, first, *lines, last = console(shell)
    assert title == "Dumping ftrace buffer:"
    assert first == last == RULE
    assert functions(lines) == ["gcd", "page_fault_oops", "__die", "__die_body"]
    assert shell.cat("tracing_on") == "0\n"
    assert "__die" not in shell.cat("trace")


def test_2_takes_those_of_the_cpu_that_it_happened_on(shell: Shell) -> None:
    shell.echo("2", SYSCTL)
    shell.machine.call("gcd", 12, 18, cpu=1)
    oops(shell)
    assert functions(console(shell)[2:-1]) == ["page_fault_oops", "__die", "__die_body"]
    assert "gcd <-" in shell.cat("trace")


def test_another_number_is_said_to_be_a_bad_one(shell: Shell) -> None:
    shell.echo("-7", SYSCTL)
    assert shell.cat(SYSCTL) == "-7\n"
    oops(shell)
    assert console(shell)[:2] == [
        "Bad dumping mode, switching to all CPUs dump",
        "Dumping ftrace buffer:",
    ]


def test_with_nothing_recorded_it_says_so(shell: Shell) -> None:
    shell.echo("1", SYSCTL)
    shell.echo("nop", "current_tracer")
    oops(shell)
    assert console(shell) == ["Dumping ftrace buffer:", "   (ftrace buffer empty)"]


def test_any_exception_is_told_not_only_a_page_fault(shell: Shell) -> None:
    shell.echo("1", SYSCTL)
    with pytest.raises(TracefsError, match="Oops"):
        shell.echo("mutex_lock 0x1234567890abcdef", "emulator/call")
    assert functions(console(shell)[2:-1]) == ["die", "__die", "__die_body"]
