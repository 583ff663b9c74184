"""Programs run against a mount, none of which outlives its test.

A program stands in a process group of its own and carries the mount in its environment, by which
what it has left behind is found, even if that has made a session of its own.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

_MARK = "FTRACEFS_TESTED_MOUNT"
_END_SECONDS = 10.0


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
        self._started: list[subprocess.Popen[str]] = []
        self._were_any = False

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
        # Files and no pipes: a child that outlives the script would keep a pipe open.
        with (
            tempfile.TemporaryFile("w+") as given,
            tempfile.TemporaryFile("w+") as said,
            tempfile.TemporaryFile("w+") as complained,
        ):
            given.write(stdin)
            given.seek(0)
            process = subprocess.Popen(
                _command(script, arguments),
                cwd=self._path,
                env=self._environment(env),
                stdin=given,
                stdout=said,
                stderr=complained,
                text=True,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout)
            except BaseException:
                _kill_group(process)
                process.wait()
                raise
            said.seek(0)
            complained.seek(0)
            output, errors = said.read(), complained.read()
        if check and code:
            raise ScriptFailed(code, process.args, output, errors)
        return subprocess.CompletedProcess(process.args, code, output, errors)

    def popen(
        self,
        script: str | os.PathLike[str],
        *arguments: str | os.PathLike[str],
        env: Mapping[str, str] | None,
    ) -> subprocess.Popen[str]:
        """Start it, with pipes to all three; it is ended with the test if it still runs then."""
        process = subprocess.Popen(
            _command(script, arguments),
            cwd=self._path,
            env=self._environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def end_all(self) -> None:
        """End what still runs."""
        for process in self._started:
            if process.poll() is None:
                _kill_group(process)
                process.wait(_END_SECONDS)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        pass
        self._started.clear()
        if self._were_any:
            self._end_marked()
        self._were_any = False

    def _environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        self._were_any = True
        base = os.environ if env is None else env
        return {"TRACEFS": str(self._path), **base, _MARK: str(self._path)}

    def _end_marked(self) -> None:
        """Kill every process that carries this mount's mark, and those that it forks meanwhile."""
        deadline = time.monotonic() + _END_SECONDS
        while marked := self._marked():
            for pidfd in marked:
                try:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))
                except ProcessLookupError:
                    pass
                finally:
                    os.close(pidfd)
            if time.monotonic() > deadline:
                return

    def _marked(self) -> list[int]:
        mark = f"{_MARK}={self._path}".encode()
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            if int(directory.name) == os.getpid():
                continue
            try:
                # First the descriptor: from then on the number cannot become somebody else's.
                pidfd = os.pidfd_open(int(directory.name))
            except OSError:
                continue
            try:
                is_marked = mark in (directory / "environ").read_bytes().split(b"\0")
            except OSError:
                is_marked = False
            if is_marked:
                found.append(pidfd)
            else:
                os.close(pidfd)
        return found


def _command(
    script: str | os.PathLike[str], arguments: tuple[str | os.PathLike[str], ...]
) -> list[str]:
    """A path is meant as the test sees it, a bare name is a command of $PATH."""
    name = os.fspath(script)
    if "/" in name or isinstance(script, os.PathLike):
        name = str(Path(name).absolute())
    return [name, *(os.fspath(argument) for argument in arguments)]


def _kill_group(process: subprocess.Popen[str]) -> None:
    """To be called before the process was waited for: its number is its own until then."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
