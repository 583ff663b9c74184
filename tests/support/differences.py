"""In what a text may differ from the recorded one: a list of entries, each with its reason.

    = REASON
    s/REGEX/                                what it finds in a line is not compared
    -/REGEX/                                lines that only the recording has
    +/REGEX/                                lines that only we have

All other entries are about one place, and stand in the order of the places:

    @ REASON
     a line of both texts                   to tell the place where the lines below would not
    -a line of the recording
    -...                                    all of its lines up to the next line here, or to the
                                            end of the section
    +a line that we give instead
    ?REGEX                                  lines of ours that it matches as a whole, at least one
    ~REGEX                                  the same, where it may as well be those of the recording
    *REGEX                                  the same, where there may be none at all

Texts agree when the recording, changed in every one of these places, is the other text. So a
difference that is not listed shows, and so does an entry that is no difference any more.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

REST = "..."
PATTERNS = "?~*"  # with which a line begins that is one
MAY_AGREE = "~*"
SHOWN = 60  # lines
SECTION = ("==> ", "### ")  # how its first line begins


@dataclass(frozen=True, slots=True)
class Rule:
    """What is left out of every line, or of all lines."""

    reason: str
    kind: str  # s - or +
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Hunk:
    """What is there instead of some lines of the recording."""

    reason: str
    number: int  # of its first line
    lines: tuple[str, ...] = ()

    def with_prefix(self, prefixes: str) -> Iterator[str]:
        return (line for line in self.lines if line[0] in prefixes)

    @property
    def may_agree(self) -> bool:
        return any(self.with_prefix(MAY_AGREE))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A line that is to come, or some lines of a pattern."""

    line: str
    pattern: re.Pattern[str] | None = None
    hunk: Hunk | None = None
    may_be_none: bool = False

    def __str__(self) -> str:
        return f"?{self.line}" if self.pattern else self.line

    def is_it(self, line: str) -> bool:
        return bool(self.pattern.fullmatch(line)) if self.pattern else self.line == line


@dataclass(frozen=True, slots=True)
class Changed:
    """The recording with every hunk applied."""

    wanted: list[Wanted]
    recorded: dict[Hunk, list[str]]  # what stood in the place of each hunk


class NotInRecording(Exception):
    """A hunk is about lines that are not there."""


@dataclass(frozen=True, slots=True)
class Differences:
    rules: tuple[Rule, ...]
    hunks: tuple[Hunk, ...]

    @classmethod
    def parse(cls, text: str) -> Differences:
        rules: list[Rule] = []
        hunks: list[Hunk] = []
        reason = ""
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("@ "):
                hunks.append(Hunk(line[2:], number))
                reason = ""
            elif line.startswith("= "):
                reason = line[2:]
            elif reason:
                found = re.fullmatch(r"([-+s])/(.+)/", line)
                assert found, f"{number}: not a rule: {line}"
                rules.append(Rule(reason, found[1], re.compile(found[2])))
            elif not line or (line[0] == "#" and not hunks):
                continue
            else:
                assert hunks, f"{number}: no reason: {line}"
                assert line[0] in f" -+{PATTERNS}", f"{number}: not a line of a hunk: {line}"
                hunks[-1] = replace(hunks[-1], lines=(*hunks[-1].lines, line))
        return cls(tuple(rules), tuple(hunks))

    @property
    def reasons(self) -> set[str]:
        return {entry.reason for entry in (*self.rules, *self.hunks)}

    def unexpected(self, recorded: Sequence[str], ours: Sequence[str]) -> str:
        """In what the texts differ beyond the list, or the list from them; empty if in nothing."""
        try:
            changed = self._changed(self._ruled_lines(recorded, "-"))
        except NotInRecording as failure:
            return str(failure)
        got = self._ruled_lines(ours, "+")
        taken, reached = match(changed.wanted, got)
        if len(taken) < len(got) or reached < len(changed.wanted):
            return _shown(changed.wanted[reached:], got[len(taken) :])
        return "\n".join(
            [*self._idle_hunks(changed, taken, got), *self._idle_rules(recorded, ours)]
        )

    def _ruled_lines(self, lines: Sequence[str], only: str) -> list[str]:
        """Those of `lines` that are compared; `only` tells whose they are."""
        left_out = [rule.pattern for rule in self.rules if rule.kind == only]
        return [
            self._ruled(line)
            for line in lines
            if not any(pattern.fullmatch(line) for pattern in left_out)
        ]

    def _ruled(self, line: str) -> str:
        for rule in self.rules:
            if rule.kind == "s":
                line = rule.pattern.sub("", line)
        return line

    def _changed(self, recorded: list[str]) -> Changed:
        wanted: list[Wanted] = []
        instead = {}
        at = 0
        for hunk in self.hunks:
            begin, end = self._place(hunk, recorded, at)
            wanted += [Wanted(line) for line in recorded[at:begin]]
            for line in hunk.with_prefix(f" +{PATTERNS}"):
                pattern = re.compile(line[1:]) if line[0] in PATTERNS else None
                text = line[1:] if pattern else self._ruled(line[1:])
                wanted.append(Wanted(text, pattern, hunk, line[0] == "*"))
            instead[hunk] = recorded[begin:end]
            at = end
        return Changed(wanted + [Wanted(line) for line in recorded[at:]], instead)

    def _place(self, hunk: Hunk, recorded: list[str], at: int) -> tuple[int, int]:
        """Where from `at` on the lines stand that `hunk` is about."""
        lines = [self._ruled(line[1:]) for line in hunk.with_prefix(" -")]
        assert lines, f"{hunk.number}: no line of the recording"
        assert lines[0] != REST, f"{hunk.number}: where does it begin?"
        for begin in range(at, len(recorded)):
            end = begin
            for line, before in zip(lines, [None, *lines], strict=False):
                if line == REST:
                    continue
                while before == REST and not _begins(recorded, end) and recorded[end] != line:
                    end += 1
                if end == len(recorded) or recorded[end] != line:
                    break
                end += 1
            else:
                return begin, _end_of_section(recorded, end) if lines[-1] == REST else end
        raise NotInRecording(f"{hunk.number}: not in the recording after what is before it")

    def _idle_hunks(self, changed: Changed, taken: list[int], got: list[str]) -> Iterator[str]:
        for hunk, recorded in changed.recorded.items():
            here = [
                line
                for line, one in zip(got, taken, strict=True)
                if changed.wanted[one].hunk is hunk
            ]
            if here == recorded and not hunk.may_agree:
                yield f"{hunk.number}: no difference any more: {hunk.reason}"

    def _idle_rules(self, recorded: Sequence[str], ours: Sequence[str]) -> Iterator[str]:
        for rule in self.rules:
            found = [
                [match[0] for match in map(rule.pattern.search, lines) if match]
                for lines in (recorded, ours)
            ]
            if found[0] == found[1]:
                yield f"no difference any more: {rule.kind}/{rule.pattern.pattern}/"


def _begins(recorded: list[str], at: int) -> bool:
    """Whether a section begins there."""
    return at == len(recorded) or recorded[at].startswith(SECTION)


def _end_of_section(recorded: list[str], at: int) -> int:
    while not _begins(recorded, at):
        at += 1
    return at


def _shown(wanted: list[Wanted], got: list[str]) -> str:
    """What comes where it should have been something else, from the first such line on."""
    lines = [str(one) for one in wanted[:SHOWN]]
    diff = difflib.unified_diff(lines, got[:SHOWN], "expected", "ours", lineterm="")
    return "\n".join(diff)


def _with_none(
    wanted: list[Wanted], states: dict[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """`states`, and those after lines of which there may be none."""
    for state in sorted(states):
        origin = states[state]
        while state < len(wanted) and wanted[state].may_be_none and state + 1 not in states:
            state += 1
            states[state] = origin
    return states


def match(wanted: list[Wanted], lines: list[str]) -> tuple[list[int], int]:
    """Which of `wanted` each line is, as far as they fit, and how much of `wanted` has come."""
    # By how much of `wanted` has come: the state before the last line, and what that line is.
    steps: list[dict[int, tuple[int, int]]] = [_with_none(wanted, {0: (0, 0)})]
    for line in lines:
        states: dict[int, tuple[int, int]] = {}
        for state in steps[-1]:
            if state == len(wanted) or not wanted[state].is_it(line):
                continue
            states.setdefault(state + 1, (state, state))
            if wanted[state].pattern:
                states.setdefault(state, (state, state))
        if not states:
            break
        steps.append(_with_none(wanted, states))
    taken = []
    end = state = max(steps[-1])
    for states in reversed(steps[1:]):
        state, one_taken = states[state]
        taken.append(one_taken)
    return taken[::-1], end
