"""A distribution's kernel in the daemon: what tracing costs it, how long switching its sites takes,
and how soon it is there.

The writes go to the files as a mount's would, without FUSE. A record's cost is the processor time
of a read of one byte from /dev/zero, by dd in the guest, with `vfs_read` traced less that without.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figures import Figure, of_runs
from bench.mount import first_line
from support.linux_session import LinuxShell, switched_on

READS, FEW = 60_000, 2_000
RUNS, ROUNDS = 12, 3


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _reads(linux: LinuxShell, count: int) -> float:
    """Processor time of as many reads, and writes, in the guest."""
    start = time.process_time()
    linux.sh(f"dd if=/dev/zero of=/dev/null bs=1 count={count}")
    return time.process_time() - start


def _costs(linux: LinuxShell, peer: dict[str, float]) -> Iterator[Figure]:
    """The least of many runs: what is to be seen is a thirtieth of what is measured."""
    linux.echo("vfs_read", "set_ftrace_filter")
    runs: dict[tuple[str, int], list[float]] = defaultdict(list)
    for tracer in ("nop", "function", "function_graph") * ROUNDS:
        linux.echo(tracer, "current_tracer")
        for _ in range(RUNS):
            for count in (FEW, FEW + READS):
                runs[tracer, count].append(_reads(linux, count))
    linux.echo("nop", "current_tracer")
    linux.echo("", "set_ftrace_filter")

    def of_a_read(tracer: str) -> float:
        return (min(runs[tracer, FEW + READS]) - min(runs[tracer, FEW])) / READS * 1e9

    name = "function, one op, added"
    added = of_a_read("function") - of_a_read("nop")
    yield Figure(f"Linux: {name}", added, "ns", reach=130, peer=peer[name])
    name = "function_graph, added"
    added = of_a_read("function_graph") - of_a_read("nop")
    yield Figure(f"Linux: {name}", added, "ns", peer=peer[name])


def _switches(linux: LinuxShell, peer: dict[str, float]) -> Iterator[Figure]:
    """Under load: the guest runs in between."""
    load = "while [ ! -e /tmp/enough ]; do dd if=/dev/zero bs=4k count=50 | md5sum; done"
    linux.sh(f"{load} > /dev/null 2>&1 &")
    for tracer in ("function", "function_graph"):
        runs: dict[str, list[float]] = {"on": [], "off": []}
        for _ in range(RUNS):
            for what, value in (("on", tracer), ("off", "nop")):
                taken = _seconds(lambda value=value: linux.echo(value, "current_tracer"))
                runs[what].append(taken * 1e3)
        for what, values in runs.items():
            name = f"{tracer} {what} everywhere"
            yield of_runs(f"Linux: {name}", values, "ms", reach=300, peer=peer[name])
    linux.sh("echo > /tmp/enough; wait")


def figures(peer: dict[str, float]) -> Iterator[Figure]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as directory:
        name = "mount to first line"
        runs = first_line(Path(directory) / "linux", "--kernel", "linux", functions="")
        yield of_runs(f"Linux: {name} of trace_pipe", runs, "ms", reach=1000, peer=peer[name])
    with switched_on() as linux:
        yield from _costs(linux, peer)
        yield from _switches(linux, peer)
