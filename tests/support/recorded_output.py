"""Pages of a real ring buffer and what Linux printed for them with each combination of options.

tracer function                     the tracer that was in charge
release 6.1.0-57-amd64
cpu 1                               on which it was chosen
cpus 1                              how many there were; 2 if this is not told
time_start 18562675834              when the buffer was emptied
entries 30                          how many there are by the header
options display-graph+latency-format       options that were the other way round than by default
event 273 sched_switch              an event by the number it had
saved 4538 583 0 0 0 0 bash         of the worst case: microseconds, pid, uid, nice, policy, rt_prio
critical ffffffff811b6407 ffffffff811b6407 and between what addresses it was
task 116 bash                       saved_cmdlines
symbol ffffffff81367160 3f0 vfs_write      address and size
page 0                              a page of that CPU, in hexadecimal up to the end of its data

== sym-offset raw+sym-offset        combinations of options: the other way round than above
|# tracer: function                 what `trace` showed with each, escaped as in fx.py
=# 88aa01cd bin+raw hex+raw         the same, but only as the first 32 digits of its sha256
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from hashlib import sha256
from operator import xor
from pathlib import Path

import numpy as np

from emulated_kernel.kallsyms import Kallsyms
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.ring_buffer.layout import BUF_PAGE_HDR_SIZE, PAGE_SIZE
from ftracefs.ring_buffer.pages import Pages
from ftracefs.trace.events.output import event_functions
from ftracefs.trace.events.table import EVENT_CALLS, EVENTS
from ftracefs.trace.options import OPTION_NAMES, TRACE_DEFAULT_FLAGS, TraceIter
from ftracefs.trace.output.event_output import TraceEventFunctions
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
from ftracefs.trace.tracers.irqsoff import IRQSOFF_GRAPH_FLAGS
from ftracefs.trace.tracers.sched_wakeup import WAKEUP_GRAPH_FLAGS
from support.fx import unescape

_FLAGS = {name: flag for flag, name in OPTION_NAMES.items()}
_NR_CPUS = 2
_DIGITS = 32


def _event(name: str) -> TraceEventFunctions:
    return event_functions(next(call for call in EVENT_CALLS if call.name == name))


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
    digests: dict[str, str] = field(default_factory=dict)

    @cached_property
    def _symbol_text(self) -> SymbolText:
        kallsyms = Kallsyms()
        kallsyms.add("kernel", self.symbols)
        return SymbolText(kallsyms)

    @cached_property
    def _entries(self) -> Entries:
        return merge(self._pages())

    @cached_property
    def _events(self) -> Mapping[int, TraceEventFunctions]:
        """Under the numbers they had."""
        if "event" not in self.facts:
            return EVENTS
        number, name = self.facts["event"].split(" ")
        return {**EVENTS, int(number): _event(name)}

    def trace(self, options: str) -> bytes:
        """What we print for the pages with these options."""
        names = [] if options == "defaults" else options.split("+")
        names += self.facts["options"].split("+") if "options" in self.facts else []
        flags = reduce(xor, (_FLAGS[n] for n in names if n in _FLAGS), TRACE_DEFAULT_FLAGS)
        columns = reduce(
            xor, (GRAPH_OPTIONS[n] for n in names if n in GRAPH_OPTIONS), DEFAULT_GRAPH_FLAGS
        )
        return self._text(TraceIter(flags), GraphFlags(columns))

    def digest(self, options: str) -> str:
        """The same, as `digests` has it."""
        return sha256(self.trace(options)).hexdigest()[:_DIGITS]

    def _text(self, flags: TraceIter, columns: GraphFlags) -> bytes:
        tracer = self.facts["tracer"]
        count = int(self.facts.get("entries", len(self._entries)))
        cpus = int(self.facts.get("cpus", _NR_CPUS))
        is_snapshot = self.facts.get("file") == "snapshot"
        header = TraceHeader(
            tracer,
            flags & ~TraceIter.LATENCY_FMT if is_snapshot else flags,
            count,
            count,
            cpus,
            saved=self._saved(),
            release=self.facts["release"],
            symbol=lambda ip: self._symbol_text.seq_print_ip_sym(ip, flags).decode(),
        )
        graph = self._graph(GraphLayout(columns, cpus), flags)
        context = OutputContext(
            self._symbol_text,
            self.tasks,
            flags,
            time_start=int(self.facts["time_start"]),
            graph=graph,
            lat_fmt=False if is_snapshot else None,
            graph_events=GraphLayout(columns, cpus),
        )
        text = print_graph_headers_flags(header, graph.flags) if graph else header.text()
        return TraceText(text, self._pages(), context, self._events).read(0, 1 << 20)

    def _graph(self, layout: GraphLayout, flags: TraceIter) -> GraphLayout | None:
        """How calls and returns are printed by the tracer itself, if they are."""
        tracer = self.facts["tracer"]
        if tracer == "function_graph":
            return layout
        if tracer == "function" or not flags & TraceIter.DISPLAY_GRAPH:
            return None
        columns = IRQSOFF_GRAPH_FLAGS if tracer == "irqsoff" else WAKEUP_GRAPH_FLAGS
        return replace(layout, flags=columns)

    def _saved(self) -> SavedLatency:
        cpu = int(self.facts["cpu"])
        if "saved" not in self.facts:
            return SavedLatency(cpu=cpu)
        *numbers, comm = self.facts["saved"].split(" ")
        latency, pid, uid, nice, policy, rt_priority = map(int, numbers)
        start, end = (int(ip, 16) for ip in self.facts.get("critical", "0 0").split(" "))
        return SavedLatency(latency, cpu, comm, pid, uid, nice, policy, rt_priority, start, end)

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
        elif word == "=#":
            is_heading = False
            digest, *names = rest.split(" ")
            recording.digests.update(dict.fromkeys(names, digest))
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
