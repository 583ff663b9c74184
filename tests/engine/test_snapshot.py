"""Snapshots under guest code that writes: what it writes is found once, in order, in one place."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from support.tracefs import Tree, tracefs

from ftracefs.trace.array_buffer import (
    tracing_alloc_snapshot_instance,
    tracing_snapshot_instance,
    update_max_tr,
    update_max_tr_single,
)

NOT_ALLOCATED = ["*** SNAPSHOT NOT ALLOCATED ***", "*** stopping trace here!   ***"]


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs(nr_cpus=2) as tree:
        yield tree


def calls(text: str) -> list[str]:
    return re.findall(r": (\w+) <-\w+\n", text)


def times(text: str) -> list[float]:
    return [float(stamp) for stamp in re.findall(r" (\d+\.\d{6}): \w+ <-", text)]


def drain(tree: Tree, cpu: int) -> str:
    pipe = tree.open(f"per_cpu/cpu{cpu}/trace_pipe")
    parts = []
    while not tree.run(lambda: tree.tr.buffer.is_empty(cpu)):
        part = pipe.read(1 << 16)
        assert isinstance(part, bytes)
        parts.append(part.decode())
    pipe.close()
    return "".join(parts)


def trace_functions(tree: Tree) -> None:
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function", "current_tracer")


@pytest.mark.parametrize("seed", range(4))
def test_records_of_many_calls_and_snapshots_are_all_there_once(seed: int) -> None:
    rng = random.Random(seed)
    with tracefs(nr_cpus=2) as tree:
        tree.echo("64", "buffer_size_kb")
        trace_functions(tree)
        expected = {(where, cpu): 0 for where in ("trace", "snapshot") for cpu in range(2)}
        for _ in range(60):
            match rng.randrange(4):
                case 0 | 1:
                    cpu, count = rng.randrange(2), rng.choice([1, 2, 50, 145, 146])
                    tree.call("loop_add", count, cpu=cpu)
                    expected["trace", cpu] += count
                case 2:
                    tree.echo("1", "snapshot")
                    for cpu in range(2):
                        pair = expected["snapshot", cpu], expected["trace", cpu]
                        expected["trace", cpu], expected["snapshot", cpu] = pair
                case 3:
                    cpu = rng.randrange(2)
                    text = drain(tree, cpu)
                    assert len(calls(text)) == expected["trace", cpu]
                    assert times(text) == sorted(times(text))
                    expected["trace", cpu] = 0
            for (where, cpu), count in expected.items():
                if expected[where, cpu] < 145 * 10:
                    assert len(calls(tree.read(f"per_cpu/cpu{cpu}/{where}"))) == count
        assert tree.read("per_cpu/cpu0/stats").splitlines()[1] == "overrun: 0"


def test_whoever_has_a_buffers_address_writes_on_into_the_trace(tree: Tree) -> None:
    """The address is that of the place: nothing that guest code may hold leads to the snapshot."""
    trace_functions(tree)
    memory = tree.machine.memory
    table = tree.tr.buffer.table
    before = [memory.u64(table + 8 * cpu) for cpu in range(2)]
    tree.call("loop_add", 3)
    tree.echo("1", "snapshot")
    assert [memory.u64(table + 8 * cpu) for cpu in range(2)] == before
    tree.call("loop_add", 2)
    assert calls(tree.read("trace")) == ["add_one"] * 2
    assert calls(tree.read("snapshot")) == ["add_one"] * 3


def test_calls_that_are_on_their_way_return_into_the_new_buffer(tree: Tree) -> None:
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function_graph", "current_tracer")
    tree.call("loop_add", 3)
    tree.echo("1", "snapshot")
    tree.call("loop_add", 2)
    assert tree.read("trace").count("add_one();") == 2
    assert tree.read("snapshot").count("add_one();") == 3


def test_a_guard_belongs_to_the_trace_and_not_to_its_records(tree: Tree) -> None:
    tree.echo("1", "snapshot")
    tree.run(tree.tr.buffer.cpus[0].record_disable)
    tree.echo("1", "snapshot")
    trace_functions(tree)
    tree.call("loop_add", 1, cpu=0)
    tree.call("loop_add", 1, cpu=1)
    assert calls(tree.read("per_cpu/cpu0/trace")) == []
    assert calls(tree.read("per_cpu/cpu1/trace")) == ["add_one"]
    tree.run(tree.tr.buffer.cpus[0].record_enable)
    tree.call("loop_add", 1, cpu=0)
    assert calls(tree.read("per_cpu/cpu0/trace")) == ["add_one"]


def test_one_cpus_records_can_be_exchanged_alone(tree: Tree) -> None:
    trace_functions(tree)
    tree.run(lambda: tracing_alloc_snapshot_instance(tree.tr))
    for cpu in range(2):
        tree.call("loop_add", 2 + cpu, cpu=cpu)
    tree.run(lambda: update_max_tr_single(tree.tr, 1))
    assert len(calls(tree.read("trace"))) == 2
    assert len(calls(tree.read("per_cpu/cpu1/snapshot"))) == 3
    saved = tree.tr.max_buffer.saved
    assert (saved.cpu, saved.comm, saved.pid) == (1, "script", 1001)


def test_rings_of_different_sizes_are_not_exchanged(tree: Tree) -> None:
    trace_functions(tree)
    tree.run(lambda: tracing_alloc_snapshot_instance(tree.tr))
    tree.run(lambda: tree.tr.max_buffer.buffer.resize(5 * 4080, 1))
    tree.call("loop_add", 2, cpu=1)
    tree.run(lambda: update_max_tr_single(tree.tr, 1))
    assert len(calls(tree.read("per_cpu/cpu1/trace"))) == 2


def test_nothing_is_exchanged_without_room_or_while_stopped(tree: Tree) -> None:
    trace_functions(tree)
    tree.call("loop_add", 2)
    tree.run(lambda: update_max_tr(tree.tr, 0))
    assert len(calls(tree.read("trace"))) == 2
    tree.run(lambda: tracing_alloc_snapshot_instance(tree.tr))
    tree.run(tree.tr.tracing_stop_tr)
    tree.run(lambda: update_max_tr(tree.tr, 0))
    assert len(calls(tree.read("trace"))) == 2  # who reads it and leaves starts it again
    tree.run(lambda: update_max_tr(tree.tr, 0))
    assert len(calls(tree.read("snapshot"))) == 2


# --- from within the kernel -----------------------------------------------------------------------


def snapshot_from_guest(tree: Tree, cpu: int = 0) -> None:
    tree.run(lambda: tracing_snapshot_instance(tree.tr, cpu))


def test_guest_code_takes_a_snapshot_and_goes_on(tree: Tree) -> None:
    tree.echo("1", "snapshot")
    trace_functions(tree)
    tree.call("loop_add", 3, cpu=1)
    snapshot_from_guest(tree, 1)
    tree.call("loop_add", 2, cpu=1)
    assert calls(tree.read("trace")) == ["add_one"] * 2
    assert calls(tree.read("snapshot")) == ["add_one"] * 3


def test_without_room_the_trace_says_so_and_stops(tree: Tree) -> None:
    trace_functions(tree)
    tree.call("loop_add", 1)
    snapshot_from_guest(tree)
    text = tree.read("trace")
    assert re.findall(r"tracing_snapshot_instance_cond: (.*)\n", text) == NOT_ALLOCATED
    assert tree.read("tracing_on") == "0\n"
    tree.call("loop_add", 1)
    assert calls(tree.read("trace")) == ["add_one"]


def test_with_the_option_trace_printk_off_it_only_stops(tree: Tree) -> None:
    tree.echo("0", "options/trace_printk")
    snapshot_from_guest(tree)
    assert "entries-written: 0/0 " in tree.read("trace")
    assert tree.read("tracing_on") == "0\n"


def test_a_hypercall_for_a_buffer_of_nobody_does_nothing(tree: Tree) -> None:
    tree.echo("1", "snapshot")
    trace_functions(tree)
    tree.call("loop_add", 1)
    buffers = tree.tr.max_buffer.buffer.table
    label = tree.tracing.label("tracing_snapshot_instance")
    tree.run(lambda: tree.machine.call(label, buffers))
    assert calls(tree.read("trace")) == ["add_one"]
