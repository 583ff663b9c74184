"""The guest code that writes records, against the model and through the reader."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.model_writer import ModelWriter, function_record, print_record

import ftracefs.guest
from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, TEXT_BASE
from emulated_kernel.assembler import Assembly, assemble, read_files
from emulated_kernel.image import KernelImage
from emulated_kernel.machine import ClockWords, Machine
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.ring_buffer.layout import PAGE_SIZE

GUEST = Path(ftracefs.guest.__file__).parent
SOURCES = [
    "context.inc",
    "function.inc",
    "ring_buffer.inc",
    "ring_buffer.S",
    "trace_functions.S",
    "trace_marker.S",
]
DRIVER = """
.text
FUNC_NOTRACE host_return
    hlt
host_return_halt:
    jmp host_return
ENDFUNC host_return
# long trace_loop(op, ip, parent_ip, count, clock_step): `count` records, parent_ip going up by one;
# returns 0 when every register that a callback has to keep was kept.
FUNC_NOTRACE trace_loop
    push rbx
    push rbp
    push r12
    push r13
    push r14
    mov r12, rdi
    mov rbx, rcx
    mov rdi, rsi
    mov rsi, rdx
    mov rbp, 0x1234
1:  mov rdx, r12
    mov rcx, 0x77
    mov r13, rdi
    mov r14, rsi
    call function_trace_call
    cmp rdx, r12
    jne .Lbad
    cmp rcx, 0x77
    jne .Lbad
    cmp rdi, r13
    jne .Lbad
    cmp rsi, r14
    jne .Lbad
    cmp rbp, 0x1234
    jne .Lbad
    inc rsi
    dec rbx
    jne 1b
    xor eax, eax
2:  pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
.Lbad:
    mov eax, 1
    jmp 2b
ENDFUNC trace_loop
"""
IP, PARENT = 0xFFFFFFFF81000100, 0xFFFFFFFF81000200
CTX = 42 << 32 | 0x02 << 24 | 0x05 << 16
BITS = 0x0205
PAGE_RECORDS = 145


@pytest.fixture(scope="module")
def code() -> Assembly:
    sources = {"driver.S": DRIVER, **read_files([GUEST / name for name in SOURCES])}
    ordered = {name: sources[name] for name in sorted(sources, key=lambda n: not n.endswith("inc"))}
    return assemble(ordered, {".text": TEXT_BASE, ".data": DATA_BASE}, CONSTANTS)


@pytest.fixture(scope="module")
def machine(code: Assembly) -> Iterator[Machine]:
    image = KernelImage("test", code.segments, code.symbols, code.mcount, code.labels, {})
    made = Machine(image, clock="virtual")
    for vcpu in made.cpus:
        vcpu.set_word("TRACE_CTX", CTX)
    yield made
    made.close()


class Rig:
    """A buffer of two pages on each vCPU, with an op that leads to it and a clock of its own."""

    def __init__(self, machine: Machine, size: int = 4096) -> None:
        self.machine = machine
        self.memory = machine.memory
        self.buffer = RingBuffer(self.memory, [vcpu.percpu for vcpu in machine.cpus], size)
        self.op = machine.alloc(CONSTANTS["OP_SIZE"])
        self.memory.set_u64(self.op + CONSTANTS["OP_PRIVATE"], self.buffer.table)
        self.clock = machine.alloc(64)
        self.set_clock(step=1000)
        self.text = machine.alloc(4096)

    def set_clock(self, step: int, now: int = 0) -> None:
        self.memory.set_u64(self.clock, now)
        self.buffer.set_clock(ClockWords(0, step, self.clock, 0))

    def pass_time(self, ns: int) -> None:
        self.memory.set_u64(self.clock, self.memory.u64(self.clock) + ns)

    def trace(self, count: int, cpu: int = 0, first: int = 0) -> None:
        result = self.machine.call("trace_loop", self.op, IP, PARENT + first, count, cpu=cpu)
        assert result == 0, "a callback did not keep a register"

    def mark(self, text: bytes, cpu: int = 0) -> int:
        self.memory.write(self.text, text)
        table = self.buffer.table
        written = self.machine.call("tracing_mark_write", table, self.text, len(text), IP, cpu=cpu)
        return written - (1 << 64) if written >> 63 else written

    def entries(self) -> Entries:
        return merge(self.buffer.snapshot())

    def numbers(self) -> list[int]:
        return [int(n) - PARENT for n in self.entries().u64(16)]


@pytest.fixture
def rig(machine: Machine) -> Iterator[Rig]:
    made = Rig(machine)
    yield made
    made.buffer.free()


def test_a_function_record_is_written_field_by_field(rig: Rig) -> None:
    rig.trace(1)
    assert rig.entries().payload(0) == struct.pack("<HBBiQQ", 1, 0x05, 0x02, 42, IP, PARENT)


def test_records_bear_the_times_of_their_clock(rig: Rig) -> None:
    rig.trace(3)
    assert rig.entries().ts.tolist() == [1000, 2000, 3000]


def test_every_clock_word_counts(rig: Rig) -> None:
    rig.memory.set_u64(rig.clock, 5)
    rig.buffer.set_clock(ClockWords(0, 7, rig.clock, 100))
    rig.trace(2)
    assert rig.entries().ts.tolist() == [112, 119]


def test_the_scaled_time_stamp_counter_goes_up(rig: Rig) -> None:
    rig.memory.set_u64(rig.clock, 0)
    rig.buffer.set_clock(ClockWords(1 << 31, 0, rig.clock, 0))
    rig.trace(200)
    rig.buffer.set_clock(ClockWords(1 << 31, 0, rig.clock, 0))
    rig.trace(200)
    times = rig.entries().ts
    assert (times[1:] >= times[:-1]).all()
    assert times[-1] > times[0]
    assert rig.memory.u64(rig.clock) == 0


def test_two_cpus_share_one_virtual_clock(rig: Rig) -> None:
    for cpu in (0, 1, 0, 1):
        rig.trace(1, cpu=cpu)
    entries = rig.entries()
    assert entries.cpu.tolist() == [0, 1, 0, 1]
    assert entries.ts.tolist() == [1000, 2000, 3000, 4000]


def test_a_page_takes_145_function_records(rig: Rig) -> None:
    rig.trace(PAGE_RECORDS)
    assert rig.buffer.cpus[0].nr_dirty_pages() == 0
    rig.trace(1)
    assert rig.buffer.cpus[0].nr_dirty_pages() == 1


def test_the_clock_is_read_once_more_when_a_page_is_left(rig: Rig) -> None:
    rig.set_clock(step=1)
    rig.trace(PAGE_RECORDS + 1)
    assert rig.entries().ts.tolist()[-2:] == [PAGE_RECORDS, PAGE_RECORDS + 2]


def test_the_counts_of_an_overwritten_buffer_are_linuxs(rig: Rig) -> None:
    rig.trace(5003)
    stats = rig.buffer.cpus[0].stats()
    assert (stats.entries, stats.overrun, stats.bytes) == (218, 4785, 6124)
    assert (stats.dropped_events, stats.read_events, stats.commit_overrun) == (0, 0, 0)
    assert rig.numbers() == list(range(4785, 5003))


def test_the_counts_of_a_full_buffer_are_linuxs(rig: Rig) -> None:
    rig.buffer.set_overwrite(False)
    rig.trace(5003)
    stats = rig.buffer.cpus[0].stats()
    assert (stats.entries, stats.overrun, stats.bytes) == (290, 0, 8160)
    assert stats.dropped_events == 4713
    assert rig.numbers() == list(range(290))


def test_a_marker_that_finds_no_room_fails(rig: Rig) -> None:
    rig.buffer.set_overwrite(False)
    rig.trace(400)
    assert rig.mark(b"late") == -9
    assert rig.buffer.cpus[0].stats().dropped_events == 111


@pytest.mark.parametrize("bit", ["RB_GUARD_OFF", "RB_GUARD_DISABLED", "RB_GUARD_CPU_DISABLED"])
def test_a_guard_bit_stops_the_function_tracer(rig: Rig, bit: str) -> None:
    rig.buffer.cpus[0].set_guard(CONSTANTS[bit], True)
    rig.trace(10)
    assert rig.buffer.entries() == 0
    rig.buffer.cpus[0].set_guard(CONSTANTS[bit], False)
    rig.trace(10)
    assert rig.buffer.entries() == 10


def test_a_marker_finds_a_buffer_that_is_off_not_writable(rig: Rig) -> None:
    assert rig.mark(b"hello") == 5
    rig.buffer.record_off()
    assert rig.mark(b"hello") == -9
    assert rig.buffer.entries() == 1


def test_a_long_pause_is_kept_in_a_time_extend(rig: Rig) -> None:
    pauses = [0, (1 << 27) - 1001, (1 << 27) - 1000, 1 << 40, (1 << 59) - 1001]
    times, now = [], 0
    for pause in pauses:
        rig.pass_time(pause)
        rig.trace(1)
        now += pause + 1000
        times.append(now)
    assert rig.entries().ts.tolist() == times
    assert rig.buffer.cpus[0].stats().bytes == 5 * 28 + 3 * 8


def test_an_extend_without_room_moves_to_the_next_page(rig: Rig) -> None:
    rig.trace(PAGE_RECORDS - 1)
    rig.mark(b"x" * 9)  # 40 bytes: leaves 8, enough for the extend alone
    rig.pass_time(1 << 30)
    rig.trace(1)
    entries = rig.entries()
    assert len(entries) == PAGE_RECORDS + 1
    assert int(entries.ts[-1]) - int(entries.ts[-2]) == (1 << 30) + 2000
    assert rig.buffer.cpus[0].nr_dirty_pages() == 1


@pytest.mark.parametrize("length", [0, 1, 8, 9, 10, 93, 94, 95, 96, 97, 500, 1023, 1024])
def test_a_marker_of_any_length_comes_back(rig: Rig, length: int) -> None:
    text = bytes(0x20 + i % 0x5F for i in range(length))
    assert rig.mark(text) == length
    payload = rig.entries().payload(0)
    expected = print_record(text, ip=IP, pid=42, bits=BITS)
    assert payload == expected.ljust(-(-len(expected) // 4) * 4, b"\0")


def test_a_marker_with_a_newline_gets_no_second_one(rig: Rig) -> None:
    rig.mark(b"one line\n")
    assert rig.entries().payload(0)[16:].rstrip(b"\0") == b"one line\n"


def test_a_marker_is_cut_at_1024_bytes(rig: Rig) -> None:
    assert rig.mark(b"a" * 3000) == 1024
    assert rig.entries().payload(0)[16:].rstrip(b"\0") == b"a" * 1024 + b"\n"


def test_a_raw_marker_keeps_its_bytes_and_its_length(rig: Rig) -> None:
    rig.memory.write(rig.text, b"\x01\0\0\0abcdef")
    table = rig.buffer.table
    assert rig.machine.call("tracing_mark_raw_write", table, rig.text, 10) == 10
    payload = rig.entries().payload(0)
    assert payload == struct.pack("<HHi", 18, BITS, 42) + b"\x01\0\0\0abcdef" + bytes(10)


def test_the_writer_goes_on_on_a_page_the_reader_has_taken(rig: Rig) -> None:
    rig.trace(10)
    per_cpu = rig.buffer.cpus[0]
    unread = per_cpu.rb_get_reader_page()
    assert unread is not None
    assert unread.commit == 280
    rig.trace(3 * PAGE_RECORDS - 10, first=10)  # the reader's page and both of the ring
    assert (per_cpu.entries(), per_cpu.overrun()) == (435, 0)
    assert rig.numbers() == list(range(435))
    rig.trace(1, first=435)
    assert (per_cpu.entries(), per_cpu.overrun()) == (291, 145)
    assert rig.numbers() == [*range(145), *range(290, 436)]


def random_walk(rig: Rig, seed: int) -> list[tuple[str, int]]:
    """What to do, for the guest code and the model alike."""
    chance = random.Random(seed)
    steps: list[tuple[str, int]] = []
    kinds = ["trace", "trace", "mark", "pause", "take", "consume", "pages", "mode"]
    for _ in range(120):
        what = chance.choice(kinds)
        steps.append((what, chance.randrange(1, 200)))
    return steps


@pytest.mark.parametrize("seed", range(6))
def test_guest_code_and_model_write_the_same(machine: Machine, seed: int) -> None:
    guest, model = Rig(machine), Rig(machine)
    for rig in (guest, model):
        rig.memory.set_u64(rig.clock, 0)
    target = model.buffer.cpus[0]
    writer = ModelWriter(model.memory, target.address, now=0, step=1000)
    number = 0
    for what, amount in random_walk(guest, seed):
        if what == "trace":
            guest.trace(amount, first=number)
            for i in range(amount):
                payload = function_record(IP, PARENT + number + i, pid=42, bits=BITS)
                writer.write(payload)
            number += amount
        elif what == "mark":
            text = bytes([33 + amount % 90]) * (amount * 5)
            guest.mark(text)
            writer.write(print_record(text, ip=IP, pid=42, bits=BITS))
        elif what == "pause":
            guest.pass_time(amount << 24)
            writer.now += amount << 24
        elif what == "take":
            for rig in (guest, model):
                rig.buffer.cpus[0].rb_get_reader_page()
        elif what == "consume":
            assert guest.buffer.cpus[0].read_page(amount * 20) == target.read_page(amount * 20)
        elif what == "pages":
            rooms = np.zeros((2, amount % 5, PAGE_SIZE // 4), dtype=np.uint32)
            for rig, room in zip((guest, model), rooms, strict=True):
                rig.buffer.cpus[0].read_pages(room)
            assert np.array_equal(*rooms)
        else:
            for rig in (guest, model):
                rig.buffer.set_overwrite(bool(amount & 1))
        assert guest.buffer.cpus[0].stats() == target.stats()
        assert target.entries() == len(guest.entries())
        assert guest.memory.u64(guest.clock) == writer.now
    mine, theirs = guest.entries(), model.entries()
    assert np.array_equal(mine.ts, theirs.ts)
    assert [mine.payload(i) for i in range(len(mine))] == [
        theirs.payload(i) for i in range(len(theirs))
    ]
    for rig in (guest, model):
        rig.buffer.free()
