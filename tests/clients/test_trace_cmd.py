"""trace-cmd, as Debian has it."""

from __future__ import annotations

import re

import pytest
from support.clients import Client, require

# 28 bytes a call: twice what a buffer of 64 KB holds.
CALLS = (
    "for i in 1 2 3 4 5 6 7 8 9 10; do"
    ' echo "gcd 12 18 x500" > /sys/kernel/tracing/emulator/call; sleep 0.1;'
    " done"
)
TOUCH = "cat /sys/kernel/tracing/README > /dev/null"


@pytest.fixture(autouse=True)
def installed() -> None:
    require("trace-cmd", "trace-cmd")


def events_of(report: str) -> list[str]:
    return re.findall(r"^ +\S+-\d+ +\[\d+\] +\d+\.\d+: (\S+):", report, re.MULTILINE)


def test_record_of_functions_is_reported_by_their_names(client: Client) -> None:
    report = client(
        "trace-cmd record -p function -l 'vfs_*' sleep 1 >&2; trace-cmd report 2> errors;"
        " cat errors >&2"
    )
    called = re.findall(r": function: +(\S+)", report)
    assert called  # by trace-cmd itself; what it does meanwhile differs from run to run
    assert all(name.startswith("vfs_") for name in called)


def test_record_by_read_instead_of_splice_gives_the_same_kind_of_data(client: Client) -> None:
    report = client(
        "trace-cmd record --nosplice -p function -l 'vfs_*' sleep 1 >&2; trace-cmd report"
    )
    assert set(events_of(report)) == {"function"}


def test_record_of_a_graph_has_entries_and_exits(client: Client) -> None:
    report = client(
        f"trace-cmd record -p function_graph -g vfs_read sh -c '{TOUCH}; sleep 1' >&2;"
        " trace-cmd report"
    )
    assert re.search(r"funcgraph_entry: +\|  vfs_read\(\) \{", report)
    assert set(events_of(report)) == {"funcgraph_entry", "funcgraph_exit"}


def test_record_of_more_than_the_buffer_holds_is_spliced_while_it_runs(client: Client) -> None:
    report = client(
        "trace-cmd record -b 64 -p function -l gcd sh -c '"
        " for i in 1 2 3 4 5 6 7 8 9 10; do"
        '   echo "gcd 12 18 x500" > /sys/kernel/tracing/emulator/call; sleep 0.1;'
        " done' >&2;"
        " trace-cmd report | grep -c 'function: *gcd'"
    )
    assert int(report) == 5000


def test_record_of_scheduler_events(client: Client) -> None:
    report = client("trace-cmd record -e sched sleep 1 >&2; trace-cmd report")
    seen = set(events_of(report))
    assert {"sched_switch", "sched_waking"} <= seen
    assert all(name.startswith("sched_") for name in seen)


def test_start_show_stat_stop_and_reset(client: Client) -> None:
    out = client(
        "cd /sys/kernel/tracing; trace-cmd start -p function -l 'vfs_*' >&2;"
        f" {TOUCH}; trace-cmd stop; cat tracing_on; trace-cmd show | tail -1; trace-cmd stat;"
        " trace-cmd reset; cat current_tracer set_ftrace_filter tracing_on"
    )
    lines = out.splitlines()
    assert lines[0] == "0"
    assert re.search(r": vfs_\w+ <-", lines[1])
    assert "Tracer: function" in lines
    assert "   vfs_read" in lines
    assert lines[-3:] == ["nop", "#### all functions enabled ####", "1"]


def test_list(client: Client) -> None:
    out = client(
        "trace-cmd list -t; trace-cmd list -f '^vfs_read$'; trace-cmd list -e sched_switch;"
        " trace-cmd list -C; trace-cmd list -o | head -1"
    )
    tracers, function, event, clocks, option = out.splitlines()
    assert {"function", "function_graph", "nop"} <= set(tracers.split())
    assert (function, event, option) == ("vfs_read", "sched:sched_switch", "annotate")
    assert clocks.startswith("[local] global counter")


def test_stream_shows_records_while_they_come(client: Client) -> None:
    out = client(f"trace-cmd stream -b 64 -p function -l gcd sh -c '{CALLS}'")
    # What comes at the very end trace-cmd may miss: it reads from its recorders once more, whether
    # they have got so far or not.
    assert len(re.findall(r"function: +gcd$", out, re.MULTILINE)) > 1000
