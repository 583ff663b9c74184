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
from support.mounts import require_fuse

SECONDS = 90.0
NOBODY = 65534

# A device that everybody may open, as on most hosts, in a namespace that ends with the command.
AS_NOBODY = """
mount -t tmpfs none "$1"
mknod -m 0666 "$1/fuse" c 10 229 || exit 99
touch /dev/fuse
mount --bind "$1/fuse" /dev/fuse
mkdir -m 0777 "$1/home"
export HOME="$1/home" XDG_STATE_HOME="$1/home"
cd "$1/home"
shift
exec setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"
"""


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
        scratch = directory / "user"
        scratch.mkdir(exist_ok=True)
        launch = ["unshare", "-m", "sh", "-eu", "-c", AS_NOBODY, "sh", str(scratch), *launch]
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


def can_be_nobody() -> bool:
    """Whether a user without rights can be played here: root, and reach of our own files."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return False
    probe = [sys.executable, "-c", "import ftracefs, unicorn"]
    done = subprocess.run(
        ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *probe],
        env=environment(),
        capture_output=True,
        check=False,
    )
    return done.returncode == 0
