"""Reads of trace_pipe for more than a page: they take and give what small ones do."""

from __future__ import annotations

import itertools
import random

import pytest
from support.model_writer import print_record
from support.output_rig import Rig, read_all

from emulated_kernel.machine.memory import Memory
from ftracefs.ring_buffer.per_cpu import Stats
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.trace_pipe import TracePipe


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory()


def busy_rig(memory: Memory) -> Rig:
    """Calls, marks of all lengths and pauses on three CPUs, one of which has lost records."""
    rig = Rig(memory, nr_cpus=3, size=60 << 10)
    chance = random.Random(3)
    for cpu, count in enumerate((3000, 1200, 400)):
        now = 0
        for number in range(count):
            now += chance.choice([0, 900, 70_000, 1 << 28 if number % 97 == 0 else 1])
            if number % 41 == 0:
                rig.write(now, print_record(b"y" * chance.choice([3, 200, 2600, 4040])), cpu)
            else:
                rig.read_calls(now, pid=chance.choice([105, 232, 7]), cpu=cpu)
    return rig


def stats_of(rig: Rig) -> list[Stats]:
    return [cpu_buffer.stats() for cpu_buffer in rig.buffer.cpus]


@pytest.mark.parametrize("size", [4097, 9000, 1 << 16, 1 << 17, 1 << 20])
@pytest.mark.parametrize("flags", [TraceIter.IRQ_INFO, TraceIter.BIN, TraceIter.HEX])
def test_a_read_for_more_takes_what_small_reads_take(
    memory: Memory, size: int, flags: TraceIter
) -> None:
    small, large = busy_rig(memory), busy_rig(memory)
    context = small.options(on=flags)
    ahead, behind = TracePipe(large.buffer), TracePipe(small.buffer)
    while not ahead.is_empty():
        text = ahead.read(size, context)
        assert 0 < len(text) <= size
        singly = b""
        while len(singly) < len(text):
            singly += behind.read(len(text) - len(singly), context)
        assert singly == text
        assert not behind.has_leftover
        assert stats_of(small) == stats_of(large)
    assert behind.is_empty()
    for rig in (small, large):
        rig.buffer.free()


def test_small_and_large_reads_of_one_pipe_follow_each_other(memory: Memory) -> None:
    whole, mixed = busy_rig(memory), busy_rig(memory)
    expected = read_all(TracePipe(whole.buffer), whole.context)
    pipe = TracePipe(mixed.buffer)
    got = b""
    for size in itertools.cycle((100, 5000, 4096, 40_000)):
        part = pipe.read(size, mixed.context)
        got += part
        if not part:
            break
    assert got == expected
    for rig in (whole, mixed):
        rig.buffer.free()


def test_a_large_read_of_lines_of_other_lengths_than_before_is_as_full(memory: Memory) -> None:
    rig = Rig(memory, size=1 << 20)
    for now in range(2000):
        rig.write(now, print_record(b"z" * 300))
    rig.read_calls(*range(3000, 9000))
    pipe = TracePipe(rig.buffer)
    sizes = [len(pipe.read(60_000, rig.context)) for _ in range(10)]
    assert min(sizes) > 60_000 - 4096
    rig.buffer.free()
