"""The PC's devices, driven by the ports as a kernel drives them."""

from __future__ import annotations

import pytest

from emulated_kernel.linux.devices import Bus, Cmos, Keyboard, MachineReset, Pic, Pit, Uart
from emulated_kernel.linux.devices.pit import HZ


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def pic() -> Pic:
    """Set up as Linux does: vectors from 0x30 on, every line let through."""
    made = Pic()
    bus = Bus([made])
    for port, words in ((0x20, (0x30, 0x04)), (0xA0, (0x38, 0x02))):
        bus.write(port, 1, 0x11)
        for word in (*words, 0x01, 0x00):
            bus.write(port + 1, 1, word)
    return made


def test_nobody_answers_with_all_ones() -> None:
    bus = Bus([])
    assert [bus.read(0xCFC, size) for size in (1, 2, 4)] == [0xFF, 0xFFFF, 0xFFFFFFFF]


def test_a_line_is_served_once_and_again_after_its_end(pic: Pic) -> None:
    pic.raise_line(4)
    assert pic.pending == 4
    assert pic.acknowledge(4) == 0x34
    assert pic.pending is None
    pic.raise_line(4)
    assert pic.pending is None  # still in service
    pic.write(0x20, 0x64)
    assert pic.pending == 4


def test_a_line_of_higher_priority_interrupts_a_lower_one(pic: Pic) -> None:
    pic.raise_line(4)
    pic.acknowledge(4)
    pic.raise_line(7)
    assert pic.pending is None
    pic.raise_line(0)
    assert pic.pending == 0


def test_a_line_of_the_second_chip_takes_the_firsts_cascade(pic: Pic) -> None:
    pic.raise_line(8)
    assert pic.pending == 8
    assert pic.acknowledge(8) == 0x38
    pic.raise_line(3)
    assert pic.pending is None  # the cascade is line 2
    pic.write(0xA0, 0x20)
    pic.write(0x20, 0x62)
    assert pic.pending == 3


def test_the_end_of_one_line_calls_for_the_next_that_waited() -> None:
    called: list[None] = []
    pic = Pic(lambda: called.append(None))
    for port, words in ((0x20, (0x30, 0x04, 0x01, 0x00)), (0xA0, (0x38, 0x02, 0x01, 0x00))):
        pic.write(port, 0x11)
        for word in words:
            pic.write(port + 1, word)
    pic.raise_line(0)
    pic.acknowledge(0)
    pic.raise_line(3)
    assert pic.pending is None
    assert not called
    pic.write(0x20, 0x60)
    assert called


def test_a_masked_line_waits(pic: Pic) -> None:
    pic.write(0x21, 0x10)
    pic.raise_line(4)
    assert pic.pending is None
    pic.write(0x21, 0x00)
    assert pic.pending == 4


def test_the_controllers_state_can_be_kept(pic: Pic) -> None:
    pic.raise_line(4)
    pic.acknowledge(4)
    pic.raise_line(3)
    other = Pic()
    other.restore(pic.save())
    assert other.pending == 3
    assert other.read(0x20) == pic.read(0x20)


def test_a_timer_expires_once_or_again_and_again() -> None:
    clock = Clock()
    changes: list[None] = []
    pit = Pit(clock, lambda: changes.append(None))
    for mode, times in ((0x30, 1), (0x34, 3)):  # one shot, and rate generator
        pit.write(0x43, mode)
        pit.write(0x40, 0x9C)
        assert pit.deadline is None
        pit.write(0x40, 0x2E)  # 11932: a hundredth of a second
        assert pit.deadline == pytest.approx(clock.now + 0.01, abs=1e-5)
        expired = 0
        for _ in range(300):
            clock.now += 0.0001
            expired += pit.expire()
        assert expired == (1 if times == 1 else pytest.approx(3, abs=1))
        pit.write(0x43, mode)
        assert pit.deadline is None
    assert changes


def test_a_latched_count_stands_still() -> None:
    clock = Clock()
    pit = Pit(clock, lambda: None)
    pit.write(0x43, 0x34)
    pit.write(0x40, 0xFF)
    pit.write(0x40, 0xFF)
    clock.now += 1000.5 / HZ
    pit.write(0x43, 0x00)
    clock.now += 500 / HZ
    assert pit.read(0x40) | pit.read(0x40) << 8 == 0xFFFF - 1000
    assert pit.read(0x40) | pit.read(0x40) << 8 == 0xFFFF - 1500


def test_a_kept_timer_has_as_long_to_go_as_before() -> None:
    clock, later = Clock(), Clock()
    later.now = 5.0
    pit, other = Pit(clock, lambda: None), Pit(later, lambda: None)
    pit.write(0x43, 0x30)
    pit.write(0x40, 0x9C)
    pit.write(0x40, 0x2E)
    clock.now += 0.004
    other.restore(pit.save())
    later.now += 0.005
    assert not other.expire()
    later.now += 0.002
    assert other.expire()


class Line:
    """A serial line and what came of it."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.interrupts = 0
        self.uart = Uart(0x3F8, self.sent.extend, self.interrupt)
        self.bus = Bus([self.uart])

    def interrupt(self) -> None:
        self.interrupts += 1


def test_a_byte_sent_goes_out_and_the_sender_says_that_it_is_empty() -> None:
    line = Line()
    line.bus.write(0x3F9, 1, 0x02)
    before = line.interrupts
    line.bus.write(0x3F8, 1, 0x41)
    assert line.sent == b"A"
    assert line.interrupts == before + 1
    assert line.bus.read(0x3FA, 1) & 0x0F == 0x02
    assert line.bus.read(0x3FA, 1) & 0x0F == 0x01  # asked once, told once


def test_bytes_received_wait_until_they_are_read() -> None:
    line = Line()
    line.bus.write(0x3F9, 1, 0x01)
    line.uart.send(b"hi")
    assert line.interrupts
    assert line.bus.read(0x3FD, 1) & 0x01
    assert line.bus.read(0x3FA, 1) & 0x0F == 0x04
    assert bytes(line.bus.read(0x3F8, 1) for _ in range(2)) == b"hi"
    assert not line.bus.read(0x3FD, 1) & 0x01
    assert line.uart.waiting == 0


def test_bytes_behind_a_byte_are_only_sent_while_nothing_else_would_come_of_them() -> None:
    line = Line()
    line.bus.write(0x3F9, 1, 0x02)
    assert line.bus.read(0x3FA, 1) & 0x0F == 0x02
    assert not line.bus.only_sends(0x3F8), "the guest has been told of the last byte only"
    line.bus.write(0x3F8, 1, 0x41)
    assert line.bus.only_sends(0x3F8)
    assert not line.bus.only_sends(0x3F9)
    before = line.interrupts
    line.bus.send(0x3F8, b"BCD")
    assert line.sent == b"ABCD"
    assert line.interrupts == before
    assert line.bus.read(0x3FA, 1) & 0x0F == 0x02
    for port, value in ((0x3FC, 0x10), (0x3FB, 0x80)):
        line.bus.write(0x3F8, 1, 0x45)
        line.bus.write(port, 1, value)
        assert not line.bus.only_sends(0x3F8)
        line.bus.write(port, 1, 0)


def test_in_loopback_nothing_goes_out() -> None:
    line = Line()
    line.bus.write(0x3FC, 1, 0x1A)
    line.bus.write(0x3F8, 1, 0x41)
    assert line.sent == b""
    assert line.bus.read(0x3FE, 1) & 0xF0 == 0x90


def test_a_kept_line_still_has_what_was_not_read() -> None:
    line, other = Line(), Line()
    line.bus.write(0x3F9, 1, 0x01)
    line.uart.send(b"\xffx")
    other.uart.restore(line.uart.save())
    assert bytes(other.bus.read(0x3F8, 1) for _ in range(2)) == b"\xffx"


def test_the_board_shows_the_date() -> None:
    bus = Bus([Cmos(lambda: 951_827_696.0)])  # Tuesday 2000-02-29 12:34:56

    def register(number: int) -> int:
        bus.write(0x70, 1, number)
        return bus.read(0x71, 1)

    assert [register(n) for n in (9, 8, 7, 4, 2, 0)] == [0x00, 0x02, 0x29, 0x12, 0x34, 0x56]
    assert register(6) == 3


def test_the_reset_line_is_heard() -> None:
    bus = Bus([Keyboard()])
    bus.write(0x64, 1, 0xAA)
    with pytest.raises(MachineReset):
        bus.write(0x64, 1, 0xFE)
