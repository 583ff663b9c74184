"""trace_pipe while the function graph tracer prints: nothing lost, nothing twice, leaves whole."""

from __future__ import annotations

import random

import pytest
from support.graph_records import graph_entry, graph_return
from support.graph_rig import GraphRig
from support.model_writer import print_record

from ftracefs.trace.output.graph_layout import DEFAULT_GRAPH_FLAGS, GraphFlags
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.trace_pipe import TracePipe

LEAF_BYTES = 24 + 44


def read_all(pipe: TracePipe, context: OutputContext, size: int = 4096) -> str:
    parts = []
    while not pipe.is_empty():
        part = pipe.read(size, context)
        assert 0 < len(part) <= size
        parts.append(part)
    return b"".join(parts).decode()


@pytest.fixture
def rig() -> GraphRig:
    return GraphRig()


def call(rig: GraphRig, name: str, depth: int = 0, *, cpu: int = 0, pid: int = 105) -> None:
    rig.write(graph_entry(rig.functions.address(name), depth, pid=pid), cpu=cpu)


def ret(
    rig: GraphRig, name: str, depth: int = 0, *, ns: int = 1000, cpu: int = 0, pid: int = 105
) -> None:
    rig.write(graph_return(rig.functions.address(name), depth, ns, pid=pid), cpu=cpu)


def leaf(rig: GraphRig, name: str, depth: int = 0, *, cpu: int = 0, pid: int = 105) -> None:
    call(rig, name, depth, cpu=cpu, pid=pid)
    ret(rig, name, depth, cpu=cpu, pid=pid)


def random_records(rig: GraphRig, count: int, seed: int) -> None:
    """Tasks that call and return, on all CPUs of the rig, with markers and lost records between."""
    chance = random.Random(seed)
    stacks: dict[int, list[str]] = {pid: [] for pid in (105, 112, 308, 309)}
    home = {pid: pid % rig.nr_cpus for pid in stacks}
    pid = 105
    for _ in range(count):
        if chance.random() < 0.2:
            pid = chance.choice(list(stacks))
        stack, cpu = stacks[pid], home[pid]
        what = chance.random()
        if what < 0.02:
            rig.write(print_record(b"mark", pid=pid), cpu=cpu)
        elif stack and (what < 0.5 or len(stack) > 8):
            ret(rig, stack.pop(), len(stack), ns=chance.randrange(1, 200_000), cpu=cpu, pid=pid)
        else:
            stack.append(f"function_{chance.randrange(6)}")
            if what < 0.97:
                call(rig, stack[-1], len(stack) - 1, cpu=cpu, pid=pid)


@pytest.mark.parametrize("nr_cpus", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 13, 700, 4096, 65536])
def test_the_pipe_gives_what_trace_shows(nr_cpus: int, size: int) -> None:
    rig = GraphRig(nr_cpus)
    random_records(rig, 1200 if size > 100 else 300, seed=size + nr_cpus)
    expected = rig.text()
    pipe = TracePipe(rig.buffer)
    assert read_all(pipe, rig.context(), size) == expected
    assert rig.buffer.entries() == 0


def test_columns_may_change_between_two_reads() -> None:
    rig = GraphRig(2)
    random_records(rig, 600, seed=5)
    expected = [line.split("|  ")[-1] for line in rig.text().splitlines()]
    pipe = TracePipe(rig.buffer)
    text, number = "", 0
    while not pipe.is_empty():
        columns = DEFAULT_GRAPH_FLAGS | (GraphFlags.ABS_TIME if number % 2 else GraphFlags.PROC)
        text += pipe.read(200, rig.context(columns)).decode()
        number += 1
    assert number > 20
    assert [line.split("|  ")[-1] for line in text.splitlines()] == expected


def test_a_call_and_its_return_that_a_page_parts_are_one_line(rig: GraphRig) -> None:
    used = 0
    while used + LEAF_BYTES <= 4080 - 24:
        leaf(rig, "vfs_read")
        used += LEAF_BYTES
    while used + 24 <= 4080 - 24:
        call(rig, "ksys_read")
        used += 24
    call(rig, "vfs_write")
    assert rig.buffer.cpus[0].nr_dirty_pages() == 0
    ret(rig, "vfs_write", ns=33_199)
    assert rig.buffer.cpus[0].nr_dirty_pages() == 1
    leaf(rig, "vfs_open")
    expected = rig.text()
    assert " 0) + 33.199 us   |  vfs_write();\n 0)   1.000 us    |  vfs_open();\n" in expected
    pipe = TracePipe(rig.buffer)
    assert read_all(pipe, rig.context()) == expected
    assert rig.buffer.entries() == 0
    stats = rig.buffer.cpus[0].stats()
    assert stats.bytes == 0
    leaf(rig, "vfs_read")
    assert read_all(pipe, rig.context()) == " 0)   1.000 us    |  vfs_read();\n"


def test_records_lost_between_two_pages_part_a_call_from_a_return() -> None:
    rig = GraphRig(size=1)
    pipe = TracePipe(rig.buffer)
    used = 0
    while used + 24 <= 4080:
        call(rig, "vfs_read")
        used += 24
    first = pipe.read(40, rig.context()).decode()
    for _ in range(400):
        ret(rig, "vfs_read")
    text = first + read_all(pipe, rig.context())
    before, _, after = text.partition("CPU:0 [LOST ")
    assert before.endswith("|  vfs_read() {\n")
    assert "vfs_read();" not in text
    assert after.split("\n")[1].endswith("|  }")


def test_a_call_that_has_not_returned_yet_opens_a_brace(rig: GraphRig) -> None:
    pipe = TracePipe(rig.buffer)
    call(rig, "vfs_read")
    assert pipe.read(4096, rig.context()) == b" 0)               |  vfs_read() {\n"
    ret(rig, "vfs_read", ns=2000)
    assert pipe.read(4096, rig.context()) == b" 0)   2.000 us    |  }\n"


def test_a_return_that_comes_before_the_line_is_read_still_makes_a_leaf(rig: GraphRig) -> None:
    pipe = TracePipe(rig.buffer)
    leaf(rig, "vfs_open")
    call(rig, "vfs_read")
    assert pipe.read(10, rig.context()) == b" 0)   1.00"
    ret(rig, "vfs_read", ns=2000)
    assert read_all(pipe, rig.context()) == (
        "0 us    |  vfs_open();\n 0)   2.000 us    |  vfs_read();\n"
    )


def test_state_is_each_readers_own(rig: GraphRig) -> None:
    call(rig, "vfs_read")
    pipe = TracePipe(rig.buffer)
    pipe.read(4096, rig.context())
    ret(rig, "vfs_read")
    again = TracePipe(rig.buffer)
    text = again.read(4096, rig.context())
    assert text == b" 0)   1.000 us    |  } /* vfs_read */\n"
    leaf(rig, "vfs_open", pid=112)
    leaf(rig, "vfs_open", pid=112)
    banner, *_ = read_all(again, rig.context()).splitlines()[1:]
    assert banner == " 0)    bash-105    =>    head-112   "


def test_a_reset_between_two_reads_keeps_what_was_printed(rig: GraphRig) -> None:
    pipe = TracePipe(rig.buffer)
    call(rig, "ksys_read")
    for _ in range(40):
        leaf(rig, "vfs_read", 1)
    pipe.read(100, rig.context())
    rig.buffer.reset()
    ret(rig, "ksys_read", ns=2000)
    assert read_all(pipe, rig.context()).endswith(" 0)   2.000 us    |  }\n")


def test_one_cpus_pipe_gives_that_cpus_calls() -> None:
    rig = GraphRig(2)
    leaf(rig, "vfs_read", cpu=0)
    leaf(rig, "vfs_write", cpu=1)
    assert (
        read_all(TracePipe(rig.buffer, 1), rig.context()) == " 1)   1.000 us    |  vfs_write();\n"
    )
    assert rig.text() == " 0)   1.000 us    |  vfs_read();\n"
