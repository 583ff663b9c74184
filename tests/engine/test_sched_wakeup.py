"""wakeup, wakeup_rt and wakeup_dl: how long a task waited for its CPU after it was woken."""

from __future__ import annotations

import errno
import re

import pytest
from support.latency import RT_PRIO, sleep, task, wake
from support.shell import Shell

from ftracefs.errors import TracefsError


def test_the_wait_of_a_realtime_task_is_shown_from_its_wake_up_to_its_switch(shell: Shell) -> None:
    process = task(shell, 2000, RT_PRIO)
    sleep(shell)
    shell.echo("wakeup_rt", "current_tracer")
    wake(shell, process)
    text = shell.cat("trace")
    latency = int(shell.cat("tracing_max_latency"))
    assert re.search(rf"^# latency: {latency} us, ", text, re.MULTILINE), text
    assert "| task: task2000-2000 (uid:0 nice:0 policy:1 rt_prio:5)\n" in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    woken = rf" [01]us.?: +\d+:120:\w   \+ \[000\] +2000: {RT_PRIO}:\w task2000$"
    assert re.search(woken, lines[0])
    switch = [line for line in lines if "==>" in line]
    assert len(switch) == 1
    assert re.search(rf"\d+:120:\w ==> \[000\] +2000: {RT_PRIO}:R task2000$", switch[0])
    calls = [line for line in lines if " <-" in line]
    assert calls[-1].endswith(": __traceiter_sched_switch <-__schedule")
    assert len(calls) > 2
    assert [line for line in lines if line.endswith("<stack trace>")]


def test_which_tasks_count_is_said_by_the_tracer(shell: Shell) -> None:
    realtime, nice = task(shell, 2000, RT_PRIO), task(shell, 2001, 110)
    sleep(shell)
    seen = {"wakeup": {realtime, nice}, "wakeup_rt": {realtime}, "wakeup_dl": set()}
    for tracer, expected in seen.items():
        for process in (realtime, nice):
            shell.echo(tracer, "current_tracer")
            wake(shell, process)
            sleep(shell)
            shown = process.comm in shell.cat("trace")
            assert shown == (process in expected), (tracer, process)
            shell.echo("nop", "current_tracer")


@pytest.mark.parametrize("graph", ["0", "1"])
def test_options_add_stacks_behind_wake_up_and_switch(shell: Shell, graph: str) -> None:
    process = task(shell, 2000, RT_PRIO)
    sleep(shell)
    shell.echo(graph, "options/display-graph")
    for option, kinds in {
        "stacktrace": ["<stack trace>", "<stack trace>"],
        "userstacktrace": ["<user stack trace>", "<stack trace>"],
    }.items():
        shell.echo("1", f"options/{option}")
        shell.echo("wakeup_rt", "current_tracer")
        wake(shell, process)
        text = shell.cat("trace")
        for arrow in ("   + ", " ==> "):
            behind = text[text.index(f"{arrow}[000]    2000: ") :]
            assert re.findall(r"<(?:user )?stack trace>", behind)[:2] == kinds
        stacks = re.findall(r" <stack trace>\n((?: => \w+\n)+)", text)
        assert len(set(stacks)) == 2  # the option's and the tracer's own alike
        assert len(stacks) == 2 * kinds.count("<stack trace>")
        shell.echo("nop", "current_tracer")
        shell.echo("0", f"options/{option}")
        sleep(shell)


def test_nobody_waits_for_a_task_like_any_other(shell: Shell) -> None:
    process = task(shell, 2000, 120)
    sleep(shell)
    shell.echo("wakeup", "current_tracer")
    wake(shell, process)
    assert shell.cat("tracing_max_latency") == "0\n"
    assert shell.cat("trace") == "# tracer: wakeup\n#\n"


def test_its_probes_are_there_only_while_it_is_in_charge(shell: Shell) -> None:
    tracepoints = shell.session.tracing.tracepoints
    before = {name: tracepoints.probes(name) for name in tracepoints.names()}
    shell.echo("wakeup", "current_tracer")
    for name in ("sched_wakeup", "sched_wakeup_new", "sched_switch"):
        assert len(tracepoints.probes(name)) == len(before[name]) + 2  # one learns names
    assert len(tracepoints.probes("sched_migrate_task")) == len(before["sched_migrate_task"]) + 1
    with pytest.raises(TracefsError) as error:
        shell.echo("0", "options/overwrite")
    assert error.value.errno == errno.EINVAL
    shell.echo("irqsoff", "current_tracer")
    assert tracepoints.probes("sched_migrate_task") == before["sched_migrate_task"]
    assert len(tracepoints.probes("sched_switch")) == len(before["sched_switch"]) + 1  # names still
    shell.echo("nop", "current_tracer")
    assert {name: tracepoints.probes(name) for name in tracepoints.names()} == before


def test_one_of_a_kind_at_a_time_but_both_kinds_together(shell: Shell) -> None:
    process = task(shell, 2000, RT_PRIO)
    sleep(shell)
    shell.mkdir("instances/a")
    shell.echo("wakeup", "instances/a/current_tracer")
    with pytest.raises(TracefsError) as error:
        shell.echo("wakeup_rt", "current_tracer")
    assert error.value.errno == errno.EBUSY
    shell.echo("irqsoff", "current_tracer")
    wake(shell, process)
    assert "==>" in shell.cat("instances/a/trace")
    assert "tracer_hardirqs_on" in shell.cat("trace")


def test_switches_in_the_other_formats(shell: Shell) -> None:
    process = task(shell, 2000, RT_PRIO)
    sleep(shell)
    shell.echo("0", "options/function-trace")
    shell.echo("wakeup_rt", "current_tracer")
    wake(shell, process)
    shell.echo("0", "options/context-info")
    shell.echo("1", "options/raw")
    text = shell.cat("trace")
    assert re.search(rf"^\d+ 120 \+ 0 2000 {RT_PRIO} \w$", text, re.MULTILINE)
    assert re.search(rf"^\d+ 120 \w 0 2000 {RT_PRIO} R$", text, re.MULTILINE)
    shell.echo("1", "options/hex")
    assert re.search(r"[0-9a-f]{8} 78 2b 00000000 000007d0 5e 000000\w\w ", shell.cat("trace"))
    shell.echo("1", "options/bin")
    with shell.opened("trace") as file:
        data = shell.machine.run(lambda: file.read(1 << 16, 0, True))
    assert callable(data)
    # prev_prio, prev_state, next_cpu, next_pid, next_prio
    assert re.search(rb"\x78[\0-\x08]\0\0\0\0\xd0\x07\0\0\x5e", data())
