"""emulator/sysctl/: what Linux keeps in /proc/sys/kernel (kernel/sysctl.c).

Models proc_dointvec for one integer: a read at any offset but 0 is end of file, a write there is
taken and does nothing (sysctl_writes_strict).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, OpenFile, TracefsFile
from ftracefs.ftrace.registration import ftrace_enable_sysctl
from ftracefs.trace.tracing import Tracing

_SPACES = b" \t\n\v\f\r"
_NUMBER = re.compile(rb"(-?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_SEPARATORS = (b"", b" ", b"\t", b"\n")
_INT_MAX = (1 << 31) - 1
_TMPBUFLEN = 22  # what proc_get_long looks at


def proc_dointvec(data: bytes) -> tuple[int, int]:
    """The int that a write gives, and the bytes taken; EINVAL when it gives none."""
    text = data.lstrip(_SPACES)
    match = _NUMBER.match(text)
    if match is None or text[match.end() : match.end() + 1] not in _SEPARATORS:
        raise TracefsError(errno.EINVAL, f"{data!r} is no integer")
    digits = match[2].decode()
    if len(digits) > _TMPBUFLEN:
        raise TracefsError(errno.EINVAL, "too many digits for an int")
    value = int(digits, 8) if digits[0] == "0" and digits.isdecimal() else int(digits, 0)
    if value > _INT_MAX + bool(match[1]):
        raise TracefsError(errno.EINVAL, f"{data!r} does not fit an int")
    rest = text[match.end() :].lstrip(_SPACES)
    return -value if match[1] else value, len(data) - len(rest)


class IntSysctl(TracefsFile):
    """An integer. `show` and `store` may raise; a value that was refused is not kept."""

    def __init__(self, show: Callable[[], int], store: Callable[[int], None]) -> None:
        self.show = show
        self.store = store

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _IntOpen(self)


class _IntOpen(OpenFile):
    def __init__(self, file: IntSysctl) -> None:
        self._file = file

    def read(self, size: int, offset: int, nonblock: bool) -> bytes:
        value = self._file.show()
        return b"" if offset else f"{value}\n".encode()[:size]

    def write(self, data: bytes, offset: int) -> int:
        if offset:
            return len(data)
        value, taken = proc_dointvec(data)
        self._file.store(value)
        return taken


def ftrace_enabled(tracing: Tracing) -> TracefsFile:
    """`emulator/sysctl/ftrace_enabled`: 0 stops every traced function from being one."""
    ftrace = tracing.ftrace
    written = 1

    def show() -> int:
        if ftrace.ftrace_disabled:
            raise TracefsError(errno.ENODEV, "ftrace is disabled")
        return written if bool(written) == ftrace.ftrace_enabled else int(ftrace.ftrace_enabled)

    def store(value: int) -> None:
        nonlocal written
        ftrace_enable_sysctl(ftrace, bool(value))
        written = value

    return IntSysctl(show, store)


def stack_tracer_enabled(tracing: Tracing) -> TracefsFile:
    """`emulator/sysctl/stack_tracer_enabled`: any value but 0 measures stacks."""
    tracer = tracing.stack_tracer
    return IntSysctl(lambda: tracer.stack_tracer_enabled, tracer.stack_trace_sysctl)


def ftrace_dump_on_oops(tracing: Tracing) -> TracefsFile:
    """`emulator/sysctl/ftrace_dump_on_oops`: which buffers an oops puts on the console (DUMP_*)."""
    oops = tracing.dump_on_oops

    def store(value: int) -> None:
        oops.mode = value

    return IntSysctl(lambda: oops.mode, store)
