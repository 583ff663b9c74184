"""A user without rights who mounts, by the setuid fusermount, and what he cannot read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients import as_nobody, require_user
from support.daemon import FAKE, FTRACEFS, environment
from support.mounts import require_fuse


@pytest.fixture(autouse=True)
def _may_play_nobody() -> None:
    require_fuse()
    require_user("nobody")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory of root's that others may go through."""
    tmp_path.chmod(0o755)
    yield tmp_path
    tmp_path.chmod(0o700)


def run(script: str, *arguments: str | Path, place: Path) -> subprocess.CompletedProcess[str]:
    """A shell script of nobody's, in his home."""
    return subprocess.run(
        as_nobody("sh", "-c", script, "sh", *arguments, within_reach=(place,)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )


def test_he_mounts_uses_and_unmounts_it(place: Path) -> None:
    script = (
        '"$@" mount --mkdir t >&2 && cat t/README t/who && "$@" reset t; "$@" unmount t && ls t'
    )
    done = run(script, *FAKE, place=place)
    text, who = done.stdout.splitlines()
    assert (done.returncode, text) == (0, "a fake"), done.stderr
    assert who.split()[1:] == ["65534", "65534"]


def test_where_he_may_not_mount_he_is_told(place: Path) -> None:
    roots = place / "dir"
    roots.mkdir()
    done = run('"$@"', *FAKE, "mount", roots, place=place)
    assert done.returncode == 1
    assert f"ftracefs: {roots}: " in done.stderr
    assert f"no write access to mountpoint {roots}" in done.stderr


@pytest.mark.parametrize("command", ["mount t --mkdir --kernel", "mount t --mkdir --module"])
def test_a_kernel_or_module_that_he_cannot_read_is_told_in_a_line(
    place: Path, command: str
) -> None:
    kernel = place / "vmlinuz"
    kernel.write_bytes(b"\0" * 0x202 + b"HdrS")
    kernel.chmod(0o600)
    done = run(f'file=$1; shift; "$@" {command} "$file"', kernel, *FTRACEFS, place=place)
    assert (done.returncode, done.stderr) == (1, f"ftracefs: {kernel}: Permission denied\n")


def test_run_enters_its_namespace_before_it_reads_a_kernel(place: Path) -> None:
    script = '"$@" run --kernel /nowhere/vmlinuz -- true'
    done = run(script, *FTRACEFS, place=place)
    assert done.stderr == "ftracefs: /nowhere/vmlinuz: No such file or directory\n"
    assert done.returncode == 125
