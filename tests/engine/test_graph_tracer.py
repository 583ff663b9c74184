"""The function graph tracer on a real machine: what is recorded, and that nothing else changes."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

import pytest
from support.graph_kernel import Suspended, graph_kernel
from support.tracefs import PID, Tree, W, tracefs

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.errors import GuestFault
from ftracefs.errors import TracefsError

RECURSION_LIMIT = CONSTANTS["FTRACE_RETFUNC_DEPTH"]


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs(image=graph_kernel(), poison=True) as tree:
        yield tree


def calls(tree: Tree, path: str = "trace") -> str:
    """What is printed of calls, without the columns."""
    lines = tree.read(path).splitlines()
    return "\n".join(line.split("|  ")[-1] for line in lines if not line.startswith("#"))


def trace_only(tree: Tree, *functions: str) -> None:
    tree.echo(" ".join(functions), "set_ftrace_filter")
    tree.echo("function_graph", "current_tracer")


def task(tree: Tree) -> int:
    return tree.machine.cpus[0].current


def refusal(tree: Tree, text: str, path: str) -> int:
    with pytest.raises(TracefsError) as error:
        tree.write(path, text, W)
    return error.value.errno


# --- what is recorded -----------------------------------------------------------------------------


def test_calls_and_returns_are_nested(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    assert tree.call("outer", 5) == 116
    assert calls(tree) == "outer() {\n  middle() {\n    inner();\n  }\n}"


def test_durations_are_those_of_the_clock(tree: Tree) -> None:
    # On the virtual clock every reading is a microsecond later than the one before.
    trace_only(tree, "outer", "middle", "inner")
    tree.call("outer", 5)
    assert re.findall(r"(\d+\.\d+) us", tree.read("trace")) == ["1.000", "3.000", "5.000"]


@pytest.mark.parametrize("clock", ["global", "counter", "uptime", "mono", "boot", "x86-tsc"])
def test_durations_are_nanoseconds_whatever_stamps_the_records(clock: str) -> None:
    with tracefs(image=graph_kernel(), clock="real") as tree:
        tree.write("trace_clock", clock)
        trace_only(tree, "outer", "inner")
        tree.call("outer", 5)
        tree.write("trace_clock", clock)
        tree.call("outer", 5)
        tree.call("outer", 5)
        durations = [float(us) for us in re.findall(r"([\d.]+) us", tree.read("trace"))]
    assert len(durations) == 4
    assert all(0 < us < 1e6 for us in durations)
    assert durations[0] < durations[1]


def test_every_result_comes_back(tree: Tree) -> None:
    def results() -> list[int]:
        return [
            tree.call("outer", 5),
            tree.call("sum_of_results", 7),
            tree.call("recurse", 20),
            tree.call("call_tail_call", 1),
            tree.call("interrupted", 3),
            tree.call("six_sum", 1, 2, 3, 4, 5, 6),
            tree.call("loop_add", 9),
        ]

    untraced = results()
    assert untraced[1] == 35 << 32 | 21
    tree.echo("function_graph", "current_tracer")
    assert results() == untraced
    for path, text in (
        ("set_graph_function", "outer"),
        ("set_graph_notrace", "middle"),
        ("max_graph_depth", "2"),
        ("tracing_thresh", "3"),
        ("options/funcgraph-irqs", "0"),
        ("trace_clock", "counter"),
        ("tracing_on", "0"),
    ):
        tree.write(path, text)
        assert results() == untraced, path
    tree.echo("nop", "current_tracer")
    assert results() == untraced


def test_all_registers_but_the_callees_own_are_kept() -> None:
    with tracefs(image=graph_kernel()) as tree:
        memory = tree.machine.memory
        words = tree.machine.alloc(4096)
        nothing = tree.machine.image.labels["nothing"]
        seen = []
        for tracer in ("nop", "function_graph"):
            for index in range(16):
                memory.set_u64(words + 8 * index, 0x1111 * (index + 1))
            memory.set_u64(words + 8 * 7, 0x202)
            tree.echo(tracer, "current_tracer")
            tree.call("with_registers", nothing, words, words + 1024)
            seen.append([memory.u64(words + 1024 + 8 * index) for index in range(16)])
        result = {0: "rax", 3: "rdx"}
        kept = {1: "rbx", 6: "rbp", 12: "r12", 13: "r13", 14: "r14", 15: "r15"}
        for index in {**result, **kept}:
            assert seen[0][index] == seen[1][index]
        assert "nothing();" in tree.read("trace")


def test_a_record_holds_what_the_format_says(tree: Tree) -> None:
    trace_only(tree, "outer")
    tree.call("outer", 5)
    pages = tree.open("per_cpu/cpu0/trace_pipe_raw").read(4096)
    assert isinstance(pages, bytes)
    outer = tree.machine.image.labels["outer"]
    entry, leave = pages[16 : 16 + 24], pages[40 : 40 + 44]
    assert entry[4:] == b"\x0b\0\0\1" + PID.to_bytes(4, "little") + outer.to_bytes(
        8, "little"
    ) + bytes(4)
    assert int.from_bytes(entry[:4], "little") & 31 == 5
    assert leave[4:20] == b"\x0a\0\0\0" + PID.to_bytes(4, "little") + outer.to_bytes(8, "little")
    assert leave[20:28] == bytes(8)
    calltime, rettime = (int.from_bytes(leave[at : at + 8], "little") for at in (28, 36))
    assert rettime - calltime == 1000
    assert int.from_bytes(leave[:4], "little") == 1000 << 5 | 10


def test_through_the_list_function_an_entry_shows_one_level_more(tree: Tree) -> None:
    ftrace = tree.tracing.ftrace
    stub = tree.machine.image.labels["count_call"]
    counter = tree.machine.alloc(64)
    ops = tree.run(lambda: ftrace.new_ops(stub, private=counter))
    tree.echo("1", "options/latency-format")
    trace_only(tree, "inner")
    tree.call("inner", 1)
    tree.run(lambda: ftrace.register_ftrace_function(ops))
    tree.call("inner", 1)
    assert re.findall(r"  (\S+) \| .*inner", tree.read("trace")) == ["...1.", "...2."]
    assert tree.machine.memory.u64(counter) == 1


# --- the shadow stack -----------------------------------------------------------------------------


def test_more_calls_than_the_stack_holds_return_right_and_are_counted(tree: Tree) -> None:
    trace_only(tree, "recurse")
    tree.echo("1", "options/funcgraph-overrun")
    depth = RECURSION_LIMIT + 10
    assert tree.call("recurse", depth - 1) == depth - 1
    text = tree.read("trace")
    assert text.count("recurse()") == RECURSION_LIMIT
    assert "(Overruns: 10)" in text
    fgraph = tree.tracing.ftrace.fgraph
    assert fgraph.trace_overrun(task(tree)) == 10
    assert fgraph.ret_stack(task(tree)) == []


def test_a_tail_call_is_nested_and_both_return_at_once(tree: Tree) -> None:
    trace_only(tree, "call_tail_call", "tail_call", "inner")
    assert tree.call("call_tail_call", 1) == 1102
    assert calls(tree) == "call_tail_call() {\n  tail_call() {\n    inner();\n  }\n}"


def test_tasks_have_stacks_of_their_own(tree: Tree) -> None:
    machine = tree.machine
    other = machine.alloc(4096) + 512
    machine.memory.set_u32(other + CONSTANTS["TASK_PID"], 77)
    stack = machine.alloc(CONSTANTS["STACK_BYTES"]) + CONSTANTS["STACK_BYTES"]
    trace_only(tree, "ping", "pong", "take_turn", "wait_for")
    assert tree.call("ping", other, stack - 64) == 3
    assert machine.cpus[0].current == task(tree)
    lines = [line for line in calls(tree).splitlines() if line and " => " not in line]
    assert [line for line in lines if "----" not in line] == [
        "ping() {",
        "  wait_for() {",
        "pong() {",
        "  take_turn();",
        "  wait_for() {",
        "  }",
        "  wait_for() {",
        "  }",
        "  take_turn();",
        "  wait_for() {",
        "  }",
        "  wait_for() {",
        "  }",
        "  take_turn();",
        "  wait_for() {",
        "  }",
        "} /* ping */",
    ]
    fgraph = tree.tracing.ftrace.fgraph
    assert [frame.func for frame in fgraph.ret_stack(other)] == [
        machine.image.labels["pong"],
        machine.image.labels["wait_for"],
    ]
    assert fgraph.ret_stack(task(tree)) == []


def test_time_asleep_counts_unless_sleep_time_is_off(tree: Tree) -> None:
    machine = tree.machine
    durations = []
    for sleep_time in ("1", "0"):
        other = machine.alloc(4096) + 512
        stack = machine.alloc(CONSTANTS["STACK_BYTES"]) + CONSTANTS["STACK_BYTES"]
        tree.echo("nop", "current_tracer")
        tree.echo(sleep_time, "options/sleep-time")
        trace_only(tree, "ping", "take_turn")
        tree.call("ping", other, stack - 64)
        last = tree.read("trace").splitlines()[-1]
        durations.append(float(last.split("us")[0].split()[-1]))
    with_sleep, without = durations
    # Asleep it was three times, each with a call that takes two readings of the clock; without
    # sleep-time the readings at the switches themselves come on top.
    assert with_sleep == 7.0
    assert without < 7.0


def test_a_new_task_gets_a_stack_with_its_first_call(tree: Tree) -> None:
    trace_only(tree, "inner")
    memory, fgraph = tree.machine.memory, tree.tracing.ftrace.fgraph
    ready = memory.u32(tree.tracing.label("ret_stack_count"))
    cpu = tree.machine.cpus[0]
    first = cpu.current
    tasks = [tree.machine.alloc(CONSTANTS["TASK_SIZE"]) for _ in range(3 * ready)]
    for number, new in enumerate(tasks):
        memory.set_u32(new + CONSTANTS["TASK_PID"], 2000 + number)
        tree.run(lambda new=new: cpu.set_word("CURRENT_TASK", new))
        assert tree.call("inner", 1) == 101
    tree.run(lambda: cpu.set_word("CURRENT_TASK", first))
    assert calls(tree).count("inner();") == len(tasks)
    assert len({memory.u64(new + CONSTANTS["TASK_RET_BASE"]) for new in tasks}) == len(tasks)
    assert memory.u32(tree.tracing.label("ret_stack_count")) > 0
    assert all(fgraph.ret_stack(new) == [] for new in tasks)


def test_without_a_stack_to_give_a_task_runs_untraced(tree: Tree) -> None:
    trace_only(tree, "inner")
    memory = tree.machine.memory
    memory.set_u64(tree.tracing.label("ret_stack_list"), 0)
    memory.set_u64(task(tree) + CONSTANTS["TASK_RET_BASE"], 0)
    memory.set_u64(task(tree) + CONSTANTS["TASK_RET_TOP"], 0)
    memory.set_u64(task(tree) + CONSTANTS["TASK_RET_END"], 0)
    assert tree.call("inner", 1) == 101
    assert calls(tree) == ""


def test_a_call_that_ends_in_a_fault_leaves_no_frames(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    for _ in range(2):
        with pytest.raises(GuestFault):
            tree.call("crash")
        assert tree.tracing.ftrace.fgraph.ret_stack(task(tree)) == []
    tree.echo("nop", "current_tracer")
    tree.echo("function_graph", "current_tracer")
    tree.call("inner", 1)
    assert calls(tree) == "inner();"


def test_a_paused_task_is_not_traced_and_what_it_left_open_returns(tree: Tree) -> None:
    fgraph = tree.tracing.ftrace.fgraph
    trace_only(tree, "inner")
    tree.run(lambda: fgraph.pause_graph_tracing(task(tree)))
    tree.run(lambda: fgraph.pause_graph_tracing(task(tree)))
    tree.run(lambda: fgraph.unpause_graph_tracing(task(tree)))
    assert tree.call("inner", 1) == 101
    assert calls(tree) == ""
    assert fgraph.trace_overrun(task(tree)) == 0
    tree.run(lambda: fgraph.unpause_graph_tracing(task(tree)))
    tree.call("inner", 1)
    assert calls(tree) == "inner();"


def test_the_real_return_addresses_can_be_told(tree: Tree) -> None:
    """As whoever walks the stack has to: here in the middle of a call, from a hypercall."""
    labels, memory = tree.machine.image.labels, tree.machine.memory
    fgraph, kallsyms = tree.tracing.ftrace.fgraph, tree.tracing.ftrace.kallsyms
    seen: list[str] = []

    def walk(vcpu: object) -> None:
        cpu = tree.machine.cpus[0]
        (rbp,) = cpu.get("rbp")
        while rbp:
            ret = fgraph.ftrace_graph_ret_addr(cpu.current, memory.u64(rbp + 8), rbp + 8)
            seen.append(kallsyms.sprint_symbol_no_offset(ret))
            rbp = memory.u64(rbp)

    tree.machine.hypercalls[CONSTANTS["HC_CALLBACK"]] = walk
    ops = tree.run(lambda: tree.tracing.ftrace.new_ops(labels["ask_host"]))
    tree.run(lambda: tree.tracing.ftrace.register_ftrace_function(ops))
    trace_only(tree, "outer", "middle")
    tree.echo("function_graph", "current_tracer")
    tree.call("outer", 1)
    assert "return_to_handler" not in seen
    assert seen[-2:] == ["outer", "host_return"]
    frame = fgraph.ftrace_graph_get_ret_stack(task(tree), 0)
    assert frame is None
    assert fgraph.ftrace_graph_ret_addr(task(tree), labels["outer"], 0) == labels["outer"]


# --- coming and going -----------------------------------------------------------------------------


def test_calls_that_are_open_when_the_tracer_goes_return_unrecorded(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    call = Suspended(tree.machine, 5)
    fgraph = tree.tracing.ftrace.fgraph
    assert len(fgraph.ret_stack(task(tree))) == 2
    tree.echo("nop", "current_tracer")
    assert len(fgraph.ret_stack(task(tree))) == 2
    tree.echo("function", "current_tracer")
    assert call.resume() == 6
    assert fgraph.ret_stack(task(tree)) == []
    recorded = [line for line in tree.read("trace").splitlines() if not line.startswith("#")]
    assert [line.split(": ")[1] for line in recorded] == ["inner <-stops_deeper"]


def test_calls_that_are_open_when_it_comes_back_are_closed_by_name(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    call = Suspended(tree.machine, 5)
    tree.echo("nop", "current_tracer")
    tree.echo("function_graph", "current_tracer")
    assert call.resume() == 6
    assert calls(tree) == "    inner();\n  } /* stops_deeper */\n} /* stops */"


def test_with_tracing_off_open_calls_return_unrecorded(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    call = Suspended(tree.machine, 5)
    tree.echo("0", "tracing_on")
    assert call.resume() == 6
    tree.echo("1", "tracing_on")
    tree.call("outer", 1)
    assert calls(tree) == (
        "stops() {\n  stops_deeper() {\n    inner();\nouter() {\n  middle() {\n    inner();\n  }\n}"
    )


def test_text_is_as_before_when_the_tracer_has_gone(tree: Tree) -> None:
    address, data = tree.machine.image.segments[".text"]
    before = tree.machine.memory.read(address, len(data))
    tree.echo("function_graph", "current_tracer")
    assert tree.read("enabled_functions").count("(ftrace_graph_func+0x0/") == len(
        tree.read("available_filter_functions").split()
    )
    tree.echo("nop", "current_tracer")
    assert tree.read("enabled_functions") == ""
    assert tree.machine.memory.read(address, len(data)) == before


def test_the_function_filters_are_its_filters(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    tree.echo("inner", "set_ftrace_filter")
    tree.call("outer", 1)
    tree.echo("outer inner", "set_ftrace_filter")
    tree.echo("inner", "set_ftrace_notrace")
    tree.call("outer", 1)
    assert calls(tree) == "inner();\nouter();"
    assert tree.read("enabled_functions").split()[0] == "outer"


def test_with_ftrace_disabled_it_answers_enodev(tree: Tree) -> None:
    tree.run(lambda: tree.tracing.ftrace.report_bug("a test"))
    for _ in range(2):
        assert refusal(tree, "function_graph", "current_tracer") == errno.ENODEV
    assert tree.read("current_tracer") == "nop\n"
    for path in ("set_graph_function", "set_graph_notrace"):
        with pytest.raises(TracefsError) as error:
            tree.open(path)
        assert error.value.errno == errno.ENODEV


def test_one_user_at_a_time(tree: Tree) -> None:
    fgraph = tree.tracing.ftrace.fgraph
    tree.echo("function_graph", "current_tracer")
    with pytest.raises(TracefsError) as error:
        tree.run(lambda: fgraph.register_ftrace_graph(tree.tr.buffer.table))
    assert error.value.errno == errno.EBUSY
    tree.echo("nop", "current_tracer")
    tree.run(lambda: fgraph.register_ftrace_graph(tree.tr.buffer.table))
    assert refusal(tree, "function_graph", "current_tracer") == errno.EBUSY
    assert tree.read("current_tracer") == "nop\n"
    tree.run(fgraph.unregister_ftrace_graph)
    tree.echo("function_graph", "current_tracer")
    assert tree.read("current_tracer") == "function_graph\n"
