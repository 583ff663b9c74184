"""A real Linux, traced: what its own functions and its own tracefs say is what is recorded."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.linux_session import LinuxShell

from emulated_kernel.errors import GuestTimeout
from ftracefs.errors import TracefsError

pytestmark = pytest.mark.timeout(300)

ROUNDS = 100
TROUBLE = re.compile(r"WARN|BUG|Oops|Call Trace|stall|lockup|segfault|trap ")


@pytest.fixture
def linux(booted: LinuxShell) -> Iterator[LinuxShell]:
    """The guest with nothing traced, and nothing to complain about."""
    yield booted
    booted.session.reset()
    assert booted.session.machine.failure is None
    assert TROUBLE.findall(booted.sh("dmesg")) == []


def traced(linux: LinuxShell, comm: str) -> list[str]:
    """The functions that a command called, in their order."""
    line = re.compile(rf"^ *{comm}-\d+ .*: ([\w.]+) <-", re.M)
    return line.findall(linux.cat("trace"))


def test_each_read_of_a_program_is_one_record(linux: LinuxShell) -> None:
    linux.echo("16384", "buffer_size_kb")
    linux.echo("vfs_read", "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    said = linux.sh("dd if=/dev/zero of=/dev/null bs=1 count=100000 2>&1")
    assert said.splitlines()[:2] == ["100000+0 records in", "100000+0 records out"]
    assert traced(linux, "dd") == ["vfs_read"] * 100_000
    assert "overrun: 0\n" in linux.cat("per_cpu/cpu0/stats")


def test_records_tell_the_guests_own_tasks(linux: LinuxShell) -> None:
    linux.echo("vfs_read", "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    (pid,) = linux.sh("sh -c 'echo $$; exec wc /proc/uptime > /dev/null'").split()
    assert re.search(rf"^ *wc-{pid} +\[000\] \S+ +[\d.]+: vfs_read <-", linux.cat("trace"), re.M)


def test_the_same_functions_are_traced_as_by_the_guests_own_tracer(linux: LinuxShell) -> None:
    own = "/sys/kernel/tracing"
    command = "cat /proc/version > /dev/null"
    wanted = "vfs_* ksys_* do_sys_* proc_reg_* seq_* dput mntput path_openat"
    linux.sh(command)
    linux.sh(f"cd {own}; echo '{wanted}' > set_ftrace_filter; echo function > current_tracer")
    linux.sh(f"echo > trace; {command}; echo 0 > tracing_on")
    text = linux.sh("grep ' cat-' trace; echo nop > current_tracer; echo 1 > tracing_on; cd /")
    theirs = re.findall(r"^ *cat-\d+ .*: ([\w.]+) <-", text, re.M)
    linux.echo(wanted, "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    linux.sh(command)
    assert len(theirs) > 20
    assert traced(linux, "cat") == theirs


CONTEXTS = "update_curr try_to_wake_up vfs_read tick_sched_timer run_timer_softirq scheduler_tick"
MIXED = (
    "for i in 1 2 3; do"
    " dd if=/dev/zero bs=16k count=400 2> /dev/null | md5sum | cat > /dev/null; done"
)
OFTEN = 200


def test_each_function_is_called_in_the_contexts_that_the_guests_own_tracer_shows(
    linux: LinuxShell,
) -> None:
    """Interrupts, softirqs, preemption, need_resched: what either saw often the other has seen."""
    own = "/sys/kernel/tracing"
    linux.sh(f"cd {own}; echo 8192 > buffer_size_kb; echo '{CONTEXTS}' > set_ftrace_filter; cd /")
    linux.sh(f"echo function > {own}/current_tracer; {MIXED}; echo 0 > {own}/tracing_on")
    text = linux.sh(f"cut -c24-90 {own}/trace | awk '/ <-/ {{print $2, $4}}' | sort | uniq -c")
    linux.sh(f"cd {own}; echo nop > current_tracer; echo 1 > tracing_on; echo > set_ftrace_filter")
    rows = [line.split() for line in text.splitlines()]
    theirs = Counter({(flags, name): int(count) for count, flags, name in rows})
    linux.echo("8192", "buffer_size_kb")
    linux.echo(CONTEXTS, "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    linux.sh(MIXED)
    linux.echo("0", "tracing_on")
    ours = Counter(re.findall(r"\[000\] (\S+) +[\d.]+: ([\w.]+) <-", linux.cat("trace")))
    often = {what for seen in (theirs, ours) for what, count in seen.items() if count >= OFTEN}
    assert [what for what in often if not theirs[what] or not ours[what]] == []
    both = {flags for flags, _ in theirs.keys() & ours.keys()}
    assert {".....", "d..1.", "d.h..", "dN.2."} <= both


def test_records_are_stamped_with_the_guests_own_time(linux: LinuxShell) -> None:
    linux.echo("devkmsg_write", "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    linux.sh("echo 'what time is it' > /dev/kmsg")
    (record,) = re.findall(r" ([\d.]+): devkmsg_write <-", linux.cat("trace"))
    (message,) = re.findall(r"\[ *([\d.]+)\] what time is it", linux.sh("dmesg"))
    assert float(record) == pytest.approx(float(message), abs=0.02)


def test_a_graph_is_of_the_calls_that_were_made(linux: LinuxShell) -> None:
    linux.echo("1", "options/funcgraph-proc")
    linux.echo("vfs_read", "set_graph_function")
    linux.echo("function_graph", "current_tracer")
    linux.sh("wc /proc/version > /dev/null")
    lines = [
        line for line in linux.cat("trace").splitlines() if re.match(r" 0\) +wc-\d+ +\|", line)
    ]
    calls = [line.rpartition("|")[2].rstrip() for line in lines]
    depth = 0
    for call in calls:
        depth -= call.lstrip().startswith("}")
        assert len(call) - len(call.lstrip()) == 2 + 2 * depth, call
        depth += call.endswith("{")
    assert depth == 0
    names = [call.strip(" (){;}") for call in calls]
    assert names[0] == "vfs_read"
    assert "version_proc_show" in names


def test_text_is_as_before_after_a_hundred_rounds_under_load(linux: LinuxShell) -> None:
    before, hundred = linux.kernel_text(), linux.sh("seq 100 | md5sum")
    hits = linux.session.ftrace.text_poke.int3_hits
    linux.sh(
        "while [ ! -e /tmp/enough ]; do dd if=/dev/zero bs=4k count=50 2>/dev/null | md5sum; done"
        " > /tmp/sums &"
    )
    for number in range(ROUNDS):
        linux.echo("function" if number % 2 else "function_graph", "current_tracer")
        if number % 10 < 2:
            assert linux.sh("seq 100 | md5sum") == hundred
        linux.echo("nop", "current_tracer")
    sums = Counter(linux.sh("echo > /tmp/enough; wait; cat /tmp/sums").split())
    assert set(sums) == {hashlib.md5(bytes(50 * 4096)).hexdigest(), "-"}
    assert linux.changed_functions(before) == set()
    assert linux.session.ftrace.text_poke.int3_hits > hits  # the guest ran meanwhile


def test_a_stack_leads_from_the_function_to_where_the_kernel_was_entered(
    linux: LinuxShell,
) -> None:
    linux.echo("version_proc_show", "set_ftrace_filter")
    linux.echo("1", "options/func_stack_trace")
    linux.echo("function", "current_tracer")
    linux.sh("/bin/dd if=/proc/version bs=4k")
    linux.echo("0", "tracing_on")
    stack = re.findall(r"^ => (\S+)", linux.cat("trace"), re.MULTILINE)
    names = [function for function in stack if not function.startswith("0x")]  # the trampoline
    assert names == [
        "version_proc_show",
        "seq_read_iter",
        "vfs_read",
        "ksys_read",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ]


def test_only_the_processes_in_set_ftrace_pid_are_traced(linux: LinuxShell) -> None:
    linux.echo("vfs_read", "set_ftrace_filter")
    pid = linux.sh(
        "mkfifo /tmp/gate; sh -c 'read x < /tmp/gate; exec /bin/dd if=/proc/version'"
        " > /dev/null 2>&1 & echo $!"
    )
    linux.echo(pid.strip(), "set_ftrace_pid")
    linux.echo("function", "current_tracer")
    linux.sh("/bin/dd if=/proc/version; echo > /tmp/gate; wait")
    linux.echo("0", "tracing_on")
    pids = re.findall(r"^ *\S+-(\d+) +\[000\]", linux.cat("trace"), re.MULTILINE)
    assert set(pids) == {pid.strip()}


def test_a_function_is_called_however_many_want_the_machine_meanwhile(linux: LinuxShell) -> None:
    stop = threading.Event()

    def nag() -> None:
        while not stop.is_set():
            linux.machine.run(lambda: None)

    others = [threading.Thread(target=nag) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for number in range(20):
            linux.echo(f"number {number}", "trace_marker")
            linux.echo("int_sqrt 144", "emulator/call")
            assert linux.cat("emulator/call") == "int_sqrt(144) = 12\n"
    finally:
        stop.set()
        for other in others:
            other.join()
    assert linux.cat("trace").count("tracing_mark_write: number ") == 20


def test_a_cat_is_a_process_that_reads(linux: LinuxShell) -> None:
    linux.echo("1", "options/funcgraph-proc")
    linux.echo("function_graph", "current_tracer")
    linux.echo("vfs_read", "set_graph_function")
    assert linux.sh("cat /proc/version").startswith("Linux version ")
    lines = [line for line in linux.cat("trace").splitlines() if re.match(r" 0\) +cat-\d+ ", line)]
    graph = "\n".join(line.rpartition("|")[2] for line in lines)
    nested = r"^  vfs_read\(\) \{.*^ +seq_read_iter\(\) \{\n +.*^ +version_proc_show\(\) \{.*^  \}"
    assert re.search(nested, graph, re.MULTILINE | re.DOTALL)


GLOBS = (
    *("vfs_read", "*_read", "*vfs*", "v?s_*d*", "[ab]*", "vfs_[!rw]*", "*", "?", "vfs_re\\*d"),
    *("nosuch*", "v*fs_read", "*read*write*", "__x64_sys_*", "*.isra.0", "x*_[0-9]*"),
)


def test_a_glob_finds_what_the_kernels_own_tracefs_finds(linux: LinuxShell) -> None:
    own = "/sys/kernel/tracing/set_ftrace_filter"
    linux.sh(f"echo > {own}")
    theirs, ours = [], []
    for glob in GLOBS:
        found = linux.sh(f"printf '%s\\n' '{glob}' > {own} 2> /dev/null; md5sum < {own}")
        theirs.append(found.split()[0])
        with suppress(TracefsError):
            linux.echo(glob, "set_ftrace_filter")
        ours.append(hashlib.md5(linux.cat("set_ftrace_filter").encode()).hexdigest())
    linux.sh(f"echo > {own}")
    assert [glob for glob, a, b in zip(GLOBS, ours, theirs, strict=True) if a != b] == []
    assert len(set(ours)) > 10


def test_the_functions_are_those_that_the_kernels_own_tracefs_lists(linux: LinuxShell) -> None:
    theirs = linux.sh("md5sum < /sys/kernel/tracing/available_filter_functions").split()[0]
    ours = linux.cat("available_filter_functions")
    assert hashlib.md5(ours.encode()).hexdigest() == theirs


def test_a_call_that_does_not_come_back_leaves_no_frames_behind(
    linux: LinuxShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulated_kernel.machine.thread.BUDGET_S", 0.5)
    linux.echo("__delay delay_tsc", "set_ftrace_filter")
    linux.echo("function_graph", "current_tracer")
    with pytest.raises(TracefsError):
        linux.echo("__delay 0xffffffffffff", "emulator/call")
    assert "_tsc() {" in linux.cat("trace") or "__delay() {" in linux.cat("trace")
    ftrace, (cpu,) = linux.session.ftrace, linux.machine.cpus
    assert linux.machine.run(lambda: ftrace.fgraph.ret_stack(cpu.current)) == []
    linux.echo("", "set_ftrace_filter")
    assert linux.sh("cat /proc/version").startswith("Linux version ")


def test_a_call_that_does_not_come_back_leaves_preemption_as_it_was(
    linux: LinuxShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulated_kernel.machine.thread.BUDGET_S", 0.2)
    session, machine, memory = linux.session, linux.machine, linux.machine.memory
    delay = session.vmlinux.symbol("__delay")
    count_at = memory.u64(session.vmlinux.symbol("__per_cpu_offset"))
    count_at += session.vmlinux.symbol("__preempt_count")

    def give_up() -> tuple[int, int]:
        before = memory.u32(count_at)
        with pytest.raises(GuestTimeout):
            machine.call(delay, 0xFFFFFFFFFFFF)
        return before, memory.u32(count_at)

    for before, after in [machine.run(give_up) for _ in range(5)]:
        assert before == after
