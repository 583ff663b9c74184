"""struct tracer: what a tracer does with a trace array when it comes, goes, starts and stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftracefs.trace.options import TracerOpt

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray

Hook = Callable[["TraceArray"], None]


def _nothing(_tr: TraceArray) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Tracer:
    """A tracer: `init` and `reset` frame its time in charge, `start` and `stop` obey tracing_on."""

    name: str
    init: Hook = _nothing
    reset: Hook = _nothing
    start: Hook = _nothing
    stop: Hook = _nothing
    options: tuple[TracerOpt, ...] = ()
    allow_instances: bool = False
