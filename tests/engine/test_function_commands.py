"""Commands in set_ftrace_filter: what they do to the trace, and how they come and go."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable

import numpy as np
import pytest
from support.shell import Shell

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.procfs import HostProcess
from ftracefs.errors import TracefsError
from ftracefs.ftrace.func_mapper import FtraceFuncMapper
from ftracefs.ftrace.graph_filter import FtraceGraphHash
from ftracefs.session import SCRIPT

FILTER = "set_ftrace_filter"
ALL = "#### all functions enabled ####\n"


def command(shell: Shell, text: str) -> None:
    shell.echo(text, FILTER, append=True)


def call(shell: Shell, text: str) -> None:
    shell.echo(text, "emulator/call")


def refused(shell: Shell, text: str) -> int:
    with pytest.raises(TracefsError) as caught:
        command(shell, text)
    return caught.value.errno


def commands(shell: Shell) -> list[str]:
    return shell.cat(FILTER).removeprefix(ALL).splitlines()


def lines(shell: Shell) -> list[str]:
    """`trace` without its header, and each line without task, CPU and time."""
    text = [line for line in shell.cat("trace").splitlines() if not line.startswith("#")]
    return [line.rpartition(": ")[2] if "-1000 " in line else line for line in text]


def kernel_text(shell: Shell) -> bytes:
    address, data = shell.session.image.segments[".text"]
    return shell.machine.memory.read(address, len(data))


def guards(shell: Shell) -> list[int]:
    """What RB_GUARD of each CPU's buffer keeps from being recorded, as guest code sees it."""
    memory = shell.machine.memory
    table = shell.session.tracing.global_trace.buffer.table
    words = (memory.u32(memory.u64(table + 8 * cpu)) for cpu in range(shell.machine.nr_cpus))
    return [word & ~CONSTANTS["RB_GUARD_CLOCK"] for word in words]


def trace(shell: Shell, functions: str) -> None:
    shell.echo(functions, FILTER)
    shell.echo("function", "current_tracer")


# --- traceon, traceoff ----------------------------------------------------------------------------


def test_traceoff_ends_the_trace_at_its_function(shell: Shell) -> None:
    trace(shell, "lcm gcd int_sqrt")
    command(shell, "gcd:traceoff")
    call(shell, "int_sqrt 9")
    call(shell, "lcm 4 6")
    call(shell, "int_sqrt 9")
    assert shell.cat("tracing_on") == "0\n"
    # The op that came last is called first.
    assert lines(shell) == ["int_sqrt <-host_call", "lcm <-host_call"]


def test_traceoff_sets_the_guard_of_every_cpu(shell: Shell) -> None:
    command(shell, "gcd:traceoff")
    assert guards(shell) == [0, 0]
    call(shell, "gcd 4 6")
    assert guards(shell) == [CONSTANTS["RB_GUARD_OFF"]] * 2
    command(shell, "lcm:traceon")
    command(shell, "!gcd:traceoff")
    call(shell, "lcm 4 6")
    assert guards(shell) == [0, 0]


def test_traceon_begins_the_trace_at_its_function(shell: Shell) -> None:
    trace(shell, "lcm gcd int_sqrt")
    shell.echo("0", "tracing_on")
    command(shell, "lcm:traceon")
    call(shell, "int_sqrt 9")
    call(shell, "lcm 4 6")
    assert shell.cat("tracing_on") == "1\n"
    assert lines(shell)[-1] == "gcd <-lcm"
    assert "int_sqrt <-host_call" not in lines(shell)


def test_a_count_is_how_often_the_state_is_changed(shell: Shell) -> None:
    command(shell, "gcd:traceoff:2")
    states = []
    for _ in range(4):
        shell.echo("1", "tracing_on")
        call(shell, "gcd 4 6 x10")  # the nine behind the first find it off, and do not count
        states.append((shell.cat("tracing_on").strip(), commands(shell)[0].rpartition("=")[2]))
    assert states == [("0", "1"), ("0", "0"), ("1", "0"), ("1", "0")]


def test_a_count_of_less_than_one_does_nothing(shell: Shell) -> None:
    for count in ("0", "", "9223372036854775808"):  # the second is -1, the last the least long
        command(shell, f"gcd:traceoff:{count}")
        call(shell, "gcd 4 6")
        assert shell.cat("tracing_on") == "1\n"
        command(shell, "!gcd:traceoff:0")


def test_each_function_has_its_own_count(shell: Shell) -> None:
    command(shell, "*:traceoff:2")
    names = [name.partition(":")[0] for name in commands(shell)]
    assert len(names) > 500
    for name in ("gcd", "lcm", "gcd", "gcd", "int_sqrt"):
        shell.echo("1", "tracing_on")
        call(shell, f"{name} 4 6")
    left = dict(line.split(":traceoff:count=") for line in commands(shell))
    # lcm calls gcd, which finds tracing off by then.
    expected = {"gcd": "0", "lcm": "1", "int_sqrt": "1"}
    assert {name: left[name] for name in expected} == expected


def test_counts_are_kept_when_functions_come_and_go(shell: Shell) -> None:
    command(shell, "gcd:traceoff:5")
    call(shell, "gcd 4 6")
    command(shell, "lcm:traceoff:7")
    command(shell, "int_s*:traceoff:9")
    command(shell, "!lcm:traceoff:0")
    assert sorted(commands(shell)) == ["gcd:traceoff:count=4", "int_sqrt:traceoff:count=9"]
    shell.echo("1", "tracing_on")
    call(shell, "gcd 4 6")
    assert "gcd:traceoff:count=3" in commands(shell)


def test_commands_without_anything_to_do_stay_in_the_guest(shell: Shell) -> None:
    shell.echo("0", "tracing_on")
    for text in ("traceoff", "traceon:0", "traceoff:5", "stacktrace", "stacktrace:3"):
        command(shell, f"gcd:{text}")
    before = shell.machine.hypercall_count
    call(shell, "gcd 4 6 x100000")
    command(shell, "gcd:traceon")
    call(shell, "gcd 4 6 x1000")  # off and on again in each call, and nothing of it costs more
    assert shell.machine.hypercall_count == before


# --- stacktrace -----------------------------------------------------------------------------------


def test_stacktrace_records_where_its_function_is_called_from(shell: Shell) -> None:
    command(shell, "gcd:stacktrace")
    call(shell, "lcm 4 6 x2")
    assert lines(shell) == ["<stack trace>", " => gcd", " => lcm", " => host_call"] * 2
    assert ".....  " in shell.cat("trace")


def test_with_a_count_the_trampoline_is_seen_as_in_linux(shell: Shell) -> None:
    command(shell, "gcd:stacktrace:1")
    call(shell, "lcm 4 6 x2")
    text = lines(shell)
    assert re.fullmatch(r" => 0xffffffffc0[0-9a-f]{6}", text[1])
    assert text[2:] == [" => gcd", " => lcm", " => host_call"]
    assert commands(shell) == ["gcd:stacktrace:count=0"]


def test_beside_a_tracer_the_list_function_is_seen_as_in_linux(shell: Shell) -> None:
    trace(shell, "gcd")
    command(shell, "gcd:stacktrace:1")
    call(shell, "lcm 4 6 x2")
    callers = [" => ftrace_call", " => gcd", " => lcm", " => host_call"]
    assert lines(shell) == [
        "<stack trace>",
        " => arch_ftrace_ops_list_func",
        *callers,
        "gcd <-lcm",
        "gcd <-lcm",
    ]
    command(shell, "!gcd:stacktrace:0")
    command(shell, "gcd:stacktrace")
    shell.echo("", "trace")
    call(shell, "lcm 4 6")
    assert lines(shell) == ["<stack trace>", *callers, "gcd <-lcm"]


def test_under_function_graph_stacktrace_shows_the_real_callers(shell: Shell) -> None:
    shell.echo("lcm gcd", FILTER)
    command(shell, "gcd:stacktrace")
    shell.echo("function_graph", "current_tracer")
    call(shell, "lcm 4 6")
    text = [line for line in shell.cat("trace").splitlines() if line.startswith(" => ")]
    assert text == [" => ftrace_call", " => gcd", " => lcm", " => host_call"]
    assert "return_to_handler" not in shell.cat("trace")


def test_stacktrace_goes_through_system_calls_and_interrupts(shell: Shell) -> None:
    command(shell, "__x64_sys_getpid:stacktrace scheduler_tick:stacktrace")
    machine, tasks = shell.machine, shell.session.tasks
    machine.run(lambda: tasks.syscall(tasks.adopt(SCRIPT), "getpid", ()))
    machine.run(lambda: machine.interrupt(machine.cpus[1], "asm_sysvec_apic_timer_interrupt"))
    text = shell.cat("trace")
    assert (
        "<stack trace>\n => __x64_sys_getpid\n => do_syscall_64\n"
        " => entry_SYSCALL_64_after_hwframe\n" in text
    )
    assert " => asm_sysvec_apic_timer_interrupt\n => idle_halt\n => default_idle\n" in text


def test_a_counted_stacktrace_asks_for_tracing_first(shell: Shell) -> None:
    command(shell, "gcd:stacktrace:2")
    shell.echo("0", "tracing_on")
    call(shell, "gcd 4 6 x3")
    assert commands(shell) == ["gcd:stacktrace:count=2"]
    shell.echo("1", "tracing_on")
    call(shell, "gcd 4 6 x3")
    assert commands(shell) == ["gcd:stacktrace:count=0"]
    assert lines(shell).count("<stack trace>") == 2


# --- dump, cpudump --------------------------------------------------------------------------------


def test_dump_takes_the_trace_to_the_console_once(shell: Shell) -> None:
    trace(shell, "lcm gcd")
    call(shell, "lcm 4 6")
    command(shell, "int_sqrt:dump")
    assert "int_sqrt:dump:count=1" in commands(shell)
    before = shell.machine.hypercall_count
    call(shell, "int_sqrt 9 x5")
    assert shell.machine.hypercall_count == before + 1
    assert shell.cat("tracing_on") == "0\n"
    assert lines(shell) == []
    assert "int_sqrt:dump:count=0" in commands(shell)
    text = re.sub(r"^\[ +0\.\d{6}\] ", "", shell.cat("emulator/console"), flags=re.MULTILINE)
    assert re.fullmatch(
        "Dumping ftrace buffer:\n"
        "-{33}\n"
        r"  script-1000      0\.\.\.\.\. +\d+us : lcm <-host_call"
        "\n"
        r"  script-1000      0\.\.\.\.\. +\d+us : gcd <-lcm"
        "\n"
        "-{33}\n",
        text,
    )


def test_what_was_dumped_is_read(shell: Shell) -> None:
    trace(shell, "gcd")
    call(shell, "gcd 4 6 x1000")  # several pages
    command(shell, "int_sqrt:dump")
    call(shell, "int_sqrt 9")
    stats = dict(re.findall(r"^([\w ]+): +(\S+)$", shell.cat("per_cpu/cpu0/stats"), re.MULTILINE))
    assert (stats["entries"], stats["bytes"], stats["read events"]) == ("0", "0", "1000")
    assert shell.cat("emulator/console").count("gcd <-host_call") == 1000
    shell.echo("1", "tracing_on")
    call(shell, "gcd 4 6 x7")
    assert lines(shell) == ["gcd <-host_call"] * 7
    assert shell.cat("trace_pipe").count("gcd <-host_call") == 7


def test_of_a_large_buffer_the_end_is_shown(shell: Shell) -> None:
    shell.echo("4000", "buffer_size_kb")
    trace(shell, "gcd")
    call(shell, "gcd 4 6 x100000")
    shell.echo("the last record", "trace_marker")
    command(shell, "int_sqrt:dump")
    call(shell, "int_sqrt 9")
    text = shell.cat("emulator/console")
    assert (1 << 18) - 100 < len(text) <= 1 << 18
    assert text.splitlines()[-2].endswith("tracing_mark_write: the last record")
    stats = dict(re.findall(r"^([\w ]+): +(\S+)$", shell.cat("per_cpu/cpu0/stats"), re.MULTILINE))
    assert (stats["entries"], stats["bytes"], stats["read events"]) == ("0", "0", "100001")


def test_an_empty_buffer_is_said_to_be_empty(shell: Shell) -> None:
    command(shell, "gcd:dump")
    call(shell, "gcd 4 6")
    assert [line.partition("] ")[2] for line in shell.cat("emulator/console").splitlines()] == [
        "Dumping ftrace buffer:",
        "   (ftrace buffer empty)",
    ]


def test_cpudump_takes_the_records_of_its_cpu_each_time(shell: Shell) -> None:
    trace(shell, "gcd")
    machine = shell.machine
    gcd = shell.session.ftrace.kallsyms.kallsyms_lookup_name("gcd")
    for cpu in range(2):
        machine.run(lambda cpu=cpu: machine.call(gcd, 4, 6, cpu=cpu))
    command(shell, "int_sqrt:cpudump:5")
    assert "int_sqrt:cpudump:unlimited" in commands(shell)
    call(shell, "int_sqrt 9")
    assert shell.cat("emulator/console").count("gcd <-host_return") == 1
    assert shell.cat("trace").count("gcd <-host_return") == 1
    call(shell, "int_sqrt 9")
    assert "(ftrace buffer empty)" in shell.cat("emulator/console")


def test_a_dump_of_the_graph_tracer_is_a_graph(shell: Shell) -> None:
    shell.echo("lcm gcd", FILTER)
    command(shell, "gcd:stacktrace")
    shell.echo("function_graph", "current_tracer")
    call(shell, "lcm 4 6")
    command(shell, "int_sqrt:dump")
    call(shell, "int_sqrt 9")
    text = re.sub(r"^\[ +0\.\d{6}\] ", "", shell.cat("emulator/console"), flags=re.MULTILINE)
    assert re.search(r"^ 0\) +\|  lcm\(\) \{$", text, re.MULTILINE)
    assert re.search(r"^  script-1000      0\.\.\.1\. +\d+us : <stack trace>$", text, re.MULTILINE)
    assert re.search(r"^ 0\) +\d+\.\d{3} us +\|    \}$", text, re.MULTILINE)


def test_a_long_record_is_cut_on_the_console(shell: Shell) -> None:
    shell.echo("x" * 1023, "trace_marker")
    command(shell, "gcd:dump")
    call(shell, "gcd 4 6")
    shown = [len(line) for line in shell.cat("emulator/console").splitlines()]
    assert shown == [37, 48, 15 + 989, 48]


# --- snapshot -------------------------------------------------------------------------------------


def test_snapshot_exchanges_the_buffers_as_often_as_its_count_says(shell: Shell) -> None:
    trace(shell, "lcm int_sqrt")
    command(shell, "gcd:snapshot:1")
    assert "gcd:snapshot:count=1" in commands(shell)
    call(shell, "int_sqrt 9")
    call(shell, "lcm 4 6")  # calls gcd
    assert lines(shell) == []
    snapshot = shell.cat("snapshot")
    assert "int_sqrt <-host_call" in snapshot
    assert "lcm <-host_call" in snapshot
    call(shell, "lcm 4 6")
    assert shell.cat("snapshot") == snapshot
    assert lines(shell) == ["lcm <-host_call"]
    assert "gcd:snapshot:count=0" in commands(shell)
    command(shell, "!gcd:snapshot:0")
    command(shell, "gcd:snapshot")
    call(shell, "lcm 4 6 x3")
    assert commands(shell)[-1] == "gcd:snapshot:unlimited"
    assert lines(shell) != []
    assert shell.cat("snapshot") != snapshot


def test_a_snapshot_has_no_room_before_its_command(shell: Shell) -> None:
    assert "Snapshot is freed" in shell.cat("snapshot")
    assert refused(shell, "nosuch:snapshot:x") == errno.EINVAL
    assert "Snapshot is freed" in shell.cat("snapshot")
    command(shell, "gcd:snapshot")
    assert "Snapshot is allocated" in shell.cat("snapshot")


# --- instances ------------------------------------------------------------------------------------


def test_an_instance_has_commands_of_its_own(shell: Shell) -> None:
    mkdir(shell, "a")
    shell.echo("gcd:traceoff", f"instances/a/{FILTER}", append=True)
    assert shell.cat(FILTER) == ALL
    call(shell, "gcd 4 6")
    assert (shell.cat("instances/a/tracing_on"), shell.cat("tracing_on")) == ("0\n", "1\n")
    command(shell, "gcd:stacktrace")
    shell.echo("lcm:stacktrace", f"instances/a/{FILTER}", append=True)
    shell.echo("1", "instances/a/tracing_on")
    call(shell, "lcm 4 6")
    assert " => gcd" in shell.cat("trace")
    assert " => gcd" not in shell.cat("instances/a/trace")
    assert " => lcm" in shell.cat("instances/a/trace")


def test_a_dump_of_an_instance_is_of_the_top_level(shell: Shell) -> None:
    mkdir(shell, "a")
    shell.echo("said at the top", "trace_marker")
    shell.echo("said in the instance", "instances/a/trace_marker")
    shell.echo("gcd:dump", f"instances/a/{FILTER}", append=True)
    call(shell, "gcd 4 6")
    assert "said at the top" in shell.cat("emulator/console")
    assert "said in the instance" not in shell.cat("emulator/console")
    assert (shell.cat("instances/a/tracing_on"), shell.cat("tracing_on")) == ("1\n", "0\n")


def test_the_commands_of_an_instance_go_with_it(shell: Shell) -> None:
    after_boot = kernel_text(shell)
    for _ in range(3):
        mkdir(shell, "a")
        for text in ("gcd:traceoff:3", "lcm:stacktrace", "*sqrt:dump"):
            shell.echo(text, f"instances/a/{FILTER}", append=True)
        assert kernel_text(shell) != after_boot
        rmdir(shell, "a")
        assert shell.cat("enabled_functions") == ""
        assert kernel_text(shell) == after_boot
    call(shell, "lcm 4 6")
    assert shell.cat("emulator/call") == "lcm(4, 6) = 12\n"


def mkdir(shell: Shell, name: str) -> None:
    instances = shell.node("instances")
    shell.machine.run(lambda: instances.mkdir(name))  # type: ignore[union-attr]


def rmdir(shell: Shell, name: str) -> None:
    instances = shell.node("instances")
    shell.machine.run(lambda: instances.rmdir(name))  # type: ignore[union-attr]


# --- in text and lists ----------------------------------------------------------------------------


def test_commands_are_seen_as_ops_and_leave_no_trace_in_text(shell: Shell) -> None:
    after_boot = kernel_text(shell)
    command(shell, "gcd:traceoff gcd:traceon:3 lcm:stacktrace")
    enabled = shell.cat("enabled_functions")
    assert re.search(r"^gcd \(2\)       ->arch_ftrace_ops_list_func\+", enabled, re.MULTILINE)
    assert re.search(
        r"^lcm \(1\)      \ttramp: 0x\w+ \(function_trace_probe_call\+0x0/0x\w+\)"
        r" ->function_trace_probe_call\+",
        enabled,
        re.MULTILINE,
    )
    assert "probe of traceoff" in shell.cat("emulator/ops")
    assert kernel_text(shell) != after_boot
    for text in ("!gcd:traceoff", "!*:traceon:0", "!l*:stacktrace"):
        command(shell, text)
    assert shell.cat("enabled_functions") == ""
    assert kernel_text(shell) == after_boot


def test_a_command_on_a_function_that_is_not_traced_leaves_the_tracer_alone(shell: Shell) -> None:
    trace(shell, "lcm")
    command(shell, "gcd:stacktrace")
    call(shell, "lcm 4 6")
    assert lines(shell) == [
        "lcm <-host_call",
        "<stack trace>",
        " => gcd",
        " => lcm",
        " => host_call",
    ]


def test_truncation_takes_functions_and_leaves_commands(shell: Shell) -> None:
    shell.echo("lcm", FILTER)
    command(shell, "gcd:traceoff:5")
    shell.echo("", FILTER)
    assert shell.cat(FILTER) == f"{ALL}gcd:traceoff:count=5\n"


def test_functions_of_a_kind_are_listed_in_order_of_hash_buckets() -> None:
    # Addresses and order as a Linux 6.1 without address randomisation has them.
    addresses = {
        0xFFFFFFFF81365490: "readv",
        0xFFFFFFFF81365FB0: "writev",
        0xFFFFFFFF813669E0: "read",
        0xFFFFFFFF81367160: "write",
        0xFFFFFFFF81377270: "rmdir",
        0xFFFFFFFF81378DA0: "rename",
        0xFFFFFFFF8137F1A0: "readlink",
        0xFFFFFFFF8139B860: "removexattr",
    }
    listed = FtraceGraphHash.of(np.array(list(addresses), dtype=np.uint64)).ips.tolist()
    assert " ".join(addresses[ip] for ip in listed) == (
        "read readv rename write removexattr readlink writev rmdir"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gcd:nosuch", errno.EINVAL),
        ("gcd:", errno.EINVAL),
        ("nosuch:traceoff", errno.EINVAL),
        ("gcd:traceoff:x", errno.EINVAL),
        ("gcd:traceoff:-1", errno.EINVAL),
        ("gcd:traceoff:18446744073709551616", errno.ERANGE),
        ("!gcd:traceoff", errno.ENODEV),
        ("!nosuch:dump", errno.ENODEV),
        ("!gcd:nosuch", errno.EINVAL),
    ],
)
def test_a_refused_command_changes_nothing(shell: Shell, text: str, expected: int) -> None:
    after_boot = kernel_text(shell)
    ops = shell.cat("emulator/ops")
    assert refused(shell, text) == expected
    assert shell.cat(FILTER) == ALL
    assert (kernel_text(shell), shell.cat("emulator/ops")) == (after_boot, ops)


def test_doing_it_already_is_refused(shell: Shell) -> None:
    command(shell, "gcd:traceoff:3")
    assert refused(shell, "gcd:traceoff:4") == errno.EINVAL
    command(shell, "gcd:traceoff")  # without a count it is another kind
    assert commands(shell) == ["gcd:traceoff:unlimited", "gcd:traceoff:count=3"]
    assert refused(shell, "!lcm:traceoff") == errno.EINVAL


def test_set_ftrace_notrace_takes_no_commands(shell: Shell) -> None:
    with pytest.raises(TracefsError) as caught:
        shell.echo("gcd:traceoff", "set_ftrace_notrace")
    assert caught.value.errno == errno.EINVAL
    command(shell, "gcd:traceoff")
    assert shell.cat("set_ftrace_notrace") == "#### no functions disabled ####\n"


def test_commands_go_with_their_module_and_can_be_set_again(shell: Shell) -> None:
    command(shell, "ext4_f*:traceoff:3 gcd:traceoff:4")
    before = commands(shell)
    assert len(before) > 2
    assert all("[ext4]" in line for line in before if not line.startswith("gcd"))
    shell.echo("unload ext4", "emulator/modules")
    assert commands(shell) == ["gcd:traceoff:count=4"]
    shell.echo("load ext4", "emulator/modules")
    command(shell, "ext4_f*:traceoff:5")
    assert {line.rpartition("=")[2] for line in commands(shell) if "ext4" in line} == {"5"}
    assert len(commands(shell)) == len(before)
    command(shell, "!*:traceoff:0")
    assert shell.cat(FILTER) == ALL


# --- many of them ---------------------------------------------------------------------------------


def test_after_any_commands_and_their_removal_text_is_as_after_boot(shell: Shell) -> None:
    after_boot = kernel_text(shell)
    choose = random.Random(7)
    names = [line.split()[0] for line in shell.cat("available_filter_functions").splitlines()]
    kinds = ["traceon", "traceoff", "stacktrace", "traceon:3", "traceoff:0", "stacktrace:2", "dump"]
    model: dict[str, set[str]] = {}
    for _ in range(150):
        kind, name = choose.choice(kinds), choose.choice(names)
        key = kind.rstrip("0123456789")
        pattern = choose.choice([name, f"{name[:4]}*"])
        matched = {n for n in names if n == name or (pattern != name and n.startswith(name[:4]))}
        held = model.setdefault(key, set())
        if choose.random() < 0.4:
            if held & matched:
                command(shell, f"!{pattern}:{kind}")
                held -= matched
            else:
                expected = errno.EINVAL if held else errno.ENODEV
                assert refused(shell, f"!{pattern}:{kind}") == expected
        elif matched <= held:
            assert refused(shell, f"{pattern}:{kind}") == errno.EINVAL
        else:
            command(shell, f"{pattern}:{kind}")
            held |= matched
    listed: dict[str, int] = {}
    for line in commands(shell):
        name, _, rest = line.partition(":")
        key = rest.partition(":")[0] + (":" if "count=" in rest and "dump" not in rest else "")
        listed[key] = listed.get(key, 0) + 1
    assert listed == {key: len(held) for key, held in model.items() if held}
    shell.echo("gcd 270 192 x10", "emulator/call")
    assert shell.cat("emulator/call") == "gcd(270, 192) = 6 (10 times)\n"
    for key, held in model.items():
        if held:
            command(shell, f"!*:{key}0" if key.endswith(":") else f"!*:{key}")
    assert shell.cat(FILTER) == ALL
    assert kernel_text(shell) == after_boot


def test_the_mapper_keeps_what_the_guest_counted(shell: Shell) -> None:
    def in_machine(work: Callable[[], None]) -> None:
        shell.machine.run(work)

    mapper = shell.machine.run(lambda: FtraceFuncMapper(shell.machine.memory))
    ips = np.arange(0xFFFFFFFF81000000, 0xFFFFFFFF81000000 + 16 * 1000, 16, dtype=np.uint64)
    in_machine(lambda: mapper.add_ips(ips[::2], 5))
    in_machine(lambda: mapper.add_ips(ips[1::2], -1))
    assert [mapper.find_ip(int(ip)) for ip in ips[:4]] == [5, -1, 5, -1]
    in_machine(lambda: mapper.remove_ips(ips[2:]))
    assert [mapper.find_ip(int(ip)) for ip in ips[:4]] == [5, -1, None, None]
    in_machine(mapper.free)


def test_what_the_host_does_for_itself_moves_no_command(shell: Shell) -> None:
    shell.echo("0", "tracing_on")
    command(shell, "kernel_clone:traceon kernel_clone:stacktrace:5 kernel_clone:dump")
    command(shell, "kernel_clone:enable_event:sched:sched_switch:3")
    before = commands(shell)
    machine, tasks = shell.machine, shell.session.tasks
    other = HostProcess(pid=2000, start_time=0, ppid=1, comm="other", cpu=0)
    task = machine.run(lambda: tasks.adopt(other))  # appears as already running
    assert (shell.cat("tracing_on"), commands(shell)) == ("0\n", before)
    assert shell.cat("emulator/console") == ""
    machine.run(lambda: machine.cpus[0].set_word("HOST_ARG", 2001))
    assert machine.run(lambda: tasks.syscall(task, "clone", ())) == 2001
    assert commands(shell) != before


# --- beside filters of pids -----------------------------------------------------------------------


def test_commands_do_not_ask_whose_call_it_is(shell: Shell) -> None:
    trace(shell, "gcd")
    shell.echo("1", "set_ftrace_pid")  # the caller is 1000
    command(shell, "gcd:stacktrace:1 gcd:traceoff:1")
    call(shell, "gcd 4 6")
    assert lines(shell) == []  # traceoff comes first
    shell.echo("1", "tracing_on")
    call(shell, "gcd 4 6")
    assert "<stack trace>" in lines(shell)
    assert "gcd <-host_call" not in lines(shell)
