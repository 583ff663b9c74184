"""The tick that keeps a quiet kernel from being dead."""

from __future__ import annotations

from support.latency import sleep, task
from support.shell import isolated


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
