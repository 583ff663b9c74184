"""mount.sh over the fake tree: what a person types, from a clone that is already prepared.

The clone's Python is a script that notes what it is asked to do, so that no package is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.daemon import FAKE, TIMEOUT, environment, state_of, wait_until
from support.mounts import ROOT

from ftracefs.mount import mountpoint

PYTHON = """\
#!/bin/sh
echo "$@" >> '{calls}'
case "$*" in
"-P -m ftracefs "*) shift 3; exec {fake} "$@" ;;
"-m pip "*) exit 0 ;;
*) exec {python} "$@" ;;
esac
"""


class Clone:
    """A directory with mount.sh and a prepared environment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls = path / "calls"
        self.tracing = path / "tracing"
        for name in ("mount.sh", "pyproject.toml"):
            shutil.copy(ROOT / name, path)
        python = path / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON.format(calls=self.calls, fake=" ".join(FAKE), python=FAKE[0]))
        python.chmod(0o755)
        self.stamp(path)

    def stamp(self, place: Path) -> None:
        """Say that the environment was made at `place` from today's pyproject.toml."""
        text = f"{place}\n{(self.path / 'pyproject.toml').read_text()}"
        (self.path / ".venv" / "ftracefs-stamp").write_text(text)

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        script = "./mount.sh" if cwd is None else str(self.path / "mount.sh")
        return subprocess.run(
            [script, *arguments],
            cwd=cwd or self.path,
            env={**environment(), "XDG_STATE_HOME": str(self.path / "state")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    clone = Clone(tmp_path)
    yield clone
    for mount in mountpoint.parse_mountinfo(Path("/proc/self/mountinfo").read_bytes()):
        if mount.path.is_relative_to(tmp_path):
            clone.run("--unmount", str(mount.path))
            mountpoint.unmount(mount.path, lazy=True)


def test_a_mount_and_its_end(fuse: None, clone: Clone) -> None:
    done = clone.run()
    assert done.returncode == 0, done.stderr
    assert (clone.tracing / "README").read_text() == "a fake\n"
    assert done.stdout.endswith(f"    ./mount.sh --unmount {clone.tracing}\n")
    done = clone.run("--unmount")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert mountpoint.mounted_at(clone.tracing) is None
    assert clone.run("--unmount").returncode == 1


def test_options_and_the_mount_point_come_in_any_order(fuse: None, clone: Clone) -> None:
    elsewhere = clone.path / "some where"
    elsewhere.mkdir()
    done = clone.run("--cpus", "4", "my traces", "--pure", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    options = (elsewhere / "my traces" / "options").read_text()
    assert "cpus=4" in options
    assert "pure=True" in options
    assert clone.run("my traces", "--unmount", cwd=elsewhere).returncode == 0


def test_the_next_start_clears_away_what_a_killed_daemon_left(fuse: None, clone: Clone) -> None:
    pid = int(clone.run().stdout.partition("(pid ")[2].partition(",")[0])
    reader = subprocess.Popen(["cat", clone.tracing / "trace_pipe"], stderr=subprocess.DEVNULL)
    os.kill(pid, signal.SIGKILL)
    reader.wait(TIMEOUT)

    def is_dead() -> bool:
        try:
            os.statvfs(clone.tracing)
        except OSError:
            return True
        return False

    wait_until(is_dead, "the mount is dead")
    done = clone.run()
    assert done.returncode == 0, done.stderr
    assert "cleared a dead mount away" in done.stderr
    assert (clone.tracing / "README").read_text() == "a fake\n"


def test_a_daemon_that_is_stopped_is_not_waited_for(fuse: None, clone: Clone) -> None:
    pid = int(clone.run().stdout.partition("(pid ")[2].partition(",")[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: state_of(pid) == "T", "it stands")
        with ThreadPoolExecutor(2) as both:
            for done in both.map(lambda options: clone.run(*options), [(), ("--unmount",)]):
                assert done.returncode == 1
                assert f"its daemon is stopped; kill -CONT {pid} " in done.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (clone.tracing / "README").read_text() == "a fake\n"


def test_a_second_mount_at_the_same_place_is_refused(fuse: None, clone: Clone) -> None:
    assert clone.run().returncode == 0
    done = clone.run()
    assert done.returncode == 1
    assert "is mounted there already" in done.stderr
    assert (clone.tracing / "README").read_text() == "a fake\n"


def test_of_two_mounts_at_once_one_is_told_of_the_other(fuse: None, clone: Clone) -> None:
    with ThreadPoolExecutor(2) as both:
        first, second = sorted(
            both.map(lambda _: clone.run(), range(2)), key=lambda d: d.returncode
        )
    assert (first.returncode, second.returncode) == (0, 1), first.stderr + second.stderr
    assert first.stderr == ""
    assert re.fullmatch(
        rf"ftracefs: {clone.tracing}: (another|an) ftracefs is (just being )?mounted there.*\n",
        second.stderr,
    )
    assert (clone.tracing / "README").read_text() == "a fake\n"


def test_a_directory_that_cannot_be_made_is_told_in_one_line(clone: Clone) -> None:
    (clone.path / "file").touch()
    done = clone.run("file/t")
    assert done.returncode == 1
    assert re.fullmatch(r"ftracefs: .*/file/t: Not a directory\n", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--nosuch",), "mount.sh: no option --nosuch"),
        (("--kernel", ""), "ftracefs mount: error: argument --kernel: an empty name"),
        (("--cpus=9",), "argument --cpus: invalid number from 1 to 8 value: '9'"),
    ],
)
def test_wrong_usage_points_to_the_help(
    clone: Clone, arguments: tuple[str, ...], complaint: str
) -> None:
    done = clone.run(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.endswith("try: ./mount.sh --help\n")


def test_a_directory_with_something_in_it_is_refused(fuse: None, clone: Clone) -> None:
    clone.tracing.mkdir()
    (clone.tracing / "mine").touch()
    done = clone.run()
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert (clone.tracing / "mine").exists()


def test_a_prepared_clone_is_not_prepared_again(clone: Clone) -> None:
    assert clone.run("--prepare").returncode == 0
    assert clone.called() == []


def test_a_changed_list_of_packages_is_installed(clone: Clone) -> None:
    with (clone.path / "pyproject.toml").open("a") as pyproject:
        pyproject.write("# changed\n")
    for _ in range(2):
        assert clone.run("--prepare").returncode == 0
    installs = [call for call in clone.called() if call.startswith("-m pip install")]
    assert installs == [
        f"-m pip install --quiet --disable-pip-version-check --editable {clone.path}[linux]"
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("one", "two"),
        ("--cpus",),
        ("--cpus", "9"),
        ("--unknown",),
        ("--unmount", "--pure"),
        ("--unmount", "--prepare"),
    ],
)
def test_wrong_usage_is_exit_code_2(clone: Clone, arguments: tuple[str, ...]) -> None:
    done = clone.run(*arguments)
    assert done.returncode == 2
    assert done.stderr


def test_help_shows_every_option_of_mount(clone: Clone) -> None:
    done = clone.run("--help")
    assert done.returncode == 0
    options = ("--kernel", "--module", "--cpus", "--clock", "--isolated", "--pure", "--log")
    for option in ("--unmount", *options):
        assert f"{option} " in done.stdout
    assert clone.called() == []
