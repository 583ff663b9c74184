"""Scripts of perf-tools, as Debian has them."""

from __future__ import annotations

import re

import pytest
from support.clients import Client, require

TOUCH = "(for i in 1 2 3 4 5 6; do cat /sys/kernel/tracing/README; sleep 0.25; done) > /dev/null &"


@pytest.fixture(autouse=True)
def installed() -> None:
    require("functrace-perf", "perf-tools-unstable")


def test_functrace(client: Client) -> None:
    out = client(f"{TOUCH} functrace-perf -d 1 'vfs_*'; wait")
    assert re.search(r": vfs_read <-ksys_read$", out, re.MULTILINE)


def test_funccount(client: Client) -> None:
    out = client(f"{TOUCH} funccount-perf -d 1 'vfs_r*'; wait")
    assert int(re.findall(r"^vfs_read +(\d+)$", out, re.MULTILINE)[0]) > 0


def test_funcgraph(client: Client) -> None:
    out = client(f"{TOUCH} funcgraph-perf -d 1 vfs_read; wait")
    assert re.search(r"^ \d\).* \|  vfs_read\(\) \{$", out, re.MULTILINE)


def test_funcslower(client: Client) -> None:
    out = client(f"{TOUCH} funcslower-perf -d 1 vfs_read 1; wait")
    assert re.search(r"^ \d\) +\S? *[\d.]+ us .*vfs_read", out, re.MULTILINE)
