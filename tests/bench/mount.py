"""What a mount costs and gives: start, reading records as text and as pages, memory, idling.

Every mount is `ftracefs mount --isolated --cpus 1` but for the idle one, which has its workload,
and the one whose reader's system calls run in the guest, too. Records are calls of one function,
made by emulator/call. Wall time; processor time for the idle mount and for the growth.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.figures import Figure, of_runs, seconds
from support.daemon import MountedDaemon

CLONE = Path(__file__).parents[2]  # whose mount.sh it is; not resolved, it may be made of links
RECORDS = 1_000_000
MANY_RECORDS = 100_000_000
CALLS = 100_000
BUFFER_KB = 40_000  # holds RECORDS
RUNS = 5
IDLE_RUNS, IDLE_SECONDS = 3, 20.0
SETTLING_SECONDS = 2.0  # what a start leaves to be done is done
GROWTH = (1, 8, 32)
QUICK = {
    "RECORDS": 10_000,
    "MANY_RECORDS": 100_000,
    "CALLS": 1_000,
    "RUNS": 1,
    "IDLE_RUNS": 1,
    "IDLE_SECONDS": 0.1,
    "SETTLING_SECONDS": 0.0,
}
_BLOCK = 65_536


def _write(path: Path, text: str) -> None:
    path.write_text(f"{text}\n")


def _fill(mount: Path, records: int, name: str = "gcd") -> None:
    """So many records of a function in an empty buffer, tracing off."""
    _write(mount / "tracing_on", "1")
    _write(mount / "set_ftrace_filter", name)
    _write(mount / "current_tracer", "function")
    (mount / "trace").write_text("")
    _write(mount / "emulator/call", f"{name} 4 6 x{records}")
    _write(mount / "tracing_on", "0")


def _read_all(path: Path, size: int = _BLOCK) -> int:
    """Bytes until there are no more."""
    total = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                data = os.read(descriptor, size)
            except BlockingIOError:
                return total
            if not data:
                return total
            total += len(data)
    finally:
        os.close(descriptor)


def _status(pid: int, field: str) -> int:
    """A field of /proc/PID/status in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) // 1024


def _run_ns(pid: int) -> int:
    """Processor time of a process, by the clock that clock_getcpuclockid(3) names."""
    return time.clock_gettime_ns(~pid << 3 | 2)


FIRST_LINE = """
set -e
clone=$1 mount=$2
shift
"$clone/mount.sh" "$@" >/dev/null
cd "$mount"
echo "$FUNCTIONS" > set_ftrace_filter
echo function > current_tracer
read -r _ < trace_pipe
"""


def first_line(mount: Path, count: int, *options: str, functions: str = "vfs_*") -> list[float]:
    """Milliseconds from mount.sh to a line of trace_pipe; the first run warms up."""
    environment = {**os.environ, "FUNCTIONS": functions}
    runs = []
    for _ in range(count + 1):
        mount.mkdir(exist_ok=True)
        command = ["bash", "-c", FIRST_LINE, "first_line", str(CLONE), str(mount), *options]
        run = partial(subprocess.run, command, check=True, env=environment)
        runs.append(seconds(run) * 1e3)
        subprocess.run([CLONE / "mount.sh", "--unmount", mount], check=True, capture_output=True)
    return runs[1:]


def _start(peer: dict[str, float], scratch: Path) -> Iterator[Figure]:
    name = "mount to first line"
    runs = first_line(scratch / "start", RUNS)
    yield of_runs(f"{name} of trace_pipe", runs, "ms", reach=1000, peer=peer[name])


def _raw_rate(mount: Path) -> float:
    """MB a second of RECORDS as pages."""
    _fill(mount, RECORDS)
    path = mount / "per_cpu/cpu0/trace_pipe_raw"
    start = time.perf_counter()
    total = _read_all(path)
    return total / 1e6 / (time.perf_counter() - start)


def _idle(pid: int) -> Iterator[Figure]:
    time.sleep(SETTLING_SECONDS)
    runs = []
    for _ in range(IDLE_RUNS):
        before = _run_ns(pid)
        time.sleep(IDLE_SECONDS)
        runs.append((_run_ns(pid) - before) / IDLE_SECONDS / 1e7)
    yield of_runs("idle, with workload", runs, "% CPU", reach=1.0)
    yield Figure("resident, idle", float(_status(pid, "VmRSS")), "MB", reach=150)


def _mirrored_reading(mount: Path) -> Iterator[Figure]:
    """The reader's system calls run in the guest, too, and they are not traced."""
    _write(mount / "buffer_size_kb", str(BUFFER_KB))
    runs = [_raw_rate(mount) for _ in range(RUNS)]
    name = "trace_pipe_raw, with its system calls in the guest"
    yield of_runs(name, runs, "MB/s", more_is_better=True)


def _reading(peer: dict[str, float], mount: Path) -> Iterator[Figure]:
    _write(mount / "buffer_size_kb", str(BUFFER_KB))
    lines, raw, first, whole = [], [], [], []
    for _ in range(RUNS):
        _fill(mount, RECORDS)
        command = ["sh", "-c", f"cat {mount}/trace_pipe > /dev/null"]
        lines.append(RECORDS / seconds(lambda: subprocess.run(command, check=True)))  # noqa: B023
        raw.append(_raw_rate(mount))
        _fill(mount, RECORDS)
        with (mount / "trace").open("rb", buffering=0) as trace:
            start = time.perf_counter()
            trace.read(4096)
            first.append((time.perf_counter() - start) * 1e3)
        whole.append(seconds(lambda: _read_all(mount / "trace", 1 << 17)) * 1e3)
    more = {"more_is_better": True}
    yield of_runs("trace_pipe", lines, "lines/s", reach=1e6, peer=peer["trace_pipe"], **more)
    yield of_runs("trace_pipe_raw", raw, "MB/s", reach=500, peer=peer["trace_pipe_raw"], **more)
    yield of_runs("trace, 1 M records, first byte", first, "ms", reach=50)
    yield of_runs("trace, 1 M records, whole", whole, "ms", reach=1500, peer=peer["trace, whole"])


def _growth(daemon: MountedDaemon) -> Iterator[Figure]:
    """The daemon's time for ten times as much over ten times its time: 1 is linear."""
    mount, times = daemon.path, {}
    for records in (RECORDS // 100, RECORDS // 10, RECORDS):
        runs = []
        for _ in range(RUNS):
            _fill(mount, records)
            before = _run_ns(daemon.process.pid)
            _read_all(mount / "trace", 1 << 17)
            runs.append(_run_ns(daemon.process.pid) - before)
        times[records] = min(runs)
    for few in (RECORDS // 100, RECORDS // 10):
        growth = times[few * 10] / times[few] / 10
        yield Figure(f"trace, {few:,} → {few * 10:,} records, per record", growth, "x", reach=1.0)


def _instances(mount: Path) -> Iterator[Figure]:
    """One call through as many ops, per op."""
    times: dict[int, float] = {}
    made = 0
    _write(mount / "current_tracer", "nop")
    _write(mount / "set_ftrace_filter", "lcm")
    _write(mount / "buffer_size_kb", "64")
    untraced = seconds(lambda: _write(mount / "emulator/call", f"gcd 4 6 x{CALLS}"))
    for count in GROWTH:
        while made < count:
            instance = mount / f"instances/bench{made}"
            instance.mkdir()
            _write(instance / "buffer_size_kb", "64")
            _write(instance / "set_ftrace_filter", "gcd")
            _write(instance / "current_tracer", "function")
            made += 1
        runs = [
            seconds(lambda: _write(mount / "emulator/call", f"gcd 4 6 x{CALLS}"))
            for _ in range(RUNS)
        ]
        times[count] = (min(runs) - untraced) / CALLS / count * 1e9
        yield Figure(f"a call traced by {count} instances, per instance", times[count], "ns")
    for number in range(made):
        (mount / f"instances/bench{number}").rmdir()


def _memory(daemon: MountedDaemon) -> Iterator[Figure]:
    mount, pid = daemon.path, daemon.process.pid
    _write(mount / "buffer_size_kb", "1408")
    _fill(mount, RECORDS)
    before = _status(pid, "VmRSS")
    _write(mount / "tracing_on", "1")
    _write(mount / "emulator/call", f"gcd 4 6 x{MANY_RECORDS}")
    _write(mount / "tracing_on", "0")
    grown = _status(pid, "VmRSS") - before
    yield Figure(f"resident, growth over {MANY_RECORDS:,} records", float(grown), "MB", reach=1)


def figures(peer: dict[str, float]) -> Iterator[Figure]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        yield from _start(peer, scratch)
        with MountedDaemon(scratch) as daemon:
            yield from _idle(daemon.process.pid)
        with MountedDaemon(scratch, "--cpus", "1") as daemon:
            yield from _mirrored_reading(daemon.path)
        with MountedDaemon(scratch, "--isolated", "--cpus", "1") as daemon:
            yield from _reading(peer, daemon.path)
            yield from _growth(daemon)
            yield from _instances(daemon.path)
        with MountedDaemon(scratch, "--isolated", "--cpus", "1") as daemon:
            yield from _memory(daemon)
