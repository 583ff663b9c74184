"""Which tasks are traced: set_ftrace_pid, set_ftrace_notrace_pid, function-fork."""

from __future__ import annotations

import random
import re

import pytest
from support.shell import Shell

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.procfs import HostProcess
from emulated_kernel.tasks import Task
from emulated_kernel.text_poke import NOP5
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.ftrace.trampolines import calc_trampoline_call_offset
from ftracefs.trace.pid_list import TracePidList

SCRIPT_PID = 1000
NO_LIST = "no pid\n"


class Rig:
    """A session and the tasks of its guest."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.machine = shell.machine
        self.memory = shell.machine.memory
        self.tasks = shell.session.tasks
        self.ftrace = shell.session.ftrace
        self.tr = shell.session.tracing.global_trace

    def task(self, pid: int, *, ppid: int = 1, cpu: int = 0) -> Task:
        process = HostProcess(pid, 7, ppid, "sh", cpu)
        if ppid == 1:
            return self.machine.run(lambda: self.tasks.adopt(process))
        return self.machine.run(lambda: self.tasks._fork(self.tasks._tasks[ppid], process))

    def call(self, task: Task, function: str, *arguments: int) -> None:
        address = self.machine.image.label(function)
        result = self.machine.run(lambda: self.tasks.call_once(task, address, arguments))
        assert result.failure == ""

    def syscall(self, task: Task, name: str) -> int:
        return self.machine.run(lambda: self.tasks.syscall(task, name, ()))

    def pids(self, path: str = "trace") -> set[int]:
        """Whose calls were recorded."""
        return set(map(int, re.findall(r"^ +\S+-(\d+) +\[", self.shell.cat(path), re.MULTILINE)))

    def words(self) -> list[int]:
        """Whom each CPU traces, as guest code sees it."""
        at = self.tr.address + CONSTANTS["TR_FTRACE_IGNORE_PID"]
        return [self.memory.u32(at + 4 * cpu.number) for cpu in self.machine.cpus]


@pytest.fixture
def rig(shell: Shell) -> Rig:
    return Rig(shell)


IGNORE, TRACE = CONSTANTS["FTRACE_PID_IGNORE"], CONSTANTS["FTRACE_PID_TRACE"]


# --- the set in guest code -----------------------------------------------------------------------


def test_guest_and_host_agree_on_a_set(rig: Rig) -> None:
    machine = rig.machine

    def changes() -> None:
        pid_list, model = TracePidList(rig.memory), set[int]()
        choose = random.Random(4)
        ranges = [choose.randrange(1 << 30) & ~0x3FFF for _ in range(5)]
        for step in range(600):
            pid = choose.choice(ranges) + choose.choice([0, 1, 63, 64, 0x3FFF])
            add = choose.random() < 0.6
            on_guest = step % 2 == 0
            name = "trace_pid_list_set" if add else "trace_pid_list_clear"
            if on_guest:
                label = rig.ftrace.labels[name]
                assert machine.call(label, pid_list.address, pid) & 0xFFFFFFFF == 0
                pid_list.refill()
            else:
                getattr(pid_list, name)(pid)
            (model.add if add else model.discard)(pid)
            is_set = rig.ftrace.labels["trace_pid_list_is_set"]
            asked = choose.choice(ranges) + choose.choice([0, 1, 63, 64, 0x3FFF])
            assert machine.call(is_set, pid_list.address, asked) == (asked in model)
            assert pid_list.trace_pid_list_is_set(asked) == (asked in model)
        assert list(pid_list) == sorted(model)
        for pid in sorted(model):
            machine.call(rig.ftrace.labels["trace_pid_list_clear"], pid_list.address, pid)
        assert list(pid_list) == []
        pid_list.free()

    used = dict(rig.memory._heap.used)
    machine.run(changes)
    assert rig.memory._heap.used == used


def test_guest_code_refuses_what_no_pid_can_be_and_a_set_without_room(rig: Rig) -> None:
    def refusals() -> list[int]:
        pid_list = TracePidList(rig.memory)
        set_ = rig.ftrace.labels["trace_pid_list_set"]
        is_set = rig.ftrace.labels["trace_pid_list_is_set"]
        call = rig.machine.call
        answers = [call(set_, pid_list.address, n << 14) for n in range(7)]
        answers.append(call(set_, pid_list.address, 1 << 30))
        answers.append(call(set_, 0, 1))
        answers.append(call(is_set, pid_list.address, 1 << 30))
        answers.append(call(is_set, 0, 1))
        pid_list.free()
        return [answer - (1 << 32) if answer >> 31 == 1 else answer for answer in answers]

    assert rig.machine.run(refusals) == [0] * 6 + [-12, -22, -19, 0, 0]


# --- whom a list lets through --------------------------------------------------------------------


def test_only_listed_tasks_are_traced(rig: Rig) -> None:
    first, second = rig.task(500), rig.task(501)
    rig.shell.echo("gcd", "set_ftrace_filter")
    rig.shell.echo("function", "current_tracer")
    for wanted in ({500}, {501}, {500, 501}):
        rig.shell.echo(" ".join(map(str, wanted)), "set_ftrace_pid")
        rig.shell.echo("", "trace")
        for task in (first, second, first):
            rig.call(task, "gcd", 12, 18)
        assert rig.pids() == wanted
    rig.shell.echo("", "set_ftrace_pid")
    assert rig.shell.cat("set_ftrace_pid") == NO_LIST
    rig.shell.echo("gcd 12 18", "emulator/call")
    assert SCRIPT_PID in rig.pids()


def test_a_task_that_is_excluded_is_not_traced_listed_or_not(rig: Rig) -> None:
    first, second = rig.task(500), rig.task(501)
    rig.shell.echo("gcd", "set_ftrace_filter")
    rig.shell.echo("501", "set_ftrace_notrace_pid")
    rig.shell.echo("function", "current_tracer")
    for task in (first, second):
        rig.call(task, "gcd", 12, 18)
    assert rig.pids() == {500}
    rig.shell.echo("500 501", "set_ftrace_pid")
    rig.shell.echo("", "trace")
    for task in (second, first, second):
        rig.call(task, "gcd", 12, 18)
    assert rig.pids() == {500}


def test_a_switch_inside_guest_code_is_seen_without_the_host(rig: Rig) -> None:
    first, second = rig.task(500), rig.task(501)
    rig.shell.echo("function", "current_tracer")
    rig.shell.echo("501", "set_ftrace_pid")
    for task in (first, second, first, second):
        rig.syscall(task, "getpid")
    trace = rig.shell.cat("trace")
    assert rig.pids() == {501}
    assert trace.count(": finish_task_switch.isra.0 <-__schedule") == 2, "coming"
    assert trace.count(": pick_next_task_fair <-__schedule") == 2, "going"
    assert trace.count(": __x64_sys_getpid <-") == 2


def test_a_word_for_each_cpu_tells_whom_it_traces(rig: Rig) -> None:
    assert rig.words() == [TRACE, TRACE]
    first, other = rig.task(500, cpu=0), rig.task(501, cpu=1)
    rig.call(first, "gcd", 1, 1)
    rig.call(other, "gcd", 1, 1)
    rig.shell.echo("500", "set_ftrace_pid")
    assert rig.words() == [500, IGNORE]
    rig.shell.echo("501", "set_ftrace_pid", append=True)
    assert rig.words() == [500, 501]
    rig.call(rig.task(502, cpu=0), "gcd", 1, 1)
    assert rig.words() == [IGNORE, 501]
    rig.call(first, "gcd", 1, 1)
    assert rig.words() == [500, 501]
    rig.shell.echo("500", "set_ftrace_notrace_pid")
    rig.shell.truncate("set_ftrace_pid")
    assert rig.words() == [IGNORE, 501]
    rig.shell.truncate("set_ftrace_notrace_pid")
    assert rig.words() == [TRACE, TRACE]


# --- text ----------------------------------------------------------------------------------------


def test_a_list_patches_the_call_in_the_trampoline_and_no_site(rig: Rig) -> None:
    rig.shell.echo("gcd lcm", "set_ftrace_filter")
    rig.shell.echo("function", "current_tracer")
    ops, labels = rig.ftrace.global_ops, rig.ftrace.labels

    def text() -> tuple[bytes, bytes]:
        sites = rig.ftrace.text_poke.read(rig.ftrace.records.ip)
        return sites.tobytes(), rig.memory.read(ops.trampoline, ops.trampoline_size)

    def call_target(trampoline: bytes) -> int:
        offset = calc_trampoline_call_offset(rig.ftrace, ops)
        assert trampoline[offset] == 0xE8
        distance = int.from_bytes(trampoline[offset + 1 : offset + 5], "little", signed=True)
        return ops.trampoline + offset + 5 + distance

    def shared() -> int:
        """What ftrace_caller itself calls, where functions have more than one op."""
        return addr_from_call(rig.ftrace, labels["ftrace_call"])

    sites, before = text()
    assert shared() == labels["function_trace_call"]
    assert call_target(before) == labels["function_trace_call"]
    rig.shell.echo("1", "set_ftrace_pid")
    same_sites, during = text()
    assert same_sites == sites
    assert call_target(during) == shared() == labels["ftrace_pid_func"]
    call = calc_trampoline_call_offset(rig.ftrace, ops)
    jump = b"\xe9" + (ops.inline_size - 5).to_bytes(4, "little")
    assert (before[:5], during[:5]) == (NOP5, jump), "what is in line does not ask for pids"
    assert (before[5:call], before[call + 5 :]) == (during[5:call], during[call + 5 :])
    rig.shell.echo("", "set_ftrace_pid")
    assert text() == (sites, before)
    assert shared() == labels["function_trace_call"]


def test_a_tracer_that_starts_while_there_is_a_list_asks_it(rig: Rig) -> None:
    rig.shell.echo("1000", "set_ftrace_pid")
    rig.shell.echo("gcd", "set_ftrace_filter")
    rig.shell.echo("function", "current_tracer")
    name = r"gcd \(1\) +\ttramp: \S+ \(ftrace_pid_func\+\S+\) ->ftrace_pid_func\+\S+\n"
    assert re.fullmatch(name, rig.shell.cat("enabled_functions"))
    rig.call(rig.task(500), "gcd", 12, 18)
    rig.shell.echo("gcd 12 18", "emulator/call")
    assert rig.pids() == {SCRIPT_PID}


def test_a_list_holds_for_functions_that_others_trace_too(rig: Rig) -> None:
    samples = rig.ftrace.labels["ftrace_stub"]

    def second_user() -> None:
        ops = rig.ftrace.new_ops(samples, name="second")
        rig.ftrace.register_ftrace_function(ops)

    rig.shell.echo("gcd", "set_ftrace_filter")
    rig.shell.echo("function", "current_tracer")
    rig.machine.run(second_user)
    rig.shell.echo("500", "set_ftrace_pid")
    for pid in (500, 501):
        rig.call(rig.task(pid), "gcd", 12, 18)
    assert rig.pids() == {500}
    rig.shell.echo("501", "set_ftrace_notrace_pid")
    rig.shell.echo("", "set_ftrace_pid")
    rig.shell.echo("", "trace")
    for pid in (500, 501):
        rig.call(rig.task(pid), "gcd", 12, 18)
    assert rig.pids() == {500}


@pytest.mark.parametrize("option", ["func_stack_trace", "func-no-repeats"])
def test_a_list_holds_whatever_the_callback_is(rig: Rig, option: str) -> None:
    rig.shell.echo("gcd", "set_ftrace_filter")
    rig.shell.echo("function", "current_tracer")
    rig.shell.echo("500", "set_ftrace_pid")
    rig.shell.echo("1", f"options/{option}")
    assert "->ftrace_pid_func+" in rig.shell.cat("enabled_functions")
    for pid in (501, 500):
        rig.call(rig.task(pid), "gcd", 12, 18)
    assert rig.pids() == {500}
    assert ("<stack trace>" in rig.shell.cat("trace")) == (option == "func_stack_trace")
    rig.shell.truncate("set_ftrace_pid")
    name = {"func_stack_trace": "stack", "func-no-repeats": "no_repeats"}[option]
    assert f"->function_{name}_trace_call+" in rig.shell.cat("enabled_functions")


def test_a_list_that_changes_while_ftrace_is_switched_off_patches_nothing(rig: Rig) -> None:
    rig.shell.echo("gcd", "set_ftrace_filter")
    rig.shell.echo("function", "current_tracer")
    rig.shell.echo("500", "set_ftrace_pid")
    rig.shell.echo("0", "emulator/sysctl/ftrace_enabled")
    rig.shell.truncate("set_ftrace_pid")
    rig.shell.echo("1", "emulator/sysctl/ftrace_enabled")
    # As in Linux; it costs a little, and lets everybody through.
    assert "->ftrace_pid_func+" in rig.shell.cat("enabled_functions")
    rig.call(rig.task(501), "gcd", 12, 18)
    assert rig.pids() == {501}
    rig.shell.truncate("set_ftrace_pid")
    assert "->function_trace_call+" in rig.shell.cat("enabled_functions")


# --- function_graph ------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_list_holds_for_the_graph_tracer(rig: Rig, when: str) -> None:
    first, second = rig.task(500), rig.task(501)
    rig.shell.echo("1", "options/funcgraph-proc")
    rig.shell.echo("lcm gcd", "set_ftrace_filter")
    if when == "before":
        rig.shell.echo("501", "set_ftrace_pid")
    rig.shell.echo("function_graph", "current_tracer")
    if when == "after":
        rig.shell.echo("501", "set_ftrace_pid")
    for task in (first, second, first):
        rig.call(task, "lcm", 12, 18)
    lines = [line for line in rig.shell.cat("trace").splitlines() if "lcm" in line]
    assert len(lines) == 1
    assert "-501" in lines[0]
    rig.shell.echo("501", "set_ftrace_notrace_pid")
    rig.shell.echo("", "trace")
    rig.call(second, "lcm", 12, 18)
    assert "lcm" not in rig.shell.cat("trace")
    rig.shell.echo("", "set_ftrace_notrace_pid")
    rig.shell.echo("", "set_ftrace_pid")
    rig.call(first, "lcm", 12, 18)
    assert "lcm" in rig.shell.cat("trace")


# --- children ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["set_ftrace_pid", "set_ftrace_notrace_pid"])
def test_children_of_listed_tasks_are_listed_until_they_are_gone(rig: Rig, file: str) -> None:
    rig.task(500)
    rig.task(600)
    rig.shell.echo("500", file)
    rig.task(501, ppid=500)
    assert rig.shell.cat(file) == "500\n", "children are followed with function-fork only"
    rig.shell.echo("1", "options/function-fork")
    child = rig.task(502, ppid=500)
    grandchild = rig.task(503, ppid=502)
    rig.task(601, ppid=600)
    assert rig.shell.cat(file) == "500\n502\n503\n"
    rig.machine.run(lambda: rig.tasks.exit(grandchild))
    assert rig.shell.cat(file) == "500\n502\n"
    rig.shell.echo("0", "options/function-fork")
    rig.machine.run(lambda: rig.tasks.exit(child))
    rig.task(504, ppid=500)
    assert rig.shell.cat(file) == "500\n502\n"


def test_children_far_apart_are_all_listed(rig: Rig) -> None:
    rig.task(500)
    rig.shell.echo("500", "set_ftrace_pid")
    rig.shell.echo("1", "options/function-fork")
    children = [(n << 14) + 7 for n in range(1, 20)]
    for pid in children:
        rig.task(pid, ppid=500)
    assert list(map(int, rig.shell.cat("set_ftrace_pid").split())) == [500, *children]


def test_a_child_is_traced_from_its_first_step(rig: Rig) -> None:
    rig.task(500)
    rig.shell.echo("1", "options/function-fork")
    rig.shell.echo("function", "current_tracer")
    rig.shell.echo("500", "set_ftrace_pid")
    child = rig.task(501, ppid=500)
    assert rig.syscall(child, "getpid") == 501
    assert rig.pids() == {500, 501}
    assert re.search(r"sh-501 .*: schedule_tail <-", rig.shell.cat("trace"))


def test_a_list_whose_tasks_are_gone_is_empty_and_traces_nobody(rig: Rig) -> None:
    rig.shell.echo("1", "options/function-fork")
    task = rig.task(500)
    rig.shell.echo("500", "set_ftrace_pid")
    rig.machine.run(lambda: rig.tasks.exit(task))
    assert rig.shell.cat("set_ftrace_pid") == ""
    rig.shell.echo("gcd", "set_ftrace_filter")
    rig.shell.echo("function", "current_tracer")
    rig.shell.echo("gcd 12 18", "emulator/call")
    assert rig.pids() == set()


def test_a_list_that_became_empty_ends_with_a_write_that_adds_nothing(rig: Rig) -> None:
    rig.shell.echo("1", "options/function-fork")
    for pid in (500, 501):
        task = rig.task(pid)
        rig.shell.echo(str(pid), "set_ftrace_pid", append=True)
        rig.machine.run(lambda task=task: rig.tasks.exit(task))
        assert rig.shell.cat("set_ftrace_pid") == ""
        rig.shell.echo("", "set_ftrace_pid", append=True)
        assert rig.shell.cat("set_ftrace_pid") == NO_LIST
    rig.shell.echo("gcd", "set_ftrace_filter")
    rig.shell.echo("function", "current_tracer")
    rig.shell.echo("gcd 12 18", "emulator/call")
    assert rig.pids() == {SCRIPT_PID}


# --- trace arrays --------------------------------------------------------------------------------


def test_each_trace_array_has_its_own_lists(rig: Rig) -> None:
    rig.shell.mkdir("instances/a")
    for where in ("", "instances/a/"):
        rig.shell.echo("gcd", f"{where}set_ftrace_filter")
        rig.shell.echo("function", f"{where}current_tracer")
    rig.shell.echo("500", "set_ftrace_pid")
    assert rig.shell.cat("instances/a/set_ftrace_pid") == NO_LIST
    first, second = rig.task(500), rig.task(501)
    for task in (first, second):
        rig.call(task, "gcd", 12, 18)
    assert (rig.pids(), rig.pids("instances/a/trace")) == ({500}, {500, 501})
    rig.shell.echo("500", "instances/a/set_ftrace_notrace_pid")
    for where in ("", "instances/a/"):
        rig.shell.echo("", f"{where}trace")
    for task in (first, second):
        rig.call(task, "gcd", 12, 18)
    assert (rig.pids(), rig.pids("instances/a/trace")) == ({500}, {501})


def test_a_trace_array_that_goes_takes_its_lists_and_probes_with_it(rig: Rig) -> None:
    tracepoints = rig.shell.session.tracing.tracepoints

    def probes() -> int:
        names = ("sched_switch", "sched_process_fork", "sched_process_free")
        return sum(len(tracepoints.probes(name)) for name in names)

    rig.shell.mkdir("instances/a")
    rig.shell.rmdir("instances/a")
    used, before = len(rig.memory._heap.used), probes()
    rig.shell.mkdir("instances/a")
    rig.shell.echo("1000", "instances/a/set_ftrace_pid")
    rig.shell.echo("1 2 3", "instances/a/set_ftrace_notrace_pid")
    rig.shell.echo("1", "instances/a/options/function-fork")
    rig.shell.echo("function", "instances/a/current_tracer")
    assert probes() == before + 4  # one of them learns names
    rig.shell.rmdir("instances/a")
    rig.shell.echo("gcd 12 18", "emulator/call")
    assert (len(rig.memory._heap.used), probes()) == (used, before)


# --- cost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
@pytest.mark.parametrize("pid", [SCRIPT_PID, 1])
def test_a_million_calls_under_a_list_raise_no_hypercall(rig: Rig, tracer: str, pid: int) -> None:
    def hypercalls() -> int:
        found = re.search(r"^hypercalls: +(\d+)$", rig.shell.cat("emulator/kernel"), re.MULTILINE)
        assert found is not None
        return int(found[1])

    rig.shell.echo("gcd", "set_ftrace_filter")
    rig.shell.echo(str(pid), "set_ftrace_pid")
    rig.shell.echo(tracer, "current_tracer")
    before = hypercalls()
    rig.shell.echo("gcd 12 18 x1000000", "emulator/call")
    assert hypercalls() - before < 100
    stats = rig.shell.cat("per_cpu/cpu0/stats")
    counts = [int(n) for n in re.findall(r"^(?:entries|overrun): (\d+)$", stats, re.MULTILINE)]
    records = 1_000_000 * (2 if tracer == "function_graph" else 1)
    assert sum(counts) == (records if pid == SCRIPT_PID else 0)


# --- memory --------------------------------------------------------------------------------------


def test_lists_give_their_memory_back(rig: Rig) -> None:
    used = len(rig.memory._heap.used)
    rig.shell.echo("1", "options/function-fork")
    for _ in range(3):
        rig.shell.echo("1 20000 40000", "set_ftrace_pid")
        rig.shell.echo("5000000", "set_ftrace_notrace_pid")
        rig.shell.echo("2", "set_ftrace_pid", append=True)
        rig.shell.echo("", "set_ftrace_pid")
        rig.shell.echo("", "set_ftrace_notrace_pid")
    rig.shell.echo("0", "options/function-fork")
    assert len(rig.memory._heap.used) == used
