"""Function graph tracing comes and goes under a call that is stepped instruction by instruction.

Wherever the vCPU is, in a traced function, a trampoline, ftrace_graph_func or return_to_handler,
the call returns right and leaves no frame, and each record of an entry has its return unless the
function had not returned when the tracer went.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.graph_kernel import graph_kernel
from support.stepping import Stepper
from support.tracefs import Tree, tracefs

from emulated_kernel.asm_offsets import MODULES_VADDR
from ftracefs.ring_buffer.entries import merge

TRACE_GRAPH_RET, TRACE_GRAPH_ENT = 10, 11


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def tree(request: pytest.FixtureRequest) -> Iterator[Tree]:
    with tracefs(image=graph_kernel(), poison=request.param) as made:
        yield made
        assert made.tracing.ftrace.bugs == []


class Stepped:
    """A call of `outer`, stepped `before` instructions before tracing changes."""

    def __init__(self, tree: Tree, before: int) -> None:
        self.tree = tree
        self.fgraph = tree.tracing.ftrace.fgraph
        self.task = tree.machine.cpus[0].current
        self.stepper = Stepper(tree.machine, tree.machine.image.labels["outer"], 5, cpu=0)
        tree.run(lambda: self.stepper.step(before))
        tree.tracing.ftrace.text_poke.between_phases = lambda: self.stepper.step(before % 3)

    def finish(self) -> None:
        self.tree.tracing.ftrace.text_poke.between_phases = lambda: None
        assert self.tree.run(self.stepper.finish) == 116
        assert self.fgraph.ret_stack(self.task) == []

    def records(self) -> tuple[int, int]:
        """How many entries and returns the buffer holds."""
        types = merge(self.tree.run(self.tree.tr.buffer.snapshot)).type
        return int((types == TRACE_GRAPH_ENT).sum()), int((types == TRACE_GRAPH_RET).sum())

    def is_writing(self) -> bool:
        """Whether the vCPU is in the engine's own code, trampolines and all."""
        return self.stepper.rip >= MODULES_VADDR


def length(tree: Tree) -> int:
    stepper = Stepper(tree.machine, tree.machine.image.labels["outer"], 5, cpu=0)
    tree.run(stepper.finish)
    return len(stepper.trail)


def register(tree: Tree) -> None:
    tree.run(lambda: tree.tracing.ftrace.fgraph.register_ftrace_graph(tree.tr.buffer.table))


def unregister(tree: Tree) -> None:
    tree.run(tree.tracing.ftrace.fgraph.unregister_ftrace_graph)


def test_it_comes(tree: Tree) -> None:
    tree.run(tree.tr.tracing.tracing_update_buffers)
    traced = set()
    for before in range(length(tree) + 1):
        tree.run(tree.tr.buffer.reset)
        call = Stepped(tree, before)
        register(tree)
        call.finish()
        entries, returns = call.records()
        assert entries == returns
        traced.add(entries)
        unregister(tree)
    assert traced == {0, 1, 2, 3}


def test_it_goes(tree: Tree) -> None:
    tree.run(tree.tr.tracing.tracing_update_buffers)
    register(tree)
    untold = set()
    for before in range(length(tree) + 1):
        tree.run(tree.tr.buffer.reset)
        call = Stepped(tree, before)
        is_open = len(call.fgraph.ret_stack(call.task))
        is_writing = call.is_writing()
        unregister(tree)
        call.finish()
        entries, returns = call.records()
        untold.add(entries - returns)
        # Who is in the middle of writing a record writes it.
        assert entries - returns - is_open in ({0, 1} if is_writing else {0}), before
        register(tree)
    assert {0, 1, 2, 3} <= untold


def test_another_op_comes_and_goes_beside_it(tree: Tree) -> None:
    tree.run(tree.tr.tracing.tracing_update_buffers)
    ftrace = tree.tracing.ftrace
    counter = tree.machine.alloc(64)
    ops = ftrace.new_ops(tree.machine.image.labels["count_call"], private=counter)
    register(tree)
    for before in range(0, length(tree) + 1, 5):
        for change in (ftrace.register_ftrace_function, ftrace.unregister_ftrace_function):
            tree.run(tree.tr.buffer.reset)
            call = Stepped(tree, before)
            tree.run(lambda change=change: change(ops))
            call.finish()
            assert call.records() in {(3, 3), (2, 2)}
