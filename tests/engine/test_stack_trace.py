"""Stack traces: the options func_stack_trace and func-no-repeats of the function tracer."""

from __future__ import annotations

import re
import struct

import pytest
from support.shell import Shell

from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter_ips
from ftracefs.ring_buffer.entries import merge
from ftracefs.session import SCRIPT

TIMER = "asm_sysvec_apic_timer_interrupt"
TRAMPOLINE = "0xffffffffc0280071"
TICK = (
    "update_process_times",
    "tick_sched_handle",
    "tick_sched_timer",
    "__hrtimer_run_queues",
    "hrtimer_interrupt",
    "__sysvec_apic_timer_interrupt",
    "sysvec_apic_timer_interrupt",
    "asm_sysvec_apic_timer_interrupt",
)


def records(shell: Shell) -> list[str]:
    """What `trace` says, a text a record, without task, CPU and time."""
    found: list[str] = []
    for line in shell.cat("trace").splitlines():
        if line.startswith(" => "):
            found[-1] += line
        elif not line.startswith("#"):
            found.append(line.partition(": ")[2])
    return found


def stack(*functions: str) -> str:
    return "<stack trace>" + "".join(f" => {name}" for name in functions)


def trace(shell: Shell, functions: str, *options: str) -> None:
    shell.echo(functions, "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    for option in options:
        shell.echo("1", f"options/{option}")


def getpid(shell: Shell) -> None:
    tasks = shell.session.tasks
    shell.machine.run(lambda: tasks.syscall(tasks.adopt(SCRIPT), "getpid", ()))


# --- func_stack_trace -----------------------------------------------------------------------------


def test_each_call_is_followed_by_its_callers(shell: Shell) -> None:
    trace(shell, "gcd", "func_stack_trace")
    shell.echo("lcm 4 6", "emulator/call")
    assert records(shell) == ["gcd <-lcm", stack(TRAMPOLINE, "gcd", "lcm", "host_call")]


def test_a_system_call_is_where_the_stack_begins(shell: Shell) -> None:
    trace(shell, "__x64_sys_getpid", "func_stack_trace")
    getpid(shell)
    assert records(shell)[1] == stack(
        TRAMPOLINE, "__x64_sys_getpid", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"
    )


def test_in_an_interrupt_the_stack_goes_on_with_what_was_interrupted(shell: Shell) -> None:
    trace(shell, "scheduler_tick", "func_stack_trace")
    machine = shell.machine
    machine.run(lambda: machine.interrupt(machine.cpus[1], TIMER))  # in the idle task
    machine.run(lambda: machine.interrupt(machine.cpus[0], TIMER))  # in user mode: the stack ends
    in_idle, in_user_mode = records(shell)[1::2]
    interrupt = stack(TRAMPOLINE, "scheduler_tick", *TICK)
    assert in_user_mode == interrupt
    assert in_idle.startswith(f"{interrupt} => idle_halt => default_idle => arch_cpu_idle => ")
    assert in_idle.endswith(
        " => do_idle => cpu_startup_entry => start_secondary => secondary_startup_64"
    )


def test_every_stack_leads_to_where_the_kernel_was_entered(shell: Shell) -> None:
    trace(shell, "*", "func_stack_trace")
    machine = shell.machine
    machine.run(lambda: machine.interrupt(machine.cpus[1], TIMER))
    getpid(shell)
    shell.echo("lcm 4 6", "emulator/call")
    calls, stacks = records(shell)[::2], records(shell)[1::2]
    assert len(calls) > 30
    for call, text in zip(calls, stacks, strict=True):
        function, parent = call.split(" <-")
        _, _, first, second, *_ = text.split(" => ")
        assert (first, second) == (function, parent)
    ends = {text.rpartition(" => ")[2] for text in stacks}
    assert ends == {"secondary_startup_64", "entry_SYSCALL_64_after_hwframe", "host_call"}


def test_with_another_op_the_list_function_is_seen(shell: Shell) -> None:
    other = shell.machine.run(lambda: shell.session.ftrace.new_ops(stub(shell), name="other"))
    shell.machine.run(lambda: shell.session.ftrace.register_ftrace_function(other))
    trace(shell, "gcd", "func_stack_trace")
    shell.echo("lcm 4 6", "emulator/call")
    assert records(shell)[1] == stack(
        "arch_ftrace_ops_list_func", "ftrace_call", "gcd", "lcm", "host_call"
    )
    assert "...1." in shell.cat("trace")


def stub(shell: Shell) -> int:
    return shell.session.ftrace.labels["ftrace_stub"]


def test_under_function_graph_the_callers_are_the_real_ones(shell: Shell) -> None:
    shell.echo("lcm gcd", "set_ftrace_filter")
    shell.echo("function_graph", "current_tracer")
    ops = shell.machine.run(lambda: stack_tracing_ops(shell))
    shell.echo("lcm 4 6", "emulator/call")
    assert stack("arch_ftrace_ops_list_func", "ftrace_call", "gcd", "lcm", "host_call") in (
        records(shell)
    )
    assert "return_to_handler" not in shell.cat("trace")
    shell.machine.run(lambda: shell.session.ftrace.unregister_ftrace_function(ops))


def stack_tracing_ops(shell: Shell) -> FtraceOps:
    """An op beside the tracer's that writes stack traces of gcd into the same buffer."""
    ftrace, tr = shell.session.ftrace, shell.session.tracing.global_trace
    func = ftrace.labels["function_stack_trace_call"]
    ops = ftrace.new_ops(func, private=tr.buffer.table, name="stacks")
    gcd = ftrace.kallsyms.kallsyms_lookup_name("gcd")
    assert gcd is not None
    ftrace_set_filter_ips(ftrace, ops, [gcd])
    ftrace.register_ftrace_function(ops)
    return ops


def test_the_record_is_size_and_callers(shell: Shell) -> None:
    trace(shell, "gcd", "func_stack_trace")
    shell.echo("lcm 4 6", "emulator/call")
    pages = shell.machine.run(lambda: shell.session.tracing.global_trace.buffer.snapshot())
    payload = merge(pages).payload(1)
    kind, _, _, pid, size, nothing = struct.unpack_from("<HBBiII", payload)
    callers = struct.unpack_from("<4Q", payload, 16)
    symbol = shell.session.ftrace.kallsyms.kallsyms_lookup
    assert (kind, pid, size, nothing, len(payload)) == (4, 1000, 4, 0, 48)
    names = [str(found) if (found := symbol(ip)) else "" for ip in callers]
    assert re.match(r"gcd\+0x5/", names[1])
    assert re.match(r"lcm\+0x[1-9a-f]", names[2])


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("sym-addr", r" => 0x(\w+) <\1>\n => gcd <ffffffff81\w+>\n => lcm <ffffffff81\w+>\n"),
        ("sym-offset", r" => 0x\w+\n => gcd\+0x5/0x\w+\n => lcm\+0x\w+/0x\w+\n"),
        ("raw", r"1000 0 \d+ type: 4\n"),
        ("hex", r"000003e8 00000000 [0-9a-f]{16} type: 4\n\n"),
        (
            "latency-format",
            r" +script-1000 +0\.\.\.\.\. +\d+us : <stack trace>\n => 0x\w+\n => gcd",
        ),
    ],
)
def test_output_options_bear_on_stack_traces(shell: Shell, option: str, expected: str) -> None:
    trace(shell, "gcd", "func_stack_trace", option)
    shell.echo("lcm 4 6", "emulator/call")
    assert re.search(expected, shell.cat("trace"))


def test_a_stack_trace_costs_no_hypercall(shell: Shell) -> None:
    trace(shell, "gcd", "func_stack_trace")
    before = shell.machine.hypercall_count
    shell.echo("lcm 4 6 x1000", "emulator/call")
    assert shell.machine.hypercall_count == before
    assert shell.cat("trace").count("<stack trace>") == 1000


# --- func-no-repeats ------------------------------------------------------------------------------


def test_calls_like_the_last_one_are_counted(shell: Shell) -> None:
    trace(shell, "gcd", "func-no-repeats")
    shell.echo("gcd 4 6 x5", "emulator/call")
    shell.echo("lcm 4 6 x3", "emulator/call")
    found = records(shell)
    assert found[0] == "gcd <-host_call"
    assert re.fullmatch(r"gcd <-host_call \(repeats: 4, last_ts: +0\.\d{6}\)", found[1])
    assert found[2:] == ["gcd <-lcm"]


def test_a_count_of_repeats_says_when_the_last_one_was(shell: Shell) -> None:
    trace(shell, "gcd", "func-no-repeats")
    shell.echo("counter", "trace_clock")
    shell.echo("gcd 4 6 x5", "emulator/call")
    shell.echo("lcm 4 6", "emulator/call")
    found = re.search(r"(\d+): gcd <-host_call \(repeats: 4, last_ts: +(\d+)\)", shell.cat("trace"))
    assert found is not None
    assert int(found[1]) == int(found[2]) + 1


def test_repeats_are_counted_while_tracing_is_off(shell: Shell) -> None:
    trace(shell, "gcd", "func-no-repeats")
    shell.echo("0", "tracing_on")
    shell.echo("gcd 4 6 x5", "emulator/call")
    shell.echo("1", "tracing_on")
    shell.echo("lcm 4 6", "emulator/call")
    assert [text.partition(", last")[0] for text in records(shell)] == [
        "gcd <-host_call (repeats: 4",
        "gcd <-lcm",
    ]


def test_more_repeats_than_the_record_can_count_begin_anew(shell: Shell) -> None:
    trace(shell, "gcd", "func-no-repeats")
    shell.echo("gcd 4 6 x70000", "emulator/call")
    found = records(shell)
    assert found[0] == found[2] == "gcd <-host_call"
    assert found[1].startswith("gcd <-host_call (repeats: 65535, ")
    assert len(found) == 3


def test_raw_output_of_repeats_is_numbers(shell: Shell) -> None:
    trace(shell, "gcd", "func-no-repeats")
    shell.echo("gcd 4 6 x3", "emulator/call")
    shell.echo("lcm 4 6", "emulator/call")
    shell.echo("1", "options/raw")
    gcd = shell.session.ftrace.kallsyms.kallsyms_lookup_name("gcd")
    assert re.search(rf"^1000 0 \d+ {gcd} \d+ 2 \d+$", shell.cat("trace"), re.MULTILINE)


# --- both, and switching --------------------------------------------------------------------------


def test_both_options_record_one_stack_for_all_repeats(shell: Shell) -> None:
    trace(shell, "gcd", "func_stack_trace", "func-no-repeats")
    shell.echo("gcd 4 6 x5", "emulator/call")
    assert records(shell) == ["gcd <-host_call", stack(TRAMPOLINE, "gcd", "host_call")]


@pytest.mark.parametrize(
    ("options", "callback"),
    [
        ((), "function_trace_call"),
        (("func_stack_trace",), "function_stack_trace_call"),
        (("func-no-repeats",), "function_no_repeats_trace_call"),
        (("func_stack_trace", "func-no-repeats"), "function_stack_no_repeats_trace_call"),
    ],
)
def test_an_option_set_before_or_after_the_tracer_chooses_the_callback(
    shell: Shell, options: tuple[str, ...], callback: str
) -> None:
    for first in (True, False):
        if first:
            for option in options:
                shell.echo("1", f"options/{option}")
        trace(shell, "gcd", *options)
        assert f"->{callback}+0x0/" in shell.cat("enabled_functions")
        shell.echo("nop", "current_tracer")
        for option in options:
            shell.echo("0", f"options/{option}")


def test_an_option_changes_the_call_in_the_live_trampoline(shell: Shell) -> None:
    trace(shell, "gcd")
    gcd = shell.session.ftrace.kallsyms.kallsyms_lookup_name("gcd")
    assert gcd is not None
    call = shell.machine.memory.read(gcd, 5)
    shell.echo("func_stack_trace", "trace_options")
    assert shell.machine.memory.read(gcd, 5) == call
    assert "# function_stack_trace_call+0x0/" in shell.cat("emulator/trampolines")
    shell.echo("nofunc_stack_trace", "trace_options")
    shell.echo("lcm 4 6", "emulator/call")
    assert records(shell) == ["gcd <-lcm"]


@pytest.mark.parametrize("option", ["func_stack_trace", "func-no-repeats"])
def test_options_keep_to_the_chosen_pids(shell: Shell, option: str) -> None:
    trace(shell, "gcd", option)
    shell.echo("1", "set_ftrace_pid")  # the caller is 1000
    shell.echo("gcd 4 6 x3", "emulator/call")
    assert records(shell) == []
    shell.echo("1000", "set_ftrace_pid")
    shell.echo("lcm 4 6", "emulator/call")
    assert records(shell)[0] == "gcd <-lcm"
    assert records(shell)[1:] in ([], [stack(TRAMPOLINE, "gcd", "lcm", "host_call")])


def test_an_option_is_switched_while_pids_are_chosen(shell: Shell) -> None:
    trace(shell, "gcd")
    shell.echo("1", "set_ftrace_pid")  # the caller is 1000
    shell.echo("1", "options/func_stack_trace")
    shell.echo("gcd 4 6", "emulator/call")
    assert records(shell) == []
    shell.echo("", "set_ftrace_pid")
    shell.echo("gcd 4 6", "emulator/call")
    assert records(shell) == ["gcd <-host_call", stack(TRAMPOLINE, "gcd", "host_call")]


def test_an_instance_has_its_own_count_of_repeats(shell: Shell) -> None:
    instances = shell.node("instances")
    shell.machine.run(lambda: instances.mkdir("a"))  # type: ignore[union-attr]
    trace(shell, "gcd", "func-no-repeats")
    shell.echo("gcd", "instances/a/set_ftrace_filter")
    shell.echo("gcd 4 6 x3", "emulator/call")
    shell.echo("function", "instances/a/current_tracer")
    shell.echo("gcd 4 6 x2", "emulator/call")
    shell.echo("lcm 4 6", "emulator/call")
    assert "(repeats: 4, " in shell.cat("trace")
    assert "(repeats: 1, " in shell.cat("instances/a/trace")
    enabled = shell.cat("enabled_functions")
    assert re.search(r"^gcd \(2\) +->arch_ftrace_ops_list_func", enabled, re.MULTILINE)
    shell.machine.run(lambda: instances.rmdir("a"))  # type: ignore[union-attr]
    shell.echo("gcd 4 6 x3", "emulator/call")
    shell.echo("lcm 4 6", "emulator/call")
    assert "(repeats: 2, " in shell.cat("trace")
