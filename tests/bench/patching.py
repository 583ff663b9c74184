"""What it takes to switch many call sites, and to name functions among many: a generated kernel.

The kernel is the tests' own with as many more functions as Debian's 6.1 has; the writes go to the
files as a mount's would, without FUSE (which adds some 0.2 ms to each). Wall time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from bench.figures import Figure, of_runs, seconds
from support.ftrace_kernel import kernel_image
from support.tracefs import Tree, tracefs

from emulated_kernel.asm_link import Symbol
from emulated_kernel.image import KernelImage
from emulated_kernel.text_poke import text_gen_call

FUNCTIONS = 40_000
GROWTH = (1_000, 10_000, 40_000)
RUNS = 5
QUICK = {"FUNCTIONS": 300, "GROWTH": (100, 200, 300), "RUNS": 1}
_SIZE = 32
_FIRST = ("vfs", "ext4", "tcp", "dma", "pci", "sched", "irq", "mm", "net", "x86", "acpi", "blk")
_SECOND = ("read", "write", "open", "alloc", "free", "init", "get", "put", "show", "store")


def generated_image(functions: int) -> KernelImage:
    """The tests' kernel and `functions` more, each a call site and a return."""
    image = kernel_image()
    start, text = image.segments[".text"]
    base = -(-(start + len(text)) // 4096) * 4096
    sites = np.uint64(base) + np.arange(functions, dtype=np.uint64) * np.uint64(_SIZE)
    code = np.full((functions, _SIZE), 0xCC, dtype=np.uint8)
    code[:, :5] = text_gen_call(sites, image.labels["__fentry__"])
    code[:, 5] = 0xC3
    chance = random.Random(1)
    names = [
        f"{chance.choice(_FIRST)}_{chance.choice(_SECOND)}_{number:05d}"
        for number in range(functions)
    ]
    symbols = [
        Symbol(name, int(site), 6, ".text", "T")
        for name, site in zip(names, sites.tolist(), strict=True)
    ]
    return replace(
        image,
        segments={
            **image.segments,
            ".text": (start, text.ljust(base - start, b"\xcc") + code.tobytes()),
        },
        symbols=[*image.symbols, *symbols],
        mcount=[*image.mcount, *sites.tolist()],
        labels={**image.labels, **dict(zip(names, sites.tolist(), strict=True))},
    )


def _milliseconds(action: Callable[[], object]) -> float:
    return seconds(action) * 1e3


def _switch(tree: Tree, tracer: str) -> tuple[list[float], list[float]]:
    """How long it takes to switch a tracer on everywhere, and off again."""
    on, off = [], []
    for _ in range(RUNS):
        on.append(_milliseconds(lambda: tree.echo(tracer, "current_tracer")))
        off.append(_milliseconds(lambda: tree.echo("nop", "current_tracer")))
    return on, off


def _filters(tree: Tree, peer: dict[str, float]) -> Iterator[Figure]:
    runs = [_milliseconds(lambda: tree.echo("*read*", "set_ftrace_filter")) for _ in range(RUNS)]
    name = "glob into set_ftrace_filter"
    yield of_runs(name, runs, "ms", reach=10, peer=peer[name])
    available = tree.read("available_filter_functions").split("\n")
    names = [line for line in available if line and " " not in line][:1000]
    runs = [
        _milliseconds(lambda: tree.echo(" ".join(names), "set_ftrace_filter")) for _ in range(RUNS)
    ]
    name = "1000 names into set_ftrace_filter"
    yield of_runs(name, runs, "ms", reach=1000, peer=peer[name])
    tree.echo("", "set_ftrace_filter")
    name = "available_filter_functions"
    runs = [_milliseconds(lambda: tree.read(name)) for _ in range(RUNS)]
    yield of_runs(f"cat {name}", runs, "ms", reach=20, peer=peer[name])


def figures(peer: dict[str, float]) -> Iterator[Figure]:
    """The lines of the table."""
    totals = {}
    for functions in GROWTH:
        with tracefs(image=generated_image(functions), clock="real") as tree:
            on, off = _switch(tree, "function")
            totals[functions] = min(on)
            if functions != FUNCTIONS:
                continue
            for tracer, runs in (("function", (on, off)), ("function_graph", None)):
                for what, values in zip(("on", "off"), runs or _switch(tree, tracer), strict=True):
                    name = f"{tracer} {what} everywhere"
                    yield of_runs(name, values, "ms", reach=300, peer=peer[name])
            yield from _filters(tree, peer)
    for few, many in itertools.pairwise(GROWTH):
        growth = totals[many] / totals[few] / (many / few)
        yield Figure(f"on everywhere, {few:,} → {many:,}, per function", growth, "x", reach=1.0)
