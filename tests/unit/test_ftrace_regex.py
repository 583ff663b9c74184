"""Patterns over function names, against a matcher written the slow way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftracefs.ftrace.regex import (
    FtraceGlob,
    NameTable,
    RegexType,
    filter_parse_regex,
    ftrace_match,
    glob_expression,
)

FULL, FRONT, MIDDLE, END, GLOB, INDEX = (
    RegexType.MATCH_FULL,
    RegexType.MATCH_FRONT_ONLY,
    RegexType.MATCH_MIDDLE_ONLY,
    RegexType.MATCH_END_ONLY,
    RegexType.MATCH_GLOB,
    RegexType.MATCH_INDEX,
)


@pytest.mark.parametrize(
    ("pattern", "kind", "search", "negated"),
    [
        ("vfs_read", FULL, "vfs_read", False),
        ("!vfs_read", FULL, "vfs_read", True),
        ("vfs_*", FRONT, "vfs_", False),
        ("*_read", END, "_read", False),
        ("*vfs*", MIDDLE, "vfs", False),
        ("*", END, "", False),
        ("**", MIDDLE, "", False),
        ("***", GLOB, "***", False),
        ("!*", END, "", True),
        ("v*fs_read", GLOB, "v*fs_read", False),
        ("*v*f*", GLOB, "*v*f*", False),
        ("vfs_rea?", GLOB, "vfs_rea?", False),
        ("vfs_?*", GLOB, "vfs_?*", False),
        ("[ab]*", GLOB, "[ab]*", False),
        (r"vfs_re\ad", GLOB, r"vfs_re\ad", False),
        ("12", INDEX, "12", False),
        ("!1abc", INDEX, "1abc", True),
        ("", FULL, "", False),
        ("!", FULL, "", True),
        ("!!a", FULL, "!a", True),
    ],
)
def test_a_pattern_is_classified(pattern: str, kind: RegexType, search: str, negated: bool) -> None:
    assert filter_parse_regex(pattern.encode()) == (FtraceGlob(kind, search.encode()), negated)


# What Linux 6.1 answered for patterns that are easily got wrong.
@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("vfs_[!rw]*", "vfs_open", True),
        ("vfs_[!rw]*", "vfs_read", False),
        ("vfs_[^rw]*", "vfs_read", True),
        ("vfs_[^rw]*", "vfs_open", False),
        ("vfs_re[a-]d", "vfs_read", True),
        ("vfs_re[b-a]d", "vfs_read", False),
        ("vfs_re[^b]d", "vfs_read", False),
        ("[]v]fs_read", "vfs_read", True),
        ("[v]fs_read", "vfs_read", True),
        ("vfs_read[", "vfs_read", False),
        ("[ab", "a", False),
        ("vfs_[!", "vfs_a", False),
        (r"vfs_re\*d", "vfs_read", False),
        (r"vfs_re\ad", "vfs_read", True),
        ("vfs_r**d", "vfs_read", True),
        ("vfs.read", "vfs_read", False),
        ("^vfs_read", "vfs_read", False),
        ("VFS_read", "vfs_read", False),
        ("?", "v", True),
        ("?", "", False),
        ("?", "vf", False),
    ],
)
def test_a_pattern_matches_as_in_linux(pattern: str, name: str, matches: bool) -> None:
    glob, _ = filter_parse_regex(pattern.encode())
    assert ftrace_match(name.encode(), glob) is matches
    table = NameTable([b"\xff", name.encode(), b"\xff"])
    assert 1 in table.match(glob) or not matches
    assert table.match(glob).tolist() == [
        n for n, one in enumerate([b"\xff", name.encode(), b"\xff"]) if ftrace_match(one, glob)
    ]


def test_a_number_matches_no_name() -> None:
    glob, _ = filter_parse_regex(b"9p")
    assert not ftrace_match(b"9p", glob)


def element(pattern: bytes) -> tuple[bytes | None, bool, int]:
    """A pattern's first element: characters it takes (None: all), inverted?, its length."""
    if pattern[:1] == b"?":
        return None, False, 1
    if pattern[:1] == b"\\":
        return pattern[1:2], False, 2
    if pattern[:1] != b"[":
        return pattern[:1], False, 1
    inverted = pattern[1:2] == b"!"
    at = 2 if inverted else 1
    taken = bytearray()
    while True:
        low = pattern[at : at + 1]
        if not low:
            return b"[", False, 1
        at += 1
        high = low
        if pattern[at : at + 1] == b"-" and pattern[at + 1 : at + 2] != b"]":
            high = pattern[at + 1 : at + 2]
            if not high:
                return b"[", False, 1
            at += 2
        taken += bytes(range(low[0], high[0] + 1))
        if pattern[at : at + 1] == b"]":
            return bytes(taken), inverted, at + 1


def slow_match(pattern: bytes, name: bytes) -> bool:
    """A glob by recursion over all ways a star can go."""
    if not pattern:
        return not name
    if pattern[:1] == b"*":
        return any(slow_match(pattern[1:], name[i:]) for i in range(len(name) + 1))
    taken, inverted, size = element(pattern)
    if pattern[:1] == b"\\" and not taken:
        return not name
    if not name:
        return False
    if taken is not None and (name[0] in taken) is inverted:
        return False
    return slow_match(pattern[size:], name[1:])


NAMES = st.text("ab_[]-!\\", min_size=1, max_size=6).map(str.encode)
PATTERNS = st.text("ab_*?[]-!\\", max_size=9).map(str.encode)


@given(PATTERNS, st.lists(NAMES, max_size=8))
def test_globs_match_what_the_slow_matcher_matches(pattern: bytes, names: list[bytes]) -> None:
    glob = FtraceGlob(GLOB, pattern)
    expected = [slow_match(pattern, name) for name in names]
    if pattern:
        assert [ftrace_match(name, glob) for name in names] == expected
        assert NameTable(names).match(glob).tolist() == [n for n, e in enumerate(expected) if e]


@given(PATTERNS.filter(lambda p: not p.startswith(b"!")), st.lists(NAMES, max_size=8))
def test_the_short_kinds_match_what_a_glob_would(pattern: bytes, names: list[bytes]) -> None:
    glob, _ = filter_parse_regex(pattern)
    if pattern:
        expected = [n for n, name in enumerate(names) if slow_match(pattern, name)]
        assert NameTable(names).match(glob).tolist() == expected


def test_many_stars_stay_cheap() -> None:
    pattern = b"*a" * 40 + b"b"
    names = [b"a" * 80] * 200
    assert not len(NameTable(names).match(FtraceGlob(GLOB, pattern)))
    assert b"(?>" in glob_expression(pattern)
