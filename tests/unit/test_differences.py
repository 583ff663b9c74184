"""The list of differences from a recorded text: what it lets through, and what never."""

from __future__ import annotations

import pytest
from support.differences import Differences

RECORDED = ["### one", "a 1", "b", "c", "### two", "a 1", "d", "e"]


def unexpected(listed: str, ours: list[str]) -> str:
    return Differences.parse(listed).unexpected(RECORDED, ours)


def test_the_same_text_is_as_expected() -> None:
    assert unexpected("", RECORDED) == ""


@pytest.mark.parametrize(
    "ours",
    [RECORDED[:-1], [*RECORDED, "f"], RECORDED[1:], ["x", *RECORDED], ["a 1" for _ in RECORDED]],
)
def test_a_difference_that_is_not_listed_shows(ours: list[str]) -> None:
    assert unexpected("", ours)
    assert unexpected("@ why\n-b\n+x\n", ours)


def test_a_listed_line_has_to_be_the_one_listed() -> None:
    listed = "@ why\n-b\n+x\n"
    assert unexpected(listed, [*RECORDED[:2], "x", *RECORDED[3:]]) == ""
    assert unexpected(listed, [*RECORDED[:2], "y", *RECORDED[3:]])
    assert "-x" in unexpected(listed, RECORDED)


def test_a_line_of_both_texts_tells_the_place() -> None:
    ours = [*RECORDED[:5], "a 2", *RECORDED[6:]]
    assert unexpected("@ why\n ### two\n-a 1\n+a 2\n", ours) == ""
    assert unexpected("@ why\n-a 1\n+a 2\n", ours)


def test_what_is_not_in_the_recording_cannot_be_listed() -> None:
    assert "not in the recording" in unexpected("@ why\n-x\n+y\n", RECORDED)
    assert "not in the recording" in unexpected("@ why\n-d\n@ why\n-b\n", RECORDED)


def test_the_rest_of_a_section_ends_with_it_or_with_the_next_line() -> None:
    assert unexpected("@ why\n-a 1\n-...\n+x\n", ["### one", "x", *RECORDED[4:]]) == ""
    assert unexpected("@ why\n-a 1\n-...\n+x\n c\n", ["### one", "x", *RECORDED[3:]]) == ""
    assert unexpected("@ why\n-a 1\n-...\n+x\n e\n", ["### one", "x", *RECORDED[3:]])


def test_lines_that_a_pattern_matches_but_not_the_recorded_ones() -> None:
    listed = "@ why\n-b\n-c\n?[bcx]\n"
    for lines in (["x"], ["x", "b", "c", "x"]):
        assert unexpected(listed, [*RECORDED[:2], *lines, *RECORDED[4:]]) == ""
    for lines in ([], ["y"], ["x", "y"]):
        assert unexpected(listed, [*RECORDED[:2], *lines, *RECORDED[4:]])
    assert "no difference any more: why" in unexpected(listed, RECORDED)
    assert unexpected(listed.replace("?", "~"), RECORDED) == ""


def test_lines_that_may_be_none() -> None:
    listed = "@ why\n-b\n-c\n*[bcx]\n*z\n"
    for lines in ([], ["x"], ["z"], ["x", "z", "z"]):
        assert unexpected(listed, [*RECORDED[:2], *lines, *RECORDED[4:]]) == ""
    assert unexpected(listed, RECORDED) == ""
    assert unexpected(listed, [*RECORDED[:2], "z", "x", *RECORDED[4:]])


def test_a_rule_is_about_every_line() -> None:
    listed = "= why\ns/\\d+/\n"
    assert unexpected(listed, [line.replace("1", "23") for line in RECORDED]) == ""
    assert unexpected(listed, [line.replace("a", "z") for line in RECORDED])
    assert "no difference any more" in unexpected(listed, RECORDED)


def test_lines_that_only_one_text_has() -> None:
    without = [line for line in RECORDED if line != "b"]
    more = [*RECORDED, "only ours"]
    assert unexpected("= why\n-/b/\n", without) == ""
    assert unexpected("= why\n+/only .*/\n", more) == ""
    assert unexpected("= why\n-/b/\n", RECORDED)
    assert unexpected("= why\n+/only .*/\n", RECORDED)
    assert unexpected("= why\n+/only .*/\n", [*more, "something else"])
