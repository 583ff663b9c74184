"""What the benchmarks compare with is read from what a measurement of it printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.peer import peer_figures

LOG = """\
# host: 2 cpus, QEMU emulator version 7.2.22 (Debian 1:7.2), TCG, load 0.21

##### -smp 1
echo function > current_tracer, no filter                  best   2000.000 ms   (runs us: 1)
echo nop > current_tracer, from unfiltered function        best   1900.000 ms   (runs us: 1)
echo function_graph > current_tracer, no filter            best   5000.000 ms   (runs us: 1)
echo nop > current_tracer, from unfiltered function_graph  best   2100.000 ms   (runs us: 1)
echo 'vfs_*' > set_ftrace_filter (nop)                     best     48.000 ms   (runs us: 1)
cat 99 names > set_ftrace_filter                           best   5000.000 ms   (runs us: 1)
   in filter: 100
cat available_filter_functions >/dev/null                  best    180.000 ms   (runs us: 1)
nop                                            calls=200000 best_ns=800.0 mean_ns=827.0
nop (again)                                    calls=200000 best_ns=700.0 mean_ns=821.2
function vfs_read, tracing_on=0                calls=200000 best_ns=1000.0 mean_ns=1048.5
function vfs_read                              calls=200000 best_ns=1500.0 mean_ns=1593.4
   entries: 51253
   overrun: 148770
function_graph vfs_read (filter, 2 recs/call)  calls=200000 best_ns=2600.0 mean_ns=2654.5
function, unfiltered                           calls=20000 best_ns=10800.0 mean_ns=12946.1
   entries: 40000
   overrun: 460000
per_cpu/cpu0/trace_pipe, 65536:  bytes=1 lines=2 reads=3 sec=1.2 MB/s=11.7 lines/s=162000 end=x
trace_pipe, 65536:               bytes=1 lines=2 reads=3 sec=1.3 MB/s=11.3 lines/s=157000 end=x
trace, 65536:                    bytes=1 lines=2 reads=3 sec=1.4 MB/s=10.0 lines/s=125000 end=EOF
trace_pipe_raw, 65536:           bytes=1 lines=2 reads=3 sec=0.02 MB/s=247.5 lines/s=14 end=x
-- boot: qemu start to usable tracefs: 7.67 s host time

##### -smp 2
function vfs_read                              calls=200000 best_ns=9999.0 mean_ns=1593.4
"""
MEASURED = {
    "function, one op, added": 700,
    "function, all functions, added": 400,
    "tracing_on=0, added": 200,
    "function_graph, added": 1800,
    "function on everywhere": 2000,
    "function off everywhere": 1900,
    "function_graph on everywhere": 5000,
    "function_graph off everywhere": 2100,
    "glob into set_ftrace_filter": 48,
    "1000 names into set_ftrace_filter": 50000,
    "available_filter_functions": 180,
    "mount to first line": 7670,
    "trace_pipe": 162000,
    "trace_pipe_raw": 247.5,
    "trace, whole": 8000,
}


def test_a_measurements_own_text_gives_every_figure(tmp_path: Path) -> None:
    path = tmp_path / "peer.txt"
    path.write_text(LOG)
    assert peer_figures(path) == pytest.approx(MEASURED)
    assert peer_figures().keys() == MEASURED.keys()


def test_single_figures_take_the_defaults_place(tmp_path: Path) -> None:
    path = tmp_path / "peer.txt"
    path.write_text("trace_pipe: 17\n")
    assert peer_figures(path) == peer_figures() | {"trace_pipe": 17}


@pytest.mark.parametrize("text", ["", "nothing\n", "a name: 1\n", "trace_pipe: many\n"])
def test_another_text_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "peer.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"no figures|to float"):
        peer_figures(path)


def test_a_text_that_lacks_a_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "peer.txt"
    path.write_text(LOG.replace("cat 99 names", "dog 99 names"))
    with pytest.raises(ValueError, match="no line 'cat '"):
        peer_figures(path)
