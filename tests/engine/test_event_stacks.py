"""The option stacktrace: each event is followed by how it came about."""

from __future__ import annotations

from support.shell import Shell

from ftracefs.session import SCRIPT

ENTRY = ("do_syscall_64", "entry_SYSCALL_64_after_hwframe")


def switch(shell: Shell) -> None:
    """The task goes to sleep and is woken: two switches."""
    machine, tasks = shell.machine, shell.session.tasks
    machine.run(lambda: machine.park(machine.cpus[0]))
    machine.run(lambda: tasks.bring(tasks.adopt(SCRIPT)))


def stacks(shell: Shell, where: str = "") -> list[tuple[str, ...]]:
    found: list[list[str]] = []
    for line in shell.cat(f"{where}trace").splitlines():
        if line.endswith(": <stack trace>"):
            found.append([])
        elif line.startswith(" => "):
            found[-1].append(line.removeprefix(" => "))
    return [tuple(names) for names in found]


def test_an_event_is_followed_by_its_probe_and_callers(shell: Shell) -> None:
    shell.echo("1", "options/stacktrace")
    shell.echo("1", "events/sched/sched_switch/enable")
    switch(shell)
    away, back = stacks(shell)
    top = ("trace_event_raw_event_sched_switch", "__traceiter_sched_switch", "__schedule")
    assert away[:4] == (*top, "schedule")
    assert away[-1] == "asm_sysvec_reschedule_ipi"
    assert back[:3] == top
    assert back[-1] in {"secondary_startup_64", "startup_64"}


def test_a_fork_is_seen_from_its_system_call_on(shell: Shell) -> None:
    shell.echo("1", "options/stacktrace")
    shell.echo("1", "events/sched/sched_process_fork/enable")
    tasks = shell.session.tasks
    machine = shell.machine
    vcpu = machine.cpus[0]
    task = machine.run(lambda: tasks.adopt(SCRIPT))
    machine.run(lambda: vcpu.set_word("HOST_ARG", 4321))
    assert machine.run(lambda: tasks.syscall(task, "clone", ())) == 4321
    (stack,) = stacks(shell)
    assert stack[:2] == ("trace_event_raw_event_sched_process_fork", "kernel_clone")
    assert stack[-2:] == ENTRY


def test_in_two_trace_arrays_the_iterator_calls_the_probes(shell: Shell) -> None:
    instances = shell.node("instances")
    shell.echo("1", "options/stacktrace")
    shell.machine.run(lambda: instances.mkdir("a"))  # type: ignore[union-attr]
    assert shell.cat("instances/a/options/stacktrace") == "1\n"  # as at the top when it was made
    for where in ("", "instances/a/"):
        shell.echo("1", f"{where}events/sched/sched_switch/enable")
    switch(shell)
    for where in ("", "instances/a/"):
        for stack in stacks(shell, where):
            assert stack[:3] == (
                "trace_event_raw_event_sched_switch",
                "__traceiter_sched_switch",
                "__schedule",
            )
    shell.echo("0", "instances/a/options/stacktrace")
    shell.echo("", "instances/a/trace")
    switch(shell)
    assert stacks(shell, "instances/a/") == []
    assert shell.cat("instances/a/trace").count("sched_switch:") == 2


def test_without_the_option_there_are_only_events(shell: Shell) -> None:
    shell.echo("1", "events/sched/sched_switch/enable")
    for value, count in (("0", 0), ("1", 2), ("0", 0)):
        shell.echo(value, "options/stacktrace")
        shell.echo("", "trace")
        switch(shell)
        assert len(stacks(shell)) == count
        assert shell.cat("trace").count("sched_switch:") == 2


def test_markers_and_calls_have_no_stack(shell: Shell) -> None:
    shell.echo("1", "options/stacktrace")
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    shell.echo("gcd 4 6", "emulator/call")
    shell.echo("said", "trace_marker")
    assert stacks(shell) == []


# --- userstacktrace -------------------------------------------------------------------------------


def at(shell: Shell, label: str) -> str:
    return f" =>  <{shell.session.image.labels[label]:016x}>"


def traced(shell: Shell) -> list[str]:
    lines = shell.cat("trace").splitlines()
    return [line.split(": ", 2)[-1] for line in lines if not line.startswith("#")]


def fork(shell: Shell, pid: int) -> None:
    tasks, machine = shell.session.tasks, shell.machine
    task = machine.run(lambda: tasks.adopt(SCRIPT))
    machine.run(lambda: machine.cpus[0].set_word("HOST_ARG", pid))
    assert machine.run(lambda: tasks.syscall(task, "clone", ())) == pid


def test_a_user_stack_is_where_user_mode_was_left(shell: Shell) -> None:
    shell.echo("1", "options/userstacktrace")
    shell.echo("1", "events/sched/sched_process_fork/enable")
    fork(shell, 4321)
    event, *stack = traced(shell)
    assert event.startswith("comm=script pid=1000")
    assert stack == ["<user stack trace>", at(shell, "user_mode")]


def test_a_kernel_thread_has_an_empty_user_stack(shell: Shell) -> None:
    shell.echo("1", "options/userstacktrace")
    shell.echo("1", "events/sched/sched_switch/enable")
    switch(shell)
    away, *stack, back, idle = traced(shell)
    assert away.startswith("prev_comm=script")
    assert stack == ["<user stack trace>", at(shell, "user_mode_halt")]
    assert back.startswith("prev_comm=swapper/0")
    assert idle == "<user stack trace>"


def test_both_stacks_follow_an_event_the_kernels_first(shell: Shell) -> None:
    shell.echo("1", "options/userstacktrace")
    shell.echo("1", "options/stacktrace")
    shell.echo("1", "events/sched/sched_process_fork/enable")
    fork(shell, 4322)
    _, first, probe, *rest = traced(shell)
    assert (first, probe) == ("<stack trace>", " => trace_event_raw_event_sched_process_fork")
    assert rest[-3:] == [
        " => entry_SYSCALL_64_after_hwframe",
        "<user stack trace>",
        at(shell, "user_mode"),
    ]


def test_a_user_stack_in_numbers(shell: Shell) -> None:
    shell.echo("1", "options/userstacktrace")
    shell.echo("1", "events/sched/sched_process_fork/enable")
    fork(shell, 4323)
    shell.echo("1", "options/raw")
    assert shell.cat("trace").endswith(" type: 12\n")
