"""The recorded scripts as a whole: our text is the recorded one but for what is listed with it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from support.clients import require
from support.differences import PATTERNS
from support.recorded_scripts import SCRIPTS, RecordedScript

NAMES = sorted(path.stem for path in SCRIPTS.glob("*.bash"))
SLOWEST = ("2-formats", "7-lost", "4-filter")
DOCUMENT = SCRIPTS.parents[2] / "docs/differences.md"
SECTION = "## In the recorded scripts\n"

# Of these nothing is compared at all.
ANYTHING = re.compile(r"not there yet: |kernel modules: |what the host says|`README`")

Texts = dict[str, "Future[list[str]]"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Texts]:
    """What each script gets from a mount of its own. They sleep much: three at a time."""
    require("gcc", "gcc")
    with ThreadPoolExecutor(3) as pool:
        yield {
            name: pool.submit(RecordedScript(name).run, tmp_path_factory.mktemp(name))
            for name in (*SLOWEST, *(name for name in NAMES if name not in SLOWEST))
            if name != "6-extra" or has_two_cpus_of_root()
        }


def has_two_cpus_of_root() -> bool:
    """Whether a program can be put on the CPUs 0 and 1 and play nobody, as one script does."""
    return os.geteuid() == 0 and {0, 1} <= os.sched_getaffinity(0)


@pytest.mark.oracle
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_script_gets_the_recorded_text(name: str, texts: Texts) -> None:
    if name not in texts:
        pytest.skip("needs root and the CPUs 0 and 1")
    script = RecordedScript(name)
    unexpected = script.differences.unexpected(script.recorded, texts[name].result())
    assert not unexpected, f"\n{unexpected}"


def documented() -> dict[str, set[str]]:
    """What docs/differences.md says, by script."""
    table = DOCUMENT.read_text().split(SECTION)[1].split("\n## ")[0].split("|---|---|\n")[1]
    reasons: dict[str, set[str]] = {name: set() for name in NAMES}
    for reason, names in re.findall(r"^\| (.+) \| ([\w, ]+) \|$", table, flags=re.M):
        for name in names.split(", "):
            reasons[next(full for full in NAMES if full.endswith(name))].add(reason)
    return reasons


def test_the_document_names_every_difference() -> None:
    assert documented() == {name: RecordedScript(name).differences.reasons for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_anything_goes_only_where_nothing_is_there_yet(name: str) -> None:
    loose = {
        hunk.reason
        for hunk in RecordedScript(name).differences.hunks
        if any(line[1:] == ".*" for line in hunk.with_prefix(PATTERNS))
    }
    assert [reason for reason in loose if not ANYTHING.match(reason)] == []
