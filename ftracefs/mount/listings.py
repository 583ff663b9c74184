"""Who lists a directory of files whose size takes long to tell.

FUSE does not tell whether attributes are wanted for a list, for a walk along a path or for an open
that follows. But who is given those of one file after the other and opens none makes a list. He is
given a bound of the size; and as `ls -l` walks the whole path twice for each, all on that path is
answered without the guest.
"""

from __future__ import annotations

from dataclasses import dataclass

from ftracefs.files.base import Node, TracefsFile

_IS_LIST = 100  # files in a row
_KNOWN = 64  # processes


@dataclass(slots=True)
class _Looks:
    parent: str
    count: int = 0


class Listings:
    """By pid; used by several threads, which may lose a count to each other."""

    def __init__(self) -> None:
        self._looks: dict[int, _Looks] = {}

    def looks(self, pid: int, name: str, node: Node) -> bool:
        """He is given attributes; whether that is for a list."""
        looks = self._looks.get(pid)
        if isinstance(node, TracefsFile):
            parent = name.rpartition("/")[0]
            if node.size_in_list is None:
                return False
            if looks is None or looks.parent != parent:
                if len(self._looks) >= _KNOWN:
                    self._looks.clear()
                looks = self._looks[pid] = _Looks(parent)
            looks.count += 1
            return looks.count > _IS_LIST
        is_on_path = looks is not None and (not name or f"{looks.parent}/".startswith(f"{name}/"))
        return looks is not None and is_on_path and looks.count > _IS_LIST

    def opened(self, pid: int) -> None:
        """He opens a file."""
        self._looks.pop(pid, None)
