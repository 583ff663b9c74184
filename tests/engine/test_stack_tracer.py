"""The stack tracer: the deepest stack there was, and who stood on it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

import numpy as np
import pytest
from support.shell import Shell, isolated

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.python_callback import FtraceRegs

ENABLED = "emulator/sysctl/stack_tracer_enabled"
STACK_BYTES = CONSTANTS["STACK_BYTES"]
# Faults, so that it is deeper than the other calls.
DEEP = "vfs_fstatat 1 2 3"
LINE = re.compile(r"^ *(\d+)\) +(\d+) +(\d+)   (\S+)\+0x([0-9a-f]+)/0x[0-9a-f]+$")


@pytest.fixture
def shell() -> Iterator[Shell]:
    with isolated() as shell:
        yield shell


def stack(shell: Shell) -> list[tuple[int, int, str, int]]:
    """Depth, size, function and offset of each entry."""
    header, rule, *lines = shell.cat("stack_trace").splitlines()
    assert header == f"        Depth    Size   Location    ({len(lines)} entries)"
    assert rule == "        -----    ----   --------"
    found = []
    for number, line in enumerate(lines):
        match = LINE.match(line)
        assert match, line
        assert match[0] == f"{number:3d}) {match[2]:>8}   {match[3]:>5}   {line.split()[-1]}"
        found.append((int(match[2]), int(match[3]), match[4], int(match[5], 16)))
    return found


def max_size(shell: Shell) -> int:
    return int(shell.cat("stack_max_size"))


# --- what is measured -----------------------------------------------------------------------------


def test_the_stack_of_a_call_is_told_function_by_function(shell: Shell) -> None:
    shell.echo("1", ENABLED)
    shell.echo("lcm 12 18", "emulator/call")
    entries = stack(shell)
    assert [name for _, _, name, _ in entries] == ["gcd", "lcm", "host_call"]
    # lcm's frame: what it pushed and the return address of its call; gcd has only been called, and
    # is measured from where its trampoline keeps its address, as in Linux.
    assert entries[0][1] == CONSTANTS["FRAME_BYTES"] - CONSTANTS["PT_RIP"] + 8
    assert entries[0][3] == 5
    sizes = [size for _, size, _, _ in entries]
    assert [depth for depth, _, _, _ in entries] == [sum(sizes[at:]) for at in range(3)]
    assert max_size(shell) == entries[0][0]


def test_depths_are_those_of_the_deepest_call_there_was(shell: Shell) -> None:
    """Beside another op, which looks at every call's stack from outside."""
    machine, ftrace = shell.machine, shell.session.ftrace
    memory, frame = machine.memory, CONSTANTS["FRAME_BYTES"]
    seen: list[tuple[int, int, list[int]]] = []

    def look(ip: int, parent_ip: int, op: FtraceOps, fregs: FtraceRegs) -> None:
        vcpu = machine.cpus[0]
        low = memory.u64(vcpu.current + CONSTANTS["TASK_STACK"])
        top, at = low + STACK_BYTES, fregs["rsp"]
        if low <= at < top:
            words = memory.array(at - 8, top - at + 8, np.uint64).tolist()
            seen.append((top - (at - 8 - frame + CONSTANTS["PT_RIP"]), ip, words))

    ops = machine.run(lambda: ftrace.new_python_ops(look))
    machine.run(lambda: ftrace.register_ftrace_function(ops))
    shell.echo("1", ENABLED)
    shell.echo(DEEP, "emulator/call")
    assert len(seen) > 5
    deepest = max(depth for depth, _, _ in seen)
    ip, words = next((ip, words) for depth, ip, words in seen if depth == deepest)
    entries = stack(shell)
    assert entries[0][0] == max_size(shell) == deepest
    addresses = [
        ftrace.kallsyms.kallsyms_lookup_name(name) + offset for _, _, name, offset in entries
    ]
    assert addresses[0] == ip + 5 == words[0]
    for (depth, _, _, _), address in list(zip(entries, addresses, strict=True))[1:]:
        assert words[len(words) - depth // 8] == address


def test_only_a_deeper_stack_takes_its_place(shell: Shell) -> None:
    shell.echo("1", ENABLED)
    shell.echo("lcm 12 18", "emulator/call")
    first = shell.cat("stack_trace")
    shell.echo("gcd 12 18", "emulator/call")
    assert shell.cat("stack_trace") == first
    shell.echo(DEEP, "emulator/call")
    deeper = shell.cat("stack_trace")
    assert deeper != first
    shell.echo("lcm 12 18", "emulator/call")
    assert shell.cat("stack_trace") == deeper


def test_a_written_size_is_the_one_to_exceed(shell: Shell) -> None:
    shell.echo("1", ENABLED)
    shell.echo("100000", "stack_max_size")
    shell.echo("lcm 12 18", "emulator/call")
    assert max_size(shell) == 100000
    assert stack(shell) == []
    shell.echo("0", "stack_max_size")
    shell.echo("lcm 12 18", "emulator/call")
    assert stack(shell)[0][2] == "gcd"


def test_only_functions_of_the_filter_are_measured(shell: Shell) -> None:
    shell.echo("*lock*", "stack_trace_filter")
    shell.echo("1", ENABLED)
    shell.echo("lcm 12 18", "emulator/call")
    assert stack(shell) == []
    shell.echo("lcm", "stack_trace_filter")
    shell.echo("0", "stack_max_size")
    shell.echo("lcm 12 18", "emulator/call")
    assert [name for _, _, name, _ in stack(shell)] == ["lcm", "host_call"]


def test_an_interrupted_task_is_seen_through_the_interrupt(shell: Shell) -> None:
    shell.echo("1", ENABLED)
    machine = shell.machine
    vcpu = next(cpu for cpu in machine.cpus if cpu.may_be_interrupted)
    tick = "asm_sysvec_apic_timer_interrupt"
    machine.run(lambda: machine.interrupt(vcpu, tick))
    names = [name for _, _, name, _ in stack(shell)]
    assert tick in names
    assert "sysvec_apic_timer_interrupt" in names
    assert names.index(tick) > names.index("sysvec_apic_timer_interrupt")


def test_what_is_returned_and_recorded_stays_the_same(shell: Shell) -> None:
    calls = ["lcm 12 18", "gcd 144 60", DEEP, "int_sqrt 1000000"]

    def results() -> list[str]:
        found = []
        for call in calls:
            shell.echo(call, "emulator/call")
            found.append(shell.cat("emulator/call"))
        return found

    expected = results()
    shell.echo("1", ENABLED)
    assert results() == expected
    shell.echo("function_graph", "current_tracer")
    shell.echo("0", "stack_max_size")
    assert results() == expected
    shell.echo("0", ENABLED)
    assert results() == expected


def test_what_the_graph_tracer_has_taken_from_the_stack_is_left_out(shell: Shell) -> None:
    shell.echo("lcm gcd", "set_ftrace_filter")
    shell.echo("function_graph", "current_tracer")
    shell.echo("gcd", "stack_trace_filter")
    shell.echo("1", ENABLED)
    shell.echo("lcm 12 18", "emulator/call")
    names = [name for _, _, name, _ in stack(shell)]
    assert names[0] == "gcd"
    assert "return_to_handler" not in names
    assert "host_call" not in names


def test_a_million_calls_raise_no_hypercall(shell: Shell) -> None:
    def hypercalls() -> int:
        found = re.search(r"^hypercalls: +(\d+)$", shell.cat("emulator/kernel"), re.MULTILINE)
        assert found is not None
        return int(found[1])

    shell.echo("1", ENABLED)
    before = hypercalls()
    shell.echo("gcd 12 18 x1000000", "emulator/call")
    assert hypercalls() - before < 100
    assert [name for _, _, name, _ in stack(shell)] == ["gcd", "host_call"]


# --- on and off -----------------------------------------------------------------------------------


def test_off_it_keeps_what_it_found_and_text_is_as_before(shell: Shell) -> None:
    address, data = shell.machine.image.segments[".text"]
    before = shell.machine.memory.read(address, len(data))
    shell.echo("-3", ENABLED)
    assert shell.cat(ENABLED) == "-3\n"
    assert shell.machine.memory.read(address, len(data)) != before
    shell.echo("lcm 12 18", "emulator/call")
    found = shell.cat("stack_trace")
    shell.echo("0", ENABLED)
    assert shell.machine.memory.read(address, len(data)) == before
    shell.echo(DEEP, "emulator/call")
    assert shell.cat("stack_trace") == found
    shell.echo("0", "stack_max_size")
    text = shell.cat("stack_trace").splitlines()
    assert text[3] == "#  Stack tracer disabled"
    assert [text[0], text[1], *text[9:]] == found.splitlines()


def test_its_op_calls_the_callback_itself(shell: Shell) -> None:
    shell.echo("gcd", "stack_trace_filter")
    shell.echo("1", ENABLED)
    line = shell.cat("enabled_functions")
    assert re.fullmatch(
        r"gcd \(1\) +\ttramp: 0x[0-9a-f]+ \(stack_trace_call\+0x0/0x[0-9a-f]+\)"
        r" ->stack_trace_call\+0x0/0x[0-9a-f]+\n",
        line,
    )
    shell.echo("2", ENABLED)
    assert shell.cat("enabled_functions") == line
    shell.echo("0", ENABLED)
    assert shell.cat("enabled_functions") == ""


def test_the_filter_takes_no_command(shell: Shell) -> None:
    with pytest.raises(TracefsError) as error:
        shell.echo("gcd:traceoff", "stack_trace_filter")
    assert error.value.errno == errno.ENODEV
    assert shell.cat("set_ftrace_filter") == "#### all functions enabled ####\n"


def test_with_ftrace_disabled_it_is_on_and_measures_nothing(shell: Shell) -> None:
    site = shell.machine.image.labels["gcd"]
    shell.machine.memory.set_u8(site + 2, 0x99)
    shell.echo("1", ENABLED)
    assert shell.cat(ENABLED) == "1\n"
    shell.echo("0", ENABLED)
    assert shell.cat(ENABLED) == "0\n"
    assert shell.cat("enabled_functions") == ""
