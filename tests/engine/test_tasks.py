"""Tasks of the guest that stand for host processes, on the built-in kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.errors import GuestFault
from emulated_kernel.images.builtin import load_builtin
from emulated_kernel.machine import Machine, Rest
from emulated_kernel.machine import thread as thread_module
from emulated_kernel.procfs import HostProcess
from emulated_kernel.tasks import Asleep, Task, Tasks


class Guest:
    def __init__(self) -> None:
        self.machine = Machine(load_builtin(), clock="virtual")
        self.machine.boot()
        self.tasks = Tasks(self.machine)

    def task(self, pid: int, *, comm: str = "sh", ppid: int = 1, cpu: int = 0) -> Task:
        process = HostProcess(pid, 7, ppid, comm, cpu)
        return self.machine.run(lambda: self.tasks.task_of(process))

    def syscall(self, task: Task, name: str, *arguments: int) -> int:
        return self.machine.run(lambda: self.tasks.syscall(task, name, arguments))

    def comm(self, task: Task) -> bytes:
        return self.machine.memory.cstring(task.address + CONSTANTS["TASK_COMM"], 16)

    def nr_threads(self) -> int:
        return self.machine.memory.u32(self.machine.image.label("nr_threads"))

    def exit(self, task: Task) -> None:
        self.machine.run(lambda: self.tasks.exit(task))


@pytest.fixture
def guest() -> Iterator[Guest]:
    made = Guest()
    yield made
    made.machine.close()


def test_a_task_has_its_processs_pid_name_and_parent(guest: Guest) -> None:
    shell = guest.task(500, comm="bash")
    child = guest.task(501, comm="cat", ppid=500)
    assert guest.syscall(shell, "getpid") == 500
    assert guest.syscall(child, "getpid") == 501
    assert guest.syscall(child, "getppid") == 500
    assert (guest.comm(shell), guest.comm(child)) == (b"bash", b"cat")


def test_a_process_is_one_task_as_long_as_it_lives(guest: Guest) -> None:
    assert guest.task(500) is guest.task(500)


def test_a_reused_pid_is_a_new_task(guest: Guest) -> None:
    old = guest.task(500)
    reused = HostProcess(500, 8, 1, "other", 0)
    new = guest.machine.run(lambda: guest.tasks.task_of(reused))
    assert new is not old
    assert guest.comm(new) == b"other"


def test_a_task_moves_to_the_vcpu_of_its_process(guest: Guest) -> None:
    for cpu in (0, 1, 0, 1, 1):
        task = guest.task(500, cpu=cpu)
        assert guest.syscall(task, "getpid") == 500
        assert guest.machine.memory.u32(task.address + CONSTANTS["TASK_CPU"]) == cpu


def test_tasks_take_turns_on_a_vcpu(guest: Guest) -> None:
    tasks = [guest.task(500 + n) for n in range(5)]
    for _ in range(3):
        assert [guest.syscall(task, "gettid") for task in tasks] == [500, 501, 502, 503, 504]


def test_who_has_ended_is_gone_from_the_guest(guest: Guest) -> None:
    guest.exit(guest.task(400))
    before = guest.nr_threads()
    for pid in range(500, 540):
        task = guest.task(pid, comm="true", cpu=pid % 2)
        guest.syscall(task, "getpid")
        guest.exit(task)
    assert guest.nr_threads() == before
    assert guest.tasks.find(520) is None


def test_the_children_of_who_has_ended_go_to_init(guest: Guest) -> None:
    parent = guest.task(500)
    child = guest.task(501, ppid=500)
    guest.exit(parent)
    assert guest.syscall(child, "getppid") == 1


def test_a_call_runs_as_often_as_asked_and_returns_its_value(guest: Guest) -> None:
    task = guest.task(500)
    gcd = guest.machine.image.label("gcd")
    result = guest.machine.run_sliced(guest.tasks.call_slices(task, gcd, (12, 18), 100_000))
    assert (result.value, result.failure) == (6, "")


def test_an_oops_ends_the_task_and_nothing_else(guest: Guest) -> None:
    other = guest.task(499)
    task = guest.task(500)
    lock = guest.machine.image.label("_raw_spin_lock")
    for _ in range(3):
        task = guest.task(500)
        result = guest.machine.run_sliced(guest.tasks.call_slices(task, lock, (0x10,), 1))
        assert result.failure
        assert guest.tasks.find(500) is None
    assert guest.syscall(other, "getpid") == 499
    assert guest.syscall(guest.task(500), "getpid") == 500


def test_a_call_that_never_returns_ends_the_task_and_nothing_else(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_module, "BUDGET_S", 0.3)
    taken = guest.machine.alloc(64)
    guest.machine.memory.set_u32(taken, 1)
    lock = guest.machine.image.label("_raw_spin_lock")
    task = guest.task(500)
    result = guest.machine.run_sliced(guest.tasks.call_slices(task, lock, (taken,), 1))
    assert "no return" in result.failure
    assert guest.syscall(guest.task(501), "getpid") == 501


def test_a_sleeping_system_call_is_interrupted(guest: Guest) -> None:
    task = guest.task(500)
    window, _ = guest.machine.user_window(guest.machine.cpus[0])
    guest.machine.memory.write(window, (3600).to_bytes(8, "little") + bytes(8))
    with pytest.raises(Asleep):
        guest.syscall(task, "nanosleep", window, 0)
    assert guest.machine.cpus[0].rest is Rest.IDLE
    guest.machine.run(lambda: guest.tasks.interrupt(task))
    assert not task.asleep
    assert guest.syscall(task, "getpid") == 500


def test_other_tasks_run_while_one_sleeps(guest: Guest) -> None:
    sleeper = guest.task(500)
    window, _ = guest.machine.user_window(guest.machine.cpus[0])
    guest.machine.memory.write(window, (3600).to_bytes(8, "little") + bytes(8))
    with pytest.raises(Asleep):
        guest.syscall(sleeper, "nanosleep", window, 0)
    assert guest.syscall(guest.task(501), "getpid") == 501
    guest.exit(sleeper)
    assert guest.syscall(guest.task(501), "getpid") == 501


@pytest.mark.parametrize("victim", ["task", "idle"])
def test_a_vcpu_that_stops_nowhere_comes_back(
    guest: Guest, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vcpu = guest.machine.cpus[0]
    guest.task(500)
    if victim == "idle":
        guest.machine.run(lambda: guest.machine.park(vcpu))
    start = vcpu.cpu.start

    def stop_at_once(address: int) -> int:
        monkeypatch.setattr(vcpu.cpu, "start", start)
        return guest.machine.image.label("gcd")

    monkeypatch.setattr(vcpu.cpu, "start", stop_at_once)
    with pytest.raises(GuestFault):
        guest.syscall(guest.task(500), "getpid")
    for pid in (500, 501):
        assert guest.syscall(guest.task(pid), "getpid") == pid
