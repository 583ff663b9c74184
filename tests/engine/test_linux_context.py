"""Traced calls in a Linux that knows nothing of the engine: by whom, and in which context."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from support.fake_linux import OFFSETS, PREEMPT_ENABLED, FakeLinux, fake_linux

from emulated_kernel.asm_offsets import CONSTANTS as _C
from ftracefs.errors import TracefsError
from ftracefs.ring_buffer.pages import decode

TIF_NEED_RESCHED = 1 << 3
LINE = re.compile(r"^ *(\S+)-(\d+) +\[000\] (\S+) +[\d.]+: (\w+) <-")


@pytest.fixture(params=["inline", "called", "poisoned"])
def linux(request: pytest.FixtureRequest) -> Iterator[FakeLinux]:
    with fake_linux(poison=request.param == "poisoned") as made:
        made.tree.echo("0" if request.param == "called" else "1", "emulator/inline_callbacks")
        made.switch_to(made.new_task(41, "sh"))
        yield made


def records(linux: FakeLinux) -> list[tuple[str, str, str, str]]:
    """(comm, pid, flags, function) of each line of trace, which is emptied."""
    text = linux.tree.read("trace")
    linux.tree.echo("", "trace")
    matches = [LINE.match(line) for line in text.splitlines() if not line.startswith("#")]
    return [match.groups() for match in matches if match is not None]  # type: ignore[misc]


def test_a_record_is_of_the_task_that_linux_says_is_current(linux: FakeLinux) -> None:
    linux.tree.echo("function", "current_tracer")
    shell, cat = linux.new_task(41, "sh"), linux.new_task(4194304, "cat", tgid=42)
    for task in (shell, cat, shell, shell, cat):
        linux.switch_to(task)
        linux.tree.call("add_one", 1)
    seen = records(linux)
    assert [(comm, pid) for comm, pid, _, _ in seen] == [
        ("sh", "41"),
        ("cat", "4194304"),
        ("sh", "41"),
        ("sh", "41"),
        ("cat", "4194304"),
    ]
    assert {name for _, _, _, name in seen} == {"add_one"}


@pytest.mark.parametrize(
    ("count", "thread_flags", "flags"),
    [
        (PREEMPT_ENABLED, 0, "d...."),
        (PREEMPT_ENABLED | 3, 0, "d..3."),
        (PREEMPT_ENABLED | 0x12, 0, "d..f."),
        (PREEMPT_ENABLED | 0x10001, 0, "d.h1."),
        (PREEMPT_ENABLED | 0x100, 0, "d.s.."),
        (PREEMPT_ENABLED | 0x200, 0, "D...."),
        (PREEMPT_ENABLED | 0x10100, 0, "d.H.."),
        (PREEMPT_ENABLED, TIF_NEED_RESCHED, "dn..."),
        (0, TIF_NEED_RESCHED, "dN..."),
        (0, 0, "dp..."),
    ],
)
def test_the_flags_are_those_of_linux_words(
    linux: FakeLinux, count: int, thread_flags: int, flags: str
) -> None:
    task = linux.new_task(41, "sh")
    linux.memory.set_u64(task + OFFSETS.ti_flags, thread_flags | 0x10)
    linux.switch_to(task)
    linux.preempt_count(count)
    linux.tree.echo("function", "current_tracer")
    linux.tree.call("add_one", 1)
    ((_, _, seen, _),) = records(linux)
    assert seen == flags  # a call from outside has interrupts off


def shown_by_linux(count: int, is_resched: bool, migration: int, irqs_off: bool = True) -> str:
    """The column of flags, as tracing_gen_ctx_irq_test and trace_print_lat_fmt make it."""
    bh, hardirq, softirq = count & 0xFE00, count & 0xF0000, count & 0x100
    off = ".dbD"[irqs_off + 2 * bool(bh)]
    is_preempt_resched = not count & 0x80000000
    resched = ".npN"[is_resched + 2 * is_preempt_resched]
    context = "H" if hardirq and softirq else "h" if hardirq else "s" if softirq else "."
    levels = [min(number, 15) for number in (count & 0xFF, migration)]
    return off + resched + context + "".join(f"{level:x}" if level else "." for level in levels)


def test_whatever_changes_between_two_calls_of_one_task_is_seen(linux: FakeLinux) -> None:
    """Each word alone, and back; then what comes."""
    task = linux.new_task(41, "sh")
    linux.switch_to(task)
    linux.tree.echo("function", "current_tracer")
    quiet = (PREEMPT_ENABLED, False, 0)
    states = [quiet, (PREEMPT_ENABLED, True, 0), quiet, (PREEMPT_ENABLED, False, 1), quiet]
    for bits in (1, 0x10, 0x100, 0x200, 0x10000, 0x100000, 0x10100, 0x10302, 0x80000000):
        states += [(PREEMPT_ENABLED ^ bits, False, 0), quiet]
    chance = random.Random(6)
    for _ in range(200):
        count = chance.choice([0, PREEMPT_ENABLED]) | chance.choice([0, 0x10000, 0x20000])
        count |= chance.choice([0, 0x100, 0x200, 0x300]) | chance.choice([0, 1, 2, 15, 16, 255])
        states.append((count, chance.random() < 0.5, chance.choice([0, 0, 1, 15, 16, 65535])))
    for count, is_resched, migration in states:
        linux.memory.set_u64(task + OFFSETS.ti_flags, 0x56 | TIF_NEED_RESCHED * is_resched)
        linux.memory.set_u32(task + OFFSETS.migration_disabled, 0xABCD << 16 | migration)
        linux.preempt_count(count)
        linux.tree.call("add_one", 1)
    assert [flags for _, _, flags, _ in records(linux)] == [shown_by_linux(*s) for s in states]


IRQS = """
FUNC turns_irqs_off
    cli
    ret
ENDFUNC turns_irqs_off
FUNC_NOTRACE irqs_on_and_off
    sti
    call add_one
    call turns_irqs_off
    call add_one
    sti
    call add_one
    cli
    call add_one
    ret
ENDFUNC irqs_on_and_off
"""


def test_interrupts_that_go_off_between_two_calls_of_one_task_are_seen(linux: FakeLinux) -> None:
    ftrace = linux.tree.tracing.ftrace
    labels = linux.machine.run(lambda: ftrace.load_functions("irqs", IRQS))
    linux.tree.echo("function", "current_tracer")
    linux.machine.call(labels["irqs_on_and_off"])
    assert [(flags, name) for _, _, flags, name in records(linux)] == [
        (".....", "add_one"),
        (".....", "turns_irqs_off"),
        ("d....", "add_one"),
        (".....", "add_one"),
        ("d....", "add_one"),
    ]


def test_the_return_of_who_turns_interrupts_off_is_recorded_with_them_off(
    linux: FakeLinux,
) -> None:
    ftrace = linux.tree.tracing.ftrace
    labels = linux.machine.run(lambda: ftrace.load_functions("irqs", IRQS))
    linux.tree.echo("turns_irqs_off", "set_ftrace_filter")
    linux.tree.echo("function_graph", "current_tracer")
    linux.machine.call(labels["irqs_on_and_off"])
    pages = linux.machine.run(linux.tree.tracing.global_trace.buffer.snapshot)
    flags = pages.words.reshape(-1)[decode(pages).at] >> 16 & 0xFF
    assert flags.tolist() == [0, _C["TRACE_FLAG_IRQS_OFF"]]


@pytest.mark.parametrize(("levels", "shown"), [(2, "d...2"), (15, "d...f"), (0x300, "d...f")])
def test_levels_of_disabled_migration_are_counted_beside_those_of_preemption(
    linux: FakeLinux, levels: int, shown: str
) -> None:
    task = linux.new_task(41, "sh")
    linux.memory.set_u32(task + OFFSETS.migration_disabled, levels)
    linux.switch_to(task)
    linux.tree.echo("function", "current_tracer")
    linux.tree.call("add_one", 1)
    ((_, _, flags, _),) = records(linux)
    assert flags == shown


def test_only_the_tasks_in_set_ftrace_pid_are_traced(linux: FakeLinux) -> None:
    shell, cat = linux.new_task(41, "sh"), linux.new_task(42, "cat")
    linux.tree.echo("42", "set_ftrace_pid")
    linux.tree.echo("function", "current_tracer")
    for task in (shell, cat, shell, cat, cat):
        linux.switch_to(task)
        linux.tree.call("double", 1)
    assert [pid for _, pid, _, _ in records(linux)] == ["42"] * 3


def test_a_task_is_known_by_the_name_it_had_last(linux: FakeLinux) -> None:
    linux.tree.echo("function", "current_tracer")
    child, other = linux.new_task(43, "sh"), linux.new_task(44, "other")
    linux.switch_to(child)
    linux.tree.call("add_one", 1)
    linux.rename(child, "busybox")
    linux.tree.call("add_one", 1)
    assert [comm for comm, *_ in records(linux)] == ["busybox", "busybox"]
    linux.tree.call("add_one", 1)
    linux.rename(child, "cat")
    linux.switch_to(other)
    linux.tree.call("add_one", 1)
    assert [comm for comm, *_ in records(linux)] == ["cat", "other"]


def test_each_task_has_its_own_depth_in_a_graph(linux: FakeLinux) -> None:
    linux.tree.echo("function_graph", "current_tracer")
    for pid in range(100, 300):
        linux.switch_to(linux.new_task(pid, f"task{pid}"))
        assert linux.tree.call("add_one_twice", 5) == 7
    text = linux.tree.read("trace")
    assert text.count("add_one_twice() {") == 200
    assert text.count("  add_one();") == 400
    assert text.count("=> ") == 200 - 1


def test_who_gets_the_struct_of_one_that_is_gone_has_no_calls_to_return_from(
    linux: FakeLinux,
) -> None:
    linux.tree.echo("function_graph", "current_tracer")
    gone = linux.new_task(50, "gone")
    linux.switch_to(gone)
    linux.tree.call("add_one", 1)
    mirrors = linux.tree.tracing.ftrace.mirrors
    assert mirrors is not None
    fgraph = linux.tree.tracing.ftrace.fgraph
    (mirror,) = (m for m in mirrors.tasks() if linux.memory.u32(m + _C["TASK_PID"]) == 50)
    base = linux.memory.u64(mirror + _C["TASK_RET_BASE"])
    linux.memory.set_u64(mirror + _C["TASK_RET_TOP"], base + 2 * _C["FG_SIZE"])
    assert len(fgraph.ret_stack(mirror)) == 2
    linux.new_task(51, "new", at=gone)
    assert linux.tree.call("add_one", 1) == 2
    assert fgraph.ret_stack(mirror) == []
    assert linux.memory.u32(mirror + _C["TASK_PID"]) == 51


def test_more_tasks_than_mirrors_were_made_ready_are_told_apart(linux: FakeLinux) -> None:
    linux.tree.echo("function", "current_tracer")
    tasks = [linux.new_task(pid, "many") for pid in range(1000, 1400)]
    for task in tasks:
        linux.switch_to(task)
        linux.tree.call("add_one", 1)
    assert [int(pid) for _, pid, _, _ in records(linux)] == list(range(1000, 1400))


def test_tasks_that_share_a_mirror_are_traced_and_have_no_graph(linux: FakeLinux) -> None:
    labels = linux.tree.tracing.ftrace.labels
    linux.memory.set_u64(labels["free_mirrors"], 0)
    linux.tree.echo("function", "current_tracer")
    for pid in (61, 62, 61):
        linux.switch_to(linux.new_task(pid, "late"))
        linux.tree.call("add_one", 1)
    assert [pid for _, pid, _, _ in records(linux)] == ["61", "62", "61"]
    linux.tree.echo("function_graph", "current_tracer")
    linux.switch_to(linux.new_task(63, "late"))
    assert linux.tree.call("add_one_twice", 5) == 7
    assert "add_one" not in linux.tree.read("trace")


def test_without_any_event_all_of_them_can_be_switched(linux: FakeLinux) -> None:
    for value in ("1", "0"):
        linux.tree.echo(value, "events/enable")
    with pytest.raises(TracefsError, match="no such event"):
        linux.tree.echo("sched", "set_event")
