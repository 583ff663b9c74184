"""The test kernel made to look like a Linux: gs and the tasks are its own.

What Linux keeps in its words the test puts there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, MODULES_DATA, TEXT_BASE
from emulated_kernel.image import LinuxOffsets
from emulated_kernel.machine import Machine
from emulated_kernel.machine.memory import BUILTIN
from emulated_kernel.text_poke import NOP5
from ftracefs.files.table import build_tree
from ftracefs.ftrace import Ftrace
from ftracefs.guest import Linux, load_guest
from ftracefs.trace.events.ftrace_entries import FTRACE_EVENTS
from ftracefs.trace.events.table import EVENTS, Events
from ftracefs.trace.tracing import Tracing
from support.ftrace_kernel import kernel_image
from support.tracefs import Tree

PERCPU = MODULES_DATA + 0x500000
OFFSETS = LinuxOffsets(
    current=0x1FB80,
    preempt_count=0x1FB90,
    hardirq_stack_ptr=0x1FB88,
    ti_flags=0,
    tif_need_resched=3,
    migration_disabled=0x3A0,
    pid=0x4A8,
    tgid=0x4AC,
    prio=0x68,
    comm=0x7A0,
    stack=0x20,
    stack_canary=0x4C8,
    flags=0x2C,
    stack_padding=0,
    cpu=0x10,
    state=0x18,
    exit_state=0x4A0,
    static_prio=0x6C,
    policy=0x3B0,
    rt_priority=0x74,
    real_cred=0x790,
    cred_uid=4,
    stext=TEXT_BASE,
    text_bytes=0,  # no stack is unwound
    orc_lookup=DATA_BASE,
    orc_unwind_ip=DATA_BASE,
    orc_unwind=DATA_BASE,
    orc_type_mask=3,
    orc_type_call=0,
    orc_type_regs=1,
    orc_type_regs_partial=2,
    orc_reg_sp=5,
    orc_reg_prev_sp=1,
    orc_reg_bp_indirect=8,
    preemption=1,
    fbuffer_buffer=0,
    fbuffer_file=16,
    fbuffer_entry=24,
    fbuffer_event=8,
)
_TASK_BYTES, _AREA_BYTES = 0x800, 0x20000
PREEMPT_ENABLED = 0x80000000  # what the count is when nothing is disabled
_REGISTER, _UNREGISTER = 1, 2
# What its symbols are said to be at; nothing is there, calls of the functions are seen to here.
_SYMBOLS = {
    "tracepoint_probe_register_prio": _REGISTER,
    "tracepoint_probe_unregister": _UNREGISTER,
    "__tracepoint_sched_switch": 3,
}


class FakeLinux:
    """A Linux's words. `tree` is what tracefs shows over it."""

    def __init__(self, machine: Machine, tree: Tree, probes: list[tuple[int, int]]) -> None:
        self.machine = machine
        self.probes = probes
        self.memory = machine.memory
        self.tree = tree
        self._area = machine.alloc(_AREA_BYTES)
        self._canaries = iter(range(0x1234500, 0x1FFFF00, 0x100))
        self._current = 0
        machine.run(lambda: machine.cpus[0].cpu.set_gs_base(self._area))
        self.preempt_count(PREEMPT_ENABLED)

    def new_task(self, pid: int, comm: str, *, at: int = 0, tgid: int = 0, stack: int = 0) -> int:
        """A task_struct; `at` is that of one that is gone."""
        task = at or self.machine.alloc(_TASK_BYTES, 64)
        self.memory.write(task, bytes(_TASK_BYTES))
        self.memory.set_u32(task + OFFSETS.pid, pid)
        self.memory.set_u32(task + OFFSETS.tgid, tgid or pid)
        self.memory.set_u64(task + OFFSETS.stack, stack)
        self.memory.set_u64(task + OFFSETS.stack_canary, next(self._canaries))
        self.rename(task, comm)
        return task

    def rename(self, task: int, comm: str) -> None:
        self.memory.write(task + OFFSETS.comm, comm.encode().ljust(16, b"\0"))

    def switch_to(self, task: int) -> None:
        """As the scheduler does it: the probes of sched_switch first."""
        if self._current:
            for probe, word in list(self.probes):
                self.machine.call(probe, word, 0, self._current, task, 0)
        self._current = task
        self.memory.set_u64(self._area + OFFSETS.current, task)

    def preempt_count(self, count: int) -> None:
        self.memory.set_u32(self._area + OFFSETS.preempt_count, count)


@contextmanager
def fake_linux(*, poison: bool = False, offsets: LinuxOffsets = OFFSETS) -> Iterator[FakeLinux]:
    image = kernel_image()
    labels = image.labels
    image = replace(image, linux=offsets, address_of={**labels, **_SYMBOLS}.get)
    guest = load_guest(image.labels, poison=poison, linux=Linux(BUILTIN, PERCPU, offsets))
    machine = Machine(image, nr_cpus=1, clock="virtual")
    probes: list[tuple[int, int]] = []

    def call_in_process(function: int, _tracepoint: int, probe: int, word: int, *_: int) -> int:
        if function == _REGISTER:
            probes.append((probe, word))
        else:
            assert function == _UNREGISTER
            probes.remove((probe, word))
        return 0

    machine.call_in_process = call_in_process
    try:
        vcpu = machine.cpus[0]
        machine.memory.write(PERCPU, machine.memory.read(vcpu.percpu, CONSTANTS["PERCPU_BYTES"]))
        vcpu.percpu = PERCPU

        def build() -> Tracing:
            for site in image.mcount:  # its own ftrace_init has been there
                machine.memory.write(site, NOP5)
            machine.load_segments(dict(guest.segments))
            ftrace = Ftrace(machine, image, guest)
            return Tracing(machine, image, ftrace, guest, events=Events(FTRACE_EVENTS, EVENTS))

        tracing = machine.run(build)
        yield FakeLinux(machine, Tree(tracing, build_tree(tracing)), probes)
    finally:
        machine.close()
