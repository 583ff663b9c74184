"""Locks: who gets them, who waits, and what they do to the CPU's state."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.guest import Guest

from emulated_kernel.asm_offsets import CONSTANTS

# Threads that want a lock over and over and sleep while they hold it. The shared area:
# lock at 0, counter at 64, how many are inside at 72, most at once at 80, rounds at 88, done at 96,
# "somebody was inside who must not be" at 104, order of arrival at 128.
THREADS = """
.text
COUNTER = 64
INSIDE = 72
MOST = 80
ROUNDS = 88
DONE = 96
BROKEN = 104
ORDER = 128

.macro WORKER name, lock, unlock
FUNC_NOTRACE \\name                      # rdi shared area
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    push r13
    push r14
    mov rbx, rdi
    mov r12, [rdi + ROUNDS]
.Lround:
    mov rdi, rbx
    call \\lock
    mov rax, [rbx + INSIDE]
    inc rax
    mov [rbx + INSIDE], rax
    cmp rax, [rbx + MOST]
    jbe 1f
    mov [rbx + MOST], rax
1:
    mov r13, [rbx + COUNTER]
    call yield                          # others run and must not get in
    mov rdi, rbx
    inc r13
    mov [rbx + COUNTER], r13
    dec qword ptr [rbx + INSIDE]
    mov rdi, rbx
    call \\unlock
    dec r12
    jne .Lround
    lock inc qword ptr [rbx + DONE]
    xor edi, edi
    call do_exit
ENDFUNC \\name
.endm

WORKER mutex_worker, mutex_lock, mutex_unlock
WORKER semaphore_worker, down, up
WORKER rwsem_writer, down_write, up_write
WORKER rwsem_reader, down_read, up_read

FUNC_NOTRACE completion_waiter           # rdi shared area: waits, then writes its pid down
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov rbx, rdi
    call wait_for_completion
    mov eax, 1
    lock xadd [rbx + DONE], rax
    mov rcx, gs:[CURRENT_TASK]
    mov ecx, [rcx + TASK_PID]
    mov [rbx + rax*8 + ORDER], rcx
    xor edi, edi
    call do_exit
ENDFUNC completion_waiter

FUNC_NOTRACE interruptible_waiter        # rdi shared area: writes down what it was told
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov rbx, rdi
    call mutex_lock_interruptible
    movsxd rax, eax
    mov [rbx + ORDER], rax
    lock inc qword ptr [rbx + DONE]
    xor edi, edi
    call do_exit
ENDFUNC interruptible_waiter

FUNC_NOTRACE mutex_holder                # rdi shared area: holds until it is woken
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov rbx, rdi
    call mutex_lock
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_UNINTERRUPTIBLE
    call schedule
    mov rdi, rbx
    call mutex_unlock
    lock inc qword ptr [rbx + DONE]
    xor edi, edi
    call do_exit
ENDFUNC mutex_holder
"""
COUNTER, INSIDE, MOST, ROUNDS, DONE, ORDER = 64, 72, 80, 88, 96, 128


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Guest, dict[str, int]]]:
    guest = Guest(cpus=2, boot=True)
    try:
        yield guest, guest.load(THREADS)
    finally:
        guest.close()


@pytest.fixture
def guest(shared: tuple[Guest, dict[str, int]]) -> Guest:
    shared[0].reset()
    return shared[0]


@pytest.fixture
def threads(shared: tuple[Guest, dict[str, int]]) -> dict[str, int]:
    return shared[1]


examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# --- spin locks -----------------------------------------------------------------------------------


class CpuState:
    """The words of CPU 0 that locks change."""

    def __init__(self, guest: Guest) -> None:
        self._memory, self._percpu = guest.memory, guest.machine.cpus[0].percpu

    def _byte(self, name: str) -> int:
        return self._memory.u8(self._percpu + CONSTANTS[name])

    @property
    def depth(self) -> int:
        return self._byte("PREEMPT_DEPTH")

    @property
    def irqs_off(self) -> bool:
        return bool(self._byte("IRQ_FLAGS") & CONSTANTS["TRACE_FLAG_IRQS_OFF"])

    @property
    def bh_off(self) -> bool:
        return bool(self._byte("IRQ_FLAGS") & CONSTANTS["TRACE_FLAG_BH_OFF"])


@pytest.mark.parametrize("kind", ["spin", "read", "write"])
@pytest.mark.parametrize("suffix", ["", "_irq", "_bh"])
def test_spinning_locks_set_and_restore_the_cpu_state(guest: Guest, kind: str, suffix: str) -> None:
    lock, cpu = guest.words([0]), CpuState(guest)
    before = cpu.depth
    guest.call(f"_raw_{kind}_lock{suffix}", lock)
    assert (cpu.depth, cpu.irqs_off, cpu.bh_off) == (
        before + 1,
        suffix == "_irq",
        suffix == "_bh",
    )
    assert guest.memory.u32(lock)
    guest.call(f"_raw_{kind}_unlock{suffix}", lock)
    assert (cpu.depth, cpu.irqs_off, cpu.bh_off) == (before, False, False)
    assert guest.memory.u32(lock) == 0


@pytest.mark.parametrize("kind", ["spin", "read", "write"])
def test_irqsave_nests(guest: Guest, kind: str) -> None:
    outer, inner, cpu = guest.words([0]), guest.words([0]), CpuState(guest)
    first = guest.call(f"_raw_{kind}_lock_irqsave", outer)
    second = guest.call(f"_raw_{kind}_lock_irqsave", inner)
    guest.call(f"_raw_{kind}_unlock_irqrestore", inner, second)
    assert cpu.irqs_off
    guest.call(f"_raw_{kind}_unlock_irqrestore", outer, first)
    assert not cpu.irqs_off


def test_trylocks_of_spin_locks(guest: Guest) -> None:
    lock, cpu = guest.words([0]), CpuState(guest)
    before = cpu.depth
    assert guest.call_int("_raw_spin_trylock", lock) == 1
    assert guest.call_int("_raw_spin_trylock", lock) == 0
    assert guest.call_int("_raw_spin_trylock_bh", lock) == 0
    assert (cpu.depth, cpu.bh_off) == (before + 1, False)
    guest.call("_raw_spin_unlock", lock)
    assert guest.call_int("_raw_spin_trylock_bh", lock) == 1
    assert cpu.bh_off
    guest.call("_raw_spin_unlock_bh", lock)
    assert (cpu.depth, cpu.bh_off) == (before, False)


def test_readers_share_and_writers_do_not(guest: Guest) -> None:
    lock = guest.words([0])
    assert guest.call_int("_raw_read_trylock", lock) == 1
    assert guest.call_int("_raw_read_trylock", lock) == 1
    assert guest.call_int("_raw_write_trylock", lock) == 0
    guest.call("_raw_read_unlock", lock)
    assert guest.call_int("_raw_write_trylock", lock) == 0
    guest.call("_raw_read_unlock", lock)
    assert guest.call_int("_raw_write_trylock", lock) == 1
    assert guest.call_int("_raw_read_trylock", lock) == 0
    guest.call("_raw_write_unlock", lock)
    assert guest.memory.u32(lock) == 0


def test_a_lock_that_comes_free_ends_the_slow_path(guest: Guest) -> None:
    lock = guest.words([0])
    guest.call("native_queued_spin_lock_slowpath", lock, 1)
    assert guest.memory.u32(lock) == 1


# --- mutexes and semaphores, alone ----------------------------------------------------------------


def test_a_mutex_has_one_owner(guest: Guest) -> None:
    mutex = guest.room(guest.constant("MUTEX_SIZE"), fill=0xFF)
    guest.call("__mutex_init", mutex)
    assert guest.call_int("mutex_is_locked", mutex) == 0
    guest.call("mutex_lock", mutex)
    assert guest.call_int("mutex_is_locked", mutex) == 1
    assert guest.memory.u64(mutex) == guest.machine.cpus[0].current
    assert guest.call_int("mutex_trylock", mutex) == 0
    guest.call("mutex_unlock", mutex)
    assert guest.call_int("mutex_trylock", mutex) == 1
    guest.call("mutex_unlock", mutex)
    assert guest.memory.u64(mutex) == 0


def test_the_last_reference_comes_with_the_mutex(guest: Guest) -> None:
    counter = guest.place(struct.pack("<I", 2))
    mutex = guest.room(guest.constant("MUTEX_SIZE"))
    assert guest.call_int("atomic_dec_and_mutex_lock", counter, mutex) == 0
    assert guest.call_int("mutex_is_locked", mutex) == 0
    assert guest.call_int("atomic_dec_and_mutex_lock", counter, mutex) == 1
    assert guest.call_int("mutex_is_locked", mutex) == 1
    assert guest.memory.u32(counter) == 0
    guest.call("mutex_unlock", mutex)


def test_a_semaphore_counts(guest: Guest) -> None:
    semaphore = guest.place(struct.pack("<IIQQ", 0, 2, 0, 0))
    guest.call("down", semaphore)
    assert guest.call_int("down_trylock", semaphore) == 0
    assert guest.call_int("down_trylock", semaphore) == 1
    guest.call("up", semaphore)
    assert guest.call_int("down_interruptible", semaphore) == 0
    assert guest.call_int("down_trylock", semaphore) == 1


@examples
@given(
    steps=st.lists(
        st.sampled_from(["read", "write", "up_read", "up_write", "downgrade"]), max_size=30
    )
)
def test_rwsem_against_a_model(shared: tuple[Guest, dict[str, int]], steps: list[str]) -> None:
    guest = shared[0]
    guest.reset()
    semaphore = guest.room(guest.constant("RWSEM_SIZE"))
    readers, writer = 0, False
    for step in steps:
        if step == "read":
            assert guest.call_int("down_read_trylock", semaphore) == (not writer)
            readers += not writer
        elif step == "write":
            free = not writer and not readers
            assert guest.call_int("down_write_trylock", semaphore) == free
            writer = writer or free
        elif step == "up_read" and readers:
            guest.call("up_read", semaphore)
            readers -= 1
        elif step == "up_write" and writer:
            guest.call("up_write", semaphore)
            writer = False
        elif step == "downgrade" and writer:
            guest.call("downgrade_write", semaphore)
            readers, writer = 1, False
    assert guest.memory.u64(semaphore) == readers * 256 + writer


def test_hotplug_lock(guest: Guest) -> None:
    guest.call("cpus_read_lock")
    assert guest.call_int("cpus_read_trylock") == 1
    lock = guest.label("cpu_hotplug_lock")
    assert guest.call_int("percpu_is_read_locked", lock) == 1
    guest.call("cpus_read_unlock")
    guest.call("cpus_read_unlock")
    assert guest.call_int("percpu_is_read_locked", lock) == 0
    guest.call("cpus_write_lock")
    assert guest.call_int("cpus_read_trylock") == 0
    guest.call("cpus_write_unlock")


# --- many threads ---------------------------------------------------------------------------------


def _run(guest: Guest, threads: dict[str, int], area: int, workers: list[str]) -> None:
    for number, worker in enumerate(workers):
        guest.spawn(threads[worker], area, f"worker/{number}", cpu=number % 2)
    guest.settle(rounds=2000)
    assert guest.memory.u64(area + DONE) == len(workers), "somebody sleeps for ever"


def _area(guest: Guest, rounds: int, lock: bytes = b"") -> int:
    area = guest.room(256)
    guest.memory.write(area, lock)
    guest.memory.set_u64(area + ROUNDS, rounds)
    return area


@pytest.mark.parametrize(
    ("worker", "lock"),
    [
        ("mutex_worker", b""),
        ("semaphore_worker", struct.pack("<II", 0, 1)),
        ("rwsem_writer", b""),
    ],
)
def test_threads_exclude_each_other(
    guest: Guest, threads: dict[str, int], worker: str, lock: bytes
) -> None:
    area = _area(guest, 25, lock)
    _run(guest, threads, area, [worker] * 6)
    assert guest.memory.u64(area + COUNTER) == 6 * 25
    assert guest.memory.u64(area + MOST) == 1
    assert guest.memory.u64(area + INSIDE) == 0


def test_a_semaphore_lets_in_as_many_as_it_counts(guest: Guest, threads: dict[str, int]) -> None:
    area = _area(guest, 10, struct.pack("<II", 0, 3))
    _run(guest, threads, area, ["semaphore_worker"] * 8)
    assert guest.memory.u64(area + MOST) == 3
    assert guest.memory.u32(area + guest.constant("SEM_COUNT")) == 3


def test_readers_are_inside_together(guest: Guest, threads: dict[str, int]) -> None:
    area = _area(guest, 10)
    _run(guest, threads, area, ["rwsem_reader"] * 4)
    assert guest.memory.u64(area + MOST) > 1
    assert guest.memory.u64(area) == 0


def test_readers_and_writers_all_get_their_turn(guest: Guest, threads: dict[str, int]) -> None:
    area = _area(guest, 10)
    workers = ["rwsem_reader", "rwsem_writer", "rwsem_reader", "rwsem_reader", "rwsem_writer"]
    _run(guest, threads, area, workers)
    assert guest.memory.u64(area) == 0
    assert guest.memory.u64(area + INSIDE) == 0


def test_completions_wake_one_by_one_and_all(guest: Guest, threads: dict[str, int]) -> None:
    area = _area(guest, 0)
    tasks = []
    for number in range(4):
        tasks.append(guest.spawn(threads["completion_waiter"], area, f"waiter/{number}"))
        guest.settle()
    pids = [guest.memory.u32(task + CONSTANTS["TASK_PID"]) for task in tasks]
    assert guest.memory.u64(area + DONE) == 0
    for woken in (1, 2):
        guest.call("complete", area)
        guest.settle()
        assert guest.memory.u64(area + DONE) == woken
    guest.call("complete_all", area)
    guest.settle()
    order = struct.unpack("<4Q", guest.memory.read(area + ORDER, 32))
    assert list(order) == pids


def test_a_completion_may_come_first(guest: Guest, threads: dict[str, int]) -> None:
    area = _area(guest, 0)
    guest.call("complete", area)
    guest.spawn(threads["completion_waiter"], area)
    guest.settle()
    assert guest.memory.u64(area + DONE) == 1
    assert guest.memory.u32(area) == 0


def test_a_signal_ends_an_interruptible_wait(guest: Guest, threads: dict[str, int]) -> None:
    area = _area(guest, 0)
    holder = guest.spawn(threads["mutex_holder"], area, "holder")
    guest.settle()
    waiter = guest.spawn(threads["interruptible_waiter"], area, "waiter")
    guest.settle()
    assert guest.memory.u64(area + DONE) == 0
    guest.memory.set_u32(waiter + CONSTANTS["TASK_SIGPENDING"], 1)
    guest.call("wake_up_process", waiter)
    guest.settle()
    assert struct.unpack("<q", guest.memory.read(area + ORDER, 8)) == (-4,)
    guest.call("wake_up_process", holder)
    guest.settle()
    assert guest.memory.u64(area + DONE) == 2
    assert guest.memory.u64(area) == 0
