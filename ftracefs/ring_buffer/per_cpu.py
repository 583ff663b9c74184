"""One CPU's ring of pages, seen by its reader (struct ring_buffer_per_cpu).

The writer is guest code (ftracefs/guest/ring_buffer.S) and stands still while a method here runs:
all of them are called on the machine thread, between slices. So there are no locks, and what Linux
does with flagged pointers is plain arithmetic.

    ring    a table with a descriptor {address, records} for each page. HEAD is the oldest page,
            INDEX the one being written; both count in bytes of the table.
    reader  one page more, outside the ring. A reader exchanges it for the head page and reads that
            at leisure. If the writer stands on the page taken, it goes on there and enters the ring
            at HEAD later; INDEX then names a page other than PAGE, which is how the writer knows.

A ring without records has END right behind the header of the first page, so that the first record
takes the writer's rare path, which stamps the page.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from emulated_kernel.asm_offsets import CONSTANTS, PAGE_OFFSET
from emulated_kernel.machine import Memory
from emulated_kernel.machine.clock import ClockWords
from ftracefs.errors import TracefsError
from ftracefs.ring_buffer.layout import (
    BUF_PAGE_HDR_SIZE,
    BUF_PAGE_SIZE,
    MIN_PAGES,
    PAGE_SIZE,
    RB_MISSED_EVENTS,
    RB_MISSED_STORED,
    RINGBUF_TYPE_PADDING,
)
from ftracefs.ring_buffer.pages import HDR_WORDS, I64, PAGE_WORDS, U32, U64, Pages, decode

_DESC_BYTES, _USUAL_BYTES = CONSTANTS["RB_DESC_BYTES"], CONSTANTS["RB_USUAL_BYTES"]
_COMMIT = CONSTANTS["RB_PAGE_COMMIT"]
_U64 = (1 << 64) - 1
_FIRST_PAGE, _PAGE_SHIFT = np.uint64(PAGE_OFFSET), np.uint64(12)


@dataclass(slots=True)
class Readers:
    """How many walk a ring; it keeps its size meanwhile (resize_disabled)."""

    count: int = 0


class _Words(NamedTuple):
    """What the writer keeps in guest memory, in the order of the RB_ offsets."""

    guard: int
    overwrite: int
    tail: int
    end: int
    stamp: int
    balance: int
    clock_mult: int
    clock_step: int
    clock_ptr: int
    clock_offset: int
    page: int
    table: int
    index: int  # type: ignore[assignment]  # a field is wanted more than the method
    pages_bytes: int
    head: int
    overrun: int
    dropped: int
    entries: int
    entries_bytes: int

    @property
    def events(self) -> int:
        """How many records are on the page being written: those of the usual size need no word."""
        return (self.tail - self.page - BUF_PAGE_HDR_SIZE + self.balance & _U64) // _USUAL_BYTES


# What stays with a CPU's place when rings are exchanged: whether and how to record there.
_STAYS = ("guard", "overwrite", "clock_mult", "clock_step", "clock_ptr", "clock_offset")

_LAYOUT = struct.Struct("<II17Q")
_OFFSETS = {name: CONSTANTS[f"RB_{name.upper()}"] for name in _Words._fields}
assert list(_OFFSETS.values()) == [0, 4, *range(8, _LAYOUT.size, 8)]


def _page_numbers(addresses: U64) -> npt.NDArray[np.intp]:
    """Which pages of RAM these are."""
    return ((addresses - _FIRST_PAGE) >> _PAGE_SHIFT).view(np.intp)


def colour(address: int) -> int:
    """The entry of the soft TLB that accesses to this page go through."""
    return address >> 12 & 0xFF


@dataclass(frozen=True, slots=True)
class Stats:
    """The counters of per_cpu/cpuN/stats."""

    entries: int
    overrun: int
    commit_overrun: int
    bytes: int
    dropped_events: int
    read_events: int


@dataclass(frozen=True, slots=True)
class Unread:
    """Pages that hold something not consumed, oldest first; of the first, `read` bytes are.

    `commit` is the data of the last one, which may be the page being written: the others say it
    themselves. `lost` records were overwritten before the first.
    """

    addresses: list[int]
    commit: int
    read: int
    lost: int


class RingBufferPerCpu:
    """The buffer of one CPU: `nr_pages` pages in the ring and one for the reader.

    `address` is where the writer's words are to be, in a page that is the caller's; `avoid` are
    more addresses whose soft-TLB entry no page shall share. Raises ENOMEM when the machine has no
    room.
    """

    def __init__(
        self, memory: Memory, cpu: int, nr_pages: int, address: int, avoid: Iterable[int] = ()
    ) -> None:
        self.cpu = cpu
        self.nr_pages = max(nr_pages, MIN_PAGES)
        self.generation = 0  # of what the reader has been told: `consume` needs the same one
        self._memory = memory
        self.address = address
        self._avoid = {colour(page) for page in (address, *avoid)}
        taken: list[int] = []
        try:
            taken = self._alloc_pages(self.nr_pages + 1)
            self._reader_page, *ring = taken
            self._table, self._ring = self._new_table(len(ring))
        except MemoryError:
            for address in taken:
                memory.free(address)
            raise TracefsError(errno.ENOMEM, "no room for a ring buffer") from None
        self._ring[:, 0] = ring
        self._control = memory.view(self.address, _LAYOUT.size)
        self._ram_pages = memory.ram_array.view(np.uint32).reshape(-1, PAGE_WORDS)
        self._commits = self._ram_pages[:, 2]
        self._set(table=self._table, pages_bytes=len(ring) * _DESC_BYTES)
        self.readers = Readers()
        self._record_disabled = 0
        self._read = self._read_stamp = self._read_events = self._read_bytes = 0
        self._last_overrun = self._lost_events = 0
        self.reset()

    # --- memory ----------------------------------------------------------------------------------

    def _alloc_pages(self, count: int) -> list[int]:
        """Pages with soft-TLB entries of their own; all or none."""
        pages: list[int] = []
        unwanted: list[int] = []
        try:
            while len(pages) < count:
                page = self._memory.alloc(PAGE_SIZE)
                (unwanted if colour(page) in self._avoid else pages).append(page)
        except MemoryError:
            unwanted += pages
            raise
        finally:
            for page in unwanted:
                self._memory.free(page)
        return pages

    def _new_table(self, count: int) -> tuple[int, U64]:
        """A table for `count` pages, and itself as an array: a row {address, records} for each."""
        table = self._memory.alloc(count * _DESC_BYTES)
        array = self._memory.array(table, count * _DESC_BYTES, np.uint64)
        return table, cast(U64, array.reshape(count, _DESC_BYTES // 8))

    def free(self) -> None:
        """Give all memory back (rb_free_cpu_buffer); nothing writes to it or reads it any more."""
        ring = self._ring[:, 0].tolist()
        owned = {*ring, self._reader_page, self._words().page, self._table}
        for address in owned:
            self._memory.free(address)

    # --- the writer's words ----------------------------------------------------------------------

    def _words(self) -> _Words:
        return _Words._make(_LAYOUT.unpack_from(self._control))

    def _set(self, **words: int) -> None:
        for name, value in words.items():
            struct.pack_into("<Q", self._control, _OFFSETS[name], value & _U64)

    def set_clock(self, clock: ClockWords) -> None:
        """Stamp records with `clock` from now on. The caller resets the buffer."""
        self._set(
            clock_mult=clock.mult,
            clock_step=clock.step,
            clock_ptr=clock.pointer,
            clock_offset=clock.offset,
        )
        self.set_guard(CONSTANTS["RB_GUARD_CLOCK"], not clock.is_tsc)

    def set_overwrite(self, overwrite: bool) -> None:
        """When full, lose the oldest records, or else the newest."""
        struct.pack_into("<I", self._control, _OFFSETS["overwrite"], overwrite)

    def set_guard(self, bit: int, on: bool) -> None:
        """Set or clear one reason (RB_GUARD_*) not to record here."""
        guard = self._words().guard
        struct.pack_into("<I", self._control, 0, guard | bit if on else guard & ~bit)

    def has_guard(self, bit: int) -> bool:
        """Whether one of these reasons (RB_GUARD_*) is set."""
        return bool(self._words().guard & bit)

    @property
    def is_disabled(self) -> bool:
        """Whether this CPU alone is kept from recording."""
        return self._record_disabled != 0

    def record_disable(self) -> None:
        """Record nothing until as many `record_enable` (ring_buffer_record_disable_cpu)."""
        self._record_disabled += 1
        self.set_guard(CONSTANTS["RB_GUARD_CPU_DISABLED"], True)

    def record_enable(self) -> None:
        """Undo one `record_disable`."""
        self._record_disabled -= 1
        self.set_guard(CONSTANTS["RB_GUARD_CPU_DISABLED"], self._record_disabled != 0)

    # --- counts ----------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of data that fit into the ring."""
        return self.nr_pages * BUF_PAGE_SIZE

    def entries(self) -> int:
        """Records that a reader would find (ring_buffer_entries_cpu)."""
        words = self._words()
        return words.entries + words.events - words.overrun - self._read_events

    def written(self) -> int:
        """Records written since the last reset, read or not."""
        words = self._words()
        return words.entries + words.events

    def overrun(self) -> int:
        """Records overwritten unread."""
        return self._words().overrun

    def stats(self) -> Stats:
        """All counters at once."""
        words = self._words()
        return Stats(
            entries=words.entries + words.events - words.overrun - self._read_events,
            overrun=words.overrun,
            commit_overrun=0,  # needs a writer that interrupts a writer
            bytes=words.entries_bytes + self._current_commit(words) - self._read_bytes,
            dropped_events=words.dropped,
            read_events=self._read_events,
        )

    def oldest_event_ts(self) -> int:
        """The stamp of the oldest page (ring_buffer_oldest_event_ts)."""
        words = self._words()
        on_reader_page = words.page == self._reader_page
        oldest = self._reader_page if on_reader_page else self._memory.u64(self._table + words.head)
        return self._memory.u64(oldest)

    def nr_dirty_pages(self) -> int:
        """Pages filled and not yet taken by a reader."""
        return self._dirty(self._words())

    def _dirty(self, words: _Words) -> int:
        if words.page == self._reader_page:
            return 0
        return (words.index - words.head) % words.pages_bytes // _DESC_BYTES

    def full_hit(self, full: int) -> bool:
        """Whether `full` percent of the pages are written, the one being written included.

        So a small part of few pages is reached by an empty buffer.
        """
        return (self.nr_dirty_pages() + 1) * 100 >= full * self.nr_pages

    @staticmethod
    def _current_commit(words: _Words) -> int:
        return words.tail - words.page - BUF_PAGE_HDR_SIZE

    def _commit(self, page: int, words: _Words) -> int:
        """Bytes of data on a page."""
        if page == words.page:
            return self._current_commit(words)
        return self._memory.u32(page + _COMMIT)

    # --- reading ---------------------------------------------------------------------------------

    def rb_get_reader_page(self) -> Unread | None:
        """The reader's page if it holds more, else the next one; None when all is consumed."""
        words = self._words()
        commit = self._commit(self._reader_page, words)
        self._skip_padding(commit)  # the writer may have left the page since the last record
        if self._read >= commit:
            entries = words.entries + words.events - words.overrun - self._read_events
            if words.page == self._reader_page or entries == 0:
                return None
            self._swap_reader_page(words)
            commit = self._commit(self._reader_page, words)
        return Unread([self._reader_page], commit, self._read, self._lost_events)

    def _swap_reader_page(self, words: _Words) -> None:
        """Exchange the reader's page, wholly consumed, for the head page."""
        descriptor = self._ring[words.head // _DESC_BYTES]
        taken = int(descriptor[0])
        descriptor[0] = self._reader_page
        self._set(head=(words.head + _DESC_BYTES) % words.pages_bytes)
        self._reader_page = taken
        self._read = 0
        self._read_stamp = self._memory.u64(taken)
        if words.overrun != self._last_overrun:
            self._lost_events = words.overrun - self._last_overrun
            self._last_overrun = words.overrun
        self.generation += 1

    def rb_get_reader_pages(self, count: int) -> tuple[Unread, bool] | None:
        """As `rb_get_reader_page`, with what follows in the ring, `count` pages in all.

        Also tells whether there are records behind them. Where records were lost it ends.
        """
        first = self.rb_get_reader_page()
        if first is None:
            return None
        words = self._words()
        if words.page == self._reader_page:
            return first, False
        if count == 1 or words.overrun != self._last_overrun:
            return first, True
        pages = self._ring_pages(words, count - 1)
        last = pages[-1]
        addresses = first.addresses + pages
        return Unread(addresses, self._commit(last, words), first.read, first.lost), (
            last != words.page
        )

    def writer_has_left(self) -> bool:
        """Whether the writer is no longer on the reader's page: the ring holds more records."""
        return self._words().page != self._reader_page

    def consume(self, count: int, end: int, ts: int) -> None:
        """Take `count` records off the reader's page; the last ends at `end` and bears `ts`."""
        self._advance(count, end, ts)
        self._skip_padding(self._commit(self._reader_page, self._words()))

    def consume_pages(self, passed: int, count: int, end: int, ts: int) -> None:
        """Take `count` records: what is left on `passed` pages, and of the next one as `consume`.

        They are what `rb_get_reader_pages` told of, nothing having been written since.
        """
        if passed:
            self._pass_pages(passed, self._words())
        self.consume(count, end, ts)

    def _pass_pages(self, count: int, words: _Words) -> None:
        """Put the reader `count` pages ahead; what he passes is consumed, but for the count.

        The writer has left all that are passed.
        """
        where = self._from_head(words, count)
        passed = self._commits[_page_numbers(self._ring[where, 0][:-1])]
        self._read_bytes += self._commit(self._reader_page, words) - self._read
        self._read_bytes += sum(passed.tolist())
        self._exchange(where, count, words)

    def _exchange(self, where: slice | I64, count: int, words: _Words) -> None:
        """Give the reader the last of these pages of the ring, and the ring his, in front."""
        addresses = self._ring[where, 0].tolist()
        self._ring[where, 0] = [self._reader_page, *addresses[:-1]]
        self._reader_page = addresses[-1]
        self._set(head=(words.head + count * _DESC_BYTES) % words.pages_bytes)
        self._read = 0
        self._read_stamp = self._memory.u64(self._reader_page)
        self._lost_events = 0
        self.generation += 1

    def consume_all(self) -> None:
        """Take all records, whatever they are."""
        count = self.entries()
        while (unread := self.rb_get_reader_page()) is not None:
            self._advance(0, unread.commit, self._words().stamp)
        self._read_events += count
        self.generation += 1

    def _skip_padding(self, commit: int) -> None:
        """Behind a page's last record there may be padding up to its end."""
        if self._is_at_padding(commit):
            self._advance(0, commit, self._read_stamp)

    def _is_at_padding(self, commit: int) -> bool:
        if not 0 < self._read < commit:
            return False
        head = self._memory.u32(self._reader_page + BUF_PAGE_HDR_SIZE + self._read)
        return head & 31 == RINGBUF_TYPE_PADDING

    def _advance(self, count: int, end: int, ts: int) -> None:
        self._read_events += count
        self._read_bytes += end - self._read
        self._read = end
        self._read_stamp = ts
        self._lost_events = 0

    def unread(self) -> Unread:
        """Everything not consumed, as it stands, without taking a page."""
        words = self._words()
        reader_commit = self._commit(self._reader_page, words)
        left = self._read < reader_commit
        addresses = [self._reader_page] if left else []
        last = reader_commit
        if words.page != self._reader_page:
            addresses += self._ring_pages(words)
            last = self._current_commit(words)
        return Unread(addresses, last, self._read if left else 0, 0)

    def behind_reader_page(self) -> Unread | None:
        """The page that the reader will take next, as it stands; None when there is none yet.

        `lost` are the records overwritten between the two.
        """
        words = self._words()
        if words.page == self._reader_page:
            return None
        (page,) = self._ring_pages(words, 1)
        return Unread([page], self._commit(page, words), 0, words.overrun - self._last_overrun)

    def _ring_pages(self, words: _Words, count: int | None = None) -> list[int]:
        """The pages of the ring from HEAD to the one being written, the first `count` of them."""
        head = words.head // _DESC_BYTES
        used = (words.index - words.head) % words.pages_bytes // _DESC_BYTES + 1
        where = np.arange(head, head + (used if count is None else min(count, used)))
        pages: list[int] = self._ring[where % self.nr_pages, 0].tolist()
        return pages

    def _from_head(self, words: _Words, count: int) -> slice | npt.NDArray[np.int64]:
        """Where the descriptors of `count` pages stand in the table, from HEAD on."""
        head = words.head // _DESC_BYTES
        if head + count <= self.nr_pages:
            return slice(head, head + count)
        return np.arange(head, head + count) % self.nr_pages

    def read_page(self, length: int = BUF_PAGE_SIZE, full: bool = False) -> bytes | None:
        """Consume a page the way trace_pipe_raw hands it out (ring_buffer_read_page).

        At most `length` bytes of data. With `full`, only a page that the writer has left. Returns
        a page of 4096 bytes, or None when there is nothing of that kind.
        """
        if (padding := self._read_padding(length)) is not None:
            return padding
        unread = self.rb_get_reader_page()
        if unread is None:
            return None
        left = unread.commit - self._read
        is_partial = self._read > 0 or length < left or not self.writer_has_left()
        if is_partial and full and (not self._read or length < left or not self.writer_has_left()):
            return None
        raw = self._memory.read(self._reader_page, PAGE_SIZE)
        words = np.frombuffer(raw, dtype=np.uint32).reshape(1, -1)
        one = np.zeros(1, dtype=np.int64)
        records = decode(Pages(words, one + unread.commit, one + self._read, one))
        fitting = int(np.searchsorted(records.end, self._read + length, "right"))
        if fitting == 0:
            return None
        stamp, start, end = self._read_stamp, self._read, int(records.end[fitting - 1])
        # What is copied brings the padding along, a page handed out whole ends before it.
        is_rest = fitting == len(records.end) and left <= length
        data_end = unread.commit if is_rest and is_partial else end
        data = raw[BUF_PAGE_HDR_SIZE + start : BUF_PAGE_HDR_SIZE + data_end]
        self.consume(fitting, end, int(records.ts[fitting - 1]))
        self.generation += 1
        return _page_for_user(stamp, data, unread.lost)

    def read_pages(self, room: U32) -> int:
        """Fill the rows of `room`, a page each, as so many calls of `read_page`; returns how many.

        What is behind them in `room` may have changed.
        """
        filled = 0
        while filled < len(room):
            whole = self._read_whole_pages(room[filled:])
            if not whole:
                page = self.read_page()
                if page is None:
                    break
                room[filled] = np.frombuffer(page, dtype=np.uint32)
                whole = 1
            filled += whole
        return filled

    def _read_whole_pages(self, room: U32) -> int:
        """The next pages that the writer has left, all at once.

        0 while the reader's page holds more, or after a loss, which the next one is to tell of.
        """
        words = self._words()
        count = min(len(room), self._dirty(words))
        is_consumed = self._read >= self._commit(self._reader_page, words)
        if count <= 0 or not is_consumed or words.overrun != self._last_overrun:
            return 0
        where = self._from_head(words, count)
        rows = self._ring[where]
        pages = room[:count]
        # The only copy. With any other mode it would be a copy of a copy.
        self._ram_pages.take(_page_numbers(rows[:, 0]), 0, pages, "clip")
        commits, paddings = pages[:, 2:4].T.tolist()
        ends = [commit - padding for commit, padding in zip(commits, paddings, strict=True)]
        if ends.count(ends[0]) == count:
            pages[:, HDR_WORDS + ends[0] // 4 :] = 0
        else:
            for page, end in zip(pages, ends, strict=True):
                page[HDR_WORDS + end // 4 :] = 0
        pages[:, 2] = ends
        pages[:, 3] = 0
        self._read_events += sum(rows[:, 1].tolist())
        self._read_bytes += sum(commits)
        self._exchange(where, count, words)
        self._read = commits[-1]
        return count

    def _read_padding(self, length: int) -> bytes | None:
        """A page without records: what was behind the last one read when the writer left."""
        commit = self._commit(self._reader_page, self._words())
        if not self._is_at_padding(commit) or commit - self._read > length:
            return None
        start = self._reader_page + BUF_PAGE_HDR_SIZE
        data = self._memory.read(start + self._read, commit - self._read)
        page = _page_for_user(self._read_stamp, data, 0)
        self._skip_padding(commit)
        return page

    # --- reset, swap, resize ---------------------------------------------------------------------

    def ring_buffer_swap_cpu(self, other: RingBufferPerCpu) -> None:
        """Exchange the rings, records, counts and readers of two places.

        The places themselves stay, with their addresses, guards and clocks, so whoever has the
        address of one writes on there. Linux exchanges pointers to the places.
        """
        mine, others = self._words(), other._words()
        for name in _Words._fields:
            if name not in _STAYS:
                self._set(**{name: getattr(others, name)})
                other._set(**{name: getattr(mine, name)})
        for name in _READER_STATE:
            mine_too, others_too = getattr(self, name), getattr(other, name)
            setattr(self, name, others_too)
            setattr(other, name, mine_too)
        self.generation += 1
        other.generation += 1

    def reset(self) -> None:
        """Forget every record and count (rb_reset_cpu)."""
        first = int(self._ring[0, 0])
        self._memory.write(first, bytes(BUF_PAGE_HDR_SIZE))
        self._memory.write(self._reader_page, bytes(BUF_PAGE_HDR_SIZE))
        start = first + BUF_PAGE_HDR_SIZE
        self._set(page=first, tail=start, end=start, stamp=0, balance=0, index=0, head=0)
        self._set(overrun=0, dropped=0, entries=0, entries_bytes=0)
        self._read = self._read_stamp = self._read_events = self._read_bytes = 0
        self._last_overrun = self._lost_events = 0
        self.generation += 1

    def resize(self, nr_pages: int) -> None:
        """Change the number of pages; records stay as far as they fit, newest first.

        Raises ENOMEM and changes nothing when the machine has no room (ring_buffer_resize).
        """
        nr_pages = max(nr_pages, MIN_PAGES)
        if nr_pages == self.nr_pages:
            return
        words = self._words()
        head = words.head // _DESC_BYTES
        ring: list[list[int]] = np.roll(self._ring, -head, axis=0).tolist()
        used = 0  # of the ring, from HEAD on; the writer stands on the last
        if words.page != self._reader_page:
            used = (words.index - words.head) % words.pages_bytes // _DESC_BYTES + 1
        try:
            fresh = self._alloc_pages(max(0, nr_pages - self.nr_pages))
            table, array = self._new_table(nr_pages)
        except MemoryError:
            raise TracefsError(errno.ENOMEM, f"no room for {nr_pages} pages") from None
        excess = max(0, self.nr_pages - nr_pages)
        removed_free = min(excess, len(ring) - used)
        unused = ring[used : len(ring) - removed_free] + [[page, 0] for page in fresh]
        oldest = ring[: excess - removed_free]
        kept = ring[excess - removed_free : used]
        overrun = sum(events for _, events in oldest)
        overrun_bytes = sum(self._commit(page, words) for page, _ in oldest)
        for page, _ in oldest + ring[len(ring) - removed_free :]:
            self._memory.free(page)
        array[:] = kept + unused
        self._memory.free(self._table)
        self._table, self._ring, self.nr_pages = table, array, nr_pages
        self._set(
            table=table,
            pages_bytes=nr_pages * _DESC_BYTES,
            head=0,
            index=(len(kept) - 1) % nr_pages * _DESC_BYTES,
            overrun=words.overrun + overrun,
            entries_bytes=words.entries_bytes - overrun_bytes,
        )


_READER_STATE = (
    "nr_pages",
    "readers",
    "_reader_page",
    "_table",
    "_ring",
    "_read",
    "_read_stamp",
    "_read_events",
    "_read_bytes",
    "_last_overrun",
    "_lost_events",
)


def _page_for_user(stamp: int, data: bytes, lost: int) -> bytes:
    """A page as trace_pipe_raw gives it: lost records flagged, the rest zero."""
    commit = len(data)
    if lost:
        if BUF_PAGE_SIZE - commit >= 8:
            data += struct.pack("<Q", lost)
            commit += RB_MISSED_STORED
        commit -= RB_MISSED_EVENTS  # the flag is an int there, so its sign spreads over the word
    return struct.pack("<QQ", stamp, commit & _U64) + data.ljust(BUF_PAGE_SIZE, b"\0")
