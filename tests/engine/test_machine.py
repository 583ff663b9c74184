"""The machine alone, running a handful of functions assembled for the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from support.daemon import wait_until

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, TEXT_BASE
from emulated_kernel.assembler import assemble
from emulated_kernel.errors import (
    EmulatedKernelError,
    GuestFault,
    GuestTimeout,
    MachineOffError,
)
from emulated_kernel.image import KernelImage
from emulated_kernel.machine import Machine
from emulated_kernel.machine import thread as thread_module

T = TypeVar("T")

SOURCE = """
.text
FUNC_NOTRACE host_return
    hlt
host_return_halt:
    jmp host_return
ENDFUNC host_return
FUNC_NOTRACE weigh
    lea rax, [rdi + rsi*2]
    lea rax, [rax + rdx*4]
    lea rax, [rax + rcx*8]
    add rax, r8
    add rax, r9
    add rax, [rsp + 8]
    ret
ENDFUNC weigh
FUNC_NOTRACE peek
    mov rax, [rdi]
    ret
ENDFUNC peek
FUNC_NOTRACE poke
    mov [rdi], rsi
    ret
ENDFUNC poke
FUNC_NOTRACE jump_to
    jmp rdi
ENDFUNC jump_to
FUNC_NOTRACE undefined
    ud2
ENDFUNC undefined
FUNC_NOTRACE divide
    xor edx, edx
    mov rax, rdi
    div rsi
    ret
ENDFUNC divide
FUNC_NOTRACE load_segment
    mov ds, edi
    ret
ENDFUNC load_segment
FUNC_NOTRACE forever
    jmp forever
ENDFUNC forever
FUNC_NOTRACE answer
    mov eax, 41
    ret
ENDFUNC answer
FUNC_NOTRACE whoami
    mov eax, gs:[CPU_NUMBER]
    ret
ENDFUNC whoami
FUNC_NOTRACE ask
    mov eax, 3
    int HYPERCALL
    mov rax, rdi
    ret
ENDFUNC ask
FUNC_NOTRACE clock
    rdtsc
    shl rdx, 32
    or rax, rdx
    mul qword ptr gs:[CLOCK_MULT]
    shrd rax, rdx, 32
    mov rcx, gs:[CLOCK_PTR]
    mov rdx, [rcx]
    add rdx, gs:[CLOCK_STEP]
    mov [rcx], rdx
    add rax, rdx
    add rax, gs:[CLOCK_OFFSET]
    ret
ENDFUNC clock
.data
a_word:
    .quad 7
"""


@pytest.fixture(scope="module")
def image() -> KernelImage:
    built = assemble({"t.S": SOURCE}, {".text": TEXT_BASE, ".data": DATA_BASE}, CONSTANTS)
    return KernelImage(
        "test", built.segments, built.symbols, built.mcount, built.labels, built.constants
    )


@pytest.fixture
def machine(image: KernelImage) -> Iterator[Machine]:
    made = Machine(image)
    yield made
    made.close()


def test_a_call_passes_seven_arguments_and_returns_rax(machine: Machine) -> None:
    assert machine.call("weigh", 1, 2, 3, 4, 5, 6, 7) == 1 + 4 + 12 + 32 + 5 + 6 + 7


def test_each_vcpu_has_its_own_per_cpu_page(machine: Machine) -> None:
    assert [machine.call("whoami", cpu=n) for n in range(2)] == [0, 1]


def test_vcpus_share_memory(machine: Machine, image: KernelImage) -> None:
    word = image.label("a_word")
    machine.call("poke", word, 0x1234, cpu=0)
    assert machine.call("peek", word, cpu=1) == 0x1234
    assert machine.memory.u64(word) == 0x1234


def test_every_page_fault_is_told_with_its_address(machine: Machine) -> None:
    for address in (0, 0x10, 0xFFFF000000000000 >> 1, 0x18, 0x20):
        with pytest.raises(GuestFault) as fault:
            machine.call("peek", address)
        if address < 0x1000:
            assert (fault.value.vector, fault.value.address) == (14, address)
    assert machine.call("answer") == 41


@pytest.mark.parametrize(
    ("function", "arguments", "vector"),
    [("undefined", (), 6), ("divide", (1, 0), 0), ("load_segment", (0x50,), 13)],
)
def test_other_faults_are_told_apart(
    machine: Machine, function: str, arguments: tuple[int, ...], vector: int
) -> None:
    for _ in range(3):
        with pytest.raises(GuestFault) as fault:
            machine.call(function, *arguments)
        assert fault.value.vector == vector
    assert machine.call("answer") == 41


def test_text_cannot_be_written_and_data_cannot_be_run(machine: Machine) -> None:
    with pytest.raises(GuestFault) as fault:
        machine.call("poke", TEXT_BASE, 0)
    assert fault.value.vector == 14
    with pytest.raises(GuestFault) as fault:
        machine.call("jump_to", DATA_BASE)
    assert fault.value.vector == 14


def test_a_function_that_never_returns_is_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_module, "BUDGET_S", 0.2)
    with pytest.raises(GuestTimeout):
        machine.call("forever")
    assert machine.call("answer") == 41


def test_patched_text_runs_only_after_the_flush(machine: Machine, image: KernelImage) -> None:
    answer = image.label("answer")
    assert machine.call("answer") == 41
    machine.memory.set_u8(answer + 1, 42)
    assert machine.call("answer") == 41
    machine.flush_text(answer, answer + 5)
    assert [machine.call("answer", cpu=n) for n in range(2)] == [42, 42]


def test_hypercalls_reach_their_handler_and_are_counted(machine: Machine) -> None:
    seen: list[int] = []
    machine.hypercalls[3] = lambda vcpu: seen.append(vcpu.get("rdi")[0])
    assert machine.call("ask", 99) == 99
    assert seen == [99]
    assert machine.hypercall_count == 1


def test_work_of_many_threads_is_done_one_at_a_time(machine: Machine) -> None:
    total = [0]

    def add() -> None:
        before = total[0]
        machine.call("answer")
        total[0] = before + 1

    threads = [
        threading.Thread(target=lambda: [machine.run(add) for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total[0] == 200


def on_a_thread(work: Callable[[], T]) -> T:
    """Do it on a thread that is not the main one, and return its result."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(20)


def test_a_thread_does_its_own_work_but_for_the_main_one(machine: Machine) -> None:
    def both() -> tuple[int, int]:
        return threading.get_ident(), machine.run(threading.get_ident)

    here, there = on_a_thread(both)
    assert here == there
    assert machine.run(threading.get_ident) not in (here, threading.get_ident())


def test_who_wants_the_machine_has_it_in_the_order_of_coming(machine: Machine) -> None:
    order: list[int] = []
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go_on.wait(20)

    holder = threading.Thread(target=lambda: machine.run(hold))
    holder.start()
    assert held.wait(20)
    threads = []
    for number in range(5):
        work = partial(machine.run, partial(order.append, number))
        threads.append(threading.Thread(target=work))
        threads[-1].start()
        wait_until(lambda n=number: len(machine._waiting) == n + 1, "it waits")
    go_on.set()
    for thread in [holder, *threads]:
        thread.join(20)
    assert order == [0, 1, 2, 3, 4]


def test_a_timer_gets_its_turn_from_threads_that_never_rest(machine: Machine) -> None:
    ticked = threading.Event()

    def never_rest() -> None:
        while not ticked.is_set():
            machine.run(lambda: None)

    threads = [threading.Thread(target=never_rest) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = machine.every(0.001, ticked.set)
    try:
        assert ticked.wait(20)
    finally:
        ticked.set()
        end()
        for thread in threads:
            thread.join(20)


def test_closing_waits_for_who_has_the_machine(image: KernelImage) -> None:
    machine = Machine(image)
    held, done = threading.Event(), threading.Event()

    def work() -> None:
        held.set()
        while not machine._closing:
            machine.call("answer")
        done.set()

    with ThreadPoolExecutor(2) as pool:
        working = pool.submit(machine.run, work)
        assert held.wait(20)
        late = pool.submit(machine.run, lambda: None)
        wait_until(lambda: machine._waiting, "it waits")
        machine.close()
        assert done.is_set()
        working.result(20)
        with pytest.raises(MachineOffError):
            late.result(20)


def test_work_given_by_who_has_the_machine_runs_at_once(machine: Machine) -> None:
    assert machine.run(lambda: machine.run(lambda: machine.call("answer"))) == 41


def test_an_exception_of_the_work_comes_back(machine: Machine) -> None:
    for run in (machine.run, lambda work: on_a_thread(partial(machine.run, work))):
        with pytest.raises(KeyError):
            run(lambda: {}["nothing"])
        assert machine.call("answer") == 41


def test_other_work_runs_between_slices(machine: Machine) -> None:
    other_done = threading.Event()

    def slices() -> Generator[None, None, str]:
        for _ in range(10_000):
            if other_done.is_set():
                return "let others in"
            yield
        return "kept others out"

    def other() -> None:
        machine.run(other_done.set)

    thread = threading.Thread(target=other)
    thread.start()
    assert machine.run_sliced(slices()) == "let others in"
    thread.join()


def test_a_timer_comes_again_until_it_is_ended(machine: Machine) -> None:
    twice = threading.Event()
    times: list[int] = []

    def tick() -> None:
        times.append(1)
        if len(times) == 2:
            twice.set()

    end = machine.every(0.001, tick)
    assert twice.wait(10)
    end()


def test_a_closed_machine_refuses_work(image: KernelImage) -> None:
    machine = Machine(image)
    machine.close()
    with pytest.raises(EmulatedKernelError):
        machine.run(lambda: None)


def test_the_heap_gives_zeroed_memory_again(machine: Machine) -> None:
    block = machine.alloc(4096)
    machine.memory.write(block, b"\xff" * 4096)
    machine.free(block)
    again = machine.alloc(4096)
    assert again == block
    assert machine.memory.read(again, 4096) == bytes(4096)


def test_the_virtual_clock_steps_evenly_over_all_vcpus(image: KernelImage) -> None:
    machine = Machine(image, clock="virtual")
    readings = [machine.call("clock", cpu=n % 2) for n in range(6)]
    machine.close()
    assert readings == [1000, 2000, 3000, 4000, 5000, 6000]


def test_the_real_clock_follows_the_hosts(machine: Machine) -> None:
    offset = time.monotonic_ns() - machine.call("clock")
    machine.call("answer")
    later = machine.call("clock")
    assert abs((time.monotonic_ns() - offset) - later) < 50_000_000
    assert abs(machine.clock.now(machine.clock.nanoseconds()) - later) < 50_000_000


@pytest.mark.parametrize("number", [0, 9])
def test_a_machine_has_one_to_eight_vcpus(image: KernelImage, number: int) -> None:
    with pytest.raises(ValueError, match="vCPUs"):
        Machine(image, nr_cpus=number)


def test_memory_that_was_used_and_freed_is_the_hosts_again(machine: Machine) -> None:
    def resident() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssShmem")) >> 10

    before = resident()
    pages = [machine.alloc(1 << 20) for _ in range(64)]
    for page in pages:
        machine.memory.write(page, b"x" * (1 << 20))
    assert resident() >= before + 64
    for page in pages:
        machine.free(page)
    assert resident() < before + 16
    assert machine.memory.read(machine.alloc(1 << 20), 1 << 20) == bytes(1 << 20)
