"""trace_options, and options/ with a file for each (trace_options_core_fops, trace_options_fops).

The options of every tracer a trace array may have are in options/, whoever is in charge;
trace_options knows those of the tracer in charge only.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, Node, TracefsFile
from ftracefs.files.simple import SeqFile, ValueFile
from ftracefs.trace.options import OPTION_NAMES, TOP_LEVEL_TRACE_FLAGS, TraceIter
from ftracefs.trace.parsers import kstrtoul_from_user
from ftracefs.trace.trace_array import TraceArray
from ftracefs.trace.tracers import Tracer

OPTION_MODE = 0o640
_OPTIONS_BUFFER_SIZE = 64  # tracing_trace_options_write's buffer: that many bytes are too many


def trace_options(tr: TraceArray) -> TracefsFile:
    def tracing_trace_options_write(data: bytes) -> None:
        if len(data) >= _OPTIONS_BUFFER_SIZE:
            raise TracefsError(errno.EINVAL, "too long for the name of an option")
        tr.trace_set_options(data)

    return SeqFile(tr.trace_options_text, tracing_trace_options_write)


def options_directory(tr: TraceArray) -> Directory:
    """options/ of a trace array."""
    entries: dict[str, Node] = {
        name: _core_option(tr, flag)
        for flag, name in OPTION_NAMES.items()
        if not (tr.name and flag & TOP_LEVEL_TRACE_FLAGS)
    }
    for tracer in tr.available_tracers():
        entries |= {
            option.name: _tracer_option(tr, tracer, option.name) for option in tracer.options
        }
    return Directory({name: entries[name] for name in sorted(entries)})


def _switch(is_on: Callable[[], bool], switch: Callable[[bool], None]) -> TracefsFile:
    """A file that reads and takes 0 and 1; writing what it is already changes nothing."""

    def write(data: bytes) -> None:
        value = kstrtoul_from_user(data)
        if value not in (0, 1):
            raise TracefsError(errno.EINVAL, "an option is 0 or 1")
        if is_on() != bool(value):
            switch(bool(value))

    file = ValueFile(lambda: f"{int(is_on())}\n", write)
    file.mode = OPTION_MODE
    return file


def _core_option(tr: TraceArray, flag: TraceIter) -> TracefsFile:
    return _switch(lambda: bool(tr.trace_flags & flag), lambda on: tr.set_tracer_flag(flag, on))


def _tracer_option(tr: TraceArray, tracer: Tracer, name: str) -> TracefsFile:
    return _switch(lambda: tr.tracer_flags[name], lambda on: tr.set_tracer_option(tracer, name, on))
