"""Pages of a real ring buffer and what Linux printed for them with each combination of options.

tracer function                     the tracer that was in charge
release 6.1.0-57-amd64
cpu 1                               on which it was chosen
time_start 18562675834              when the buffer was emptied
task 116 bash                       saved_cmdlines
symbol ffffffff81367160 3f0 vfs_write      address and size
page 0                              a page of that CPU, in hexadecimal up to the end of its data

== sym-offset raw+sym-offset        combinations of options: the other way round than by default
|# tracer: function                 what `trace` showed with each, escaped as in fx.py
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from pathlib import Path

import numpy as np

from emulated_kernel.kallsyms import Kallsyms
from ftracefs.ring_buffer.entries import merge
from ftracefs.ring_buffer.layout import BUF_PAGE_HDR_SIZE, PAGE_SIZE
from ftracefs.ring_buffer.pages import Pages
from ftracefs.trace.options import OPTION_NAMES, TRACE_DEFAULT_FLAGS, TraceIter
from ftracefs.trace.output.graph_layout import (
    DEFAULT_GRAPH_FLAGS,
    GRAPH_OPTIONS,
    GraphFlags,
    GraphLayout,
    print_graph_headers_flags,
)
from ftracefs.trace.output.header import SavedLatency, TraceHeader
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.output.trace_text import TraceText
from support.fx import unescape

_FLAGS = {name: flag for flag, name in OPTION_NAMES.items()}
_NR_CPUS = 2


@dataclass(frozen=True)
class Symbol:
    address: int
    size: int
    name: str
    kind: str = "T"

    @property
    def section(self) -> str:
        """One of its own, so that it does not reach up to the next one that is known here."""
        return self.name


@dataclass
class Recording:
    """One file of the kind told above."""

    facts: dict[str, str] = field(default_factory=dict)
    tasks: dict[int, str] = field(default_factory=dict)
    symbols: list[Symbol] = field(default_factory=list)
    pages: list[tuple[int, int, str]] = field(default_factory=list)
    texts: dict[str, bytes] = field(default_factory=dict)

    def trace(self, options: str) -> bytes:
        """What we print for the pages with these options."""
        names = [] if options == "defaults" else options.split("+")
        flags = reduce(xor, (_FLAGS[n] for n in names if n in _FLAGS), TRACE_DEFAULT_FLAGS)
        columns = reduce(
            xor, (GRAPH_OPTIONS[n] for n in names if n in GRAPH_OPTIONS), DEFAULT_GRAPH_FLAGS
        )
        return self._text(TraceIter(flags), GraphFlags(columns))

    def _text(self, flags: TraceIter, columns: GraphFlags) -> bytes:
        pages = self._pages()
        count = int(self.facts.get("entries", len(merge(pages))))
        is_snapshot = self.facts.get("file") == "snapshot"
        header = TraceHeader(
            self.facts["tracer"],
            flags & ~TraceIter.LATENCY_FMT if is_snapshot else flags,
            count,
            count,
            _NR_CPUS,
            saved=SavedLatency(cpu=int(self.facts["cpu"])),
            release=self.facts["release"],
        )
        layout = GraphLayout(columns, _NR_CPUS)
        is_graph = self.facts["tracer"] == "function_graph"
        kallsyms = Kallsyms()
        kallsyms.add("kernel", self.symbols)
        context = OutputContext(
            SymbolText(kallsyms),
            self.tasks,
            flags,
            time_start=int(self.facts["time_start"]),
            graph=layout if is_graph else None,
            lat_fmt=False if is_snapshot else None,
            graph_events=layout,
        )
        text = print_graph_headers_flags(header, columns) if is_graph else header.text()
        return TraceText(text, pages, context).read(0, 1 << 20)

    def _pages(self) -> Pages:
        count = len(self.pages)
        words = np.zeros((count, PAGE_SIZE // 4), dtype=np.uint32)
        commit = np.zeros(count, dtype=np.int64)
        for index, (_cpu, _read, digits) in enumerate(self.pages):
            data = bytes.fromhex(digits)
            commit[index] = len(data) - BUF_PAGE_HDR_SIZE
            words[index] = np.frombuffer(data.ljust(PAGE_SIZE, b"\0"), dtype=np.uint32)
        cpu, read = np.array([page[:2] for page in self.pages], dtype=np.int64).T
        return Pages(words, commit, read, cpu)


def read_recording(path: Path) -> Recording:
    """Read a file of the kind told above."""
    recording = Recording()
    combinations: list[str] = []
    texts: dict[str, list[bytes]] = {}
    is_heading = False
    for line in path.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if line.startswith("|"):
            is_heading = False
            for options in combinations:
                texts[options].append(unescape(line[1:]))
        elif word == "==":
            combinations = combinations + rest.split() if is_heading else rest.split()
            is_heading = True
            texts.update({options: [] for options in combinations})
        elif word == "task":
            pid, _, name = rest.partition(" ")
            recording.tasks[int(pid)] = name
        elif word == "symbol":
            address, size, name = rest.split(" ")
            recording.symbols.append(Symbol(int(address, 16), int(size, 16), name))
        elif word == "page":
            cpu, _, read = rest.partition(" ")
            recording.pages.append((int(cpu), int(read or 0), ""))
        elif rest and word != "#":
            recording.facts[word] = rest
        elif line and word != "#":
            number, skipped, digits = recording.pages[-1]
            recording.pages[-1] = number, skipped, digits + line
    recording.texts = {options: b"\n".join(lines) for options, lines in texts.items()}
    return recording
