"""Replay a transcript of system calls against a directory and compare the answers.

A transcript is what a real tracefs answered, one call a line, and at the same time the script that
asks again: the left side of each line says which call to make.

    open("current_tracer", w) = ok[0]                  slot 0 of this block
    write[0]("foo\\n", 4) = -1 EINVAL (Invalid argument)
    write[0](100 x 'a') = -1 EINVAL (Invalid argument)
    read[0](4096) "nop\\n" = 4                          or without the text: the count alone
    lseek[0](0,end) = 0                                set unless `,cur` or `,end`
    close[0]() = 0

    current_tracer <- write[0]("foo", 3) = 3           open, this write, close
    current_tracer => read[0](4096) "nop\\n" = 4        open, this read, close

    $ echo foo > current_tracer                        what bash prints, up to the blank line
    bash: line 1: echo: write error: Invalid argument
    [status 1]

    ~ tail -1 trace                                    the same, but for pids, times, addresses and
    TASK-PID [000] ..... TIME: vfs_read <-ksys_read    empty lines (support/alike.py); `#` is text

    % echo nop > current_tracer                        to set the stage: succeeds and prints nothing

A blank line ends a block and closes its descriptors; `#` begins a comment. Flags of an open: r w +
(read and write) t (O_TRUNC) a (O_APPEND) n (O_NONBLOCK). `fuse: LINE` below a line is what a FUSE
mount answers instead of it, where the kernel's FUSE layer leaves no choice.

    PYTHONPATH=tests python -m support.fx DIRECTORY TRANSCRIPT...

replays against any tracefs, a real one too.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.alike import alike

FUSE_PREFIX = "fuse: "
ALIKE_PREFIX = "~ "
SHELL_SECONDS = 20

_OPEN_FLAGS = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY,
    "+": os.O_RDWR,
    "t": os.O_TRUNC,
    "a": os.O_APPEND,
    "n": os.O_NONBLOCK,
}
_WHENCE = {None: os.SEEK_SET, "cur": os.SEEK_CUR, "end": os.SEEK_END}

_STRING = r'"(?P<text>(?:[^"\\]|\\.)*)"'
_OPEN = re.compile(r'(?P<asked>open\("(?P<path>[^"]*)", (?P<flags>[rw+tan]+)\)) = ')
_WRITE = re.compile(
    rf"(?P<asked>write\[(?P<slot>\d+)\]\((?:{_STRING}, \d+|(?P<fill>\d+) x 'a')\)) = "
)
_READ = re.compile(rf"(?P<asked>read\[(?P<slot>\d+)\](?:\((?P<size>\d+)\))?)(?: {_STRING})? = ")
_LSEEK = re.compile(
    r"(?P<asked>lseek\[(?P<slot>\d+)\]\((?P<offset>-?\d+)(?:,(?P<whence>cur|end))?\)) = "
)
_CLOSE = re.compile(r"(?P<asked>close\[(?P<slot>\d+)\]\(\)) = ")
_ONE_SHOT = re.compile(r"(?P<path>[\w/]+) (?P<way><-|=>) (?P<call>(?:write|read)\[0\].*)")

_ESCAPES = {"n": b"\n", "t": b"\t", '"': b'"', "\\": b"\\"}


@dataclass(frozen=True, slots=True)
class Line:
    """A line (or a shell command with its output) of a transcript, and where it stands."""

    number: int
    text: str
    deviation: str | None = None  # the `fuse:` line below it

    def expected(self, fuse: bool) -> str:
        return self.deviation if fuse and self.deviation is not None else self.text


@dataclass(frozen=True, slots=True)
class Answer:
    number: int
    expected: str
    got: str

    @property
    def agrees(self) -> bool:
        return self.expected == self.got

    def __str__(self) -> str:
        return f"line {self.number}\n  expected: {self.expected}\n  answered: {self.got}"


def escape(data: bytes) -> str:
    shown = {0x0A: "\\n", 0x09: "\\t", 0x22: '\\"', 0x5C: "\\\\"}
    printable = range(32, 127)
    return "".join(
        shown.get(byte) or (chr(byte) if byte in printable else f"\\x{byte:02x}") for byte in data
    )


def unescape(text: str) -> bytes:
    def one(match: re.Match[str]) -> str:
        name = match[1]
        raw = bytes([int(name[1:], 16)]) if name[0] == "x" else _ESCAPES[name]
        return raw.decode("latin-1")

    return re.sub(r"\\(x[0-9a-f]{2}|.)", one, text).encode("latin-1")


def blocks(transcript: str) -> Iterator[list[Line]]:
    """Split a transcript; a shell command and what it prints are one Line."""
    block: list[Line] = []
    for number, text in enumerate([*transcript.splitlines(), ""], 1):
        if not text:
            if block:
                yield block
            block = []
        elif block and block[-1].text.startswith(ALIKE_PREFIX):
            last = block.pop()
            block.append(Line(last.number, f"{last.text}\n{text}"))
        elif text.startswith("#"):
            continue
        elif text.startswith(FUSE_PREFIX):
            last = block.pop()
            block.append(Line(last.number, last.text, text.removeprefix(FUSE_PREFIX)))
        elif block and block[-1].text.startswith("$ "):
            last = block.pop()
            block.append(Line(last.number, f"{last.text}\n{text}"))
        else:
            block.append(Line(number, text))


def error(failure: OSError) -> str:
    number = failure.errno or 0
    return f"-1 {errno.errorcode[number]} ({os.strerror(number)})"


class Driver:
    """Makes the calls of one block; paths are relative to `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.slots: list[int] = []

    def close(self) -> None:
        for descriptor in self.slots:
            if descriptor >= 0:
                os.close(descriptor)
        self.slots.clear()

    def answer(self, line: str) -> str:
        """Make the call that `line` tells and return the line a tracefs should have given."""
        for prefix, action in (
            ("$ ", self._shell),
            (ALIKE_PREFIX, self._alike),
            ("% ", self._stage),
        ):
            if line.startswith(prefix):
                return action(line.removeprefix(prefix).split("\n")[0])
        if match := _ONE_SHOT.fullmatch(line):
            return self._one_shot(match["path"], match["way"], match["call"])
        for pattern, call in (
            (_OPEN, self._open),
            (_WRITE, self._write),
            (_READ, self._read),
            (_LSEEK, self._lseek),
            (_CLOSE, self._close),
        ):
            if match := pattern.match(line):
                try:
                    return match["asked"] + call(match)
                except OSError as failure:
                    return f"{match['asked']} = {error(failure)}"
        raise ValueError(f"not a line of a transcript: {line}")

    def _open(self, match: re.Match[str]) -> str:
        flags = 0
        for letter in match["flags"]:
            flags |= _OPEN_FLAGS[letter]
        self.slots.append(-1)
        self.slots[-1] = os.open(self.directory / match["path"], flags)
        return f" = ok[{len(self.slots) - 1}]"

    def _write(self, match: re.Match[str]) -> str:
        data = b"a" * int(match["fill"]) if match["fill"] else unescape(match["text"])
        return f" = {os.write(self.slots[int(match['slot'])], data)}"

    def _read(self, match: re.Match[str]) -> str:
        data = os.read(self.slots[int(match["slot"])], int(match["size"] or 4096))
        text = f' "{escape(data)}"' if data and match["text"] is not None else ""
        return f"{text} = {len(data)}"

    def _lseek(self, match: re.Match[str]) -> str:
        descriptor = self.slots[int(match["slot"])]
        return f" = {os.lseek(descriptor, int(match['offset']), _WHENCE[match['whence']])}"

    def _close(self, match: re.Match[str]) -> str:
        slot = int(match["slot"])
        descriptor, self.slots[slot] = self.slots[slot], -1
        os.close(descriptor)
        return " = 0"

    def _one_shot(self, path: str, way: str, call: str) -> str:
        alone = Driver(self.directory)
        try:
            opened = f'open("{path}", {"w" if way == "<-" else "r"}) = '
            lines = [alone.answer(f"{opened}ok[0]")]
            if lines[0] != f"{opened}ok[0]":
                return lines[0]
            answer = alone.answer(call)
            closed = alone.answer("close[0]() = 0")
            return f"{path} {way} {answer}" if closed == "close[0]() = 0" else closed
        finally:
            alone.close()

    def _run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            text=True,
            timeout=SHELL_SECONDS,
        )
        return done.returncode, done.stdout.rstrip("\n")

    def _shell(self, command: str) -> str:
        status, output = self._run(command)
        lines = [f"$ {command}", *([output] if output else [])]
        return "\n".join([*lines, f"[status {status}]"] if status else lines)

    def _alike(self, command: str) -> str:
        first, *lines = self._shell(command).split("\n")
        text = alike("\n".join(lines))
        return "\n".join([f"{ALIKE_PREFIX}{first.removeprefix('$ ')}", *([text] if text else [])])

    def _stage(self, command: str) -> str:
        status, output = self._run(command)
        return f"% {command}" + (f": status {status}: {output}" if status or output else "")


def replay(transcript: str, directory: Path, *, fuse: bool) -> list[Answer]:
    """Make every call of `transcript` in `directory`; one Answer a line."""
    answers = []
    for block in blocks(transcript):
        driver = Driver(directory)
        try:
            for line in block:
                expected = line.expected(fuse)
                answers.append(Answer(line.number, expected, driver.answer(expected)))
        finally:
            driver.close()
    return answers


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print("usage: fx.py DIRECTORY TRANSCRIPT...", file=sys.stderr)
        return 2
    directory, *transcripts = map(Path, arguments)
    fuse = f" {directory.resolve()} fuse" in Path("/proc/mounts").read_text()
    failed = 0
    for transcript in transcripts:
        answers = replay(transcript.read_text(), directory, fuse=fuse)
        wrong = [answer for answer in answers if not answer.agrees]
        for answer in wrong:
            print(f"{transcript.name}: {answer}")
        print(f"{transcript.name}: {len(answers)} lines, {len(wrong)} different")
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
