"""Who makes a list of many files, and who does not any more."""

from __future__ import annotations

import pytest

from ftracefs.files.base import Caller, Directory, OpenFile, Text, TracefsFile
from ftracefs.mount.listings import Listings

LISTER, OTHER = 100, 200


class Long(TracefsFile):
    """One whose size takes long to tell."""

    mode = 0o440
    size_in_list = 4096

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return Text("")


class Plain(Long):
    size_in_list = None


@pytest.fixture
def clock() -> list[float]:
    """What it is o'clock."""
    return [1000.0]


@pytest.fixture
def listing(clock: list[float]) -> Listings:
    """LISTER has looked at many files, and does so still."""
    listing = Listings(lambda: clock[0])
    told = [listing.looks(LISTER, f"text/{number}", Long()) for number in range(300)]
    assert told == [False] * 100 + [True] * 200
    return listing


def test_who_lists_is_answered_so_along_the_path_too(listing: Listings) -> None:
    for name in ("", "text"):
        assert listing.looks(LISTER, name, Directory({}))
        assert not listing.looks(OTHER, name, Directory({}))
    assert not listing.looks(LISTER, "tex", Directory({}))
    assert not listing.looks(LISTER, "text/trace", Plain())
    assert not listing.looks(OTHER, "text/1", Long())


def test_who_opens_a_file_lists_no_more(listing: Listings) -> None:
    listing.opened(LISTER)
    assert not listing.looks(LISTER, "text/1", Long())


def test_a_pid_that_may_be_anothers_by_now_inherits_nothing(
    listing: Listings, clock: list[float]
) -> None:
    clock[0] += 0.9
    assert listing.looks(LISTER, "text/1", Long())
    clock[0] += 1.1
    assert not listing.looks(LISTER, "text", Directory({}))
    assert not listing.looks(LISTER, "text/1", Long())
