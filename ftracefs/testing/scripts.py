"""Programs run against a mount, none of which outlives its test.

A program leads a session of its own and carries the mount in its environment, by which what it has
left behind is told from other processes. Nothing here waits without a bound: a mount whose daemon
is stuck holds whoever uses it.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from ftracefs.testing.leftovers import Adoption, end_leftovers

_MARK = "FTRACEFS_TESTED_MOUNT"
_END_SECONDS = 10.0

# The directory is changed by the program itself and not by Popen, which would wait for that.
_IN_THE_MOUNT = ("/bin/sh", "-c", 'cd "$0" && exec "$@"')


class ScriptFailed(subprocess.CalledProcessError):
    """A program ended with another code than 0; the message holds what it said."""

    def __str__(self) -> str:
        said = "".join(
            f"\n--- {name} ---\n{text}"
            for name, text in (("stdout", self.stdout), ("stderr", self.stderr))
            if text
        )
        return f"{super().__str__()}{said}"


class Scripts:
    """The programs of a test, whose working directory and $TRACEFS is the mount at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: list[subprocess.Popen[str]] = []
        self._sessions: set[int] = set()
        self._adoption = Adoption()

    def run(
        self,
        script: str | os.PathLike[str],
        *arguments: str | os.PathLike[str],
        timeout: float,
        check: bool,
        env: Mapping[str, str] | None,
        stdin: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end. What it leaves behind may go on writing; nobody waits for it."""
        command = _command(script, arguments)
        # Files and no pipes: a child that outlives the script would keep a pipe open.
        with (
            tempfile.TemporaryFile("w+") as given,
            tempfile.TemporaryFile("w+") as said,
            tempfile.TemporaryFile("w+") as complained,
        ):
            given.write(stdin)
            given.seek(0)
            process = self._start(command, env, given, said, complained)
            try:
                code = process.wait(timeout)
            except BaseException:
                _kill_group(process)
                if not _has_ended(process, time.monotonic() + _END_SECONDS):
                    self._running.append(process)
                raise
            said.seek(0)
            complained.seek(0)
            output, errors = said.read(), complained.read()
        if check and code:
            raise ScriptFailed(code, command, output, errors)
        return subprocess.CompletedProcess(command, code, output, errors)

    def popen(
        self,
        script: str | os.PathLike[str],
        *arguments: str | os.PathLike[str],
        env: Mapping[str, str] | None,
    ) -> subprocess.Popen[str]:
        """Start it, with pipes to all three; it is ended with the test if it still runs then."""
        pipe = subprocess.PIPE
        process = self._start(_command(script, arguments), env, pipe, pipe, pipe)
        self._running.append(process)
        return process

    def end_all(self) -> bool:
        """End what still runs; False if something does so even then, as whoever waits for a stuck
        daemon does. It is tried again by the next call."""
        deadline = time.monotonic() + _END_SECONDS
        for process in self._running:
            _kill_group(process)
        self._running = [process for process in self._running if not _has_ended(process, deadline)]
        if self._sessions:
            mark = f"{_MARK}={self._path}".encode()
            if end_leftovers(self._sessions, mark, deadline) and not self._running:
                self._sessions.clear()
                self._adoption.end()
        return not self._sessions

    def _start(
        self,
        command: list[str],
        env: Mapping[str, str] | None,
        stdin: IO[str] | int,
        stdout: IO[str] | int,
        stderr: IO[str] | int,
    ) -> subprocess.Popen[str]:
        tracefs = {"TRACEFS": str(self._path)}
        # One that the tests were started with is the host's, or another mount.
        environment = {**os.environ, **tracefs} if env is None else {**tracefs, **env}
        environment[_MARK] = str(self._path)
        _require_program(command[0], environment.get("PATH"))
        self._adoption.begin()
        process = subprocess.Popen(
            [*_IN_THE_MOUNT, str(self._path), *command],
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
            preexec_fn=_take_interrupts if _ignores_interrupts() else None,
        )
        process.args = command  # which is what messages shall name
        self._sessions.add(process.pid)
        return process


def _ignores_interrupts() -> bool:
    """As whatever a shell without job control has started in the background."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def _take_interrupts() -> None:
    """In the child: an ignored signal is inherited, and a shell could not take it back."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _command(
    script: str | os.PathLike[str], arguments: tuple[str | os.PathLike[str], ...]
) -> list[str]:
    """A path is meant as the test sees it, a bare name is a command of $PATH."""
    name = os.fspath(script)
    if "/" in name or isinstance(script, os.PathLike):
        name = str(Path(name).absolute())
    return [name, *(os.fspath(argument) for argument in arguments)]


def _require_program(name: str, path: str | None) -> None:
    """The OSError that executing it would be."""
    if shutil.which(name, path=path) is None:
        number = errno.EACCES if Path(name).is_absolute() and Path(name).exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), name)


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Nothing if it was waited for: its number may be somebody else's now."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _has_ended(process: subprocess.Popen[str], deadline: float) -> bool:
    """Wait for it and let go of its pipes."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:
                pass
    return True
