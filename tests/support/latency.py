"""What the latency tracers measure, made to happen."""

from __future__ import annotations

from emulated_kernel.procfs import HostProcess
from support.shell import Shell

TIMER = "asm_sysvec_apic_timer_interrupt"
RT_PRIO = 94  # chrt -f 5


def tick(shell: Shell, cpu: int = 0) -> None:
    """A timer interrupt: a section with interrupts off, and spin locks inside it."""
    machine = shell.machine
    machine.run(lambda: machine.interrupt(machine.cpus[cpu], TIMER))


def task(shell: Shell, pid: int, prio: int) -> HostProcess:
    """A process that sleeps in user mode, with a task of its own."""
    process = HostProcess(pid=pid, start_time=0, ppid=1, comm=f"task{pid}", cpu=0, prio=prio)
    shell.machine.run(lambda: shell.session.tasks.adopt(process))
    return process


def wake(shell: Shell, process: HostProcess) -> None:
    """It is woken, runs a system call and sleeps again."""
    tasks = shell.session.tasks
    shell.machine.run(lambda: tasks.syscall(tasks.task_of(process), "getpid", ()))
    shell.machine.run(lambda: shell.session.workload.tick())


def sleep(shell: Shell) -> None:
    """Let every task that does nothing go to sleep."""
    for _ in range(4):
        shell.machine.run(lambda: shell.session.workload.tick())
