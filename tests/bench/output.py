"""How fast records become text: decoding, merging and printing, and reading trace_pipe.

Lines a second of processor time, the best of several runs. The buffers hold function records of two
CPUs: many functions, a few tasks, two seconds of time.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from bench.figures import Figure

from emulated_kernel.kallsyms import Kallsyms
from emulated_kernel.machine.memory import Memory
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import merge
from ftracefs.ring_buffer.layout import BUF_PAGE_SIZE
from ftracefs.ring_buffer.pages import Pages
from ftracefs.trace.output.lines import format_entries
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.output.trace_pipe import TracePipe

RUNS = 7
PAGES = 350  # of each CPU
QUICK = {"RUNS": 1, "PAGES": 10}
RECORDS = 145
FUNCTIONS = 300
TEXT = 0xFFFFFFFF81000000


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    address: int
    size: int = 256
    section: str = ".text"
    kind: str = "T"


def _page(chance: random.Random, start: int, *, markers: bool) -> bytes:
    data = b""
    for number in range(RECORDS):
        ip = TEXT + chance.randrange(FUNCTIONS) * 256
        parent = TEXT + chance.randrange(FUNCTIONS) * 256 + 57
        pid = chance.choice([0, 17, 104, 2331])
        delta = 0 if number == 0 else chance.randrange(100, 40_000)
        if markers and number % 29 == 28:
            data += struct.pack("<IHHiQ", delta << 5 | 7, 5, 0, pid, ip) + b"mark number\n"
        else:
            data += struct.pack("<IHHiQQ", delta << 5 | 6, 1, 0, pid, ip, parent)
    return struct.pack("<QQ", start, len(data)) + data.ljust(BUF_PAGE_SIZE, b"\0")


def _pages(*, markers: bool = False) -> Pages:
    chance = random.Random(1)
    raw = b"".join(
        _page(chance, number * 3_000_000, markers=markers)
        for _ in range(2)
        for number in range(PAGES)
    )
    words = np.frombuffer(raw, dtype=np.uint32).reshape(2 * PAGES, -1)
    return Pages(
        words,
        words[:, 2].astype(np.int64),
        np.zeros(2 * PAGES, dtype=np.int64),
        np.repeat(np.arange(2, dtype=np.int64), PAGES),
    )


def _context() -> OutputContext:
    kallsyms = Kallsyms()
    names = [f"some_function_{number}" for number in range(FUNCTIONS)]
    kallsyms.add("kernel", [_Symbol(n, TEXT + 256 * i) for i, n in enumerate(names)])
    return OutputContext(SymbolText(kallsyms), {17: "ksoftirqd/1", 104: "bash", 2331: "cat"})


def _best(work: Callable[[], int]) -> float:
    """Lines a second."""
    best = 0.0
    for _ in range(RUNS):
        start = time.thread_time()
        lines = work()
        best = max(best, lines / (time.thread_time() - start))
    return best


def _full_pipe() -> TracePipe:
    """A reader of a full buffer."""
    memory = Memory()
    buffer = RingBuffer(memory, [memory.alloc(4096)], PAGES * BUF_PAGE_SIZE)
    cpu = buffer.cpus[0]
    pages = _pages().words[:PAGES]
    table = cpu._ring
    for page, address in zip(pages, table[:, 0].tolist(), strict=True):
        memory.write(address, page.tobytes())
    table[:, 1] = RECORDS
    last = int(table[-1, 0])
    cpu._set(page=last, index=(PAGES - 1) * 16, tail=last + 16 + RECORDS * 28, balance=0)
    cpu._set(entries=(PAGES - 1) * RECORDS, end=last + 4096)
    return TracePipe(buffer)


def _read_pipe(context: OutputContext, size: int) -> float:
    """Seconds for all lines of a full buffer."""
    pipe = _full_pipe()
    start = time.thread_time()
    while pipe.read(size, context):
        pass
    return time.thread_time() - start


def figures(_peer: dict[str, float]) -> Iterator[Figure]:
    """The lines of the table."""
    pages, mixed, context = _pages(), _pages(markers=True), _context()
    entries = merge(pages)
    sizes = (4096, 1 << 17)
    seconds = {size: min(_read_pipe(context, size) for _ in range(3)) for size in sizes}
    rates = {
        "decoded and merged": _best(lambda: len(merge(pages))),
        "the same with markers on every page": _best(lambda: len(merge(mixed))),
        "printed": _best(lambda: format_entries(entries, context).count(b"\n")),
        "trace, all of it": _best(lambda: format_entries(merge(pages), context).count(b"\n")),
        **{f"trace_pipe, {size} bytes a read": PAGES * RECORDS / seconds[size] for size in sizes},
    }
    for name, rate in rates.items():
        yield Figure(name, rate, "lines/s", more_is_better=True)
