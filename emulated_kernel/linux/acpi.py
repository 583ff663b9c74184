"""The ACPI tables that tell a kernel of more than one processor, and of nothing else.

RSDP, XSDT, FADT, an empty DSDT and a MADT (ACPI specification, chapters 5.2.5 to 5.2.12). There is
no I/O APIC: interrupts come by the two 8259s, as the command line says too.
"""

from __future__ import annotations

import struct

from emulated_kernel.linux.devices.lapic import BASE as LAPIC_BASE

RSDP = 0xE0000  # in the reserved part of the first MiB
_OEM = b"FTRACE"
_TABLE_ID = b"FTRACEFS"
_CREATOR = b"FTFS"
_STEP = 0x400
_HEADER_BYTES = 36
_FADT_BYTES = 276
_PM_EVENTS, _PM_CONTROL = 0x600, 0x604
PM_PORTS = range(_PM_EVENTS, _PM_CONTROL + 2)
_SCI = 9
_FADT_FLAGS = 1 << 0 | 1 << 4 | 1 << 5  # wbinvd works; neither button is a fixed one
_8259_TOO = 1


def write_tables(ram: memoryview, cpus: int) -> None:
    """Write them behind the RSDP, for processors with the APIC numbers 0 to `cpus` - 1."""
    xsdt, fadt, dsdt, facs, madt = (RSDP + _STEP * index for index in range(1, 6))
    tables = {
        xsdt: _table(b"XSDT", 1, struct.pack("<2Q", fadt, madt)),
        fadt: _table(b"FACP", 5, _fadt(facs, dsdt)),
        dsdt: _table(b"DSDT", 2, b""),
        facs: struct.pack("<4sI", b"FACS", 64).ljust(64, b"\0"),
        madt: _table(b"APIC", 3, _madt(cpus)),
    }
    for address, table in tables.items():
        ram[address : address + len(table)] = table
    first = bytearray(struct.pack("<8sB6sBI", b"RSD PTR ", 0, _OEM, 2, 0))
    first[8] = -sum(first) & 0xFF
    whole = first + struct.pack("<IQI", 36, xsdt, 0)
    whole[32] = -sum(whole) & 0xFF
    ram[RSDP : RSDP + len(whole)] = whole


def _table(signature: bytes, revision: int, body: bytes) -> bytes:
    length = _HEADER_BYTES + len(body)
    header = struct.pack(
        "<4sIBB6s8sI4sI", signature, length, revision, 0, _OEM, _TABLE_ID, 1, _CREATOR, 1
    )
    table = bytearray(header + body)
    table[9] = -sum(table) & 0xFF
    return bytes(table)


def _fadt(facs: int, dsdt: int) -> bytes:
    body = bytearray(_FADT_BYTES - _HEADER_BYTES)

    def put(form: str, at: int, *values: int) -> None:
        struct.pack_into(form, body, at - _HEADER_BYTES, *values)

    put("<II", 36, facs, dsdt)
    put("<H", 46, _SCI)
    put("<I", 56, _PM_EVENTS)
    put("<I", 64, _PM_CONTROL)
    put("<BB", 88, 4, 2)
    put("<H", 109, 1 << 0)  # there are the devices of the ISA bus
    put("<I", 112, _FADT_FLAGS)
    return bytes(body)


def _madt(cpus: int) -> bytes:
    body = struct.pack("<II", LAPIC_BASE, _8259_TOO)
    for number in range(cpus):
        body += struct.pack("<BBBBI", 0, 8, number, number, 1)
    return body


class PowerManagement:
    """The registers that the FADT names; they keep what is written, nothing ever happens there."""

    ports = PM_PORTS

    def __init__(self) -> None:
        self._bytes = bytearray(len(PM_PORTS))
        self._bytes[_PM_CONTROL - _PM_EVENTS] = 1  # SCI_EN: ACPI mode is on

    def read(self, port: int) -> int:
        return self._bytes[port - _PM_EVENTS]

    def write(self, port: int, value: int) -> None:
        if port >= _PM_EVENTS + 2:  # status bits are cleared by writing them
            self._bytes[port - _PM_EVENTS] = value
