"""Tasks of the guest that stand for processes of the host.

A host process is (pid, start time). At first contact its parent's task runs kernel_clone for it and
it runs execve, so both are traced; ancestors not seen before appear as already running. Each of its
file operations runs the matching system call in guest code, as that task, on the vCPU that
corresponds to the host CPU it last ran on; `answer` is asked where the guest's file operation would
do its work. Everything here happens on the machine thread.

A task at rest in user mode stays current on its vCPU until another wants it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from emulated_kernel.asm_offsets import CONSTANTS, SYSCALLS
from emulated_kernel.errors import EmulatedKernelError, GuestFault, GuestTimeout
from emulated_kernel.machine import Machine, Rest, Vcpu
from emulated_kernel.machine.vcpu import IN_USER_MODE
from emulated_kernel.procfs import UNKNOWN_START, HostProcess, exists, read_other_process, read_tgid

log = logging.getLogger(__name__)

SYSCALL_ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
_EFLAGS_IF = 0x202
_NO_PID = 0xFFFFFFFF  # what free_pid leaves
_SPIN_BYTES = 64
_EINTR, _SIGKILL = 4, 9
_WNOHANG = 1
_CLONE_THREAD = 0x10000
_TURNS = 64  # how often other tasks may come first before a vCPU counts as stuck
_SLICE_S = 0.003

Answer = Callable[[int], int]
"""Asked at a file operation with its HOST_FOP_* number; the result goes to the guest as rax."""


class TaskDied(EmulatedKernelError):
    """The task ended inside the kernel: an oops, or a signal."""


class Asleep(Exception):
    """The system call sleeps in schedule(); run the same one again to go on with it."""


@dataclass(slots=True)
class Task:
    """A guest task (`address` of its task_struct) and the host process it stands for."""

    process: HostProcess
    address: int
    asleep: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a function that was run on demand ended: its rax, or what went wrong."""

    value: int
    failure: str = ""


class Tasks:
    """The guest's tasks that stand for host processes, and how to run code as one of them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._memory = machine.memory
        self._labels = machine.image.labels
        self._tasks: dict[int, Task] = {}
        self._arguments = machine.alloc(64)
        self.quiet: Callable[[], AbstractContextManager[None]] = nullcontext
        self.on_new_task: Callable[[Task], None] = lambda task: None
        self.before_exit: Callable[[Task], None] = lambda task: None
        self.acting: Vcpu = machine.cpus[0]
        init = self._memory.u64(self._labels["init_process"])
        self.init = Task(HostProcess(1, 0, 0, "init", 0), init)
        self._tasks[1] = self.init

    # --- finding and making tasks ----------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._tasks)

    def find(self, pid: int) -> Task | None:
        """The task that stands for a host pid, if there is one."""
        return self._tasks.get(pid)

    def comms(self) -> dict[int, str]:
        """pid -> name of every mirrored task."""
        return {pid: task.process.comm for pid, task in self._tasks.items()}

    def task_of(self, process: HostProcess) -> Task:
        """The task of a process: an old one, brought up to date, or a new one."""
        return self._twice(lambda: self._task_of(process))

    def _twice(self, work: Callable[[], Task]) -> Task:
        """Do it again, once, if it met what a dead task has left behind."""
        self._recover_lost()
        try:
            return work()
        except (GuestFault, GuestTimeout, TaskDied):
            log.exception("a task could not be had; trying again")
            self._recover_lost()
            return work()

    def _task_of(self, process: HostProcess) -> Task:
        task = self._tasks.get(process.pid)
        if task is not None and process.pid != 1:
            same = task.process.start_time in (process.start_time, UNKNOWN_START)
            if same and self._is_alive(task):
                return self._updated(task, process)
            self.exit(task)
        if process.pid == 1:
            return self.init
        tgid = read_tgid(process)
        if tgid != process.pid:
            leader = self._ancestor(tgid)
            return self._updated(self._fork(leader, process, _CLONE_THREAD), process)
        parent = self._ancestor(process.ppid)
        return self._updated(self._fork(parent, process), process)

    def adopt(self, process: HostProcess) -> Task:
        """A task that has no process behind it, or appears as already running; once per pid."""
        return self._twice(lambda: self._adopt(process))

    def _adopt(self, process: HostProcess) -> Task:
        known = self._tasks.get(process.pid)
        if known is not None and self._is_alive(known):
            return known
        with self.quiet():
            task = self._updated(self._fork(self.init, process), process)
            self._bring(self.vcpu_of(process), task)
        return task

    def _updated(self, task: Task, process: HostProcess) -> Task:
        if process.child_faults != task.process.child_faults:
            self._catch_up_wait(task)
        if process.comm != task.process.comm:
            self._exec(task, process.comm)
        self._memory.set_u32(task.address + CONSTANTS["TASK_PRIO"], process.prio)
        task.process = process
        return task

    def _catch_up_wait(self, task: Task) -> None:
        """The process has waited for a child meanwhile: it slept, and children that are gone ended.

        That they ended is told by others as well, but maybe later than what it does next.
        """
        vcpu = self.vcpu_of(task.process)
        if vcpu.current == task.address and vcpu.rest in IN_USER_MODE:
            self._machine.park(vcpu)
        for child in [t for t in self._tasks.values() if t.process.ppid == task.pid]:
            if not exists(child.pid):
                self.exit(child)

    def _ancestor(self, pid: int) -> Task:
        """The task of an ancestor; one not seen before appears without a trace of its start."""
        known = self._tasks.get(pid)
        if known is not None and self._is_alive(known):
            return known
        process = read_other_process(pid) if pid > 1 else None
        if process is None:
            return self.init
        parent = self._ancestor(process.ppid)
        with self.quiet():
            return self._updated(self._fork(parent, process), process)

    def _is_alive(self, task: Task) -> bool:
        return self._memory.u32(task.address + CONSTANTS["TASK_PID"]) == task.pid

    def _is_dead(self, task: Task) -> bool:
        return self._memory.u32(task.address + CONSTANTS["TASK_STATE"]) == CONSTANTS["TASK_DEAD"]

    def _fork(self, parent: Task, process: HostProcess, flags: int = 0) -> Task:
        vcpu = self.vcpu_of(parent.process)
        self._bring(vcpu, parent)
        vcpu.set_word("HOST_ARG", process.pid)
        pid = self._syscall_on(vcpu, parent, SYSCALLS["clone"], (flags,))
        if pid != process.pid:
            raise EmulatedKernelError(f"clone for pid {process.pid}: {pid}")
        address = self._machine.call("find_task_by_vpid", pid, cpu=vcpu.number)
        forked_from = replace(process, comm=parent.process.comm)
        task = Task(forked_from, address)
        self._tasks[pid] = task
        self.on_new_task(task)
        return task

    def _exec(self, task: Task, comm: str) -> None:
        name = comm.replace("/", "_").encode() or b"-"
        path = b"/usr/bin/" + name
        vcpu = self.vcpu_of(task.process)
        self._bring(vcpu, task)
        window, _ = self._machine.user_window(vcpu)
        with self.quiet():
            self._memory.write(window, name + b"\0")
            self._machine.call("host_install_binary", window, cpu=vcpu.number)
        self._memory.write(window, path + b"\0")
        result = self._syscall_on(vcpu, task, SYSCALLS["execve"], (window, 0, 0))
        if result:
            log.debug("execve of %s: %d", comm, result)
        raw = comm.encode()[:15]
        self._memory.write(task.address + CONSTANTS["TASK_COMM"], raw.ljust(16, b"\0"))

    def exit(self, task: Task, code: int = 0) -> None:
        """The host process has ended: its task runs do_exit, its parent reaps it."""
        self.before_exit(task)
        if self._tasks.get(task.pid) is task:
            del self._tasks[task.pid]
        if not self._is_alive(task):
            return
        if task.asleep:
            self.interrupt(task)
        vcpu = self.vcpu_of(task.process)
        try:
            self._bring(vcpu, task)
            self._enter(vcpu, SYSCALLS["exit_group"], (code,))
            self._run_until_gone(vcpu, task)
            self._reap(task)
        except (TaskDied, Asleep, GuestFault) as error:
            log.debug("exit of %d: %s", task.pid, error)

    def _reap(self, task: Task) -> None:
        """The parent waits for a task that has ended."""
        self._tasks.pop(task.pid, None)
        parent_address = self._memory.u64(task.address + CONSTANTS["TASK_PARENT"])
        parents = (t for t in self._tasks.values() if t.address == parent_address)
        parent = next(parents, self.init)
        if parent.asleep:
            self.interrupt(parent)
        vcpu = self.bring(parent)
        self._syscall_on(vcpu, parent, SYSCALLS["wait4"], (task.pid, 0, _WNOHANG, 0))

    # --- system calls ----------------------------------------------------------------------------

    def syscall(
        self, task: Task, name: str, arguments: tuple[int, ...], answer: Answer | None = None
    ) -> int:
        """Run a system call as `task` and return what it returned (negative: -errno).

        Raises Asleep when it went to sleep, TaskDied when the task did not survive it.
        """
        vcpu = self.vcpu_of(task.process)
        if task.asleep:
            rest = self._bring(vcpu, task)
        else:
            self._bring(vcpu, task)
            self._enter(vcpu, SYSCALLS[name], arguments)
            rest = self._machine.run_slice(vcpu)
        return self._finish(vcpu, task, rest, answer)

    def _syscall_on(self, vcpu: Vcpu, task: Task, number: int, arguments: tuple[int, ...]) -> int:
        self._enter(vcpu, number, arguments)
        return self._finish(vcpu, task, self._machine.run_slice(vcpu), None)

    def _enter(self, vcpu: Vcpu, number: int, arguments: tuple[int, ...]) -> None:
        registers = dict(zip(SYSCALL_ARGUMENTS, arguments, strict=False))
        vcpu.entries += 1
        vcpu.set(rax=number, rcx=self._labels["user_mode"], r11=_EFLAGS_IF, **registers)
        vcpu.rip = self._labels["entry_SYSCALL_64"]

    def _finish(self, vcpu: Vcpu, task: Task, rest: Rest, answer: Answer | None) -> int:
        for _ in range(_TURNS):
            if vcpu.current == task.address:
                if rest in IN_USER_MODE:
                    task.asleep = False
                    return _signed(self._memory.u64(task.address + CONSTANTS["TASK_RETVAL"]))
                if rest is Rest.FILE_OP:
                    rest = self._answer(vcpu, answer)
                    continue
            if rest is Rest.IDLE:
                if self._is_dead(task):
                    self._reap(task)
                    raise TaskDied(f"task {task.pid} died in the kernel")
                task.asleep = True
                raise Asleep
            rest = self._machine.park(vcpu)
        raise EmulatedKernelError(f"CPU {vcpu.number} does not come back to task {task.pid}")

    def _answer(self, vcpu: Vcpu, answer: Answer | None) -> Rest:
        outer, self.acting = self.acting, vcpu
        try:
            value = answer(vcpu.get("rdi")[0]) if answer is not None else 0
        finally:
            self.acting = outer
        vcpu.set(rax=value)
        return self._machine.run_slice(vcpu)

    def _run_until_gone(self, vcpu: Vcpu, task: Task) -> None:
        rest = self._machine.run_slice(vcpu)
        for _ in range(_TURNS):
            if vcpu.current != task.address:
                return
            in_file_op = rest is Rest.FILE_OP
            rest = self._answer(vcpu, None) if in_file_op else self._machine.park(vcpu)
        raise EmulatedKernelError(f"task {task.pid} does not end")

    def interrupt(self, task: Task) -> None:
        """End a sleeping system call with EINTR; one that sleeps on takes its task with it."""
        if not task.asleep:
            return
        vcpu = self.vcpu_of(task.process)
        self._memory.set_u32(task.address + CONSTANTS["TASK_SIGPENDING"], 1)
        try:
            rest = self._bring(vcpu, task)
            self._finish(vcpu, task, rest, lambda _: -_EINTR)
        except TaskDied as error:
            log.debug("interrupting %d: %s", task.pid, error)
        except Asleep:
            self._abandon(task)
        task.asleep = False

    # --- bringing a task to a vCPU ---------------------------------------------------------------

    def vcpu_of(self, process: HostProcess) -> Vcpu:
        return self._machine.cpus[process.cpu % self._machine.nr_cpus]

    def _bring(self, vcpu: Vcpu, task: Task) -> Rest:
        """Make `task` the current one of `vcpu`, by the guest's own scheduler."""
        self._recover_lost()
        if not self._is_alive(task):
            raise TaskDied(f"task {task.pid} died in the kernel")
        if vcpu.current == task.address and vcpu.rest is not Rest.IDLE:
            return vcpu.rest
        if self._memory.u32(task.address + CONSTANTS["TASK_ON_RQ"]):
            home = self._machine.cpus[self._memory.u32(task.address + CONSTANTS["TASK_CPU"])]
            if home is not vcpu:  # a runnable task does not change CPUs: it sleeps first
                self._bring(home, task)
                self._machine.park(home)
        if vcpu.rest in IN_USER_MODE:
            current = vcpu.current
            self._memory.set_u32(current + CONSTANTS["TASK_STATE"], CONSTANTS["TASK_INTERRUPTIBLE"])
            self._memory.set_u32(vcpu.percpu + CONSTANTS["NEED_RESCHED"], 1)
        elif vcpu.rest is not Rest.IDLE:
            raise EmulatedKernelError(f"CPU {vcpu.number} is busy: {vcpu.rest}")
        if not self._memory.u32(task.address + CONSTANTS["TASK_ON_RQ"]):
            self._memory.set_u32(task.address + CONSTANTS["TASK_WAKE_CPU"], vcpu.number + 1)
            vcpu.set_word("HOST_WAKE", task.address)
        rest = self._machine.interrupt(vcpu, "asm_sysvec_call_function_single")
        for _ in range(_TURNS):
            if vcpu.current == task.address and rest is not Rest.IDLE:
                return rest
            if rest is Rest.IDLE:
                if task.asleep:  # woken for nothing, it went back to sleep
                    return rest
                break
            rest = self._machine.park(vcpu)
        raise EmulatedKernelError(f"task {task.pid} does not get CPU {vcpu.number}")

    def bring(self, task: Task) -> Vcpu:
        """Make `task` the current one of its vCPU and return that."""
        vcpu = self.vcpu_of(task.process)
        self._bring(vcpu, task)
        return vcpu

    # --- functions on demand ---------------------------------------------------------------------

    def call_once(
        self, task: Task, address: int, arguments: tuple[int, ...], answer: Answer | None = None
    ) -> CallResult:
        """Call a function once as `task`, which is not asleep; `answer` as for a system call."""
        vcpu = self.bring(task)
        return self._call(vcpu, task, address, arguments, 1, answer)

    def call_slices(
        self, task: Task, address: int, arguments: tuple[int, ...], count: int
    ) -> Generator[None, None, CallResult]:
        """Call a function `count` times as `task`, in slices of a few milliseconds.

        For Machine.run_sliced. A fault or a function that does not return ends in the result's
        `failure`; the task dies of it, as after an oops, and the machine goes on.
        """
        vcpu = self.vcpu_of(task.process)
        done, chunk = 0, min(count, 64)
        result = CallResult(0)
        while done < count:
            self._bring(vcpu, task)
            chunk = min(chunk, count - done)
            started = time.perf_counter()
            result = self._call(vcpu, task, address, arguments, chunk, None)
            if result.failure:
                return result
            done += chunk
            elapsed = time.perf_counter() - started
            chunk = max(1, min(chunk * 8, int(chunk * _SLICE_S / max(elapsed, 1e-6))))
            if done < count:
                yield
        return result

    def _call(
        self,
        vcpu: Vcpu,
        task: Task,
        address: int,
        arguments: tuple[int, ...],
        count: int,
        answer: Answer | None,
    ) -> CallResult:
        """Run host_call on the vCPU, whose current task is `task`."""
        for index in range(6):
            word = arguments[index] if index < len(arguments) else 0
            self._memory.set_u64(self._arguments + 8 * index, word)
        vcpu.entries += 1
        vcpu.set(r12=address, r13=self._arguments, r14=count)
        try:
            rest = self._machine.run_slice(vcpu, self._labels["host_call"])
            for _ in range(_TURNS):
                is_ours = vcpu.current == task.address
                if is_ours and rest is Rest.CALL:
                    return CallResult(vcpu.get("rax")[0])
                if is_ours and rest is Rest.FILE_OP:
                    rest = self._answer(vcpu, answer)
                elif rest is Rest.IDLE:
                    if is_ours:  # in an idle loop of its own, with nobody to take it off the CPU
                        self.recover(vcpu)
                        return CallResult(0, "took the CPU over; the task was killed")
                    return self._ended_badly(task)
                else:
                    rest = self._machine.park(vcpu)
        except GuestTimeout as error:
            self.recover(vcpu)
            return CallResult(0, str(error))
        raise EmulatedKernelError(f"CPU {vcpu.number} does not come back to task {task.pid}")

    def _ended_badly(self, task: Task) -> CallResult:
        if not self._is_dead(task):
            task.asleep = True
            self.interrupt(task)
            return CallResult(0, "went to sleep; interrupted")
        self._reap(task)
        return CallResult(0, "Oops: the task was killed")

    def _recover_lost(self) -> None:
        for vcpu in self._machine.cpus:
            if vcpu.is_lost:
                self.recover(vcpu)

    def recover(self, vcpu: Vcpu) -> None:
        """Bring a vCPU back that stopped where it should not.

        The task that ran dies where it is. Where not even that can be done, it is left behind for
        good and the idle loop starts again.
        """
        vcpu.is_lost = False
        self._memory.set_u32(vcpu.percpu + CONSTANTS["RQ_LOCK"], 0)
        vcpu.set_word("HOST_WAKE", 0)
        self._break_lock(vcpu)
        address = vcpu.current
        is_idle = self._memory.u32(address + CONSTANTS["TASK_FLAGS"]) & CONSTANTS["PF_IDLE"]
        victim = next((t for t in self._tasks.values() if t.address == address), None)
        try:
            if not is_idle and self._memory.u64(address + CONSTANTS["TASK_STACK"]):
                self._kill_current(vcpu)
                if victim is not None:
                    self._reap(victim)
                return
        except EmulatedKernelError:
            log.exception("task %#x of CPU %d could not be killed", address, vcpu.number)
        if victim is not None:
            self._abandon(victim)
        self._restart_idle(vcpu)

    def _break_lock(self, vcpu: Vcpu) -> None:
        """Free the spin lock that the vCPU was waiting for.

        No vCPU holds one at a safepoint and all run in turn, so its holder is dead.
        """
        spin = self._labels["native_queued_spin_lock_slowpath"]
        rip, lock = vcpu.get("rip", "rdi")
        if spin <= rip < spin + _SPIN_BYTES and self._memory.is_mapped(lock, 4):
            self._memory.set_u32(lock, 0)

    def _kill_current(self, vcpu: Vcpu) -> None:
        address = vcpu.current
        top = self._memory.u64(address + CONSTANTS["TASK_STACK"]) + CONSTANTS["STACK_BYTES"]
        vcpu.set(rsp=top - 256, rdi=_SIGKILL, rbp=0)
        rest = self._machine.run_slice(vcpu, self._labels["host_kill_current"])
        for _ in range(_TURNS):
            if vcpu.current != address:
                return
            rest = self._answer(vcpu, None) if rest is Rest.FILE_OP else self._machine.park(vcpu)
        raise EmulatedKernelError(f"task {address:#x} does not end")

    def _restart_idle(self, vcpu: Vcpu) -> None:
        constants, memory, percpu = CONSTANTS, self._memory, vcpu.percpu
        left = vcpu.current
        idle = vcpu.word("RQ_IDLE")
        if left != idle and memory.u32(left + constants["TASK_ON_RQ"]):
            memory.set_u32(left + constants["TASK_ON_RQ"], 0)
            running = percpu + constants["RQ_NR_RUNNING"]
            memory.set_u32(running, memory.u32(running) - 1)
        vcpu.set_word("CURRENT_TASK", idle)
        vcpu.set_word("RQ_CURR", idle)
        vcpu.is_lost = False
        zero = ("CURRENT_PID", "IRQ_DEPTH", "SOFTIRQ_DEPTH", "NEED_RESCHED", "TRACE_RECURSION")
        for name in zero:
            memory.set_u32(percpu + constants[name], 0)
        memory.set_u8(percpu + constants["IRQ_FLAGS"], 0)
        memory.set_u8(percpu + constants["PREEMPT_DEPTH"], 1)
        top = memory.u64(idle + constants["TASK_STACK"]) + constants["STACK_BYTES"]
        vcpu.set(rsp=top - 64, rbp=0)
        self._machine.run_slice(vcpu, self._labels["cpu_startup_entry"])

    def _abandon(self, task: Task) -> None:
        """Leave a task where it is for ever; its process gets a new one when it comes again."""
        self._memory.set_u32(task.address + CONSTANTS["TASK_PID"], _NO_PID)
        if self._tasks.get(task.pid) is task:
            del self._tasks[task.pid]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
