"""wakeup, wakeup_rt and wakeup_dl on a distribution's kernel: its own tasks, woken by itself."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.linux_session import LinuxShell, switched_on

from ftracefs.errors import TracefsError

pytestmark = pytest.mark.timeout(600)

GUEST = "/sys/kernel/tracing"
TROUBLE = re.compile(r"WARN|BUG|Oops|Call Trace|stall|lockup|segfault|trap ")
TRACERS = "function_graph wakeup_dl wakeup_rt wakeup function nop\n"
ATTEMPTS = 10
SLEEP = "sleep 0.05"
REALTIME = f"chrt -f 50 {SLEEP}"
ROUND_ROBIN = f"chrt -r 50 {SLEEP}"
DEADLINE = f"chrt -d -T 1000000 -D 2000000 -P 5000000 0 {SLEEP}"
NOT_NICE = f"sh -c 'renice -n -5 -p $$ > /dev/null; exec {SLEEP}'"
FUNCTION = re.compile(r": (\w[\w.]*) <-(\w[\w.]*)$", re.MULTILINE)


@contextmanager
def guest(clock: str, cpus: int) -> Iterator[LinuxShell]:
    """Without a watchdog, which has realtime tasks of its own."""
    with switched_on(clock=clock, cpus=cpus) as linux:
        linux.sh("echo 0 > /proc/sys/kernel/watchdog")
        yield linux


@pytest.fixture(scope="module", params=["real", "virtual"])
def kernel(request: pytest.FixtureRequest) -> Iterator[LinuxShell]:
    with guest(request.param, 1) as linux:
        yield linux


@pytest.fixture(scope="module")
def two() -> Iterator[LinuxShell]:
    with guest("real", 2) as linux:
        yield linux


@pytest.fixture(scope="module")
def virtual() -> Iterator[LinuxShell]:
    with guest("virtual", 1) as linux:
        yield linux


@pytest.fixture
def linux(kernel: LinuxShell) -> Iterator[LinuxShell]:
    """Nothing is traced, and there is nothing to complain about."""
    yield kernel
    check(kernel)


def check(linux: LinuxShell) -> None:
    linux.session.reset()
    assert linux.session.machine.failure is None
    assert TROUBLE.findall(linux.sh("dmesg")) == []


def traced(linux: LinuxShell, tracer: str, command: str) -> str:
    """The trace of the longest wait while a command runs."""
    linux.echo("nop", "current_tracer")
    linux.echo(tracer, "current_tracer")
    linux.sh(command)
    return linux.cat("trace")


def longest(linux: LinuxShell, tracer: str, command: str) -> str:
    """The same when it was the command's own, and nobody else has waited longer."""
    texts = (traced(linux, tracer, command) for _ in range(ATTEMPTS))
    return next(text for text in texts if "| task: sleep-" in text)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line[:1] != "#"]


def mark(text: str, arrow: str) -> tuple[int, str]:
    """The one record with that arrow: its number, and what it says from the time on."""
    found = [
        (n, line.split("us", 1)[1].lstrip("+!#*@$ ").removeprefix(": "))
        for n, line in enumerate(lines(text))
        if f" {arrow} [" in line
    ]
    assert len(found) == 1, text
    return found[0]


def test_those_that_measure_wake_ups_are_there(linux: LinuxShell) -> None:
    assert linux.cat("available_tracers") == TRACERS


def test_the_wait_of_a_realtime_task_is_shown_from_its_wake_up_to_its_switch(
    linux: LinuxShell,
) -> None:
    text = longest(linux, "wakeup_rt", REALTIME)
    latency = int(linux.cat("tracing_max_latency"))
    release = linux.sh("uname -r").strip()
    assert text.startswith(f"# tracer: wakeup_rt\n#\n# wakeup_rt latency trace v1.1.5 on {release}")
    assert f"\n# latency: {latency} us, #" in text
    task = re.search(r"\| task: sleep-(\d+) \(uid:0 nice:0 policy:1 rt_prio:50\)\n", text)
    assert task is not None, text
    pid = int(task[1])
    at, woken = mark(text, "  +")
    assert at == 0
    assert re.fullmatch(rf"\d+:120:\w   \+ \[000\] +{pid}: 49:R sleep", woken.strip())
    end, switch = mark(text, "==>")
    assert re.fullmatch(rf"\d+:120:\w ==> \[000\] +{pid}: 49:R sleep", switch.strip())
    called = [function for function, _ in FUNCTION.findall(text)]
    assert called[-1] == "__traceiter_sched_switch"
    assert "pick_next_task_rt" in called
    assert not FUNCTION.search("\n".join(lines(text)[end:]))


def test_the_header_tells_how_the_kernel_lets_tasks_be_preempted(linux: LinuxShell) -> None:
    linux.echo("0", "options/function-trace")
    switch = "/sys/kernel/debug/sched/preempt"
    try:
        for mode, model in {"full": "preempt", "none": "server", "voluntary": "desktop"}.items():
            linux.sh(f"echo {mode} > {switch}")
            text = longest(linux, "wakeup_rt", REALTIME)
            assert f"(M:{model} VP:0, KP:0, SP:0 HP:0 #P:1)\n" in text
    finally:
        linux.sh(f"echo voluntary > {switch}")


def test_where_it_was_woken_and_switched_to_is_told_by_their_stacks(linux: LinuxShell) -> None:
    text = longest(linux, "wakeup_rt", REALTIME)
    woken, switched = (
        re.findall(r"^ => (\S+)$", stack, re.MULTILINE)
        for stack in re.findall(r"<stack trace>\n((?: => .*\n)+)", text)
    )
    assert woken[0] == "__traceiter_sched_wakeup"
    assert [name for name in woken if name in ("try_to_wake_up", "hrtimer_wakeup")] == [
        *("try_to_wake_up", "hrtimer_wakeup")
    ]
    assert switched[:2] == ["__traceiter_sched_switch", "__schedule"]


@pytest.mark.parametrize(
    ("tracer", "seen"),
    [
        ("wakeup", {REALTIME, ROUND_ROBIN, DEADLINE, NOT_NICE}),
        ("wakeup_rt", {REALTIME, ROUND_ROBIN, DEADLINE}),
        ("wakeup_dl", {DEADLINE}),
    ],
)
def test_which_tasks_count_is_said_by_the_tracer(
    linux: LinuxShell, tracer: str, seen: set[str]
) -> None:
    linux.echo("0", "options/function-trace")
    linux.echo("1", "tracing_thresh")  # whoever has waited, the last is shown
    for command, who in {
        REALTIME: "nice:0 policy:1 rt_prio:50",
        ROUND_ROBIN: "nice:0 policy:2 rt_prio:50",
        DEADLINE: "nice:0 policy:6 rt_prio:0",
        NOT_NICE: "nice:-5 policy:0 rt_prio:0",
        SLEEP: "nice:0 policy:0 rt_prio:0",
    }.items():
        texts = (traced(linux, tracer, command) for _ in range(3))
        shown = any(re.search(rf"\| task: sleep-\d+ \(uid:0 {who}\)", text) for text in texts)
        assert shown == (command in seen), command


def test_a_wait_that_is_too_short_is_not_shown(linux: LinuxShell) -> None:
    linux.echo("100000000", "tracing_thresh")
    assert lines(traced(linux, "wakeup_rt", REALTIME)) == []
    linux.echo("1", "tracing_thresh")
    assert "==>" in longest(linux, "wakeup_rt", REALTIME)


def test_calls_and_returns_are_shown_with_display_graph(linux: LinuxShell) -> None:
    linux.echo("1", "options/display-graph")
    text = longest(linux, "wakeup_rt", REALTIME)
    begin, end = (text.index(f" {arrow} [") for arrow in ("  +", "==>"))
    section = text[begin:end]
    assert re.search(r"\|  schedule\w*\(\) \{\n", section), text
    assert re.search(r" us +\| +pick_next_task_rt\(\)| pick_next_task_rt\(\) \{", section)
    assert not FUNCTION.search(text)
    linux.echo("0", "options/display-graph")
    linux.sh(REALTIME)
    assert FUNCTION.search(linux.cat("trace"))


def test_no_calls_are_recorded_without_function_trace(linux: LinuxShell) -> None:
    linux.echo("0", "options/function-trace")
    text = longest(linux, "wakeup_rt", REALTIME)
    assert not FUNCTION.search(text)
    mark(text, "==>")


@pytest.mark.parametrize("option", ["stacktrace", "userstacktrace"])
def test_options_add_stacks_behind_wake_up_and_switch(linux: LinuxShell, option: str) -> None:
    linux.echo("1", f"options/{option}")
    linux.echo("0", "options/function-trace")
    text = longest(linux, "wakeup_rt", REALTIME)
    kind = {"stacktrace": "<stack trace>", "userstacktrace": "<user stack trace>"}[option]
    for arrow in ("  +", "==>"):
        at, _ = mark(text, arrow)
        assert kind in lines(text)[at + 1]


def test_an_event_tells_where_user_mode_was_left(linux: LinuxShell) -> None:
    linux.echo("1", "options/userstacktrace")
    linux.echo("1", "options/sym-addr")
    linux.echo("1", "events/sched/sched_process_exit/enable")
    linux.sh("cat /proc/self/maps > /tmp/maps; /bin/true")
    text = linux.cat("trace")
    found = re.findall(r"sched_process_exit: comm=cat .*\n.*<user stack trace>\n => +<(\w+)>", text)
    assert len(found) == 1, text
    # Their addresses are the same in each run: the guest's shell has no randomised ones.
    ranges = re.findall(r"^(\w+)-(\w+) r-x", linux.sh("cat /tmp/maps"), re.MULTILINE)
    at = int(found[0], 16)
    assert any(int(start, 16) <= at < int(end, 16) for start, end in ranges), (found, ranges)


def test_its_probes_are_in_the_kernels_tracepoints_only_while_it_is_in_charge(
    linux: LinuxShell,
) -> None:
    vmlinux, memory = linux.session.vmlinux, linux.machine.memory
    at = vmlinux.btf.offset("tracepoint", "funcs")
    probe = linux.session.tracing.label("probe_wakeup_migrate_task")

    def funcs() -> int:
        tracepoint = vmlinux.symbol("__tracepoint_sched_migrate_task") + at
        found = linux.machine.run(lambda: memory.u64(tracepoint))
        return linux.machine.run(lambda: memory.u64(found)) if found else 0

    before = funcs()
    linux.echo("wakeup", "current_tracer")
    assert funcs() == probe != before
    linux.echo("nop", "current_tracer")
    assert funcs() == before


def test_one_at_a_time_wherever_it_is(linux: LinuxShell) -> None:
    linux.mkdir("instances/a")
    linux.echo("wakeup_rt", "instances/a/current_tracer")
    with pytest.raises(TracefsError) as error:
        linux.echo("wakeup", "current_tracer")
    assert error.value.errno == errno.EBUSY
    linux.sh(REALTIME)
    assert "==>" in linux.cat("instances/a/trace")
    linux.echo("nop", "instances/a/current_tracer")
    linux.rmdir("instances/a")


def test_who_is_waited_for_is_known_though_another_gets_its_memory(linux: LinuxShell) -> None:
    """The probes called as the kernel does, with a copy of a task that can be made another one."""
    machine, memory = linux.machine, linux.machine.memory
    offsets, label = linux.session.image.linux, linux.session.tracing.label
    assert offsets is not None
    size = linux.session.vmlinux.btf.size("task_struct")
    linux.echo("0", "options/function-trace")
    linux.echo("wakeup", "current_tracer")

    def waited(canary_xor: int, state: int = 0) -> None:
        current = machine.cpus[0].current_of_kernel
        copy = machine.alloc(size, 64)
        memory.write(copy, memory.read(current, size))
        memory.set_u32(copy + offsets.prio, 7)
        machine.call(label("probe_wakeup"), 0, copy)
        canary = memory.u64(copy + offsets.stack_canary)
        memory.set_u64(copy + offsets.stack_canary, canary ^ canary_xor)
        memory.set_u32(copy + offsets.state, state)
        machine.call(label("probe_wakeup_sched_switch"), 0, 0, current, copy, 0)
        machine.free(copy)

    machine.run(lambda: waited(0xFF00))
    assert lines(linux.cat("trace")) == []
    for state, letter in {0: "R", 1: "S", 0x402: "I", 0x1000: "D", 0x8000: "D", 8: "t"}.items():
        linux.echo("nop", "current_tracer")
        linux.echo("wakeup", "current_tracer")
        machine.run(lambda state=state: waited(0, state))  # type: ignore[misc]
        _, switch = mark(linux.cat("trace"), "==>")
        assert f":  7:{letter} " in switch, (state, switch)


# --- in virtual time ------------------------------------------------------------------------------


def test_the_latency_is_what_the_guests_own_events_say(virtual: LinuxShell) -> None:
    """Its own tracefs stamps wake-up and switch by the same clock, a little before ours do."""
    linux = virtual
    linux.echo("0", "options/function-trace")
    linux.sh(
        f"cd {GUEST}; echo 1 > events/sched/sched_wakeup/enable;"
        " echo 1 > events/sched/sched_switch/enable; echo > trace"
    )
    text = longest(linux, "wakeup_rt", REALTIME)
    own = linux.sh(f"cd {GUEST}; echo 0 > events/enable; cat trace; echo > trace")
    task = re.search(r"\| task: sleep-(\d+) ", text)
    assert task is not None
    stamp = r" (\d+)\.(\d+): "
    woken = re.findall(rf"{stamp}sched_wakeup: comm=sleep pid={task[1]} ", own)
    switched = re.findall(rf"{stamp}sched_switch: .*==> next_comm=sleep next_pid={task[1]} ", own)
    waits = []
    for seconds, micro in woken:
        begin = int(seconds) * 1_000_000 + int(micro)
        ends = [int(s) * 1_000_000 + int(us) for s, us in switched]
        waits.append(min(end for end in ends if end >= begin) - begin)
    latency = int(linux.cat("tracing_max_latency"))
    assert latency > 0
    assert any(abs(latency - wait) <= 30 for wait in waits), (latency, waits)
    check(linux)


def test_two_runs_give_the_same_bytes() -> None:
    traces = []
    for _ in range(2):
        with guest("virtual", 1) as linux:
            text = longest(linux, "wakeup_rt", REALTIME)
            linux.echo("1", "options/display-graph")
            linux.sh(REALTIME)
            traces.append(text + linux.cat("trace"))
    assert traces[0] == traces[1]
    assert traces[0].count("==>") == 2


# --- on two processors ----------------------------------------------------------------------------


@pytest.mark.parametrize("cpu", [0, 1])
def test_calls_are_recorded_on_the_processor_that_it_waits_for(two: LinuxShell, cpu: int) -> None:
    burn = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"
    text = longest(two, "wakeup_rt", f"({burn}) & taskset {1 << cpu:x} {REALTIME}; wait")
    assert re.search(rf"CPU#{cpu} \|.* #P:2\)", text), text
    _, woken = mark(text, "  +")
    _, switch = mark(text, "==>")
    assert f" [00{cpu}] " in woken
    assert f" [00{cpu}] " in switch
    calls = [line for line in lines(text) if " <-" in line]
    assert len(calls) > 10
    assert {re.search(r"-\d+ +(\d)", line)[1] for line in calls} == {str(cpu)}  # type: ignore[index]
    check(two)
