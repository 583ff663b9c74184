"""The way down of a mount, seen from the daemon."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.mounts import require_fuse


def test_a_place_that_is_free_again_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    require_fuse()
    from ftracefs.mount import mountpoint, serve

    asked: list[Path] = []
    release = threading.Event()

    def unmount(path: Path, *, lazy: bool = False) -> str:
        asked.append(path)
        threading.Timer(4 * serve.RETRY_INTERVAL, release.set).start()
        return ""

    monkeypatch.setattr(mountpoint, "unmount", unmount)
    session = threading.Thread(target=release.wait, args=(20,))
    session.start()
    assert serve._take_down(Path("/nowhere"), session)
    assert asked == [Path("/nowhere")]
    session.join()
