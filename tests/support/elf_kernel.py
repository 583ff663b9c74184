"""The example kernel in C and its module, compiled here, and other objects."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/examples/elf_kernel"
COMPILERS = ("gcc", "clang")
FLAGS = (
    *("-O1", "-ffreestanding", "-fno-pic", "-fno-pie", "-fno-stack-protector"),
    *("-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fcf-protection=none"),
    *("-mcmodel=kernel", "-mno-red-zone", "-mno-sse", "-pg", "-mfentry"),
)


def make(directory: Path, *arguments: str, compiler: str = "gcc") -> Path:
    """Compile the example in a copy of it; its kernel, beside which its module lies."""
    for tool in (compiler, "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is needed")
    shutil.copytree(EXAMPLE, directory)
    build(directory, f"CC={compiler}", *arguments)
    return directory / "kernel.elf"


def build(directory: Path, *arguments: str) -> None:
    command = ["make", "-s", *arguments]
    subprocess.run(command, cwd=directory, check=True, timeout=60, stdout=subprocess.DEVNULL)


def compiled(path: Path, source: str, *flags: str, compiler: str = "gcc") -> Path:
    """An object file: of C, or of assembler where `path` ends in .s.o."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is needed")
    language = "assembler" if path.suffixes[:1] == [".s"] else "c"
    arguments = flags if language == "assembler" else (*FLAGS, *flags)
    subprocess.run(
        [compiler, *arguments, "-x", language, "-c", "-", "-o", path],
        input=source.encode(),
        check=True,
        timeout=60,
    )
    return path
