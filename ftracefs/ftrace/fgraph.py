"""Function graph: calls and their returns, through a shadow stack a task (kernel/trace/fgraph.c).

    register_ftrace_graph → start_graph_tracing → alloc_retstack_tasklist
                          → ftrace_startup(graph_ops, FTRACE_START_FUNC_RET)

As in Linux 6.1 there is one user at a time, and it traces what set_ftrace_filter and
set_ftrace_notrace let through: graph_ops is an op like any other, with ftrace_graph_func of
ftracefs/guest/fgraph.S for its callback, and shares the hashes of global_ops. So x86 has nothing to
patch at FTRACE_START_FUNC_RET and _STOP_FUNC_RET; the commands only make an update run.

Every task there is gets a stack when tracing starts. One that is made later takes a stack in guest
code, with its first traced call, from a few that are kept ready; stacks of tasks that are gone are
found when that supply runs low. Linux allocates in copy_process and frees with the task.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace.graph_filter import FtraceGraphHash
from ftracefs.ftrace.hashes import FtraceHash, as_ips, hash_table
from ftracefs.ftrace.modify import FTRACE_START_FUNC_RET, FTRACE_STOP_FUNC_RET
from ftracefs.ftrace.ops import FTRACE_OPS_FL_PID, FtraceOps
from ftracefs.ftrace.rcu_tasks import for_each_process_thread
from ftracefs.ftrace.registration import ftrace_shutdown, ftrace_startup
from ftracefs.ftrace.state import FtraceState

_C = CONSTANTS
_RET_TOP, _RET_END, _RET_BASE = _C["TASK_RET_TOP"], _C["TASK_RET_END"], _C["TASK_RET_BASE"]
_FRAME_BYTES = _C["FG_SIZE"]
_FRAMES_BYTES = _C["FTRACE_RETFUNC_DEPTH"] * _FRAME_BYTES
_STACK_BYTES = _C["FGT_ALIGN"]
_PAGE_BYTES = _C["PAGE_BYTES"]
_READY = 32  # stacks kept for new tasks; below half of that there are made more
assert _C["FGT_SUBTIME"] == _C["FGT_BYTES"] + _FRAMES_BYTES
assert _C["FGT_SUBTIME"] + 8 * _C["FTRACE_RETFUNC_DEPTH"] <= _STACK_BYTES


@dataclass(frozen=True, slots=True)
class FtraceRetStack:
    """A frame of a shadow stack: `retp` is where on the stack the return address was."""

    ret: int
    func: int
    calltime: int
    retp: int


@dataclass(frozen=True, slots=True)
class FgraphOps:
    """struct fgraph_ops: what guest code calls for a call and for its return, at these addresses.

    fgraph.S tells with what in the registers.
    """

    entryfunc: int
    retfunc: int


class FunctionGraph:
    """The state of function graph tracing on one machine."""

    def __init__(self, state: FtraceState) -> None:
        self._state = state
        self._memory = state.memory
        self._labels = state.labels
        self.ftrace_graph_active = False
        self.ftrace_graph_hash = FtraceGraphHash()
        self.ftrace_graph_notrace_hash = FtraceGraphHash()
        self._tables = {"ftrace_graph_hash": 0, "ftrace_graph_notrace_hash": 0}
        self.on_change: Callable[[], None] = lambda: None  # of a filter or limit
        self._stacks: list[int] = []  # RET_BASE of each stack there is, whoever has it
        self._avoid: set[int] = set()  # entries of the soft TLB that belong to others
        self.graph_ops = FtraceOps(
            state.memory,
            self._labels["ftrace_graph_func"],
            flags=FTRACE_OPS_FL_PID,
            name="graph_ops",
        )
        self.graph_ops.func_hash = state.global_ops.func_hash
        state.machine.after_slice.append(self._keep_stacks_ready)

    # --- on and off ------------------------------------------------------------------------------

    def register_ftrace_graph(
        self, array: int = 0, graph_array: int = 0, gops: FgraphOps | None = None
    ) -> None:
        """Record calls and returns in the buffers of `array`, a guest table with a word a CPU.

        `graph_array` is the trace array they belong to, if its lists of pids are to be obeyed.
        With `gops` its functions are called instead; then `array` may lead to what they want to
        have in r9, each with RB_GUARD_FGRAPH_OPS in the place of RB_GUARD.
        EBUSY when somebody does so already, ENODEV when ftrace is disabled.
        """
        if self.ftrace_graph_active:
            raise TracefsError(errno.EBUSY, "function graph tracing has a user")
        if self._state.ftrace_disabled:
            raise TracefsError(errno.ENODEV, "ftrace is disabled")
        self.graph_ops.func = self._labels["ftrace_graph_func"]
        self.graph_ops.private = array
        self._memory.set_u64(
            self._labels["graph_array"], graph_array or self._labels["ftrace_no_array"]
        )
        if gops is not None:
            self._memory.set_u64(self._labels["ftrace_graph_entry"], gops.entryfunc)
            self._memory.set_u64(self._labels["ftrace_graph_return"], gops.retfunc)
        buffers = [self._graph_buffer(array, cpu.number) for cpu in self._state.machine.cpus]
        self._avoid = {_colour(page) for page in self._hot_pages(buffers)}
        self._start_graph_tracing()
        self.ftrace_graph_active = True
        for cpu, buffer in zip(self._state.machine.cpus, buffers, strict=True):
            cpu.set_word("GRAPH_BUFFER", buffer)
        self._watch_sched_switch(True)
        try:
            ftrace_startup(self._state, self.graph_ops, FTRACE_START_FUNC_RET)
        except BaseException:
            self._stop()
            raise

    def unregister_ftrace_graph(self) -> None:
        """Record nothing any more. Functions that have not returned yet still do, unrecorded."""
        if not self.ftrace_graph_active:
            return
        self._stop()
        ftrace_shutdown(self._state, self.graph_ops, FTRACE_STOP_FUNC_RET)

    def _stop(self) -> None:
        self.ftrace_graph_active = False
        for cpu in self._state.machine.cpus:
            cpu.set_word("GRAPH_BUFFER", self._labels["ftrace_stub_graph"])
        self._watch_sched_switch(False)

    def _watch_sched_switch(self, on: bool) -> None:
        """Have the scheduler, if there is one, call ftrace_graph_probe_sched_switch."""
        probe = self._labels["ftrace_graph_probe_sched_switch"]
        self._state.tracepoints.set_probe("sched_switch", probe, 0, on)

    def _graph_buffer(self, array: int, cpu: int) -> int:
        if not array:
            return self._labels["ftrace_graph_ops_buffer"]
        return self._memory.u64(array + 8 * cpu)

    def _hot_pages(self, buffers: list[int]) -> Iterator[int]:
        """What entry and return touch beside the shadow stack."""
        yield self.graph_ops.address
        yield from buffers
        for cpu in self._state.machine.cpus:
            yield cpu.percpu

    # --- stacks ----------------------------------------------------------------------------------

    def _start_graph_tracing(self) -> None:
        """start_graph_tracing: a stack for every task (alloc_retstack_tasklist)."""
        for task in self._tasks():
            if not self._memory.u64(task + _RET_BASE):
                self.ftrace_graph_init_task(task)
        self._fill_ret_stack_list()

    def _tasks(self) -> set[int]:
        """Every task, those on a CPU included though they be on no list."""
        running = {cpu.current for cpu in self._state.machine.cpus}
        return {*for_each_process_thread(self._state), *running} - {0}

    def ftrace_graph_init_task(self, task: int) -> None:
        """Give a task a stack of its own."""
        base = self._alloc_stack()
        self._memory.set_u64(base + _C["FGT_OWNER"], task)
        self._memory.set_u64(task + _RET_TOP, base)
        self._memory.set_u64(task + _RET_END, base + _FRAMES_BYTES)
        self._memory.set_u64(task + _RET_BASE, base)

    def _alloc_stack(self) -> int:
        """A new stack; ENOMEM when there is no room."""
        unwanted: list[int] = []
        try:
            page = self._memory.alloc(_PAGE_BYTES)
            while _colour(page) in self._avoid:
                unwanted.append(page)
                page = self._memory.alloc(_PAGE_BYTES)
        except MemoryError:
            raise TracefsError(errno.ENOMEM, "no room for a shadow stack") from None
        finally:
            for address in unwanted:
                self._memory.free(address)
        bases = [page + offset + _C["FGT_BYTES"] for offset in range(0, _PAGE_BYTES, _STACK_BYTES)]
        self._stacks += bases
        for base in bases[1:]:
            self._put_stack(base)
        return bases[0]

    def _put_stack(self, base: int) -> None:
        """Keep a stack that nobody has for a task that will come."""
        memory, head = self._memory, self._labels["ret_stack_list"]
        count = self._labels["ret_stack_count"]
        memory.write(base - _C["FGT_BYTES"], bytes(_C["FGT_BYTES"]))
        memory.set_u64(base + _C["FG_RET"], memory.u64(head))
        memory.set_u64(head, base)
        memory.set_u32(count, memory.u32(count) + 1)

    def _keep_stacks_ready(self) -> None:
        """Run after every slice of guest code."""
        if self.ftrace_graph_active and self._ready() < _READY // 2:
            self._fill_ret_stack_list()

    def _ready(self) -> int:
        return self._memory.u32(self._labels["ret_stack_count"])

    def _fill_ret_stack_list(self) -> None:
        """Take back the stacks of tasks that are gone, then make new ones up to the supply."""
        ready = self._ready_stacks()
        tasks = self._tasks()
        has_list = (
            self._state.mirrors is not None or "init_task" in self._state.machine.image.labels
        )
        for base in self._stacks:
            owner = self._memory.u64(base + _C["FGT_OWNER"])
            is_task = owner in tasks or not has_list
            if base not in ready and not (is_task and self._memory.u64(owner + _RET_BASE) == base):
                self._put_stack(base)
        try:
            while self._ready() < _READY:
                self._put_stack(self._alloc_stack())
        except TracefsError:
            pass  # a task without a stack is not traced

    def _ready_stacks(self) -> set[int]:
        ready: set[int] = set()
        base = self._memory.u64(self._labels["ret_stack_list"])
        while base:
            ready.add(base)
            base = self._memory.u64(base + _C["FG_RET"])
        return ready

    # --- looking at stacks -----------------------------------------------------------------------

    def ret_stack(self, task: int) -> list[FtraceRetStack]:
        """What a task has not returned from yet, the outermost call first."""
        base, top = self._memory.u64(task + _RET_BASE), self._memory.u64(task + _RET_TOP)
        if base == top:
            return []
        words = self._memory.array(base, top - base, np.uint64).reshape(-1, _FRAME_BYTES // 8)
        return [FtraceRetStack(*frame) for frame in words.tolist()]

    def ftrace_graph_get_ret_stack(self, task: int, idx: int) -> FtraceRetStack | None:
        """The frame `idx` calls above the innermost one."""
        stack = self.ret_stack(task)
        return stack[-1 - idx] if 0 <= idx < len(stack) else None

    def ftrace_graph_ret_addr(self, task: int, ret: int, retp: int) -> int:
        """The return address that belongs where `ret` was found, on the stack at `retp`.

        Several frames have the same `retp` after a tail call; the first of them holds the address.
        """
        if ret != self._labels["return_to_handler"]:
            return ret
        return next((frame.ret for frame in self.ret_stack(task) if frame.retp == retp), ret)

    def trace_overrun(self, task: int) -> int:
        """How many calls of a task were not traced for want of room on its stack."""
        base = self._memory.u64(task + _RET_BASE)
        return self._memory.u32(base + _C["FGT_OVERRUN"]) if base else 0

    # --- pausing ---------------------------------------------------------------------------------

    def pause_graph_tracing(self, task: int) -> None:
        """Trace nothing in this task until as many `unpause_graph_tracing`."""
        if not self._memory.u64(task + _RET_BASE):
            self.ftrace_graph_init_task(task)
        self._add_pause(task, 1)

    def unpause_graph_tracing(self, task: int) -> None:
        """Undo one `pause_graph_tracing`."""
        self._add_pause(task, -1)

    def _add_pause(self, task: int, change: int) -> None:
        base = self._memory.u64(task + _RET_BASE)
        paused = self._memory.u32(base + _C["FGT_PAUSE"]) + change
        self._memory.set_u32(base + _C["FGT_PAUSE"], paused)
        self._memory.set_u64(task + _RET_END, 0 if paused else base + _FRAMES_BYTES)

    # --- filters and limits ----------------------------------------------------------------------

    def set_graph_function(self, hash: FtraceGraphHash) -> None:
        """Trace only these functions and what they call; every function if it names none."""
        self.ftrace_graph_hash = hash
        self._write_table("ftrace_graph_hash", hash)

    def set_graph_notrace(self, hash: FtraceGraphHash) -> None:
        """Do not trace these functions and what they call."""
        self.ftrace_graph_notrace_hash = hash
        self._write_table("ftrace_graph_notrace_hash", hash)

    def _write_table(self, label: str, hash: FtraceGraphHash) -> None:
        table = mask = 0
        if hash.count:
            image = hash_table(FtraceHash(as_ips(hash.ips)))
            table, mask = self._memory.alloc(image.nbytes, 64), len(image) - 1
            self._memory.write(table, image.tobytes())
        # No vCPU stands inside a search, so none sees half of this.
        self._memory.set_u64(self._labels[label], table)
        self._memory.set_u64(self._labels[label] + 8, mask)
        if self._tables[label]:
            self._memory.free(self._tables[label])
        self._tables[label] = table
        self.on_change()

    @property
    def asks(self) -> bool:
        """Whether entry and return have to ask for more than whether recording is on."""
        return bool(
            self.ftrace_graph_hash.count
            or self.ftrace_graph_notrace_hash.count
            or self.fgraph_max_depth
            or self.tracing_thresh
            or self.ftrace_graph_skip_irqs
            or self.two_clocks
            or any(self._memory.u32(base + _C["FGT_FLAGS"]) for base in self._stacks)
        )

    @property
    def fgraph_max_depth(self) -> int:
        """How deep calls are traced; 0: without limit."""
        return self._memory.u32(self._labels["fgraph_max_depth"])

    @fgraph_max_depth.setter
    def fgraph_max_depth(self, depth: int) -> None:
        self._memory.set_u32(self._labels["fgraph_max_depth"], depth)
        self.on_change()

    @property
    def tracing_thresh(self) -> int:
        """Only calls that took this many nanoseconds are recorded, and only their returns."""
        return self._memory.u64(self._labels["tracing_thresh"])

    @tracing_thresh.setter
    def tracing_thresh(self, nanoseconds: int) -> None:
        self._memory.set_u64(self._labels["tracing_thresh"], nanoseconds)
        self.on_change()

    @property
    def ftrace_graph_skip_irqs(self) -> bool:
        """Whether what interrupts call is left out."""
        return bool(self._memory.u32(self._labels["ftrace_graph_skip_irqs"]))

    @ftrace_graph_skip_irqs.setter
    def ftrace_graph_skip_irqs(self, skip: bool) -> None:
        self._memory.set_u32(self._labels["ftrace_graph_skip_irqs"], skip)
        self.on_change()

    def ftrace_graph_sleep_time_control(self, enable: bool) -> None:
        """Whether the time that a task was switched out counts."""
        self._memory.set_u32(self._labels["fgraph_sleep_time"], enable)

    def ftrace_graph_graph_time_control(self, enable: bool) -> None:
        """Whether the profiler counts what a function calls as its own time."""
        self._memory.set_u32(self._labels["fgraph_graph_time"], enable)

    @property
    def two_clocks(self) -> bool:
        """Whether records are stamped by another clock than calls are timed by."""
        return bool(self._memory.u32(self._labels["fgraph_two_clocks"]))

    @two_clocks.setter
    def two_clocks(self, differ: bool) -> None:
        self._memory.set_u32(self._labels["fgraph_two_clocks"], differ)
        self.on_change()


def _colour(address: int) -> int:
    """The entry of the soft TLB that accesses to this page go through."""
    return address >> 12 & 0xFF
