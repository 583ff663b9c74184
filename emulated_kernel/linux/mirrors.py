"""Processes of a booted Linux that stand for processes of the host: same pid, name and priority.

A process appears at its first file operation, forked by its parent's mirror if there is one, else
by the agent; where the host tells of forks, those of a mirror's process are made at once. It ends
when the host's does. A pid that the guest has given away is not to be had: such a mirror has
another one. Left out: threads, which are processes here, and ancestors that never touched a file.

Nothing here is for the machine thread: who calls waits until the guest has done it.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from emulated_kernel.errors import EmulatedKernelError, GuestFault
from emulated_kernel.linux.agent import Agents, signed
from emulated_kernel.linux.agent_work import AgentProcess, Poke, Program, SystemCall, Work
from emulated_kernel.linux.pc import PcMachine
from emulated_kernel.procfs import UNKNOWN_START, HostProcess, read_other_process

T = TypeVar("T")
log = logging.getLogger(__name__)

_SETPRIORITY, _SCHED_SETSCHEDULER, _EXIT_GROUP = 141, 144, 231
_SCHED_NORMAL, _SCHED_FIFO = 0, 1
_MAX_RT_PRIO, _DEFAULT_PRIO = 100, 120
_COMM_MAX = 15
_BETWEEN_MAX = 8
_REHEARSED, _REHEARSAL_S = b"ftracefs", 1.0


@dataclass(slots=True, eq=False)
class Mirror:
    """A process of the host and the one of the guest that stands for it.

    `descriptors` are those it has of open files, by the mount's numbers of these.
    """

    process: HostProcess
    agent: AgentProcess
    descriptors: dict[int, int] = field(default_factory=dict)
    is_dead: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid


class Mirrors:
    """All of a guest's. Raises EmulatedKernelError where the guest does not do its part."""

    def __init__(self, machine: PcMachine, agents: Agents) -> None:
        self._machine = machine
        self._agents = agents
        self._mirrors: dict[int, Mirror] = {}  # by the host's pid
        self._programs: set[bytes] = set()  # what there are programs for in the guest
        self._lock = threading.RLock()
        self.on_new_task: Callable[[Mirror], None] = lambda mirror: None
        self.before_exit: Callable[[Mirror], None] = lambda mirror: None

    def run(self, work: Callable[[], T]) -> T:
        """Do it on this thread, which must not have the machine: what follows the host wants it."""
        return work()

    def find(self, pid: int) -> Mirror | None:
        """Of a process of the host, if there is one."""
        return self._mirrors.get(pid)

    def __len__(self) -> int:
        return len(self._mirrors)

    def task_of(self, process: HostProcess) -> Mirror:
        """The mirror of a process: an old one, brought up to date, or a new one."""
        with self._lock:
            mirror = self._mirrors.get(process.pid)
            if mirror is not None:
                is_same = mirror.process.start_time in (process.start_time, UNKNOWN_START)
                if is_same and not mirror.is_dead:
                    return self._updated(mirror, process)
                self.exit(mirror)
            return self._updated(self._fork(process), process)

    def _updated(self, mirror: Mirror, process: HostProcess) -> Mirror:
        if mirror.process.prio != process.prio:
            self.do(mirror, Work(_set_priority(process.prio, self._agents.words)))
        if mirror.process.comm != process.comm:
            self._execute(mirror, process.comm.encode()[:_COMM_MAX])
        mirror.process = process
        return mirror

    def _execute(self, mirror: Mirror, comm: bytes) -> None:
        """Another name is another program, as a rule."""
        agents, root = self._agents, self._agents.root
        if comm and b"/" not in comm and root is not None:
            if comm not in self._programs:
                self._programs.add(comm)
                agents.do(root, Work(agents.program(comm)))
            executes = Work(agents.execute(comm))
            self.do(mirror, executes)
            if executes.result() == 0:
                return
        self.do(mirror, Work(agents.rename(comm)))

    def _is_alive(self, mirror: Mirror) -> bool:
        return self._machine.run(lambda: self._agents.is_alive(mirror.agent))

    def _fork(self, process: HostProcess) -> Mirror:
        agents = self._agents
        parent = self._parent_of(process)
        if parent is not None and (self.asleep_in(parent) or not self._is_alive(parent)):
            parent = None
        forks = agents.root if parent is None else parent.agent
        if forks is None or agents.failure is not None:
            raise EmulatedKernelError(f"no agent in the guest: {agents.failure}")
        result = self._clone(forks, process.pid)
        if result == -errno.EEXIST:
            log.info("pid %d is taken in the guest", process.pid)
            result = self._clone(forks, 0)
        if result < 0:
            raise EmulatedKernelError(f"clone3 for pid {process.pid}: {errno.errorcode[-result]}")
        # As its parent is, until it is brought up to date.
        inherited = HostProcess(0, 0, 0, "", 0) if parent is None else parent.process
        known = replace(process, comm=inherited.comm, prio=inherited.prio)
        mirror = Mirror(known, agents.born(result))
        if parent is not None:
            mirror.descriptors.update(parent.descriptors)
        self._mirrors[process.pid] = mirror
        self.on_new_task(mirror)
        return mirror

    def _parent_of(self, process: HostProcess) -> Mirror | None:
        """Its parent's mirror. Who stands between it and a mirror, and is not one yet, becomes one:
        that they were forked is told later, if at all.
        """
        between: list[HostProcess] = []
        pid = process.ppid
        while pid not in self._mirrors:
            ancestor = read_other_process(pid) if pid > 1 and len(between) < _BETWEEN_MAX else None
            if ancestor is None:
                return None
            between.append(ancestor)
            pid = ancestor.ppid
        for ancestor in reversed(between):
            self._updated(self._fork(ancestor), ancestor)
        return self._mirrors.get(process.ppid)

    def _clone(self, forks: AgentProcess, pid: int) -> int:
        work = Work(self._agents.clone(pid))
        self._agents.do(forks, work)
        return work.result()

    def exit(self, mirror: Mirror) -> None:
        """The process has ended, and so does its mirror."""
        with self._lock:
            self.before_exit(mirror)
            if self._mirrors.get(mirror.pid) is mirror:
                del self._mirrors[mirror.pid]
            if self._machine.failure is not None or not self._is_alive(mirror):
                return
            self.interrupt(mirror)
            try:
                self.do(mirror, Work(_exit()))
            except GuestFault:
                pass  # as it should

    def interrupt(self, mirror: Mirror) -> None:
        """End a system call that was left asleep, with EINTR."""
        work = self.asleep_in(mirror)
        if work is not None:
            agents, agent = self._agents, mirror.agent
            self._machine.run(lambda: agents.resume(agent, work, lambda: -errno.EINTR))
            agents.settle(agent, work)

    def asleep_in(self, mirror: Mirror) -> Work[int] | None:
        """The system call that it sleeps in, if it does."""
        work = mirror.agent.work[0] if mirror.agent.work else None
        return work if work is not None and work.sleeps else None

    def do(self, mirror: Mirror, work: Work[T]) -> None:
        """Have it do something, until that is done or sleeps. What has failed raises."""
        self._agents.do(mirror.agent, work)
        if work.is_done:
            try:
                work.result()
            except GuestFault:
                mirror.is_dead = True  # its process gets another one when it comes again
                raise

    def go_on(self, mirror: Mirror, work: Work[T], perform: Callable[[], int | str]) -> None:
        """Go on with a system call that it sleeps in."""
        self._machine.run(lambda: self._agents.resume(mirror.agent, work, perform))
        self._agents.settle(mirror.agent, work)
        if work.is_done:
            work.result()


class Rehearsal(threading.Thread):
    """A process that comes and goes, while nobody else wants the machine.

    What the guest does for one is translated then, which takes most of a tenth of a second, and the
    first mirror need not wait for that.
    """

    def __init__(self, machine: PcMachine, agents: Agents) -> None:
        super().__init__(name="rehearsal", daemon=True)
        self._machine = machine
        self._agents = agents
        self.start()

    def run(self) -> None:
        agents, root = self._agents, self._agents.root
        if root is None or agents.failure is not None:
            return
        try:
            self._do(root, agents.program(_REHEARSED))
            pid = self._do(root, agents.clone())
            if pid > 0:
                process = agents.born(pid)
                self._do(process, agents.execute(_REHEARSED))
                agents.do(process, Work(_exit()))
        except EmulatedKernelError as error:
            log.debug("the rehearsal: %s", error)

    def _do(self, process: AgentProcess, program: Program[T]) -> T:
        """Without driving the guest: it runs when it can."""
        agents = self._agents
        work = self._machine.run(lambda: agents.submit(process, Work(program)))
        work.wait(_REHEARSAL_S)
        return agents.finish(process, work)


def _exit() -> Program[None]:
    yield SystemCall(_EXIT_GROUP, (0,))


def _set_priority(prio: int, words: int) -> Program[None]:
    """Have another priority, as the kernel counts them; not that of deadline tasks."""
    if prio < 0:
        return
    rt_priority = max(_MAX_RT_PRIO - 1 - prio, 0)
    yield Poke((rt_priority,))
    policy = _SCHED_FIFO if rt_priority else _SCHED_NORMAL
    yield SystemCall(_SCHED_SETSCHEDULER, (0, policy, words))
    if not rt_priority:
        nice = prio - _DEFAULT_PRIO
        yield SystemCall(_SETPRIORITY, (0, 0, nice & 0xFFFFFFFFFFFFFFFF))


def system_call(number: int, *arguments: int) -> Program[int]:
    """One system call; its result, or -errno."""
    return signed((yield SystemCall(number, arguments)))
