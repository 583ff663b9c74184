"""The option display-graph: the latency tracers show calls with their returns."""

from __future__ import annotations

import errno
import re

import pytest
from support.graph_kernel import graph_kernel
from support.latency import RT_PRIO, sleep, task, tick, wake
from support.shell import Shell
from support.tracefs import Tree, tracefs

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace.fgraph import FgraphOps
from ftracefs.ring_buffer.entries import merge

LEGEND = """\
#                                       _-----=> irqs-off        
#                                      / _----=> need-resched    
#                                     | / _---=> hardirq/softirq 
#                                     || / _--=> preempt-depth   
#                                     ||| /                      
#   REL TIME      CPU  TASK/PID       ||||     DURATION                  FUNCTION CALLS
#      |          |     |    |        ||||      |   |                     |   |   |   |
"""  # noqa: W291
OFF_ONLY = ("irqsoff", "preemptoff", "preemptirqsoff")


def calls(text: str) -> list[str]:
    """What is printed of calls and returns, without the columns."""
    lines = [line.split("|  ")[-1] for line in text.splitlines() if " us |   " in line]
    return [line for line in lines if not line.strip().startswith("/*")]


def nesting(lines: list[str]) -> list[int]:
    """How deep each stands; every brace that is closed was opened at its own depth."""
    depths, opened = [], []
    for line in lines:
        depth = len(line) - len(line.lstrip(" "))
        assert depth % 2 == 0
        depths.append(depth // 2)
        if line.endswith("{"):
            opened.append(depth)
        elif line.strip().startswith("}"):
            assert line.endswith("*/") or opened.pop() == depth
    return depths


def graphed(shell: Shell, tracer: str = "irqsoff") -> None:
    shell.echo("1", "options/display-graph")
    shell.echo(tracer, "current_tracer")


def measured(shell: Shell) -> list[str]:
    """What a timer interrupt leaves when it is the worst case."""
    shell.echo("0", "tracing_max_latency")
    tick(shell)
    return calls(shell.cat("trace"))


def errno_of(shell: Shell, text: str, path: str) -> int:
    try:
        shell.echo(text, path)
    except TracefsError as error:
        return error.errno
    return 0


# --- what is recorded and printed ----------------------------------------------------------------


def test_a_section_is_shown_with_calls_inside_each_other(shell: Shell) -> None:
    graphed(shell)
    tick(shell)
    text = shell.cat("trace")
    assert LEGEND in text
    assert re.search(rf"^# latency: {shell.cat('tracing_max_latency').strip()} us, ", text, re.M)
    lines = calls(text)
    depths = nesting(lines)
    assert max(depths) > 4
    first, last = "sysvec_apic_timer_interrupt();", "tracer_hardirqs_on();"
    assert (lines[0], lines[-1]) == (first, last)
    assert "  hrtimer_interrupt() {" in lines
    # The tracer's own lines take no time; the others do, in the middle of it.
    own = [line for line in text.splitlines() if first in line or last in line]
    assert all("|   0.000 us    |  " in line for line in own)
    assert re.search(r"\|   \d+\.000 us +\|  +}$", text, re.M)
    states = re.findall(r"\|  (\S{5}) \| ", text)
    assert all(state.startswith("d") for state in states)
    # A call is entered one level of preemption deeper than it returns.
    entered = re.search(r"\| +\S{3}(\S)\S \| .* {2}hrtimer_interrupt\(\) {$", text, re.M)
    returned = re.search(r"\| +\S{3}(\S)\S \| .*\|    }$", text, re.M)
    assert entered
    assert returned
    assert (entered[1], returned[1]) == ("1", ".")


def test_the_stack_stands_behind_the_calls_as_in_the_latency_format(shell: Shell) -> None:
    graphed(shell)
    tick(shell)
    text = shell.cat("trace")
    found = re.search(r"\n +\S+-\d+ +0d\S{4} +\d+us : <stack trace>\n((?: => \w+\n)+)", text)
    assert found
    stack = re.findall(r" => (\w+)", found[1])
    assert calls(text)[-2] == f"{stack[0]}();"
    assert "asm_sysvec_apic_timer_interrupt" in stack


@pytest.mark.parametrize("tracer", [*OFF_ONLY, "wakeup", "wakeup_rt"])
def test_calls_come_through_fgraph_and_go_with_the_tracer(shell: Shell, tracer: str) -> None:
    graphed(shell, tracer)
    enabled = shell.cat("enabled_functions").splitlines()
    assert len(enabled) > 1000
    assert all("->ftrace_graph_func+0x0/" in line for line in enabled)
    assert errno_of(shell, "1", "function_profile_enabled") == errno.EBUSY
    shell.echo("nop", "current_tracer")
    assert shell.cat("enabled_functions") == ""
    assert shell.cat("options/display-graph") == "1\n"
    shell.echo("1", "function_profile_enabled")


def test_the_wait_of_a_task_is_shown_with_comments(shell: Shell) -> None:
    process = task(shell, 2000, RT_PRIO)
    sleep(shell)
    graphed(shell, "wakeup_rt")
    wake(shell, process)
    text = shell.cat("trace")
    assert LEGEND in text
    lines = [line for line in text.splitlines() if "/* " in line]
    column = r" +\d+ us \|   0\) .{14} \|  \S{5} \|               \|  "
    who = rf"\[000\]    2000: {RT_PRIO}:\w task2000 \*/$"
    assert len(lines) == 2
    assert re.match(rf"{column}/\* +\d+:120:\w   \+ {who}", lines[0])
    assert re.match(rf"{column} */\* +\d+:120:\w ==> {who}", lines[1])
    names = [line.strip(" (){};") for line in calls(text)]
    assert names[0] == "ttwu_do_wakeup"
    assert names[-1] == "__traceiter_sched_switch"
    assert "schedule_idle() {" in calls(text)
    assert text.count("<stack trace>") == 2


def test_it_takes_effect_at_once_and_begins_anew(shell: Shell) -> None:
    shell.echo("irqsoff", "current_tracer")
    tick(shell)
    functions = shell.cat("trace")
    assert " <-" in functions
    shell.echo("1", "options/display-graph")
    assert shell.cat("tracing_max_latency") == "0\n"
    # What the tracer saw before stays, under the other heads, until there is something worse.
    text = shell.cat("trace")
    assert LEGEND in text
    assert [line for line in text.splitlines() if line[0] != "#"] == [
        line for line in functions.splitlines() if line[0] != "#"
    ]
    tick(shell)
    assert nesting(calls(shell.cat("trace")))
    graph = shell.cat("trace")
    assert " <-" not in graph
    shell.echo("0", "options/display-graph")
    assert shell.cat("tracing_max_latency") == "0\n"
    # Now each of these lines has the context of every other record in front.
    text = shell.cat("trace")
    assert "#  cmd     pid     |||||| time  |   caller" in text
    own = [line.split(" : ") for line in text.splitlines() if " : " in line and "=>" not in line]
    assert all(re.match(r" +\S+-\d+ +0d\S{4} +\d+us$", front) for front, _ in own)
    shown = [line.split("|  ")[-1] for _, line in own[:-1]]
    assert shown == calls(graph)
    assert re.match(
        r" 0\)  d\S{4} \|   0.000 us    \|  sysvec_apic_timer_interrupt\(\);", own[0][1]
    )
    tick(shell)
    assert " <-" in shell.cat("trace")


def test_calls_are_recorded_only_with_function_trace(shell: Shell) -> None:
    shell.echo("0", "options/function-trace")
    graphed(shell)
    assert shell.cat("enabled_functions") == ""
    lines = measured(shell)
    assert len(lines) in (3, 4)
    assert set(nesting(lines)) == {0}
    assert all(line.endswith("();") for line in lines)
    shell.echo("1", "options/function-trace")
    assert "->ftrace_graph_func+0x0/" in shell.cat("enabled_functions")
    assert max(nesting(measured(shell))) > 4
    shell.echo("0", "options/function-trace")
    assert shell.cat("enabled_functions") == ""
    assert set(nesting(measured(shell))) == {0}


def test_trace_pipe_remembers_nothing_of_what_it_printed(shell: Shell) -> None:
    graphed(shell, "wakeup")
    shell.echo("1000000", "tracing_max_latency")  # no worst case, so the records stay
    for pid in (2000, 2001):
        process = task(shell, pid, RT_PRIO)
        sleep(shell)
        wake(shell, process)
        sleep(shell)
    text = shell.cat("trace_pipe")
    assert "------------------------------------------" not in text
    assert " 2000: 94:R task2000 */" in text
    assert " 2001: 94:R task2001 */" in text
    # Comments stand at the margin, and no brace is thought to be another's.
    assert len(re.findall(r"\|  /\* ", text)) >= 4
    assert "} /* " not in text
    assert re.search(r" +\d+ us \|   0\) .*\|  +}$", text, re.M)


# --- filters, limits, thresholds -----------------------------------------------------------------


def test_graph_functions_and_depths_are_obeyed(shell: Shell) -> None:
    graphed(shell)
    shell.echo("tick_sched_timer", "set_graph_function")
    lines = measured(shell)
    assert lines[1] == "tick_sched_timer() {"
    assert "}" in lines
    assert nesting(lines)
    shell.echo("", "set_graph_function")
    shell.echo("2", "max_graph_depth")
    assert max(nesting(measured(shell))) == 1
    shell.echo("0", "max_graph_depth")
    assert max(nesting(measured(shell))) > 4


def test_of_a_notrace_function_only_the_return_is_seen_and_what_it_calls(shell: Shell) -> None:
    graphed(shell)
    shell.echo("tick_sched_timer", "set_graph_notrace")
    lines = measured(shell)
    assert not [line for line in lines if "tick_sched_timer() {" in line]
    returned = [line for line in lines if line.strip() == "} /* tick_sched_timer */"]
    assert len(returned) == 1
    inside = next(line for line in lines if "tick_sched_handle() {" in line)
    assert inside.index("t") == returned[0].index("}") + 2


def test_a_threshold_is_for_sections_and_not_for_calls(shell: Shell) -> None:
    graphed(shell)
    shell.echo("1000000", "tracing_thresh")
    tick(shell)
    assert shell.cat("tracing_max_latency") == "0\n"
    shell.echo("10", "tracing_thresh")
    tick(shell)
    text = shell.cat("trace")
    assert int(shell.cat("tracing_max_latency")) > 10
    assert "|   2.000 us    |  " in text


def test_options_of_function_graph_change_nothing(shell: Shell) -> None:
    graphed(shell)
    tick(shell)
    before = shell.cat("trace")
    for option in ("abstime", "proc", "overrun", "tail", "cpu", "duration", "overhead"):
        name = f"options/funcgraph-{option}"
        value = "0" if shell.cat(name) == "1\n" else "1"
        shell.echo(value, name)
        assert shell.cat("trace") == before
    shell.echo("0", "options/funcgraph-irqs")
    assert max(nesting(measured(shell))) > 4


# --- beside others -------------------------------------------------------------------------------


def test_function_graph_has_one_user(shell: Shell) -> None:
    shell.mkdir("instances/a")
    shell.echo("wakeup", "instances/a/current_tracer")
    shell.echo("1", "instances/a/options/display-graph")
    assert errno_of(shell, "function_graph", "current_tracer") == errno.EBUSY
    shell.echo("irqsoff", "current_tracer")
    assert errno_of(shell, "1", "options/display-graph") == errno.EINVAL
    assert shell.cat("options/display-graph") == "0\n"
    shell.echo("0", "instances/a/options/display-graph")
    shell.echo("1", "options/display-graph")
    assert errno_of(shell, "1", "instances/a/options/display-graph") == errno.EINVAL
    tick(shell)
    assert nesting(calls(shell.cat("trace")))
    shell.echo("nop", "current_tracer")
    shell.rmdir("instances/a")
    assert shell.cat("enabled_functions") == ""


def test_an_instance_that_had_the_option_before_records_functions(shell: Shell) -> None:
    """As Linux does, which then ends what it has not begun, and leaves what it has."""
    shell.mkdir("instances/a")
    shell.echo("1", "instances/a/options/display-graph")
    shell.echo("irqsoff", "instances/a/current_tracer")
    assert "->irqsoff_tracer_call+0x0/" in shell.cat("enabled_functions")
    tick(shell)
    text = shell.cat("instances/a/trace")
    assert LEGEND in text
    assert ": irq_enter_rcu <-sysvec_apic_timer_interrupt\n" in text
    shell.echo("wakeup", "instances/a/current_tracer")
    assert errno_of(shell, "0", "instances/a/options/display-graph") == errno.EINVAL
    assert shell.cat("instances/a/options/display-graph") == "1\n"
    shell.echo("nop", "instances/a/current_tracer")
    shell.rmdir("instances/a")
    assert shell.cat("enabled_functions") == ""


# --- the guest's code ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["irqsoff", "wakeup"])
def test_a_traced_function_keeps_what_it_returns(kind: str) -> None:
    with tracefs(image=graph_kernel(), poison=True) as tree:
        _measure_always(tree, kind)
        label = tree.tracing.label
        gops = FgraphOps(label(f"{kind}_graph_entry"), label(f"{kind}_graph_return"))
        tree.run(lambda: tree.tracing.ftrace.fgraph.register_ftrace_graph(gops=gops))
        assert tree.call("sum_of_results", 7) == 35 << 32 | 21
        assert tree.call("outer", 1) == 112
        tree.run(tree.tracing.ftrace.fgraph.unregister_ftrace_graph)
        entries = merge(tree.run(tree.tr.buffer.snapshot))
        assert entries.type.tolist() == [11, 11, 10, 10, 11, 11, 11, 10, 10, 10]
        assert entries.u32(16).tolist() == [0, 1, 1, 0, 0, 1, 2, 2, 1, 0]
        assert tree.call("outer", 1) == 112


def _measure_always(tree: Tree, kind: str) -> None:
    memory, label = tree.machine.memory, tree.tracing.label
    tree.tr.ops.private = tree.tr.buffer.table
    tree.tr.ops.write_guest()
    memory.set_u64(label(f"{kind}_ops"), tree.tr.ops.address)
    if kind == "irqsoff":
        memory.set_u32(label("irqsoff_cpu"), 1)
        percpu = tree.machine.cpus[0].percpu
        memory.set_u8(percpu + CONSTANTS["IRQ_FLAGS"], CONSTANTS["TRACE_FLAG_IRQS_OFF"])
    else:
        memory.set_u64(label("wakeup_task"), tree.machine.cpus[0].current)
        memory.set_u32(label("wakeup_current_cpu"), 0)
