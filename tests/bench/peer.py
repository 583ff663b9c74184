"""The same figures of a real Linux 6.1 under QEMU's TCG, which is what one has without KVM.

The defaults were measured on Debian's 6.1.192 with one vCPU. A text takes their place, so that both
can be measured on one machine: lines like those of `DEFAULTS`, or what measured it in that Linux
printed, of which the first machine counts:

    echo function > current_tracer, no filter    best  2004.383 ms
    function vfs_read    calls=200000 best_ns=1576.4
    trace_pipe, 65536:   bytes=14400232 lines=200003 sec=1.273 MB/s=11.3 lines/s=157074
"""

from __future__ import annotations

import re
from pathlib import Path

DEFAULTS = """
function, one op, added: 725
function, all functions, added: 420
tracing_on=0, added: 220
function_graph, added: 1785
function on everywhere: 2008
function off everywhere: 1863
function_graph on everywhere: 5130
function_graph off everywhere: 2108
glob into set_ftrace_filter: 46.8
1000 names into set_ftrace_filter: 42863
available_filter_functions: 180
mount to first line: 8400
trace_pipe: 166000
trace_pipe_raw: 250
trace, whole: 6900
"""

_COMMANDS = {
    "function on everywhere": "echo function > current_tracer, no filter",
    "function off everywhere": "echo nop > current_tracer, from unfiltered function",
    "function_graph on everywhere": "echo function_graph > current_tracer, no filter",
    "function_graph off everywhere": "echo nop > current_tracer, from unfiltered function_graph",
    "glob into set_ftrace_filter": "echo 'vfs_*' > set_ftrace_filter (nop)",
    "available_filter_functions": "cat available_filter_functions >/dev/null",
}
_CALLS = {
    "function, one op, added": "function vfs_read",
    "tracing_on=0, added": "function vfs_read, tracing_on=0",
    "function_graph, added": "function_graph vfs_read (filter, 2 recs/call)",
}
_STATS = r"calls=(\d+) best_ns=([\d.]+).*\n +entries: (\d+)\n +overrun: (\d+)"
_NAMES = r"\d+ names > set_ftrace_filter +best +([\d.]+) ms.*\n +in filter: (\d+)"
_MACHINE = re.compile("^##### -smp ", re.MULTILINE)


def peer_figures(path: Path | None = None) -> dict[str, float]:
    """Name -> figure, those of `path` before the defaults.

    Raises ValueError for a text of another form.
    """
    figures = _named(DEFAULTS)
    if path is None:
        return figures
    text = path.read_text()
    machines = _MACHINE.split(text)
    found = _measured(machines[1]) if len(machines) > 1 else _named(text)
    if not found or not found.keys() <= figures.keys():
        raise ValueError("no figures of a peer")
    return figures | found


def _named(text: str) -> dict[str, float]:
    lines = (line.rpartition(":") for line in text.splitlines())
    return {name.strip(): float(number) for name, colon, number in lines if colon}


def _measured(log: str) -> dict[str, float]:
    def numbers(line: str, rest: str) -> list[float]:
        found = re.search(f"^{re.escape(line)} *{rest}", log, re.MULTILINE)
        if found is None:
            raise ValueError(f"the peer's figures have no line {line!r} as expected")
        return [float(number) for number in found.groups()]

    def calls(line: str) -> float:
        return numbers(line, r"calls=\d+ best_ns=([\d.]+)")[0]

    def read(line: str, what: str) -> float:
        return numbers(line, rf"bytes=.*\b{what}=([\d.]+)")[0]

    untraced = calls("nop")
    figures = {name: numbers(line, r"best +([\d.]+) ms")[0] for name, line in _COMMANDS.items()} | {
        name: calls(line) - untraced for name, line in _CALLS.items()
    }
    count, traced, *records = numbers("function, unfiltered", _STATS)
    figures["function, all functions, added"] = (traced - untraced) / (sum(records) / count)
    milliseconds, names = numbers("cat ", _NAMES)
    figures["1000 names into set_ftrace_filter"] = milliseconds / names * 1000
    figures["mount to first line"] = 1000 * numbers("-- boot:", r".*: ([\d.]+) s")[0]
    pipes = ("trace_pipe, 65536:", "per_cpu/cpu0/trace_pipe, 65536:")
    figures["trace_pipe"] = max(read(line, "lines/s") for line in pipes)
    figures["trace_pipe_raw"] = read("trace_pipe_raw, 65536:", "MB/s")
    figures["trace, whole"] = 1e9 / read("trace, 65536:", "lines/s")
    return figures
