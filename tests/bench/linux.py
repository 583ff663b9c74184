"""A distribution's kernel in the daemon: what tracing costs it, how long switching its sites takes,
and how soon it is there.

The writes go to the files as a mount's would, without FUSE. A record's cost is the processor time
of a read of one byte from /dev/zero, by dd in the guest, with `vfs_read` traced less that without.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figures import Figure, of_runs
from bench.mount import first_line
from support.linux_session import LinuxShell, switched_on

READS = 400_000
RUNS = 7
ROUNDS = 5


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _reads(linux: LinuxShell) -> float:
    """Seconds of processor time that the reads take in the guest."""
    start = time.process_time()
    linux.sh(f"dd if=/dev/zero of=/dev/null bs=1 count={READS}")
    return time.process_time() - start


def _costs(linux: LinuxShell, peer: dict[str, float]) -> Iterator[Figure]:
    linux.echo("vfs_read", "set_ftrace_filter")
    added: dict[str, list[float]] = {"function": [], "function_graph": []}
    for _ in range(RUNS):
        for tracer, values in added.items():
            plain = _reads(linux)
            linux.echo(tracer, "current_tracer")
            traced = _reads(linux)
            linux.echo("nop", "current_tracer")
            values.append((traced - plain) / READS * 1e9)
    yield of_runs(
        "Linux: function, one op, added",
        added["function"],
        "ns",
        reach=130,
        peer=peer["function, one op, added"],
    )
    name = "function_graph, added"
    yield of_runs(f"Linux: {name}", added["function_graph"], "ns", peer=peer[name])
    linux.echo("", "set_ftrace_filter")


def _switches(linux: LinuxShell, peer: dict[str, float]) -> Iterator[Figure]:
    """Under load: the guest runs in between."""
    load = "while [ ! -e /tmp/enough ]; do dd if=/dev/zero bs=4k count=50 | md5sum; done"
    linux.sh(f"{load} > /dev/null 2>&1 &")
    for tracer in ("function", "function_graph"):
        runs: dict[str, list[float]] = {"on": [], "off": []}
        for _ in range(ROUNDS):
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
