"""Forty texts that hardly a file wants, written to every writable file: what Linux answered."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.fx import unescape
from support.mounts import mounted

RECORDED = Path(__file__).parent / "bad_writes.txt"

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|(\d+) x \'a\'')

# What the texts may have changed, and how it is set back: what was done on Linux between two files.
FIRST_VALUES = {
    "current_tracer": "nop",
    "tracing_on": "1",
    "trace_clock": "local",
    "set_ftrace_filter": "",
    "set_ftrace_notrace": "",
    "set_graph_function": "",
    "set_graph_notrace": "",
    "tracing_thresh": "0",
    "max_graph_depth": "0",
    "set_ftrace_pid": "",
    "set_ftrace_notrace_pid": "",
    "set_event_pid": "",
    "set_event_notrace_pid": "",
    "set_event": "",
    "events/enable": "0",
    "snapshot": "0",
    "options/sym-addr": "0",
    "options/overwrite": "1",
    "options/func_stack_trace": "0",
    "options/test_nop_accept": "0",
    "tracing_cpumask": "1",
    "buffer_size_kb": "1410",
    "buffer_percent": "50",
    "saved_cmdlines_size": "6552",
    "trace": "",
    "stack_trace_filter": "",
    "emulator/sysctl/stack_tracer_enabled": "0",
    "emulator/sysctl/ftrace_enabled": "1",
    "emulator/sysctl/ftrace_dump_on_oops": "0",
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the files of a group answered to each text."""

    files: tuple[str, ...]
    answers: dict[bytes, str]


def texts_of(line: str) -> list[bytes]:
    return [
        b"a" * int(match[2]) if match[2] else unescape(match[1]) for match in _TOKEN.finditer(line)
    ]


def read_recorded() -> list[Recorded]:
    text = re.sub(r"\n +", " ", re.sub(r"^#.*\n", "", RECORDED.read_text(), flags=re.M))
    first, *groups = text.strip().split("\n\n")
    texts = texts_of(first)
    recorded = []
    for group in groups:
        files, *lines, rest = group.splitlines()
        answer, _, otherwise = rest.partition(" ")
        assert otherwise == "else"
        answers = dict.fromkeys(texts, answer)
        for line in lines:
            answers |= dict.fromkeys(texts_of(line), line.split(" ")[0])
        recorded.append(Recorded(tuple(files.split()[1:]), answers))
    return recorded


GROUPS = read_recorded()
FILES = [(file, group.answers) for group in GROUPS for file in group.files]


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp("bad") / "tracing", "--cpus", "1") as path:
        (path / "instances/i").mkdir()
        yield path
        (path / "instances/i").rmdir()


def answer_of(file: Path, text: bytes) -> str:
    """The answer of one write, in the form of the recording."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        taken = os.write(descriptor, text)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        os.close(descriptor)
    return "taken" if taken == len(text) else str(taken)


@pytest.mark.oracle
@pytest.mark.parametrize(("file", "recorded"), FILES, ids=[file for file, _ in FILES])
def test_the_answers_are_those_of_linux(mount: Path, file: str, recorded: dict[bytes, str]) -> None:
    for name, value in FIRST_VALUES.items():
        (mount / name).write_text(f"{value}\n")
    answered = {text: answer_of(mount / file, text) for text in recorded}
    assert answered == recorded


def test_the_recording_is_whole() -> None:
    assert len({file for file, _ in FILES}) == len(FILES) == 52
    assert {len(group.answers) for group in GROUPS} == {40}
