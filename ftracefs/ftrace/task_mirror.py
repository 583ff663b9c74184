"""The tasks of a Linux, which knows nothing of the engine, mirrored (guest/task_mirror.S).

Guest code looks for the mirror of whoever makes a traced call, and takes one of those made ready
here when it finds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.image import LinuxOffsets
from emulated_kernel.machine import EmulatedMachine

_TABLE_ENTRIES, _ENTRY_BYTES = 1 << 16, 16  # more than there is room for tasks
_READY = 64
_LINK = CONSTANTS["TASK_ALL_NEXT"]
_COMM_BYTES = 16


class TaskMirrors:
    """The mirrors on one machine; `labels` tell where the engine's code is."""

    def __init__(
        self, machine: EmulatedMachine, labels: Mapping[str, int], offsets: LinuxOffsets
    ) -> None:
        self._machine = machine
        self._offsets = offsets
        self._memory = machine.memory
        self._labels = labels
        table = machine.alloc(_TABLE_ENTRIES * _ENTRY_BYTES)
        self._memory.set_u64(labels["task_mirrors"], table)
        self._memory.set_u32(labels["task_mirrors_mask"], _TABLE_ENTRIES - 1)
        for vcpu in machine.cpus:
            vcpu.set_word("CURRENT_TASK", labels["spare_mirror"])
            vcpu.set_word("CONTEXT_CHANGED", labels["linux_context_changed"])
        self._make_ready()
        machine.after_slice += [self._make_ready, self._rename]

    def tasks(self) -> Iterator[int]:
        """Every mirror that stands, or stood, for a task."""
        mirror = self._memory.u64(self._labels["all_mirrors"])
        while mirror:
            yield mirror
            mirror = self._memory.u64(mirror + _LINK)

    def _rename(self) -> None:
        """Give who was last seen the name that it has now, as guest code does at a switch."""
        memory, offsets = self._memory, self._offsets
        for cpu in self._machine.cpus:
            task, mirror = cpu.word("MIRRORED_TASK"), cpu.word("CURRENT_TASK")
            if task and memory.u64(task + offsets.stack_canary) == cpu.word("MIRRORED_CANARY"):
                name = memory.read(task + offsets.comm, _COMM_BYTES)
                memory.write(mirror + CONSTANTS["TASK_COMM"], name)

    def _make_ready(self) -> None:
        count_at, head = self._labels["free_mirrors_count"], self._labels["free_mirrors"]
        count = self._memory.u32(count_at)
        if count > _READY // 2:
            return
        size = CONSTANTS["TASK_SIZE"]
        try:
            block = self._machine.alloc(size * (_READY - count), 64)
        except MemoryError:
            return  # tasks that find none share one
        first = self._memory.u64(head)
        for mirror in range(block, block + size * (_READY - count), size):
            self._memory.set_u64(mirror + _LINK, first)
            first = mirror
        self._memory.set_u64(head, first)
        self._memory.set_u32(count_at, _READY)
