"""The tracer that does nothing (kernel/trace/trace_nop.c)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ftracefs.errors import TracefsError
from ftracefs.trace.options import NOP_OPTIONS
from ftracefs.trace.tracers.tracer import Tracer

if TYPE_CHECKING:
    from ftracefs.trace.trace_array import TraceArray


def nop_set_flag(_tr: TraceArray, name: str, _enabled: bool) -> None:
    """One of its options is accepted, the other refused: that is what they are for."""
    if name == "test_nop_refuse":
        raise TracefsError(errno.EINVAL, f"{name} is always refused")


NOP_TRACE = Tracer("nop", set_flag=nop_set_flag, options=NOP_OPTIONS, allow_instances=True)
