"""Kernels that do not come up: each is refused with one line, and nothing is left running."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from emulated_kernel.errors import ImageError
from emulated_kernel.linux import guest
from emulated_kernel.linux.elf_file import Segment
from emulated_kernel.linux.memory import GUEST_BYTES

ENTRY, TEXT = 0x1000000, 0xFFFFFFFF81000000
HANG = b"\xfa\xeb\xfe"  # cli; jmp $
# mov dx, 0x3f8; mov al, 'A'; out dx, al; mov al, 10; out dx, al; cli; jmp $
SPEAK = b"\x66\xba\xf8\x03\xb0\x41\xee\xb0\x0a\xee" + HANG


def vmlinux(code: bytes, *, memory_size: int = 4096) -> SimpleNamespace:
    """As much of a kernel as a boot asks for."""
    segment = Segment(ENTRY, TEXT, 0, memoryview(code), memory_size, True, False)
    return SimpleNamespace(
        name="vmlinuz-test",
        release="0.0",
        digest="0" * 64,
        entry=ENTRY,
        segments=(segment,),
        symbol=lambda name: TEXT,
        symbols=SimpleNamespace(get=lambda name: TEXT),
        btf=SimpleNamespace(offset=lambda struct, path: 0, has=lambda struct, path: True),
    )


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(guest, "_STALL_S", 1.0)
    before = set(threading.enumerate())
    yield
    for left in set(threading.enumerate()) - before:
        left.join(20)
        assert not left.is_alive()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (HANG, r"its boot hangs at 0x1000001, it said nothing"),
        (SPEAK, r"its boot hangs at 0x100000b, last it said: A"),
        (b"\x0f\x0b", r"triple fault at 0x1000000"),
        (b"\xfa\xf4", r"the guest has halted for good"),
        (b"\xb0\xfe\xe6\x64\xeb\xfe", r"the guest has reset its machine"),
    ],
    ids=["hangs", "hangs after a line", "faults", "halts", "resets"],
)
def test_a_kernel_that_does_not_come_up_is_refused_with_the_reason(code: bytes, why: str) -> None:
    with pytest.raises(ImageError, match=f"^vmlinuz-test: {why}$"):
        guest.start(vmlinux(code), cache=None)  # type: ignore[arg-type]


def test_a_kernel_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ImageError, match=r"^vmlinuz-test: too large for 192 MiB of RAM$"):
        guest.start(vmlinux(HANG, memory_size=GUEST_BYTES), cache=None)  # type: ignore[arg-type]
