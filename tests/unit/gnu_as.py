"""The second opinion of the assembler tests: the same statements through GNU `as` and `ld`.

Our front end expands macros, resolves private names and breaks FUNC and its kin down; GNU `as`
encodes every instruction, computes every expression, relaxes every jump, and `ld` gives it all its
addresses. Constants stay names, so that their arithmetic is compared as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from emulated_kernel.asm_source import (
    Align,
    Instruction,
    Label,
    Program,
    Raw,
    Statement,
    Values,
    read_sources,
)

_DIRECTIVES = {1: ".byte", 2: ".word", 4: ".long", 8: ".quad"}
_ERROR = re.compile(r"^[^:\n]*:(\d+): Error: (.*)$", re.MULTILINE)
_TIMEOUT = 60


class GnuAsError(Exception):
    """What GNU `as` refused: input line -> message."""

    def __init__(self, messages: Mapping[int, str], text: str) -> None:
        super().__init__(text)
        self.messages = messages


def require_binutils() -> None:
    """Skip, or fail where FTRACEFS_REQUIRE_BINUTILS=1, unless `as`, `ld` and `objcopy` are here."""
    missing = [tool for tool in ("as", "ld", "objcopy") if shutil.which(tool) is None]
    if not missing:
        return
    reason = f"GNU binutils are missing: {', '.join(missing)}"
    if os.environ.get("FTRACEFS_REQUIRE_BINUTILS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def assemble_with_gnu(
    sources: Mapping[str, str],
    bases: Mapping[str, int],
    constants: Mapping[str, int] | None = None,
    externs: Mapping[str, int] | None = None,
) -> dict[str, bytes]:
    """What `emulated_kernel.assembler.assemble` takes; the bytes of every section of `bases`."""
    program = read_sources(sources, constants or {})
    text = "\n".join([*_header(program, bases), *map(_render, program.statements)])
    with tempfile.TemporaryDirectory() as directory:
        return _build(Path(directory), text + "\n", bases, externs or {})


def accepted_by_gnu(instructions: list[str]) -> dict[str, bytes]:
    """The instructions that GNU `as` takes one by one, and their encodings."""
    accepted = list(dict.fromkeys(instructions))
    refused = gnu_errors(accepted)
    accepted = [text for line, text in enumerate(accepted) if line not in refused]
    text = [".intel_syntax noprefix", ".text"]
    for instruction in accepted:
        # Every encoding in a slot of 32 bytes, with its length behind it.
        text += ["8:", instruction, "9:", ".byte 9b - 8b", ".balign 32, 0xff"]
    with tempfile.TemporaryDirectory() as directory:
        blob = _build(Path(directory), "\n".join(text) + "\n", {".text": 0}, {})[".text"]
    slots = (blob[start : start + 32].rstrip(b"\xff") for start in range(0, len(blob), 32))
    return {
        instruction: slot[: slot[-1]] for instruction, slot in zip(accepted, slots, strict=True)
    }


def gnu_errors(instructions: list[str]) -> dict[int, str]:
    """Position -> message of every instruction that GNU `as` refuses."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            _assemble(Path(directory), "\n".join([".intel_syntax noprefix", *instructions]) + "\n")
        except GnuAsError as error:
            return {line - 2: message for line, message in error.messages.items()}
    return {}


def _header(program: Program, bases: Mapping[str, int]) -> Iterator[str]:
    yield ".intel_syntax noprefix"
    for name, value in program.constants.items():
        yield f"{name} = {value:#x}"
    for section in bases:
        flags = "ax" if section.startswith(".text") else "aw"
        yield f'.section {section}, "{flags}", @progbits'


def _render(statement: Statement) -> str:
    return f".section {statement.section}\n{_render_plain(statement)}"


def _render_plain(statement: Statement) -> str:
    match statement:
        case Label(name=name):
            return f"{name}:"
        case Align(size=size, fill=fill):
            return f".balign {size}, {fill}"
        case Raw(data=data):
            return f".byte {','.join(map(str, data))}" if data else ""
        case Values(width=width, expressions=expressions):
            return f"{_DIRECTIVES[width]} {', '.join(expressions)}"
        case Instruction(text=text):
            return text
        case _:
            raise TypeError(statement)


def _build(
    directory: Path, text: str, bases: Mapping[str, int], externs: Mapping[str, int]
) -> dict[str, bytes]:
    # Without any content in any section ld makes a file that objcopy refuses.
    _assemble(directory, text + '.section .filler, "a"\n.byte 0\n')
    starts = [f"--section-start={section}={base:#x}" for section, base in bases.items()]
    addresses = [f"--defsym={name}={value:#x}" for name, value in externs.items()]
    options = ["-nostdlib", "-static", "-e", "0", *starts, *addresses]
    _run(directory, "ld", *options, "-o", "image", "object.o")
    blobs = {}
    for section in bases:
        blob = directory / f"blob{section}"
        _run(directory, "objcopy", "-O", "binary", "-j", section, "image", blob.name)
        blobs[section] = blob.read_bytes()
    return blobs


def _assemble(directory: Path, text: str) -> None:
    (directory / "source.s").write_text(text, encoding="ascii")
    done = _as(directory)
    if done.returncode:
        messages = {int(line): what for line, what in _ERROR.findall(done.stderr)}
        raise GnuAsError(messages, done.stderr)


def _as(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # -n: padding of 0x90 is that, and not long nops of its own choice
        ["as", "--64", "-n", "-o", "object.o", "source.s"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )


def _run(directory: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr}")
