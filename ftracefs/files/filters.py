"""The function filters and the lists of functions (the files of kernel/trace/ftrace.c)."""

from __future__ import annotations

import errno

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, Deferred, OpenFile, Pending, TracefsFile
from ftracefs.files.simple import SeqFile, ValueFile
from ftracefs.ftrace import FtraceRegex
from ftracefs.trace.function_commands import function_commands
from ftracefs.trace.trace_array import TraceArray


class FilterOpen(OpenFile):
    """ftrace_regex_write and _release; what a word means is FtraceRegex's business."""

    def __init__(self, regex: FtraceRegex) -> None:
        self._regex = regex

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        return self._regex.seq_read(size, offset)

    def splice_read(self, size: int, offset: int) -> bytes | Deferred:
        # A page of the host's cache is to be full.
        return self._regex.read()[offset : offset + size]

    def write(self, data: bytes, offset: int) -> int:
        return self._regex.write(data)

    def flush(self) -> None:
        self._regex.flush()

    def release(self) -> None:
        self._regex.release()


class FilterFile(TracefsFile):
    """set_ftrace_filter, or with `notrace` set_ftrace_notrace."""

    settles_at_close = True

    def __init__(self, tr: TraceArray, *, notrace: bool) -> None:
        self._tr = tr
        self._notrace = notrace

    def open(self, flags: int, caller: Caller) -> OpenFile:
        tr = self._tr
        regex = tr.tracing.ftrace.open_regex(
            tr.ops,
            notrace=self._notrace,
            flags=flags,
            commands={} if self._notrace else function_commands(tr),
            probes=tr.func_probes.text,
        )
        return FilterOpen(regex)

    def size(self) -> int:
        tr = self._tr
        regex_text = tr.tracing.ftrace.regex_text
        return len(regex_text(tr.ops, notrace=self._notrace, probes=tr.func_probes.text))


def set_ftrace_filter(tr: TraceArray) -> TracefsFile:
    return FilterFile(tr, notrace=False)


def set_ftrace_notrace(tr: TraceArray) -> TracefsFile:
    return FilterFile(tr, notrace=True)


class _AvailableFunctions(SeqFile):
    """ftrace_avail_open."""

    def __init__(self, tr: TraceArray) -> None:
        super().__init__(tr.tracing.ftrace.available_filter_functions)
        self._ftrace = tr.tracing.ftrace

    def open(self, flags: int, caller: Caller) -> OpenFile:
        if self._ftrace.ftrace_disabled:
            raise TracefsError(errno.ENODEV, "ftrace is disabled")
        return super().open(flags, caller)


def available_filter_functions(tr: TraceArray) -> TracefsFile:
    return _AvailableFunctions(tr)


def enabled_functions(tr: TraceArray) -> TracefsFile:
    ftrace = tr.tracing.ftrace

    def show() -> bytes:
        ftrace.settle_truncations()
        return ftrace.enabled_functions()

    return SeqFile(show)


def dyn_ftrace_total_info(tr: TraceArray) -> TracefsFile:
    return ValueFile(tr.tracing.ftrace.dyn_ftrace_total_info)
