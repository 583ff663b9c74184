"""A guest that runs all the time, but for the moments in which somebody has work."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from emulated_kernel.errors import MachineOffError
from emulated_kernel.machine.thread import MachineThread

TIMEOUT = 20.0
PERIOD_S = 600.0


class Running(MachineThread):
    """Its guest counts until it is stopped, as long as it is switched on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_on = False
        self.turns = 0
        self.ran = threading.Event()
        self._stop = threading.Event()
        self._start_thread()

    def _background_due(self) -> float | None:
        return 0.0 if self.is_on else None

    def _interrupt_background(self) -> None:
        self._stop.set()

    def _allow_background(self) -> None:
        self._stop.clear()

    def _background(self) -> None:
        if self.is_on:
            self.turns += 1
            self.ran.set()
            assert self._stop.wait(TIMEOUT), "nobody stopped it"


@pytest.fixture
def machine() -> Iterator[Running]:
    made = Running()
    yield made
    made.close()


def switch_on(machine: Running) -> None:
    def on() -> None:
        machine.is_on = True

    with ThreadPoolExecutor(1) as pool:
        pool.submit(machine.run, on).result(TIMEOUT)


def test_who_comes_when_the_machine_is_off_is_told_at_once() -> None:
    machine = Running()
    machine.close()
    for _ in range(50):  # one of them has the number that the machine's thread had, as a rule
        with ThreadPoolExecutor(1) as pool:
            assert isinstance(pool.submit(machine.run, int).exception(TIMEOUT), MachineOffError)


def test_a_guest_runs_on_when_work_of_any_thread_has_switched_it_on(machine: Running) -> None:
    switch_on(machine)
    assert machine.ran.wait(TIMEOUT)


def test_work_of_the_main_thread_and_of_others_stops_the_guest_for_a_while(
    machine: Running,
) -> None:
    switch_on(machine)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(50):
            assert machine.ran.wait(TIMEOUT)
            machine.ran.clear()
            others = [pool.submit(machine.run, threading.get_ident) for _ in range(2)]
            assert machine.run(threading.get_ident) == machine._thread.ident
            for other in others:
                assert other.result(TIMEOUT) != machine._thread.ident
    assert machine.turns >= 50


def test_closing_stops_the_guest_for_good(machine: Running) -> None:
    switch_on(machine)
    assert machine.ran.wait(TIMEOUT)
    machine.close()
    assert not machine._thread.is_alive()
    with pytest.raises(MachineOffError):
        machine.run(lambda: None)


class Waiting(MachineThread):
    """A machine without a guest."""

    def __init__(self) -> None:
        super().__init__()
        self._start_thread()


def test_a_timer_that_is_nearly_due_comes_with_another_one() -> None:
    machine = Waiting()
    order: list[str] = []
    both = threading.Event()

    def long() -> None:
        order.append("long")
        both.set()

    def add() -> None:
        machine.every(0.02, lambda: order.append("short"))
        machine.every(0.0215, long)
        machine.every(60.0, lambda: order.append("never"))
        machine.after_slice.append(lambda: order.append("given back"))

    machine.run(add)
    assert both.wait(TIMEOUT)
    machine.close()
    first = order.index("short")
    assert order[first : first + 3] == ["short", "long", "given back"]
    assert "never" not in order


def test_a_timer_says_itself_in_how_many_periods_it_is_due_again() -> None:
    machine = Waiting()
    ran: queue.SimpleQueue[float] = queue.SimpleQueue()

    def work() -> int:
        ran.put(time.monotonic())
        return 3

    end = machine.every(PERIOD_S, work, first_s=0.0)
    at = ran.get(timeout=TIMEOUT)
    due = machine.run(lambda: [timer[0] for timer in machine._timers])
    end()
    machine.close()
    assert [round((when - at) / PERIOD_S) for when in due] == [3]


def test_what_is_called_after_a_slice_may_end_that_itself() -> None:
    machine = Waiting()
    called: list[str] = []

    def once() -> None:
        called.append("once")
        machine.set_after_slice(once, False)

    def add() -> None:
        machine.set_after_slice(once, True)
        machine.set_after_slice(once, True)
        machine.set_after_slice(always, True)

    def always() -> None:
        called.append("always")

    machine.run(add)
    machine.run(lambda: None)
    machine.close()
    assert called[:3] == ["once", "always", "always"]
