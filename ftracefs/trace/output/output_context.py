"""What a text of records depends on beside the records (struct trace_iterator).

Taken on the machine thread when a file is read; everything made from it afterwards needs no lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ftracefs.trace.options import TRACE_DEFAULT_FLAGS, TraceIter
from ftracefs.trace.output.graph_layout import GraphLayout
from ftracefs.trace.output.symbol_text import SymbolText


@dataclass(frozen=True, slots=True)
class OutputContext:
    """How to print.

    `names` are the saved command lines by pid, `tgids` the saved thread group ids. `time_start` is
    when the buffer was emptied last, which the latency format counts from. `annotate` tells that
    the start of each CPU's records is to be marked, as after an overrun. `graph` is given while the
    function graph tracer prints the lines, `graph_events` tells how its records look elsewhere.
    `lat_fmt` tells of a file that has the latency format or not, whatever the option says now;
    what that tracer prints goes by the option alone.
    """

    symbols: SymbolText
    names: Mapping[int, str] = field(compare=False)
    flags: TraceIter = TRACE_DEFAULT_FLAGS
    clock_in_ns: bool = True
    tgids: Mapping[int, int] = field(default_factory=dict, compare=False)
    time_start: int = 0
    annotate: bool = False
    graph: GraphLayout | None = None
    lat_fmt: bool | None = None
    graph_events: GraphLayout = field(default_factory=GraphLayout)

    @property
    def is_latency(self) -> bool:
        """Whether the context of a record has the latency format (TRACE_FILE_LAT_FMT)."""
        return bool(self.flags & TraceIter.LATENCY_FMT) if self.lat_fmt is None else self.lat_fmt
