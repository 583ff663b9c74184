"""A cpio archive of the kind the kernel unpacks: newc (cpio(5),
Documentation/driver-api/early-userspace/buffer-format.rst)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DIRECTORY, FILE, LINK, CHARACTER = 0o040000, 0o100000, 0o120000, 0o020000
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, slots=True)
class CpioFile:
    """A file of the archive; `mode` has its type."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def cpio(files: Iterable[CpioFile]) -> bytes:
    """The archive."""
    out = bytearray()
    for number, file in enumerate([*files, CpioFile(_TRAILER, 0)], 1):
        name = file.name.encode() + b"\0"
        fields = (number, file.mode, 0, 0, 1, 0, len(file.data), 0, 0, *file.device, len(name), 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name
        out += bytes(-len(out) % 4)
        out += file.data
        out += bytes(-len(out) % 4)
    return bytes(out)
