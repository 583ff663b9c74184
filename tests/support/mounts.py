"""A mount for a test, which always ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ftracefs.mount import requirements

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 60


def missing_for_fuse() -> str | None:
    """What this machine lacks for a FUSE mount, None when it can mount."""
    lacking = requirements.lacking(requirements.fuse_findings())
    return "; ".join(f"{finding.name}: {finding.detail}" for finding in lacking) or None


def require_fuse() -> None:
    """Skip the test where no mount can be made, or fail it where one is required."""
    missing = missing_for_fuse()
    if missing is None:
        return
    if os.environ.get("FTRACEFS_REQUIRE_FUSE") == "1":
        pytest.fail(missing)
    pytest.skip(missing)


def is_mounted(directory: Path) -> bool:
    # Not os.path.ismount: that would ask a daemon which may be gone.
    mountinfo = Path("/proc/self/mountinfo").read_text()
    mount_points = {line.split()[4] for line in mountinfo.splitlines()}
    return str(directory).replace(" ", "\\040") in mount_points


def _ftracefs(command: tuple[str, ...], cwd: Path, log: Path, *arguments: str) -> None:
    # A file and no pipe: the daemon inherits it and would keep a pipe open.
    with log.open("ab") as output:
        done = subprocess.run(
            [*command, *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS,
        )
    if done.returncode:
        pytest.fail(f"ftracefs {' '.join(arguments)}: {done.returncode}\n{log.read_text()}")


@contextmanager
def mounted(
    directory: Path,
    *options: str,
    command: tuple[str, ...] = (sys.executable, "-m", "ftracefs"),
    cwd: Path = ROOT,
) -> Iterator[Path]:
    """Mount at `directory` (made here) with `options`; `command`, run in `cwd`, is ftracefs."""
    require_fuse()
    directory.mkdir(parents=True, exist_ok=True)
    directory = directory.resolve()
    log = directory.with_name(directory.name + ".log")
    try:
        _ftracefs(command, cwd, log, "mount", str(directory), *options)
        assert is_mounted(directory), log.read_text()
        yield directory
        _ftracefs(command, cwd, log, "unmount", str(directory))
        assert not is_mounted(directory)
    finally:
        if is_mounted(directory):
            fusermount = shutil.which("fusermount") or shutil.which("fusermount3") or "fusermount"
            subprocess.run([fusermount, "-u", "-z", str(directory)], timeout=COMMAND_SECONDS)
