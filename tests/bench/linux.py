"""A distribution's kernel in the daemon: what tracing costs it, how long switching its sites takes,
and how soon it is there.

The writes go to the files as a mount's would, without FUSE. What a record costs is measured twice:
in a loop that does nothing but call one small function of the kernel's, and in a program that reads
and writes single bytes, with all functions traced that it comes through; there what is added is
shared among the records that were made. States take turns, so that a neighbour's load meets all.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench.figures import Figure, of_runs, seconds
from bench.mount import first_line
from support.linux_session import LinuxShell, switched_on

READS, FEW = 20_000, 1_000
RUNS, ROUNDS = 6, 7
QUICK = {"READS": 200, "FEW": 50, "RUNS": 1, "ROUNDS": 1}
CALLS = 40_000
TRACERS = ("nop", "function", "function_graph")
NAMES = {"function": "function, one op, added", "function_graph": "function_graph, added"}
SMALL = "int_sqrt"
PATH = (
    *("vfs_read", "vfs_write", "ksys_read", "ksys_write", "__x64_sys_read", "__x64_sys_write"),
    *("read_zero", "write_null", "rw_verify_area", "security_file_permission"),
    *("__fget_light", "__fdget_pos"),
)
LOOP = f"""
FUNC_NOTRACE bench_loop
    push rbx
    push r12
    mov r12, rdi
    mov ebx, {CALLS}
.balign 16
1:  xor edi, edi
    call r12
    dec ebx
    jne 1b
    pop r12
    pop rbx
    ret
ENDFUNC bench_loop
"""


def _reads(linux: LinuxShell, count: int) -> float:
    """Processor time of as many reads, and writes, in the guest."""
    start = time.process_time()
    linux.sh(f"dd if=/dev/zero of=/dev/null bs=1 count={count} 2> /dev/null")
    return time.process_time() - start


def _in_turns(linux: LinuxShell, measure: Callable[[], float]) -> dict[str, list[float]]:
    """The least of some readings for each tracer in each round."""
    runs: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for tracer in TRACERS:
            linux.echo(tracer, "current_tracer")
            measure()
            runs[tracer].append(min(measure() for _ in range(RUNS)))
            linux.echo("nop", "current_tracer")
    return runs


def _added(runs: dict[str, list[float]], tracer: str, records: float) -> tuple[float, float]:
    """What it adds for each record: of each round, the median; and of the least of all."""
    pairs = zip(runs[tracer], runs["nop"], strict=True)
    return (
        median(traced - untraced for traced, untraced in pairs) / records,
        (min(runs[tracer]) - min(runs["nop"])) / records,
    )


def _loop(linux: LinuxShell, peer: dict[str, float]) -> Iterator[Figure]:
    machine, ftrace = linux.machine, linux.session.ftrace
    loop = machine.run(lambda: ftrace.load_functions("bench", LOOP))["bench_loop"]
    function = linux.session.vmlinux.symbol(SMALL)

    def timed() -> float:
        start = time.thread_time()
        machine.call(loop, function)
        return (time.thread_time() - start) / CALLS * 1e9

    linux.echo(SMALL, "set_ftrace_filter")
    runs = _in_turns(linux, lambda: machine.run(timed))
    for tracer, name in NAMES.items():
        value, best = _added(runs, tracer, 1)
        reach = 130 if tracer == "function" else None
        yield Figure(f"Linux, a loop: {name}", value, "ns", best, reach, peer=peer[name])


def _records(linux: LinuxShell) -> float:
    """How many a read and a write make."""
    buffer = linux.session.tracing.global_trace.buffer

    def made(count: int) -> int:
        before = sum(cpu.written() for cpu in buffer.cpus)
        _reads(linux, count)
        return sum(cpu.written() for cpu in buffer.cpus) - before

    linux.echo("function", "current_tracer")
    few, many = (made(count) for count in (FEW, FEW + READS))
    linux.echo("nop", "current_tracer")
    return (many - few) / READS


def _costs(linux: LinuxShell, peer: dict[str, float]) -> Iterator[Figure]:
    known = set(linux.cat("available_filter_functions").split())
    linux.echo(" ".join(name for name in PATH if name in known), "set_ftrace_filter")
    records = _records(linux)
    runs = _in_turns(linux, lambda: (_reads(linux, FEW + READS) - _reads(linux, FEW)) / READS * 1e9)
    untraced = runs["nop"]
    yield Figure("Linux: a read and a write", median(untraced), "ns", min(untraced))
    for tracer, name in NAMES.items():
        value, best = _added(runs, tracer, records)
        reach = 130 if tracer == "function" else None
        yield Figure(f"Linux: {name}", value, "ns", best, reach, peer=peer[name])
    linux.echo("", "set_ftrace_filter")


def _switches(linux: LinuxShell, peer: dict[str, float]) -> Iterator[Figure]:
    """Under load: the guest runs in between."""
    load = "while [ ! -e /tmp/enough ]; do dd if=/dev/zero bs=4k count=50 | md5sum; done"
    linux.sh(f"{load} > /dev/null 2>&1 &")
    for tracer in TRACERS[1:]:
        runs: dict[str, list[float]] = {"on": [], "off": []}
        for _ in range(2 * RUNS):
            for what, value in (("on", tracer), ("off", "nop")):
                taken = seconds(lambda value=value: linux.echo(value, "current_tracer"))
                runs[what].append(taken * 1e3)
        for what, values in runs.items():
            name = f"{tracer} {what} everywhere"
            yield of_runs(f"Linux: {name}", values, "ms", reach=300, peer=peer[name])
    linux.sh("echo > /tmp/enough; wait")


def figures(peer: dict[str, float]) -> Iterator[Figure]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as directory:
        name = "mount to first line"
        mount = Path(directory) / "linux"
        runs = first_line(mount, RUNS, "--kernel", "linux", functions="")
        yield of_runs(f"Linux: {name} of trace_pipe", runs, "ms", reach=1000, peer=peer[name])
    with switched_on() as linux:
        yield from _loop(linux, peer)
        yield from _costs(linux, peer)
        yield from _switches(linux, peer)
