"""A trace array's two buffers: the one that is written and the snapshot (struct array_buffer).

    update_max_tr          exchanges them for all CPUs
    update_max_tr_single   for one

Linux exchanges the pointers to the ring buffers. Here the rings are exchanged below the places that
guest code knows (RingBufferPerCpu.ring_buffer_swap_cpu), so that no address in an op, a register or
a per-CPU word becomes one of the snapshot. All of it happens at a safepoint, on the machine thread,
while no guest code is between the reservation of a record and its commit.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.image import LinuxOffsets
from emulated_kernel.machine import Memory, Processor
from ftracefs.errors import TracefsError
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.header import SavedLatency

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray
    from ftracefs.trace.tracing import Tracing

NSEC_PER_USEC = 1000
MAX_RT_PRIO, DEFAULT_PRIO = 100, 120
SCHED_NORMAL, SCHED_FIFO = 0, 1
EMPTY_BUFFER_SIZE = 1  # bytes: a buffer that nobody needs has the fewest pages possible


@dataclass(eq=False, slots=True)
class ArrayBuffer:
    """A ring buffer, when it was emptied last, and whose latency it shows."""

    buffer: RingBuffer
    time_start: int = 0
    saved: SavedLatency = field(default_factory=SavedLatency)


def saved_latency(
    tr: TraceArray, cpu: int, task: int = 0, *, critical_start: int = 0, critical_end: int = 0
) -> SavedLatency:
    """What `__update_max_tr` notes of `task`, or of the one on `cpu`."""
    machine = tr.tracing.machine
    task = task or machine.cpus[cpu].current_of_kernel
    linux = machine.image.linux
    fault = _own_task(machine.memory, task) if linux is None else _task(machine.memory, linux, task)
    return replace(
        fault,
        latency_us=tr.max_latency // NSEC_PER_USEC,
        cpu=cpu,
        critical_start=critical_start,
        critical_end=critical_end,
    )


def _own_task(memory: Memory, task: int) -> SavedLatency:
    """A task of the built-in kernel, which knows of no policy but what the priority tells."""
    prio = memory.u32(task + CONSTANTS["TASK_PRIO"])
    is_rt = prio < MAX_RT_PRIO
    return SavedLatency(
        comm=_comm(memory, task + CONSTANTS["TASK_COMM"]),
        pid=memory.u32(task + CONSTANTS["TASK_PID"]),
        nice=0 if is_rt else prio - DEFAULT_PRIO,
        policy=SCHED_FIFO if is_rt else SCHED_NORMAL,
        rt_priority=MAX_RT_PRIO - 1 - prio if is_rt else 0,
    )


def _task(memory: Memory, linux: LinuxOffsets, task: int) -> SavedLatency:
    """A task of a Linux."""
    return SavedLatency(
        comm=_comm(memory, task + linux.comm),
        pid=memory.u32(task + linux.pid),
        uid=memory.u32(memory.u64(task + linux.real_cred) + linux.cred_uid),
        nice=memory.u32(task + linux.static_prio) - DEFAULT_PRIO,
        policy=memory.u32(task + linux.policy),
        rt_priority=memory.u32(task + linux.rt_priority),
    )


def _comm(memory: Memory, at: int) -> str:
    return memory.cstring(at, 16).decode("utf-8", "replace")


def _update_max_tr(tr: TraceArray, cpu: int, saved: SavedLatency | None, timestamp: int) -> None:
    """__update_max_tr: whose fault it is, and his name for `saved_cmdlines`, wanted or not."""
    tracing = tr.tracing
    fault = tr.max_buffer.saved = saved_latency(tr, cpu) if saved is None else saved
    tr.max_buffer.time_start = timestamp
    if tracing.global_trace.tracer_tracing_is_on():
        tracing.saved_cmdlines.trace_save_cmdline(fault.pid, fault.comm)


def update_max_tr(
    tr: TraceArray, cpu: int, saved: SavedLatency | None = None, timestamp: int = 0
) -> None:
    """Make the snapshot of what is written and the other way round.

    `saved` is whose fault it is, if not that of the task on `cpu`; `timestamp` when it began.
    Nothing happens while tracing is stopped or no snapshot is allocated. Whoever sleeps for data
    looks again.
    """
    if tr.stop_count or not tr.allocated_snapshot:
        return
    main, snapshot = tr.array_buffer.buffer, tr.max_buffer.buffer
    if main.record_is_set_on():
        snapshot.record_on()
    else:
        snapshot.record_off()
    main.swap(snapshot)
    _update_max_tr(tr, cpu, saved, timestamp)
    snapshot.wake_waiters()


def update_max_tr_single(
    tr: TraceArray, cpu: int, saved: SavedLatency | None = None, timestamp: int = 0
) -> None:
    """The same for the records of `cpu` alone; they stay where they are if it cannot be."""
    if tr.stop_count or not tr.allocated_snapshot:
        return
    with suppress(TracefsError):
        tr.array_buffer.buffer.ring_buffer_swap_cpu(tr.max_buffer.buffer, cpu)
    _update_max_tr(tr, cpu, saved, timestamp)


def resize_buffer_duplicate_size(tr: TraceArray, cpu: int | None = None) -> None:
    """Give the snapshot the size of what is written. ENOMEM; EBUSY while it is being read."""
    main, snapshot = tr.array_buffer.buffer, tr.max_buffer.buffer
    for number in range(tr.nr_cpus) if cpu is None else (cpu,):
        snapshot.resize(main.size(number), number)


def tracing_alloc_snapshot_instance(tr: TraceArray) -> None:
    """See to it that there is room for a snapshot."""
    if not tr.allocated_snapshot:
        resize_buffer_duplicate_size(tr)
        tr.allocated_snapshot = True


def free_snapshot(tr: TraceArray) -> None:
    """Give the room back; the records go, even where a reader keeps the room."""
    with suppress(TracefsError):
        tr.max_buffer.buffer.resize(EMPTY_BUFFER_SIZE)
    tr.tracing_reset_max_buffer()
    tr.allocated_snapshot = False


def tracing_snapshot_write(tr: TraceArray, value: int, cpu: int | None) -> None:
    """What the file `snapshot` of a CPU, or of all, is told: 0 free, 1 take, else empty it.

    EBUSY while the tracer in charge has the snapshot for itself; EINVAL for 0 and 1 of one CPU: a
    kernel with CONFIG_TRACER_SNAPSHOT_PER_CPU_SWAP would take the 1.
    """
    if tr.current_trace.use_max_tr:
        raise TracefsError(errno.EBUSY, f"{tr.current_trace.name} needs the snapshot itself")
    if value in (0, 1) and cpu is not None:
        raise TracefsError(errno.EINVAL, "only for all CPUs at once")
    if value == 0:
        if tr.allocated_snapshot:
            free_snapshot(tr)
    elif value == 1:
        if tr.allocated_snapshot:
            resize_buffer_duplicate_size(tr)
        tracing_alloc_snapshot_instance(tr)
        update_max_tr(tr, tr.tracing.acting_cpu())
    elif tr.allocated_snapshot:
        tr.tracing_reset_max_buffer(cpu)


def tracing_snapshot_instance(tr: TraceArray, cpu: int | None = None) -> None:
    """Take a snapshot as the kernel does from within, as if `cpu` called the guest's function.

    Not in a hypercall: guest code calls tracing_snapshot_instance(tr.buffer.table) itself.
    """
    tracing = tr.tracing
    number = tracing.acting_cpu() if cpu is None else cpu
    tracing.machine.call(tracing.label("tracing_snapshot_instance"), tr.buffer.table, cpu=number)


class Snapshots:
    """What guest code asks of the host when it takes a snapshot (guest/snapshot.S)."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        tracing.machine.hypercalls[CONSTANTS["HC_SNAPSHOT"]] = self._asked

    def _asked(self, vcpu: Processor) -> None:
        table, word = vcpu.get("rdi", "rsi")
        memory = self._tracing.machine.memory
        tr = next((tr for tr in self._tracing.trace_arrays() if tr.buffer.table == table), None)
        answer = "SNAPSHOT_DONE"
        if tr is not None:
            if memory.u64(word) == CONSTANTS["SNAPSHOT_STOP"]:
                tr.tracer_tracing_off()
            else:
                answer = self._tracing_snapshot_instance_cond(tr, vcpu.number)
        memory.set_u64(word, CONSTANTS[answer])

    @staticmethod
    def _tracing_snapshot_instance_cond(tr: TraceArray, cpu: int) -> str:
        """Take it, or say what the guest is to write into the trace instead."""
        prints = bool(tr.trace_flags & TraceIter.PRINTK)
        if not tr.allocated_snapshot:
            if not prints:
                tr.tracer_tracing_off()
            return "SNAPSHOT_NOT_ALLOCATED" if prints else "SNAPSHOT_DONE"
        if tr.current_trace.use_max_tr:
            return "SNAPSHOT_LATENCY_TRACER" if prints else "SNAPSHOT_DONE"
        update_max_tr(tr, cpu)
        return "SNAPSHOT_DONE"
