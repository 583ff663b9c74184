"""Who lists a directory of files whose size takes long to tell.

FUSE does not tell whether attributes are wanted for a list, for a walk along a path or for an open
that follows. But who is given those of one file after the other and opens none makes a list. He is
given a bound of the size; and as `ls -l` walks the whole path twice for each, all on that path is
answered without the guest. Who pauses makes no list any more: a pid may be somebody else's then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ftracefs.files.base import Node, TracefsFile

_IS_LIST = 100  # files in a row
_KNOWN = 64  # processes
_PAUSE_S = 1.0  # in which no system has used up all of its pids


@dataclass(slots=True)
class _Looks:
    parent: str
    last: float
    count: int = 0


class Listings:
    """By pid; used by several threads, which may lose a count to each other."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._looks: dict[int, _Looks] = {}
        self._clock = clock

    def looks(self, pid: int, name: str, node: Node) -> bool:
        """He is given attributes; whether that is for a list."""
        looks = self._looks.get(pid)
        now = self._clock()
        if looks is not None and now - looks.last > _PAUSE_S:
            self._looks.pop(pid, None)
            looks = None
        if isinstance(node, TracefsFile):
            parent = name.rpartition("/")[0]
            if node.size_in_list is None:
                return False
            if looks is None or looks.parent != parent:
                if len(self._looks) >= _KNOWN:
                    self._looks.clear()
                looks = self._looks[pid] = _Looks(parent, now)
            looks.last = now
            looks.count += 1
            return looks.count > _IS_LIST
        is_on_path = looks is not None and (not name or f"{looks.parent}/".startswith(f"{name}/"))
        return looks is not None and is_on_path and looks.count > _IS_LIST

    def opened(self, pid: int) -> None:
        """He opens a file."""
        self._looks.pop(pid, None)
