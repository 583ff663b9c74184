"""Records merged run by run are those merged all at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model_writer import function_record, print_record
from support.output_rig import Rig

from emulated_kernel.machine.memory import Memory
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.ring_buffer.merging import Merging

MEMORY = Memory()


def described(entries: Entries) -> list[tuple[int, int, bytes]]:
    payloads = [entries.payload(index) for index in range(len(entries))]
    return list(zip(entries.ts.tolist(), entries.cpu.tolist(), payloads, strict=True))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),  # the CPU
            st.integers(1, 400),  # how many records, or bytes of a mark
            st.sampled_from([0, 1, 1000, 1 << 20]),  # their distance
            st.sampled_from(["call", "call", "mark", "read"]),
        ),
        max_size=30,
    ),
    st.integers(1, 9),
    st.integers(0, 6),
)
def test_run_by_run_or_all_at_once(
    steps: list[tuple[int, int, int, str]], nr_pages: int, runs: int
) -> None:
    rig = Rig(MEMORY, nr_cpus=3, size=24 << 10)
    number = 0
    for cpu, amount, distance, what in steps:
        if what == "read":
            rig.buffer.cpus[cpu].read_page(amount * 10)
        for _ in range(amount if what == "call" else 1):
            number += 1
            payload = function_record(number, number)
            if what == "mark":
                payload = print_record(b"m" * (amount * 10), ip=number)
            rig.write(rig.writers[cpu].now + distance, payload, cpu)
    pages = rig.buffer.snapshot()
    expected = described(merge(pages))
    merging = Merging(pages)
    got: list[tuple[int, int, bytes]] = []
    for _ in range(runs):
        run = merging.run(nr_pages)
        assert len(run) or len(got) == len(expected)
        got += described(run)
        merging.advance(run)
    assert got == expected[: len(got)]
    assert described(merging.rest()) == expected[len(got) :]
    while len(run := merging.run(nr_pages)):
        got += described(run)
        merging.advance(run)
    assert got == expected
    assert not len(merging.rest())
    rig.buffer.free()


def test_what_is_behind_padding_alone_is_not_forgotten() -> None:
    rig = Rig(MEMORY, nr_cpus=2, size=24 << 10)
    rig.read_calls(*range(0, 145_000, 1000))
    assert rig.buffer.cpus[0].read_page() is not None
    rig.read_calls(*range(145_000, 900_000, 1000))  # the page read is left, with padding
    rig.read_calls(*range(145_500, 900_500, 1000), cpu=1)
    merging = Merging(rig.buffer.snapshot())
    ts = []
    while len(run := merging.run(1)):
        ts += run.ts.tolist()
        merging.advance(run)
    assert ts == sorted(ts)
    assert len(ts) == 1510
    rig.buffer.free()


@pytest.mark.parametrize("nr_pages", [1, 4, 48])
def test_a_run_is_of_about_as_many_pages_as_asked(nr_pages: int) -> None:
    rig = Rig(MEMORY, nr_cpus=2, size=1 << 20)
    rig.read_calls(*range(0, 30_000_000, 1000))
    rig.read_calls(*range(0, 30_000_000, 100_000), cpu=1)
    merging = Merging(rig.buffer.snapshot())
    run = merging.run(nr_pages)
    pages = len(np.unique(run.at // 1024))
    assert 1 <= pages <= nr_pages + 2
    rig.buffer.free()
