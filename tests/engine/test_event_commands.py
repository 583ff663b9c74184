"""enable_event and disable_event: functions that switch an event."""

from __future__ import annotations

import errno

import pytest
from support.shell import Shell

from ftracefs.errors import TracefsError
from ftracefs.session import SCRIPT

FILTER = "set_ftrace_filter"
EXIT = "events/sched/sched_process_exit"


def command(shell: Shell, text: str, where: str = "") -> None:
    shell.echo(text, f"{where}{FILTER}", append=True)


def call(shell: Shell, text: str) -> None:
    shell.echo(text, "emulator/call")


def commands(shell: Shell) -> list[str]:
    return [line for line in shell.cat(FILTER).splitlines() if not line.startswith("#")]


def enabled(shell: Shell, where: str = "") -> str:
    return shell.cat(f"{where}{EXIT}/enable").strip()


def switch(shell: Shell) -> None:
    """The task goes to sleep and is woken: two switches."""
    machine, tasks = shell.machine, shell.session.tasks
    machine.run(lambda: machine.park(machine.cpus[0]))
    machine.run(lambda: tasks.bring(tasks.adopt(SCRIPT)))


def test_an_event_is_switched_by_calls(shell: Shell) -> None:
    command(shell, "gcd:enable_event:sched:sched_process_exit")
    command(shell, "lcm:disable_event:sched:sched_process_exit")
    assert commands(shell) == [
        "lcm:disable_event:sched:sched_process_exit:unlimited",
        "gcd:enable_event:sched:sched_process_exit:unlimited",
    ]
    assert enabled(shell) == "0*"
    for function, state in (("gcd", "1*"), ("int_sqrt", "1*"), ("gcd", "1*")):
        call(shell, f"{function} 4 6")
        assert enabled(shell) == state
    call(shell, "lcm 0 0")  # does not call gcd
    assert enabled(shell) == "0*"
    command(shell, "!gcd:enable_event:sched:sched_process_exit")
    assert enabled(shell) == "0*"
    command(shell, "!lcm:disable_event:sched:sched_process_exit")
    assert enabled(shell) == "0"
    assert shell.cat("set_event") == ""


def test_only_what_happens_while_it_is_on_is_recorded(shell: Shell) -> None:
    command(shell, "gcd:enable_event:sched:sched_switch")
    command(shell, "int_sqrt:disable_event:sched:sched_switch")
    switch(shell)
    call(shell, "gcd 4 6")
    switch(shell)
    switch(shell)
    call(shell, "int_sqrt 9")
    switch(shell)
    assert shell.cat("trace").count("sched_switch: prev_comm=script prev_pid=1000") == 2


def test_a_count_is_how_often_the_state_is_changed(shell: Shell) -> None:
    command(shell, "gcd:enable_event:sched:sched_process_exit:2")
    left = []
    for _ in range(3):
        call(shell, "gcd 4 6 x10")
        left.append((enabled(shell), commands(shell)[0].rpartition("=")[2]))
        shell.echo("0", f"{EXIT}/enable")
    assert left == [("1*", "1"), ("1*", "0"), ("0*", "0")]


def test_the_functions_of_one_command_share_its_count(shell: Shell) -> None:
    command(shell, "vfs_fsync*:enable_event:sched:sched_process_exit:2")
    both = ["vfs_fsync", "vfs_fsync_range"]
    tail = "enable_event:sched:sched_process_exit:count=2"
    assert sorted(commands(shell)) == [f"{name}:{tail}" for name in both]
    command(shell, "!vfs_fsync:enable_event:sched:sched_process_exit:0")
    assert enabled(shell) == "0*"
    assert commands(shell) == [f"vfs_fsync_range:{tail}"]
    # As in Linux, where the event is only looked up.
    command(shell, "!*:enable_event:sched:sched_switch:0")
    assert enabled(shell) == "0"
    assert commands(shell) == []


def test_an_event_that_was_on_stays_on(shell: Shell) -> None:
    shell.echo("1", f"{EXIT}/enable")
    command(shell, "gcd:disable_event:sched:sched_process_exit:1")
    assert enabled(shell) == "1*"
    call(shell, "gcd 4 6")
    assert enabled(shell) == "0*"
    shell.echo("1", f"{EXIT}/enable")
    assert enabled(shell) == "1*"
    command(shell, "!gcd:disable_event:sched:sched_process_exit:0")
    assert enabled(shell) == "1"


def test_switching_an_event_is_no_hypercall(shell: Shell) -> None:
    command(shell, "gcd:enable_event:sched:sched_process_exit")
    command(shell, "lcm:disable_event:sched:sched_process_exit:100000")
    before = shell.machine.hypercall_count
    call(shell, "lcm 4 6 x1000")
    assert shell.machine.hypercall_count == before
    assert commands(shell)[0] == "lcm:disable_event:sched:sched_process_exit:count=99001"


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ("", errno.EINVAL),
        (":sched", errno.EINVAL),
        (":sched:", errno.EINVAL),
        (":sched:nope", errno.EINVAL),
        (":sched:*", errno.EINVAL),
        ("::sched_switch", errno.EINVAL),
        (":ftrace:function", errno.EINVAL),
        (":ftrace:print", errno.EINVAL),
        (":sched:sched_switch:", errno.EINVAL),
        (":sched:sched_switch:x", errno.EINVAL),
        (":sched:sched_switch:18446744073709551616", errno.ERANGE),
    ],
)
@pytest.mark.parametrize("name", ["enable_event", "disable_event"])
def test_a_refused_command_leaves_the_event_alone(
    shell: Shell, name: str, parameter: str, expected: int
) -> None:
    with pytest.raises(TracefsError) as caught:
        command(shell, f"gcd:{name}{parameter}")
    assert caught.value.errno == expected
    with pytest.raises(TracefsError) as caught:
        command(shell, f"nosuch:{name}:sched:sched_process_exit")
    assert caught.value.errno == errno.EINVAL
    assert enabled(shell) == "0"
    assert shell.cat("events/sched/sched_switch/enable") == "0\n"
    assert commands(shell) == []


def test_doing_it_already_is_refused(shell: Shell) -> None:
    command(shell, "gcd:enable_event:sched:sched_process_exit")
    for event in (
        "sched_process_exit",
        "sched_switch",
    ):  # one kind of command, one event a function
        with pytest.raises(TracefsError) as caught:
            command(shell, f"gcd:enable_event:sched:{event}")
        assert caught.value.errno == errno.EINVAL
    assert shell.cat("events/sched/sched_switch/enable") == "0\n"


def test_an_instance_switches_its_own_events(shell: Shell) -> None:
    instances = shell.node("instances")
    shell.machine.run(lambda: instances.mkdir("a"))  # type: ignore[union-attr]
    command(shell, "gcd:enable_event:sched:sched_process_exit", "instances/a/")
    call(shell, "gcd 4 6")
    assert (enabled(shell, "instances/a/"), enabled(shell)) == ("1*", "0")
    shell.machine.run(lambda: instances.rmdir("a"))  # type: ignore[union-attr]
    assert shell.cat("enabled_functions") == ""
    call(shell, "gcd 4 6")
    assert shell.cat("emulator/call") == "gcd(4, 6) = 2\n"
