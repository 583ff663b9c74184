"""What a boot loader leaves for the kernel (Documentation/x86/boot.rst): the 64-bit protocol.

0x07000  GDT            0x08000  page tables: the first GiB, identity-mapped
0x10000  boot_params    0x20000  command line          0xe0000  ACPI tables, if there are any
"""

from __future__ import annotations

import struct

from emulated_kernel.errors import ImageError
from emulated_kernel.linux.memory import GUEST_BYTES
from emulated_kernel.linux.vmlinux import Vmlinux
from emulated_kernel.machine.memory import MIB

GDT, TABLES, STACK_TOP = 0x7000, 0x8000, 0x6FF0
BOOT_PARAMS, COMMAND_LINE = 0x10000, 0x20000
COMMAND_LINE_MAX = 2047
_EBDA, _HIGH = 0x9FC00, MIB
_E820_RAM, _E820_RESERVED = 1, 2
_LARGE_PRESENT_WRITE = 0x83
_BOOT_FLAG, _HEADER, _PROTOCOL = 0xAA55, b"HdrS", 0x020F
_UNKNOWN_LOADER, _LOADED_HIGH = 0xFF, 0x01


def load_kernel(
    ram: memoryview, vmlinux: Vmlinux, initramfs: bytes, command_line: str, *, rsdp: int = 0
) -> None:
    """Put kernel, initramfs and parameters where the kernel's entry finds them.

    Raises ImageError for a kernel that does not fit.
    """
    top = MIB
    for segment in vmlinux.segments:
        end = segment.physical + segment.memory_size
        if segment.physical < MIB or end > GUEST_BYTES:
            raise ImageError(f"too large for {GUEST_BYTES // MIB} MiB of RAM")
        ram[segment.physical : segment.physical + len(segment.data)] = segment.data
        top = max(top, end)
    at = (GUEST_BYTES - len(initramfs) - MIB) & ~0xFFF
    if at < top:
        raise ImageError("no room for its initramfs")
    ram[at : at + len(initramfs)] = initramfs
    line = command_line.encode() + b"\0"
    if len(line) > COMMAND_LINE_MAX:
        raise ImageError("the kernel's command line is too long")
    ram[COMMAND_LINE : COMMAND_LINE + len(line)] = line
    ram[BOOT_PARAMS : BOOT_PARAMS + 4096] = _boot_params(at, len(initramfs), rsdp)
    struct.pack_into("<4Q", ram, GDT, 0, 0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF)
    struct.pack_into("<Q", ram, TABLES, TABLES + 0x1003)
    struct.pack_into("<Q", ram, TABLES + 0x1000, TABLES + 0x2003)
    for index in range(512):
        entry = index << 21 | _LARGE_PRESENT_WRITE
        struct.pack_into("<Q", ram, TABLES + 0x2000 + 8 * index, entry)


def _boot_params(initramfs: int, initramfs_bytes: int, rsdp: int) -> bytes:
    page = bytearray(4096)
    struct.pack_into("<Q", page, 0x70, rsdp)
    struct.pack_into("<H", page, 0x1FE, _BOOT_FLAG)
    struct.pack_into("<4sH", page, 0x202, _HEADER, _PROTOCOL)
    struct.pack_into("<BB", page, 0x210, _UNKNOWN_LOADER, _LOADED_HIGH)
    struct.pack_into("<II", page, 0x218, initramfs, initramfs_bytes)
    struct.pack_into("<I", page, 0x228, COMMAND_LINE)
    struct.pack_into("<I", page, 0x230, 16 * MIB)  # kernel_alignment
    map_of_ram = (
        (0, _EBDA, _E820_RAM),
        (_EBDA, MIB - _EBDA, _E820_RESERVED),
        (_HIGH, GUEST_BYTES - _HIGH, _E820_RAM),
    )
    page[0x1E8] = len(map_of_ram)
    for index, entry in enumerate(map_of_ram):
        struct.pack_into("<QQI", page, 0x2D0 + 20 * index, *entry)
    return bytes(page)
