"""Programs under `ftracefs run`, as root or as a user without rights, which always end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.daemon import environment
from support.mounts import ROOT, require_fuse

SECONDS = 90.0

# In a namespace that ends with the command: a device that everybody may open, as on most hosts, a
# home, and our own files in reach of those who may not look into the directories named first.
AS_NOBODY = """
mount -t tmpfs none /media
mknod -m 0666 /media/fuse c 10 229
mount --bind /media/fuse /dev/fuse
mkdir -m 0777 /media/home
while [ "$1" != -- ]; do
    copy=$(mktemp -d /media/XXXXXX)
    chmod 0755 "$copy"
    for entry in "$1"/* "$1"/.[!.]*; do
        if [ -d "$entry" ] && [ ! -L "$entry" ]; then
            mkdir "$copy/${entry##*/}"
            mount --rbind "$entry" "$copy/${entry##*/}"
        fi
    done
    mount --rbind "$copy" "$1"
    shift
done
shift
export HOME=/media/home XDG_STATE_HOME=/media/home PYTHONDONTWRITEBYTECODE=1
cd /media/home
exec setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"
"""


def as_nobody(*command: str | Path, within_reach: tuple[Path, ...] = ()) -> list[str]:
    """`command`, to be run by a user without rights who can reach our own files, and others."""
    shell = ["unshare", "-m", "sh", "-eu", "-c", AS_NOBODY, "sh"]
    return [*shell, *_closed_to_others(within_reach), "--", *map(str, command)]


def _closed_to_others(others: tuple[Path, ...]) -> list[str]:
    """The directories above our own files that a user without rights may not go through."""
    ours = {ROOT, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent}
    above = {parent for path in ours.union(others) for parent in path.parents}
    return sorted(str(path) for path in above if not path.stat().st_mode & 0o001)


def require(program: str, package: str) -> None:
    """Skip the test where the client cannot be had, or fail it where it is required."""
    require_fuse()
    if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
        return
    if os.environ.get("FTRACEFS_REQUIRE_CLIENTS") == "1":
        pytest.fail(f"{program} is not installed: apt-get install {package}")
    pytest.skip(f"{program} is not installed: apt-get install {package}")


def ftracefs_run(
    *command: str,
    options: tuple[str, ...] = (),
    directory: Path,
    user: str = "root",
    stdin: str = "",
    seconds: float = SECONDS,
) -> subprocess.CompletedProcess[str]:
    """`ftracefs run OPTIONS -- COMMAND` in `directory`; everything ends with the time."""
    launch = [sys.executable, "-m", "ftracefs", "run", *options, "--", *command]
    if user != "root":
        launch = as_nobody(*launch)
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    process = subprocess.Popen(
        launch,
        cwd=directory,
        env={**environment(), "PATH": path, "XDG_STATE_HOME": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(stdin, seconds)
    except subprocess.TimeoutExpired:
        # Its daemon sees the end of the command, and lets go of whoever waits for an answer.
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate(timeout=20)
        pytest.fail(f"{shlex.join(command)}: not within {seconds} s\n{out[-2000:]}\n{err[-2000:]}")
    return subprocess.CompletedProcess(launch, process.returncode, out, err)


def require_user(user: str) -> None:
    """Skip the test where `user` cannot be played."""
    if user == "root":
        return
    if os.geteuid() != 0:
        pytest.skip("only root can play somebody else")
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    allowed = subprocess.run([*as_nobody, "unshare", "-Ur", "true"], check=False)
    if allowed.returncode:
        pytest.skip("this host allows no user namespaces")


class Client:
    """Runs shell scripts under `ftracefs run` as `user`."""

    def __init__(self, user: str, directory: Path) -> None:
        self._user = user
        self._directory = directory

    def __call__(self, script: str, *options: str) -> str:
        """The output of a bash script that must not fail anywhere."""
        done = ftracefs_run(
            "bash", "-euo", "pipefail", "-c", script,
            options=options, directory=self._directory, user=self._user,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-3000:]}\n{done.stderr}"
        return done.stdout
