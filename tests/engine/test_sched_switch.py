"""Names of tasks for the trace: the probes that learn them, and when these are there."""

from __future__ import annotations

from support.events import bring, finish, process
from support.shell import Shell

from emulated_kernel.text_poke import NOP5

WATCHED = "sched_switch", "sched_wakeup", "sched_wakeup_new"


def watched(shell: Shell) -> list[str]:
    """The tracepoints that lead to a probe of names."""
    tracing = shell.session.tracing
    own = {tracing.label(name) for name in ("probe_sched_switch", "probe_sched_wakeup")}
    return [
        name
        for name in tracing.tracepoints.names()
        if any(probe.func in own for probe in tracing.tracepoints.probes(name))
        and shell.machine.memory.read(tracing.tracepoints.sites(name)[0], 5) != NOP5
    ]


def names(shell: Shell) -> dict[int, str]:
    lines = (line.split(" ", 1) for line in shell.cat("saved_cmdlines").splitlines())
    return {int(pid): name for pid, name in lines}


def test_probes_are_there_while_names_are_wanted(shell: Shell) -> None:
    assert watched(shell) == []
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    assert sorted(watched(shell)) == sorted(WATCHED)
    shell.echo("irq", "set_event")
    shell.echo("nop", "current_tracer")
    assert sorted(watched(shell)) == sorted(WATCHED)
    shell.echo("", "set_event")
    assert watched(shell) == []


def test_whoever_is_switched_or_wakes_somebody_gets_a_name(shell: Shell) -> None:
    first, second = process(shell, 2000, "first"), process(shell, 2001, "second", cpu=1)
    bring(shell, first)
    shell.echo("irq", "set_event")
    bring(shell, process(shell, 2002, "third"))
    bring(shell, second)
    known = names(shell)
    assert {2000: "first", 2001: "second", 2002: "third"}.items() <= known.items()


def test_a_task_that_came_and_went_within_one_slice_has_its_own_name(shell: Shell) -> None:
    parent = process(shell, 2000, "parent")
    bring(shell, parent)
    shell.echo("irq", "set_event")
    for pid in range(2001, 2011):
        finish(shell, process(shell, pid, f"child-{pid}", ppid=2000))
    known = names(shell)
    assert all(known[pid] == f"child-{pid}" for pid in range(2001, 2011))
    assert set(known) <= {1, 2, *range(1000, 2011), *range(300, 400)}  # and no pid that nobody had


def test_nobody_is_named_while_names_are_not_wanted(shell: Shell) -> None:
    shell.echo("norecord-cmd", "trace_options")
    shell.echo("1", "events/enable")
    bring(shell, process(shell, 2000, "first"))
    assert watched(shell) == []
    assert names(shell) == {}
