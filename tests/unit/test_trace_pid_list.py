"""Sets of pids in guest memory, and what a write to a file of pids makes of one."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulated_kernel.machine.memory import Memory
from ftracefs.errors import TracefsError
from ftracefs.trace.pid_list import (
    MAX_PID,
    TracePidList,
    trace_ignore_this_task,
    trace_pid_write,
)

PIDS = st.integers(0, 40) | st.integers(0, MAX_PID - 1)


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory()


def in_use(memory: Memory) -> dict[int, int]:
    return dict(memory._heap.used)


def written(memory: Memory, data: bytes, old: TracePidList | None = None) -> list[int] | None:
    new, _ = trace_pid_write(memory, old, data)
    if new is None:
        return None
    pids = list(new)
    new.free()
    return pids


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), PIDS), max_size=40))
def test_it_holds_what_was_added_and_not_taken_out(
    memory: Memory, steps: list[tuple[bool, int]]
) -> None:
    free_before = in_use(memory)
    pid_list, model = TracePidList(memory), set[int]()
    for add, pid in steps:
        if add:
            pid_list.trace_pid_list_set(pid)
            model.add(pid)
        else:
            pid_list.trace_pid_list_clear(pid)
            model.discard(pid)
        assert pid_list.trace_pid_list_is_set(pid) is add
    assert list(pid_list) == sorted(model)
    pid_list.free()
    assert in_use(memory) == free_before


def test_a_pid_has_30_bits(memory: Memory) -> None:
    pid_list = TracePidList(memory)
    for pid in (MAX_PID, -1):
        assert not pid_list.trace_pid_list_is_set(pid)
        for change in (pid_list.trace_pid_list_set, pid_list.trace_pid_list_clear):
            with pytest.raises(TracefsError) as refused:
                change(pid)
            assert refused.value.errno == errno.EINVAL
    pid_list.free()


def test_many_far_apart_pids_find_room(memory: Memory) -> None:
    pid_list = TracePidList(memory)
    wanted = [n << 14 for n in range(100)] + [n << 22 for n in range(1, 100)]
    for pid in wanted:
        pid_list.trace_pid_list_set(pid)
    assert list(pid_list) == sorted(set(wanted))
    pid_list.free()


def test_a_write_adds_every_number_in_it(memory: Memory) -> None:
    old, taken = trace_pid_write(memory, None, b" 5 0x10\n010\t7\0")
    assert old is not None
    assert (list(old), taken) == ([5, 7, 8, 16], 14)
    assert written(memory, b"+6", old) == [5, 6, 7, 8, 16]
    assert list(old) == [5, 7, 8, 16], "who wrote before keeps his list until it is replaced"
    old.free()


def test_a_write_without_a_number_makes_no_list_out_of_none(memory: Memory) -> None:
    assert written(memory, b" \n") is None
    assert trace_pid_write(memory, None, b"  ")[1] == 2


def test_blanks_behind_a_number_end_the_write_and_are_taken(memory: Memory) -> None:
    new, taken = trace_pid_write(memory, None, b"1  ")
    assert new is not None
    assert (list(new), taken) == ([1], 3)
    new.free()


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b"1 x", errno.EINVAL),
        (b"-1", errno.EINVAL),
        (b"08", errno.EINVAL),
        (b"0" * 128, errno.EINVAL),
        (b"99999999999999999999", errno.EINVAL),
        (b"1073741824", errno.EPERM),
        (b"4294967295", errno.EPERM),
    ],
)
def test_a_bad_number_takes_nothing_of_the_write(memory: Memory, data: bytes, number: int) -> None:
    used = in_use(memory)
    with pytest.raises(TracefsError) as refused:
        trace_pid_write(memory, None, data)
    assert refused.value.errno == number
    assert in_use(memory) == used


def test_a_pid_is_the_low_32_bits_of_the_number(memory: Memory) -> None:
    assert written(memory, b"4294967297") == [1]


def test_who_is_ignored(memory: Memory) -> None:
    only, never = TracePidList(memory), TracePidList(memory)
    assert not trace_ignore_this_task(None, None, 1)
    assert trace_ignore_this_task(only, None, 1)
    only.trace_pid_list_set(1)
    assert not trace_ignore_this_task(only, never, 1)
    assert not trace_ignore_this_task(None, never, 1)
    never.trace_pid_list_set(1)
    assert trace_ignore_this_task(only, never, 1)
    assert trace_ignore_this_task(None, never, 1)
    for pid_list in (only, never):
        pid_list.free()


def test_a_write_keeps_what_the_list_held(memory: Memory) -> None:
    old = TracePidList(memory)
    held = [0, 63, 16383, 16384, 5_000_000, MAX_PID - 1]
    for pid in held:
        old.trace_pid_list_set(pid)
    assert written(memory, b"64", old) == sorted([*held, 64])
    assert list(old) == held
    for pid in held:
        old.trace_pid_list_clear(pid)
    assert not old
    assert written(memory, b" ", old) is None
    old.free()
