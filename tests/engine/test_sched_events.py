"""The scheduler's events on the built-in kernel: when they are recorded, and what they say."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import replace

import pytest
from support.events import bring, events, finish, process, texts
from support.shell import Shell, isolated

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.procfs import read_process
from emulated_kernel.text_poke import NOP5

SCHED = [
    *("sched_process_exec", "sched_process_fork", "sched_process_wait", "sched_process_exit"),
    *("sched_process_free", "sched_migrate_task", "sched_switch"),
    *("sched_wakeup_new", "sched_wakeup", "sched_waking"),
]


def test_a_switch_tells_who_leaves_how_and_who_comes(shell: Shell) -> None:
    first = process(shell, 2000, "first")
    second = process(shell, 2001, "second")
    bring(shell, first)
    shell.echo("sched:sched_switch", "set_event")
    bring(shell, second)
    shell.echo("", "set_event")
    bring(shell, first)
    assert texts(shell, "sched_switch") == [
        "prev_comm=first prev_pid=2000 prev_prio=120 prev_state=S ==>"
        " next_comm=second next_pid=2001 next_prio=120"
    ]
    (switch,) = events(shell)
    assert (switch.pid, switch.cpu, switch.state) == (2000, 0, "d..2.")


def test_the_life_of_a_process_is_told_by_all_events(shell: Shell) -> None:
    parent = process(shell, 2000, "sh")
    bring(shell, parent)
    shell.echo("1", "events/sched/enable")
    child = process(shell, 2001, "ls", ppid=2000)
    finish(shell, child)
    shell.echo("0", "events/sched/enable")
    told = {name: texts(shell, name) for name in SCHED}
    assert told["sched_process_fork"] == ["comm=sh pid=2000 child_comm=sh child_pid=2001"]
    assert told["sched_process_exec"] == ["filename=/usr/bin/ls pid=2001 old_pid=2001"]
    assert told["sched_process_exit"] == ["comm=ls pid=2001 prio=120"]
    assert told["sched_process_wait"] == ["comm=sh pid=2001 prio=120"]
    assert told["sched_process_free"] == ["comm=ls pid=2001 prio=120"]
    assert told["sched_wakeup_new"] == ["comm=sh pid=2001 prio=120 target_cpu=000"]
    assert "comm=sh pid=2000 prio=120 target_cpu=000" in told["sched_wakeup"]
    dead = [text for text in told["sched_switch"] if "prev_pid=2001" in text]
    assert "prev_comm=ls prev_pid=2001 prev_prio=120 prev_state=Z ==>" in dead[-1]
    by = {event.name: event.pid for event in events(shell)}
    assert by["sched_process_fork"] == by["sched_process_wait"] == 2000
    assert by["sched_process_exec"] == by["sched_process_exit"] == 2001
    order = [event.name for event in events(shell)]
    assert order.index("sched_process_fork") < order.index("sched_wakeup_new")
    assert order.index("sched_process_exec") < order.index("sched_process_exit")


def test_a_task_that_goes_to_another_cpu_migrates(shell: Shell) -> None:
    task = process(shell, 2000, "task", cpu=0)
    bring(shell, process(shell, 2001, "other", cpu=0))
    shell.echo("sched:*", "set_event")
    moved = process(shell, 2000, "task", cpu=1)
    assert moved is task
    bring(shell, moved)
    shell.echo("", "set_event")
    assert texts(shell, "sched_migrate_task") == [
        "comm=task pid=2000 prio=120 orig_cpu=0 dest_cpu=1"
    ]
    assert "comm=task pid=2000 prio=120 target_cpu=001" in texts(shell, "sched_wakeup")
    assert shell.machine.memory.u32(task.address + CONSTANTS["TASK_CPU"]) == 1


def test_every_wakeup_has_a_waking_before_it(shell: Shell) -> None:
    tasks = [process(shell, 2000 + i, f"task{i}", cpu=i % 2) for i in range(4)]
    shell.echo("sched_waking sched_wakeup", "set_event")
    for task in tasks * 3:
        bring(shell, task)
    finish(shell, tasks[0])
    shell.echo("", "set_event")
    woken: dict[str, int] = {}
    for event in events(shell):
        if event.name == "sched_waking":
            woken[event.text] = woken.get(event.text, 0) + 1
        else:
            assert woken.get(event.text, 0) > 0, event.text
            woken[event.text] -= 1
    assert len(woken) >= 4
    assert set(woken.values()) == {0}


def test_who_has_waited_for_a_child_has_slept(shell: Shell) -> None:
    task = process(shell, 2000, "sh")
    bring(shell, task)
    shell.echo("sched_switch", "set_event")
    assert process(shell, 2000, "sh") is task
    assert texts(shell, "sched_switch") == []
    waited = replace(task.process, child_faults=task.process.child_faults + 70)
    shell.machine.run(lambda: shell.session.tasks.task_of(waited))
    bring(shell, task)
    shell.echo("", "set_event")
    out, back = texts(shell, "sched_switch")
    assert out.startswith("prev_comm=sh prev_pid=2000 prev_prio=120 prev_state=S ==>")
    assert back.endswith("==> next_comm=sh next_pid=2000 next_prio=120")


def test_the_children_of_who_has_waited_have_ended_if_they_are_gone(shell: Shell) -> None:
    parent = process(shell, 2000, "sh")
    gone = process(shell, 4_190_001, "gone", ppid=2000)  # no process of the host has that pid
    alive = read_process(os.getpid())
    assert alive is not None
    alive = replace(alive, ppid=2000, comm="alive")
    shell.machine.run(lambda: shell.session.tasks.task_of(alive))
    bring(shell, parent)
    shell.echo("sched", "set_event")
    waited = replace(parent.process, child_faults=70)
    shell.machine.run(lambda: shell.session.tasks.task_of(waited))
    assert texts(shell, "sched_process_exit") == [f"comm=gone pid={gone.pid} prio=120"]
    assert texts(shell, "sched_process_wait") == [f"comm=sh pid={gone.pid} prio=120"]
    finish(shell, gone)  # told once more, by its pidfd
    assert len(texts(shell, "sched_process_exit")) == 1


def test_a_sleep_is_told_by_its_state_and_the_idle_task_comes(shell: Shell) -> None:
    shell.echo("sched:sched_switch", "set_event")
    with pytest.raises(Exception, match="went to sleep"):
        shell.echo("msleep 10", "emulator/call")
    shell.echo("", "set_event")
    assert texts(shell, "sched_switch")[0] == (
        "prev_comm=script prev_pid=1000 prev_prio=120 prev_state=D ==>"
        " next_comm=swapper/0 next_pid=0 next_prio=120"
    )


def test_a_task_that_gives_way_in_the_kernel_was_preempted(shell: Shell) -> None:
    """cond_resched is a preemption: the state does not count, and the task stays runnable."""
    script = shell.session.tasks.find(1000)
    assert script is not None
    other = process(shell, 2000, "other")
    bring(shell, other)
    memory, cpu = shell.machine.memory, shell.machine.cpus[0]
    bring(shell, script)
    before = memory.u64(script.address + CONSTANTS["TASK_NIVCSW"])
    shell.echo("sched:sched_switch", "set_event")
    shell.machine.call("wake_up_process", other.address)
    cpu_word = cpu.percpu + CONSTANTS["NEED_RESCHED"]
    memory.set_u64(other.address + CONSTANTS["TASK_VRUNTIME"], 0)
    memory.set_u32(cpu_word, 1)
    shell.echo("__cond_resched", "emulator/call")
    shell.echo("", "set_event")
    first = texts(shell, "sched_switch")[0]
    assert first.startswith("prev_comm=script prev_pid=1000 prev_prio=120 prev_state=R+ ==>")
    assert memory.u64(script.address + CONSTANTS["TASK_NIVCSW"]) == before + 1


@pytest.mark.parametrize(
    ("preempt", "state", "exit_state", "text"),
    [
        (0, 0x0, 0, "R"),
        (0, 0x1, 0, "S"),
        (0, 0x2, 0, "D"),
        (0, 0x4, 0, "T"),
        (0, 0x8, 0, "t"),
        (0, 0x40, 0, "P"),
        (0, 0x402, 0, "I"),
        (0, 0x102, 0, "D"),  # killable
        (0, 0x3, 0, "D"),
        (0, 0x80, 0x20, "Z"),
        (0, 0x80, 0x10, "X"),
        (0, 0x80, 0x30, "Z"),
        (1, 0x1, 0, "R+"),
    ],
)
def test_states_have_their_letters(
    shell: Shell, preempt: int, state: int, exit_state: int, text: str
) -> None:
    """The probe called as the tracepoint calls it, with every state there is."""
    task = shell.machine.alloc(CONSTANTS["TASK_SIZE"])
    memory = shell.machine.memory
    memory.write(task + CONSTANTS["TASK_COMM"], b"someone\0")
    memory.set_u32(task + CONSTANTS["TASK_EXIT_STATE"], exit_state)
    shell.echo("sched:sched_switch", "set_event")
    file = shell.session.tracing.global_trace.events.find_event_file("sched", "sched_switch")
    assert file is not None
    probe = shell.session.tracing.label("trace_event_raw_event_sched_switch")
    shell.machine.call(probe, file.address, preempt, task, task, state)
    (line,) = texts(shell, "sched_switch")
    assert f" prev_state={text} ==>" in line


def test_records_lie_in_the_buffer_as_the_format_says(shell: Shell) -> None:
    first = process(shell, 2000, "first")
    bring(shell, process(shell, 2001, "second"))
    shell.echo("sched:sched_switch", "set_event")
    bring(shell, first)
    shell.echo("", "set_event")
    page = shell.machine.run(lambda: shell.session.tracing.global_trace.buffer.cpus[0].read_page())
    assert page is not None
    header, type_, flags, preempt, pid = struct.unpack_from("<IHBBi", page, 16)
    assert header & 0x1F == 64 // 4
    assert (type_, flags, preempt, pid) == (319, 1, 2, 2001)
    comm, prev_pid, prev_prio, state = struct.unpack_from("<16siiq", page, 28)
    assert (comm.rstrip(b"\0"), prev_pid, prev_prio, state) == (b"second", 2001, 120, 1)
    comm, next_pid, next_prio = struct.unpack_from("<16sii", page, 60)
    assert (comm.rstrip(b"\0"), next_pid, next_prio) == (b"first", 2000, 120)


def test_names_of_every_length_are_whole(shell: Shell) -> None:
    names = ["a", "exactly-fifteen", "with blank", "x" * 15]
    tasks = [process(shell, 2000 + i, name) for i, name in enumerate(names)]
    shell.echo("sched:sched_switch", "set_event")
    for task in tasks:
        bring(shell, task)
    shell.echo("", "set_event")
    found = texts(shell, "sched_switch")
    for i, name in enumerate(names):
        assert any(f"next_comm={name} next_pid={2000 + i} " in text for text in found), name


@pytest.mark.parametrize("length", [1, 2, 3, 4, 100, 112, 113, 2000, 4052, 4053])
def test_a_file_name_of_any_length_is_recorded_if_a_page_has_room(
    shell: Shell, length: int
) -> None:
    memory = shell.machine.memory
    path = shell.machine.alloc(8192)
    memory.write(path, b"p" * (length - 1) + b"\0")
    bprm = shell.machine.alloc(512)
    memory.set_u64(bprm + CONSTANTS["BPRM_FILENAME"], path)
    shell.echo("sched:sched_process_exec", "set_event")
    file = shell.session.tracing.global_trace.events.find_event_file("sched", "sched_process_exec")
    assert file is not None
    probe = shell.session.tracing.label("trace_event_raw_event_sched_process_exec")
    task = shell.machine.cpus[0].current
    shell.machine.call(probe, file.address, task, 77, bprm)
    expected = [f"filename={'p' * (length - 1)} pid=1000 old_pid=77"] if length <= 4052 else []
    assert texts(shell, "sched_process_exec") == expected


def test_text_is_as_before_when_everything_is_off_again(shell: Shell) -> None:
    address, data = shell.session.image.segments[".text"]

    def text() -> bytes:
        return shell.machine.memory.read(address, len(data))

    before = text()
    shell.echo("1", "events/enable")
    assert text() != before
    for name in SCHED:
        for site in shell.session.tracing.tracepoints.sites(name):
            assert shell.machine.memory.read(site, 5) != NOP5
    shell.echo("0", "events/enable")
    assert text() == before


def test_recording_raises_no_hypercall(shell: Shell) -> None:
    def hypercalls() -> int:
        lines = shell.cat("emulator/kernel").splitlines()
        return int(next(line for line in lines if line.startswith("hypercalls")).split()[-1])

    shell.echo("1", "events/enable")
    file = shell.session.image.labels["init_task"]
    before = hypercalls()
    shell.echo(f"set_task_cpu {file:#x} 0 x20000", "emulator/call")
    assert hypercalls() - before < 100
    stats = shell.cat("per_cpu/cpu0/stats")
    counts = [int(stats.split(f"{name}: ")[1].split()[0]) for name in ("entries", "overrun")]
    assert sum(counts) >= 20_000


def test_nothing_is_recorded_while_tracing_is_off(shell: Shell) -> None:
    first, second = process(shell, 2000, "first"), process(shell, 2001, "second")
    shell.echo("1", "events/enable")
    shell.echo("", "trace")
    shell.echo("0", "tracing_on")
    bring(shell, first)
    bring(shell, second)
    assert events(shell) == []
    shell.echo("1", "tracing_on")
    bring(shell, first)
    assert texts(shell, "sched_switch") != []


def test_a_tracer_and_events_share_the_buffer_in_order(shell: Shell) -> None:
    first, second = process(shell, 2000, "first"), process(shell, 2001, "second")
    bring(shell, first)
    shell.echo("pick_next_task_fair finish_task_switch.isra.0", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    shell.echo("sched:sched_switch", "set_event")
    bring(shell, second)
    lines = [line.split(": ", 1)[1] for line in shell.cat("trace").splitlines() if line[0] != "#"]
    names = [line.split()[0].rstrip(":") for line in lines]
    assert names[-3:] == ["pick_next_task_fair", "sched_switch", "finish_task_switch.isra.0"]


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("raw", r"2001 0 \d+ type: 319\n"),
        ("hex", r"000007d1 00000000 [0-9a-f]{16} type: 319\n\n"),
        ("bin", r"(?s:\xd1\x07\0\0\0\0\0\0.{8})type: 319\n"),
    ],
)
def test_raw_hex_and_bin_tell_the_type_only(shell: Shell, option: str, line: str) -> None:
    first = process(shell, 2000, "first")
    bring(shell, process(shell, 2001, "second"))
    shell.echo("sched:sched_switch", "set_event")
    bring(shell, first)
    shell.echo("", "set_event")
    shell.echo(option, "trace_options")
    text = shell.cat("trace").encode(errors="surrogateescape").decode("latin-1")
    records = re.sub(r"(?m)\A(#.*\n)+", "", text)
    assert re.fullmatch(line, records)


def test_the_same_work_gives_the_same_bytes() -> None:
    traces = []
    for _ in range(2):
        with isolated() as shell:
            shell.echo("1", "events/enable")
            finish(shell, process(shell, 2000, "ls"))
            traces.append(shell.cat("trace"))
    assert traces[0] == traces[1]
    assert "sched_process_exec" in traces[0]
