"""Every way from a call site to a callback and back: what it is given, and that nothing is lost.

A way is a trampoline and who shares it. On each of them a function is called with a value of its
own in every register and flag; looked at are the callback's arguments and frame, what the function
finds in its registers, and what its caller finds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from support.ftrace_kernel import ftrace_machine
from support.graph_kernel import graph_kernel
from support.registers import (
    ARGUMENT_FRAME,
    ARITHMETIC_FLAGS,
    CALLEE_SAVED,
    FRAME_OFFSETS,
    REGISTERS,
    Marked,
)
from support.tracefs import Tree, tracefs

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter_ips
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.ftrace.ops import FTRACE_OPS_FL_RCU, FTRACE_OPS_FL_RECURSION, FTRACE_OPS_FL_SAVE_REGS

MARK_TOO = """# A replacement.
FUNC mark_too
    ret
ENDFUNC mark_too
"""
FRAME_BYTES = CONSTANTS["FRAME_BYTES"]
RDI, RSI, RDX, RCX, RSP, _PREEMPT, AT_SP, FRAME = range(8)  # words that keep_frame keeps
DEAD_AT_ENTRY = {"r10", "r11", "flags"}  # what a C function never finds an argument in


@dataclass(frozen=True)
class Way:
    """How `mark` is traced: by the op that looks, and by others."""

    name: str
    calls: str  # what the site calls: "copy", or a label
    flags: int = 0  # of the op that looks
    other: int | None = None  # flags of a second op
    direct: bool = False
    full: bool = False  # the frame has every register
    lost: frozenset[str] = frozenset(DEAD_AT_ENTRY)


REGS = FTRACE_OPS_FL_SAVE_REGS
ONLY_R11 = frozenset({"r11"})
CALLER, REGS_CALLER = "ftrace_caller", "ftrace_regs_caller"
WAYS = [
    Way("a copy of ftrace_caller", "copy"),
    Way("a copy of ftrace_regs_caller", "copy", REGS, full=True, lost=ONLY_R11),
    Way("a copy, guarded", "copy", FTRACE_OPS_FL_RECURSION),
    Way("a copy, RCU", "copy", FTRACE_OPS_FL_RCU),
    Way("a regs copy, guarded", "copy", REGS | FTRACE_OPS_FL_RECURSION, full=True, lost=ONLY_R11),
    Way("ftrace_caller", CALLER, other=0),
    Way("ftrace_caller, guarded", CALLER, FTRACE_OPS_FL_RECURSION, other=0),
    Way("ftrace_regs_caller", REGS_CALLER, REGS, other=0, full=True, lost=ONLY_R11),
    Way("ftrace_regs_caller by another", REGS_CALLER, other=REGS, full=True, lost=ONLY_R11),
    Way("to a direct call", REGS_CALLER, direct=True, full=True, lost=ONLY_R11),
    Way("to a direct call with regs", REGS_CALLER, REGS, direct=True, full=True, lost=ONLY_R11),
    Way("to a direct call, three", REGS_CALLER, other=0, direct=True, full=True, lost=ONLY_R11),
]


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def poison(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def ftrace(poison: bool) -> Iterator[Ftrace]:
    with ftrace_machine(poison=poison) as made:
        yield made
        assert made.bugs == []


class Traced:
    """`mark`, and the ops on it."""

    def __init__(self, ftrace: Ftrace) -> None:
        self.ftrace = ftrace
        self.marked = Marked(ftrace, seed=6)
        self.site = self.marked.labels["mark"]

    def label(self, name: str) -> int:
        return self.marked.labels.get(name) or self.ftrace.machine.image.labels[name]

    def on(self, callback: str, flags: int = 0) -> FtraceOps:
        ftrace = self.ftrace

        def register() -> FtraceOps:
            private = ftrace.machine.alloc(4096)
            ops = ftrace.new_ops(self.label(callback), private=private, flags=flags, name=callback)
            ftrace_set_filter_ips(ftrace, ops, [self.site])
            ftrace.register_ftrace_function(ops)
            return ops

        return ftrace.machine.run(register)

    def direct(self) -> FtraceOps:
        ftrace = self.ftrace

        def register() -> FtraceOps:
            ops = ftrace.new_ops(name="direct")
            ftrace_set_filter_ips(ftrace, ops, [self.site])
            ftrace.register_ftrace_direct(ops, self.label("target_of_mark"))
            return ops

        return ftrace.machine.run(register)

    def go(self, way: Way, callback: str = "keep_frame") -> FtraceOps:
        """Set `way` up; the op that looks."""
        ops = self.on(callback, way.flags)
        if way.other is not None:
            self.on("count_call", way.other)
        if way.direct:
            self.direct()
        expected = ops.trampoline if way.calls == "copy" else self.ftrace.labels[way.calls]
        assert addr_from_call(self.ftrace, self.site) == expected
        return ops


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_callback_gets_site_caller_op_and_all_registers(ftrace: Ftrace, way: Way) -> None:
    traced = Traced(ftrace)
    ops = traced.go(way)
    seen = traced.marked.call()
    kept = struct.unpack("<28Q", ftrace.memory.read(ops.private, 28 * 8))
    assert kept[RDI] == traced.site
    assert kept[RSI] == kept[AT_SP] == traced.label("with_registers_return")
    assert kept[RDX] == ops.address
    frame = dict(zip(range(0, FRAME_BYTES, 8), kept[FRAME:], strict=True))
    assert frame[CONSTANTS["PT_RSP"]] == seen.rsp, "the address of the caller's return address"
    assert kept[RSI] == seen.ret
    assert frame[CONSTANTS["PT_RIP"]] == traced.site + 5
    # ftrace_regs_caller pushes the flags in front of its frame.
    assert kept[RCX] + FRAME_BYTES + (16 if way.full else 8) == seen.rsp
    if way.calls == "copy" and not way.flags & (FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_RCU):
        assert kept[RCX] == kept[RSP] + 8, "right above the return into the trampoline"
    for register in REGISTERS if way.full else ARGUMENT_FRAME:
        value = frame[FRAME_OFFSETS[register]]
        if register == "flags":
            value = value & ARITHMETIC_FLAGS | 2
        assert value == seen.given[register], register
    segments = (frame[CONSTANTS["PT_CS"]], frame[CONSTANTS["PT_SS"]])
    if way.full:
        assert segments == (CONSTANTS["KERNEL_CS"], CONSTANTS["KERNEL_DS"])
    else:
        assert segments[0] == 0


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_the_function_and_its_caller_find_what_was_there(
    ftrace: Ftrace, poison: bool, way: Way
) -> None:
    traced = Traced(ftrace)
    ops = traced.go(way, "count_call")
    lost = set()
    for _ in range(8):
        lost |= traced.marked.call().lost()
    assert ftrace.memory.u64(ops.private) == 8
    assert lost <= way.lost
    assert not poison or lost == way.lost


def test_a_direct_call_alone_loses_nothing(ftrace: Ftrace) -> None:
    traced = Traced(ftrace)
    traced.direct()
    assert addr_from_call(ftrace, traced.site) == traced.label("target_of_mark")
    assert traced.marked.call().lost() == set()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_what_a_callback_changes_is_what_the_function_finds(ftrace: Ftrace, way: Way) -> None:
    traced = Traced(ftrace)
    ops = traced.go(way, "change_frame")
    changed = [r for r in REGISTERS if r != "r11"] if way.full else list(ARGUMENT_FRAME)
    mask = {r: 0x5555555555555555 + 0x1111 * n for n, r in enumerate(changed)}
    if way.full:
        mask["flags"] = ARITHMETIC_FLAGS
    for register, bits in mask.items():
        ftrace.memory.set_u64(ops.private + FRAME_OFFSETS[register], bits)
    seen = traced.marked.call()
    for register in REGISTERS:
        if register in changed:
            assert seen.found[register] == seen.given[register] ^ mask[register], register
        elif register not in way.lost:
            assert seen.found[register] == seen.given[register], register
    assert {r: seen.left[r] for r in changed} == {r: seen.found[r] for r in changed}


# --- function_graph -------------------------------------------------------------------------------


def nobody(_traced: Traced) -> None:
    pass


def counting(traced: Traced) -> None:
    traced.on("count_call")


def counting_with_regs(traced: Traced) -> None:
    traced.on("count_call", REGS)


def a_direct_call(traced: Traced) -> None:
    traced.direct()


BESIDE = [
    (nobody, "copy", DEAD_AT_ENTRY),
    (counting, CALLER, DEAD_AT_ENTRY),
    (counting_with_regs, REGS_CALLER, {"r11"}),
    (a_direct_call, REGS_CALLER, {"r11"}),
]


@pytest.mark.parametrize(
    ("beside", "calls", "lost"), BESIDE, ids=lambda part: getattr(part, "__name__", "")
)
def test_function_graph_loses_nothing_on_the_way_in_and_no_result_on_the_way_out(
    poison: bool, beside: Callable[[Traced], None], calls: str, lost: set[str]
) -> None:
    with tracefs(image=graph_kernel(), poison=poison) as tree:
        ftrace = tree.tracing.ftrace
        traced = Traced(ftrace)
        beside(traced)
        tree.echo("mark", "set_ftrace_filter")
        tree.echo("function_graph", "current_tracer")
        graph_ops = ftrace.fgraph.graph_ops
        expected = graph_ops.trampoline if calls == "copy" else ftrace.labels[calls]
        assert addr_from_call(ftrace, traced.site) == expected
        for _ in range(8):
            seen = traced.marked.call()
            assert seen.ret == ftrace.labels["return_to_handler"]
            not_found = {r for r in REGISTERS if seen.given[r] != seen.found[r]}
            assert not_found <= lost
            kept = ("rax", "rdx", *CALLEE_SAVED)
            assert {r: seen.left[r] for r in kept} == {r: seen.given[r] for r in kept}
        assert tree.read("trace").count("mark [marking]();") == 8


# --- the engine's own callbacks -------------------------------------------------------------------


def function_tracer(*options: str) -> Callable[[Tree], None]:
    def start(tree: Tree) -> None:
        for option in options:
            tree.echo("1", f"options/{option}")
        tree.echo("function", "current_tracer")

    return start


def function_graph_tracer(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")


def function_graph_with_a_filter(tree: Tree) -> None:
    tree.echo("mark", "set_graph_function")
    tree.echo("add_one", "set_graph_notrace")
    tree.echo("function_graph", "current_tracer")


def profiler(tree: Tree) -> None:
    tree.echo("1", "function_profile_enabled")


def a_live_patch(tree: Tree) -> None:
    tree.echo("mark mark_too", "emulator/livepatch")


def a_direct_call_to_a_sample(tree: Tree) -> None:
    tree.echo("mark my_tramp", "emulator/direct")


def a_command(tree: Tree) -> None:
    tree.echo("mark:stacktrace", "set_ftrace_filter")


ENGINE = {
    "function": function_tracer(),
    "function with stacks": function_tracer("func_stack_trace"),
    "function without repeats": function_tracer("func-no-repeats"),
    "function with both": function_tracer("func_stack_trace", "func-no-repeats"),
    "function_graph": function_graph_tracer,
    "function_graph, filtered": function_graph_with_a_filter,
    "the profiler": profiler,
    "a live patch": a_live_patch,
    "a direct call": a_direct_call_to_a_sample,
    "a command": a_command,
}
CALLS = 300  # more than a page of the ring buffer holds


@pytest.mark.parametrize("engine", ENGINE)
def test_a_callback_leaves_the_next_one_its_arguments(poison: bool, engine: str) -> None:
    """Of two ops the one registered first is called last."""
    with tracefs(image=graph_kernel(), poison=poison) as tree:
        ftrace = tree.tracing.ftrace
        traced = Traced(ftrace)
        tree.run(lambda: ftrace.load_functions("too", MARK_TOO))
        looking = traced.on("keep_frame")
        ENGINE[engine](tree)
        assert len(ftrace.ops_list) > 1
        assert ftrace.ops_list[-1] is looking
        for _ in range(CALLS):
            ftrace.memory.write(looking.private, bytes(28 * 8))
            seen = traced.marked.call()
            kept = struct.unpack("<28Q", ftrace.memory.read(looking.private, 28 * 8))
            assert kept[RDI] == traced.site
            assert kept[RSI] in (
                traced.label("with_registers_return"),
                ftrace.labels["return_to_handler"],
            )
            assert kept[RDX] == looking.address
            frame = dict(zip(range(0, FRAME_BYTES, 8), kept[FRAME:], strict=True))
            assert [frame[FRAME_OFFSETS[r]] for r in ARGUMENT_FRAME] == [
                seen.given[r] for r in ARGUMENT_FRAME
            ]
            kept_by_callee = {r: seen.given[r] for r in CALLEE_SAVED}
            assert {r: seen.left[r] for r in CALLEE_SAVED} == kept_by_callee
