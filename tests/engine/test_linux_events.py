"""A Linux's own trace events, against what its own tracefs says of the same."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from support.linux_session import LinuxShell

pytestmark = pytest.mark.timeout(600)

GUEST = "/sys/kernel/tracing"
TROUBLE = re.compile(r"WARN|BUG|Oops|Call Trace|stall|lockup|segfault|trap ")
LINE = re.compile(r"^ *(?P<comm>.*)-(?P<pid>\d+) +\[000\] (?P<flags>\S{5}) +[\d.]+: (?P<text>.*)$")
WORKLOAD = (
    "(cat /proc/version; ls /proc > /dev/null; sleep 0.05; sh -c 'exit 3'; wc -l < /proc/self/maps;"
    " dd if=/dev/zero of=/tmp/x bs=64k count=16 2> /dev/null; rm /tmp/x) > /tmp/out"
)


@pytest.fixture
def linux(booted: LinuxShell) -> Iterator[LinuxShell]:
    """The guest with nothing traced, on either side."""
    yield booted
    booted.sh(f"cd {GUEST}; echo 0 > events/enable; echo > trace; echo 1 > tracing_on")
    booted.session.reset()
    assert booted.session.machine.failure is None


def files(linux: LinuxShell, name: str) -> dict[str, str]:
    """Every events/SYSTEM/EVENT/NAME of the guest's own tracefs by its path."""
    paths = linux.sh(f"cd {GUEST}/events; echo */*/{name}").split()
    text = linux.sh(f"cd {GUEST}/events; cat */*/{name}")
    begin = r"^(?=name: )" if name == "format" else r"^(?=.)"
    return dict(zip(paths, re.split(begin, text, flags=re.MULTILINE)[1:], strict=True))


# --- what there is --------------------------------------------------------------------------------


def test_the_events_are_the_kernels_own(linux: LinuxShell) -> None:
    ours = linux.cat("available_events")
    assert ours.count("\n") > 1000
    assert ours == linux.sh(f"cat {GUEST}/available_events")


@pytest.mark.parametrize("name", ["format", "id"])
def test_each_file_about_an_event_is_the_guests_byte_for_byte(linux: LinuxShell, name: str) -> None:
    theirs = files(linux, name)
    assert len(theirs) > 1000
    ours = {path: linux.cat(f"events/{path}") for path in theirs}
    assert ours == theirs


def test_a_directory_has_what_the_guests_has_but_filters_and_triggers(linux: LinuxShell) -> None:
    def entries(path: str) -> set[str]:
        return set(linux.node(f"events/{path}" if path else "events"))  # type: ignore[arg-type]

    for path in ("", "sched", "sched/sched_switch"):
        theirs = set(linux.sh(f"ls {GUEST}/events/{path}").split())
        assert theirs - entries(path) <= {"trigger", "hist", "inject"}
        assert entries(path) <= theirs


# --- records --------------------------------------------------------------------------------------


def records(text: str) -> list[tuple[str, str, str]]:
    """(pid, flags, text) of each line."""
    matches = [LINE.match(line) for line in text.splitlines() if line and line[0] != "#"]
    return [(m["pid"], m["flags"], m["text"]) for m in matches if m is not None]


def both(linux: LinuxShell, systems: list[str]) -> tuple[list[tuple[str, str, str]], ...]:
    """The same workload as recorded here and there; theirs begins later and ends earlier."""
    for system in systems:
        linux.echo("1", f"events/{system}/enable")
    on, off = (
        "; ".join(f"echo {value} > events/{system}/enable" for system in systems)
        for value in (1, 0)
    )
    linux.sh(
        f"cd {GUEST}; echo 16384 > buffer_size_kb; echo 0 > tracing_on; echo > trace; {on};"
        f" echo 1 > tracing_on; {WORKLOAD}; echo 0 > tracing_on; {off}"
    )
    for system in systems:
        linux.echo("0", f"events/{system}/enable")
    linux.echo("0", "tracing_on")
    theirs = records(linux.sh(f"cat {GUEST}/trace; echo > {GUEST}/trace"))
    ours = records(linux.cat("trace"))
    linux.echo("1", "tracing_on")
    return ours, theirs


def by_context(found: list[tuple[str, str, str]]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """What each task did, and each kind of interrupt.

    An interrupt comes between the two recordings of an event, too: one has it before the event, the
    other behind it.
    """
    contexts = defaultdict(list)
    for pid, flags, text in found:
        level = flags[2]
        key = pid if level == "." else "", level
        contexts[key].append((flags.replace("N", ".").replace("n", "."), text))
    return contexts


def run_of(part: list[tuple[str, str]], whole: list[tuple[str, str]]) -> bool:
    """Whether one is in the other without a gap."""
    return any(
        whole[at : at + len(part)] == part for at, first in enumerate(whole) if first == part[0]
    )


SYSTEMS = {
    "sched": ["sched"],
    "irq, timer, kmem": ["irq", "timer", "kmem", "irq_vectors"],
    "syscalls": ["syscalls", "raw_syscalls", "signal", "task"],
    "others": [
        *("workqueue", "exceptions", "rcu", "mmap", "writeback", "vmscan", "power", "pagemap"),
        *("filemap", "net", "skb", "sock", "block", "cgroup", "tlb", "x86_fpu", "maple_tree"),
        *("percpu", "rpm", "cpuhp", "printk", "module", "compaction", "huge_memory", "mmap_lock"),
    ],
}


@pytest.mark.parametrize("systems", SYSTEMS.values(), ids=SYSTEMS)
def test_what_is_recorded_is_what_the_guests_own_tracefs_records(
    linux: LinuxShell, systems: list[str]
) -> None:
    ours, theirs = both(linux, systems)
    assert len(theirs) > 200
    contexts = by_context(ours)
    for context, part in by_context(theirs).items():
        assert run_of(part, contexts[context]), context


def test_each_system_call_is_one_record(linux: LinuxShell) -> None:
    linux.echo("16384", "buffer_size_kb")
    linux.echo("1", "events/syscalls/sys_enter_read/enable")
    linux.echo("1", "events/syscalls/sys_exit_write/enable")
    linux.sh("dd if=/dev/zero of=/dev/null bs=1 count=50000 2> /dev/null")
    for name in ("sys_enter_read", "sys_exit_write"):
        linux.echo("0", f"events/syscalls/{name}/enable")
    text = linux.cat("trace")
    assert len(re.findall(r"^ *dd-.*: sys_read\(fd: 0, buf: \w+, count: 1\)$", text, re.M)) == 50000
    assert len(re.findall(r"^ *dd-.*: sys_write -> 0x1$", text, re.M)) == 50000
    stats = dict(line.split(": ") for line in linux.cat("per_cpu/cpu0/stats").splitlines())
    assert stats["overrun"] == stats["dropped events"] == "0"
    assert int(stats["entries"]) == text.count("\n") - text.count("\n#") - text.startswith("#")


def test_with_all_events_on_the_guest_lives_and_the_counters_are_exact(linux: LinuxShell) -> None:
    linux.echo("1408", "buffer_size_kb")
    linux.echo("1", "events/enable")
    assert linux.cat("events/enable") == "1\n"
    out = linux.sh("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 1; seq 3 | wc -l")
    linux.echo("0", "events/enable")
    assert out == "3\n"
    assert linux.cat("events/enable") == "0\n"
    stats = dict(line.split(": ") for line in linux.cat("per_cpu/cpu0/stats").splitlines())
    entries, overrun = int(stats["entries"]), int(stats["overrun"])
    header = re.search(r"entries-in-buffer/entries-written: (\d+)/(\d+)", linux.cat("trace"))
    assert header is not None
    assert (int(header[1]), int(header[2])) == (entries, entries + overrun)
    pages = linux.session.tracing.global_trace.buffer
    assert linux.machine.run(pages.entries) == entries
    assert entries + overrun > 5000


def test_on_and_off_a_hundred_times_under_load(linux: LinuxShell) -> None:
    before, errors = linux.kernel_text(), TROUBLE.findall(linux.sh("dmesg"))
    assert errors == []
    linux.sh(
        "(while :; do cat /proc/version | md5sum; done > /tmp/sums 2>&1) & echo $! > /tmp/loader"
    )
    for turn in range(100):
        name = ("sched", "irq", "kmem", "timer", "raw_syscalls")[turn % 5]
        linux.echo("1", f"events/{name}/enable")
        linux.echo("0", f"events/{name}/enable")
    linux.sh("kill $(cat /tmp/loader); wait")
    sums = set(linux.sh("cat /tmp/sums").splitlines()[:-1])
    assert len(sums) == 1, "the load has been disturbed"
    assert linux.changed_functions(before) == set()
    assert TROUBLE.findall(linux.sh("dmesg")) == []


# --- who is traced, and where ---------------------------------------------------------------------


def pids_of(linux: LinuxShell, event: str, path: str = "trace") -> list[str]:
    return [pid for pid, _, text in records(linux.cat(path)) if text.startswith(event)]


def only_lists(linux: LinuxShell, path: str, pid: str) -> None:
    """Whoever has ended is listed no more: a task is freed when a grace period has passed."""
    for _ in range(100):
        if linux.cat(path) == f"{pid}\n":
            return
        linux.sh("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done")  # and nothing is forked
    pytest.fail("the child that has ended is still listed")


def test_only_the_events_of_the_listed_pids_are_recorded(linux: LinuxShell) -> None:
    pid = linux.sh("sleep 1000 > /dev/null & echo $!; echo $! > /tmp/other").strip()
    shell = linux.sh("echo $$").strip()
    linux.echo(shell, "set_event_pid")
    assert linux.cat("set_event_pid") == f"{shell}\n"
    linux.echo("1", "events/syscalls/enable")
    linux.sh("kill -0 $(cat /tmp/other); cat /proc/version")
    linux.echo("0", "events/syscalls/enable")
    found = pids_of(linux, "sys_")
    assert set(found) == {shell} != {pid}
    linux.sh("kill $(cat /tmp/other)")


def test_the_events_of_pids_that_are_not_wanted_are_left_out(linux: LinuxShell) -> None:
    shell = linux.sh("echo $$").strip()
    linux.echo(shell, "set_event_notrace_pid")
    linux.echo("1", "events/syscalls/enable")
    linux.sh("cat /proc/version")
    linux.echo("0", "events/syscalls/enable")
    found = set(pids_of(linux, "sys_"))
    assert found
    assert shell not in found


def test_children_are_followed_with_event_fork(linux: LinuxShell) -> None:
    shell = linux.sh("echo $$").strip()
    linux.echo("1", "options/event-fork")
    linux.echo(shell, "set_event_pid")
    linux.echo("1", "events/sched/sched_process_exec/enable")
    linux.sh("cat /proc/version; (cat /proc/uptime)")
    linux.echo("0", "events/sched/sched_process_exec/enable")
    assert len(pids_of(linux, "sched_process_exec: filename=")) == 2
    only_lists(linux, "set_event_pid", shell)
    linux.echo("0", "options/event-fork")


def test_a_function_tracer_follows_forks_by_the_kernels_tracepoints(linux: LinuxShell) -> None:
    shell = linux.sh("echo $$").strip()
    linux.echo("vfs_read", "set_ftrace_filter")
    linux.echo("1", "options/function-fork")
    linux.echo(shell, "set_ftrace_pid")
    linux.echo("function", "current_tracer")
    (child,) = linux.sh("sh -c 'echo $$; exec cat /proc/version > /dev/null'").split()
    found = {pid for pid, _, _ in records(linux.cat("trace"))}
    assert found == {shell, child}
    only_lists(linux, "set_ftrace_pid", shell)


def test_names_are_those_of_tasks_that_only_events_have_seen(linux: LinuxShell) -> None:
    linux.echo("1", "events/sched/sched_process_exit/enable")
    linux.sh("cat /proc/version | wc -l")
    linux.echo("0", "events/sched/sched_process_exit/enable")
    comms = re.findall(
        r"^ *(\S+)-\d+ .*sched_process_exit: comm=(\S+) pid", linux.cat("trace"), re.M
    )
    assert {comm for comm, _ in comms} >= {"cat", "wc"}
    assert all(comm == name for comm, name in comms)


def test_a_function_switches_an_event(linux: LinuxShell) -> None:
    linux.echo("vfs_open:enable_event:sched:sched_switch:1", "set_ftrace_filter", append=True)
    assert linux.cat("events/sched/sched_switch/enable") == "0*\n"
    linux.sh("sleep 0.02")
    linux.sh("cat /proc/version")
    assert linux.cat("events/sched/sched_switch/enable") == "1*\n"
    assert "sched_switch: " in linux.cat("trace")
    linux.echo("!vfs_open:enable_event:sched:sched_switch:0", "set_ftrace_filter", append=True)
    assert linux.cat("events/sched/sched_switch/enable") == "1\n"  # what was switched on stays


def test_an_instance_has_events_of_its_own(linux: LinuxShell) -> None:
    linux.mkdir("instances/own")
    linux.echo("1", "instances/own/events/syscalls/sys_enter_newuname/enable")
    linux.echo("1", "events/syscalls/sys_enter_newuname/enable")
    linux.sh("uname -r")
    linux.echo("0", "events/syscalls/sys_enter_newuname/enable")
    linux.sh("uname -r")
    assert len(pids_of(linux, "sys_newuname(")) == 1
    assert len(pids_of(linux, "sys_newuname(", "instances/own/trace")) == 2
    linux.rmdir("instances/own")
    linux.sh("uname -r")


def test_a_stack_trace_begins_where_the_event_happened(linux: LinuxShell) -> None:
    linux.echo("1", "options/stacktrace")
    linux.echo("1", "events/sched/sched_process_exit/enable")
    linux.sh("sh -c true; cat /proc/version")
    linux.echo("0", "events/sched/sched_process_exit/enable")
    linux.echo("0", "options/stacktrace")
    text = linux.cat("trace")
    assert re.search(
        r"sched_process_exit: .*\n.*<stack trace>\n => do_exit\n => do_group_exit\n", text
    ), text
