"""The allocator behind the machine's memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulated_kernel.machine.heap import Heap

START, SIZE = 0x1000, 0x10000


def test_parts_are_given_lowest_first() -> None:
    heap = Heap(START, SIZE)
    first, second = heap.alloc(100, 16), heap.alloc(100, 16)
    assert (first, second) == (START, START + 112)
    heap.free(first)
    assert heap.alloc(50, 16) == START


def test_what_was_given_in_pages_can_be_given_in_one() -> None:
    heap = Heap(START, SIZE)
    pages = [heap.alloc(0x1000, 0x1000) for _ in range(SIZE // 0x1000)]
    with pytest.raises(MemoryError):
        heap.alloc(1, 1)
    for page in pages[::2] + pages[1::2]:
        heap.free(page)
    assert heap.alloc(SIZE, 1) == START


@given(st.lists(st.tuples(st.integers(1, 5000), st.sampled_from([1, 8, 64, 4096]), st.booleans())))
def test_parts_are_aligned_and_never_overlap(wishes: list[tuple[int, int, bool]]) -> None:
    heap = Heap(START, SIZE)
    held: dict[int, int] = {}
    for size, align, free_one in wishes:
        if free_one and held:
            oldest = next(iter(held))
            heap.free(oldest)
            del held[oldest]
        try:
            at = heap.alloc(size, align)
        except MemoryError:
            continue
        assert at % align == 0
        assert START <= at <= START + SIZE - size
        assert all(at + size <= other or other + held[other] <= at for other in held)
        held[at] = size
    assert heap.used == held
    for at in held:
        heap.free(at)
    assert heap.alloc(SIZE, 1) == START
