"""The PC as a machine, with guests of a few instructions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from emulated_kernel.errors import GuestDeadError
from emulated_kernel.linux.boot_params import GDT, STACK_TOP, TABLES
from emulated_kernel.linux.memory import RAM_BYTES
from emulated_kernel.linux.pc import PcMachine

CODE, NO_MEMORY = 0x100000, 0x200000  # of these only the first is in RAM
HANG = b"\xfa\xeb\xfe"  # cli; jmp $
HALT = b"\xfa\xf4"  # cli; hlt
UD2 = b"\x0f\x0b"
# mov al, 0xfe; out 0x64, al
RESET = b"\xb0\xfe\xe6\x64\xeb\xfe"
# mov ecx, 1000000; again: rdtsc; shl r8, 1; add r8, rax; dec ecx; jnz again; cli; hlt
COUNT = (
    b"\xb9" + (1_000_000).to_bytes(4, "little") + bytes.fromhex("0f31 49d1e0 4901c0 ffc9 75f4 faf4")
)
TEXT = 0x110000
# mov rsi, TEXT; mov ecx, 600; mov dx, 0x3f8; again: lodsb; out dx, al; dec ecx; jnz again
# mov ecx, 40; now: mov dx, 0x3fd; in al, dx; mov dx, 0x3f8; lodsb; out dx, al; lodsb; out dx, al
# dec ecx; jnz now; mov dx, 0x3fc; mov al, 0x10; out dx, al (loopback); mov dx, 0x3f8
# out dx, al; out dx, al; cli; jmp $
PRINT_MUCH = bytes.fromhex(
    "48c7c600001100 b958020000 66baf803 ac ee ffc9 75fa"
    "b928000000 66bafd03 ec 66baf803 ac ee ac ee ffc9 75ef 66bafc03 b010 ee 66baf803 ee ee fa ebfe"
)
# mov dx, 0x3f8; mov al, 'A'; out dx, al; jmp $
PRINT = b"\x66\xba\xf8\x03\xb0\x41\xee\xeb\xfe"

Start = Callable[..., PcMachine]


@pytest.fixture
def start() -> Iterator[Start]:
    """Switch a machine on whose guest is some code."""
    made: list[PcMachine] = []

    def switch_on(
        code: bytes,
        *,
        native: bool = True,
        is_virtual: bool = False,
        first: Callable[[PcMachine], None] = lambda machine: None,
    ) -> PcMachine:
        machine = PcMachine(tsc_khz=1_000_000, native=native, is_virtual=is_virtual)
        made.append(machine)
        ram = machine.memory
        for at, entry in (
            *((TABLES, TABLES + 0x1003), (TABLES + 0x1000, TABLES + 0x2003)),
            *((TABLES + 0x2000, 0x83), (TABLES + 0x2008, RAM_BYTES + NO_MEMORY | 0x83)),
        ):
            ram.ram[at : at + 8] = entry.to_bytes(8, "little")
        for index, descriptor in enumerate((0, 0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF)):
            ram.ram[GDT + 8 * index : GDT + 8 * index + 8] = descriptor.to_bytes(8, "little")
        ram.ram[CODE : CODE + len(code)] = code
        first(machine)
        machine.cpu.boot_state(CODE, 0, TABLES, GDT, STACK_TOP)
        machine.power_on()
        return machine

    yield switch_on
    for machine in made:
        machine.close()


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_work_is_done_though_the_guest_never_stops(start: Start) -> None:
    machine = start(HANG)
    assert [machine.run(lambda number=n: number) for n in range(50)] == list(range(50))
    assert machine.failure is None
    wait_for(lambda: machine.run(lambda: machine.cpu.rip) == CODE + 1)


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
@pytest.mark.parametrize("access", ["8b0b", "890b"], ids=["read", "write"])
def test_a_guest_that_accesses_what_is_no_memory_is_dead(
    start: Start, access: str, native: bool
) -> None:
    """With the block that does it, which is the last one."""
    code = b"\xbb" + NO_MEMORY.to_bytes(4, "little") + bytes.fromhex(access) + HANG
    machine = start(code, native=native)
    wait_for(lambda: machine.failure is not None)
    assert "UNMAPPED" in (machine.failure or "")
    assert machine.run(lambda: "the machine goes on") == "the machine goes on"


def test_timers_run_beside_a_guest_that_is_halted(start: Start) -> None:
    machine = start(b"\xfb\xf4\xeb\xfd")  # sti; hlt; jmp
    came = threading.Event()
    end = machine.every(0.01, came.set)
    assert came.wait(20)
    end()


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (HALT, "halted for good"),
        (RESET, "reset its machine"),
        (UD2, ""),  # no handler, nor one for that
        (b"\xfb" + UD2, ""),
    ],
    ids=["halt", "reset", "triple fault", "with interrupts on"],
)
def test_a_guest_that_cannot_go_on_is_dead_and_the_machine_is_not(
    start: Start, code: bytes, why: str, native: bool
) -> None:
    machine = start(code, native=native)
    wait_for(lambda: machine.failure is not None)
    assert machine.failure
    assert why in machine.failure
    assert "\n" not in machine.failure
    with pytest.raises(GuestDeadError):
        machine.check_alive()
    assert machine.run(lambda: 7) == 7


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
def test_virtual_time_is_what_has_run_however_often_the_guest_is_stopped(
    start: Start, native: bool
) -> None:
    def run(*, stops: bool) -> tuple[int, int]:
        machine = start(COUNT, native=native, is_virtual=True)
        turns = 0
        while machine.failure is None:
            turns += machine.run(lambda: 0 < machine.cpu.get("rcx")[0] < 1_000_000) if stops else 0
            time.sleep(0 if stops else 0.01)
        assert turns > 3 or not stops
        return machine.run(lambda: (machine.time.tsc, machine.cpu.get("r8")[0]))

    (ticks, seen), again = run(stops=False), run(stops=True)
    assert (ticks, seen) == again
    # The bytes of the instructions: those of the loop each time.
    assert ticks == 5 + 12 * 1_000_000 + 2


def test_a_panic_is_the_reason_that_is_told(start: Start) -> None:
    machine = start(HANG)

    def panic() -> None:
        for port, value in ((0x43, 0x34), (0x40, 0xFF), (0x40, 0xFF)):
            machine.pit.write(port, value)
        assert machine.pit.deadline is not None
        machine.console.put(b"Kernel panic - not syncing: no init\n---[ end")
        machine.die("the guest has halted for good")

    machine.run(panic)
    assert machine.failure == "Kernel panic - not syncing: no init"
    assert machine.pit.deadline is None  # nobody waits for it any more


def test_what_the_guest_prints_is_on_the_console(start: Start) -> None:
    machine = start(PRINT)
    wait_for(lambda: machine.console.text() == b"A")


@pytest.mark.parametrize("is_virtual", [False, True], ids=["real", "virtual"])
@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
def test_all_that_is_written_to_a_line_goes_out_once_and_in_order(
    start: Start, native: bool, is_virtual: bool
) -> None:
    text = b"".join(b"%d " % number for number in range(300))[:680]

    def lay_out(machine: PcMachine) -> None:
        machine.memory.ram[TEXT : TEXT + len(text)] = text

    machine = start(PRINT_MUCH, native=native, is_virtual=is_virtual, first=lay_out)
    if is_virtual:
        machine.run(machine.rouse)
    wait_for(lambda: len(machine.run(machine.console.text)) >= len(text))
    wait_for(lambda: machine.run(lambda: machine.cpu.rip) == CODE + len(PRINT_MUCH) - 2)
    assert machine.run(machine.console.text) == text


def test_a_machine_is_switched_off_while_its_guest_runs(start: Start) -> None:
    before = set(threading.enumerate())
    machine = start(HANG)
    wait_for(lambda: machine.run(lambda: machine.cpu.rip) == CODE + 1)
    began = time.monotonic()
    machine.close()
    assert time.monotonic() - began < 20
    wait_for(lambda: not set(threading.enumerate()) - before)


def test_the_console_keeps_whole_lines_of_the_last_that_came(start: Start) -> None:
    machine = start(HANG)

    def fill() -> None:
        for number in range(60_000):
            machine.console.put(b"line %d\r\n" % number)

    machine.run(fill)
    text = machine.console.text()
    assert text.startswith(b"line ")
    assert text.endswith(b"line 59999\n")
    assert b"\r" not in text
    assert len(text) < 1 << 19
