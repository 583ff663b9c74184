"""The tree from outside: modes, owners, inode numbers, and what may not be done to names."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.daemon import MountedDaemon

REFUSALS: list[tuple[str, Callable[[Path], object], int]] = [
    ("create", lambda top: (top / "new").touch(), errno.EACCES),
    ("mkdir", lambda top: (top / "new").mkdir(), errno.EPERM),
    ("unlink", lambda top: (top / "README").unlink(), errno.EPERM),
    ("rename", lambda top: (top / "README").rename(top / "new"), errno.EPERM),
    ("link", lambda top: (top / "new").hardlink_to(top / "README"), errno.EPERM),
    ("symlink", lambda top: (top / "new").symlink_to("README"), errno.EPERM),
    ("mkfifo", lambda top: os.mkfifo(top / "new"), errno.EPERM),
    ("rmdir", lambda top: (top / "instances").rmdir(), errno.EPERM),
    ("rmdir of a file", lambda top: (top / "README").rmdir(), errno.ENOTDIR),
    ("lookup", lambda top: (top / "none").stat(), errno.ENOENT),
    ("lookup below a file", lambda top: (top / "README" / "x").stat(), errno.ENOTDIR),
    ("setxattr", lambda top: os.setxattr(top, "user.other", b""), errno.EOPNOTSUPP),
    ("getxattr", lambda top: os.getxattr(top, "user.other"), errno.EOPNOTSUPP),
    ("writing a directory", lambda top: os.open(top / "instances", os.O_WRONLY), errno.EISDIR),
]


@pytest.mark.parametrize(
    ("action", "expected"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_a_change_of_names_is_refused(
    tracing: Path, action: Callable[[Path], object], expected: int
) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011
        action(tracing)
    assert caught.value.errno == expected


def test_modes_owner_and_link_counts_are_exact(tracing: Path) -> None:
    expected = {
        "": (stat.S_IFDIR | 0o700, 3),
        "README": (stat.S_IFREG | 0o440, 1),
        "set_ftrace_filter": (stat.S_IFREG | 0o640, 1),
        "trace_marker": (stat.S_IFREG | 0o220, 1),
        "instances": (stat.S_IFDIR | 0o750, 2),
    }
    found = {name: (tracing / name).stat() for name in expected}
    assert {name: (s.st_mode, s.st_nlink) for name, s in found.items()} == expected
    assert {(s.st_uid, s.st_gid) for s in found.values()} == {(os.getuid(), os.getgid())}
    sizes = {name: s.st_size for name, s in found.items() if s.st_size}
    assert sizes == {"README": len("a fake\n"), "set_ftrace_filter": len("all\n")}


def test_inode_numbers_are_unique_and_the_listings(tracing: Path) -> None:
    for name in ("a", "b"):
        (tracing / "instances" / name).mkdir()
    listed = {
        Path(entry.path): entry.inode()
        for directory, _, _ in os.walk(tracing)
        for entry in os.scandir(directory)
    }
    assert len(set(listed.values())) == len(listed) > 15
    assert {path: path.stat().st_ino for path in listed} == listed


def test_a_new_directory_shows_at_once_and_goes_at_once(tracing: Path) -> None:
    directory = tracing / "instances" / "né w.1"
    for _ in range(20):
        assert not directory.exists()
        directory.mkdir()
        assert [path.name for path in directory.iterdir()] == ["trace_pipe", "trace_marker"]
        assert (directory / "trace_pipe").stat().st_mode == stat.S_IFREG | 0o440
        directory.rmdir()
        assert not (directory / "trace_pipe").exists()


def test_a_name_need_not_be_text(tracing: Path) -> None:
    name = os.fsencode(tracing / "instances") + b"/\xff\xfe"
    os.mkdir(name)  # noqa: PTH102
    assert b"\xff\xfe" in os.listdir(os.fsencode(tracing / "instances"))  # noqa: PTH208
    os.rmdir(name)  # noqa: PTH106


def test_an_open_file_can_be_asked_for_its_attributes(tracing: Path) -> None:
    with (tracing / "README").open() as opened:
        assert os.fstat(opened.fileno()) == (tracing / "README").stat()


def test_modes_and_times_can_be_changed_as_in_tracefs(tracing: Path) -> None:
    path = tracing / "README"
    path.chmod(0o444)
    os.utime(path, ns=(1, 2))
    after = path.stat()
    assert (after.st_mode, after.st_atime_ns, after.st_mtime_ns) == (stat.S_IFREG | 0o444, 1, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="root only may give files away")
def test_owners_can_be_changed_as_in_tracefs(tracing: Path) -> None:
    path = tracing / "README"
    os.chown(path, 1000, -1)
    os.chown(path, -1, 1001)
    assert (path.stat().st_uid, path.stat().st_gid) == (1000, 1001)


def test_the_mount_table_names_it_a_tracefs(daemon: MountedDaemon) -> None:
    lines = Path("/proc/mounts").read_text().splitlines()
    assert [line for line in lines if line.startswith(f"ftracefs {daemon.path} fuse.tracefs rw,")]


def test_it_says_how_long_names_may_be(tracing: Path) -> None:
    assert os.statvfs(tracing).f_namemax == 255
