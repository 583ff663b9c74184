"""set_ftrace_pid and set_ftrace_notrace_pid (ftrace_pid_fops, ftrace_no_pid_fops)."""

from __future__ import annotations

from ftracefs.files.base import Caller, Deferred, OpenFile, Pending, TracefsFile
from ftracefs.files.simple import truncates
from ftracefs.trace.function_pids import PidType
from ftracefs.trace.trace_array import TraceArray

PID_MAX_LIMIT = 4194304
_NO_PID = b"no pid\n"


class _PidOpen(OpenFile):
    """As seq_file shows it: the sequence ends behind `no pid`, and goes on with the next read."""

    def __init__(self, tr: TraceArray, type: PidType) -> None:
        self._tr = tr
        self._type = type
        self._lines: list[bytes] = []

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        if offset == 0 or not self._lines:
            self._lines = self._show()
        text = b"".join(self._lines)
        end = text.find(_NO_PID, max(offset - len(_NO_PID) + 1, 0))
        return text[offset : min(offset + size, len(text) if end < 0 else end + len(_NO_PID))]

    def _show(self) -> list[bytes]:
        """fpid_show: the iterator tells "no list" by the value that this one pid has, too."""
        pids = self._tr.function_pids.pids(self._type)
        if pids is None:
            return [_NO_PID]
        return [_NO_PID if pid == PID_MAX_LIMIT else b"%d\n" % pid for pid in pids]

    def write(self, data: bytes, offset: int) -> int:
        return self._tr.function_pids.pid_write(self._type, data)


class PidFile(TracefsFile):
    """One of the two lists of a trace array."""

    def __init__(self, tr: TraceArray, type: PidType) -> None:
        self._tr = tr
        self._type = type

    def open(self, flags: int, caller: Caller) -> OpenFile:
        if truncates(flags):
            self._tr.function_pids.ftrace_pid_reset(self._type)
        return _PidOpen(self._tr, self._type)


def set_ftrace_pid(tr: TraceArray) -> TracefsFile:
    return PidFile(tr, PidType.TRACE_PIDS)


def set_ftrace_notrace_pid(tr: TraceArray) -> TracefsFile:
    return PidFile(tr, PidType.TRACE_NO_PIDS)
