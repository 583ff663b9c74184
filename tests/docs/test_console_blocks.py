"""The console blocks of README and docs, typed as they stand.

A block is one shell in one directory. `cat trace_pipe` and whatever else does not end by itself is
left by Ctrl-C (SIGINT) as soon as it has shown a line like each that the document shows.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import TIMEOUT, run, wait_until
from support.mounts import ROOT, require_fuse

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENDLESS = "trace_pipe"


def commands_of(block: str) -> list[tuple[str, list[str]]]:
    """(command, lines shown) of a block."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def shape(line: str) -> str:
    """What of a trace line is the same in every run: no numbers, no widths, no flags."""
    return re.sub(r"\[\d+\] \S+", "[]", re.sub(r"\d+", "0", " ".join(line.split())))


class Terminal:
    """Types commands in one directory after another, as `cd` says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def type(self, command: str, shown: list[str]) -> None:
        if command.startswith("cd "):
            self.directory /= command[3:]
        elif ENDLESS in command.split()[-1] and command.startswith("cat "):
            self._watch(command, shown)
        else:
            done = run("bash", "-c", f'cd "$1" && {command}', "bash", self.directory, timeout=120)
            assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
            assert not shown or done.stdout.strip(), f"$ {command}: shows nothing"

    def _watch(self, command: str, shown: list[str]) -> None:
        """Read until there is a line of each shape that is shown for this very process."""
        with subprocess.Popen(
            command.split(), cwd=self.directory, stdout=subprocess.PIPE, bufsize=0
        ) as reader:
            assert reader.stdout is not None
            stream = reader.stdout
            os.set_blocking(stream.fileno(), False)
            name = command.split()[0]
            wanted = {shape(line) for line in shown if line.lstrip().startswith(f"{name}-")}
            seen = bytearray()

            def complete() -> bool:
                seen.extend(stream.read(1 << 16) or b"")
                mine = [
                    line for line in seen.decode().splitlines() if f"{name}-{reader.pid} " in line
                ]
                return not wanted - {shape(line) for line in mine}

            try:
                wait_until(complete, f"{command} shows {wanted}")
            finally:
                reader.send_signal(signal.SIGINT)
                reader.wait(TIMEOUT)


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A directory with the clone's mount.sh, whose mount ends with the test."""
    require_fuse()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = tmp_path / "mount.sh"
    script.write_text(f'#!/bin/sh\nexec "{ROOT}/mount.sh" "$@"\n')
    script.chmod(0o755)
    yield Terminal(tmp_path)
    for mount in (tmp_path / "tracing", tmp_path / "t"):
        if mount.is_dir():
            run(script, "--unmount", mount)


def blocks() -> Iterator[object]:
    for document in DOCUMENTS:
        for number, block in enumerate(BLOCK.findall(document.read_text()), 1):
            yield pytest.param(block, id=f"{document.name}-{number}")


@pytest.mark.parametrize("block", list(blocks()))
def test_a_console_block_does_what_it_shows(block: str, terminal: Terminal) -> None:
    commands = commands_of(block)
    if not any("mount.sh" in command for command, _ in commands):
        terminal.type("./mount.sh tracing", [])
        terminal.type("cd tracing", [])
    for command, shown in commands:
        terminal.type(command, shown)
