"""Buffers filled by the model of the writer, and a context to print their records in."""

from __future__ import annotations

from dataclasses import dataclass, replace

from emulated_kernel.kallsyms import Kallsyms
from emulated_kernel.machine.memory import Memory
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.trace.options import TRACE_DEFAULT_FLAGS, TraceIter
from ftracefs.trace.output.lines import format_entries
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.output.trace_pipe import TracePipe
from support.model_writer import ModelWriter, function_record

VFS_READ, KSYS_READ = 0xFFFFFFFF813669E0, 0xFFFFFFFF813675BB
MARK = 0xFFFFFFFF811C36BD
NAMES = {105: "bash", 232: "dd"}
NONE = TraceIter(0)


@dataclass(frozen=True)
class Sym:
    name: str
    address: int
    size: int
    section: str = ".text"
    kind: str = "T"


def symbols() -> Kallsyms:
    kallsyms = Kallsyms()
    kernel = [
        Sym("tracing_mark_write", 0xFFFFFFFF811C3600, 0x200),
        Sym("vfs_read", VFS_READ, 0x300),
        Sym("vfs_write", VFS_READ + 0x310, 0x100),
        Sym("ksys_read", KSYS_READ - 0x6B, 0xF0),
    ]
    kallsyms.add("kernel", kernel)
    module = [Sym("ext4_sync_file", 0xFFFFFFFFC0800000, 0x40, "ext4.text", "t")]
    kallsyms.add("ext4", module, module="ext4")
    return kallsyms


class Rig:
    """Buffers, a writer for each CPU and a context to print in."""

    def __init__(self, memory: Memory, nr_cpus: int = 1, size: int = 4096) -> None:
        self.buffer = RingBuffer(memory, [memory.alloc(4096) for _ in range(nr_cpus)], size)
        self.writers = [ModelWriter(memory, c.address) for c in self.buffer.cpus]
        self.context = OutputContext(SymbolText(symbols()), NAMES)

    def write(self, now: int, payload: bytes, cpu: int = 0) -> None:
        self.writers[cpu].now = now
        assert self.writers[cpu].write(payload)

    def read_calls(self, *times: int, pid: int = 105, bits: int = 0, cpu: int = 0) -> None:
        for now in times:
            self.write(now, function_record(VFS_READ, KSYS_READ, pid=pid, bits=bits), cpu)

    def entries(self) -> Entries:
        return merge(self.buffer.snapshot())

    def options(self, on: TraceIter = NONE, off: TraceIter = NONE) -> OutputContext:
        return replace(self.context, flags=TRACE_DEFAULT_FLAGS & ~off | on)

    def text(self, on: TraceIter = NONE, off: TraceIter = NONE) -> str:
        return format_entries(self.entries(), self.options(on, off)).decode("latin-1")


def read_all(pipe: TracePipe, context: OutputContext, size: int = 4096) -> bytes:
    parts = []
    while part := pipe.read(size, context):
        parts.append(part)
    return b"".join(parts)
