"""The machine: vCPUs, memory, clocks and safepoints. The only room that knows Unicorn."""

from __future__ import annotations

from emulated_kernel.machine.base import EmulatedMachine, Processor
from emulated_kernel.machine.clock import ClockSource, ClockWords
from emulated_kernel.machine.machine import Machine
from emulated_kernel.machine.memory import Memory
from emulated_kernel.machine.vcpu import Rest, Vcpu

__all__ = [
    "ClockSource",
    "ClockWords",
    "EmulatedMachine",
    "Machine",
    "Memory",
    "Processor",
    "Rest",
    "Vcpu",
]
