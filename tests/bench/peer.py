"""The same figures of a real Linux 6.1 under QEMU's TCG, which is what one has without KVM.

The defaults were measured on Debian's 6.1.192 with one vCPU. A text with lines like those of
`DEFAULTS` (`name: number`) takes their place, so that both can be measured on one machine.
"""

from __future__ import annotations

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
1000 names into set_ftrace_filter: 4115
available_filter_functions: 180
mount to first line: 8400
trace_pipe: 166000
trace_pipe_raw: 250
trace, whole: 6900
"""


def peer_figures(path: Path | None = None) -> dict[str, float]:
    """Name -> figure, those of `path` before the defaults."""
    figures: dict[str, float] = {}
    for text in (DEFAULTS, path.read_text() if path is not None else ""):
        for line in text.splitlines():
            name, colon, number = line.rpartition(":")
            if colon:
                figures[name.strip()] = float(number)
    return figures
