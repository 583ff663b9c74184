"""The tick that keeps a quiet kernel from being dead."""

from __future__ import annotations

import threading
import time

import pytest
from support.latency import sleep, task
from support.shell import isolated

PERIOD_S = 600.0  # of a source whose turns are taken by hand here


def test_an_idle_cpu_gets_every_second_tick_and_one_with_a_task_each() -> None:
    with isolated(cpus=2) as shell:
        machine, workload, tasks = shell.machine, shell.session.workload, shell.session.tasks
        sleep(shell)
        shell.echo("hrtimer_interrupt", "set_ftrace_filter")
        shell.echo("function", "current_tracer")

        def ticks(cpu: int) -> int:
            return shell.cat(f"per_cpu/cpu{cpu}/trace").count("hrtimer_interrupt <-")

        for _ in range(8):
            machine.run(workload.tick)
        assert [ticks(0), ticks(1)] == [4, 4]
        process = task(shell, 500, 120)
        for _ in range(2):
            machine.run(lambda: tasks.syscall(tasks.task_of(process), "getpid", ()))
            before = [ticks(0), ticks(1)]
            machine.run(workload.tick)
            assert ticks(0) == before[0] + 1, "who is not idle is interrupted"


def test_a_turn_at_which_nobody_would_get_a_tick_is_left_out() -> None:
    with isolated(cpus=2) as shell:
        machine, workload = shell.machine, shell.session.workload
        workload.start("tick", 1 / PERIOD_S, workload.tick_or_rest)
        sleep(shell)
        shell.echo("hrtimer_interrupt", "set_ftrace_filter")
        shell.echo("function", "current_tracer")
        assert machine.run(workload.tick_or_rest) == 1, "four turns were before: a fifth"
        assert [machine.run(workload.tick_or_rest) for _ in range(4)] == [2, 2, 2, 2]
        for cpu in range(2):
            trace = shell.cat(f"per_cpu/cpu{cpu}/trace")
            assert trace.count("hrtimer_interrupt <-") == 4


def test_somebody_who_comes_before_such_a_turn_gets_it() -> None:
    with isolated(cpus=2) as shell:
        machine, workload, tasks = shell.machine, shell.session.workload, shell.session.tasks
        workload.start("tick", 1 / PERIOD_S, workload.tick_or_rest)
        process = task(shell, 500, 120)
        sleep(shell)
        shell.echo("hrtimer_interrupt", "set_ftrace_filter")
        shell.echo("function", "current_tracer")

        def ticks() -> list[int]:
            traces = [shell.cat(f"per_cpu/cpu{cpu}/trace") for cpu in range(2)]
            return [trace.count("hrtimer_interrupt <-") for trace in traces]

        started = time.monotonic()
        assert [machine.run(workload.tick_or_rest) for _ in range(2)] == [1, 2]
        machine.run(lambda: None)
        assert ticks() == [1, 1]
        before = len(machine._timers)
        machine.run(lambda: tasks.syscall(tasks.task_of(process), "getpid", ()))
        assert len(machine._timers) == before + 1
        assert max(due for due, *_ in machine._timers) - started < 1.5 * PERIOD_S
        assert machine.run(workload.tick_or_rest) == 1
        assert ticks() == [2, 1], "the idle one has its turn the time after"


def test_a_turn_under_way_when_the_machine_is_switched_off_comes_to_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with isolated(cpus=1) as shell:
        machine, workload = shell.machine, shell.session.workload
        sleep(shell)
        machine.run(workload.tick)  # the next is one that is followed by one left out
        under_way, off = threading.Event(), machine._off
        tick, ended = workload.tick, []

        def slow_tick() -> None:
            under_way.set()
            assert off.wait(20)
            tick()

        def turn() -> int:
            ended.append(turns := workload.tick_or_rest())
            return turns

        monkeypatch.setattr(workload, "tick", slow_tick)
        workload.start("tick", 1000.0, turn)
        assert under_way.wait(20)
        shell.session.close()
    assert ended == [2]
    assert not caplog.records
