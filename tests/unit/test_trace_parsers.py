"""Numbers and words as the kernel's helpers read them."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftracefs.errors import TracefsError
from ftracefs.trace.parsers import ULONG_MAX, c_string, kstrtoul, kstrtoul_from_user, strim


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0", 0),
        (b"01", 1),
        (b"+1", 1),
        (b"12\n", 12),
        (b"1\0x", 1),
        (b"18446744073709551615", ULONG_MAX),
    ],
)
def test_a_number_may_have_a_plus_leading_zeros_and_a_newline(text: bytes, value: int) -> None:
    assert kstrtoul(text) == value


@pytest.mark.parametrize(
    "text",
    [b"", b"\n", b"abc", b"-1", b" 1", b"1 ", b"1\n\n", b"++1", b"0x1", b"1k", b"y", b"\n1"],
)
def test_anything_else_is_einval(text: bytes) -> None:
    with pytest.raises(TracefsError) as error:
        kstrtoul(text)
    assert error.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    "text", [b"18446744073709551616", b"99999999999999999999", b"99999999999999999999x"]
)
def test_what_does_not_fit_is_erange_whatever_follows(text: bytes) -> None:
    with pytest.raises(TracefsError) as error:
        kstrtoul(text)
    assert error.value.errno == errno.ERANGE


def test_only_the_first_66_bytes_of_a_write_are_looked_at() -> None:
    assert kstrtoul_from_user(b"0" * 65 + b"1") == 1
    assert kstrtoul_from_user(b"0" * 66 + b"x") == 0


@pytest.mark.parametrize(
    ("text", "base", "value"),
    [(b"0x1f", 0, 31), (b"017", 0, 15), (b"17", 0, 17), (b"ff", 16, 255), (b"0XfF", 16, 255)],
)
def test_bases(text: bytes, base: int, value: int) -> None:
    assert kstrtoul(text, base) == value


@given(st.integers(0, ULONG_MAX))
def test_every_unsigned_long_is_read_back(value: int) -> None:
    assert kstrtoul(b"%d\n" % value) == value
    assert kstrtoul(b"%#x" % value, 0) == value


def test_a_string_ends_at_its_first_nul() -> None:
    assert c_string(b"nop\0junk") == b"nop"
    assert strim(b"function  \0 x") == b"function"


@given(st.text("ab", max_size=4), st.text(" \t\n\v\f\r\xa0"), st.text(" \t\n\v\f\r\xa0"))
def test_white_space_at_both_ends_goes(word: str, before: str, behind: str) -> None:
    assert strim((before + word + behind).encode("latin-1")) == word.encode()
