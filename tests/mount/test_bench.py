"""Each group of the benchmark runs, with small sizes, and brings what docs/performance.md names."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.daemon import environment
from support.linux_kernel import require_linux
from support.linux_session import switched_on
from support.mounts import ROOT

pytestmark = pytest.mark.timeout(600)

# Group -> row of the document -> the figures it is made of, as regular expressions.
ROWS = {
    "hot_path": {
        "a call with a call site against one without": ["a call with a site / one without"],
        "`function`, one op, added to a call": ["function, one op, added"],
        "the same in untraced calls": ["  in untraced calls"],
        "the same against a writer wholly in line, whose clock stands still": [
            "  of a writer wholly in line"
        ],
        "against such a writer that reads the clock": ["  of one that reads the clock"],
        "1,000 functions, in untraced calls": [r"1000 functions, added", "  in untraced calls"],
        "`tracing_on` 0, of the traced cost": ["  of the traced cost"],
        "`function`, one op, called as in Linux": ["function, called, added"],
        "two ops against one that is called": ["  of one op, called"],
        "`function_graph` against `function`, called": ["  of function, called"],
    },
    "patching": {
        "`function` on everywhere, 40,000 functions": ["function on everywhere"],
        "and off again": ["function off everywhere"],
        "a glob into `set_ftrace_filter` there": ["glob into set_ftrace_filter"],
        "1,000 names into it": ["1000 names into set_ftrace_filter"],
        "`cat available_filter_functions` there": ["cat available_filter_functions"],
    },
    "output": {},
    "mount": {
        "mount to the first line of `trace_pipe`": ["mount to first line of trace_pipe"],
        "`trace_pipe`, lines a second": ["trace_pipe"],
        "`trace_pipe_raw`, 64 KiB reads": ["trace_pipe_raw"],
        "`trace` of 1 M records, first byte": ["trace, 1 M records, first byte"],
        "`trace` of 1 M records, all of it": ["trace, 1 M records, whole"],
        "ten times the records, per record": [
            r"trace, 100 → 1,000 .*",
            "trace, 1,000 → 10,000 .*",
        ],
        "a call traced by 1, 8, 32 instances, per instance": [
            rf"a call traced by {count} instances, per instance" for count in (1, 8, 32)
        ],
        "idle, with its workload": ["idle, with workload"],
        "resident when idle; more after 100 M records": [
            "resident, idle",
            r"resident, growth over [\d,]+ records",
        ],
    },
    "linux": {
        "mount to the first line of `trace_pipe`": ["Linux: mount to first line of trace_pipe"],
        "`function`, added for each record of a read and a write": [
            "Linux: a read and a write",
            "Linux: function, one op, added",
        ],
        "`function_graph`, added for each call": ["Linux: function_graph, added"],
        "`function`, added to a call in a loop": ["Linux, a loop: function, one op, added"],
        "`function_graph`, added there": ["Linux, a loop: function_graph, added"],
        "`function` on everywhere, 35,609 functions, under load": ["Linux: function on everywhere"],
        "and off again": ["Linux: function off everywhere"],
    },
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This checkout with an environment whose Python is the one that runs the tests."""
    clone = tmp_path / "clone"
    clone.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in (".git", ".venv"):
            (clone / entry.name).symlink_to(entry)
    python = clone / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    stamp = f"{clone}\n{(ROOT / 'pyproject.toml').read_text()}"
    (clone / ".venv/ftracefs-stamp").write_text(stamp)
    return clone


def run(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "tests/bench/run.sh", *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
    )


def check(clone: Path, group: str) -> None:
    """The table and the JSON have the same figures, among them those of every row."""
    done = run(clone, "--quick", "--json", str(clone / "figures.json"), group)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads((clone / "figures.json").read_text())
    assert list(found["host"]["load"]) == [group]
    names = [figure["name"] for figure in found["figures"]]
    for figure in found["figures"]:
        assert math.isfinite(figure["value"]), figure
        assert figure["best"] is None or math.isfinite(figure["best"]), figure
    head, titles, *lines = done.stdout.rstrip("\n").split("\n")
    assert head.startswith(f"== {group}, load ")
    assert titles.split()[:3] == ["figure", "median", "best"]
    assert [line[: len(name)] for line, name in zip(lines, names, strict=True)] == names
    for row, wanted in ROWS[group].items():
        for pattern in wanted:
            assert any(re.fullmatch(pattern, name) for name in names), (row, pattern, names)


@pytest.mark.parametrize("group", ["hot_path", "patching", "output"])
def test_a_group_without_a_mount(clone: Path, group: str) -> None:
    check(clone, group)


def test_the_mounts(fuse: None, clone: Path) -> None:
    check(clone, "mount")


def test_a_linux(fuse: None, clone: Path) -> None:
    require_linux()
    with switched_on():
        pass  # or it is skipped, there being no shell
    check(clone, "linux")


def test_every_row_of_the_document_is_a_groups() -> None:
    text = (ROOT / "docs/performance.md").read_text()
    figures = text.partition("\n## Figures\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| ", figures, re.MULTILINE)
    named = [row for rows in ROWS.values() for row in rows]
    assert sorted(row for row in rows if row != "figure") == sorted(named)


def test_another_group_is_refused(clone: Path) -> None:
    done = run(clone, "no_such_group")
    assert done.returncode == 2
    assert "no group 'no_such_group'" in done.stderr
