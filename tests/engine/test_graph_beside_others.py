"""Function graph tracing of functions that have a direct call or a live patch, or other tracers."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from support.ftrace_kernel import load_code
from support.graph_kernel import graph_kernel
from support.tracefs import Tree, tracefs

from ftracefs.errors import TracefsError
from ftracefs.ftrace.hash_update import ftrace_location, ftrace_set_filter_ips

TARGETS = """
# Calls the function itself, from behind its call site, and returns to its caller with 7 more.
FUNC_NOTRACE call_original
    push rbp
    mov rbp, rsp
    call [rbp + 8]
    add rax, 7
    pop rbp
    lea rsp, [rsp + 8]
    ret
ENDFUNC call_original
"""


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs(image=graph_kernel(), poison=True) as tree:
        yield tree
        assert tree.tracing.ftrace.bugs == []


def calls(tree: Tree) -> str:
    """What is printed of calls, without the columns."""
    lines = tree.read("trace").splitlines()
    return "\n".join(line.split("|  ")[-1] for line in lines if not line.startswith("#"))


def direct(tree: Tree, function: str) -> None:
    """A direct call of `call_original` on a function."""
    ftrace = tree.tracing.ftrace
    target = load_code(ftrace, TARGETS)["call_original"]

    def register() -> None:
        ops = ftrace.new_ops()
        site = ftrace_location(ftrace, tree.machine.image.labels[function])
        ftrace_set_filter_ips(ftrace, ops, [site])
        ftrace.register_ftrace_direct(ops, target)

    tree.run(register)


def test_beside_a_direct_call_that_calls_the_function_it_is_one_record(tree: Tree) -> None:
    direct(tree, "inner")
    assert tree.call("outer", 1) == 119
    tree.echo("function_graph", "current_tracer")
    assert tree.call("outer", 1) == 119
    assert calls(tree) == "outer() {\n  middle() {\n    inner();\n  }\n}"
    tree.echo("nop", "current_tracer")
    assert tree.call("outer", 1) == 119


def test_a_live_patched_function_is_traced_under_its_own_name(tree: Tree) -> None:
    tree.echo("inner add_one", "emulator/livepatch")
    assert tree.call("outer", 1) == 13
    tree.echo("function_graph", "current_tracer")
    assert tree.call("outer", 1) == 13
    assert calls(tree) == (
        "outer() {\n  middle() {\n    inner() {\n      add_one();\n    }\n  }\n}"
    )
    assert tree.tracing.ftrace.fgraph.ret_stack(tree.machine.cpus[0].current) == []


def test_with_both_on_one_call_chain_every_return_is_right(tree: Tree) -> None:
    direct(tree, "middle")
    tree.echo("inner two_results", "emulator/livepatch")
    untraced = tree.call("outer", 4)
    assert untraced == 4 * 3 + 10 + 7 + 1
    tree.echo("function_graph", "current_tracer")
    assert tree.call("outer", 4) == untraced
    assert calls(tree).count("{") + calls(tree).count("();") == 4


def test_other_tracers_functions_are_not_its(tree: Tree) -> None:
    ftrace = tree.tracing.ftrace
    counter = tree.machine.alloc(64)
    ops = ftrace.new_ops(tree.machine.image.labels["count_call"], private=counter)
    tree.run(lambda: ftrace.register_ftrace_function(ops))
    tree.echo("middle", "set_ftrace_filter")
    tree.echo("function_graph", "current_tracer")
    assert tree.call("outer", 1) == 112
    assert calls(tree) == "middle();"
    assert tree.machine.memory.u64(counter) == 3
    tree.run(lambda: ftrace.unregister_ftrace_function(ops))
    assert tree.call("outer", 1) == 112
    assert calls(tree) == "middle();\nmiddle();"


def test_with_ftrace_switched_off_nothing_is_traced_until_it_is_on_again(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    tree.echo("0", "emulator/sysctl/ftrace_enabled")
    assert tree.call("outer", 1) == 112
    assert calls(tree) == ""
    tree.echo("1", "emulator/sysctl/ftrace_enabled")
    assert tree.call("inner", 1) == 101
    assert calls(tree) == "inner();"


def test_a_direct_call_is_refused_to_nobody_because_of_it(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    direct(tree, "inner")
    assert tree.call("inner", 1) == 108
    with pytest.raises(TracefsError) as error:
        direct(tree, "inner")
    assert error.value.errno == errno.EBUSY
    assert tree.call("inner", 1) == 108
    assert calls(tree) == "inner();\ninner();"
