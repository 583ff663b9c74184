"""Which of the machines a kernel is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulated_kernel.images import HOST_KERNEL, is_linux
from ftracefs.cli import parser

ELF = b"\x7fELF\x02\x01\x01".ljust(24, b"\0")


@pytest.mark.parametrize(
    ("head", "boots"),
    [
        (bytes(0x202) + b"HdrS", True),
        (ELF + (0x1000000).to_bytes(8, "little") + bytes(64), True),
        (ELF + (0xFFFFFFFF81000000).to_bytes(8, "little") + bytes(64), False),
        (ELF + bytes(72), False),
        (ELF, False),
        (b"", False),
        (b"hello\n", False),
    ],
    ids=["vmlinuz", "vmlinux", "one's own", "without an entry", "cut off", "empty", "text"],
)
def test_a_linux_is_told_by_how_it_is_entered(tmp_path: Path, head: bytes, boots: bool) -> None:
    file = tmp_path / "kernel"
    file.write_bytes(head)
    assert is_linux(file) is boots


def test_the_word_for_the_hosts_kernel_is_no_file(tmp_path: Path) -> None:
    assert is_linux(HOST_KERNEL)
    assert not is_linux(tmp_path / "linux")


@pytest.mark.parametrize(("kernel", "cpus"), [("linux", 1), ("builtin", 2)])
def test_a_linux_has_one_cpu_if_no_number_is_asked_for(kernel: str, cpus: int) -> None:
    from ftracefs.cli import _options

    words = ["mount", "x", "--kernel", kernel]
    assert _options(parser().parse_args(words)).cpus == cpus
    assert _options(parser().parse_args([*words, "--cpus", "4"])).cpus == 4
