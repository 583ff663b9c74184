"""Ops whose callback is a Python function."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.ftrace_kernel import ftrace_machine

from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_DYNAMIC,
    FTRACE_OPS_FL_IPMODIFY,
    FTRACE_OPS_FL_SAVE_REGS,
)
from ftracefs.ftrace.python_callback import FtraceRegs, PythonFunc


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def ftrace(request: pytest.FixtureRequest) -> Iterator[Ftrace]:
    with ftrace_machine(poison=request.param) as made:
        yield made
        assert made.bugs == []


def register(ftrace: Ftrace, func: PythonFunc, pattern: bytes, flags: int = 0) -> FtraceOps:
    def work() -> FtraceOps:
        ops = ftrace.new_python_ops(func, flags=flags)
        ftrace_set_filter(ftrace, ops, pattern)
        ftrace.register_ftrace_function(ops)
        return ops

    return ftrace.machine.run(work)


def test_it_is_told_site_caller_and_op(ftrace: Ftrace) -> None:
    seen: list[tuple[str, str, FtraceOps, bool]] = []
    symbol = ftrace.kallsyms.sprint_symbol

    def look(ip: int, parent_ip: int, op: FtraceOps, fregs: FtraceRegs) -> None:
        seen.append((symbol(ip), symbol(parent_ip).partition("+")[0], op, fregs.has_regs))

    ops = register(ftrace, look, b"add_one")
    assert ops.name == "look"
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert seen == [("add_one+0x0/0x10", "add_one_twice", ops, False)] * 2
    ftrace.machine.run(lambda: ftrace.unregister_ftrace_function(ops))
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert len(seen) == 2


@pytest.mark.parametrize("flags", [0, FTRACE_OPS_FL_SAVE_REGS])
def test_what_it_assigns_is_what_the_function_finds(ftrace: Ftrace, flags: int) -> None:
    def double_argument(_ip: int, _parent: int, _op: FtraceOps, fregs: FtraceRegs) -> None:
        assert fregs.has_regs == bool(flags)
        fregs["rdi"] *= 2

    register(ftrace, double_argument, b"add_one", flags)
    assert ftrace.machine.call("add_one", 20) == 41


def test_it_may_send_the_call_elsewhere(ftrace: Ftrace) -> None:
    replacement = ftrace.machine.image.labels["replacement"]

    def redirect(_ip: int, _parent: int, _op: FtraceOps, fregs: FtraceRegs) -> None:
        if fregs["rdi"] > 10:
            fregs["rip"] = replacement

    register(ftrace, redirect, b"add_one", FTRACE_OPS_FL_IPMODIFY)
    assert [ftrace.machine.call("add_one", x) for x in (10, 11)] == [11, 111]


def test_several_are_told_apart(ftrace: Ftrace) -> None:
    seen: list[str] = []
    register(ftrace, lambda _ip, _parent, _op, _fregs: seen.append("first"), b"add_one")
    register(ftrace, lambda _ip, _parent, _op, _fregs: seen.append("second"), b"*one*")
    ftrace.machine.call("add_one_twice", 1)
    assert seen == ["second", "second", "first", "second", "first"]


def test_it_may_unregister_its_own_op(ftrace: Ftrace) -> None:
    seen: list[int] = []

    def once(ip: int, _parent: int, op: FtraceOps, _fregs: FtraceRegs) -> None:
        seen.append(ip)
        ftrace.unregister_ftrace_function(op)

    register(ftrace, once, b"add_one", FTRACE_OPS_FL_DYNAMIC)
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert seen == [ftrace.machine.image.labels["add_one"]]


def test_an_exception_ends_the_call_and_nothing_else(ftrace: Ftrace) -> None:
    def fail(_ip: int, _parent: int, _op: FtraceOps, _fregs: FtraceRegs) -> None:
        raise ValueError("on purpose")

    ops = register(ftrace, fail, b"add_one")
    with pytest.raises(ValueError, match="on purpose"):
        ftrace.machine.call("add_one", 1)
    assert ftrace.machine.call("double", 1) == 2
    ftrace.machine.run(lambda: ftrace.unregister_ftrace_function(ops))
    assert ftrace.machine.call("add_one", 1) == 2
