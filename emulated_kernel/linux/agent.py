"""Processes of the guest that do what the host says: system calls, and calls of kernel functions.

    host                        guest
    Work, a generator           a process in a loop in user mode (agent.S)
      yield SystemCall(…)   →     its registers are set, it goes on with `syscall`
      result                ←     and stops with what rax is
      yield Call(…)         →     it is taken into the kernel, onto its own empty stack, and
                                  calls there as a system call would: it may sleep, and a fault
                                  is an oops of its own

A process without work stands where it stopped for a few milliseconds, since more often than not
there is more; then it sleeps in the kernel until it is woken, by an interrupt of a device of ours
(host_device.S). All processes come from one that init forks. Everything here happens on the machine
thread, most of it in a hook of the processor.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.errors import (
    CallInterrupted,
    EmulatedKernelError,
    GuestFault,
    GuestTimeout,
)
from emulated_kernel.linux.agent_work import (
    AgentProcess,
    Call,
    Poke,
    Program,
    Step,
    SystemCall,
    Work,
)
from emulated_kernel.linux.host_device import HostDevice, host_code
from emulated_kernel.linux.initramfs import init_code
from emulated_kernel.linux.offsets import AgentOffsets, agent_offsets
from emulated_kernel.linux.pc import HOST_LINE, STACK_BYTES, PcMachine
from emulated_kernel.linux.vmlinux import Vmlinux

T = TypeVar("T")
log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 5.0
_STANDS_S = 0.012  # three ticks of the guest's, which cost less than to sleep and to be woken
_DRIVES_S = 0.02  # at a time, before others may have the machine
_LOOKS_S = 0.05  # how often it is looked whether a process still lives
_LOOKS_FOR_S = 0.004  # and whether one has begun
_GIVES_UP_AFTER = 100  # attempts, with the guest running on between them
_CALLS_LEFT = -24  # host_device.S: from the frame on its stack
_TASK_RUNNING = 0
_IN_INTERRUPT = 0xF0100  # HARDIRQ_MASK, SOFTIRQ_OFFSET (include/linux/preempt.h)
_USER_CS, _USER_DS, _USER_FLAGS = 0x33, 0x2B, 0x202
_IRQS_OFF = 2
_SYSCALL_ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
_SYSV_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_WORDS = (
    *("rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9"),
    *("r10", "r11", "r12", "r13", "r14", "r15"),
)
_GETPID, _PRCTL, _SCHED_SETAFFINITY, _CLONE3 = 39, 157, 203, 435
_KILL, _SIGKILL, _EXIT_GROUP = 62, 9, 231
_CPU = 0  # that they are on
_PR_SET_NAME = 15
_SIGCHLD, _CLONE_ARGS_BYTES, _CLONE_ARGS_WORDS = 17, 80, 10
_COMM, _COMM_BYTES = b"ftracefs", 16
_EXECVE, _SYMLINK, _PROGRAMS, _PATH_WORDS = 59, 88, b"/dev/ftracefs-programs/", 6
_MKDIR, _MKNOD, _S_IFCHR = 83, 133, 0o020000


class Agents:
    """The processes of one guest. `is_ready` when they wait for work."""

    def __init__(self, machine: PcMachine, vmlinux: Vmlinux) -> None:
        self._machine = machine
        self._memory = machine.memory
        self._vmlinux = vmlinux
        self._offsets: AgentOffsets = agent_offsets(vmlinux)
        self._code = host_code(vmlinux, self._offsets)
        self._user = init_code().labels
        self._per_cpu_offset = vmlinux.symbol("__per_cpu_offset")
        self._gs_bases: dict[int, int] = {}  # of the processors
        self._processes: dict[int, AgentProcess] = {}  # by task
        self._root: AgentProcess | None = None
        self._worker: AgentProcess | None = None
        self._standing: AgentProcess | None = None
        self._standing_until = 0.0
        self._to_wake: deque[AgentProcess] = deque()
        self.is_ready = False
        self.failure: str | None = None
        machine.enter_host_code(self._code, self._user["agent_stopped"])
        labels = self._code.labels
        machine.host_stops.update(
            {
                self._user["agent_stopped"]: self._user_stops,
                labels["agent_called"]: self._called,
                labels["agent_rests"]: self._rests,
                labels["agent_rested"]: self._rested,
                labels["device_wakes"]: self._wakes,
            }
        )
        self._device = HostDevice(machine, vmlinux, self._code.labels, self._current)
        machine.before_guest = self._before_guest
        machine.stands_until = self._stands_until

    def let_guest_run(self) -> None:
        """Between two steps of a text patch."""
        self._device.let_guest_run()

    @property
    def words(self) -> int:
        """Where Poke puts its words, in each process."""
        return self._user["agent_words"]

    def address(self, name: str) -> int:
        """Of a label of agent.S, in each process."""
        return self._user[f"agent_{name}"]

    @property
    def root(self) -> AgentProcess | None:
        """The process that all others come from."""
        return self._root

    # --- as a whole ------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """What `restore` takes; while all are at rest."""

        def known(process: AgentProcess | None) -> list[int] | None:
            if process is None:
                return None
            return [process.pid, process.task, process.canary, process.rsp]

        return {"root": known(self._root), "worker": known(self._worker), "failure": self.failure}

    def restore(self, saved: dict[str, Any]) -> None:
        def process(numbers: list[int] | None) -> AgentProcess | None:
            if numbers is None:
                return None
            pid, task, canary, rsp = numbers
            made = AgentProcess(int(pid), int(task), int(canary), int(rsp))
            self._processes[made.task] = made
            return made

        self._root, self._worker = process(saved["root"]), process(saved["worker"])
        self.failure, self.is_ready = saved["failure"], True

    def is_at_rest(self) -> bool:
        """Whether no process of ours is in the middle of something."""
        busy = any(process.work or process.is_in_step for process in self._processes.values())
        is_complete = self._worker is not None or self.failure is not None
        return is_complete and self._standing is None and not busy

    # --- the guest as it stands ------------------------------------------------------------------

    @property
    def _gs_base(self) -> int:
        """Of the processor that runs."""
        return self._gs_base_of(self._machine.processors.number)

    def _gs_base_of(self, number: int) -> int:
        base = self._gs_bases.get(number)
        if base is None:  # they stay where they are from before there is a process
            base = self._memory.u64(self._per_cpu_offset + 8 * number)
            self._gs_bases[number] = base
        return base

    def _current_task(self) -> int:
        return self._memory.u64(self._gs_base + self._offsets.current)

    def _current(self) -> AgentProcess | None:
        process = self._processes.get(self._current_task())
        return process if process is not None and self._is_same(process) else None

    def _is_same(self, process: AgentProcess) -> bool:
        at = process.task + self._offsets.stack_canary
        return self._memory.u64(at) == process.canary

    def is_alive(self, process: AgentProcess) -> bool:
        """Whether it can do anything yet."""
        exit_state = self._memory.u32(process.task + self._offsets.exit_state)
        return self._is_same(process) and not exit_state

    # --- stops of the processor, in a hook -------------------------------------------------------

    def _user_stops(self) -> bool:
        if self._machine.cpu.state.cpl != 3:
            return False
        process = self._current() or self._adopt()
        if process is None:
            return False
        if process is self._standing and not process.work:
            self._machine.cpu.hooks.want_turn()  # it is back from an interrupt
            return True
        result, process.rsp = self._machine.cpu.get("rax", "rsp")
        self._go_on(process, result if process.is_in_step else None)
        return True

    def _adopt(self) -> AgentProcess | None:
        """Init's child, or a child of one of ours."""
        memory, offsets, task = self._memory, self._offsets, self._current_task()
        parent = memory.u64(task + offsets.real_parent)
        is_first = self._root is None or not self.is_alive(self._root)
        if not is_first and parent not in self._processes:
            return None
        (rsp,) = self._machine.cpu.get("rsp")
        pid, canary = memory.u32(task + offsets.pid), memory.u64(task + offsets.stack_canary)
        process = self._processes[task] = AgentProcess(pid, task, canary, rsp)
        if is_first:
            self._root = process
            process.work.append(Work(self._begin_again() if self.is_ready else self._set_up()))
        elif self._worker is None:
            self._worker = process
        return process

    def _called(self) -> bool:
        process = self._current()
        if process is None or not process.is_calling:
            return False
        process.is_calling = False
        if process.is_given_up:
            del self._processes[process.task]
            self._load(process, SystemCall(_EXIT_GROUP, (0,)))
            return True
        (result,) = self._machine.cpu.get("rax")
        self._go_on(process, result)
        return True

    def _rests(self) -> bool:
        process = self._current()
        if process is None:
            return False
        self._machine.cpu.set(rax=int(bool(process.work)))
        return True

    def _rested(self) -> bool:
        process = self._current()
        if process is None:
            return False
        if process.work:
            self._go_on(process, None)
        else:  # for a signal, which is seen to behind a system call
            self._load(process, SystemCall(_GETPID))
        return True

    def _wakes(self) -> bool:
        task = 0
        while self._to_wake and not task:
            process = self._to_wake.popleft()
            if self._is_same(process):
                task = process.task
        self._machine.cpu.set(rax=task)
        return True

    def _go_on(self, process: AgentProcess, result: int | None) -> None:
        """With the next step there is, given the result of the last one."""
        process.is_in_step = False
        self._standing = None
        while process.work:
            work = process.work[0]
            step = None if work.is_done else work.step(result)
            while isinstance(step, Poke) and process.has_words and self._poke(step):
                step = work.step(0)
            if step is not None:
                process.is_in_step = True
                self._load(process, step)
                return
            process.work.popleft()
            result = None
            self._machine.settle(lambda: None)
            self._machine.cpu.hooks.want_turn()
        self._stand(process)

    def _stand(self, process: AgentProcess) -> None:
        """Where it is in user mode, as one that computes; not if others want the processor."""
        self._to_user(process, self._user["agent_loop"])
        self._standing = process
        running = self._memory.u32(self._gs_base + self._offsets.rq_nr_running)
        stands = running == 1 and not self._machine.time.is_virtual
        self._standing_until = time.monotonic() + _STANDS_S if stands else 0.0
        self._machine.cpu.hooks.want_turn()

    # --- between stops ---------------------------------------------------------------------------

    def _before_guest(self) -> None:
        self._device.before_guest()
        process = self._standing
        if process is None or not self._stands(process):
            return
        if process.work:
            self._go_on(process, None)
        elif time.monotonic() >= self._standing_until:
            self._standing = None
            self._to_kernel(process, self._code.labels["agent_rest"])

    def _stands(self, process: AgentProcess) -> bool:
        processors = self._machine.processors
        (rip,) = processors.registers(_CPU, "rip")
        is_in_loop = rip in (self._user["agent_loop"], self._user["agent_stopped"])
        if not is_in_loop or processors.cpl(_CPU) != 3:
            return False
        current = self._memory.u64(self._gs_base_of(_CPU) + self._offsets.current)
        return current == process.task and self._is_same(process)

    def _stands_until(self) -> float | None:
        process, until = self._standing, self._standing_until
        if process is None or process.work or until <= time.monotonic():
            return None
        return until if self._stands(process) else None

    def _load(self, process: AgentProcess, step: Step) -> None:
        match step:
            case SystemCall():
                self._to_user(process, self._user["agent_system_call"])
                registers = dict(zip(_SYSCALL_ARGUMENTS, step.arguments, strict=False))
                self._machine.cpu.set(rax=step.number, **registers)
                if step.number in (_CLONE3, _EXECVE):
                    process.has_words = False
            case Poke():
                process.has_words = True
                self._to_user(process, self._user["agent_poke"])
                self._machine.cpu.set(**dict(zip(_WORDS, step.words, strict=False)))
            case Call():
                self._to_kernel(process, self._code.labels["agent_call"])
                process.is_calling = True
                registers = dict(zip(_SYSV_ARGUMENTS, step.arguments, strict=False))
                self._machine.cpu.set(r12=step.address, r14=step.count, **registers)

    def _poke(self, step: Poke) -> bool:
        """Put words into the memory of the current process, if that can be done from outside: it
        has written there itself, so the page is its own until it forks."""
        try:
            self._memory.write(self.words, struct.pack(f"<{len(step.words)}Q", *step.words))
        except EmulatedKernelError:
            return False
        return True

    def _to_user(self, process: AgentProcess, rip: int) -> None:
        cpu = self._machine.cpu
        cpu.state.set_privilege(_USER_CS, _USER_DS, 3)
        cpu.state.eflags = _USER_FLAGS
        cpu.set(rip=rip, rsp=process.rsp)

    def _to_kernel(self, process: AgentProcess, rip: int) -> None:
        """As an interrupt would, with the process's registers on its stack."""
        cpu, memory, offsets = self._machine.cpu, self._memory, self._offsets
        top = memory.u64(self._gs_base + offsets.top_of_stack)
        frame = top - CONSTANTS["FRAME_BYTES"]
        memory.write(frame, bytes(CONSTANTS["FRAME_BYTES"]))
        for name, value in {
            "ORIG_RAX": -1 & 0xFFFFFFFFFFFFFFFF,
            "RIP": self._user["agent_loop"],
            "CS": _USER_CS,
            "EFLAGS": _USER_FLAGS,
            "RSP": process.rsp,
            "SS": _USER_DS,
        }.items():
            memory.set_u64(frame + CONSTANTS[f"PT_{name}"], value)
        process.preempt_count = memory.u32(self._gs_base + offsets.preempt_count)
        process.frame = frame
        cpu.state.set_privilege(CONSTANTS["KERNEL_CS"], CONSTANTS["KERNEL_DS"], 0)
        cpu.state.eflags = _IRQS_OFF
        cpu.set(rip=rip, rsp=frame - 8, rbp=0)

    # --- work ------------------------------------------------------------------------------------

    def submit(self, process: AgentProcess, work: Work[T]) -> Work[T]:
        """Have a process do something; on the machine thread."""
        process.work.append(work)
        self._machine.rouse()
        self._machine.processors.prefer(_CPU)
        if process is not self._standing and not process.is_in_step:
            self._wake(process)
        return work

    def resume(
        self, process: AgentProcess, work: Work[Any], perform: Callable[[], int | str]
    ) -> None:
        """Go on with work that sleeps; on the machine thread."""
        work.go_on(perform)
        self._machine.rouse()
        self._machine.processors.prefer(_CPU)
        self._wake(process)

    def _wake(self, process: AgentProcess) -> None:
        self._standing_until = 0.0
        self._to_wake.append(process)
        self._machine.raise_line(HOST_LINE)

    def finish(
        self,
        process: AgentProcess,
        work: Work[T],
        timeout: float = CALL_TIMEOUT_S,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> T:
        """Wait until work is done, the guest running meanwhile; its result.

        Raises GuestTimeout, CallInterrupted, GuestFault when the process has died of it,
        GuestDeadError.
        """
        self.settle(process, work, timeout, is_interrupted)
        return work.result()

    def do(self, process: AgentProcess, work: Work[T]) -> None:
        """Have a process do something, and wait until that is done or sleeps."""

        def begin() -> None:
            if self.is_alive(process):
                self.submit(process, work)
                self._drive(work)
            else:
                work.fail(GuestFault(f"process {process.pid} has ended", vector=-1, rip=0))

        self._machine.run(begin)
        self.settle(process, work)

    def settle(
        self,
        process: AgentProcess,
        work: Work[T],
        timeout: float = CALL_TIMEOUT_S,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait until work is done, or sleeps. `is_interrupted` is asked on this thread."""
        machine, device = self._machine, self._device
        # What the host does meanwhile, for whomever, is no time in which nothing comes back.
        end = time.monotonic() + timeout - device.performed_s
        died = GuestFault("Oops: the task was killed", vector=-1, rip=0)
        timed_out = GuestTimeout(f"no return within {timeout:g} s")
        while not work.is_settled:
            machine.run(lambda: self._drive(work))
            if work.is_settled:
                break
            machine.check_alive()
            if not machine.run(lambda: self.is_alive(process)):
                machine.run(lambda: self._forget(process, died))
            elif time.monotonic() - device.performed_s > end:
                machine.run(lambda: self._give_up(process, work, timed_out))
            elif is_interrupted():
                machine.run(lambda: self._give_up(process, work, CallInterrupted("interrupted")))
            elif machine.is_mine:
                machine.wait_for_guest(_LOOKS_S)
            else:
                work.wait(_LOOKS_S)
        if machine.time.is_virtual:
            machine.run(lambda: self._rest(time.monotonic() + timeout))

    def _rest(self, end: float) -> None:
        """In virtual time whoever goes on finds the guest at rest, if nobody else wants something
        of it."""
        machine = self._machine
        with machine.driving():
            while machine.is_coming_to_rest and time.monotonic() < end:
                machine.run_guest()

    def _drive(self, work: Work[T] | None = None) -> None:
        """Let the guest run until work is done, for a while."""
        machine, end = self._machine, time.monotonic() + _DRIVES_S
        with machine.driving():
            while machine.failure is None and time.monotonic() < end:
                machine.run_guest()
                if work is not None and work.is_settled:
                    return
                if not self._device.is_asked and machine.guest_waits:
                    return

    def _forget(self, process: AgentProcess, error: EmulatedKernelError) -> None:
        """It is dead."""
        if self._processes.get(process.task) is process:
            del self._processes[process.task]
        if self._standing is process:
            self._standing = None
        for work in process.work:
            work.fail(error)
            self._machine.settle(lambda: None)
        process.work.clear()

    def _give_up(self, process: AgentProcess, work: Work[T], error: EmulatedKernelError) -> None:
        """Nobody waits for it any more: a call that computes is left where it is, one that sleeps
        ends its process. What has not begun never will.
        """
        work.fail(error)
        if not work.has_begun:
            return
        for attempt in range(_GIVES_UP_AFTER):
            may_be_off = attempt >= _GIVES_UP_AFTER // 2
            if self._runs_on_its_stack(process, irqs_off=may_be_off):
                self._leave(process)
                return
            if self._sleeps_in_call(process):
                self._kill(process)
                return
            self._machine.let_guest_run()
        self._forget(process, error)

    def _sleeps_in_call(self, process: AgentProcess) -> bool:
        if not process.is_calling or self._current() is process or not self.is_alive(process):
            return False
        return self._memory.u32(process.task + self._offsets.state) != _TASK_RUNNING

    def _kill(self, process: AgentProcess) -> None:
        """A sleep that a signal does not end is slept to its end, as anywhere."""
        process.is_given_up = True
        self._memory.set_u64(process.frame + _CALLS_LEFT, 1)
        others, process.work = process.work, deque()
        for work in others:
            work.fail(GuestFault("Oops: the task was killed", vector=-1, rip=0))
            self._machine.settle(lambda: None)
        root = self._root
        if root is not None and self.is_alive(root):
            self.submit(root, Work(_kill(process.pid)))

    def _runs_on_its_stack(self, process: AgentProcess, *, irqs_off: bool) -> bool:
        """Whether it computes in the kernel in its own context, not in an interrupt's."""
        cpu, memory, offsets = self._machine.cpu, self._memory, self._offsets
        if not process.is_calling or cpu.state.cpl or self._current() is not process:
            return False
        (rsp,) = cpu.get("rsp")
        top = memory.u64(self._gs_base + offsets.top_of_stack)
        count = memory.u32(self._gs_base + offsets.preempt_count)
        in_task = top - STACK_BYTES < rsp <= top and not count & _IN_INTERRUPT
        return in_task and (cpu.state.may_be_interrupted or irqs_off)

    def _leave(self, process: AgentProcess) -> None:
        """Out of a call, as if it had returned."""
        memory, offsets = self._memory, self._offsets
        top = memory.u64(self._gs_base + offsets.top_of_stack)
        self._machine.forget_frames(top)
        memory.set_u32(self._gs_base + offsets.preempt_count, process.preempt_count)
        self._machine.cpu.state.eflags = _IRQS_OFF
        self._machine.cpu.set(
            rip=self._code.labels["agent_leave"], rsp=top - CONSTANTS["FRAME_BYTES"] - 8
        )

    # --- what they do ----------------------------------------------------------------------------

    def call_in_process(
        self,
        address: int,
        *arguments: int,
        count: int = 1,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> int:
        """Call a kernel function as a process of its own, which may sleep; its rax.

        With `count` it is called that often, and the last rax is it.

        Raises GuestFault if the process dies of it, GuestTimeout if it does not come back,
        CallInterrupted, and GuestDeadError. From any thread.
        """

        def program() -> Program[int]:
            return (yield Call(address, arguments, count))

        while True:
            worker = self._get_worker()
            work = self._machine.run(lambda worker=worker: self.submit(worker, Work(program())))  # type: ignore[misc]
            try:
                return self.finish(worker, work, CALL_TIMEOUT_S, is_interrupted)
            except GuestFault:
                if work.has_begun:
                    raise  # else somebody has killed it meanwhile

    def _get_worker(self) -> AgentProcess:
        self._machine.check_alive()
        if self.failure is not None:
            raise EmulatedKernelError(f"no agent in the guest: {self.failure}")
        worker = self._worker
        if worker is not None and self._is_usable(worker):
            return worker
        pid = self._fork_worker()
        if pid < 0:
            raise EmulatedKernelError(f"clone3: {pid}")
        worker = self._worker = self.born(pid)
        return worker

    def _fork_worker(self) -> int:
        """The pid of a new one, or -errno."""
        end = time.monotonic() + CALL_TIMEOUT_S
        while True:
            root = self._until(lambda: self._root)
            work = self._machine.run(lambda root=root: self.submit(root, Work(self.clone())))  # type: ignore[misc]
            try:
                return self.finish(root, work)
            except GuestFault:  # somebody has killed it meanwhile; init forks another
                if time.monotonic() > end:
                    raise

    def born(self, pid: int) -> AgentProcess:
        """The process that one of ours has forked, as soon as it has begun. Raises GuestTimeout."""
        return self._until(lambda: self._find(pid))

    def _find(self, pid: int) -> AgentProcess | None:
        return next((p for p in list(self._processes.values()) if p.pid == pid), None)

    def _is_usable(self, process: AgentProcess) -> bool:
        is_ours = self._processes.get(process.task) is process and not process.is_given_up
        return is_ours and self._machine.run(lambda: self.is_alive(process))

    def _until(self, find: Callable[[], AgentProcess | None]) -> AgentProcess:
        """A process that is about to begin, as soon as it has. Raises GuestTimeout."""
        end = time.monotonic() + CALL_TIMEOUT_S
        while time.monotonic() < end:
            process = find()
            if process is not None and self._is_usable(process):
                return process
            self._machine.run(self._drive)
            if find() is None:
                self._machine.wait_for_guest(_LOOKS_FOR_S)
            self._machine.check_alive()
        raise GuestTimeout("no process of the agent's begins")

    def clone(self, pid: int = 0) -> Program[int]:
        """Fork, the child with a given pid if that is not 0; the child's pid, or -errno."""
        words = [0] * (_CLONE_ARGS_WORDS + 1)
        words[4] = _SIGCHLD
        if pid:
            words[8], words[9], words[10] = self.words + _CLONE_ARGS_BYTES, 1, pid
        yield Poke(tuple(words))
        return signed((yield SystemCall(_CLONE3, (self.words, _CLONE_ARGS_BYTES))))

    def program(self, name: bytes) -> Program[int]:
        """Make that there is a file of that name to execute."""
        yield Poke(_string(_PROGRAMS + name))
        return signed((yield SystemCall(_SYMLINK, (self.address("init"), self.words))))

    def execute(self, name: bytes) -> Program[int]:
        """Be another program, which does the same; 0, or -errno."""
        path = _string(_PROGRAMS + name)
        arguments = (self.words + len(_PROGRAMS), 0, self.address("mark"), 0)
        yield Poke((*path, *arguments))
        argv = self.words + 8 * len(path)
        return signed((yield SystemCall(_EXECVE, (self.words, argv, argv + 16))))

    def rename(self, comm: bytes) -> Program[None]:
        """Have another name."""
        raw = comm[: _COMM_BYTES - 1].ljust(_COMM_BYTES, b"\0")
        yield Poke((int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")))
        yield SystemCall(_PRCTL, (_PR_SET_NAME, self.words))

    # --- at boot ---------------------------------------------------------------------------------

    def _set_up(self) -> Program[None]:
        """What init's first child does."""
        yield from self._stay()
        self._memory.enter_engine(self._machine.cpu.page_table_root)
        labels, symbol = self._code.labels, self._vmlinux.symbol
        name = labels["device_name"]
        handler = (HOST_LINE, labels["device_interrupt"], 0, 0, name, 0)
        result = signed((yield Call(symbol("request_threaded_irq"), handler)) & 0xFFFFFFFF, 32)
        if result < 0:
            self.failure = f"request_threaded_irq: {result}"
        device = (0, 0, 1, name, labels["device_operations"])
        major = signed((yield Call(symbol("__register_chrdev"), device)) & 0xFFFFFFFF, 32)
        if major < 0:
            self.failure = f"__register_chrdev: {major}"
        yield SystemCall(_MKNOD, (self.address("device"), _S_IFCHR | 0o666, major << 8))
        for directory in ("directory", "programs"):
            yield SystemCall(_MKDIR, (self.address(directory), 0o755))
        yield from self.rename(_COMM)
        child = yield from self.clone()
        if child < 0:
            self.failure = f"clone3: {child}"
        self.is_ready = True

    def _begin_again(self) -> Program[None]:
        yield from self._stay()
        yield from self.rename(_COMM)

    def _stay(self) -> Program[None]:
        """Be on one processor, as all that come from it will."""
        if self._machine.processors.count > 1:
            yield Poke((1 << _CPU,))
            yield SystemCall(_SCHED_SETAFFINITY, (0, 8, self.words))


def _kill(pid: int) -> Program[None]:
    yield SystemCall(_KILL, (pid, _SIGKILL))


def _string(text: bytes) -> tuple[int, ...]:
    """As words for Poke."""
    return struct.unpack(f"<{_PATH_WORDS}Q", text.ljust(8 * _PATH_WORDS, b"\0"))


def signed(value: int, bits: int = 64) -> int:
    """A number of the guest's, which may be a negative one."""
    return value - (1 << bits) if value >> (bits - 1) else value
