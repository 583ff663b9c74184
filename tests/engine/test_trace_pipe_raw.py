"""per_cpu/cpuN/trace_pipe_raw without a mount."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.shell import CALLER, isolated

from ftracefs.errors import TracefsError
from ftracefs.files.base import OpenFile, Pending, TracefsFile


def opened(node: object) -> OpenFile:
    assert isinstance(node, TracefsFile)
    return node.open(os.O_RDONLY, CALLER)


@contextmanager
def recorded(count: int) -> Iterator[Callable[[int], bytes | Pending]]:
    """Reads the pages of so many records of 28 bytes."""
    with isolated(cpus=1) as shell:
        shell.echo("gcd", "set_ftrace_filter")
        shell.echo("function", "current_tracer")
        shell.echo(f"gcd 1 2 x{count}", "emulator/call")
        machine = shell.machine
        file = machine.run(lambda: opened(shell.node("per_cpu/cpu0/trace_pipe_raw")))

        def read(size: int, nonblock: bool = True) -> bytes | Pending:
            answer = machine.run(lambda: file.read(size, 0, nonblock))
            assert isinstance(answer, bytes | Pending)
            return answer

        yield read
        machine.run(file.release)


def data(page: bytes | Pending) -> int:
    """The bytes of data that a page says it has."""
    assert isinstance(page, bytes)
    stamp, commit = struct.unpack_from("<QQ", page)
    assert stamp > 0
    return int(commit)


def pages(answer: bytes | Pending) -> list[int]:
    """The bytes of data that each page of a read says it has."""
    assert isinstance(answer, bytes)
    assert len(answer) % 4096 == 0
    return [data(answer[at : at + 4096]) for at in range(0, len(answer), 4096)]


def test_a_read_gives_the_whole_pages_it_has_room_for_and_then_nothing() -> None:
    with recorded(4 * 145 + 10) as read:
        assert pages(read(4096)) == [145 * 28]
        assert pages(read(2 * 4096 + 100)) == [145 * 28] * 2
        assert pages(read(1 << 16)) == [145 * 28, 10 * 28]
        with pytest.raises(TracefsError) as nothing:
            read(4096)
        assert nothing.value.errno == errno.EAGAIN
        assert isinstance(read(4096, nonblock=False), Pending)


def test_the_rest_of_a_page_that_was_begun_comes_alone() -> None:
    with recorded(300) as read:
        first, rest = read(100), read(1 << 16)
        assert isinstance(first, bytes)
        assert isinstance(rest, bytes)
        assert (len(first), len(rest)) == (100, 3996)
        assert pages(read(1 << 16)) == [142 * 28 + 20, 145 * 28, 10 * 28]


def test_behind_a_piece_of_a_longer_read_that_is_full_there_is_another_page() -> None:
    with recorded(31 * 145 + 10) as read:
        assert len(pages(read(1 << 17))) == 31
        assert pages(read(1 << 17)) == [10 * 28]
    with recorded(32 * 145 + 10) as read:
        assert len(pages(read(1 << 17))) == 32
        assert pages(read(1 << 17)) == [10 * 28]


def test_who_asks_for_less_than_a_page_gets_one_with_the_records_that_fit() -> None:
    with recorded(300) as read:
        first, rest = read(100), read(4096)
        assert isinstance(first, bytes)
        assert isinstance(rest, bytes)
        assert (len(first), len(rest), data(first)) == (100, 3996, 3 * 28)
        assert rest == bytes(3996)
        assert data(read(4096)) == 142 * 28 + 20  # what is copied brings the padding along


@pytest.mark.parametrize("size", [1, 16, 17, 16 + 27])
def test_without_room_for_a_record_the_answer_is_empty_and_nothing_is_lost(size: int) -> None:
    with recorded(2) as read:
        assert read(size) == b""
        assert data(read(4096)) == 2 * 28
        with pytest.raises(TracefsError) as nothing:
            read(size)
        assert nothing.value.errno == errno.EAGAIN


def test_an_open_reader_keeps_the_tracer_from_changing() -> None:
    with isolated(cpus=1) as shell:
        file = shell.machine.run(lambda: opened(shell.node("per_cpu/cpu0/trace_pipe_raw")))
        with pytest.raises(TracefsError) as busy:
            shell.echo("function", "current_tracer")
        assert busy.value.errno == errno.EBUSY
        shell.machine.run(file.release)
        shell.echo("function", "current_tracer")


def test_a_reader_who_keeps_up_sees_every_marker_past_the_padding_of_each_page() -> None:
    with isolated(cpus=1) as shell:
        machine = shell.machine
        node = shell.node("trace_pipe")
        file = machine.run(lambda: opened(node))
        text = b""
        for number in range(400):
            shell.echo(f"{number}:" + "x" * (number * 7 % 90), "trace_marker")
            part = machine.run(lambda: file.read(1 << 16, 0, True))
            assert isinstance(part, bytes)
            text += part
        machine.run(file.release)
    marks = [line.split("tracing_mark_write: ")[1] for line in text.decode().splitlines()]
    assert marks == [f"{number}:" + "x" * (number * 7 % 90) for number in range(400)]


def test_a_page_behind_lost_records_says_how_many() -> None:
    with isolated(cpus=1) as shell:
        shell.echo("4", "buffer_size_kb")
        for number in range(25):
            shell.echo(f"{number}:".ljust(699, "x"), "trace_marker")  # five to a page
        machine = shell.machine
        file = machine.run(lambda: opened(shell.node("per_cpu/cpu0/trace_pipe_raw")))
        pages = [machine.run(lambda: file.read(4096, 0, True)) for _ in range(2)]
        machine.run(file.release)
        first, second = pages
        assert isinstance(first, bytes)
        assert isinstance(second, bytes)
        commit = 5 * 728
        assert struct.unpack_from("<Q", first, 8) == (0xFFFFFFFFC0000000 + commit,)  # sign and all
        assert struct.unpack_from("<Q", first, 16 + commit) == (15,)
        assert b"15:xxx" in first
        assert struct.unpack_from("<Q", second, 8)[0] < 4096
        assert not any(second[16 + commit :])
