"""Which name belongs to which pid in a trace: struct saved_cmdlines_buffer of kernel/trace/trace.c.

Records hold pids only. While somebody wants names (`tracing_start_cmdline_record`) the scheduler's
switches fill a ring of `cmdline_num` names; a pid that has been pushed out, or that never was
switched while names were wanted, is shown as <...>.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from ftracefs.errors import TracefsError

PID_MAX_DEFAULT = 0x8000
SAVED_CMDLINES_DEFAULT = 128
_BUFFER_BYTES = 131096  # struct saved_cmdlines_buffer without the names
_ELEMENT_BYTES = 16 + 4  # a name, and the pid it belongs to
_PAGE_BYTES = 4096
_IDLE = "<idle>"
_UNKNOWN = "<...>"


def cmdline_num_of(val: int) -> int:
    """How many names fit into what is allocated for `val`: a power of two of pages."""
    pages = -(-(_BUFFER_BYTES + val * _ELEMENT_BYTES) // _PAGE_BYTES)
    size = _PAGE_BYTES << (pages - 1).bit_length()
    return (size - _BUFFER_BYTES) // _ELEMENT_BYTES


class SavedCmdlines:
    """The ring of names. Filled on the machine thread; `names` is for any thread."""

    def __init__(self, cmdline_num: int | None = None) -> None:
        self.cmdline_ref = 0
        self.on_ref: Callable[[], None] = lambda: None  # whenever it has changed
        self._allocate(cmdline_num or cmdline_num_of(SAVED_CMDLINES_DEFAULT))

    def _allocate(self, cmdline_num: int) -> None:
        """allocate_cmdlines_buffer."""
        self.cmdline_num = cmdline_num
        self._cmdline_idx = 0
        self._map_pid_to_cmdline: dict[int, int] = {}
        self._pids: dict[int, int] = {}  # by place in the ring
        self._comms: dict[int, str] = {}
        self._names: Mapping[int, str] | None = None

    def tracing_resize_saved_cmdlines(self, val: int) -> None:
        """Room for at least `val` names, and none of those there are. EINVAL: none or too many."""
        if not 0 < val <= PID_MAX_DEFAULT:
            raise TracefsError(errno.EINVAL, f"{val} names")
        self._allocate(cmdline_num_of(val))

    def tracing_start_cmdline_record(self) -> None:
        """Somebody wants names from now on."""
        self.cmdline_ref += 1
        self.on_ref()

    def tracing_stop_cmdline_record(self) -> None:
        """One of those no longer does."""
        self.cmdline_ref -= 1
        self.on_ref()

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
