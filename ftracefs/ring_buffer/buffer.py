"""The ring buffers of all CPUs of one trace array (struct trace_buffer).

Guest code finds the buffer of its CPU through `table`, a word for each CPU and a 0 behind the last,
or knows the first one's address: the others follow at equal distances, RB_SIZE.
Everything here is called on the machine thread. What a reader is to look at leaves as copies
(`Pages`), which any thread may decode.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from emulated_kernel.asm_offsets import CONSTANTS, PAGE_OFFSET
from emulated_kernel.machine import Memory
from emulated_kernel.machine.clock import ClockWords
from ftracefs.errors import TracefsError
from ftracefs.ring_buffer.layout import PAGE_SIZE, nr_pages_of
from ftracefs.ring_buffer.pages import Pages
from ftracefs.ring_buffer.per_cpu import Readers, RingBufferPerCpu, Unread, colour

_WORDS_BYTES, _TABLE = CONSTANTS["RB_SIZE"], CONSTANTS["RB_CPUS"]


@dataclass(eq=False, slots=True)
class Waiter:
    """Somebody asleep until there is data on `cpu` (None: any), with `full` until so many percent.

    With `seen`, only for data beyond what had been written then.
    """

    cpu: int | None
    full: int
    wake: Callable[[], None]
    seen: list[int] | None = None


def _room_for_words(memory: Memory, percpu: Sequence[int]) -> tuple[int, int]:
    """A page for each CPU's words, one behind the other: what to free, and where the first one is.

    None shares the soft-TLB entry of the CPU's own page, if that can be helped.
    """
    room = memory.alloc(_WORDS_BYTES * (len(percpu) + 1), _WORDS_BYTES)
    pages = [colour(page) for page in percpu]
    for words in (room, room + _WORDS_BYTES):
        if all(colour(words + _WORDS_BYTES * i) != page for i, page in enumerate(pages)):
            return room, words
    return room, room


class RingBuffer:
    """`nr_cpus` buffers of `size` bytes, rounded up to whole pages.

    `percpu` are the addresses of the CPUs' own pages, which every record touches. Raises ENOMEM.
    """

    def __init__(self, memory: Memory, percpu: Sequence[int], size: int) -> None:
        self._memory = memory
        self._waiters: list[Waiter] = []
        self._record_disabled = 0
        self.cpus: list[RingBufferPerCpu] = []
        try:
            self._room, words = _room_for_words(memory, percpu)
        except MemoryError:
            raise TracefsError(errno.ENOMEM, "no room for a ring buffer") from None
        self.table = words + _TABLE
        try:
            for cpu, page in enumerate(percpu):
                at, avoid = words + cpu * _WORDS_BYTES, (page, self.table)
                self.cpus.append(RingBufferPerCpu(memory, cpu, nr_pages_of(size), at, avoid))
        except BaseException:
            self.free()
            raise
        for cpu_buffer in self.cpus:
            memory.set_u64(self.table + 8 * cpu_buffer.cpu, cpu_buffer.address)
        self.set_overwrite(True)

    def free(self) -> None:
        """Give all memory back (ring_buffer_free)."""
        for cpu_buffer in self.cpus:
            cpu_buffer.free()
        self._memory.free(self._room)

    # --- recording or not ------------------------------------------------------------------------

    def record_off(self) -> None:
        """Record nothing (ring_buffer_record_off: the file tracing_on)."""
        self._set_guard("RB_GUARD_OFF", True)

    def record_on(self) -> None:
        """Record again (ring_buffer_record_on)."""
        self._set_guard("RB_GUARD_OFF", False)

    @property
    def _is_off(self) -> bool:
        """What the guards say: guest code switches recording on and off too."""
        return self.cpus[0].has_guard(CONSTANTS["RB_GUARD_OFF"])

    def record_is_on(self) -> bool:
        """Whether recording is possible (ring_buffer_record_is_on)."""
        return not self._is_off and self._record_disabled == 0

    def record_is_set_on(self) -> bool:
        """Whether `record_on` came last, disabled or not (ring_buffer_record_is_set_on)."""
        return not self._is_off

    @property
    def is_disabled(self) -> bool:
        """Whether nothing is recorded here, off or disabled (buffer->record_disabled)."""
        return not self.record_is_on()

    def record_disable(self) -> None:
        """Record nothing until as many `record_enable` (ring_buffer_record_disable)."""
        self._record_disabled += 1
        self._set_guard("RB_GUARD_DISABLED", True)

    def record_enable(self) -> None:
        """Undo one `record_disable`."""
        self._record_disabled -= 1
        self._set_guard("RB_GUARD_DISABLED", self._record_disabled != 0)

    def _set_guard(self, name: str, on: bool) -> None:
        for cpu_buffer in self.cpus:
            cpu_buffer.set_guard(CONSTANTS[name], on)

    def set_clock(self, clock: ClockWords) -> None:
        """Stamp records with `clock` from now on; every record so far goes."""
        for cpu_buffer in self.cpus:
            cpu_buffer.set_clock(clock)
        self.reset()

    def set_overwrite(self, overwrite: bool) -> None:
        """What gives way when a buffer is full (ring_buffer_change_overwrite)."""
        for cpu_buffer in self.cpus:
            cpu_buffer.set_overwrite(overwrite)

    def set_stacktrace(self, kernel: bool, user: bool) -> None:
        """Which stack traces guest code records behind each event (TRACE_ITER_STACKTRACE, …)."""
        bits = kernel * CONSTANTS["RB_STACKTRACE_KERNEL"] | user * CONSTANTS["RB_STACKTRACE_USER"]
        for cpu_buffer in self.cpus:
            self._memory.set_u32(cpu_buffer.address + CONSTANTS["RB_STACKTRACE"], bits)

    # --- size, counts ----------------------------------------------------------------------------

    def _chosen(self, cpu: int | None) -> Sequence[RingBufferPerCpu]:
        return self.cpus if cpu is None else self.cpus[cpu : cpu + 1]

    def resize(self, size: int, cpu: int | None = None) -> None:
        """Give one CPU, or all, `size` bytes in whole pages (ring_buffer_resize).

        Raises ENOMEM, all sizes kept; EBUSY while somebody walks one of the rings, unless only one
        CPU is meant and has that size.
        """
        chosen = self._chosen(cpu)
        if cpu is not None and chosen[0].nr_pages == nr_pages_of(size):
            return
        if any(cpu_buffer.readers.count for cpu_buffer in chosen):
            raise TracefsError(errno.EBUSY, "the buffer is being read")
        before = [cpu_buffer.nr_pages for cpu_buffer in chosen]
        try:
            for cpu_buffer in chosen:
                cpu_buffer.resize(nr_pages_of(size))
        except BaseException:
            for cpu_buffer, nr_pages in zip(chosen, before, strict=True):
                if cpu_buffer.nr_pages > nr_pages:
                    cpu_buffer.resize(nr_pages)
            raise

    def size(self, cpu: int) -> int:
        """Bytes of data that a CPU's ring holds (ring_buffer_size)."""
        return self.cpus[cpu].size

    def reset(self, cpu: int | None = None) -> None:
        """Forget the records of one CPU or of all (ring_buffer_reset)."""
        for cpu_buffer in self._chosen(cpu):
            cpu_buffer.reset()

    def entries(self, cpu: int | None = None) -> int:
        """Records that readers would find (ring_buffer_entries)."""
        return sum(cpu_buffer.entries() for cpu_buffer in self._chosen(cpu))

    def overruns(self, cpu: int | None = None) -> int:
        """Records overwritten unread (ring_buffer_overruns)."""
        return sum(cpu_buffer.overrun() for cpu_buffer in self._chosen(cpu))

    def is_empty(self, cpu: int | None = None) -> bool:
        """Whether a reader would find nothing (ring_buffer_empty)."""
        return all(cpu_buffer.entries() == 0 for cpu_buffer in self._chosen(cpu))

    def state(self) -> list[tuple[int, ...]]:
        """Numbers that differ when a record has come or gone."""
        return [(c.address, c.generation, c.written(), c.overrun(), c.entries()) for c in self.cpus]

    # --- reading ---------------------------------------------------------------------------------

    def snapshot(self, cpu: int | None = None) -> Pages:
        """Copies of everything unread, of one CPU or all; nothing is consumed."""
        return self.copy([(c.cpu, c.unread()) for c in self._chosen(cpu)])

    def consume_all(self, nr_pages: int, cpu: int | None = None) -> tuple[Pages, dict[int, int]]:
        """Read everything; copies of the last pages of each CPU, at most `nr_pages`, come back.

        Also tells by CPU how many records had been overwritten in front of its first one.
        """
        parts: list[tuple[int, Unread]] = []
        lost: dict[int, int] = {}
        for cpu_buffer in self._chosen(cpu):
            head = cpu_buffer.rb_get_reader_page()
            part = cpu_buffer.unread()
            if len(part.addresses) > nr_pages:
                part = Unread(part.addresses[-nr_pages:], part.commit, 0, 0)
            elif head is not None:
                lost[cpu_buffer.cpu] = head.lost
            parts.append((cpu_buffer.cpu, part))
        pages = self.copy(parts)
        for cpu_buffer in self._chosen(cpu):
            cpu_buffer.consume_all()
        return pages, lost

    def copy(self, unread: Iterable[tuple[int, Unread]]) -> Pages:
        """Copies of the pages listed for each CPU, in ascending order of CPUs."""
        addresses: list[int] = []
        first: list[tuple[int, int]] = []
        last: list[tuple[int, int]] = []
        cpus: list[int] = []
        for cpu, part in unread:
            if part.addresses:
                first.append((len(addresses), part.read))
                addresses += part.addresses
                last.append((len(addresses) - 1, part.commit))
                cpus += [cpu] * len(part.addresses)
        where = (np.array(addresses, dtype=np.uint64) - np.uint64(PAGE_OFFSET)) // PAGE_SIZE
        ram = self._memory.ram_array.view(np.uint32).reshape(-1, PAGE_SIZE // 4)
        words = ram[where.astype(np.intp)]
        commit = words[:, 2].astype(np.int64)
        read = np.zeros(len(addresses), dtype=np.int64)
        for index, value in first:
            read[index] = value
        for index, value in last:
            commit[index] = value
        return Pages(words, commit, read, np.array(cpus, dtype=np.int64))

    def ring_buffer_read_start(self, cpu: int | None = None) -> list[Readers]:
        """Somebody walks the ring of one CPU, or of all, wherever it is swapped to."""
        readers = [cpu_buffer.readers for cpu_buffer in self._chosen(cpu)]
        for reader in readers:
            reader.count += 1
        return readers

    @staticmethod
    def ring_buffer_read_finish(readers: list[Readers]) -> None:
        """Undo one `ring_buffer_read_start`."""
        for reader in readers:
            reader.count -= 1

    def swap(self, other: RingBuffer) -> None:
        """Exchange the records of all CPUs with those of `other`; what is set up here stays."""
        for mine, others in zip(self.cpus, other.cpus, strict=True):
            mine.ring_buffer_swap_cpu(others)

    def ring_buffer_swap_cpu(self, other: RingBuffer, cpu: int) -> None:
        """Exchange the records of one CPU.

        EINVAL unless they are of one size, EAGAIN while one of them does not record.
        """
        pair = self.cpus[cpu], other.cpus[cpu]
        if pair[0].nr_pages != pair[1].nr_pages:
            raise TracefsError(errno.EINVAL, "the two buffers have different sizes")
        if any(half.is_disabled for half in (self, other, *pair)):
            raise TracefsError(errno.EAGAIN, "one of the buffers does not record")
        pair[0].ring_buffer_swap_cpu(pair[1])

    # --- waiting ---------------------------------------------------------------------------------

    def wait(self, wake: Callable[[], None], cpu: int | None = None) -> Waiter:
        """Call `wake` once there is something to read, then forget about it (ring_buffer_wait)."""
        waiter = Waiter(cpu, 0, wake)
        self._waiters.append(waiter)
        return waiter

    def ring_buffer_poll_wait(
        self, wake: Callable[[], None] | None, cpu: int | None = None, full: int = 0
    ) -> tuple[bool, Waiter | None]:
        """Whether a reader need not wait; `wake` is called when new data makes it so (again).

        With `full` a reader of one CPU waits until that part of its pages, in percent, is written.
        """
        waiter = Waiter(cpu, full, wake or (lambda: None))
        is_ready = self._has_come(waiter)
        if wake is None:
            return is_ready, None
        waiter.seen = self._written(cpu)
        self._waiters.append(waiter)
        return is_ready, waiter

    def cancel(self, waiter: Waiter) -> None:
        """Wait no longer; nothing happens if it has been woken already."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def rb_wake_up_waiters(self) -> None:
        """Wake who waits for what has come; run after every slice of guest code."""
        if not self._waiters:
            return
        for waiter in [w for w in self._waiters if self._has_come(w)]:
            self.cancel(waiter)
            waiter.wake()

    def wake_waiters(self) -> None:
        """Wake everybody, data or not (ring_buffer_wake_waiters)."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.wake()

    def _written(self, cpu: int | None) -> list[int]:
        return [cpu_buffer.written() for cpu_buffer in self._chosen(cpu)]

    def _has_come(self, waiter: Waiter) -> bool:
        if waiter.seen is not None and waiter.seen == self._written(waiter.cpu):
            return False
        if waiter.cpu is None or not waiter.full:
            return not self.is_empty(waiter.cpu)
        return self.cpus[waiter.cpu].full_hit(waiter.full)
