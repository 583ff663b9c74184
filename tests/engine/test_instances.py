"""Instances: trace arrays beside the top level's, made and removed by mkdir and rmdir."""

from __future__ import annotations

import errno
import os
import re

import pytest
from support.shell import CALLER, Shell, isolated

from emulated_kernel.text_poke import CALL_INSN_SIZE
from ftracefs.errors import TracefsError
from ftracefs.files.base import TracefsFile
from ftracefs.ftrace.modify import addr_from_call

CALLS_ITS_OWN = "call site: trampoline of {}, which calls function_trace_call"
IS_SHARED = "call site: ftrace_caller+0x0/"


def site(shell: Shell, function: str) -> str:
    """What the call site of a function does now, by its disassembly."""
    return shell.cat(f"emulator/text/{function}")


def calls(shell: Shell, path: str) -> list[str]:
    """The calls that a trace shows, `function <-caller` each."""
    return re.findall(r": (\w+ <-\w+)$", shell.cat(path), re.MULTILINE)


def refused(shell: Shell, action: str, *arguments: str) -> int:
    with pytest.raises(TracefsError) as error:
        getattr(shell, action)(*arguments)
    return error.value.errno


def trace(shell: Shell, where: str, functions: str) -> None:
    shell.echo(functions, f"{where}set_ftrace_filter")
    shell.echo("function", f"{where}current_tracer")


def test_an_instance_records_what_its_own_filter_lets_through(shell: Shell) -> None:
    shell.mkdir("instances/a")
    shell.mkdir("instances/b")
    trace(shell, "instances/a/", "gcd")
    trace(shell, "instances/b/", "lcm")
    shell.echo("lcm 4 6", "emulator/call")
    assert calls(shell, "instances/a/trace") == ["gcd <-lcm"]
    assert calls(shell, "instances/b/trace") == ["lcm <-host_call"]
    assert calls(shell, "trace") == []


def test_one_op_two_ops_one_op_goes_trampoline_list_trampoline(shell: Shell) -> None:
    shell.mkdir("instances/a")
    shell.mkdir("instances/b")
    nop = site(shell, "gcd")
    trace(shell, "instances/a/", "gcd")
    assert CALLS_ITS_OWN.format("instances/a") in site(shell, "gcd")
    trace(shell, "instances/b/", "gcd lcm")
    assert IS_SHARED in site(shell, "gcd")
    assert CALLS_ITS_OWN.format("instances/b") in site(shell, "lcm")
    assert re.search(
        r"^gcd \(2\) +->arch_ftrace_ops_list_func", shell.cat("enabled_functions"), re.M
    )
    shell.echo("lcm 4 6 x3", "emulator/call")
    assert calls(shell, "instances/a/trace") == ["gcd <-lcm"] * 3
    assert calls(shell, "instances/b/trace") == ["lcm <-host_call", "gcd <-lcm"] * 3
    shell.echo("nop", "instances/a/current_tracer")
    assert CALLS_ITS_OWN.format("instances/b") in site(shell, "gcd")
    shell.rmdir("instances/b")
    assert site(shell, "gcd") == nop


def test_a_million_calls_traced_by_two_ops_raise_no_hypercall(shell: Shell) -> None:
    def hypercalls() -> int:
        found = re.search(r"^hypercalls: +(\d+)$", shell.cat("emulator/kernel"), re.MULTILINE)
        assert found is not None
        return int(found[1])

    shell.mkdir("instances/a")
    trace(shell, "instances/a/", "gcd")
    trace(shell, "", "gcd")
    before = hypercalls()
    shell.echo("gcd 12 18 x1000000", "emulator/call")
    assert hypercalls() - before < 100
    for stats in ("per_cpu/cpu0/stats", "instances/a/per_cpu/cpu0/stats"):
        numbers = dict(re.findall(r"^([\w ]+): +(\d+)$", shell.cat(stats), re.MULTILINE))
        assert int(numbers["entries"]) + int(numbers["overrun"]) == 1_000_000


def test_switches_sizes_clocks_and_markers_are_an_instances_own(shell: Shell) -> None:
    shell.mkdir("instances/a")
    shell.echo("0", "tracing_on")
    shell.echo("counter", "instances/a/trace_clock")
    shell.echo("64", "instances/a/buffer_size_kb")
    shell.echo("1", "instances/a/options/sym-offset")
    assert shell.cat("instances/a/tracing_on") == "1\n"
    assert "[local]" in shell.cat("trace_clock")
    assert shell.cat("buffer_size_kb") != shell.cat("instances/a/buffer_size_kb")
    assert shell.cat("options/sym-offset") == "0\n"
    shell.echo("hello", "instances/a/trace_marker")
    assert "hello" in shell.cat("instances/a/trace")
    shell.echo("1", "tracing_on")
    assert "hello" not in shell.cat("trace")


def test_a_new_instance_takes_over_options_and_nothing_else(shell: Shell) -> None:
    shell.echo("1", "options/sym-addr")
    shell.echo("0", "options/overwrite")
    shell.echo("1", "options/function-fork")
    shell.echo("1", "options/test_nop_accept")
    shell.echo("0", "tracing_on")
    shell.echo("counter", "trace_clock")
    shell.echo("lcm", "set_ftrace_filter")
    shell.mkdir("instances/a")
    for option, value in {
        "sym-addr": 1,
        "overwrite": 0,
        "function-fork": 0,
        "test_nop_accept": 1,
    }.items():
        assert shell.cat(f"instances/a/options/{option}") == f"{value}\n", option
    assert shell.cat("instances/a/tracing_on") == "1\n"
    assert "[local]" in shell.cat("instances/a/trace_clock")
    assert shell.cat("instances/a/set_ftrace_filter") == "#### all functions enabled ####\n"
    # Full, a buffer that does not overwrite drops what comes.
    shell.echo("64", "instances/a/buffer_size_kb")
    trace(shell, "instances/a/", "gcd")
    shell.echo("gcd 4 6 x100000", "emulator/call")
    assert re.search(r"^dropped events: [1-9]", shell.cat("instances/a/per_cpu/cpu0/stats"), re.M)


def test_only_tracers_for_instances_are_offered_and_taken(shell: Shell) -> None:
    shell.mkdir("instances/a")
    offered = "wakeup_dl wakeup_rt wakeup preemptirqsoff preemptoff irqsoff function nop\n"
    assert shell.cat("instances/a/available_tracers") == offered
    error = refused(shell, "echo", "function_graph", "instances/a/current_tracer")
    assert error == errno.EINVAL
    assert shell.cat("instances/a/current_tracer") == "nop\n"


@pytest.mark.parametrize("name", ["trace_pipe", "options/raw", "per_cpu/cpu0/stats"])
def test_an_open_file_keeps_an_instance_from_going(shell: Shell, name: str) -> None:
    shell.mkdir("instances/a")
    with shell.opened(f"instances/a/{name}"):
        assert refused(shell, "rmdir", "instances/a") == errno.EBUSY
        assert shell.cat("instances/a/current_tracer") == "nop\n"
    shell.rmdir("instances/a")
    assert refused(shell, "cat", "instances/a/trace") == errno.ENOENT


def test_a_file_whose_open_fails_does_not_keep_an_instance(shell: Shell) -> None:
    shell.mkdir("instances/a")
    with shell.opened("instances/a/trace_pipe"):
        assert refused(shell, "cat", "instances/a/trace_pipe") == errno.EBUSY
    shell.rmdir("instances/a")


def test_a_file_found_before_its_instance_went_cannot_be_opened(shell: Shell) -> None:
    shell.mkdir("instances/a")
    node = shell.node("instances/a/trace")
    assert isinstance(node, TracefsFile)
    shell.rmdir("instances/a")
    with pytest.raises(TracefsError) as error:
        shell.machine.run(lambda: node.dentry_open(os.O_RDONLY, CALLER))
    assert error.value.errno == errno.ENODEV


def test_names_are_taken_once_and_nothing_else_makes_or_removes_directories(shell: Shell) -> None:
    shell.mkdir("instances/a")
    assert refused(shell, "mkdir", "instances/a") == errno.EEXIST
    assert refused(shell, "rmdir", "instances/b") == errno.ENOENT
    assert refused(shell, "mkdir", "instances/a/b") == errno.EPERM
    assert refused(shell, "rmdir", "instances/a/options") == errno.EPERM
    assert refused(shell, "mkdir", "options/b") == errno.EPERM


def test_a_running_tracer_goes_with_its_instance_and_all_memory_comes_back(shell: Shell) -> None:
    machine = shell.machine
    text = machine.memory.read(shell.session.image.labels["gcd"], CALL_INSN_SIZE)
    shell.mkdir("instances/a")  # what is made once and kept is made now
    trace(shell, "instances/a/", "gcd")
    shell.rmdir("instances/a")
    before = dict(machine.memory._heap.used)
    for _ in range(20):
        shell.mkdir("instances/a")
        trace(shell, "instances/a/", "gcd lcm")
        shell.echo("lcm 4 6", "emulator/call")
        shell.rmdir("instances/a")
    assert machine.memory._heap.used == before
    assert machine.memory.read(shell.session.image.labels["gcd"], CALL_INSN_SIZE) == text
    assert list(shell.node("instances")) == []  # type: ignore[arg-type]


def test_no_room_for_another_buffer_is_enomem_and_leaves_no_trace_of_it() -> None:
    with isolated(cpus=8) as shell:
        used = shell.machine.memory._heap.used
        shell.echo("8192", "buffer_size_kb")
        made: list[str] = []
        before: dict[int, int] = {}

        def fill() -> None:
            while len(made) < 20:
                before.clear()
                before.update(used)
                shell.mkdir(f"instances/{len(made)}")
                made.append(str(len(made)))

        with pytest.raises(TracefsError) as error:
            fill()
        assert error.value.errno == errno.ENOMEM
        assert used == before
        assert list(shell.node("instances")) == made  # type: ignore[arg-type]
        shell.rmdir("instances/0")
        shell.mkdir("instances/0")


def test_filters_wait_for_a_module_in_each_instance(shell: Shell) -> None:
    shell.mkdir("instances/a")
    shell.echo("unload ext4", "emulator/modules")
    shell.echo("ext4_file_open:mod:ext4", "instances/a/set_ftrace_filter")
    assert shell.cat("instances/a/set_ftrace_filter").endswith("ext4_file_open:mod:ext4\n")
    shell.echo("load ext4", "emulator/modules")
    assert shell.cat("instances/a/set_ftrace_filter") == "ext4_file_open [ext4]\n"
    assert shell.cat("set_ftrace_filter") == "#### all functions enabled ####\n"


def test_the_trampoline_of_an_instance_calls_its_callback_with_its_op(shell: Shell) -> None:
    shell.mkdir("instances/a")
    trace(shell, "instances/a/", "gcd")
    ftrace = shell.session.ftrace
    [op] = ftrace.ops_list
    gcd = shell.session.image.labels["gcd"]
    assert addr_from_call(ftrace, gcd) == op.trampoline
    pointer = op.trampoline + op.trampoline_size - 8
    assert shell.machine.memory.u64(pointer) == op.address


def test_errors_are_logged_where_they_were_made(shell: Shell) -> None:
    shell.mkdir("instances/a")
    for tr in shell.session.tracing.trace_arrays():
        shell.machine.run(lambda tr=tr: tr.tracing_log_err(tr.name, "cmd", "wrong", 0))
    assert "a: error: wrong" in shell.cat("instances/a/error_log")
    assert "a: error: wrong" not in shell.cat("error_log")


def test_a_buffer_is_as_large_as_it_gets_and_the_first_tracer_expands_its_own() -> None:
    with isolated() as shell:
        assert shell.cat("buffer_size_kb") == "7 (expanded: 1408)\n"
        shell.mkdir("instances/a")
        assert shell.cat("instances/a/buffer_size_kb") == "1410 (expanded: 1408)\n"
        shell.echo("function", "instances/a/current_tracer")
        assert shell.cat("instances/a/buffer_size_kb") == "1410\n"
        assert shell.cat("buffer_size_kb") == "7\n"
        shell.echo("nop", "instances/a/current_tracer")


def test_an_event_of_an_instance_expands_the_buffer_of_the_top_level() -> None:
    with isolated() as shell:
        shell.mkdir("instances/a")
        shell.echo("1", "instances/a/events/sched/sched_switch/enable")
        assert shell.cat("buffer_size_kb") == "1410\n"
        shell.echo("0", "instances/a/events/sched/sched_switch/enable")
