"""Tasks that fork, run programs, change CPUs and end, for the tests of events."""

from __future__ import annotations

import re

from emulated_kernel.procfs import HostProcess
from emulated_kernel.tasks import Task
from support.shell import Shell

_LINE = re.compile(
    r"^ *(?P<comm>.*)-(?P<pid>\d+) +\[(?P<cpu>\d+)\] (?P<state>\S{5}) +[\d.]+: (?P<event>\w+): ?"
    r"(?P<text>.*)$"
)


class Event:
    """A line of `trace` taken apart."""

    def __init__(self, line: str) -> None:
        found = _LINE.match(line)
        assert found is not None, line
        self.comm = found["comm"]
        self.pid = int(found["pid"])
        self.cpu = int(found["cpu"])
        self.state = found["state"]
        self.name = found["event"]
        self.text = found["text"]


def events(shell: Shell, path: str = "trace") -> list[Event]:
    """Every record, oldest first."""
    lines = shell.cat(path).splitlines()
    return [Event(line) for line in lines if not line.startswith("#")]


def texts(shell: Shell, name: str, path: str = "trace") -> list[str]:
    """What the records of one event say."""
    return [event.text for event in events(shell, path) if event.name == name]


def process(shell: Shell, pid: int, comm: str, *, ppid: int = 1, cpu: int = 0) -> Task:
    """The task of a process: forked if it is new, running another program if its name is new."""
    host = HostProcess(pid, 1, ppid, comm, cpu)
    return shell.machine.run(lambda: shell.session.tasks.task_of(host))


def bring(shell: Shell, task: Task) -> None:
    """Let a task have its CPU."""
    shell.machine.run(lambda: shell.session.tasks.bring(task))


def finish(shell: Shell, task: Task) -> None:
    """A process ends and is waited for."""
    shell.machine.run(lambda: shell.session.tasks.exit(task))
