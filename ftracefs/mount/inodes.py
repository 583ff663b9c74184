"""Inode numbers, owners and modes of the tree (fs/tracefs/inode.c, simple_setattr).

A tree names its nodes by path and may make them anew at each lookup, so what belongs to the inode
and not to the file is kept by path. Numbers are unique, unlike those of newer kernels' eventfs,
whose repeated ones look like hard links to tar and cp.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass


@dataclass(slots=True)
class Inode:
    """What stat(2) tells beside type and size; `mode` is None until somebody sets it."""

    number: int
    uid: int
    gid: int
    mode: int | None
    atime_ns: int
    mtime_ns: int
    ctime_ns: int


class Inodes:
    """The inodes that were looked at so far, by path relative to the mount ("" is the root)."""

    def __init__(self, uid: int, gid: int) -> None:
        self._uid = uid
        self._gid = gid
        self._born_ns = time.time_ns()
        self._numbers = itertools.count(1)
        self._table: dict[str, Inode] = {}
        self.of("")

    def of(self, path: str) -> Inode:
        """The inode of `path`, made at the first look."""
        inode = self._table.get(path)
        if inode is None:
            born_ns = self._born_ns
            fresh = Inode(
                next(self._numbers), self._uid, self._gid, None, born_ns, born_ns, born_ns
            )
            inode = self._table.setdefault(path, fresh)
        return inode

    def forget(self) -> None:
        """Owners, modes and times that were set are so no more; numbers stay."""
        for inode in list(self._table.values()):
            inode.uid, inode.gid, inode.mode = self._uid, self._gid, None
            inode.atime_ns = inode.mtime_ns = inode.ctime_ns = self._born_ns

    def made(self, path: str) -> None:
        """A directory was made now: new inodes for it and its files, even under an old name."""
        self.gone(path)
        inode = self.of(path)
        inode.atime_ns = inode.mtime_ns = inode.ctime_ns = time.time_ns()

    def gone(self, path: str) -> None:
        """A directory is gone with all below it."""
        below = path + "/"
        for name in [n for n in list(self._table) if n == path or n.startswith(below)]:
            self._table.pop(name, None)
