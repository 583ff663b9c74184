"""When a trampoline may go: nobody may still return into it.

In Linux ftrace_shutdown waits in synchronize_rcu_tasks until every task has been seen outside. Here
the tasks' stacks can be looked at instead, and a trampoline that is still in use waits for the next
look rather than making its owner wait.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.ftrace.ops import FTRACE_OPS_FL_ALLOC_TRAMP, FtraceOps
from ftracefs.ftrace.state import FtraceState

_STACK_BYTES = CONSTANTS["STACK_BYTES"]


def for_each_process_thread(state: FtraceState) -> Iterator[int]:
    """Every task_struct: the idle tasks, then the list of all tasks; of a Linux their mirrors."""
    if state.mirrors is not None:
        yield from state.mirrors.tasks()
        return
    labels = state.machine.image.labels
    idle = labels.get("idle_threads")
    if idle is not None:
        yield from (idle + n * CONSTANTS["TASK_SIZE"] for n in range(state.machine.nr_cpus))
    head = labels.get("init_task")
    if head is None:
        return
    link = CONSTANTS["TASK_ALL_NEXT"]
    task = state.memory.u64(head + link) - link
    while task != head:
        yield task
        task = state.memory.u64(task + link) - link


def _stacks(state: FtraceState) -> Iterator[tuple[int, int]]:
    """The parts of stacks that somebody will still return through."""
    memory = state.memory
    resting: dict[int, int] = {}
    for cpu in state.machine.cpus:
        (rsp,) = cpu.get("rsp")
        resting[cpu.current] = rsp
        yield rsp, state.machine.stack_end(cpu)
    for task in for_each_process_thread(state):
        low = memory.u64(task + CONSTANTS["TASK_STACK"])
        sp = resting.get(task, memory.u64(task + CONSTANTS["TASK_SP"]))
        # On an interrupt stack: how much of the task's own is in use cannot be told.
        yield (sp if low <= sp < low + _STACK_BYTES else low), low + _STACK_BYTES
        # What return_to_handler will go back to.
        frames, top = (memory.u64(task + CONSTANTS[f"TASK_RET_{end}"]) for end in ("BASE", "TOP"))
        if frames != top:
            yield frames, top


def in_use(state: FtraceState, start: int, end: int) -> bool:
    """Whether a task or a vCPU may still return into [start, end)."""
    memory = state.memory
    if any(start <= cpu.get("rip")[0] < end for cpu in state.machine.cpus):
        return True
    for low, high in _stacks(state):
        low = -(-low // 8) * 8
        if not memory.is_mapped(low, 8):
            continue
        while not memory.is_mapped(low, high - low):
            high -= 4096
        words = memory.array(low, (high - low) & ~7, np.uint64)
        if bool(((words >= np.uint64(start)) & (words < np.uint64(end))).any()):
            return True
    return False


def ftrace_trampoline_free(state: FtraceState, ops: FtraceOps) -> None:
    """Take its trampoline away from an op; it is freed by `reap_trampolines`."""
    if ops.flags & FTRACE_OPS_FL_ALLOC_TRAMP:
        state.dead_trampolines.append((ops.trampoline, ops.trampoline_size))
        ops.flags &= ~FTRACE_OPS_FL_ALLOC_TRAMP
    ops.trampoline = ops.trampoline_size = ops.inline_size = 0


def reap_trampolines(state: FtraceState) -> None:
    """Free the dead trampolines that nobody is in."""
    left = []
    for address, size in state.dead_trampolines:
        if in_use(state, address, address + size):
            left.append((address, size))
        else:
            state.trampoline_pages.tramp_free(address)
    state.dead_trampolines = left
