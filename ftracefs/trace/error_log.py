"""The last errors of commands, each with a mark under the place (tracing_log_err, trace.c)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

TRACING_LOG_ERRS_MAX = 8


@dataclass(frozen=True, slots=True)
class TracingLogErr:
    """One entry: `pos` is the column of `cmd` that `error` is about."""

    ts_ns: int
    loc: str
    error: str
    cmd: str
    pos: int

    def text(self) -> str:
        seconds, rest = divmod(self.ts_ns, 1_000_000_000)
        return (
            f"[{seconds:5d}.{rest // 1000:06d}] {self.loc}: error: {self.error}\n"
            f"  Command: {self.cmd}\n"
            f"{' ' * (len('  Command: ') + self.pos)}^\n"
        )


class ErrorLog:
    """The error_log of one trace array."""

    def __init__(self) -> None:
        self._errors: deque[TracingLogErr] = deque(maxlen=TRACING_LOG_ERRS_MAX)

    def tracing_log_err(self, ts_ns: int, loc: str, cmd: str, error: str, pos: int) -> None:
        """Log that `loc` (trace_kprobe, hist:sched:sched_switch, …) refused `cmd`."""
        self._errors.append(TracingLogErr(ts_ns, loc, error, cmd, pos))

    def clear(self) -> None:
        """Forget all of them (clear_tracing_err_log)."""
        self._errors.clear()

    def text(self) -> str:
        return "".join(error.text() for error in self._errors)
