"""A mount namespace of one's own: the few system calls for it that Python does not have.

Nothing here is undone: a namespace goes with the last process in it.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from ftracefs.mount.mountpoint import MountError
from ftracefs.mount.requirements import CAP_SYS_ADMIN, has_capability

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4

_libc = ctypes.CDLL(None, use_errno=True)


def _call(what: str, result: int) -> None:
    if result:
        raise MountError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _bytes(path: Path | str | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def mount(source: Path | str, target: Path | str, fstype: str | None, flags: int) -> None:
    """mount(2)."""
    done = _libc.mount(_bytes(source), _bytes(target), _bytes(fstype), ctypes.c_ulong(flags), None)
    _call(f"cannot mount {fstype or source} on {target}", done)


def bind(source: Path | str, target: Path | str) -> None:
    """Have `target` show what `source` is, with all that is mounted below it."""
    mount(source, target, None, MS_BIND | MS_REC)


def bind_link(source: Path | str, link: Path | str) -> None:
    """The same where `link` is a symbolic link that itself is to be covered, not what it names."""
    descriptor = os.open(link, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        bind(source, f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def tmpfs(target: Path | str) -> None:
    """Cover `target` with an empty directory."""
    mount("ftracefs", target, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def enter() -> None:
    """Go on in a mount namespace that is a private copy of the present one.

    Without the right to mount this takes a user namespace, in which the caller is root and his
    other users and groups are nobody. For a process without threads.
    """
    if has_capability(CAP_SYS_ADMIN):
        _call("no mount namespace", _libc.unshare(_CLONE_NEWNS))
    else:
        uid, gid = os.geteuid(), os.getegid()
        _call("no user namespace", _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
        try:
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")
        except OSError as error:
            raise MountError(f"no user namespace: {error.filename}: {error.strerror}") from None
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def give_up(capability: int) -> None:
    """Neither this process after its next exec nor any it starts has the capability again."""
    _call("capabilities", _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
    _call(f"capability {capability}", _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0))
    if has_capability(capability, "CapBnd") or has_capability(capability, "CapInh"):
        raise MountError(f"capability {capability} cannot be given up")
