"""A tracefs that a test mounts, drives and resets.

The daemon is a process of its own that ends with its standard input, so that nothing stays mounted
however the test's process ends.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import ftracefs
from ftracefs.mount import mountpoint
from ftracefs.mount.mountpoint import Mount, MountError
from ftracefs.mount.tracefs import Options
from ftracefs.testing.leftovers import in_time
from ftracefs.testing.scripts import Scripts
from ftracefs.testing.trace_lines import TraceLine, parse_trace

START_SECONDS = 60.0
_RESET_SECONDS = 60.0
_END_SECONDS = 20.0
_UNMOUNTS = 8  # more mounts than that are not stacked at one place


class NotMounted(Exception):
    """The daemon did not come up; the text holds what it said."""


class CallFailed(Exception):
    """A function of the emulated kernel did not return; the text is that of `emulator/call`."""


class MountedTracefs:
    """A tracefs mounted at `path`, in a new directory that ends with it. A context manager.

    The new directory is made in `directory` (default: where temporary files are). What the daemon
    logs is appended to `log`, which stays; without one it is lost with the directory.
    """

    def __init__(
        self,
        directory: Path | None = None,
        options: Options | None = None,
        *,
        log: Path | None = None,
    ) -> None:
        self.options = options or Options()
        self._place = mountpoint.resolve(tempfile.mkdtemp(prefix="ftracefs-", dir=directory))
        # Holds the place though somebody renames it.
        self._place_fd = os.open(self._place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = self._place / "tracing"
        self._log = log or self._place / "ftracefs.log"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._scripts = Scripts(self.path)

    # --- files -----------------------------------------------------------------------------------

    def __truediv__(self, name: str) -> Path:
        """`tracefs / "set_ftrace_filter"` is the path of that file."""
        return self.path / name

    def read(self, name: str) -> str:
        """`cat NAME`."""
        return (self.path / name).read_text(errors="surrogateescape")

    def write(self, name: str, text: str | bytes, *, append: bool = False) -> None:
        """`printf TEXT > NAME`, or with `append` `>> NAME`. OSError as the file refuses it."""
        data = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")
        path = self.path / name
        flags = os.O_APPEND if append else os.O_TRUNC
        try:
            descriptor = os.open(path, os.O_WRONLY | flags | os.O_CLOEXEC)
            try:
                # Some files take one word of a write and leave the rest to the next one.
                while data:
                    data = data[os.write(descriptor, data) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None

    def echo(self, text: str, name: str, *, append: bool = False) -> None:
        """`echo TEXT > NAME`, or with `append` `>> NAME`."""
        self.write(name, f"{text}\n", append=append)

    def trace(self, name: str = "trace") -> list[TraceLine]:
        """The records in `trace`, or in another file of that form."""
        return parse_trace(self.read(name))

    # --- the kernel ------------------------------------------------------------------------------

    def call(self, function: str, *arguments: int | str, times: int = 1) -> int:
        """Have the emulated kernel run a function, as this process; returns what it returned.

        An argument is a number or the name of a symbol. OSError if there is no such function.
        """
        if self.options.pure:
            raise RuntimeError("a pure mount has no emulator/call")
        command = " ".join([function, *map(str, arguments), f"x{times}"])
        try:
            self.echo(command, "emulator/call")
        except OSError as error:
            said = self.read("emulator/call")
            if said.startswith(f"{function}(") and " = " not in said:
                raise CallFailed(said.strip()) from error
            raise
        value = self.read("emulator/call").rpartition(" = ")[2].split()[0]
        return int(value, 0)

    # --- programs --------------------------------------------------------------------------------

    def run(
        self,
        script: str | os.PathLike[str],
        *arguments: str | os.PathLike[str],
        timeout: float = 60.0,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a script with the mount as its working directory and as $TRACEFS.

        A path is meant as the test sees it, a bare name is a command of $PATH. `ScriptFailed` if it
        ends with another code than 0, unless `check` is False; subprocess.TimeoutExpired. What it
        leaves running is ended with the test.
        """
        return self._scripts.run(
            script, *arguments, timeout=timeout, check=check, env=env, stdin=stdin
        )

    def sh(self, text: str, *arguments: str | os.PathLike[str], timeout: float = 60.0) -> str:
        """Run shell commands; returns what they print. $1 and on are the arguments."""
        return self.run("sh", "-c", text, "sh", *arguments, timeout=timeout).stdout

    def popen(
        self,
        script: str | os.PathLike[str],
        *arguments: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a program that does not end by itself; it is ended with the test."""
        return self._scripts.popen(script, *arguments, env=env)

    def interrupt(self, program: subprocess.Popen[str]) -> None:
        """Ctrl-C: SIGINT for a program of `popen` and everything that it has started."""
        if program.poll() is not None:
            raise ProcessLookupError(f"{program.args!r} has ended with {program.returncode}")
        os.killpg(program.pid, signal.SIGINT)

    # --- start, reset, end -----------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Whether its daemon runs and is mounted at `path`."""
        is_running = self._daemon is not None and self._daemon.poll() is None
        return is_running and self._mount_at(self.path) is not None

    def log(self) -> str:
        """What the daemon has logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Mount. `NotMounted` if that does not work."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self.path.mkdir()
        with self._log.open("ab") as log:
            self._daemon = subprocess.Popen(
                [*_FTRACEFS, "mount", str(self.path), "--until-eof", *_arguments(self.options)],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests
            )
        self._wait_until_ready(self._daemon)

    def _wait_until_ready(self, daemon: subprocess.Popen[bytes]) -> None:
        assert daemon.stdout is not None
        deadline = time.monotonic() + START_SECONDS
        said = b""
        while b"\n" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([daemon.stdout], [], [], left)[0]:
                raise NotMounted(f"no mount after {START_SECONDS:.0f} s\n{self.log()}")
            part = os.read(daemon.stdout.fileno(), 4096)
            if not part:
                code = daemon.wait(_END_SECONDS)
                raise NotMounted(f"the daemon ended with {code}\n{self.log()}")
            said += part

    def reset(self) -> None:
        """Put every file back to what it was after the mount, and end what still runs.

        MountError when a file is in use that is not our programs' to give back, or when the daemon
        does not answer.
        """
        if not self._scripts.end_all():
            raise MountError(f"{self.path}: a program that uses it cannot be ended")
        try:
            in_time(lambda: mountpoint.reset(self.path), _RESET_SECONDS)
        except TimeoutError as error:
            raise MountError(f"{self.path}: {error}") from None

    def close(self) -> None:
        """End the programs and the daemon; nothing is mounted afterwards.

        MountError if something is, all the same.
        """
        self._scripts.end_all()
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            _end(daemon)
        if self._place_fd >= 0:
            try:
                self._remove_place()
            finally:
                os.close(self._place_fd)
                self._place_fd = -1
        self._scripts.end_all()  # who has waited for the daemon can end now

    def _remove_place(self) -> None:
        place = Path(f"/proc/self/fd/{self._place_fd}").readlink()  # somebody may have moved it
        path = place / self.path.name
        reason = ""
        for _ in range(_UNMOUNTS):
            if self._mount_at(path) is None:
                shutil.rmtree(place, ignore_errors=True)
                return
            reason = mountpoint.unmount(path, lazy=True)
        raise MountError(f"{path}: {reason or 'mounted again and again'}")

    def _mount_at(self, path: Path) -> Mount | None:
        mount = mountpoint.mounted_at(path)
        return mount if mount is not None and mount.is_ours else None

    def __enter__(self) -> MountedTracefs:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """By the end of its input; killed if that does not do."""
    for stream in (daemon.stdin, daemon.stdout):
        if stream is not None:
            stream.close()
    try:
        daemon.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(_END_SECONDS)


_FTRACEFS = (sys.executable, "-P", "-m", "ftracefs")


def _arguments(options: Options) -> list[str]:
    words = ["--cpus", str(options.cpus), "--clock", options.clock]
    if options.kernel is not None:
        words += ["--kernel", str(options.kernel)]
    for module in options.modules:
        words += ["--module", str(module)]
    words += ["--isolated"] if options.isolated else []
    words += ["--pure"] if options.pure else []
    return words


def _environment() -> dict[str, str]:
    """In which the daemon imports the package that this process has imported."""
    here = str(Path(ftracefs.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
