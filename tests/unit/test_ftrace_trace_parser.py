"""One word per write, as trace_get_user takes it; the figures are Linux 6.1's."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftracefs.errors import TracefsError
from ftracefs.ftrace.trace_parser import TraceParser


def words(writes: list[bytes]) -> list[bytes]:
    """What a writer that repeats short writes gets across, with the word left at close."""
    parser, found = TraceParser(), []
    for data in writes:
        while data:
            data = data[parser.trace_get_user(data) :]
            if parser.loaded and not parser.cont:
                found.append(bytes(parser.buffer))
                parser.clear()
    if parser.loaded:
        found.append(bytes(parser.buffer))
    return found


@pytest.mark.parametrize(
    ("data", "consumed", "word", "goes_on"),
    [
        (b"vfs_read vfs_write", 9, b"vfs_read", False),
        (b"vfs_read\nnosuch\n", 9, b"vfs_read", False),
        (b"vfs_read\0vfs_write\n", 9, b"vfs_read", False),
        (b"vfs_", 4, b"vfs_", True),
        (b" \t\nvfs_read\n", 12, b"vfs_read", False),
        (b"\n\n", 2, b"", False),
        (b"  \0rest", 3, b"", False),
        (b"\xa0word\xa0", 6, b"word", False),
    ],
)
def test_a_write_gives_one_word(data: bytes, consumed: int, word: bytes, goes_on: bool) -> None:
    parser = TraceParser()
    assert parser.trace_get_user(data) == consumed
    assert (bytes(parser.buffer), parser.cont) == (word, goes_on)


def test_a_word_goes_on_over_writes() -> None:
    assert words([b"vfs_", b"read", b"\n"]) == [b"vfs_read"]
    assert words([b"vfs_read", b"vfs_write"]) == [b"vfs_readvfs_write"]
    assert words([b"vfs_", b" read"]) == [b"vfs_", b"read"]


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=6))
def test_words_do_not_depend_on_how_they_are_written(writes: list[bytes]) -> None:
    whole = b"".join(writes)
    blank = bytes.maketrans(b"\t\n\v\f\r\xa0\0", b" " * 7)
    assert words(writes) == whole.translate(blank).split()


def test_a_word_of_669_bytes_fits() -> None:
    parser = TraceParser()
    assert parser.trace_get_user(b"a" * 669) == 669
    assert parser.trace_get_user(b"\n") == 1
    assert len(parser.buffer) == 669


@pytest.mark.parametrize("writes", [[b"a" * 670], [b"a" * 660, b"a" * 10], [b"a" * 5000]])
def test_after_a_longer_word_nothing_counts_any_more(writes: list[bytes]) -> None:
    parser = TraceParser()
    for data in writes[:-1]:
        parser.trace_get_user(data)
    with pytest.raises(TracefsError) as error:
        parser.trace_get_user(writes[-1])
    assert error.value.errno == errno.EINVAL
    assert parser.trace_get_user(b"\n") == 1
    assert parser.trace_get_user(b"vfs_read\n") == 9
    assert not parser.loaded
