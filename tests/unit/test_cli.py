"""The command line without a mount: usage, refusals, and what a host lacks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ftracefs
from ftracefs import cli
from ftracefs.mount import mountpoint, requirements
from ftracefs.mount.mountpoint import Mount, MountError
from ftracefs.mount.requirements import Finding
from ftracefs.mount.tracefs import Options, Tracefs

MOUNTINFO = rb"""22 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 22 0:26 / /proc rw,nosuid - proc proc rw
41 22 0:31 / /home/a\040b/tr\134x rw,nosuid,nodev shared:12 - fuse.tracefs ftracefs rw,user_id=0
42 41 0:32 / /home/a\040b/tr\134x rw master:3 propagate_from:2 - tmpfs none rw
"""


def never(options: Options) -> Tracefs:
    raise AssertionError("nothing was to be built")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["mount"],
        ["unmount"],
        ["mount", "x", "y"],
        ["mount", "x", "--cpus", "0"],
        ["mount", "x", "--cpus", "9"],
        ["mount", "x", "--cpus", "two"],
        ["mount", "x", "--clock", "wall"],
        ["check", "x"],
        ["reset"],
        ["mount", "x", "--nosuch"],
        ["mount", ""],
        ["mount", "x", "--kernel", ""],
        ["mount", "x", "--module", ""],
        ["mount", "x", "--log", ""],
        ["unmount", ""],
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments, build=never)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "usage: ftracefs" in said
    assert said.endswith(" --help\n")


def test_who_stands_before_the_command_line_is_named_as_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FTRACEFS_HELP_COMMAND", "./some.sh --help")
    with pytest.raises(SystemExit):
        cli.main(["mount", "x", "--nosuch"], build=never)
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == [
        "ftracefs mount: error: unrecognized arguments: --nosuch",
        "try: ./some.sh --help",
    ]


def test_one_place_is_mounted_by_one_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = mountpoint.claim(tmp_path)
    assert cli.main(["mount", str(tmp_path), "--foreground"], build=never) == 1
    assert capsys.readouterr().err == (
        f"ftracefs: {tmp_path}: another ftracefs is just being mounted there\n"
    )
    os.close(claim)
    (tmp_path / "file").touch()
    with pytest.raises(MountError, match="is not empty"):
        mountpoint.claim(tmp_path)


@pytest.mark.parametrize("option", ["--kernel", "--module"])
def test_a_pipe_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(SystemExit):
        cli.main(["mount", str(tmp_path / "t"), option, str(pipe)], build=never)
    assert f"argument {option}: {pipe}: a pipe, not a file\n" in capsys.readouterr().err


def test_a_wrong_number_of_cpus_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["mount", "x", "--cpus", "9"], build=never)
    assert "invalid number from 1 to 8 value: '9'" in capsys.readouterr().err


def test_version_loads_nothing_that_takes_time() -> None:
    program = (
        "import sys\n"
        "from ftracefs.cli import main\n"
        "try:\n"
        "    main(['--version'])\n"
        "except SystemExit as end:\n"
        "    print(end.code, sorted({'fuse', 'numpy', 'unicorn', 'keystone'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"ftracefs {ftracefs.__version__}\n0 []\n"


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ftracefs", "unmount", "/no/such/mount"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "ftracefs: /no/such/mount: nothing is mounted there\n"


def test_only_an_ftracefs_is_reset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reset", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"ftracefs: {tmp_path}: no ftracefs is mounted there\n"


@pytest.mark.parametrize(("is_met", "code"), [(True, 0), (False, 1)])
def test_check_fails_when_something_needed_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_met: bool, code: int
) -> None:
    found = [
        Finding("this", is_met, "how it is"),
        Finding("that", False, "good to have", is_needed=False),
    ]
    monkeypatch.setattr(requirements, "findings", lambda: found)
    assert cli.main(["check"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["ok" if is_met else "missing", "this"],
        ["no", "that"],
    ]


def test_check_looks_at_each_piece() -> None:
    names = [finding.name for finding in requirements.findings()]
    assert names[:5] == ["Python", "/dev/fuse", "fusermount", "libfuse 2", "fusepy"]
    assert {"unicorn", "keystone-engine", "numpy", "user namespaces"} < set(names)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_LIBRARY_PATH", "/no/such/libfuse.so")
    lacking = requirements.lacking(requirements.fuse_findings())
    assert [finding.detail for finding in lacking if finding.name == "libfuse 2"] == [
        "install libfuse2 (libfuse2t64 on newer systems)"
    ]


def test_mount_tells_what_fuse_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(
        requirements, "fuse_findings", lambda: [Finding("/dev/fuse", False, "not there")]
    )
    assert cli.main(["mount", str(tmp_path)], build=never) == 1
    assert capsys.readouterr().err == "ftracefs: /dev/fuse: not there\n"


@pytest.mark.parametrize("path", ["/sys", "/sys/kernel/tracing", "/sys/kernel", "/proc"])
def test_the_hosts_own_places_are_refused(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mount", path], build=never) == 1
    assert f"{path} belongs to the host's kernel" in capsys.readouterr().err


def test_a_link_into_the_hosts_own_places_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to("/sys/kernel")
    assert cli.main(["mount", str(tmp_path / "link")], build=never) == 1
    assert "/sys/kernel belongs to the host's kernel" in capsys.readouterr().err


def test_only_an_empty_directory_is_mounted_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path, "is not empty"),
        (tmp_path / "file", ": Not a directory"),
        (tmp_path / "none", ": No such file or directory"),
    ):
        assert cli.main(["mount", str(path)], build=never) == 1
        assert capsys.readouterr().err == f"ftracefs: {path}{' ' * (reason[0] == 'i')}{reason}\n"


def test_another_mount_is_neither_mounted_over_nor_unmounted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(mountpoint, "mounted_at", lambda path: Mount(path, "tracefs", "tracefs"))
    assert cli.main(["mount", str(tmp_path)], build=never) == 1
    assert "tracefs (tracefs) is mounted there" in capsys.readouterr().err
    assert cli.main(["unmount", str(tmp_path)]) == 1
    assert "not ftracefs" in capsys.readouterr().err


def test_a_mount_that_answers_is_not_cleared_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        mountpoint, "mounted_at", lambda path: Mount(path, "fuse.tracefs", "ftracefs")
    )
    monkeypatch.setattr(mountpoint, "unmount", lambda path, lazy=False: pytest.fail("unmounted"))
    with pytest.raises(MountError, match="is mounted there already and answers"):
        mountpoint.prepare(tmp_path)


def test_mountinfo_paths_are_unescaped_and_optional_fields_skipped() -> None:
    mounts = mountpoint.parse_mountinfo(MOUNTINFO)
    assert [(str(mount.path), mount.fstype, mount.source) for mount in mounts] == [
        ("/", "ext4", "/dev/root"),
        ("/proc", "proc", "proc"),
        ("/home/a b/tr\\x", "fuse.tracefs", "ftracefs"),
        ("/home/a b/tr\\x", "tmpfs", "none"),
    ]
    assert [mount.is_ours for mount in mounts] == [False, False, True, False]


def test_the_mount_on_top_is_the_one_that_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda path: MOUNTINFO)
    mount = mountpoint.mounted_at(Path("/home/a b/tr\\x"))
    assert mount is not None
    assert mount.fstype == "tmpfs"
    assert mountpoint.mounted_at(Path("/home")) is None


@pytest.mark.parametrize(("code", "is_dead"), [(errno.ENOTCONN, True), (errno.EACCES, False)])
def test_a_dead_mount_is_told_from_a_place_one_may_not_see(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, is_dead: bool
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(code, "")

    monkeypatch.setattr("os.statvfs", refuse)
    assert mountpoint._is_dead(Mount(tmp_path, "fuse.tracefs", "ftracefs")) is is_dead
