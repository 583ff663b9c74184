"""The whole engine through its files, no mount: what a script sees and what the machine did."""

from __future__ import annotations

import errno
import random
import re

import pytest
from support.ftrace_kernel import load_code
from support.shell import Shell, isolated

from emulated_kernel.machine import thread as thread_module
from ftracefs.errors import TracefsError
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.ops import FTRACE_OPS_FL_SAVE_REGS

COUNTING = """# A callback.
FUNC_NOTRACE count_call
    mov r8, [rdx + OP_PRIVATE]
    inc qword ptr [r8]
    ret
ENDFUNC count_call
"""

SCRIPT = (
    ("vfs_*", "set_ftrace_filter"),
    ("function", "current_tracer"),
    ("gcd 12 18 x3", "emulator/call"),
    ("hello", "trace_marker"),
    ("*lock*", "set_ftrace_filter"),
    ("mutex_is_locked 0xffff888008000000 x2", "emulator/call"),
    ("gcd", "set_ftrace_filter"),
    ("gcd 48 36 x2", "emulator/call"),
)


def run_script(shell: Shell) -> str:
    for text, path in SCRIPT:
        shell.echo(text, path)
    return shell.cat("trace")


def test_the_same_script_gives_the_same_bytes() -> None:
    traces = []
    for _ in range(2):
        with isolated() as shell:
            traces.append(run_script(shell))
    assert traces[0] == traces[1]
    assert "script-1000" in traces[0]
    assert "tracing_mark_write: hello" in traces[0]


def test_a_million_traced_calls_raise_no_hypercall(shell: Shell) -> None:
    def hypercalls() -> int:
        found = re.search(r"^hypercalls: +(\d+)$", shell.cat("emulator/kernel"), re.MULTILINE)
        assert found is not None
        return int(found[1])

    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    before = hypercalls()
    shell.echo("gcd 12 18 x1000000", "emulator/call")
    assert hypercalls() - before < 100
    stats = dict(re.findall(r"^([\w ]+): +(\S+)$", shell.cat("per_cpu/cpu0/stats"), re.MULTILINE))
    assert int(stats["entries"]) + int(stats["overrun"]) == 1_000_000
    assert stats["dropped events"] == "0"


@pytest.mark.parametrize("flags", [0, FTRACE_OPS_FL_SAVE_REGS])
def test_a_million_calls_traced_by_two_ops_raise_no_hypercall(shell: Shell, flags: int) -> None:
    ftrace, machine = shell.session.ftrace, shell.machine
    counter = load_code(ftrace, COUNTING)["count_call"]
    ops = ftrace.new_ops(counter, private=machine.alloc(64), flags=flags, name="counting")
    machine.run(lambda: ftrace_set_filter(ftrace, ops, b"gcd"))
    machine.run(lambda: ftrace.register_ftrace_function(ops))
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    assert shell.cat("enabled_functions").startswith("gcd (2)")
    before = machine.hypercall_count
    shell.echo("gcd 12 18 x1000000", "emulator/call")
    assert shell.cat("emulator/call") == "gcd(12, 18) = 6 (1000000 times)\n"
    assert machine.hypercall_count - before < 100
    assert ftrace.memory.u64(ops.private) == 1_000_000
    stats = dict(re.findall(r"^([\w ]+): +(\S+)$", shell.cat("per_cpu/cpu0/stats"), re.MULTILINE))
    assert int(stats["entries"]) + int(stats["overrun"]) == 1_000_000


def test_a_traced_function_returns_what_it_returned_untraced(shell: Shell) -> None:
    shell.echo("gcd 270 192", "emulator/call")
    untraced = shell.cat("emulator/call")
    shell.echo("function", "current_tracer")
    shell.echo("gcd 270 192", "emulator/call")
    assert shell.cat("emulator/call") == untraced == "gcd(270, 192) = 6\n"


def kernel_text(shell: Shell) -> bytes:
    address, data = shell.session.image.segments[".text"]
    return shell.machine.memory.read(address, len(data))


def test_text_is_as_after_boot_after_any_filters_and_nop(shell: Shell) -> None:
    after_boot = kernel_text(shell)
    names = shell.cat("available_filter_functions").split("\n")[:-1]
    choose = random.Random(20)
    for _ in range(60):
        path = choose.choice(["set_ftrace_filter", "set_ftrace_notrace"])
        word = choose.choice(names).split()[0]
        pattern = choose.choice([word, f"{word[:3]}*", f"*{word[-3:]}", f"!{word}", "*lock*"])
        try:
            shell.echo(pattern, path, append=choose.random() < 0.5)
        except TracefsError:
            pass
        shell.echo(choose.choice(["function", "nop"]), "current_tracer")
    shell.echo("function", "current_tracer")
    assert kernel_text(shell) != after_boot
    shell.echo("nop", "current_tracer")
    assert kernel_text(shell) == after_boot


def patched_sites(shell: Shell) -> int:
    found = re.search(r"^text patches: +(\d+) sites", shell.cat("emulator/kernel"), re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_a_new_filter_never_passes_through_all_functions(shell: Shell) -> None:
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    before = patched_sites(shell)
    shell.echo("lcm", "set_ftrace_filter")
    assert patched_sites(shell) - before == 2
    assert shell.cat("set_ftrace_filter") == "lcm\n"


def test_an_emptied_filter_means_all_functions(shell: Shell) -> None:
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    shell.echo("", "set_ftrace_filter")
    enabled = shell.cat("enabled_functions").count("\n")
    assert enabled == shell.cat("available_filter_functions").count("\n")


def test_a_fault_of_a_called_function_is_an_oops_and_the_machine_goes_on(shell: Shell) -> None:
    with pytest.raises(TracefsError):
        shell.echo("_raw_spin_lock 0x10", "emulator/call")
    assert "Oops" in shell.cat("emulator/call")
    shell.echo("gcd 12 18", "emulator/call")
    assert shell.cat("emulator/call") == "gcd(12, 18) = 6\n"


def test_a_disassembly_shows_what_the_call_site_is_now(shell: Shell) -> None:
    assert "call site: nop" in shell.cat("emulator/text/gcd")
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    assert re.search(r"e8 .. .. .. ..", shell.cat("emulator/text/gcd").split("\n")[1])


def test_a_real_clock_gives_stamps_that_never_go_back() -> None:
    with isolated(clock="real") as shell:
        shell.echo("gcd", "set_ftrace_filter")
        shell.echo("function", "current_tracer")
        shell.echo("gcd 12 18 x1000", "emulator/call")
        stamps = [float(s) for s in re.findall(r" (\d+\.\d{6}): gcd", shell.cat("trace"))]
    assert len(stamps) == 1000
    assert stamps == sorted(stamps)


@pytest.mark.parametrize(
    "call", ["__set_task_comm 7 4096 7 3", "kthread_create_on_node 3 1 -1", "do_idle", "msleep 50"]
)
def test_after_a_call_that_went_wrong_everything_goes_on(
    shell: Shell, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_module, "BUDGET_S", 0.4)
    with pytest.raises(TracefsError) as refused:
        shell.echo(call, "emulator/call")
    assert refused.value.errno == errno.EFAULT
    for _ in range(3):
        try:
            shell.echo("gcd 12 18", "emulator/call")
        except TracefsError:
            continue  # one more may meet what the first has left locked
        break
    shell.echo("gcd 12 18", "emulator/call")
    assert shell.cat("emulator/call") == "gcd(12, 18) = 6\n"


def test_a_function_is_not_sent_to_itself(shell: Shell) -> None:
    for path in ("emulator/direct", "emulator/livepatch"):
        with pytest.raises(TracefsError) as refused:
            shell.echo("gcd gcd", path)
        assert refused.value.errno == errno.EINVAL
        assert shell.cat(path) == ""
