"""The ftrace core: records, ops, trampolines, filters. `Ftrace` is the way in."""

from __future__ import annotations

from ftracefs.ftrace.core import Ftrace
from ftracefs.ftrace.filter import FtraceRegex
from ftracefs.ftrace.ops import FtraceOps

__all__ = ["Ftrace", "FtraceOps", "FtraceRegex"]
