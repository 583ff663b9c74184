"""The stack tracer's files (kernel/trace/trace_stack.c)."""

from __future__ import annotations

import errno

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, OpenFile, TracefsFile
from ftracefs.files.filters import FilterOpen
from ftracefs.files.simple import SeqFile, ValueFile
from ftracefs.ftrace import FtraceRegex
from ftracefs.ftrace.filter import FtraceFuncCommand
from ftracefs.trace.parsers import kstrtoul_from_user
from ftracefs.trace.trace_array import TraceArray

_SIGN = 1 << 63


def stack_trace(tr: TraceArray) -> TracefsFile:
    return SeqFile(tr.tracing.stack_tracer.text)


def stack_max_size(tr: TraceArray) -> TracefsFile:
    tracer = tr.tracing.stack_tracer

    def stack_max_size_read() -> str:
        size = tracer.stack_trace_max_size
        return f"{size - 2 * (size & _SIGN)}\n"

    def stack_max_size_write(data: bytes) -> None:
        tracer.stack_trace_max_size = kstrtoul_from_user(data)

    return ValueFile(stack_max_size_read, stack_max_size_write)


def _no_trace_array(
    _regex: FtraceRegex, _func: bytes, name: bytes, _parameter: bytes | None
) -> None:
    raise TracefsError(errno.ENODEV, f"{name!r} needs a trace array")


_COMMANDS = (b"mod", b"traceon", b"traceoff", b"stacktrace", b"dump", b"cpudump", b"snapshot")
_EVENT_COMMANDS = (b"enable_event", b"disable_event")
_NO_COMMANDS: dict[bytes, FtraceFuncCommand] = dict.fromkeys(
    (*_COMMANDS, *_EVENT_COMMANDS), _no_trace_array
)


class _StackTraceFilter(TracefsFile):
    """set_ftrace_filter of an op that belongs to no trace array, so that no command can act."""

    def __init__(self, tr: TraceArray) -> None:
        self._tracing = tr.tracing

    def open(self, flags: int, caller: Caller) -> OpenFile:
        ops = self._tracing.stack_tracer.trace_ops
        regex = self._tracing.ftrace.open_regex(
            ops, notrace=False, flags=flags, commands=_NO_COMMANDS
        )
        return FilterOpen(regex)


def stack_trace_filter(tr: TraceArray) -> TracefsFile:
    return _StackTraceFilter(tr)
