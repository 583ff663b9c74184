"""A mounted fake tree for the tests of the mount."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import FAKE, MountedDaemon
from support.mounts import require_fuse


@pytest.fixture
def fuse() -> None:
    """The test needs a working FUSE."""
    require_fuse()


@pytest.fixture
def unstarted(fuse: None, tmp_path: Path) -> Iterator[MountedDaemon]:
    """A daemon of the fake tree that the test starts itself, if at all."""
    daemon = MountedDaemon(tmp_path, command=FAKE)
    yield daemon
    daemon.end()


@pytest.fixture
def daemon(fuse: None, tmp_path: Path) -> Iterator[MountedDaemon]:
    """A running daemon of the fake tree."""
    with MountedDaemon(tmp_path, command=FAKE) as running:
        yield running


@pytest.fixture
def tracing(daemon: MountedDaemon) -> Path:
    """The mount point of a running daemon."""
    return daemon.path


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of background daemons go to the test's own directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
