"""A distribution's kernel on two processors, traced on both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from support.linux_session import LinuxShell, switched_on

TROUBLE = re.compile(r"WARN|BUG|Oops|Call Trace|stall|lockup|segfault|trap ")
# A second one that computes on whatever processor is free.
BURN = "i=0; while [ $i -lt {0} ]; do i=$((i+1)); done"


@pytest.fixture(scope="module")
def two() -> Iterator[LinuxShell]:
    with switched_on(cpus=2) as linux:
        yield linux


@pytest.fixture
def linux(two: LinuxShell) -> Iterator[LinuxShell]:
    """The guest with nothing traced, and nothing to complain about."""
    yield two
    two.session.reset()
    assert two.session.machine.failure is None
    assert TROUBLE.findall(two.sh("dmesg")) == []


def busy(linux: LinuxShell, command: str, count: int = 3000) -> str:
    """Run a command while the other processor has something to do as well."""
    return linux.sh(f"({BURN.format(count)}) & {command}; wait")


def records(linux: LinuxShell, cpu: int) -> int:
    return len(re.findall(rf" \[00{cpu}\] ", linux.cat("trace")))


def interrupts(linux: LinuxShell, name: str) -> list[int]:
    (line,) = re.findall(rf"^ *{name}:((?: +\d+)+)", linux.sh("cat /proc/interrupts"), re.MULTILINE)
    return [int(word) for word in line.split()]


def test_the_kernel_has_found_both(linux: LinuxShell) -> None:
    assert len(re.findall("^processor", linux.sh("cat /proc/cpuinfo"), re.MULTILINE)) == 2
    assert linux.sh("cat /sys/devices/system/cpu/online") == "0-1\n"
    assert linux.cat("per_cpu/cpu1/stats").startswith("entries: ")


def test_both_have_ticks_and_call_each_other(linux: LinuxShell) -> None:
    before = interrupts(linux, "LOC"), sum(interrupts(linux, "CAL") + interrupts(linux, "RES"))
    busy(linux, BURN.format(3000))
    after = interrupts(linux, "LOC"), sum(interrupts(linux, "CAL") + interrupts(linux, "RES"))
    assert all(a > b for a, b in zip(after[0], before[0], strict=True))
    assert after[1] > before[1]


def test_calls_are_recorded_on_the_processor_that_makes_them(linux: LinuxShell) -> None:
    linux.echo("proc_reg_read proc_single_show", "set_ftrace_filter")
    linux.echo("function", "current_tracer")
    said = linux.sh(
        f"({BURN.format(4000)}) & for i in 1 2 3 4 5 6 7 8; do cat /proc/self/stat; done; wait"
    )
    trace = linux.cat("trace")
    agreed = []
    for line in said.splitlines():
        fields = line.split()
        (recorded,) = re.findall(rf" cat-{fields[0]} +\[00(\d)\] .*: proc_single_show ", trace)
        agreed.append(recorded == fields[38])  # "processor" in proc(5)
    assert len(agreed) == 8
    assert all(agreed)


def test_every_call_of_two_at_once_is_recorded(linux: LinuxShell) -> None:
    linux.echo("vfs_read", "set_ftrace_filter")
    linux.echo("8192", "buffer_size_kb")
    linux.echo("function", "current_tracer")
    copy = "dd if=/dev/zero of=/dev/null bs=1 count=20000"
    linux.sh(f"{copy} & {copy}; wait")
    calls = re.findall(r" dd-(\d+) +\[00(\d)\] .*: vfs_read <-ksys_read", linux.cat("trace"))
    counts = Counter(pid for pid, _ in calls)
    assert len(counts) == 2
    assert all(20000 <= count < 20020 for count in counts.values())
    assert {cpu for _, cpu in calls} == {"0", "1"}


def test_a_mask_leaves_one_out(linux: LinuxShell) -> None:
    linux.echo("2", "tracing_cpumask")
    linux.echo("function", "current_tracer")
    busy(linux, BURN.format(1000), 1000)
    linux.echo("0", "tracing_on")
    assert records(linux, 1) > 100
    assert records(linux, 0) == 0


def test_graphs_of_both_are_whole(linux: LinuxShell) -> None:
    linux.echo("8192", "buffer_size_kb")
    linux.echo("vfs_read", "set_graph_function")
    linux.echo("function_graph", "current_tracer")
    copy = "dd if=/dev/zero of=/dev/null bs=1 count=2000"
    linux.sh(f"{copy} & {copy}; wait")
    linux.echo("0", "tracing_on")
    lines = [line for line in linux.cat("trace").splitlines() if line[:1] == " "]
    opened = Counter(line[:3] for line in lines if line.rstrip().endswith("{"))
    closed = Counter(line[:3] for line in lines if line.split("|", 1)[-1].strip().startswith("}"))
    assert min(opened[" 0)"], opened[" 1)"]) >= 200
    # Whoever is asleep in a read when tracing ends; it may go on on the other one before that.
    assert 0 <= opened.total() - closed.total() < 20


def test_all_sites_on_and_off_while_both_are_busy(linux: LinuxShell) -> None:
    before = linux.kernel_text()
    linux.echo(f"({BURN.format(60000)}) & ({BURN.format(60000)}) &", "emulator/sh")
    for number in range(20):
        linux.echo(("function", "function_graph")[number % 2], "current_tracer")
        linux.sh("cat /proc/version")
        linux.echo("nop", "current_tracer")
    linux.sh("kill %1 %2 2> /dev/null; wait")
    assert linux.changed_functions(before) == set()


def switch_off_and_on(linux: LinuxShell) -> None:
    online = "/sys/devices/system/cpu/cpu1/online"
    assert linux.sh(f"echo 0 > {online}; cat {online}") == "0\n"
    linux.sh("cat /proc/version")
    assert linux.sh(f"echo 1 > {online}; cat {online}") == "1\n"


def test_a_processor_goes_off_and_comes_back(linux: LinuxShell) -> None:
    for _ in range(3):
        switch_off_and_on(linux)
    busy(linux, "cat /proc/version")


def test_a_restored_guest_has_both(two: LinuxShell) -> None:
    with switched_on(cpus=2) as again:
        assert again.session.guest.was_restored
        assert again.sh("cat /sys/devices/system/cpu/online") == "0-1\n"
        again.echo("function", "current_tracer")
        busy(again, BURN.format(1000), 1000)
        again.echo("0", "tracing_on")
        assert records(again, 0)
        assert records(again, 1)


def test_a_restored_guest_has_one_time(two: LinuxShell) -> None:
    """A second processor that were ahead would move the kernel's clock to where the first one's
    counter is much later: until then all that sleeps sleeps on.
    """
    with switched_on(cpus=2) as again:
        machine = again.machine
        processors, state = machine.processors, machine.cpu.state

        def offset(number: int) -> int:
            processors.switch_to(number)
            return state.tsc_offset

        assert again.session.guest.was_restored
        assert len(set(machine.run(lambda: [offset(number) for number in (0, 1, 0)]))) == 1
        switch_off_and_on(again)
