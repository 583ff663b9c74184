"""`ftracefs run`: a command that finds the tracefs where it looks for one.

The launcher makes the namespace, starts the daemon in it, puts the covers in place, and becomes the
command: the process is the same, so its pid, signals, terminal and exit status are the command's
own. The daemon is no child of it and ends when it has ended, whatever ended it.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from ftracefs.errors import reason
from ftracefs.mount import background, covers, namespace
from ftracefs.mount.mountpoint import MountError
from ftracefs.mount.requirements import CAP_SYS_ADMIN

# Exit codes when there was no command to have one, as env(1) has them.
CANNOT_START, CANNOT_EXECUTE, NOT_FOUND = 125, 126, 127
_SAID_WHY = 1  # with which a daemon ends that has

Serve = Callable[[Callable[[], None]], int]


def launch(command: list[str], serve: Callable[[int], Serve], log: Path, cpus: int) -> int:
    """Become `command`. `serve` is given our pid and returns what the daemon does.

    Returns an exit code when it cannot be done.
    """
    try:
        namespace.enter()
        files = covers.prepare()
        started = background.start_apart(serve(os.getpid()), log)
        if started.exit_code == _SAID_WHY:
            return CANNOT_START
        if not started.is_ready:
            raise MountError(f"the daemon ended with {started.exit_code}")
        covers.cover(files, cpus)
        # Or a client that is root would mount the host's tracefs over the one that it found.
        namespace.give_up(CAP_SYS_ADMIN)
        covers.verify()
    except (MountError, OSError) as error:
        print(f"ftracefs: {reason(error)}", file=sys.stderr)
        return CANNOT_START
    return _become(command)


def _become(command: list[str]) -> int:
    os.environ["TRACEFS_PATH"] = str(covers.TRACING)
    for name in ("DEBUGFS_PATH", "PERF_DEBUGFS_ENVIRONMENT", "PERF_TRACEFS_ENVIRONMENT"):
        os.environ.pop(name, None)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"ftracefs: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if error.errno == errno.ENOENT else CANNOT_EXECUTE
