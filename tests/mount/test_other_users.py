"""Others than the one who mounted: the modes decide, as in Linux."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import MountedDaemon
from support.mounts import require_fuse

from ftracefs.mount import mountpoint

NOBODY = 65534


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    require_fuse()
    if os.geteuid() != 0:
        pytest.skip("only root can play somebody else")
    with MountedDaemon(tmp_path_factory.mktemp("others"), "--isolated") as daemon:
        yield daemon.path


@pytest.fixture
def tracing(mount: Path) -> Path:
    """The mount as it is at first: a reset takes back modes and owners, too."""
    mountpoint.reset(mount)
    return mount


def as_nobody(directory: Path, script: str) -> tuple[int, str]:
    """The exit code and the output of a shell script of nobody's, in `directory`."""
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=directory,
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout.strip()


def test_the_mount_is_closed_to_them_at_first(tracing: Path) -> None:
    assert "Permission denied" in as_nobody(tracing, "ls")[1]
    assert as_nobody(tracing, "cat trace")[0] == 1
    assert as_nobody(tracing, "echo 0 > tracing_on")[0] == 2


def test_what_their_modes_allow_they_may(tracing: Path) -> None:
    tracing.chmod(0o755)
    assert "tracing_on" in as_nobody(tracing, "ls")[1].split()
    assert as_nobody(tracing, "cat trace")[0] == 1
    assert as_nobody(tracing, "echo hello > trace_marker")[0] == 2
    (tracing / "trace_marker").chmod(0o666)
    assert as_nobody(tracing, "echo hello > trace_marker") == (0, "")
    assert "tracing_mark_write: hello" in (tracing / "trace").read_text()


def test_a_file_that_is_given_to_them_is_theirs(tracing: Path) -> None:
    tracing.chmod(0o755)
    os.chown(tracing / "tracing_on", NOBODY, NOBODY)
    assert as_nobody(tracing, "echo 0 > tracing_on; cat tracing_on") == (0, "0")
    assert (tracing / "tracing_on").read_text() == "0\n"


def test_an_instance_that_would_not_be_theirs_is_not_made(tracing: Path) -> None:
    tracing.chmod(0o755)
    assert "Permission denied" in as_nobody(tracing, "mkdir instances/one")[1]
    (tracing / "instances").chmod(0o777)
    assert "Cannot allocate memory" in as_nobody(tracing, "mkdir instances/one")[1]
    assert list((tracing / "instances").iterdir()) == []
    (tracing / "instances/one").mkdir()
    assert "File exists" in as_nobody(tracing, "mkdir instances/one")[1]
    (tracing / "instances/one").rmdir()


def test_they_cannot_end_or_reset_the_mount(tracing: Path) -> None:
    tracing.chmod(0o777)
    setxattr = "import os; os.setxattr('.', 'user.ftracefs.{}', b'')"
    for name in ("stop", "reset"):
        code, output = as_nobody(tracing, f'python3 -c "{setxattr.format(name)}"')
        assert code == 1
        assert "PermissionError" in output
    assert (tracing / "tracing_on").read_text() == "1\n"
