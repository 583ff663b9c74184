"""The ring buffer's writer in Python: says what the guest code has to do, byte for byte.

Unit tests fill buffers with it; an engine test lets it and the guest code write the same records
and compares what comes out.
"""

from __future__ import annotations

import struct

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine.memory import Memory
from ftracefs.ring_buffer.layout import PAGE_SIZE, rb_calculate_event_length

_U64 = (1 << 64) - 1
_USUAL = CONSTANTS["RB_USUAL_BYTES"]


def function_record(ip: int, parent_ip: int, *, pid: int = 1, bits: int = 0) -> bytes:
    """The payload of a function record; `bits` are preempt count << 8 | flags."""
    return struct.pack("<HHiQQ", 1, bits, pid, ip, parent_ip)


def print_record(text: bytes, *, ip: int = 0, pid: int = 1, bits: int = 0) -> bytes:
    """The payload of a print record as trace_marker makes it."""
    body = text + (b"\0" if text.endswith(b"\n") else b"\n\0")
    body = body.ljust(max(len(text), 9) + 2, b"\0")
    return struct.pack("<HHiQ", 5, bits, pid, ip) + body


class ModelWriter:
    """Writes to the buffer whose words are at `address`; `now` is its clock."""

    def __init__(self, memory: Memory, address: int, now: int = 0, step: int = 0) -> None:
        self._memory = memory
        self._address = address
        self.now = now
        self.step = step

    def _get(self, name: str) -> int:
        return self._memory.u64(self._address + CONSTANTS[f"RB_{name}"])

    def _set(self, name: str, value: int) -> None:
        self._memory.set_u64(self._address + CONSTANTS[f"RB_{name}"], value)

    def _add(self, name: str, value: int) -> None:
        self._set(name, (self._get(name) + value) & _U64)

    def _records(self) -> int:
        data = self._get("TAIL") - self._get("PAGE") - 16
        return (data + self._get("BALANCE") & _U64) // _USUAL

    def _time(self) -> int:
        self.now += self.step
        return self.now

    def write(self, payload: bytes) -> bool:
        """Write one record; False when it was not recorded."""
        memory = self._memory
        if memory.u32(self._address) & 0xFF:
            return False
        now = self._time()
        delta = now - self._get("STAMP")
        self._set("STAMP", now)
        length = rb_calculate_event_length(len(payload))
        tail, end = self._get("TAIL"), self._get("END")
        extend = 8 if delta >> 27 else 0
        if tail + length + extend > end:
            if not self._move_tail():
                return False
            tail, delta, extend = self._get("TAIL"), 0, 0
        if extend:
            memory.set_u32(tail, (delta & 0x7FFFFFF) << 5 | 30)
            memory.set_u32(tail + 4, delta >> 27)
            tail, delta = tail + 8, 0
        words = -(-len(payload) // 4)
        data = payload.ljust(4 * words, b"\0")
        if words > 28:
            head = struct.pack("<II", delta << 5, 4 * words + 4)
        else:
            head = struct.pack("<I", delta << 5 | words)
        memory.write(tail, head + data)
        self._set("TAIL", tail + length)
        self._add("BALANCE", _USUAL - length - extend)
        return True

    def _move_tail(self) -> bool:
        memory = self._memory
        page, tail, end = self._get("PAGE"), self._get("TAIL"), self._get("END")
        if end != page + 16:
            room = end - tail
            if room == 4:
                memory.set_u32(tail, 29)
            elif room:
                memory.set_u32(tail, 1 << 5 | 29)
                memory.set_u32(tail + 4, room - 4)
                self._set("TAIL", end)
                self._add("BALANCE", -room)
                memory.set_u32(page + 12, room)
            table, index, size = self._get("TABLE"), self._get("INDEX"), self._get("PAGES_BYTES")
            following = (index + 16) % size
            if memory.u64(table + index) == page:
                if following == self._get("HEAD"):
                    if not memory.u32(self._address + CONSTANTS["RB_OVERWRITE"]):
                        self._add("DROPPED", 1)
                        return False
                    self._add("OVERRUN", memory.u64(table + following + 8))
                    oldest = memory.u64(table + following)
                    self._add("ENTRIES_BYTES", -memory.u32(oldest + 8))
                    self._set("HEAD", (following + 16) % size)
                memory.set_u64(table + index + 8, self._records())
            self._add("ENTRIES", self._records())
            commit = self._get("TAIL") - page - 16
            memory.set_u32(page + 8, commit)
            self._add("ENTRIES_BYTES", commit)
            self._set("INDEX", following)
            page = memory.u64(table + following)
            self._set("PAGE", page)
            self._set("STAMP", self._time())
        memory.set_u64(page, self._get("STAMP"))
        memory.set_u32(page + 12, 0)
        self._set("TAIL", page + 16)
        self._set("END", page + PAGE_SIZE)
        self._set("BALANCE", 0)
        return True
