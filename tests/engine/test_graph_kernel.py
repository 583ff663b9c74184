"""The function graph tracer on the built-in kernel: every result, every task, every stack."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Iterator

import pytest
from support.kernel_scenario import Walk, walk_through
from support.shell import Shell, isolated

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.images.builtin import load_builtin
from emulated_kernel.machine import Machine
from emulated_kernel.network import Network
from emulated_kernel.tasks import Tasks
from ftracefs.ftrace import Ftrace
from ftracefs.guest import load_guest
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import merge

TRACE_GRAPH_RET = 10


class Traced:
    """The built-in kernel, booted, with trampolines that clobber all they may."""

    def __init__(self) -> None:
        image = load_builtin()
        self.machine = Machine(image, clock="virtual")
        guest = load_guest(image.labels, poison=True)
        self.machine.load_segments(dict(guest.segments))
        self.ftrace = self.machine.run(lambda: Ftrace(self.machine, image, guest))
        self.machine.boot()
        percpu = [vcpu.percpu for vcpu in self.machine.cpus]
        self.buffer = RingBuffer(self.machine.memory, percpu, 16 << 20)
        self.machine.run(lambda: self.buffer.set_clock(self.machine.clock.nanoseconds()))
        self.tasks = Tasks(self.machine)
        self.fgraph = self.ftrace.fgraph

    def start(self) -> None:
        self.machine.run(lambda: self.fgraph.register_ftrace_graph(self.buffer.table))

    def stop(self) -> None:
        self.machine.run(self.fgraph.unregister_ftrace_graph)

    def all_tasks(self) -> list[int]:
        """Every task_struct, those of the idle tasks first."""
        labels, memory = self.machine.image.labels, self.machine.memory
        link = CONSTANTS["TASK_ALL_NEXT"]
        size = CONSTANTS["TASK_SIZE"]
        found = [labels["idle_threads"] + number * size for number in range(self.machine.nr_cpus)]
        task = memory.u64(labels["init_task"] + link) - link
        while task != labels["init_task"]:
            found.append(task)
            task = memory.u64(task + link) - link
        return found

    def check_stacks(self) -> None:
        """Each frame has its return address in its place, and each stack one owner."""
        memory, handler = self.machine.memory, self.ftrace.labels["return_to_handler"]
        bases = []
        for task in self.all_tasks():
            base = memory.u64(task + CONSTANTS["TASK_RET_BASE"])
            if base:
                bases.append(base)
            for frame in self.fgraph.ret_stack(task):
                assert memory.u64(frame.retp) == handler
                assert self.ftrace.kallsyms.kallsyms_lookup(frame.ret) is not None
        assert len(set(bases)) == len(bases)


@pytest.fixture
def kernel() -> Iterator[Traced]:
    traced = Traced()
    try:
        yield traced
    finally:
        traced.machine.close()


def test_every_call_chain_returns_what_it_returned_untraced(kernel: Traced) -> None:
    untraced = Traced()
    try:
        expected = walk_through(untraced.machine, untraced.tasks)
    finally:
        untraced.machine.close()
    kernel.start()
    assert walk_through(kernel.machine, kernel.tasks) == expected
    kernel.check_stacks()
    entries = merge(kernel.machine.run(kernel.buffer.snapshot))
    returns = entries.take((entries.type == TRACE_GRAPH_RET).nonzero()[0])
    assert len({int(func) for func in returns.u64(8)}) > 300
    kernel.stop()
    kernel.check_stacks()


def test_the_tracer_may_come_and_go_between_any_two_system_calls(kernel: Traced) -> None:
    chance = random.Random(3)
    network = Network(kernel.machine)
    walk = Walk(kernel.machine, kernel.tasks)
    tasks = [walk.task(500, "bash"), walk.task(501, "cat", 500)]
    running = False
    for number in range(150):
        what = chance.random()
        if what < 0.3:
            (kernel.stop if running else kernel.start)()
            running = not running
        elif what < 0.5:
            kernel.machine.run(network.traffic)
        elif what < 0.6:
            tasks.append(walk.task(600 + number, "new", chance.choice(tasks).pid))
        elif what < 0.7 and len(tasks) > 2:
            walk.exit(tasks.pop(chance.randrange(2, len(tasks))))
        elif what < 0.8:
            cpu = chance.choice(kernel.machine.cpus)
            tick = "asm_sysvec_apic_timer_interrupt"
            kernel.machine.run(lambda cpu=cpu, tick=tick: kernel.machine.interrupt(cpu, tick))
        else:
            task = chance.choice(tasks)
            assert walk.call(task, "getpid") == task.pid
        kernel.check_stacks()
    assert network.received > 10


def test_stacks_of_tasks_that_are_gone_are_used_again(kernel: Traced) -> None:
    kernel.start()
    walk = Walk(kernel.machine, kernel.tasks)
    stacks = set()
    for number in range(150):
        task = walk.task(1000 + number, "short")
        assert walk.call(task, "getpid") == task.pid
        stacks.add(kernel.machine.memory.u64(task.address + CONSTANTS["TASK_RET_BASE"]))
        walk.exit(task)
    assert 0 not in stacks
    assert len(stacks) < 120
    kernel.check_stacks()


def test_a_new_task_is_traced_from_its_first_function_on(kernel: Traced) -> None:
    kernel.start()
    walk = Walk(kernel.machine, kernel.tasks)
    walk.task(500, "bash")
    kernel.machine.run(kernel.buffer.reset)
    child = walk.task(501, "cat", 500)
    walk.call(child, "getpid")
    entries = merge(kernel.machine.run(kernel.buffer.snapshot))
    of_child = entries.take((entries.pid == 501).nonzero()[0])
    symbol = kernel.ftrace.kallsyms.sprint_symbol_no_offset
    names = [symbol(func) for func in of_child.u64(8).tolist()]
    assert names[0] == "schedule_tail"
    assert "__x64_sys_getpid" in names


def test_a_task_that_dies_in_the_kernel_takes_its_frames_with_it(kernel: Traced) -> None:
    kernel.start()
    walk = Walk(kernel.machine, kernel.tasks)
    address = kernel.machine.image.labels["mutex_lock"]
    for pid in (700, 701):
        task = walk.task(pid, "victim")
        slices = kernel.tasks.call_slices(task, address, (0xDEAD0000,), 1)
        result = kernel.machine.run_sliced(slices)
        assert result.failure
        kernel.check_stacks()
    survivor = walk.task(702, "survivor")
    assert walk.call(survivor, "getpid") == 702
    assert kernel.fgraph.ret_stack(survivor.address) == []


def test_in_user_mode_a_task_has_no_frames(kernel: Traced) -> None:
    kernel.start()
    walk = Walk(kernel.machine, kernel.tasks)
    task = walk.task(500, "bash")
    assert kernel.fgraph.ret_stack(task.address) == []
    assert walk.call(task, "openat", 0, 0, 0, 0) == -errno.EFAULT
    assert kernel.fgraph.ret_stack(task.address) == []


# --- through the files ----------------------------------------------------------------------------


@pytest.fixture
def shell() -> Iterator[Shell]:
    with isolated() as shell:
        yield shell


def test_a_million_calls_raise_no_hypercall(shell: Shell) -> None:
    def hypercalls() -> int:
        found = re.search(r"^hypercalls: +(\d+)$", shell.cat("emulator/kernel"), re.MULTILINE)
        assert found is not None
        return int(found[1])

    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function_graph", "current_tracer")
    before = hypercalls()
    shell.echo("gcd 12 18 x1000000", "emulator/call")
    assert hypercalls() - before < 100
    stats = dict(re.findall(r"^([\w ]+): +(\S+)$", shell.cat("per_cpu/cpu0/stats"), re.MULTILINE))
    assert int(stats["entries"]) + int(stats["overrun"]) == 2_000_000
    assert shell.cat("emulator/call") == "gcd(12, 18) = 6 (1000000 times)\n"


def test_the_same_script_gives_the_same_bytes() -> None:
    traces = []
    for _ in range(2):
        with isolated() as shell:
            shell.echo("function_graph", "current_tracer")
            shell.echo("kmalloc_slab 100 x3", "emulator/call")
            shell.echo("hello", "trace_marker")
            traces.append(shell.cat("trace"))
    assert traces[0] == traces[1]
    assert "|  kmalloc_slab();\n" in traces[0]
