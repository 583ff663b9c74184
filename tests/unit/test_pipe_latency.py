"""What a reader of trace_pipe gets in the latency format, which is not what `trace` shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from support.model_writer import ModelWriter, function_record

from emulated_kernel.kallsyms import Kallsyms
from emulated_kernel.machine.memory import Memory
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.trace.options import TRACE_DEFAULT_FLAGS, TraceIter
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.output.trace_pipe import TracePipe

VFS_READ, KSYS_READ = 0xFFFFFFFF813669E0, 0xFFFFFFFF813675BB
BASE = 114_600_000_000


@dataclass(frozen=True)
class Sym:
    name: str
    address: int
    size: int
    section: str = ".text"
    kind: str = "T"


@pytest.fixture
def memory() -> Memory:
    return Memory()


def latency_pipe(memory: Memory, count: int, *more: TraceIter) -> tuple[TracePipe, OutputContext]:
    """Calls 75 us apart in a pipe with the latency format."""
    rig = RingBuffer(memory, [memory.alloc(4096)], 1 << 16)
    writer = ModelWriter(memory, rig.cpus[0].address)
    for number in range(count):
        writer.now = BASE + 75_000 * number
        assert writer.write(function_record(VFS_READ, KSYS_READ, pid=105))
    kallsyms = Kallsyms()
    kallsyms.add("kernel", [Sym("vfs_read", VFS_READ, 0x300), Sym("ksys_read", KSYS_READ, 0x80)])
    flags = TRACE_DEFAULT_FLAGS | TraceIter.LATENCY_FMT
    for flag in more:
        flags |= flag
    context = OutputContext(SymbolText(kallsyms), {105: "bash"}, flags, time_start=BASE)
    return TracePipe(rig), context


def test_a_pipe_does_not_look_at_the_record_behind(memory: Memory) -> None:
    pipe, context = latency_pipe(memory, 3)
    assert pipe.read(4096, context) == (
        b"    bash-105       0.....    0us : vfs_read <-ksys_read\n"
        b"    bash-105       0.....   75us : vfs_read <-ksys_read\n"
        b"    bash-105       0.....  150us : vfs_read <-ksys_read\n"
    )


def test_each_read_of_a_pipe_numbers_its_records_from_1(memory: Memory) -> None:
    pipe, context = latency_pipe(memory, 250, TraceIter.VERBOSE)
    seen = 0
    while not pipe.is_empty():
        text = pipe.read(4096, context).decode()
        lines = text.splitlines()
        assert [int(line.split()[5], 16) for line in lines] == list(range(1, len(lines) + 1))
        assert all(line.endswith("(+0.000ms): vfs_read <-ksys_read") for line in lines)
        seen += len(lines)
    assert seen == 250


def test_a_pipe_has_the_format_it_was_opened_with(memory: Memory) -> None:
    pipe, context = latency_pipe(memory, 2)
    plain = "            bash-105     [000] .....   114.600000: vfs_read <-ksys_read\n"
    assert pipe.read(1, replace(context, lat_fmt=False)) == plain[:1].encode()
    assert pipe.read(4096, context).decode() == plain[1:]
    other = replace(context, flags=TRACE_DEFAULT_FLAGS, lat_fmt=True)
    assert pipe.read(4096, other) == b"    bash-105       0.....   75us : vfs_read <-ksys_read\n"
