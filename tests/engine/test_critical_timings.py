"""irqsoff, preemptoff, preemptirqsoff: how long interrupts or preemption were off, and where."""

from __future__ import annotations

import errno
import re

import pytest
from support.latency import TIMER, tick
from support.shell import Shell

from emulated_kernel.static_call import StaticCalls
from ftracefs.errors import TracefsError

NOP5 = bytes.fromhex("0f1f440000")
HOOKS = ("trace_hardirqs_off", "trace_hardirqs_on", "trace_preempt_off", "trace_preempt_on")


def static_calls(shell: Shell) -> StaticCalls:
    return shell.session.tracing.static_calls


def sites(shell: Shell, hook: str) -> list[int]:
    return static_calls(shell).sites(shell.session.image.labels[f"__SCK__{hook}"])


def calls_at(shell: Shell, hook: str) -> int:
    """How many places in the text call a hook now."""
    memory, target = shell.machine.memory, shell.session.tracing.label(hook)
    found = 0
    for site in sites(shell, hook):
        code = memory.read(site, 5)
        if code == NOP5:
            continue
        assert code[0] == 0xE8
        assert (site + 5 + int.from_bytes(code[1:], "little", signed=True)) == target
        found += 1
    return found


def test_they_are_offered(shell: Shell) -> None:
    tracers = (
        "function_graph wakeup_dl wakeup_rt wakeup preemptirqsoff preemptoff irqsoff function nop\n"
    )
    assert shell.cat("available_tracers") == tracers


def test_the_kernel_calls_the_hooks_only_while_they_are_needed(shell: Shell) -> None:
    memory = shell.machine.memory
    text = {site: memory.read(site, 5) for hook in HOOKS for site in sites(shell, hook)}
    assert set(text.values()) == {NOP5}
    expected = {
        "irqsoff": (True, True, False, False),
        "preemptoff": (False, False, True, True),
        "preemptirqsoff": (True, True, True, True),
        "nop": (False, False, False, False),
    }
    for tracer, on in expected.items():
        shell.echo(tracer, "current_tracer")
        for hook, is_on in zip(HOOKS, on, strict=True):
            assert calls_at(shell, hook) == (len(sites(shell, hook)) if is_on else 0), hook
    assert {site: memory.read(site, 5) for site in text} == text


def test_a_module_that_comes_is_measured_too(shell: Shell) -> None:
    shell.echo("unload ext4", "emulator/modules")
    before = len(sites(shell, "trace_preempt_off"))
    shell.echo("preemptoff", "current_tracer")
    shell.echo("load ext4", "emulator/modules")
    assert len(sites(shell, "trace_preempt_off")) > before
    assert calls_at(shell, "trace_preempt_off") == len(sites(shell, "trace_preempt_off"))


def test_a_section_with_interrupts_off_is_shown_from_its_start_to_its_end(shell: Shell) -> None:
    shell.echo("irqsoff", "current_tracer")
    tick(shell)
    text = shell.cat("trace")
    latency = int(shell.cat("tracing_max_latency"))
    assert re.search(rf"^# latency: {latency} us, #\d+/\d+, CPU#0 \|", text, re.MULTILINE)
    assert f"#  => started at: {TIMER}\n#  => ended at:   " in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[0].endswith(f": sysvec_apic_timer_interrupt <-{TIMER}")
    calls = [line.rpartition(": ")[2].split(" <-")[0] for line in lines if " <-" in line]
    assert calls[1] == "irq_enter_rcu"
    assert calls[-1] == "tracer_hardirqs_on"
    assert [line for line in lines if line.endswith("<stack trace>")]
    stack = [line.removeprefix(" => ") for line in lines if line.startswith(" => ")]
    assert calls[-2] == stack[0]
    assert TIMER in stack
    # Every one of them was called with interrupts off.
    states = [line.split()[1] for line in lines if " <-" in line]
    assert all(state.startswith("0d") for state in states)


def test_the_worst_case_stays_until_a_worse_one_comes(shell: Shell) -> None:
    shell.echo("irqsoff", "current_tracer")
    tick(shell)
    worst, text = shell.cat("tracing_max_latency"), shell.cat("trace")
    shell.echo("1000000", "tracing_max_latency")
    tick(shell)
    assert shell.cat("trace") == text
    assert shell.cat("tracing_max_latency") == "1000000\n"
    shell.echo("0", "tracing_max_latency")
    tick(shell)
    assert int(shell.cat("tracing_max_latency")) > 0
    assert worst != "0\n"


def test_with_a_threshold_every_section_above_it_counts(shell: Shell) -> None:
    shell.echo("irqsoff", "current_tracer")
    shell.echo("1000000", "tracing_thresh")
    tick(shell)
    assert shell.cat("tracing_max_latency") == "0\n"
    assert " <-" not in shell.cat("trace")
    shell.echo("1000000", "tracing_max_latency")
    shell.echo("1", "tracing_thresh")
    tick(shell)
    assert 0 < int(shell.cat("tracing_max_latency")) < 1000000


def test_preemptoff_measures_spin_locks_and_not_interrupts(shell: Shell) -> None:
    shell.echo("preemptoff", "current_tracer")
    tick(shell)
    text = shell.cat("trace")
    assert " <-" not in text, text
    shell.echo("unload ext4", "emulator/modules")
    shell.echo("load ext4", "emulator/modules")
    text = shell.cat("trace")
    found = re.search(r"=> started at: (\w+)\n#  => ended at:   (\w+)\n", text)
    assert found, text
    assert "tracer_preempt_on" in text
    calls = [line for line in text.splitlines() if " <-" in line]
    assert all(re.search(r" 0\S{3}[1-9]", line) for line in calls), text


def test_calls_are_recorded_only_with_function_trace(shell: Shell) -> None:
    shell.echo("0", "options/function-trace")
    shell.echo("irqsoff", "current_tracer")
    assert shell.cat("enabled_functions") == ""
    tick(shell)
    lines = [line for line in shell.cat("trace").splitlines() if " <-" in line]
    assert lines
    assert len(lines) <= 4
    shell.echo("1", "options/function-trace")
    assert shell.cat("enabled_functions") != ""
    shell.echo("0", "tracing_max_latency")
    tick(shell)
    assert len([line for line in shell.cat("trace").splitlines() if " <-" in line]) > 10
    shell.echo("nop", "current_tracer")
    assert shell.cat("enabled_functions") == ""


def test_options_are_as_before_when_it_is_over(shell: Shell) -> None:
    before = shell.cat("trace_options")
    shell.echo("irqsoff", "current_tracer")
    for option in ("latency-format", "pause-on-trace", "overwrite"):
        assert shell.cat(f"options/{option}") == "1\n"
    with pytest.raises(TracefsError) as error:
        shell.echo("0", "options/overwrite")
    assert error.value.errno == errno.EINVAL
    shell.echo("nop", "current_tracer")
    assert shell.cat("trace_options") == before
    shell.echo("0", "options/overwrite")


def test_one_trace_array_measures_at_a_time(shell: Shell) -> None:
    shell.mkdir("instances/a")
    assert "wakeup_dl wakeup_rt wakeup preemptirqsoff preemptoff irqsoff function nop" in shell.cat(
        "instances/a/available_tracers"
    )
    shell.echo("irqsoff", "instances/a/current_tracer")
    with pytest.raises(TracefsError) as error:
        shell.echo("preemptoff", "current_tracer")
    assert error.value.errno == errno.EBUSY
    assert shell.cat("current_tracer") == "nop\n"
    tick(shell)
    assert "tracer_hardirqs_on" in shell.cat("instances/a/trace")
    assert " <-" not in shell.cat("trace")
    shell.rmdir("instances/a")
    assert calls_at(shell, "trace_hardirqs_off") == 0
    shell.echo("preemptoff", "current_tracer")


def test_nothing_is_measured_with_tracing_off(shell: Shell) -> None:
    shell.echo("irqsoff", "current_tracer")
    shell.echo("0", "tracing_on")
    tick(shell)
    assert shell.cat("tracing_max_latency") == "0\n"
    shell.echo("1", "tracing_on")
    tick(shell)
    assert int(shell.cat("tracing_max_latency")) > 0


def test_an_instance_measures_while_tracing_is_on_at_the_top(shell: Shell) -> None:
    shell.mkdir("instances/a")
    shell.echo("0", "tracing_on")
    shell.echo("irqsoff", "instances/a/current_tracer")
    tick(shell)
    assert shell.cat("instances/a/tracing_max_latency") == "0\n"
    shell.echo("1", "tracing_on")
    tick(shell)
    assert shell.cat("instances/a/tracing_max_latency") == "0\n"  # it has not been started
    shell.echo("0", "instances/a/tracing_on")
    shell.echo("1", "instances/a/tracing_on")
    tick(shell)
    assert shell.cat("instances/a/tracing_max_latency") != "0\n"
    shell.echo("0", "tracing_on")
    shell.echo("0", "instances/a/tracing_max_latency")
    tick(shell)
    assert shell.cat("instances/a/tracing_max_latency") == "0\n"


def test_the_snapshot_is_the_tracers(shell: Shell) -> None:
    shell.echo("irqsoff", "current_tracer")
    with pytest.raises(TracefsError) as error:
        shell.echo("1", "snapshot")
    assert error.value.errno == errno.EBUSY
    tick(shell)
    assert "tracer_hardirqs_on" in shell.cat("trace")
    shell.echo("", "trace")
    assert " <-" not in shell.cat("trace")
