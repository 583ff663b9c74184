"""Ring buffers with records of the function graph tracer, and a printer for what is in them."""

from __future__ import annotations

from dataclasses import dataclass

from emulated_kernel.kallsyms import Kallsyms
from emulated_kernel.machine.memory import Memory
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import merge
from ftracefs.trace.options import TRACE_DEFAULT_FLAGS, TraceIter
from ftracefs.trace.output.graph import GraphPrinter
from ftracefs.trace.output.graph_layout import DEFAULT_GRAPH_FLAGS, GraphFlags, GraphLayout
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.symbol_text import SymbolText
from support.graph_records import FUNCTION_BYTES, Functions, records_of
from support.model_writer import ModelWriter

NAMES = {105: "bash", 112: "head", 308: "dd", 309: "cat", 255: "dd", 256: "dd", 77: "migration"}
NONE = TraceIter(0)


@dataclass(frozen=True)
class Sym:
    name: str
    address: int
    size: int = FUNCTION_BYTES
    section: str = ".text"
    kind: str = "T"


class GraphRig:
    """Buffers, a writer for each CPU, and a printer for what is in them."""

    def __init__(self, nr_cpus: int = 1, size: int = 1 << 18) -> None:
        memory = Memory()
        self.buffer = RingBuffer(memory, [memory.alloc(4096) for _ in range(nr_cpus)], size)
        self.writers = [ModelWriter(memory, c.address) for c in self.buffer.cpus]
        self.functions = Functions()
        self.nr_cpus = nr_cpus
        self.now = 6_035_863_000

    def write(self, payload: bytes, *, cpu: int = 0, now: int | None = None) -> None:
        self.now = self.now + 100 if now is None else now
        self.writers[cpu].now = self.now
        assert self.writers[cpu].write(payload)

    def write_text(self, text: str, *, pid: int = 105) -> None:
        for record in records_of(text, self.functions, pid=pid):
            self.write(record.payload, cpu=record.cpu)

    def context(
        self,
        columns: GraphFlags = DEFAULT_GRAPH_FLAGS,
        on: TraceIter = NONE,
        off: TraceIter = NONE,
    ) -> OutputContext:
        kallsyms = Kallsyms()
        names = self.functions.names
        kallsyms.add("kernel", [Sym(n, self.functions.address(n)) for n in names])
        return OutputContext(
            SymbolText(kallsyms),
            NAMES,
            TRACE_DEFAULT_FLAGS & ~off | on,
            graph=GraphLayout(columns, self.nr_cpus),
        )

    def text(
        self,
        columns: GraphFlags = DEFAULT_GRAPH_FLAGS,
        on: TraceIter = NONE,
        off: TraceIter = NONE,
    ) -> str:
        entries = merge(self.buffer.snapshot())
        printer = GraphPrinter(self.context(columns, on, off))
        return printer.block(entries, 0, len(entries)).decode()
