"""Of which directories the host's kernel may keep the names for a moment."""

from __future__ import annotations

import pytest

from ftracefs.files.base import Directory, TracefsFile
from ftracefs.mount import walks
from ftracefs.mount.walks import Walks

ME, OTHER = 7, 8
MANY = 60
FILE, DIRECTORY = TracefsFile(), Directory()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(walks, "time", clock)
    return clock


def go_through(walks: Walks, clock: Clock, count: int = MANY) -> None:
    for number in range(count):
        clock.now += 0.005
        assert walks.looks_up(ME, f"events/sched/x{number}/format", FILE) == 0


def test_nothing_is_kept_of_who_looks_at_few_files(clock: Clock) -> None:
    walks = Walks()
    go_through(walks, clock, 10)
    assert walks.looks_up(ME, "events", DIRECTORY) == 0
    assert walks.looks_up(OTHER, "events", DIRECTORY) == 0


def test_all_that_is_kept_ends_at_the_same_moment(clock: Clock) -> None:
    walks = Walks()
    go_through(walks, clock)
    first = clock.now + walks.looks_up(ME, "events", DIRECTORY)
    assert first > clock.now
    clock.now += 0.02
    assert clock.now + walks.looks_up(ME, "events/sched", DIRECTORY) == pytest.approx(first)
    go_through(walks, clock)
    assert clock.now > first
    assert clock.now + walks.looks_up(ME, "events", DIRECTORY) > first


def test_who_has_paused_begins_again(clock: Clock) -> None:
    walks = Walks()
    go_through(walks, clock)
    clock.now += 1
    assert walks.looks_up(ME, "events", DIRECTORY) == 0
    go_through(walks, clock, 10)
    assert walks.looks_up(ME, "events", DIRECTORY) == 0


@pytest.mark.parametrize("path", ["instances", "instances/a", "instances/a/events"])
def test_what_may_go_is_not_kept(clock: Clock, path: str) -> None:
    walks = Walks()
    go_through(walks, clock)
    assert walks.looks_up(ME, path, DIRECTORY) == 0


def test_when_all_is_forgotten_nothing_is_kept_any_more(clock: Clock) -> None:
    walks = Walks()
    go_through(walks, clock)
    until = clock.now + walks.looks_up(ME, "events", DIRECTORY)
    walks.forget()
    assert clock.now > until
    assert walks.looks_up(ME, "events", DIRECTORY) == 0
