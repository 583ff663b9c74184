"""The console: what printk shows, from the guest's own calls and from the host's for it.

A line has a time stamp in front, as with printk.time; a text of several lines has one in front of
each. Kept are the last of them, since nobody takes them away.
"""

from __future__ import annotations

from collections import deque

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import EmulatedMachine, Processor

PRINTK_TEXT = 40  # of a record in the guest's log, from its start
PRINTK_TIME = 16
KEPT_BYTES = 1 << 18
LINE_MAX = 989  # of a text, as long as it may be with the level in front


class Console:
    """The console of one machine."""

    def __init__(self, machine: EmulatedMachine) -> None:
        self._memory = machine.memory
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        machine.hypercalls[CONSTANTS["HC_PRINTK"]] = self._console_emit_next_record
        enabled = machine.image.labels.get("console_enabled")
        if enabled is not None:
            self._memory.set_u32(enabled, 1)

    def _console_emit_next_record(self, vcpu: Processor) -> None:
        """The guest has a record for the console: its text at rdi, rsi bytes long."""
        text, length = vcpu.get("rdi", "rsi")
        ns = self._memory.u64(text - PRINTK_TEXT + PRINTK_TIME)
        self.printk(self._memory.read(text, length), ns)

    def printk(self, text: bytes, ns: int) -> None:
        """Show a text; `ns` is the time now by the local clock."""
        seconds, rest = divmod(ns // 1000, 1_000_000)
        for line in text[:LINE_MAX].removesuffix(b"\n").split(b"\n"):
            shown = b"[%5d.%06d] %b\n" % (seconds, rest, line)
            self._lines.append(shown)
            self._bytes += len(shown)
        while self._bytes > KEPT_BYTES:
            self._bytes -= len(self._lines.popleft())

    def clear(self) -> None:
        """Forget what was shown."""
        self._lines.clear()
        self._bytes = 0

    def text(self) -> bytes:
        """All lines that are kept."""
        return b"".join(self._lines)
