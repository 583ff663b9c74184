"""Which thread group belongs to which pid in a trace: tgid_map of kernel/trace/trace.c.

The option record-tgid makes the map, which stays; pids are entered when tasks are switched while an
event is enabled and the option is on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class SavedTgids:
    """The map. Filled on the machine thread; `tgids` is for any thread."""

    def __init__(self) -> None:
        self.tgid_ref = 0
        self.on_ref: Callable[[], None] = lambda: None  # whenever it has changed
        self._map: dict[int, int] | None = None
        self._tgids: Mapping[int, int] | None = {}

    def alloc_tgid_map(self) -> None:
        """The option is switched on: from now on there is a map."""
        if self._map is None:
            self._map = {}

    def clear(self) -> None:
        """Forget them; there is a map again when the option is switched on again."""
        self._map, self._tgids = None, {}

    def tracing_start_tgid_record(self) -> None:
        """Somebody wants thread groups from now on."""
        self.tgid_ref += 1
        self.on_ref()

    def tracing_stop_tgid_record(self) -> None:
        """One of those no longer does."""
        self.tgid_ref -= 1
        self.on_ref()

    def trace_save_tgid(self, pid: int, tgid: int) -> None:
        """Remember the thread group of a task; not of the idle task, nor without a map."""
        if pid and self._map is not None and self._map.get(pid) != tgid:
            self._map[pid] = tgid
            self._tgids = None

    def tgids(self) -> Mapping[int, int]:
        """Every known thread group by pid, as of now."""
        if self._tgids is None:
            self._tgids = dict(self._map or {})
        return self._tgids

    def text(self) -> str:
        """The file saved_tgids."""
        return "".join(f"{pid} {tgid}\n" for pid, tgid in sorted(self.tgids().items()) if tgid)
