"""per_cpu/cpuN/trace_pipe_raw without a mount."""

from __future__ import annotations

import errno
import os
import struct

import pytest
from support.shell import CALLER, isolated

from ftracefs.errors import TracefsError
from ftracefs.files.base import OpenFile, Pending, TracefsFile


def opened(node: object) -> OpenFile:
    assert isinstance(node, TracefsFile)
    return node.open(os.O_RDONLY, CALLER)


def test_pages_come_whole_and_then_nothing() -> None:
    with isolated(cpus=1) as shell:
        shell.echo("gcd", "set_ftrace_filter")
        shell.echo("function", "current_tracer")
        shell.echo("gcd 1 2 x300", "emulator/call")
        machine = shell.machine
        file = machine.run(lambda: opened(shell.node("per_cpu/cpu0/trace_pipe_raw")))
        first = machine.run(lambda: file.read(100, 0, True))
        assert isinstance(first, bytes)
        rest = machine.run(lambda: file.read(4096, 0, True))
        assert isinstance(rest, bytes)
        page = first + rest
        assert (len(first), len(page)) == (100, 4096)
        stamp, commit = struct.unpack_from("<QQ", page)
        assert stamp > 0
        assert commit & 0xFFFFF == 145 * 28
        more = machine.run(lambda: file.read(1 << 16, 0, True))
        assert isinstance(more, bytes)
        assert len(more) % 4096 == 0
        with pytest.raises(TracefsError) as nothing:
            machine.run(lambda: file.read(4096, 0, True))
        assert nothing.value.errno == errno.EAGAIN
        assert isinstance(machine.run(lambda: file.read(4096, 0, False)), Pending)
        machine.run(file.release)


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
