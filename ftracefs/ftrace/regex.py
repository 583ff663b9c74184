"""Patterns over function names: filter_parse_regex and glob_match.

Models filter_parse_regex (kernel/trace/trace_events_filter.c), ftrace_match (kernel/trace/ftrace.c)
and lib/glob.c. A pattern becomes a regular expression over all names joined into one text, so that
a glob over 40,000 names is one scan in C.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

import numpy as np
import numpy.typing as npt

_ANY = rb"[^\n]"
_LINE_END = rb"(?=\n)"


class RegexType(Enum):
    """How a pattern is compared (enum regex_type)."""

    MATCH_FULL = auto()
    MATCH_FRONT_ONLY = auto()
    MATCH_MIDDLE_ONLY = auto()
    MATCH_END_ONLY = auto()
    MATCH_GLOB = auto()
    MATCH_INDEX = auto()


@dataclass(frozen=True, slots=True)
class FtraceGlob:
    """A parsed pattern; an empty `search` with MATCH_FULL is "no name given"."""

    type: RegexType
    search: bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to compare: `*`, or no pattern at all."""
        return not self.search


def filter_parse_regex(pattern: bytes) -> tuple[FtraceGlob, bool]:
    """Classify a pattern; the second value tells whether it began with `!`."""
    negated = pattern.startswith(b"!")
    if negated:
        pattern = pattern[1:]
    if pattern[:1].isdigit():
        return FtraceGlob(RegexType.MATCH_INDEX, pattern), negated
    if any(c in pattern for c in (b"[", b"?", b"\\")):
        # A leading star is the only thing that may come first: everything else is a full glob, and
        # a star at the end is found before these only when it is the last character.
        return FtraceGlob(RegexType.MATCH_GLOB, pattern), negated
    front = pattern.startswith(b"*")
    end = len(pattern) > 1 and pattern.endswith(b"*")
    search = pattern[1 if front else 0 : -1 if end else None]
    if b"*" in search:
        return FtraceGlob(RegexType.MATCH_GLOB, pattern), negated
    kind = {
        (False, False): RegexType.MATCH_FULL,
        (False, True): RegexType.MATCH_FRONT_ONLY,
        (True, False): RegexType.MATCH_END_ONLY,
        (True, True): RegexType.MATCH_MIDDLE_ONLY,
    }[front, end]
    return FtraceGlob(kind, search), negated


def _character_class(pattern: bytes, at: int) -> tuple[bytes, int] | None:
    """The class that opens at `at` as a regular expression and where it ends; None: a plain `[`.

    As in lib/glob.c `!` inverts, a `]` that comes first is a member, so is a backslash, and a class
    that never closes is none.
    """
    inverted = pattern[at + 1 : at + 2] == b"!"
    position = at + 2 if inverted else at + 1
    members: set[int] = set()
    first = True
    while first or pattern[position : position + 1] != b"]":
        first = False
        low = pattern[position : position + 1]
        if not low:
            return None
        position += 1
        high = low
        if (
            pattern[position : position + 1] == b"-"
            and pattern[position + 1 : position + 2] != b"]"
        ):
            high = pattern[position + 1 : position + 2]
            if not high:
                return None
            position += 2
        members.update(range(low[0], high[0] + 1))
    if inverted:
        members = set(range(256)) - members
    members.discard(0x0A)
    body = b"".join(b"\\x%02x" % m for m in sorted(members))
    return (b"[" + body + b"]" if body else b"(?!)"), position + 1


def _segments(pattern: bytes) -> list[bytes]:
    """The stretches between stars; every element of a stretch matches exactly one character."""
    segments = [b""]
    at = 0
    while at < len(pattern):
        character = pattern[at : at + 1]
        at += 1
        if character == b"*":
            segments.append(b"")
            continue
        element = re.escape(character)
        if character == b"?":
            element = _ANY
        elif character == b"[":
            parsed = _character_class(pattern, at - 1)
            if parsed is not None:
                element, at = parsed
        elif character == b"\\":
            element = re.escape(
                pattern[at : at + 1]
            )  # at the end of the pattern: the end of the name
            at += 1
        segments[-1] += element
    return segments


def glob_expression(pattern: bytes) -> bytes:
    """A glob as a regular expression for a line, from the line break in front of it.

    Only the last star ever needs to be reconsidered, since each stretch has a fixed length: the
    others take their first match for good (atomic groups), which keeps a match linear.
    """
    segments = _segments(pattern)
    if len(segments) == 1:
        return b"\n" + segments[0] + _LINE_END
    middle = b"".join(b"(?>%s*?%s)" % (_ANY, s) for s in segments[1:-1] if s)
    last = _ANY + b"*" + segments[-1] + _LINE_END if segments[-1] else b""
    return b"\n" + segments[0] + middle + last


@lru_cache(maxsize=64)
def _line_matcher(glob: FtraceGlob) -> re.Pattern[bytes]:
    """A regular expression that hits each matching line of a text once."""
    literal = re.escape(glob.search)
    expression = {
        RegexType.MATCH_FULL: b"\n" + literal + _LINE_END,
        RegexType.MATCH_FRONT_ONLY: b"\n" + literal,
        RegexType.MATCH_MIDDLE_ONLY: literal + _ANY + b"*",
        RegexType.MATCH_END_ONLY: literal + _LINE_END,
    }.get(glob.type)
    if glob.type is RegexType.MATCH_INDEX:
        expression = b"(?!)"  # a number is no pattern: as a module's name it matches none
    if expression is None:
        expression = glob_expression(glob.search)
    return re.compile(expression)


def ftrace_match(name: bytes, glob: FtraceGlob) -> bool:
    """Whether one name matches."""
    if glob.is_empty:
        return glob.type is not RegexType.MATCH_FULL or not name
    line = b"\n" + name + b"\n"
    return b"\n" not in glob.search and _line_matcher(glob).search(line) is not None


class NameTable:
    """Many names, searched at once."""

    def __init__(self, names: Sequence[bytes]) -> None:
        self.count = len(names)
        self._text = b"\n" + b"\n".join(names) + b"\n"
        lengths = np.fromiter(map(len, names), dtype=np.int64, count=self.count)
        self._starts = np.cumsum(lengths + 1) - (lengths + 1)  # of the line break in front of each
        self._numbers: dict[bytes, list[int]] = {}
        for number, name in enumerate(names):
            self._numbers.setdefault(name, []).append(number)

    def match(self, glob: FtraceGlob) -> npt.NDArray[np.intp]:
        """The numbers of the names that match `glob`, ascending."""
        if glob.type is RegexType.MATCH_FULL:
            return np.array(self._numbers.get(glob.search, []), dtype=np.intp)
        if glob.is_empty:
            return np.arange(self.count)
        if b"\n" in glob.search or not self.count:
            return np.zeros(0, dtype=np.intp)
        end = len(self._text) - 1  # no name begins with the last line break
        hits = [m.start() for m in _line_matcher(glob).finditer(self._text) if m.start() < end]
        return np.searchsorted(self._starts, np.array(hits, dtype=np.int64), "right") - 1
