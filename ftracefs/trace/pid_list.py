"""struct trace_pid_list: a set of pids that guest code asks too (kernel/trace/pid_list.c).

Also what trace.c does with one for the files set_ftrace_pid, set_event_pid and their like. The set
lies in guest memory; ftracefs/guest/pid_list.S looks into it at a switch of tasks and changes it
when tasks are made and gone. Here is the same for the host, with the supply of chunks
(`pid_list_refill_irq`), since guest code allocates nothing.

Left out: a supply that is used up within one slice of guest code, by children in seven ranges of
16384 pids; the last of them would not be followed.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace.trace_parser import TraceParser
from ftracefs.trace.parsers import kstrtoul

_C = CONSTANTS
_UPPER, _UPPER_LIST, _LOWER_LIST = _C["PIDS_UPPER"], _C["PIDS_UPPER_LIST"], _C["PIDS_LOWER_LIST"]
_FREE_UPPER, _FREE_LOWER = _C["PIDS_FREE_UPPER_CHUNKS"], _C["PIDS_FREE_LOWER_CHUNKS"]
_UPPER_WORDS = _C["PID_UPPER_MASK"] + 1
_CHUNK_BYTES = _C["PID_CHUNK_BYTES"]
MAX_PID = _C["PID_LIMIT"]
CHUNK_ALLOC = 6
CHUNK_REALLOC = 2
PID_BUF_SIZE = 127


class PidMemory(Protocol):
    """What a set needs of the machine's memory."""

    def alloc(self, size: int, align: int = ...) -> int: ...
    def free(self, address: int) -> None: ...
    def read(self, address: int, size: int) -> bytes: ...
    def u64(self, address: int) -> int: ...
    def set_u64(self, address: int, value: int) -> None: ...
    def u32(self, address: int) -> int: ...
    def set_u32(self, address: int, value: int) -> None: ...
    def u8(self, address: int) -> int: ...
    def set_u8(self, address: int, value: int) -> None: ...
    def write(self, address: int, data: bytes) -> None: ...


class TracePidList:
    """A set of pids at `address` (trace_pid_list_alloc); give it back with `free`."""

    def __init__(self, memory: PidMemory) -> None:
        self._memory = memory
        self.address = memory.alloc(_C["PIDS_SIZE"], 64)
        try:
            self.refill()
        except BaseException:
            self.free()
            raise

    def free(self) -> None:
        """trace_pid_list_free."""
        memory = self._memory
        for head in (_UPPER_LIST, _LOWER_LIST):
            chunk = memory.u64(self.address + head)
            while chunk:
                following = memory.u64(chunk)
                memory.free(chunk)
                chunk = following
        for _, upper in self._words(self.address + _UPPER):
            for _, lower in self._words(upper):
                memory.free(lower)
            memory.free(upper)
        memory.free(self.address)

    def refill(self) -> None:
        """Fill the supply up if it runs low; for the host, between two slices of guest code."""
        for head, count in ((_UPPER_LIST, _FREE_UPPER), (_LOWER_LIST, _FREE_LOWER)):
            if self._memory.u32(self.address + count) <= CHUNK_REALLOC:
                while self._memory.u32(self.address + count) < CHUNK_ALLOC:
                    self._put_chunk(self._memory.alloc(_CHUNK_BYTES, _CHUNK_BYTES), head, count)

    def _words(self, address: int) -> list[tuple[int, int]]:
        """The places of a table of pointers that are in use, and what they lead to."""
        words = np.frombuffer(self._memory.read(address, 8 * _UPPER_WORDS), np.uint64)
        used = np.flatnonzero(words)
        return list(zip(used.tolist(), words[used].tolist(), strict=True))

    def _get_chunk(self, head: int, count: int) -> int:
        """get_upper_chunk and get_lower_chunk."""
        memory, at = self._memory, self.address + head
        chunk = memory.u64(at)
        memory.set_u64(at, memory.u64(chunk))
        memory.set_u64(chunk, 0)
        memory.set_u32(self.address + count, memory.u32(self.address + count) - 1)
        self.refill()
        return chunk

    def _put_chunk(self, chunk: int, head: int, count: int) -> None:
        memory, at = self._memory, self.address + head
        memory.set_u64(chunk, memory.u64(at))
        memory.set_u64(at, chunk)
        memory.set_u32(self.address + count, memory.u32(self.address + count) + 1)

    def _places(self, pid: int) -> tuple[int, int, int]:
        """pid_split: offset of the word for its upper chunk, of that for its lower one, its bit."""
        upper1 = _UPPER + 8 * (pid >> _C["PID_UPPER1_SHIFT"])
        upper2 = 8 * (pid >> _C["PID_UPPER2_SHIFT"] & _C["PID_UPPER_MASK"])
        return upper1, upper2, pid & _C["PID_LOWER_MASK"]

    def _lower(self, pid: int) -> int:
        upper1, upper2, _ = self._places(pid)
        upper = self._memory.u64(self.address + upper1)
        return self._memory.u64(upper + upper2) if upper else 0

    def trace_pid_list_is_set(self, pid: int) -> bool:
        """Whether `pid` is in the set."""
        if not 0 <= pid < MAX_PID:
            return False
        lower = self._lower(pid)
        bit = pid & _C["PID_LOWER_MASK"]
        return bool(lower and self._memory.u8(lower + bit // 8) >> bit % 8 & 1)

    def trace_pid_list_set(self, pid: int) -> None:
        """Add a pid; EINVAL for one of more than 30 bits."""
        if not 0 <= pid < MAX_PID:
            raise TracefsError(errno.EINVAL, f"no pid can be {pid}")
        bit = pid & _C["PID_LOWER_MASK"]
        at = self._make_lower(pid) + bit // 8
        self._memory.set_u8(at, self._memory.u8(at) | 1 << bit % 8)

    def _make_lower(self, pid: int) -> int:
        """The lower chunk for a pid, got if there is none."""
        upper1, upper2, _ = self._places(pid)
        memory = self._memory
        if not memory.u64(self.address + upper1):
            memory.set_u64(self.address + upper1, self._get_chunk(_UPPER_LIST, _FREE_UPPER))
        word = memory.u64(self.address + upper1) + upper2
        if not memory.u64(word):
            memory.set_u64(word, self._get_chunk(_LOWER_LIST, _FREE_LOWER))
        return memory.u64(word)

    def update(self, other: TracePidList) -> None:
        """Add every pid of another set."""
        for first, bitmap in other._bitmaps():
            lower = self._make_lower(first)
            merged = np.frombuffer(self._memory.read(lower, _CHUNK_BYTES), np.uint8) | bitmap
            self._memory.write(lower, merged.tobytes())

    def trace_pid_list_clear(self, pid: int) -> None:
        """Take a pid out; EINVAL as above."""
        if not 0 <= pid < MAX_PID:
            raise TracefsError(errno.EINVAL, f"no pid can be {pid}")
        lower = self._lower(pid)
        if not lower:
            return
        upper1, upper2, bit = self._places(pid)
        memory, at = self._memory, lower + bit // 8
        memory.set_u8(at, memory.u8(at) & ~(1 << bit % 8))
        if any(memory.read(lower, _CHUNK_BYTES)):
            return
        upper = memory.u64(self.address + upper1)
        memory.set_u64(upper + upper2, 0)
        self._put_chunk(lower, _LOWER_LIST, _FREE_LOWER)
        if not any(memory.read(upper, _CHUNK_BYTES)):
            memory.set_u64(self.address + upper1, 0)
            self._put_chunk(upper, _UPPER_LIST, _FREE_UPPER)

    def __iter__(self) -> Iterator[int]:
        """The pids, ascending (trace_pid_list_first, trace_pid_list_next)."""
        for first, bitmap in self._bitmaps():
            bits = np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))
            yield from (first + bits).tolist()

    def __bool__(self) -> bool:
        return any(True for _ in self._bitmaps())

    def _bitmaps(self) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """Each lower chunk with the pid of its first bit; none of them is empty."""
        for upper1, upper in self._words(self.address + _UPPER):
            for upper2, lower in self._words(upper):
                first = (upper1 << _C["PID_UPPER1_SHIFT"]) + (upper2 << _C["PID_UPPER2_SHIFT"])
                yield first, np.frombuffer(self._memory.read(lower, _CHUNK_BYTES), np.uint8)


def trace_ignore_this_task(
    filtered_pids: TracePidList | None, filtered_no_pids: TracePidList | None, pid: int
) -> bool:
    """Whether a task is not to be traced: not in the one list, or in the other."""
    if filtered_pids is not None and not filtered_pids.trace_pid_list_is_set(pid):
        return True
    return filtered_no_pids is not None and filtered_no_pids.trace_pid_list_is_set(pid)


def trace_pid_write(
    memory: PidMemory, filtered_pids: TracePidList | None, data: bytes
) -> tuple[TracePidList | None, int]:
    """One write to a file of pids: a new list, with what the old one held, and the bytes taken.

    All or nothing: with an error the old list stays what it was. None instead of a list that
    would be empty. EINVAL for what is no number, or is of 128 bytes and more; EPERM for a pid of
    more than 30 bits.
    """
    pid_list = TracePidList(memory)
    try:
        if filtered_pids is not None:
            pid_list.update(filtered_pids)
        read = 0
        parser = TraceParser(PID_BUF_SIZE + 1)
        while read < len(data):
            read += parser.trace_get_user(data[read:])
            if not parser.loaded:
                break
            _add_pid(pid_list, bytes(parser.buffer))
            parser.clear()
    except BaseException:
        pid_list.free()
        raise
    if not pid_list:
        pid_list.free()
        return None, read
    return pid_list, read


def _add_pid(pid_list: TracePidList, word: bytes) -> None:
    try:
        value = kstrtoul(word, 0)
    except TracefsError as error:
        raise TracefsError(errno.EINVAL, str(error)) from error
    try:
        pid_list.trace_pid_list_set(value & 0xFFFFFFFF)
    except TracefsError as error:
        raise TracefsError(errno.EPERM, str(error)) from error
