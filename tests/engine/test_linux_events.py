"""A Linux's own trace events, against what its own tracefs says of the same."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from support.linux_session import LinuxShell

pytestmark = pytest.mark.timeout(600)

GUEST = "/sys/kernel/tracing"
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
    assert len(theirs) > 500
    contexts = by_context(ours)
    for context, part in by_context(theirs).items():
        assert run_of(part, contexts[context]), context
