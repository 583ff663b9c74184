"""The lines of `trace` as values: those of the tracer `function`, of markers and of events.

Left out: function_graph, whose lines are a drawing, and the forms that the options raw, hex, bin
and latency-format give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_LINE = re.compile(
    r" *(?P<task>.+)-(?P<pid>\d+) +(?:\( *(?P<tgid>[\d-]+)\) +)?\[(?P<cpu>\d+)\] +"
    r"(?:(?P<flags>[^\s\d]\S{3,4}) +)?(?P<timestamp>[\d.]+): (?P<text>.*)"
)
_CALL = re.compile(r"(?P<function>[^\s+]+)\S*(?: \[\w+\])? <-(?P<caller>[^\s+]+).*")
_STACK = " => "


@dataclass(frozen=True, slots=True)
class TraceLine:
    """A record; `text` is what stands behind the time, `stack` the stack trace behind it."""

    task: str
    pid: int
    cpu: int
    flags: str
    timestamp: float
    text: str
    stack: tuple[str, ...] = ()

    @property
    def function(self) -> str | None:
        """The traced function, None if this is no line of the tracer `function`."""
        return self._call("function")

    @property
    def caller(self) -> str | None:
        """Who called it."""
        return self._call("caller")

    def _call(self, part: str) -> str | None:
        match = _CALL.fullmatch(self.text)
        return match[part] if match else None


def parse_trace(text: str) -> list[TraceLine]:
    """The records in the text of `trace` or of what was read from `trace_pipe`.

    ValueError for a line that is none, so that a test does not take it for an empty trace.
    """
    lines: list[TraceLine] = []
    for line in text.splitlines():
        if not line or line.startswith(("#", "CPU:")) or line.endswith("<stack trace>"):
            continue
        if line.startswith(_STACK) and lines:
            lines[-1] = replace(lines[-1], stack=(*lines[-1].stack, line.removeprefix(_STACK)))
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"no record of a function or an event: {line!r}")
        lines.append(
            TraceLine(
                match["task"].strip(),
                int(match["pid"]),
                int(match["cpu"]),
                match["flags"] or "",
                float(match["timestamp"]),
                match["text"],
            )
        )
    return lines
