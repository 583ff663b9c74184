"""tracing_cpumask, and which names and thread groups a trace knows."""

from __future__ import annotations

import errno
import re

import pytest
from support.shell import Shell, isolated

from emulated_kernel.procfs import HostProcess
from ftracefs.errors import TracefsError


def cpus(shell: Shell, path: str = "trace") -> set[int]:
    return set(map(int, re.findall(r" \[(\d{3})\] ", shell.cat(path))))


def gcd_on(shell: Shell, cpu: int) -> None:
    tasks, gcd = shell.session.tasks, shell.machine.image.label("gcd")

    def call() -> None:
        task = tasks.adopt(HostProcess(500 + cpu, 7, 1, "sh", cpu))
        assert tasks.call_once(task, gcd, (12, 18)).value == 6

    shell.machine.run(call)


@pytest.mark.parametrize(("mask", "seen"), [("1", {0}), ("2", {1}), ("3", {0, 1}), ("0", set())])
@pytest.mark.parametrize("tracer", ["function", "function_graph"])
def test_only_cpus_of_the_mask_record(shell: Shell, tracer: str, mask: str, seen: set[int]) -> None:
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("1", "options/funcgraph-cpu")
    shell.echo(tracer, "current_tracer")
    shell.echo(mask, "tracing_cpumask")
    for cpu in (0, 1):
        gcd_on(shell, cpu)
    counts = {
        cpu: int(re.findall(r"entries: (\d+)", shell.cat(f"per_cpu/cpu{cpu}/stats"))[0])
        for cpu in (0, 1)
    }
    assert {cpu for cpu, count in counts.items() if count} == seen
    if tracer == "function":
        assert cpus(shell) == seen


def test_what_a_mask_stopped_goes_on_with_the_next_one(shell: Shell) -> None:
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    for mask in ("1", "1", "2", "0", "3"):
        shell.echo(mask, "tracing_cpumask")
        assert shell.cat("tracing_cpumask") == f"{mask}\n"
    for cpu in (0, 1):
        gcd_on(shell, cpu)
    assert cpus(shell) == {0, 1}


def test_a_mask_does_not_touch_tracing_on(shell: Shell) -> None:
    shell.echo("0", "tracing_cpumask")
    assert shell.cat("tracing_on") == "1\n"
    shell.echo("0", "tracing_on")
    shell.echo("3", "tracing_cpumask")
    assert shell.cat("tracing_on") == "0\n"


def test_a_marker_on_a_cpu_outside_the_mask_is_refused(shell: Shell) -> None:
    shell.echo("2", "tracing_cpumask")
    with pytest.raises(TracefsError) as refused:
        shell.echo("hello", "trace_marker")
    assert refused.value.errno == errno.EBADF


def test_a_bad_mask_changes_nothing(shell: Shell) -> None:
    shell.echo("1", "tracing_cpumask")
    for bad in ("4", "x", "0,1"):
        with pytest.raises(TracefsError):
            shell.echo(bad, "tracing_cpumask")
        assert shell.cat("tracing_cpumask") == "1\n"


def test_a_mask_has_a_bit_for_each_cpu() -> None:
    with isolated(cpus=4) as shell:
        assert shell.cat("tracing_cpumask") == "f\n"


def test_thread_groups_get_a_column_and_are_not_saved_by_the_function_tracer(
    shell: Shell,
) -> None:
    shell.echo("1", "options/record-tgid")
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    shell.echo("gcd 12 18", "emulator/call")
    assert shell.cat("saved_tgids") == ""
    trace = shell.cat("trace")
    assert "#           TASK-PID       TGID    CPU#  |||||  TIMESTAMP  FUNCTION\n" in trace
    assert re.search(r"^          script-1000    \(-------\) \[000\] ", trace, re.MULTILINE)


def test_thread_groups_are_saved_while_an_event_is_enabled(shell: Shell) -> None:
    def switches() -> None:
        for cpu in (0, 1):
            gcd_on(shell, cpu)

    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    shell.echo("1", "events/sched/sched_switch/enable")
    switches()
    assert shell.cat("saved_tgids") == ""
    shell.echo("1", "options/record-tgid")
    switches()
    assert {"500 500", "501 501"} <= set(shell.cat("saved_tgids").splitlines())
    assert re.search(r"^ +sh-500     \(    500\) \[000\] .*: gcd <-", shell.cat("trace"), re.M)
    assert re.search(r"^ +<idle>-0       \(-------\) \[", shell.cat("trace"), re.M)
    shell.echo("0", "options/record-tgid")
    assert "500 500\n" in shell.cat("saved_tgids")
    assert shell.session.tracing.saved_tgids.tgid_ref == 0
    shell.echo("1", "options/record-tgid")
    assert shell.session.tracing.saved_tgids.tgid_ref == 1
    shell.echo("0", "events/sched/sched_switch/enable")
    assert shell.session.tracing.saved_tgids.tgid_ref == 0


def test_each_trace_array_has_its_own_mask(shell: Shell) -> None:
    shell.echo("1", "tracing_cpumask")
    shell.mkdir("instances/a")
    assert shell.cat("instances/a/tracing_cpumask") == "3\n"
    for where in ("", "instances/a/"):
        shell.echo("gcd", f"{where}set_ftrace_filter")
        shell.echo("function", f"{where}current_tracer")
    shell.echo("2", "instances/a/tracing_cpumask")
    for cpu in (0, 1):
        gcd_on(shell, cpu)
    assert (cpus(shell), cpus(shell, "instances/a/trace")) == ({0}, {1})


def test_a_snapshot_keeps_the_mask(shell: Shell) -> None:
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    shell.echo("1", "tracing_cpumask")
    shell.echo("1", "snapshot")
    for cpu in (0, 1):
        gcd_on(shell, cpu)
    assert cpus(shell) == {0}
    shell.echo("3", "tracing_cpumask")
    shell.echo("1", "snapshot")
    for cpu in (0, 1):
        gcd_on(shell, cpu)
    assert cpus(shell) == {0, 1}


def test_a_new_size_forgets_the_names(shell: Shell) -> None:
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    shell.echo("gcd 12 18", "emulator/call")
    shell.echo("nop", "current_tracer")
    assert "1000 script\n" in shell.cat("saved_cmdlines")
    shell.echo("8000", "saved_cmdlines_size")
    assert shell.cat("saved_cmdlines_size") == "19659\n"
    assert shell.cat("saved_cmdlines") == ""
