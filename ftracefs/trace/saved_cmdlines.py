"""Which name belongs to which pid in a trace: struct saved_cmdlines_buffer of kernel/trace/trace.c.

Records hold pids only. While somebody wants names (`tracing_start_cmdline_record`) the scheduler's
switches fill a ring of `cmdline_num` names; a pid that has been pushed out, or that never was
switched while names were wanted, is shown as <...>.
"""

from __future__ import annotations

from collections.abc import Mapping

PID_MAX_DEFAULT = 0x8000
CMDLINE_NUM = 6552  # what the allocation of 128 names is rounded up to
_IDLE = "<idle>"
_UNKNOWN = "<...>"


class SavedCmdlines:
    """The ring of names. Filled on the machine thread; `names` is for any thread."""

    def __init__(self, cmdline_num: int = CMDLINE_NUM) -> None:
        self.cmdline_num = cmdline_num
        self.cmdline_ref = 0
        self._cmdline_idx = 0
        self._map_pid_to_cmdline: dict[int, int] = {}
        self._pids: dict[int, int] = {}  # by place in the ring
        self._comms: dict[int, str] = {}
        self._names: Mapping[int, str] | None = None

    def tracing_start_cmdline_record(self) -> None:
        """Somebody wants names from now on."""
        self.cmdline_ref += 1

    def tracing_stop_cmdline_record(self) -> None:
        """One of those no longer does."""
        self.cmdline_ref -= 1

    def trace_save_cmdline(self, pid: int, comm: str) -> None:
        """Remember the name of a task; the oldest is forgotten when the ring is full.

        Two pids that are equal modulo PID_MAX_DEFAULT share one place, as in Linux.
        """
        if pid == 0:
            return
        slot = pid & (PID_MAX_DEFAULT - 1)
        idx = self._map_pid_to_cmdline.get(slot)
        if idx is None:
            idx = (self._cmdline_idx + 1) % self.cmdline_num
            self._map_pid_to_cmdline[slot] = idx
            self._cmdline_idx = idx
        elif self._pids[idx] == pid and self._comms[idx] == comm:
            return
        self._pids[idx], self._comms[idx] = pid, comm
        self._names = None

    def clear(self) -> None:
        """Forget every name, as if nobody had wanted any yet."""
        self._cmdline_idx = 0
        self._map_pid_to_cmdline.clear()
        self._pids.clear()
        self._comms.clear()
        self._names = None

    def names(self) -> Mapping[int, str]:
        """Every known name by pid, as of now."""
        if self._names is None:
            self._names = {pid: self._comms[idx] for idx, pid in self._pids.items()}
        return self._names

    def trace_find_cmdline(self, pid: int) -> str:
        """The name to show for a pid."""
        return find_cmdline(self.names(), pid)

    def text(self) -> str:
        """The saved_cmdlines file, in the order of the ring."""
        return "".join(f"{self._pids[i]} {self._comms[i]}\n" for i in sorted(self._pids))


def find_cmdline(names: Mapping[int, str], pid: int) -> str:
    """The name to show for a pid among `names`."""
    return _IDLE if pid == 0 else names.get(pid, _UNKNOWN)
