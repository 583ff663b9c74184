"""How a path to a mount is resolved: as Linux does it, without a look at the mount."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftracefs.mount import mountpoint
from ftracefs.mount.mountpoint import Mount

PARTS = st.sampled_from(["a", "b", "up", "down", "far", "loop", "file", "none", "..", ".", ""])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree").resolve()
    (tree / "a" / "b" / "a").mkdir(parents=True)
    (tree / "a" / "up").symlink_to("..")
    (tree / "down").symlink_to("./a/up/a//b")
    (tree / "a" / "far").symlink_to(tree / "a" / "b")
    (tree / "loop").symlink_to("loop")
    (tree / "file").touch()
    return tree


@given(st.lists(PARTS, min_size=1, max_size=8), st.booleans())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_path_is_resolved_as_by_the_system(tree: Path, parts: list[str], is_below: bool) -> None:
    path = "/".join([str(tree) if is_below else os.path.relpath(tree), *parts])
    assert mountpoint.resolve(path) == Path(os.path.realpath(path))


def test_what_is_in_a_mount_of_ours_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, tree: Path
) -> None:
    ours = Mount(tree / "a", "fuse.tracefs", "ftracefs")
    monkeypatch.setattr(mountpoint, "_mounts", lambda: {ours.path: ours})
    assert mountpoint.resolve(f"{tree}/a/far/../up") == tree / "a" / "up"
    assert mountpoint.resolve(f"{tree}/a/far/../../down") == tree / "a" / "up" / "a" / "b"
    monkeypatch.setattr(mountpoint, "_mounts", dict)
    assert mountpoint.resolve(f"{tree}/a/far/../up") == tree
