"""Print formats of events, translated and evaluated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftracefs.trace.events.print_fmt import PrintFmtError, compile_print_fmt

NOTHING = object()  # no format here asks for anything beside the record


def rendered(text: str, *rows: tuple[object, ...]) -> list[bytes]:
    """One text for each row of field values, in the order in which the fields come first."""
    columns = map(list, zip(*rows, strict=True))
    return compile_print_fmt(text).render(NOTHING, len(rows), *columns)


def one(text: str, *values: object) -> bytes:
    (line,) = rendered(text, values)
    return line


def test_conversions_are_those_of_c() -> None:
    fmt = '"%d %5d %-5d| %03d %x %#x %lu %llx %s %c%%", REC->a, REC->a, REC->a, REC->a, REC->a, '
    fmt += "REC->a, REC->b, REC->b, REC->s, REC->a"
    assert one(fmt, 65, 1 << 63, b"text") == (
        b"65    65 65   | 065 41 0x41 9223372036854775808 8000000000000000 text A%"
    )


def test_every_record_gets_a_text() -> None:
    assert rendered('"<%d>", REC->a', (1,), (-2,), (3,)) == [b"<1>", b"<-2>", b"<3>"]


def test_strings_side_by_side_are_one() -> None:
    assert one(r'"a\t" "b\n" "%d", REC->x', 1) == b"a\tb\n1"


@given(st.integers(0, 1 << 16), st.integers(0, 7), st.integers(1, 9))
def test_operators_bind_as_in_c(a: int, b: int, c: int) -> None:
    fmt = '"%d %d %d %d", REC->a & REC->b == REC->c, REC->a + REC->b << REC->c, '
    fmt += "REC->a | REC->b & REC->c, !REC->b && REC->a || REC->c == 3"
    bits = a & int(b == c)
    assert one(fmt, a, b, c) == (
        f"{bits} {(a + b) << c} {a | (b & c)} {int((not b and bool(a)) or c == 3)}".encode()
    )


def test_a_conditional_chooses_and_nests_to_the_right() -> None:
    fmt = '"%s", REC->a ? REC->a > 5 ? "big" : "small" : "none"'
    assert rendered(fmt, (0,), (3,), (9,)) == [b"none", b"small", b"big"]


def test_casts_are_no_change() -> None:
    fmt = '"%d %llu", (int)REC->a, (((u64)(REC)->b << 32) | (REC)->a)'
    assert one(fmt, 7, 1) == b"7 4294967303"


FLAGS = '"%s", __print_flags(REC->f, "|", { 0x1, "A" }, { 0x2, "B" }, { 0xc, "CD" })'


def test_flags_are_named_and_what_is_left_is_a_number() -> None:
    assert rendered(FLAGS, (0,), (1,), (3,), (4,), (0xC,), (0x1F,)) == [
        b"",
        b"A",
        b"A|B",
        b"0x4",
        b"CD",
        b"A|B|CD|0x10",
    ]


def test_symbols_are_exact() -> None:
    fmt = '"%s", __print_symbolic(REC->v, { 0, "ZERO" }, { 5, "FIVE" })'
    assert rendered(fmt, (0,), (5,), (6,)) == [b"ZERO", b"FIVE", b"0x6"]


def test_a_dynamic_string_is_a_field() -> None:
    assert one('"%s=%d", __get_str(name), REC->x', b"n", 4) == b"n=4"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "REC->a",
        '"%d"',
        '"%d", REC->a, REC->b',
        '"%d", REC->a +',
        '"%d", (REC->a',
        '"%pI4", REC->a',
        '"%s", __print_hex(REC->a, 4)',
        '"%d", REC->a @ 3',
    ],
)
def test_what_cannot_be_translated_is_refused(text: str) -> None:
    with pytest.raises(PrintFmtError):
        compile_print_fmt(text)
