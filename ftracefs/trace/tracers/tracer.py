"""struct tracer: what a tracer does with a trace array when it comes, goes, starts and stops."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftracefs.errors import TracefsError
from ftracefs.trace.options import TraceIter, TracerOpt
from ftracefs.trace.output.graph_layout import GraphLayout
from ftracefs.trace.output.header import TraceHeader

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray

Hook = Callable[["TraceArray"], None]
SetFlag = Callable[["TraceArray", str, bool], None]
FlagChanged = Callable[["TraceArray", TraceIter, bool], None]


def _nothing(_tr: TraceArray) -> None:
    return None


def _dummy_set_flag(_tr: TraceArray, _name: str, _enabled: bool) -> None:
    return None


def _any_flag(_tr: TraceArray, _flag: TraceIter, _enabled: bool) -> None:
    return None


def trace_keep_overwrite(flag: TraceIter, enabled: bool) -> None:
    """EINVAL for switching the option overwrite off: the end of a section is what counts."""
    if flag is TraceIter.OVERWRITE and not enabled:
        raise TracefsError(errno.EINVAL, "a latency tracer needs the option overwrite")


def _default_header(_tr: TraceArray, header: TraceHeader) -> str:
    return header.text()


def _no_graph(_tr: TraceArray) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Tracer:
    """A tracer: `init` and `reset` frame its time in charge, `start` and `stop` obey tracing_on.

    `set_flag` approves a change of one of its options, `flag_changed` of a common one, or they
    raise EINVAL. While there is a `graph_layout` lines are printed as the function graph tracer's.
    """

    name: str
    init: Hook = _nothing
    reset: Hook = _nothing
    start: Hook = _nothing
    stop: Hook = _nothing
    clock_changed: Hook = _nothing
    set_flag: SetFlag = _dummy_set_flag
    flag_changed: FlagChanged = _any_flag
    print_header: Callable[[TraceArray, TraceHeader], str] = _default_header
    graph_layout: Callable[[TraceArray], GraphLayout | None] = _no_graph
    options: tuple[TracerOpt, ...] = ()
    allow_instances: bool = False
    needs: tuple[str, ...] = ()  # symbols of the kernel, without which it cannot be had
    use_max_tr: bool = False  # the snapshot is the tracer's own
    print_max: bool = False  # `trace` shows the snapshot
