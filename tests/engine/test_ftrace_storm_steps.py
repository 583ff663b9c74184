"""Ops, filters and function graph tracing come and go while another vCPU is always inside a call.

At each sync of each patch that vCPU runs a few instructions, so that it stands anywhere: in kernel
text, on an INT3, in a trampoline, in the list function, in return_to_handler.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from support.graph_kernel import graph_kernel
from support.stepping import Stepper
from support.tracefs import Tree, tracefs

from emulated_kernel.asm_offsets import MODULES_VADDR
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_hash
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_DYNAMIC,
    FTRACE_OPS_FL_RECURSION,
    FTRACE_OPS_FL_SAVE_REGS,
)

OPERATIONS = 2_000
NAMES = ["outer", "middle", "inner", "add_one", "double", "recurse"]
CALLS = [("outer", 5, 116), ("recurse", 3, 3), ("add_one_twice", 1, 3), ("call_tail_call", 1, 1102)]


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def tree(request: pytest.FixtureRequest) -> Iterator[Tree]:
    with tracefs(image=graph_kernel(), poison=request.param, nr_cpus=2) as made:
        yield made
        assert made.tracing.ftrace.bugs == []


class Bystander:
    """The vCPU that is always inside a call."""

    def __init__(self, tree: Tree, choice: random.Random) -> None:
        self.tree = tree
        self.choice = choice
        self.returned = 0
        self.in_engine = 0
        self._begin()

    def _begin(self) -> None:
        name, argument, self.expected = self.choice.choice(CALLS)
        function = self.tree.machine.image.labels[name]
        self.call = Stepper(self.tree.machine, function, argument, cpu=1)

    def turn(self) -> None:
        self.call.step(self.choice.randrange(12))
        self.in_engine += self.call.rip >= MODULES_VADDR
        if self.call.is_done:
            self.end()
            self._begin()

    def end(self) -> None:
        assert self.call.finish() == self.expected
        self.returned += 1


def text(ftrace: Ftrace) -> bytes:
    start, code = ftrace.machine.image.segments[".text"]
    return ftrace.memory.read(start, len(code)) + ftrace.memory.read(MODULES_VADDR, 4096)


def test_whatever_it_stands_in_it_returns_right(tree: Tree) -> None:
    ftrace, choice = tree.tracing.ftrace, random.Random(4)
    label, fgraph = tree.machine.image.labels, ftrace.fgraph
    tree.run(tree.tr.tracing.tracing_update_buffers)
    before = text(ftrace)
    ops = []
    for flags in (
        0,
        FTRACE_OPS_FL_DYNAMIC,
        FTRACE_OPS_FL_RECURSION,
        FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_DYNAMIC,
    ):
        private = tree.machine.alloc(64)
        ops.append(ftrace.new_ops(label["count_call"], private=private, flags=flags))

    def come_or_go(op: FtraceOps) -> None:
        is_there = op in ftrace.ops_list
        (ftrace.unregister_ftrace_function if is_there else ftrace.register_ftrace_function)(op)

    def filter(op: FtraceOps) -> None:
        some = [label[name] for name in choice.sample(NAMES, choice.randrange(4))]
        ftrace_set_hash(ftrace, op, some, reset=True, enable=choice.random() < 0.7)

    def graph(_op: FtraceOps) -> None:
        if fgraph.ftrace_graph_active:
            fgraph.unregister_ftrace_graph()
        else:
            fgraph.register_ftrace_graph(tree.tr.buffer.table)

    operations: list[Callable[[FtraceOps], None]] = [come_or_go, filter, graph]
    bystander = Bystander(tree, choice)
    ftrace.text_poke.between_phases = bystander.turn
    for _ in range(OPERATIONS):
        operation, op = choice.choice(operations), choice.choice(ops)
        tree.run(lambda operation=operation, op=op: operation(op))
        name, argument, expected = choice.choice(CALLS)
        assert tree.call(name, argument) == expected
    ftrace.text_poke.between_phases = lambda: None
    for op in list(ftrace.ops_list):
        if op is fgraph.graph_ops:
            tree.run(fgraph.unregister_ftrace_graph)
        else:
            tree.run(lambda op=op: ftrace.unregister_ftrace_function(op))
    tree.run(bystander.end)
    assert bystander.returned > OPERATIONS / 10
    assert bystander.in_engine > OPERATIONS / 10
    assert ftrace.text_poke.int3_hits > OPERATIONS / 100
    assert text(ftrace) == before
    for cpu in tree.machine.cpus:
        assert fgraph.ret_stack(cpu.current) == []
    tree.run(lambda: ftrace.register_ftrace_function(ops[0]))
    assert ftrace.dead_trampolines == []
