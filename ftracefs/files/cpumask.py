"""tracing_cpumask (tracing_cpumask_fops of kernel/trace/trace.c)."""

from __future__ import annotations

import errno

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, Deferred, OpenFile, Pending, TracefsFile
from ftracefs.trace.cpumask import bitmap_parse, cpumask_text
from ftracefs.trace.trace_array import TraceArray


class _CpumaskOpen(OpenFile):
    """A read must have room for the whole line.

    In Linux for one byte more, wherever the read begins. There st_size is 0, so that nobody makes
    just enough room for the line, and looks for the end with what is left.
    """

    def __init__(self, tr: TraceArray) -> None:
        self._tr = tr

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        text = f"{cpumask_text(self._tr.tracing_cpumask, self._tr.nr_cpus)}\n".encode()
        if size < len(text) and offset < len(text):
            raise TracefsError(errno.EINVAL, "no room for the whole mask")
        return text[offset : offset + size]

    def write(self, data: bytes, offset: int) -> int:
        if not data:
            raise TracefsError(errno.EINVAL, "no mask")
        self._tr.tracing_set_cpumask(bitmap_parse(data, self._tr.nr_cpus))
        return len(data)


class CpumaskFile(TracefsFile):
    def __init__(self, tr: TraceArray) -> None:
        self._tr = tr

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _CpumaskOpen(self._tr)


def tracing_cpumask(tr: TraceArray) -> TracefsFile:
    return CpumaskFile(tr)
