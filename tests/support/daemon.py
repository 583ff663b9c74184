"""A daemon in the foreground, which always ends, and processes that read from its mount."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import pytest

from ftracefs.mount import mountpoint
from support.mounts import ROOT

FTRACEFS = (sys.executable, "-m", "ftracefs")
FAKE = (sys.executable, str(Path(__file__).with_name("fake_daemon.py")))
SOON = (
    10.0  # that nobody notices: far more than it takes, for a machine that stands still meanwhile
)
TIMEOUT = 60.0  # seconds that any single thing may take


def environment() -> dict[str, str]:
    """The environment of a program that is to import this checkout from anywhere."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def wait_until(condition: Callable[[], object], what: str, timeout: float = TIMEOUT) -> None:
    """Look again and again until `condition` holds; fail with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout} s: {what}")
        time.sleep(0.002)


def state_of(pid: int) -> str:
    """The letter of /proc/PID/stat; X when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def is_reading(pid: int) -> bool:
    """Whether the process sleeps in read(2) (x86-64: system call 0)."""
    try:
        call = Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()[0]
    except OSError:
        return False
    return state_of(pid) in "SD" and call == "0"


def wait_until_reading(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process sleeps in read(2)."""
    wait_until(
        lambda: is_reading(process.pid) or process.poll() is not None, f"{process.args} reads"
    )
    assert process.poll() is None, f"{process.args} ended with {process.returncode}"


def run(*command: str | Path, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; nothing is checked."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
        stdin=subprocess.DEVNULL,
        check=False,
    )


class MountedDaemon:
    """`ftracefs mount PATH --foreground OPTIONS` (or another such command) from start to end.

    The end is always: SIGTERM, then SIGKILL by pid, nothing mounted. Leaving the context fails the
    test if the log holds a traceback, or if the daemon, ended by us, did not exit with 0.
    """

    def __init__(self, directory: Path, *options: str, command: Sequence[str] = FTRACEFS) -> None:
        """`directory` is a scratch directory; the mount point is made in it."""
        self.path = directory / "tracing"
        self.log = directory / "daemon.log"
        self.command = [*command, "mount", str(self.path), "--foreground", *options]
        self.expects_traceback = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Start the daemon and wait until the mount answers, or fail with what the daemon said."""
        self.path.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )
        self._wait_for_mount()

    def _wait_for_mount(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        pidfd = os.pidfd_open(self.process.pid)
        try:
            with Path("/proc/self/mountinfo").open("rb") as mountinfo:
                poll = select.poll()
                poll.register(pidfd, select.POLLIN)
                poll.register(mountinfo, select.POLLPRI)
                while not self.is_mounted():
                    poll.poll(max(0, deadline - time.monotonic()) * 1000)
                    mountinfo.seek(0)
                    mountinfo.read()
                    if (code := self.process.poll()) is not None:
                        pytest.fail(f"the daemon ended with {code}:\n{self.log_text()}")
                    if time.monotonic() > deadline:
                        self.end()
                        pytest.fail(f"not mounted after {TIMEOUT} s:\n{self.log_text()}")
        finally:
            os.close(pidfd)
        self.path.stat()

    def is_mounted(self) -> bool:
        """Whether a mount of ours, dead or alive, is at the mount point."""
        mount = mountpoint.mounted_at(self.path)
        return mount is not None and mount.is_ours

    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def terminate(self, signal_number: int = signal.SIGTERM) -> int:
        """Send the signal and wait for the end; returns the exit code."""
        self.process.send_signal(signal_number)
        return self.process.wait(TIMEOUT)

    def end(self) -> None:
        """Be sure that there is no daemon and no mount."""
        if self._process is not None and self._process.poll() is None:
            try:
                self.terminate()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(TIMEOUT)
        while self.is_mounted() and not mountpoint.unmount(self.path, lazy=True):
            pass

    def __enter__(self) -> MountedDaemon:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ended_before = self.process.poll() is not None
        self.end()
        if error is None:
            text = self.log_text()
            assert ended_before or self.process.returncode == 0, text
            assert self.expects_traceback or "Traceback" not in text, text
