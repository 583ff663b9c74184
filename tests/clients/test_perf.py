"""perf ftrace, as Debian has it."""

from __future__ import annotations

import re

import pytest
from support.clients import Client, require

TOUCH = "cat /sys/kernel/tracing/README"


@pytest.fixture(autouse=True)
def installed() -> None:
    require("perf", "linux-perf")


def test_the_function_tracer_streams_to_its_end(client: Client) -> None:
    out = client(f"perf ftrace -a -T 'vfs_*' -- sh -c '{TOUCH} > /dev/null; sleep 1'")
    assert out.startswith("# tracer: function\n")
    called = re.findall(r": (\w+) <-\w+$", out, re.MULTILINE)
    assert {"vfs_open", "vfs_read"} <= set(called)
    assert all(name.startswith("vfs_") for name in called)


def test_the_graph_tracer(client: Client) -> None:
    out = client(f"perf ftrace -t function_graph -a -G vfs_read -- {TOUCH}")
    assert re.search(r"^ \d\).* \|  vfs_read\(\) \{$", out, re.MULTILINE)


def test_latency_counts_the_calls(client: Client) -> None:
    out = client(
        f"perf ftrace latency -a -T vfs_read -- sh -c '{TOUCH}; {TOUCH}; sleep 1' | tail -25"
    )
    counts = re.findall(r"^ +\d+ +- +\S+ +\w+ \| +(\d+) \|", out, re.MULTILINE)
    assert sum(map(int, counts)) >= 4
