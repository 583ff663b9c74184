"""The local APIC of a PC's processor, and the tables that tell of it."""

from __future__ import annotations

import struct

import pytest

from emulated_kernel.linux import acpi
from emulated_kernel.linux.devices.lapic import INIT, STARTUP, LocalApic

ID, EOI, SVR, ICR, ICR_HIGH = 0x20, 0xB0, 0xF0, 0x300, 0x310
LVT_TIMER, LINT0, INITIAL, CURRENT, DIVIDE = 0x320, 0x350, 0x380, 0x390, 0x3E0
ENABLED, PERIODIC, MASKED, BY_1, BY_16 = 1 << 8, 1 << 17, 1 << 16, 0xB, 0x3
HZ = 1000


class Rig:
    """APIC 1 of 3, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[tuple[int, int, list[int]]] = []
        self.apic = LocalApic(
            1, 3, HZ, lambda: self.now, lambda *what: self.sent.append(what), lambda: None
        )
        self.apic.write(SVR, ENABLED | 0xFF)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_highest_vector_is_taken_first_and_holds_its_class_back(rig: Rig) -> None:
    apic = rig.apic
    for vector in (0x31, 0x45, 0x41):
        apic.request(vector)
    assert apic.pending == 0x45
    apic.acknowledge(0x45)
    assert apic.pending is None  # 0x41 is of the same class
    apic.request(0x51)
    assert apic.pending == 0x51
    apic.acknowledge(0x51)
    apic.write(EOI, 0)
    apic.write(EOI, 0)
    assert apic.pending == 0x41
    assert apic.read(0x200 + 0x10 * (0x31 >> 5)) == 1 << (0x31 & 31) & 0xFFFFFFFF
    assert apic.read(0x100) == 0


def test_one_that_is_switched_off_takes_nothing(rig: Rig) -> None:
    rig.apic.request(0x41)
    rig.apic.write(SVR, 0xFF)
    assert rig.apic.pending is None


@pytest.mark.parametrize(
    ("high", "command", "sent"),
    [
        (2 << 24, 0x41, (0, 0x41, [2])),
        (0xFF << 24, 0x41, (0, 0x41, [0, 1, 2])),
        (5 << 24, 0x841, (0, 0x41, [0, 2])),  # logical: a bit for each
        (5 << 24, 0x941, (0, 0x41, [0])),  # to the one with the least to do
        (0, 0x40041, (0, 0x41, [1])),
        (0, 0x80041, (0, 0x41, [0, 1, 2])),
        (0, 0xC0041, (0, 0x41, [0, 2])),
        (2 << 24, 0x4500, (INIT, 0, [2])),
        (2 << 24, 0x699, (STARTUP, 0x99, [2])),
    ],
)
def test_a_command_goes_to_whom_it_is_meant_for(
    rig: Rig, high: int, command: int, sent: tuple[int, int, list[int]]
) -> None:
    rig.apic.write(ICR_HIGH, high)
    rig.apic.write(ICR, command)
    assert rig.sent == [sent]
    assert rig.apic.read(ICR) == command


@pytest.mark.parametrize("command", [0x8500, 0x400])  # INIT taken back; NMI
def test_what_is_left_out_goes_nowhere(rig: Rig, command: int) -> None:
    rig.apic.write(ICR, command)
    assert rig.sent == []


def test_the_timer_counts_down_once(rig: Rig) -> None:
    apic = rig.apic
    apic.write(DIVIDE, BY_16)
    apic.write(LVT_TIMER, 0xEC)
    apic.write(INITIAL, 10)
    assert apic.deadline == pytest.approx(0.16)
    rig.now = 0.08
    assert apic.read(CURRENT) in (4, 5)
    apic.expire()
    assert apic.pending is None
    rig.now = 0.1601
    apic.expire()
    assert (apic.pending, apic.deadline, apic.read(CURRENT)) == (0xEC, None, 0)


def test_a_periodic_timer_goes_on_and_a_masked_one_is_silent(rig: Rig) -> None:
    apic = rig.apic
    apic.write(DIVIDE, BY_1)
    apic.write(LVT_TIMER, PERIODIC | MASKED | 0xEC)
    apic.write(INITIAL, 10)
    rig.now = 0.0101
    apic.expire()
    assert apic.pending is None
    assert apic.deadline == pytest.approx(0.02)


def test_it_comes_back_as_it_was_kept(rig: Rig) -> None:
    apic = rig.apic
    apic.write(LVT_TIMER, 0xEC)
    apic.write(DIVIDE, BY_1)
    apic.write(INITIAL, 50)
    apic.request(0x41)
    rig.now = 0.01
    saved = apic.save()
    other = Rig()
    other.now = 100.0
    other.apic.restore(saved)
    assert other.apic.deadline == pytest.approx(100.04)
    assert (other.apic.pending, other.apic.read(ID)) == (0x41, 1 << 24)


def test_the_8259s_come_through_at_lint0_of_the_first() -> None:
    first = LocalApic(0, 2, HZ, lambda: 0.0, lambda *what: None, lambda: None)
    assert first.takes_pic  # there is no APIC to speak of yet
    first.write(SVR, ENABLED | 0xFF)
    assert not first.takes_pic
    first.write(LINT0, 0x700)
    assert first.takes_pic
    first.write(LINT0, 0x700 | MASKED)
    assert not first.takes_pic


@pytest.mark.parametrize("cpus", [1, 2, 8])
def test_the_tables_are_found_and_add_up_to_nothing(cpus: int) -> None:
    ram = memoryview(bytearray(1 << 20))
    acpi.write_tables(ram, cpus)
    rsdp = bytes(ram[acpi.RSDP : acpi.RSDP + 36])
    assert rsdp[:8] == b"RSD PTR "
    assert sum(rsdp[:20]) & 0xFF == sum(rsdp) & 0xFF == 0
    (at,) = struct.unpack_from("<Q", rsdp, 24)
    signatures, tables = [], [at]
    while tables:
        at = tables.pop()
        signature, length = struct.unpack_from("<4sI", ram, at)
        table = bytes(ram[at : at + length])
        signatures.append(signature)
        assert sum(table) & 0xFF == 0
        if signature == b"XSDT":
            tables += struct.unpack_from(f"<{(length - 36) // 8}Q", table, 36)
        elif signature == b"FACP":
            tables += struct.unpack_from("<I", table, 40)
        elif signature == b"APIC":
            entries = [table[44 + 8 * n : 52 + 8 * n] for n in range(cpus)]
            assert entries == [struct.pack("<4BI", 0, 8, n, n, 1) for n in range(cpus)]
            assert length == 44 + 8 * cpus
    assert sorted(signatures) == [b"APIC", b"DSDT", b"FACP", b"XSDT"]
