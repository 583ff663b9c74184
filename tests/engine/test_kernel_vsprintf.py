"""The kernel's vsnprintf against a model in Python."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.guest import U64, Guest

TEXT = st.binary(max_size=40).map(lambda b: b.replace(b"\0", b"x"))
WORD = st.integers(0, U64)
examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def shared() -> Iterator[Guest]:
    guest = Guest(cpus=1)
    try:
        yield guest
    finally:
        guest.close()


@pytest.fixture
def guest(shared: Guest) -> Guest:
    return shared


def _format(flags: str, width: int, precision: int | None, kind: str, value: int) -> str:
    """One integer conversion, as the kernel has it: zero padding wins over a precision."""
    base = {"d": 10, "i": 10, "u": 10, "x": 16, "X": 16, "o": 8}[kind]
    digits = {8: f"{abs(value):o}", 10: str(abs(value)), 16: f"{abs(value):x}"}[base]
    if kind == "X":
        digits = digits.upper()
    sign = ""
    if kind in "di":
        sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    prefix = ""
    if "#" in flags and base == 16:
        prefix = "0" + kind
    elif "#" in flags and base == 8 and value:
        prefix = "0"
    digits = digits.rjust(precision or 0, "0")
    room = max(width - len(sign) - len(prefix) - len(digits), 0)
    if "-" in flags:
        return sign + prefix + digits + " " * room
    if "0" in flags:
        return sign + prefix + "0" * room + digits
    return " " * room + sign + prefix + digits


@settings(examples, max_examples=300)
@given(
    flags=st.lists(st.sampled_from("-+ #0"), max_size=3, unique=True).map("".join),
    width=st.integers(0, 24),
    precision=st.one_of(st.none(), st.integers(0, 22)),
    kind=st.sampled_from("diuxXo"),
    length=st.sampled_from([("", 32), ("l", 64), ("ll", 64), ("z", 64), ("h", 16), ("hh", 8)]),
    raw=WORD,
)
def test_integers_are_formatted(
    guest: Guest,
    flags: str,
    width: int,
    precision: int | None,
    kind: str,
    length: tuple[str, int],
    raw: int,
) -> None:
    guest.reset()
    name, bits = length
    value = raw & ((1 << bits) - 1)
    if kind in "di" and value >> (bits - 1):
        value -= 1 << bits
    expected = _format(flags, width, precision, kind, value)
    target = guest.room(64, fill=0x55)
    dot = "" if precision is None else f".{precision}"
    text = f"{flags}{width or ''}{dot}{name}{kind}"
    written = guest.call_int("snprintf", target, 64, guest.text(f"%{text}".encode()), raw)
    assert (guest.memory.cstring(target).decode(), written) == (expected, len(expected))


@examples
@given(
    text=TEXT.map(lambda b: b.replace(b"%", b"-")),
    left=st.booleans(),
    width=st.integers(0, 20),
    precision=st.one_of(st.none(), st.integers(0, 12)),
    size=st.integers(0, 60),
)
def test_strings_are_formatted_and_cut(
    guest: Guest, text: bytes, left: bool, width: int, precision: int | None, size: int
) -> None:
    guest.reset()
    cut = text if precision is None else text[:precision]
    field = cut.ljust(width) if left else cut.rjust(width)
    expected = b"<" + field + b">"
    dot = "" if precision is None else f".{precision}"
    form = guest.text(f"<%{'-' if left else ''}{width or ''}{dot}s>".encode())
    target = guest.room(80, fill=0x55)
    assert guest.call_int("snprintf", target, size, form, guest.text(text)) == len(expected)
    if size:
        assert guest.memory.cstring(target) == expected[: size - 1]
    assert guest.memory.u8(target + max(size, len(expected) + 1)) == 0x55
    kept = guest.call_int("scnprintf", target, size, form, guest.text(text))
    assert kept == min(len(expected), max(size - 1, 0))


def test_other_conversions(guest: Guest) -> None:
    guest.reset()
    target = guest.room(200)

    def sprintf(form: str, *arguments: int) -> str:
        length = guest.call_int("sprintf", target, guest.text(form.encode()), *arguments)
        text = guest.memory.cstring(target)
        assert len(text) == length
        return text.decode()

    assert sprintf("%c%c%%", ord("o"), ord("k")) == "ok%"
    assert sprintf("%p", 0xFFFF888000001000) == "ffff888000001000"
    assert sprintf("%s|%s", 0, U64 - 10) == "(null)|(efault)"
    assert sprintf("%*d|%-*d|%.*s", 5, 42, 5, 7, 2, guest.text(b"cut")) == "   42|7    |cu"
    assert sprintf("%d %d %d %d %d %d %d", *range(1, 8)) == "1 2 3 4 5 6 7"
    for address in ("127.0.0.1", "10.0.0.255", "8.8.100.9", "0.0.0.0"):
        assert sprintf("%pI4", guest.place(socket.inet_aton(address))) == address
