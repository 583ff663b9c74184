"""What the function graph tracer leaves out: functions, depths, short calls, interrupts."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from support.graph_kernel import Suspended, graph_kernel
from support.tracefs import APPEND, TRUNC, R, Tree, W, tracefs

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError

EVERYTHING, NOTHING = "#### all functions enabled ####\n", "#### no functions disabled ####\n"


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs(image=graph_kernel(), poison=True) as tree:
        yield tree


def calls(tree: Tree) -> str:
    """What is printed of calls, without the columns."""
    lines = tree.read("trace").splitlines()
    return "\n".join(line.split("|  ")[-1] for line in lines if not line.startswith("#"))


def traced(tree: Tree, function: str, *arguments: int) -> str:
    """The trace of one call."""
    tree.open("trace", W | TRUNC).close()
    tree.call(function, *arguments)
    return calls(tree)


def flags(tree: Tree) -> int:
    """What the task's open calls mean for others."""
    base = tree.machine.memory.u64(tree.machine.cpus[0].current + CONSTANTS["TASK_RET_BASE"])
    return tree.machine.memory.u32(base + CONSTANTS["FGT_FLAGS"])


OUTER = "outer() {\n  middle() {\n    inner();\n  }\n}"


# --- set_graph_function, set_graph_notrace -------------------------------------------------------


def test_only_a_graph_function_and_what_it_calls_are_traced(tree: Tree) -> None:
    tree.echo("middle", "set_graph_function")
    tree.echo("function_graph", "current_tracer")
    assert traced(tree, "outer", 1) == "middle() {\n  inner();\n}"
    assert traced(tree, "inner", 1) == ""
    assert flags(tree) == 0
    tree.write("set_graph_function", "inner\n", W | APPEND)
    assert traced(tree, "outer", 1) == "middle() {\n  inner();\n}"
    assert traced(tree, "inner", 1) == "inner();"
    tree.echo("", "set_graph_function")
    assert traced(tree, "outer", 1) == OUTER
    assert flags(tree) == 0


def test_a_graph_function_is_traced_anew_in_itself(tree: Tree) -> None:
    tree.echo("recurse", "set_graph_function")
    tree.echo("function_graph", "current_tracer")
    assert traced(tree, "recurse", 2) == "recurse() {\n  recurse() {\n    recurse();\n  }\n}"
    assert flags(tree) == 0


def test_a_notrace_function_and_what_it_calls_are_left_out(tree: Tree) -> None:
    tree.echo("middle", "set_graph_notrace")
    tree.echo("function_graph", "current_tracer")
    assert traced(tree, "outer", 1) == "outer();"
    assert traced(tree, "call_tail_call", 1) == (
        "call_tail_call() {\n  tail_call() {\n    inner();\n  }\n}"
    )
    assert flags(tree) == 0
    tree.echo("inner", "set_graph_notrace")
    assert traced(tree, "outer", 1) == "outer() {\n  middle();\n}"


def test_both_together(tree: Tree) -> None:
    tree.echo("outer", "set_graph_function")
    tree.echo("inner", "set_graph_notrace")
    tree.echo("function_graph", "current_tracer")
    assert traced(tree, "outer", 1) == "outer() {\n  middle();\n}"
    assert traced(tree, "middle", 1) == ""
    tree.echo("outer", "set_graph_notrace")
    assert traced(tree, "outer", 1) == ""
    assert flags(tree) == 0


def test_the_function_filter_decides_what_can_be_traced_at_all(tree: Tree) -> None:
    tree.echo("outer", "set_graph_function")
    tree.echo("outer inner", "set_ftrace_filter")
    tree.echo("function_graph", "current_tracer")
    assert traced(tree, "outer", 1) == "outer() {\n  inner();\n}"
    tree.echo("inner", "set_ftrace_filter")
    assert traced(tree, "outer", 1) == ""


@pytest.mark.parametrize("emptied", ["set_graph_function", "set_graph_notrace"])
def test_a_filter_may_go_while_its_function_is_open(tree: Tree, emptied: str) -> None:
    tree.echo("stops" if emptied == "set_graph_function" else "stops_deeper", emptied)
    tree.echo("function_graph", "current_tracer")
    call = Suspended(tree.machine, 5)
    assert flags(tree) != 0
    tree.echo("", emptied)
    assert call.resume() == 6
    assert flags(tree) == 0
    expected = {
        "set_graph_function": "stops() {\n  stops_deeper() {\n    inner();\n    inner();\n  }\n}",
        "set_graph_notrace": "stops();",
    }
    assert calls(tree) == expected[emptied]
    assert traced(tree, "outer", 1) == OUTER


def test_a_filter_may_come_while_a_function_is_open(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    call = Suspended(tree.machine, 5)
    tree.echo("inner", "set_graph_notrace")
    tree.echo("outer", "set_graph_function")
    assert call.resume() == 6
    assert calls(tree) == "stops() {\n  stops_deeper() {\n    inner();\n  }\n}"


def test_flags_that_a_switched_off_tracer_left_are_gone_when_it_returns(tree: Tree) -> None:
    tree.echo("stops", "set_graph_function")
    tree.echo("function_graph", "current_tracer")
    call = Suspended(tree.machine, 5)
    tree.echo("nop", "current_tracer")
    tree.echo("", "set_graph_function")
    tree.echo("function_graph", "current_tracer")
    assert flags(tree) != 0
    assert call.resume() == 6
    assert flags(tree) == 0


# --- the files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "empty"), [("set_graph_function", EVERYTHING), ("set_graph_notrace", NOTHING)]
)
def test_words_of_a_graph_filter(tree: Tree, path: str, empty: str) -> None:
    def refused(data: bytes) -> int:
        descriptor = tree.open(path, W)
        with pytest.raises(TracefsError) as error:
            descriptor.write(data)
        descriptor.close()
        return error.value.errno

    assert tree.read(path) == empty
    descriptor = tree.open(path, W | TRUNC)
    assert descriptor.write(b"outer middle\n") == 6
    assert descriptor.write(b"middle\n") == 7
    descriptor.close()
    assert sorted(tree.read(path).split()) == ["middle", "outer"]
    for word in (b"nosuch\n", b"!nosuch\n", b"!inner\n", b"1\n", b"outer:mod:ext4\n", b":mod:x\n"):
        assert refused(word) == errno.EINVAL
    assert refused(b"a" * 1000) == errno.EINVAL
    tree.write(path, "!outer\n", W)
    assert tree.read(path) == "middle\n"
    tree.write(path, "in", W | APPEND)  # a word that no blank ends is taken at the close
    assert tree.read(path) == "middle\n"
    tree.write(path, "i?ner", W | APPEND)
    assert sorted(tree.read(path).split()) == ["inner", "middle"]
    tree.echo("*", path)
    functions = tree.read("available_filter_functions").split()
    assert sorted(tree.read(path).split()) == sorted(functions)
    tree.open(path, W | TRUNC).close()
    assert tree.read(path) == empty


def test_a_reader_sees_the_filter_in_force(tree: Tree) -> None:
    tree.echo("outer", "set_graph_function")
    both = tree.open("set_graph_function", W | R | 2)
    both.write(b"inner\n")
    both.offset = 0
    assert both.read(100) == b"outer\n"
    writer, reader = tree.open("set_graph_function", W | TRUNC), tree.open("set_graph_function")
    assert reader.read(3) == b"out"
    writer.write(b"middle\n")
    assert reader.read(100) == b"er\n"
    writer.close()
    reader.offset = 0
    assert reader.read(100) == b"middle\n"
    reader.close()
    both.close()
    assert sorted(tree.read("set_graph_function").split()) == ["inner", "outer"]


def test_a_closed_truncation_holds_before_anybody_looks(tree: Tree) -> None:
    tree.echo("outer", "set_graph_function")
    descriptor = tree.open("set_graph_function", W | TRUNC)
    tree.run(descriptor.file.flush)  # the release comes later
    assert tree.read("set_graph_function") == EVERYTHING
    descriptor.close()


# --- limits ---------------------------------------------------------------------------------------


def test_max_graph_depth(tree: Tree) -> None:
    tree.echo("2", "max_graph_depth")
    tree.echo("function_graph", "current_tracer")
    assert traced(tree, "outer", 1) == "outer() {\n  middle();\n}"
    tree.echo("1", "max_graph_depth")
    assert traced(tree, "outer", 1) == "outer();"
    tree.echo("0", "max_graph_depth")
    assert traced(tree, "outer", 1) == OUTER


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("+5", "5"),
        ("010", "10"),
        ("4294967295", "-1"),
        ("4294967296", "0"),
        ("2147483648", "-2147483648"),
        ("18446744073709551615", "-1"),
    ],
)
def test_max_graph_depth_is_cut_to_32_bits(tree: Tree, written: str, read: str) -> None:
    tree.write("max_graph_depth", written)
    assert tree.read("max_graph_depth") == f"{read}\n"


@pytest.mark.parametrize("path", ["max_graph_depth", "tracing_thresh"])
def test_numbers_only(tree: Tree, path: str) -> None:
    tree.write(path, "10")
    for text, code in (
        ("-1", errno.EINVAL),
        ("abc", errno.EINVAL),
        (" 1", errno.EINVAL),
        ("0x10", errno.EINVAL),
        ("9" * 20, errno.ERANGE),
    ):
        with pytest.raises(TracefsError) as error:
            tree.write(path, text)
        assert error.value.errno == code
    assert tree.read(path) == "10\n"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("18446744073709551615", "18446744073709550"),
        ("18446744073709551", "18446744073709551"),
        ("18446744073709552", "0"),
    ],
)
def test_tracing_thresh_counts_nanoseconds(tree: Tree, written: str, read: str) -> None:
    tree.write("tracing_thresh", written)
    assert tree.read("tracing_thresh") == f"{read}\n"


def test_with_a_threshold_only_long_calls_are_told_and_by_name(tree: Tree) -> None:
    # A call takes two readings of the clock, a microsecond each; its entry is not recorded.
    tree.echo("function_graph", "current_tracer")
    tree.echo("2", "tracing_thresh")
    assert traced(tree, "outer", 1) == "  } /* middle */\n} /* outer */"
    tree.echo("4", "tracing_thresh")
    assert traced(tree, "outer", 1) == "} /* outer */"
    tree.echo("0", "tracing_thresh")
    assert traced(tree, "outer", 1) == OUTER


@pytest.mark.parametrize("clock", ["local", "counter"])
def test_a_threshold_is_of_the_local_clock(tree: Tree, clock: str) -> None:
    tree.write("trace_clock", clock)
    tree.echo("2", "tracing_thresh")
    tree.echo("function_graph", "current_tracer")
    assert "} /* outer */" in traced(tree, "outer", 1)
    tree.echo("1000000", "tracing_thresh")
    assert traced(tree, "outer", 1) == ""


def test_a_threshold_may_come_while_a_function_is_open(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    call = Suspended(tree.machine, 5)
    tree.echo("1000000", "tracing_thresh")
    assert call.resume() == 6
    assert calls(tree) == "stops() {\n  stops_deeper() {\n    inner();"


# --- interrupts -----------------------------------------------------------------------------------


def test_what_interrupts_call_can_be_left_out(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    with_irqs = "interrupted() {\n  irq_work() {\n    irq_helper();\n  }\n  inner();\n}"
    assert traced(tree, "interrupted", 1) == with_irqs
    tree.echo("0", "options/funcgraph-irqs")
    assert traced(tree, "interrupted", 1) == "interrupted() {\n  inner();\n}"
    tree.echo("1", "options/funcgraph-irqs")
    assert traced(tree, "interrupted", 1) == with_irqs


def test_a_graph_function_of_an_interrupt_is_traced_all_the_same(tree: Tree) -> None:
    tree.echo("0", "options/funcgraph-irqs")
    tree.echo("irq_work", "set_graph_function")
    tree.echo("function_graph", "current_tracer")
    assert traced(tree, "interrupted", 1) == "irq_work() {\n  irq_helper();\n}"
    tree.echo("interrupted", "set_graph_function")
    assert traced(tree, "interrupted", 1) == "interrupted() {\n  inner();\n}"
    assert flags(tree) == 0
