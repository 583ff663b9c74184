"""Mount points as the host sees them: what is mounted where, what may be mounted over.

Nothing here loads libfuse. Nothing but `stop`, `reset` and `prepare` touches a mount, and they wait
for its daemon a bounded time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emulated_kernel.procfs import is_stopped
from ftracefs.mount import answers

FSNAME = "ftracefs"
SUBTYPE = "tracefs"

# Setting this attribute of a mount's root asks its daemon to unmount and end. It works where a pid
# would name somebody else (another pid namespace, a daemon long dead).
STOP_ATTRIBUTE = "user.ftracefs.stop"

# Likewise for every file to be as it was after the mount: what a test needs before the next one.
# It is refused with EBUSY while a file is open, and when a file would not go back.
RESET_ATTRIBUTE = "user.ftracefs.reset"

# How long a daemon may take to answer, to unmount itself, and to put every file back.
ANSWER_TIMEOUT = STOP_TIMEOUT = 10.0
RESET_TIMEOUT = 60.0

_LINKS_LIMIT = 40  # on a path, as Linux has it

_ESCAPE = re.compile(rb"\\([0-7]{3})")


class MountError(Exception):
    """A mount point cannot be used as asked; the text says why."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of /proc/self/mountinfo."""

    path: Path
    fstype: str
    source: str
    device: str = ""  # major:minor

    @property
    def is_ours(self) -> bool:
        return self.fstype == f"fuse.{SUBTYPE}" and self.source == FSNAME


def _unescape(field: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))


def parse_mountinfo(text: bytes) -> list[Mount]:
    """The mounts; of those at one path the last is the one that shows."""
    mounts = []
    for line in text.splitlines():
        left, _, right = line.partition(b" - ")
        fstype, source = right.split(b" ")[:2]
        _, _, device, _, path = left.split(b" ")[:5]
        mounts.append(
            Mount(Path(_unescape(path)), _unescape(fstype), _unescape(source), _unescape(device))
        )
    return mounts


def _mounts() -> dict[Path, Mount]:
    """What one sees mounted where."""
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())
    return {mount.path: mount for mount in mounts}


def mounted_at(path: Path) -> Mount | None:
    """What one sees mounted at the resolved `path`."""
    return _mounts().get(path)


def _ours_around(path: Path, mounts: dict[Path, Mount]) -> Path | None:
    """The mount of ours in which a resolved path is."""
    places = (place for place in [path, *path.parents] if place in mounts)
    return next((place for place in places if mounts[place].is_ours), None)


def resolve(path: str) -> Path:
    """The absolute path without symbolic links.

    No mount of ours is looked at: its daemon may be dead or hang, and there are no links in it.
    """
    mounts = _mounts()
    start = Path(path)
    ahead = [*reversed(start.parts), *([] if start.is_absolute() else reversed(Path.cwd().parts))]
    resolved = Path("/")
    links = 0
    while ahead:
        part = ahead.pop()
        resolved = resolved.parent if part == ".." else resolved / part
        if links == _LINKS_LIMIT or _ours_around(resolved, mounts):
            continue
        try:
            link = resolved.readlink()
        except OSError:
            continue  # it is none, or not there
        links += 1
        resolved = resolved.parent
        ahead.extend(reversed(link.parts))
    return resolved


def _ask(mount: Mount, request: Callable[[], object], seconds: float = ANSWER_TIMEOUT) -> None:
    """Make a request of the daemon behind a mount. Raises OSError, and MountError for no answer."""
    try:
        answers.ask(request, seconds)
    except answers.NoAnswer:
        raise MountError(f"{mount.path}: {_why_no_answer(mount, seconds)}") from None


def _why_no_answer(mount: Mount, seconds: float) -> str:
    """And what to do."""
    pid = answers.who_signed(mount.device)
    if pid is None:
        way = f"fusermount -uz {shlex.quote(str(mount.path))} detaches it"
        return f"its daemon has not answered for {seconds:.0f} s; {way}"
    if is_stopped(pid):
        way = f"kill -CONT {pid} lets it go on, kill -KILL {pid} ends it"
        return f"its daemon is stopped; {way}"
    return f"its daemon has not answered for {seconds:.0f} s; kill -KILL {pid} ends it"


def _is_dead(mount: Mount) -> bool:
    """Whether nobody answers; asked with statfs, which the kernel never answers from a cache."""
    try:
        _ask(mount, lambda: os.statvfs(mount.path))
    except OSError as error:
        return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return False


def prepare(path: Path, *, makes_it: bool = False) -> bool:
    """See that one may mount at the resolved `path`; True if a dead mount of ours was cleared away.

    `makes_it`: a directory that is missing is made. MountError when something is in the way.
    """
    if path.parts[:2] in (("/", "sys"), ("/", "proc")):
        # trace-cmd, as root, would mount the host's tracefs over it and drive the host's kernel.
        raise MountError(f"{path} belongs to the host's kernel: choose a directory of your own")
    if around := _ours_around(path.parent, _mounts()):
        raise MountError(f"{path} is in the ftracefs at {around}: choose a directory of your own")
    cleared = False
    while mount := mounted_at(path):
        if not mount.is_ours:
            raise MountError(f"{path}: {mount.fstype} ({mount.source}) is mounted there")
        if not _is_dead(mount):
            raise MountError(f"{path}: an ftracefs is mounted there already and answers")
        if reason := _clear(path):
            raise MountError(f"{path}: a dead ftracefs is mounted there and stays: {reason}")
        cleared = True
    try:
        if makes_it:
            path.mkdir(parents=True, exist_ok=True)
        with os.scandir(path) as entries:
            if any(entries):
                raise MountError(f"{path} is not empty")
    except OSError as error:
        raise MountError(f"{path}: {error.strerror}") from None
    return cleared


def claim(path: Path) -> int:
    """Be the only one who mounts at the resolved `path`, until the descriptor is closed.

    MountError when somebody else does, or has done so since `prepare`.
    """
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise MountError(f"{path}: {error.strerror}") from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(directory)
        raise MountError(f"{path}: another ftracefs is just being mounted there") from None
    except OSError:
        pass  # a file system without locks
    try:
        prepare(path)
    except MountError:
        os.close(directory)
        raise
    return directory


def _clear(path: Path) -> str:
    """Unmount a dead mount, though shells may stand in it: they have nothing to lose."""
    return unmount(path) and unmount(path, lazy=True)


def unmount(path: Path, *, lazy: bool = False) -> str:
    """Unmount `path` once, `lazy` even while it is used. Returns why it did not work, or ""."""
    if helper := shutil.which("fusermount") or shutil.which("fusermount3"):
        command = [helper, "-u", *(["-z"] if lazy else []), str(path)]
    elif helper := shutil.which("umount"):
        command = [helper, *(["-l"] if lazy else []), str(path)]
    else:
        return "neither fusermount nor umount found"
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=STOP_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"{helper} does not end"
    if done.returncode == 0:
        return ""
    return os.fsdecode(done.stderr).strip() or f"{helper} exited with {done.returncode}"


def stop(path: Path) -> None:
    """Have the daemon behind the resolved `path` unmount it and end; clear a dead mount away."""
    mount = mounted_at(path)
    if mount is None:
        raise MountError(f"{path}: nothing is mounted there")
    if not mount.is_ours:
        raise MountError(f"{path}: {mount.fstype} ({mount.source}) is mounted there, not ftracefs")
    try:
        _ask(mount, lambda: os.setxattr(path, STOP_ATTRIBUTE, b""))
    except OSError as error:
        # Nobody there, or another user's mount: all that is left is to ask the kernel.
        if reason := _clear(path) if _is_dead(mount) else unmount(path):
            raise MountError(f"{path}: {error.strerror}; {reason}") from None
        return
    if not _wait_until_gone(path):
        raise MountError(f"{path}: still mounted after {STOP_TIMEOUT:.0f} s")


def reset(path: Path) -> None:
    """Have the daemon behind the resolved `path` put every file back to its first value."""
    mount = mounted_at(path)
    if mount is None or not mount.is_ours:
        raise MountError(f"{path}: no ftracefs is mounted there")
    try:
        _ask(mount, lambda: os.statvfs(path))
        _ask(mount, lambda: os.setxattr(path, RESET_ATTRIBUTE, b""), RESET_TIMEOUT)
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno == errno.EBUSY:
            why = "a file of it is open or in use; its log says which"
        elif error.errno == errno.EIO:
            why = "it cannot be; its log says why"
        raise MountError(f"{path}: {why}") from None


def _wait_until_gone(path: Path) -> bool:
    deadline = time.monotonic() + STOP_TIMEOUT
    with Path("/proc/self/mountinfo").open("rb") as mountinfo:
        poll = select.poll()
        poll.register(mountinfo, select.POLLPRI)  # readable at every change of the mount table
        while (mount := mounted_at(path)) and mount.is_ours:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            poll.poll(remaining * 1000)
            mountinfo.seek(0)
            mountinfo.read()
    return True
