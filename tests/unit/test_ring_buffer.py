"""The reader's side of a CPU's buffer, filled by the model of the writer."""

from __future__ import annotations

import errno
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model_writer import ModelWriter, function_record, print_record

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine.clock import ClockWords
from emulated_kernel.machine.memory import Memory
from ftracefs.errors import TracefsError
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.ring_buffer.layout import (
    BUF_PAGE_SIZE,
    PAGE_SIZE,
    nr_pages_of,
    rb_calculate_event_length,
    ring_buffer_print_entry_header,
    ring_buffer_print_page_header,
)
from ftracefs.ring_buffer.pages import Pages, decode

IP, PARENT = 0xFFFFFFFF81000100, 0xFFFFFFFF81000200
PAGE_RECORDS = 145


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory()


class Rig:
    """Buffers of some CPUs and a writer for each."""

    def __init__(self, memory: Memory, size: int = 4096, nr_cpus: int = 1) -> None:
        self.buffer = RingBuffer(memory, [memory.alloc(4096) for _ in range(nr_cpus)], size)
        self.writers = [ModelWriter(memory, c.address, step=1) for c in self.buffer.cpus]
        self.per_cpu = self.buffer.cpus[0]

    def trace(self, first: int, stop: int, cpu: int = 0) -> None:
        for number in range(first, stop):
            self.writers[cpu].write(function_record(IP, number))

    def at(self, now: int, number: int, cpu: int = 0) -> None:
        self.writers[cpu].now = now - 1
        self.trace(number, number + 1, cpu)

    def entries(self) -> Entries:
        return merge(self.buffer.snapshot())

    def numbers(self) -> list[int]:
        return numbers(self.entries())


def numbers(entries: Entries) -> list[int]:
    return [int(n) for n in entries.u64(16)]


@pytest.fixture
def rig(memory: Memory) -> Rig:
    return Rig(memory)


def page_numbers(page: bytes) -> list[int]:
    """The numbers on a page as trace_pipe_raw gives it."""
    words = np.frombuffer(page, dtype=np.uint32).reshape(1, -1)
    commit = np.array([words[0, 2] & 0xFFFFFFF], dtype=np.int64)
    zero = np.zeros(1, dtype=np.int64)
    return numbers(merge(Pages(words, commit, zero, zero)))


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size_kb", "shown"), [(1, 7), (4, 7), (7, 7), (8, 11), (16, 19), (100, 103), (1408, 1410)]
)
def test_a_size_is_rounded_up_to_pages_of_4080_bytes(size_kb: int, shown: int) -> None:
    assert nr_pages_of(size_kb << 10) * BUF_PAGE_SIZE >> 10 == shown


@pytest.mark.parametrize(
    ("payload", "length"), [(0, 8), (1, 8), (24, 28), (112, 116), (113, 124), (1018, 1028)]
)
def test_the_length_of_a_record_counts_its_headers(payload: int, length: int) -> None:
    assert rb_calculate_event_length(payload) == length


def test_the_format_files_name_every_field() -> None:
    assert ring_buffer_print_page_header().splitlines()[-1] == (
        "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;"
    )
    assert "\ttime_extend : type == 30\n" in ring_buffer_print_entry_header()


def test_no_page_shares_a_soft_tlb_entry_with_its_cpus_own_pages(memory: Memory) -> None:
    percpu = memory.alloc(4096)
    buffer = RingBuffer(memory, [percpu], 4 << 20)
    per_cpu = buffer.cpus[0]
    ring = per_cpu._ring_pages(per_cpu._words())
    own = {percpu >> 12 & 0xFF, per_cpu.address >> 12 & 0xFF}
    assert len(own) == 2
    assert not own & {page >> 12 & 0xFF for page in ring}
    buffer.free()


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_the_words_of_all_cpus_lie_at_equal_distances_with_entries_of_their_own(
    memory: Memory, shift: int
) -> None:
    for _ in range(shift):  # wherever the heap stands
        memory.alloc(4096)
    percpu = [memory.alloc(4096) for _ in range(4)]
    memory.alloc(253 * 4096)
    buffer = RingBuffer(memory, percpu, 1 << 16)
    words = [cpu.address for cpu in buffer.cpus]
    assert words == [words[0] + cpu * CONSTANTS["RB_SIZE"] for cpu in range(4)]
    assert [memory.u64(buffer.table + 8 * cpu) for cpu in range(5)] == [*words, 0]
    assert all((a ^ b) >> 12 & 0xFF for a, b in zip(words, percpu, strict=True))
    assert buffer.table >> 12 == words[0] >> 12


def test_freeing_gives_everything_back(memory: Memory) -> None:
    percpu = memory.alloc(4096)
    RingBuffer(memory, [percpu], 1 << 20).free()
    before = set(memory._heap.used)
    buffer = RingBuffer(memory, [percpu], 1 << 20)
    buffer.resize(2 << 20)
    ModelWriter(memory, buffer.cpus[0].address).write(function_record(IP, 0))
    buffer.cpus[0].rb_get_reader_page()  # the writer now stands outside the ring
    buffer.free()
    assert set(memory._heap.used) == before


def test_a_buffer_larger_than_the_machine_is_enomem_and_takes_nothing() -> None:
    memory = Memory()
    rig = Rig(memory)
    rig.trace(0, 10)
    before = set(memory._heap.used)
    with pytest.raises(TracefsError) as caught:
        rig.buffer.resize(1 << 30)
    assert caught.value.errno == errno.ENOMEM
    assert set(memory._heap.used) == before
    assert rig.numbers() == list(range(10))


def test_when_one_cpu_finds_no_room_all_keep_their_sizes() -> None:
    memory = Memory()
    rig = Rig(memory, nr_cpus=2)
    with pytest.raises(TracefsError):
        rig.buffer.resize(100 << 20)
    assert [c.nr_pages for c in rig.buffer.cpus] == [2, 2]


# --- reading in place -----------------------------------------------------------------------------


def test_an_empty_buffer_has_nothing(rig: Rig) -> None:
    assert len(rig.entries()) == 0
    assert rig.buffer.is_empty()
    assert rig.per_cpu.rb_get_reader_page() is None
    assert rig.per_cpu.read_page() is None
    assert rig.per_cpu.oldest_event_ts() == 0


def test_a_snapshot_consumes_nothing(rig: Rig) -> None:
    rig.trace(0, 10)
    assert rig.numbers() == rig.numbers() == list(range(10))
    assert rig.per_cpu.stats().read_events == 0


def test_cpus_are_merged_by_time_and_the_lower_one_first_on_a_tie(memory: Memory) -> None:
    rig = Rig(memory, nr_cpus=3)
    for now, number, cpu in [
        (10, 0, 1),
        (20, 2, 1),
        (20, 1, 0),
        (30, 4, 0),
        (5, -1, 2),
        (25, 3, 2),
    ]:
        rig.at(now, number & 0xFF, cpu)
    assert rig.numbers() == [255, 0, 1, 2, 3, 4]
    assert rig.entries().cpu.tolist() == [2, 1, 0, 1, 2, 0]


def test_a_cpu_alone_can_be_read(memory: Memory) -> None:
    rig = Rig(memory, nr_cpus=2)
    rig.at(1, 0, 0)
    rig.at(2, 1, 1)
    assert numbers(merge(rig.buffer.snapshot(1))) == [1]


def test_a_clock_that_runs_backwards_does_not_reorder_a_cpu(memory: Memory) -> None:
    rig = Rig(memory, nr_cpus=2)
    rig.at(100, 0, 0)
    rig.trace(1, 146)
    rig.writers[0].now = 40
    rig.trace(146, 147)  # a new page, with its own stamp
    rig.at(60, 900, 1)
    found = rig.numbers()
    assert [n for n in found if n < 900] == list(range(147))
    assert found[0] == 900


# --- overwriting, losing, dropping ----------------------------------------------------------------


def test_the_oldest_page_gives_way_and_is_told_to_the_next_reader(rig: Rig) -> None:
    rig.trace(0, 400)
    assert rig.numbers()[0] == 2 * PAGE_RECORDS - PAGE_RECORDS
    unread = rig.per_cpu.rb_get_reader_page()
    assert unread is not None
    assert unread.lost == PAGE_RECORDS
    rig.per_cpu.consume(1, 28, 0)
    again = rig.per_cpu.rb_get_reader_page()
    assert again is not None
    assert again.lost == 0


def test_the_counts_after_an_overrun_are_linuxs(rig: Rig) -> None:
    rig.trace(0, 5003)
    stats = rig.per_cpu.stats()
    assert (stats.entries, stats.overrun, stats.bytes) == (218, 4785, 6124)


def test_without_overwriting_the_newest_are_dropped(rig: Rig) -> None:
    rig.buffer.set_overwrite(False)
    rig.trace(0, 5003)
    stats = rig.per_cpu.stats()
    assert (stats.entries, stats.dropped_events, stats.bytes) == (290, 4713, 8160)


def test_reading_a_page_makes_room_for_one(rig: Rig) -> None:
    rig.buffer.set_overwrite(False)
    rig.trace(0, 300)
    page = rig.per_cpu.read_page()
    assert page is not None
    rig.trace(300, 600)
    stats = rig.per_cpu.stats()
    assert (stats.entries, stats.read_events) == (290, PAGE_RECORDS)
    assert rig.numbers() == [*range(145, 290), *range(300, 445)]


def test_consuming_counts_down_bytes_and_entries_as_linux_does(rig: Rig) -> None:
    rig.trace(0, 5003)
    rig.per_cpu.rb_get_reader_page()
    rig.per_cpu.consume(2, 56, 0)
    stats = rig.per_cpu.stats()
    assert (stats.entries, stats.bytes, stats.read_events) == (216, 6124 - 56, 2)
    rig.per_cpu.consume(143, 4060, 0)  # the padding behind it goes with the last record
    stats = rig.per_cpu.stats()
    assert (stats.entries, stats.bytes) == (73, 73 * 28)


def test_everything_read_leaves_nothing_and_the_oldest_time_stays(rig: Rig) -> None:
    rig.trace(0, 200)
    while (unread := rig.per_cpu.rb_get_reader_page()) is not None:
        records = merge(rig.buffer.copy([(0, unread)]))
        rig.per_cpu.consume(len(records), int(records.end[-1]), int(records.ts[-1]))
    stats = rig.per_cpu.stats()
    assert (stats.entries, stats.bytes, stats.read_events) == (0, 0, 200)
    assert rig.per_cpu.oldest_event_ts() == 147  # of the page the writer is on: one reading more


def test_the_oldest_time_is_that_of_the_ring_while_the_reader_is_behind(rig: Rig) -> None:
    rig.trace(0, 200)
    assert rig.per_cpu.oldest_event_ts() == 1
    rig.per_cpu.rb_get_reader_page()
    assert rig.per_cpu.oldest_event_ts() == 147


def test_the_writer_goes_on_on_the_page_the_reader_took(rig: Rig) -> None:
    rig.trace(0, 10)
    rig.per_cpu.rb_get_reader_page()
    rig.per_cpu.consume(5, 140, 5)
    rig.trace(10, 435)
    assert rig.per_cpu.overrun() == 0
    assert rig.numbers() == list(range(5, 435))
    rig.trace(435, 436)
    assert rig.per_cpu.overrun() == PAGE_RECORDS
    assert rig.numbers() == [*range(5, 145), *range(290, 436)]


# --- pages handed out whole -----------------------------------------------------------------------


def test_a_full_page_is_handed_out_without_its_padding(rig: Rig) -> None:
    rig.trace(0, 200)
    page = rig.per_cpu.read_page()
    assert page is not None
    assert len(page) == PAGE_SIZE
    stamp, commit = struct.unpack_from("<QQ", page)
    assert (stamp, commit) == (1, PAGE_RECORDS * 28)
    assert page[16 + commit :] == bytes(20)
    assert page_numbers(page) == list(range(145))


def test_lost_records_are_flagged_and_counted_behind_the_data(rig: Rig) -> None:
    rig.trace(0, 600)
    page = rig.per_cpu.read_page()
    assert page is not None
    commit = PAGE_RECORDS * 28
    assert struct.unpack_from("<Q", page, 8)[0] == 0xFFFFFFFF_C0000000 + commit
    assert struct.unpack_from("<Q", page, 16 + commit)[0] == 3 * PAGE_RECORDS
    assert page_numbers(page) == list(range(435, 580))
    after = rig.per_cpu.read_page()
    assert after is not None
    assert struct.unpack_from("<Q", after, 8)[0] < PAGE_SIZE


def test_a_small_read_copies_what_fits_and_a_later_one_the_rest(rig: Rig) -> None:
    rig.trace(0, 146)
    first = rig.per_cpu.read_page(84)
    assert first is not None
    assert page_numbers(first) == [0, 1, 2]
    rest = rig.per_cpu.read_page()
    assert rest is not None
    stamp, commit = struct.unpack_from("<QQ", rest)
    assert (stamp, commit) == (3, BUF_PAGE_SIZE - 84)  # padding and all, as Linux copies it
    assert page_numbers(rest) == list(range(3, 145))
    assert rig.per_cpu.stats().bytes == 28


def test_a_read_too_small_for_a_record_gives_nothing(rig: Rig) -> None:
    rig.trace(0, 1)
    assert rig.per_cpu.read_page(27) is None
    assert rig.per_cpu.read_page(28) is not None


def test_a_page_being_written_can_be_had_unless_a_full_one_is_wanted(rig: Rig) -> None:
    rig.trace(0, 10)
    assert rig.per_cpu.read_page(full=True) is None
    page = rig.per_cpu.read_page()
    assert page is not None
    assert page_numbers(page) == list(range(10))
    rig.trace(10, 12)
    page = rig.per_cpu.read_page()
    assert page is not None
    assert page_numbers(page) == [10, 11]


# --- reset, resize --------------------------------------------------------------------------------


def test_a_reset_forgets_records_and_counts(rig: Rig) -> None:
    rig.trace(0, 1000)
    rig.per_cpu.rb_get_reader_page()
    rig.buffer.reset()
    stats = rig.per_cpu.stats()
    assert (stats.entries, stats.overrun, stats.bytes, stats.read_events) == (0, 0, 0, 0)
    assert rig.numbers() == []
    rig.trace(0, 400)
    assert rig.numbers() == list(range(145, 400))
    assert rig.per_cpu.overrun() == 145


def test_the_first_record_after_a_reset_stamps_its_page(rig: Rig) -> None:
    rig.trace(0, 3)
    rig.buffer.reset()
    rig.at(1 << 50, 7)
    assert rig.entries().ts.tolist() == [1 << 50]
    assert rig.per_cpu.oldest_event_ts() == 1 << 50
    assert rig.per_cpu.stats().bytes == 28


def test_growing_keeps_all_and_shrinking_the_newest_as_linux_counts(memory: Memory) -> None:
    rig = Rig(memory, size=16 << 10)
    rig.trace(0, 503)
    rig.buffer.resize(40 << 10)
    assert rig.per_cpu.stats().bytes == 14144
    assert rig.numbers() == list(range(503))
    rig.buffer.resize(8 << 10)
    stats = rig.per_cpu.stats()
    assert (stats.entries, stats.overrun, stats.bytes) == (358, 145, 10064)
    rig.buffer.resize(4 << 10)
    stats = rig.per_cpu.stats()
    assert (stats.entries, stats.overrun, stats.bytes) == (213, 290, 5984)
    assert rig.numbers() == list(range(290, 503))
    rig.trace(503, 900)
    assert rig.numbers()[-1] == 899


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("trace"), st.integers(1, 400)),
            st.tuples(st.just("resize"), st.integers(2, 7)),
            st.tuples(st.just("take"), st.just(0)),
            st.tuples(st.just("read"), st.integers(28, 5000)),
            st.tuples(st.just("overwrite"), st.integers(0, 1)),
        ),
        max_size=25,
    )
)
def test_no_record_is_lost_uncounted(steps: list[tuple[str, int]]) -> None:
    rig = Rig(MEMORY)
    written, read = 0, 0
    last = -1
    for what, amount in steps:
        if what == "trace":
            rig.trace(written, written + amount)
            written += amount
        elif what == "resize":
            rig.buffer.resize(amount * BUF_PAGE_SIZE)
        elif what == "take":
            rig.per_cpu.rb_get_reader_page()
        elif what == "read" and (page := rig.per_cpu.read_page(amount)):
            found = page_numbers(page)
            assert found[0] > last
            last = found[-1]
            read += len(found)
        elif what == "overwrite":
            rig.buffer.set_overwrite(bool(amount))
        left = rig.numbers()
        stats = rig.per_cpu.stats()
        assert left == sorted(set(left))
        assert not left or left[0] > last
        assert (stats.entries, stats.read_events) == (len(left), read)
        assert stats.entries + stats.read_events + stats.overrun + stats.dropped_events == written
    rig.buffer.free()


MEMORY = Memory()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("trace"), st.integers(1, 400)),
            st.tuples(st.just("mark"), st.integers(1, 900)),
            st.tuples(st.just("pause"), st.integers(1, 200)),
            st.tuples(st.just("part"), st.integers(28, 4000)),
            st.tuples(st.just("pages"), st.integers(1, 9)),
        ),
        max_size=25,
    )
)
def test_many_pages_at_once_are_the_pages_read_one_by_one(steps: list[tuple[str, int]]) -> None:
    rigs = Rig(MEMORY, size=24 << 10), Rig(MEMORY, size=24 << 10)
    written = 0
    for what, amount in steps:
        for rig in rigs:
            if what == "trace":
                rig.trace(written, written + amount)
            elif what == "mark":
                rig.writers[0].write(print_record(b"x" * amount, ip=IP))
            elif what == "pause":
                rig.writers[0].now += amount << 24
            elif what == "part":
                rig.per_cpu.read_page(amount)
        written += amount
        if what == "pages":
            singly = [rigs[0].per_cpu.read_page() or b"" for _ in range(amount)]
            room = np.full((amount, PAGE_SIZE // 4), 0xDEADBEEF, dtype=np.uint32)
            count = rigs[1].per_cpu.read_pages(room)
            assert room[:count].tobytes() == b"".join(singly)
        assert rigs[0].per_cpu.stats() == rigs[1].per_cpu.stats()
        assert rigs[0].numbers() == rigs[1].numbers()
    for rig in rigs:
        rig.buffer.free()


# --- switches -------------------------------------------------------------------------------------


def guard(rig: Rig, memory: Memory) -> int:
    return memory.u32(rig.per_cpu.address + CONSTANTS["RB_GUARD"])


def test_every_reason_not_to_record_is_a_bit_of_its_own(rig: Rig, memory: Memory) -> None:
    rig.buffer.record_off()
    rig.buffer.record_disable()
    rig.buffer.record_disable()
    rig.per_cpu.record_disable()
    assert guard(rig, memory) == 7
    rig.buffer.record_on()
    rig.buffer.record_enable()
    assert guard(rig, memory) == 6
    assert not rig.buffer.record_is_on()
    assert rig.buffer.record_is_set_on()
    rig.buffer.record_enable()
    rig.per_cpu.record_enable()
    assert guard(rig, memory) == 0
    assert rig.buffer.record_is_on()


def test_a_new_clock_empties_the_buffer(rig: Rig, memory: Memory) -> None:
    rig.trace(0, 5)
    rig.buffer.set_clock(ClockWords(1, 2, 3, -1))
    words = struct.unpack_from("<4Q", memory.read(rig.per_cpu.address + 40, 32))
    assert words == (1, 2, 3, (1 << 64) - 1)
    assert rig.buffer.is_empty()


def test_who_waits_is_woken_once_by_data_on_their_cpu(memory: Memory) -> None:
    rig = Rig(memory, nr_cpus=2)
    woken: list[str] = []
    rig.buffer.wait(lambda: woken.append("any"))
    rig.buffer.wait(lambda: woken.append("one"), cpu=1)
    rig.buffer.rb_wake_up_waiters()
    assert woken == []
    rig.trace(0, 1, cpu=0)
    rig.buffer.rb_wake_up_waiters()
    rig.buffer.rb_wake_up_waiters()
    assert woken == ["any"]
    rig.trace(0, 1, cpu=1)
    rig.buffer.rb_wake_up_waiters()
    assert woken == ["any", "one"]


@pytest.mark.parametrize(("percent", "pages"), [(1, 1), (25, 2), (50, 3), (75, 4), (100, 5)])
def test_who_polls_for_a_part_of_five_pages_waits_until_the_writer_is_on(
    memory: Memory, percent: int, pages: int
) -> None:
    rig = Rig(memory, size=5 * BUF_PAGE_SIZE)
    rig.trace(0, 1)
    for page in range(1, 6):
        is_ready, waiter = rig.buffer.ring_buffer_poll_wait(None, 0, percent)
        assert (is_ready, waiter) == (page >= pages, None)
        assert rig.buffer.ring_buffer_poll_wait(None, None, percent)[0]  # of all CPUs: anything
        rig.trace(0, PAGE_RECORDS)


def test_who_polls_for_a_part_of_the_buffer_is_not_woken_before(memory: Memory) -> None:
    rig = Rig(memory, size=8 * BUF_PAGE_SIZE)
    woken: list[int] = []
    assert not rig.buffer.ring_buffer_poll_wait(lambda: woken.append(1), 0, 50)[0]
    rig.trace(0, 3 * PAGE_RECORDS)
    rig.buffer.rb_wake_up_waiters()
    assert woken == []
    rig.trace(0, 1)
    rig.buffer.rb_wake_up_waiters()
    assert woken == [1]


def test_a_cancelled_waiter_is_not_woken_and_all_others_can_be(rig: Rig) -> None:
    woken: list[int] = []
    waiter = rig.buffer.wait(lambda: woken.append(1))
    rig.buffer.wait(lambda: woken.append(2))
    rig.buffer.cancel(waiter)
    rig.buffer.wake_waiters()
    assert woken == [2]


# --- decoding -------------------------------------------------------------------------------------


def walk(page: bytes, commit: int) -> list[tuple[int, bytes]]:
    """The records of a page, one after the other: (time, payload)."""
    now = int.from_bytes(page[:8], "little")
    found, at = [], 16
    while at < 16 + commit:
        head, following = struct.unpack_from("<II", page + bytes(8), at)
        kind, delta = head & 31, head >> 5
        if kind == 30:
            now, at = now + (following << 27) + delta, at + 8
        elif kind == 31:
            now, at = now >> 59 << 59 | (following << 27) + delta, at + 8
        elif kind == 29:
            at += 4 + following
        else:
            now += delta
            start, length = (at + 8, following - 4) if kind == 0 else (at + 4, kind * 4)
            found.append((now, page[start : start + length]))
            at = start + length
    return found


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 24, 24, 24, 12, 112, 113, 1000, 4072]),
            st.sampled_from([0, 1, 5, 1 << 26, 1 << 27, 1 << 40]),
        ),
        max_size=400,
    )
)
def test_any_mixture_of_records_decodes_to_what_a_walk_finds(what: list[tuple[int, int]]) -> None:
    rig = Rig(MEMORY, size=3 * BUF_PAGE_SIZE)
    for number, (length, pause) in enumerate(what):
        rig.writers[0].now += pause
        rig.writers[0].write(number.to_bytes(4, "little").ljust(length, b"\xaa")[:length])
    pages = rig.buffer.snapshot()
    expected = [
        record
        for page, commit in zip(pages.words, pages.commit.tolist(), strict=True)
        for record in walk(page.tobytes(), commit)
    ]
    entries = merge(pages)
    got = [(int(t), entries.payload(i)) for i, t in enumerate(entries.ts.tolist())]
    assert got == expected
    rig.buffer.free()


def test_an_absolute_time_stamp_sets_the_time_of_what_follows() -> None:
    top = 3 << 59
    data = struct.pack("<II", 10 << 5 | 1, 7)
    data += struct.pack("<III", 5 << 5 | 31, 2, 1 << 5 | 1) + struct.pack("<I", 8)
    data += struct.pack("<II", 2 << 5 | 1, 9)
    page = struct.pack("<QQ", top + 100, len(data)) + data.ljust(BUF_PAGE_SIZE, b"\0")
    words = np.frombuffer(page * 2, dtype=np.uint32).reshape(2, -1)
    number = np.array([len(data)] * 2, dtype=np.int64)
    records = decode(Pages(words, number, number * 0, number * 0))
    absolute = top + (2 << 27) + 5
    assert records.ts.tolist() == [top + 110, absolute + 1, absolute + 3] * 2


def test_no_pages_are_no_records(rig: Rig) -> None:
    assert len(merge(rig.buffer.snapshot())) == 0


def test_what_is_consumed_is_left_out(rig: Rig) -> None:
    rig.trace(0, 10)
    rig.writers[0].write(print_record(b"x" * 200))
    rig.per_cpu.rb_get_reader_page()
    rig.per_cpu.consume(3, 84, 3)
    entries = rig.entries()
    assert entries.type.tolist() == [1] * 7 + [5]
    assert numbers(entries[0:7]) == list(range(3, 10))
