"""Who walks to many files, and how long the directories on the way need not be looked up again.

Each look-up of a file begins with those of its directories, as a rule three of them, which never
change but below instances/. They are kept for a moment while somebody goes through many files. Of
anybody else each look-up comes here, and with it what tells a stat of a directory from a walk.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ftracefs.files.base import Directory, Node

_MANY = 50  # files, each not long after the last one
_PAUSE_S = 0.1
_KEPT_S = 0.1
_TICK_S = 0.01  # the host's kernel counts in these, or shorter ones
_KNOWN = 64  # processes
_CHANGES = "instances"  # and all below it


@dataclass(slots=True)
class _Walker:
    last: float
    files: int = 0


class Walks:
    """By pid; used by several threads, which may lose a count to each other.

    All that is kept is valid until one moment, so that no directory is looked up whose parent is
    not.
    """

    def __init__(self) -> None:
        self._walkers: dict[int, _Walker] = {}
        self._valid_until = 0.0

    def looks_up(self, pid: int, path: str, node: Node) -> float:
        """He is given the attributes of `path`: for how many seconds they may be kept."""
        now = time.monotonic()
        walker = self._walkers.get(pid)
        if not isinstance(node, Directory):
            if walker is None or now - walker.last > _PAUSE_S:
                if len(self._walkers) >= _KNOWN:
                    self._walkers.clear()
                walker = self._walkers[pid] = _Walker(now)
            walker.last = now
            walker.files += 1
            return 0.0
        if walker is None or walker.files < _MANY or now - walker.last > _PAUSE_S:
            return 0.0
        if path.partition("/")[0] == _CHANGES:
            return 0.0
        if now >= self._valid_until:
            self._valid_until = now + _KEPT_S
        left = self._valid_until - now
        return left if left > _TICK_S else 0.0

    def forget(self) -> None:
        """Return when nothing is kept any more that has been looked up before."""
        self._walkers.clear()
        left = self._valid_until + _TICK_S - time.monotonic()
        if left > 0:
            time.sleep(left)
