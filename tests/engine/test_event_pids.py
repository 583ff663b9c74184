"""set_event_pid, set_event_notrace_pid and event-fork: whose events are recorded."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import partial

import pytest
from support.events import bring, events, finish, process, texts
from support.shell import CALLER, Shell, isolated

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.tasks import Task
from emulated_kernel.text_poke import NOP5
from ftracefs.errors import TracefsError
from ftracefs.files.base import TracefsFile

BOTH = "set_event_pid", "set_event_notrace_pid"


class Rig:
    """Three tasks on CPU 0 and every scheduler event enabled; recording begins with `start`."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.a, self.b, self.c = (process(shell, 2000 + i, f"task-{'abc'[i]}") for i in range(3))
        bring(shell, self.a)

    def start(self, *names: str) -> None:
        for name in names or ("sched:*",):
            self.shell.echo(name, "set_event", append=True)
        self.shell.echo("", "trace")

    def around(self) -> None:
        """a → b → c → a."""
        for task in (self.b, self.c, self.a):
            bring(self.shell, task)

    def switches(self) -> list[tuple[int, int]]:
        """Previous and next task of each sched_switch, by pid."""
        pairs = []
        for text in texts(self.shell, "sched_switch"):
            words = dict(word.split("=", 1) for word in text.split() if "=" in word[1:])
            pairs.append((int(words["prev_pid"]), int(words["next_pid"])))
        return pairs

    def ignored(self, cpu: int = 0) -> bool:
        tr = self.shell.session.tracing.global_trace
        at = tr.address + CONSTANTS["TR_IGNORE_PID"] + cpu
        return bool(self.shell.machine.memory.u8(at))


@pytest.fixture
def rig() -> Iterator[Rig]:
    with isolated() as shell:
        yield Rig(shell)


def test_a_switch_is_recorded_if_either_task_is_listed(rig: Rig) -> None:
    rig.start("sched_switch")
    rig.around()
    everything = rig.switches()
    assert (2001, 2002) in everything
    rig.shell.echo("2002", "set_event_pid")
    rig.start("sched_switch")
    rig.around()
    assert rig.switches() == [pair for pair in everything if 2002 in pair]


def test_a_switch_is_left_out_if_both_tasks_are_listed_not_to_be_traced(rig: Rig) -> None:
    rig.start("sched_switch")
    rig.around()
    everything = rig.switches()
    rig.shell.echo("2001 2002", "set_event_notrace_pid")
    rig.start("sched_switch")
    rig.around()
    assert rig.switches() == [pair for pair in everything if pair != (2001, 2002)]
    assert rig.switches() != everything


def test_a_wakeup_is_recorded_if_the_waker_or_the_woken_is_listed(rig: Rig) -> None:
    rig.shell.echo("2001", "set_event_pid")
    rig.start("sched_waking", "sched_wakeup")
    rig.around()  # a wakes b, b wakes c, c wakes a
    told = [(event.pid, event.name, event.text.split()[1]) for event in events(rig.shell)]
    assert told == [
        (2000, "sched_waking", "pid=2001"),
        (2000, "sched_wakeup", "pid=2001"),
        (2001, "sched_waking", "pid=2002"),
        (2001, "sched_wakeup", "pid=2002"),
    ]


def test_the_list_against_comes_before_the_list_for(rig: Rig) -> None:
    rig.shell.echo("2000 2001", "set_event_pid")
    rig.shell.echo("2001", "set_event_notrace_pid")
    rig.start("sched_waking")
    rig.around()
    # c wakes a; a wakes b, and of these a is traced.
    assert [(event.pid, event.text.split()[1]) for event in events(rig.shell)] == [
        (2000, "pid=2001"),
        (2002, "pid=2000"),
    ]


def test_the_task_that_runs_counts_at_once(rig: Rig) -> None:
    rig.shell.echo("2000", "set_event_notrace_pid")
    assert rig.ignored()
    rig.shell.echo("2001", "set_event_notrace_pid")
    assert not rig.ignored()
    rig.shell.echo("2001", "set_event_pid")
    assert rig.ignored()
    rig.shell.echo("2000", "set_event_pid")
    assert not rig.ignored()


@pytest.mark.parametrize("path", BOTH)
def test_an_empty_list_is_no_list(rig: Rig, path: str) -> None:
    rig.shell.echo("", path)
    rig.start("sched_switch")
    rig.around()
    assert len(rig.switches()) == 3


@pytest.mark.parametrize("path", BOTH)
def test_probes_are_there_as_long_as_a_list_is(rig: Rig, path: str) -> None:
    shell = rig.shell
    tracepoints = shell.session.tracing.tracepoints
    (site,) = tracepoints.sites("sched_switch")

    def is_nop() -> bool:
        return shell.machine.memory.read(site, 5) == NOP5

    assert is_nop()
    shell.echo("5", path)
    assert not is_nop()
    shell.echo("6", path, append=True)
    assert len(tracepoints.probes("sched_switch")) == 2
    other = BOTH[1 - BOTH.index(path)]
    shell.echo("7", other)
    shell.echo("", path)
    assert (is_nop(), shell.cat(path), shell.cat(other)) == (False, "", "7\n")
    shell.echo("", other)
    assert is_nop()


def test_the_events_probes_stand_between_those_that_decide(rig: Rig) -> None:
    rig.shell.echo("1", "set_event_pid")
    rig.start("sched_switch")
    tracing = rig.shell.session.tracing
    names = (
        "event_filter_pid_sched_switch_probe_pre",
        "probe_sched_switch",  # of names, which come before a trace array's first event
        "trace_event_raw_event_sched_switch",
        "event_filter_pid_sched_switch_probe_post",
    )
    functions = [probe.func for probe in tracing.tracepoints.probes("sched_switch")]
    assert functions == [tracing.label(name) for name in names]


def test_function_records_do_not_ask_for_the_events_pids(rig: Rig) -> None:
    shell = rig.shell
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    shell.echo("4000", "set_event_pid")
    shell.echo("gcd 4 6", "emulator/call")
    assert "gcd <-" in shell.cat("trace")


# --- event-fork -----------------------------------------------------------------------------------


def forked(rig: Rig, pid: int, parent: Task) -> Task:
    return process(rig.shell, pid, "child", ppid=parent.pid)


def test_children_are_listed_with_event_fork_and_dropped_when_gone(rig: Rig) -> None:
    shell = rig.shell
    shell.echo("2000", "set_event_pid")
    child = forked(rig, 2010, rig.a)
    assert shell.cat("set_event_pid") == "2000\n"
    finish(shell, child)
    shell.echo("event-fork", "trace_options")
    child = forked(rig, 2011, rig.a)
    grandchild = forked(rig, 2012, child)
    forked(rig, 2013, rig.b)
    assert shell.cat("set_event_pid") == "2000\n2011\n2012\n"
    finish(shell, grandchild)
    assert shell.cat("set_event_pid") == "2000\n2011\n"
    shell.echo("noevent-fork", "trace_options")
    forked(rig, 2014, rig.a)
    finish(shell, child)
    assert shell.cat("set_event_pid") == "2000\n2011\n"


def test_children_of_who_is_not_traced_are_not_either(rig: Rig) -> None:
    shell = rig.shell
    shell.echo("2000", "set_event_notrace_pid")
    shell.echo("event-fork", "trace_options")
    child = forked(rig, 2010, rig.a)
    bring(shell, rig.b)
    rig.start("sched_process_exit", "sched_process_exec")
    finish(shell, child)
    finish(shell, rig.b)
    assert {event.pid for event in events(shell)} == {2001}


def test_many_children_are_followed(rig: Rig) -> None:
    shell = rig.shell
    shell.echo("2000", "set_event_pid")
    shell.echo("event-fork", "trace_options")
    pids = [100_000 + 20_000 * i for i in range(12)]  # each in a part of the set of its own
    children = [forked(rig, pid, rig.a) for pid in pids]
    assert shell.cat("set_event_pid").split() == ["2000", *map(str, pids)]
    for child in children:
        finish(shell, child)
    assert shell.cat("set_event_pid") == "2000\n"


# --- the files ------------------------------------------------------------------------------------


def write(shell: Shell, path: str, data: bytes) -> int:
    node = shell.node(path)
    assert isinstance(node, TracefsFile)
    file = shell.machine.run(lambda: node.open(os.O_WRONLY, CALLER))
    try:
        taken = shell.machine.run(partial(file.write, data, 0))
        assert isinstance(taken, int)
        return taken
    except TracefsError as error:
        return -error.errno
    finally:
        shell.machine.run(file.fput)


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    ("data", "taken", "text"),
    [
        (b"12\n", 3, "12\n"),
        (b"30 7 12 7", 9, "7\n12\n30\n"),
        (b"0x10 010", 8, "8\n16\n"),
        (b"4194304", 7, "4194304\n"),
        (b"\n", 1, ""),
        (b"abc", -errno.EINVAL, ""),
        (b"1 x", -errno.EINVAL, ""),
        (b"-1", -errno.EINVAL, ""),
        (b"1073741824", -errno.EPERM, ""),
        (b"9" * 30, -errno.EINVAL, ""),
    ],
)
def test_numbers_are_taken_whole_writes_at_a_time(
    shell: Shell, path: str, data: bytes, taken: int, text: str
) -> None:
    assert write(shell, path, data) == taken
    assert shell.cat(path) == text


def test_each_instance_has_lists_of_its_own(rig: Rig) -> None:
    shell = rig.shell
    node = shell.node("instances")
    shell.machine.run(lambda: node.mkdir("foo"))  # type: ignore[union-attr]
    shell.echo("2002", "set_event_pid")
    shell.echo("2001", "instances/foo/set_event_notrace_pid")
    shell.echo("sched_waking", "set_event")
    shell.echo("sched_waking", "instances/foo/set_event")
    bring(shell, rig.b)
    rig.around()
    top = {(event.pid, event.text.split()[1]) for event in events(shell)}
    foo = {(event.pid, event.text.split()[1]) for event in events(shell, "instances/foo/trace")}
    assert top == {(2001, "pid=2002"), (2002, "pid=2000")}
    assert foo == {(2000, "pid=2001"), (2001, "pid=2002"), (2002, "pid=2000")}
    shell.machine.run(lambda: node.rmdir("foo"))  # type: ignore[union-attr]
    tracepoints = shell.session.tracing.tracepoints
    assert len(tracepoints.probes("sched_waking")) == 3  # of the top level: two and the event's
    rig.around()


def test_removing_an_instance_takes_its_probes_out(shell: Shell) -> None:
    node = shell.node("instances")
    address, data = shell.session.image.segments[".text"]
    before = shell.machine.memory.read(address, len(data))
    for _ in range(3):
        shell.machine.run(lambda: node.mkdir("foo"))  # type: ignore[union-attr]
        shell.echo("1", "instances/foo/events/enable")
        shell.echo("5", "instances/foo/set_event_pid")
        shell.echo("1", "instances/foo/options/event-fork")
        assert shell.machine.memory.read(address, len(data)) != before
        shell.machine.run(lambda: node.rmdir("foo"))  # type: ignore[union-attr]
        assert shell.machine.memory.read(address, len(data)) == before
