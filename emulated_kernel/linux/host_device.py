"""The character device by which the host's files are opened in the guest (host_device.S).

Its operations stop for the host. What they are to do is done outside of the processor's hooks, in
the context of who makes the system call; while that takes several steps with the guest running on
between them, the caller lets others go first until it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from emulated_kernel.asm_offsets import HYPERCALL_VECTOR
from emulated_kernel.assembler import load
from emulated_kernel.assembly import Assembly
from emulated_kernel.linux.agent_work import (
    DEVICE_FLUSH,
    DEVICE_OPEN,
    DEVICE_POLL,
    DEVICE_READ,
    DEVICE_RELEASE,
    DEVICE_WRITE,
    SLEEP,
    AgentProcess,
    Work,
)
from emulated_kernel.linux.memory import HOST_TEXT
from emulated_kernel.linux.offsets import AgentOffsets
from emulated_kernel.linux.pc import PcMachine
from emulated_kernel.linux.vmlinux import Vmlinux

FILE_OPS = {
    "open": DEVICE_OPEN,
    "read": DEVICE_READ,
    "write": DEVICE_WRITE,
    "poll": DEVICE_POLL,
    "flush": DEVICE_FLUSH,
    "release": DEVICE_RELEASE,
}
_SYMBOLS = ("schedule", "schedule_timeout_uninterruptible", "wake_up_process")
_HERE = Path(__file__).parent
_HOST_RETURN = _HERE.parent / "images" / "host_return.S"
_DONE, _SLEEPS, _OTHERS_FIRST = range(3)
_EIO = 5
_COMES_BACK_IN = 100  # times half a millisecond


def host_code(vmlinux: Vmlinux, offsets: AgentOffsets) -> Assembly:
    """The host's own code in the guest's kernel."""
    constants = {"HYPERCALL": HYPERCALL_VECTOR}
    constants.update({f"DEVICE_{name.upper()}": number for name, number in FILE_OPS.items()})
    for name, value in asdict(offsets).items():
        constants[f"LINUX_{name.upper()}"] = value
    externs = {name: vmlinux.symbol(name) for name in _SYMBOLS}
    sources = [_HOST_RETURN, _HERE / "host_device.S"]
    return load(sources, {".text": HOST_TEXT}, constants, externs)


class HostDevice:
    """`current` tells which process of the agent's runs. All of it is for the machine thread."""

    def __init__(
        self,
        machine: PcMachine,
        vmlinux: Vmlinux,
        labels: Mapping[str, int],
        current: Callable[[], AgentProcess | None],
    ) -> None:
        self._machine = machine
        self._memory = machine.memory
        self._labels = labels
        self._current = current
        self._due: AgentProcess | None = None  # stands where something is to be done for it
        self._acting: AgentProcess | None = None  # for whom something is being done
        self._wants_acting = False
        self.performed_s = 0.0  # spent with doing things
        self._write_operations(vmlinux)
        machine.host_stops[labels["device_asks"]] = self._asks
        machine.host_stops[labels["device_sleeps"]] = self._sleeps

    def _write_operations(self, vmlinux: Vmlinux) -> None:
        table, labels = self._labels["device_operations"], self._labels
        for name in FILE_OPS:
            at = table + vmlinux.btf.offset("file_operations", name)
            self._memory.set_u64(at, labels[f"device_{name}"])

    def _asks(self) -> bool:
        """An operation of the device, of a process of ours or of anybody's."""
        process, cpu = self._current(), self._machine.cpu
        (number,) = cpu.get("r12")
        work = process.work[0] if process is not None and process.work else None
        if process is None or work is None or work.is_done or work.file_op != number:
            is_harmless = number in (DEVICE_OPEN, DEVICE_FLUSH, DEVICE_RELEASE)
            cpu.set(rdx=_DONE, rax=0 if is_harmless else -_EIO)
        elif work.answer is not None:
            self._give(work)
        elif self._acting is not None:
            cpu.set(rdx=_OTHERS_FIRST)
            if process is self._acting and self._wants_acting:
                cpu.hooks.want_turn()
        else:
            self._due = process
            cpu.hooks.want_turn()
        return True

    def _give(self, work: Work[Any]) -> None:
        """The answer to an operation, to the process that asks for it."""
        answer, work.answer = work.answer, None
        if isinstance(answer, int):
            work.file_op = None
            self._machine.cpu.set(rdx=_DONE, rax=answer)
        else:
            self._machine.cpu.set(rdx=_SLEEPS)

    def _sleeps(self) -> bool:
        process = self._current()
        work = process.work[0] if process is not None and process.work else None
        self._machine.cpu.set(rax=int(work is None or not work.sleeps))
        return True

    @property
    def is_asked(self) -> bool:
        """Whether something is due that the guest waits for."""
        return self._due is not None

    def before_guest(self) -> None:
        """The guest is about to run on: do what is due, or let others go first."""
        if self._acting is not None:
            if self._is_asking(self._acting):
                self._machine.cpu.set(rdx=_OTHERS_FIRST)
        elif self._due is not None:
            self._perform(self._due)

    def _is_asking(self, process: AgentProcess) -> bool:
        at = self._labels["device_asks"]
        return self._machine.cpu.rip == at and self._current() is process

    def _perform(self, process: AgentProcess) -> None:
        """The operation that a process stands in, in its context."""
        self._due = None
        work = process.work[0]
        self._acting = process
        began = time.monotonic()
        try:
            answer = work.perform()
        finally:
            self._acting = None
            self.performed_s += time.monotonic() - began
        work.answer = answer
        if answer == SLEEP:
            work.fall_asleep()
            self._machine.settle(lambda: None)
        if self._is_asking(process):
            self._give(work)

    def let_guest_run(self) -> None:
        """Between two steps of a text patch; then who does it has the processor again."""
        machine, process = self._machine, self._acting
        machine.let_guest_run()
        self._wants_acting = True
        try:
            for _ in range(_COMES_BACK_IN):
                if process is None or self._is_asking(process) or machine.failure is not None:
                    break
                machine.let_guest_run()
        finally:
            self._wants_acting = False
