"""Trampolines with a task asleep in them: kept as long as it sleeps, freed when it has left.

On the built-in kernel: a task's system call is traced, and sleeps in schedule() inside the
callback, or in the function that a trampoline has called.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from support.ftrace_kernel import load_code
from support.kernel_scenario import Walk
from support.shell import Shell, isolated

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Rest
from emulated_kernel.tasks import Asleep, Task
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.bpf_trampoline import BpfAttachType, BpfTrampoline
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.ops import FTRACE_OPS_FL_DYNAMIC, FTRACE_OPS_FL_SAVE_REGS
from ftracefs.ftrace.rcu_tasks import in_use

CODE = """# A callback that sleeps until somebody wakes the task, and a program.
FUNC_NOTRACE sleeping_callback
    push rdi
    push rsi
    push rdx
    push rcx
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_INTERRUPTIBLE
    call schedule
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    mov rax, [rdx + OP_PRIVATE]
    inc qword ptr [rax]
    ret
ENDFUNC sleeping_callback
FUNC_NOTRACE counting_callback
    mov rax, [rdx + OP_PRIVATE]
    inc qword ptr [rax]
    ret
ENDFUNC counting_callback
FUNC_NOTRACE keep_result_prog            # of a function with up to six arguments
    mov rax, [rdi + 48]
    mov [rip + result], rax
    ret
ENDFUNC keep_result_prog
.data
OBJECT result
    .quad 0
ENDOBJECT result
"""
EINTR = 4


@dataclass
class Guest:
    """A session, a task in it, and the code above."""

    shell: Shell
    walk: Walk
    task: Task
    labels: dict[str, int]

    @property
    def ftrace(self) -> Ftrace:
        return self.shell.session.ftrace

    def run(self, work: Callable[[], object]) -> None:
        self.shell.machine.run(work)

    def on(self, callback: str, function: str, flags: int) -> FtraceOps:
        ftrace = self.ftrace
        private = ftrace.machine.alloc(64)
        ops = ftrace.new_ops(self.labels[callback], private=private, flags=flags, name=callback)
        self.run(lambda: ftrace_set_filter(ftrace, ops, function.encode()))
        self.run(lambda: ftrace.register_ftrace_function(ops))
        return ops

    def hits(self, ops: FtraceOps) -> int:
        return self.ftrace.memory.u64(ops.private)

    def stack_of_sleeper(self) -> list[int]:
        """The words on its stack, from where schedule() has left it."""
        memory, address = self.ftrace.memory, self.task.address
        top = memory.u64(address + CONSTANTS["TASK_STACK"]) + CONSTANTS["STACK_BYTES"]
        sp = memory.u64(address + CONSTANTS["TASK_SP"])
        return list(struct.unpack(f"<{(top - sp) // 8}Q", memory.read(sp, (top - sp) & ~7)))

    def is_on_its_stack(self, start: int, size: int) -> bool:
        return any(start <= word < start + size for word in self.stack_of_sleeper())


@pytest.fixture
def guest() -> Iterator[Guest]:
    with isolated() as shell:
        walk = Walk(shell.machine, shell.session.tasks)
        task = walk.task(700, "sleeper")
        yield Guest(shell, walk, task, load_code(shell.session.ftrace, CODE))
        assert shell.session.ftrace.bugs == []


def others_run(guest: Guest) -> None:
    """Other tasks, ticks, and more of the stacks that the sleeper's return depends on."""
    other = guest.walk.task(701, "other")
    for _ in range(5):
        assert guest.walk.call(other, "getpid") == 701
        guest.run(
            lambda: [
                guest.shell.machine.interrupt(cpu, "asm_sysvec_apic_timer_interrupt")
                for cpu in guest.shell.machine.cpus
                if cpu.may_be_interrupted
            ]
        )


@pytest.mark.parametrize("flags", [0, FTRACE_OPS_FL_SAVE_REGS])
def test_a_trampoline_is_kept_while_a_task_sleeps_in_its_callback(guest: Guest, flags: int) -> None:
    ftrace = guest.ftrace
    ops = guest.on("sleeping_callback", "__x64_sys_getpid", FTRACE_OPS_FL_DYNAMIC | flags)
    trampoline, size = ops.trampoline, ops.trampoline_size
    with pytest.raises(Asleep):
        guest.walk.call(guest.task, "getpid")
    assert guest.is_on_its_stack(trampoline, size)
    code = ftrace.memory.read(trampoline, size)

    guest.run(lambda: ftrace.unregister_ftrace_function(ops))
    assert ftrace.dead_trampolines == [(trampoline, size)]
    counter = guest.on("counting_callback", "__x64_sys_getpid", FTRACE_OPS_FL_DYNAMIC)
    assert counter.trampoline != trampoline
    others_run(guest)
    assert guest.hits(counter) == 5
    assert ftrace.memory.read(trampoline, size) == code

    assert guest.walk.call(guest.task, "getpid") == 700, "it goes on where it slept"
    assert guest.hits(ops) == 1
    assert guest.walk.call(guest.task, "getpid") == 700
    guest.run(lambda: ftrace.unregister_ftrace_function(counter))
    assert ftrace.dead_trampolines == [], "nobody is in it any more"
    again = {guest.on("counting_callback", name, 0).trampoline for name in ("gcd", "lcm")}
    assert trampoline in again, "and its page is used again"


def test_the_page_of_a_trampoline_with_a_sleeper_is_not_given_to_others(guest: Guest) -> None:
    ftrace = guest.ftrace
    ops = guest.on("sleeping_callback", "__x64_sys_getpid", FTRACE_OPS_FL_DYNAMIC)
    trampoline = ops.trampoline
    with pytest.raises(Asleep):
        guest.walk.call(guest.task, "getpid")
    guest.run(lambda: ftrace.unregister_ftrace_function(ops))
    for _ in range(20):
        other = guest.on("counting_callback", "gcd", FTRACE_OPS_FL_DYNAMIC)
        assert other.trampoline != trampoline
        guest.run(lambda other=other: ftrace.unregister_ftrace_function(other))
    assert len(ftrace.dead_trampolines) == 1
    assert guest.walk.call(guest.task, "getpid") == 700


def test_what_lies_behind_a_stack_is_nobodys(guest: Guest) -> None:
    """The idle task stands at the upper end of its stack, and other memory begins there."""
    ftrace, machine = guest.ftrace, guest.shell.machine
    ops = guest.on("counting_callback", "gcd", FTRACE_OPS_FL_DYNAMIC)
    start, end = ops.trampoline, ops.trampoline + ops.trampoline_size
    cpu = machine.cpus[1]
    assert cpu.rest is Rest.IDLE
    (rsp,) = cpu.get("rsp")
    top = machine.memory.u64(cpu.current + CONSTANTS["TASK_STACK"]) + CONSTANTS["STACK_BYTES"]
    assert top - 1024 < rsp < top

    def found_at(address: int) -> bool:
        before = machine.memory.u64(address)
        machine.memory.set_u64(address, start + 1)
        found = in_use(ftrace, start, end)
        machine.memory.set_u64(address, before)
        return found

    where = [rsp, top - 8, top, top + 8]
    found = machine.run(lambda: [found_at(address) for address in where])
    assert found == [True, True, False, False]


def test_what_a_traced_function_sleeps_under_is_no_trampoline(guest: Guest) -> None:
    """The trampoline is left before the function runs: dropping the op frees it at once."""
    ftrace = guest.ftrace
    flags = FTRACE_OPS_FL_DYNAMIC
    ops = guest.on("counting_callback", "__x64_sys_nanosleep", flags)
    request = guest.walk.put(struct.pack("<qq", 3600, 0))
    with pytest.raises(Asleep):
        guest.walk.call(guest.task, "nanosleep", request, 0)
    assert not guest.is_on_its_stack(ops.trampoline, ops.trampoline_size)
    guest.run(lambda: ftrace.unregister_ftrace_function(ops))
    assert ftrace.dead_trampolines == []
    guest.run(lambda: guest.shell.session.tasks.interrupt(guest.task))
    assert guest.walk.call(guest.task, "getpid") == 700


@pytest.mark.parametrize("graph", [False, True])
def test_an_image_that_called_a_sleeping_function_is_kept_until_it_returns(
    guest: Guest, graph: bool
) -> None:
    ftrace, fexit = guest.ftrace, BpfAttachType.BPF_TRACE_FEXIT
    nanosleep = guest.shell.session.image.labels["__x64_sys_nanosleep"]
    program, result = guest.labels["keep_result_prog"], guest.labels["result"]
    made = ftrace.machine.run(lambda: BpfTrampoline(ftrace, nanosleep))
    guest.run(lambda: made.bpf_trampoline_link_prog(fexit, program))
    image = made.cur_image
    size, _ = ftrace.direct_trampolines[image]
    if graph:
        guest.shell.echo("function_graph", "current_tracer")
    request = guest.walk.put(struct.pack("<qq", 3600, 0))
    with pytest.raises(Asleep):
        guest.walk.call(guest.task, "nanosleep", request, 0)
    code = ftrace.memory.read(image, size)

    guest.run(lambda: made.bpf_trampoline_unlink_prog(fexit, program))
    if graph:
        guest.shell.echo("nop", "current_tracer")
    assert ftrace.dead_trampolines == [(image, size)]
    others_run(guest)
    assert ftrace.memory.read(image, size) == code
    guest.run(lambda: guest.shell.session.tasks.interrupt(guest.task))
    assert ftrace.memory.u64(result) == (1 << 64) - EINTR, "the program runs to its end"
    assert guest.walk.call(guest.task, "getpid") == 700
    counter = guest.on("counting_callback", "gcd", FTRACE_OPS_FL_DYNAMIC)
    guest.run(lambda: ftrace.unregister_ftrace_function(counter))
    assert ftrace.dead_trampolines == []
