"""Print formats with the fields they are about: C's types, the helpers, the forms of %p."""

from __future__ import annotations

import pytest

from ftracefs.trace.events.fields import EventField
from ftracefs.trace.events.print_fmt import PrintFmtError, compile_print_fmt
from ftracefs.trace.events.print_helpers import (
    hashed_pointer,
    ipv6,
    print_array,
    print_bitmask,
    siphash_1u64,
    sockaddr,
    uuid,
)


def field(type_: str, size: int, *, signed: bool = False, length: int | None = None) -> EventField:
    return EventField(type_, "x", 8, size, signed, length)


INT, UNSIGNED = field("int", 4, signed=True), field("unsigned int", 4)
LONG, ULONG = field("long", 8, signed=True), field("unsigned long", 8)
U8, S8, U16 = field("u8", 1), field("s8", 1, signed=True), field("u16", 2)


class Kernel:
    """What a format may ask of one."""

    has_pointers = True

    def enumerator(self, name: str) -> int | None:
        return {"TWO": 2, "MINUS": -1}.get(name)

    def size(self, name: str) -> int | None:
        return {"page": 64, "pte_t": 8}.get(name)

    def has_variable(self, name: str) -> bool:
        return name == "jiffies"

    def variable(self, name: str) -> int:
        return {"jiffies": 1000, "HZ": 250}[name]

    def symbol(self, address: int) -> bytes:
        return b"ps%x" % address

    def symbol_offset(self, address: int) -> bytes:
        return b"pS%x" % address

    def pointer(self, address: int) -> bytes:
        return b"p%x" % address

    def string(self, address: int) -> bytes:
        return b"s%x" % address

    def hashed(self, address: int) -> bytes:
        return b""


def shown(text: str, x: EventField, value: object, wanted: str = "") -> bytes:
    kernel = Kernel()
    fmt = compile_print_fmt(text, {"x": x}, kernel)
    assert [each for _, each in fmt.columns] in ([wanted], [])
    values = [[value]] if fmt.columns else []
    (line,) = fmt.render(kernel, 1, *values)
    return line


@pytest.mark.parametrize(
    ("fmt", "x", "value", "text"),
    [
        ("%d", INT, -1, "-1"),
        ("%u", INT, -1, "4294967295"),
        ("%x", INT, -1, "ffffffff"),
        ("%lx", INT, -1, "ffffffffffffffff"),
        ("%lx", UNSIGNED, 0xFFFFFFFF, "ffffffff"),
        ("%d", UNSIGNED, 0xFFFFFFFF, "-1"),
        ("%d", ULONG, (1 << 64) - 1, "-1"),
        ("%ld", ULONG, (1 << 64) - 2, "-2"),
        ("%lu", LONG, -1, "18446744073709551615"),
        ("%Lu", LONG, -1, "18446744073709551615"),
        ("%hu", INT, -1, "65535"),
        ("%hd", U16, 0xFFFF, "-1"),
        ("%hhx", S8, -1, "ff"),
        ("%02x", U8, 7, "07"),
        ("%#x", UNSIGNED, 0, "0"),
        ("%#x", UNSIGNED, 255, "0xff"),
        ("%#06x", UNSIGNED, 0, "000000"),
        ("%#06x", UNSIGNED, 255, "0x00ff"),
        ("%c", INT, 65, "A"),
        ("%zu", ULONG, 5, "5"),
        ("%p", ULONG, 0x10, "p10"),
        ("%ps", ULONG, 0x10, "ps10"),
        ("%pS", ULONG, 0x10, "pS10"),
        ("%px", ULONG, 0x10, "0000000000000010"),
    ],
)
def test_a_number_is_what_the_conversion_makes_of_it(
    fmt: str, x: EventField, value: int, text: str
) -> None:
    assert shown(f'"{fmt}", REC->x', x, value) == text.encode()


@pytest.mark.parametrize(
    ("expression", "x", "value", "text"),
    [
        ("REC->x + 1", UNSIGNED, 0xFFFFFFFF, "0"),
        ("REC->x - 1", ULONG, 0, str((1 << 64) - 1)),
        ("-REC->x", UNSIGNED, 1, str((1 << 32) - 1)),
        ("~REC->x", U8, 0, str((1 << 64) - 1)),
        ("REC->x << 31", INT, 1, str((1 << 64) - (1 << 31))),
        ("REC->x >> 4", INT, -16, str((1 << 64) - 1)),
        ("REC->x / 4", INT, -7, str((1 << 64) - 1)),
        ("REC->x % 4", INT, 7, "3"),
        ("REC->x / 0", INT, 7, "0"),
        ("REC->x == -1", UNSIGNED, 0xFFFFFFFF, "1"),
        ("REC->x == -1", ULONG, 0xFFFFFFFF, "0"),
        ("REC->x < 0", UNSIGNED, 5, "0"),
        ("REC->x != -1UL ? REC->x : 0", ULONG, (1 << 64) - 1, "0"),
        ("(u8)REC->x", INT, 0x1FF, "255"),
        ("(s8)REC->x", INT, 0xFF, str((1 << 64) - 1)),
        ("(unsigned long)(void *)(REC->x) >= (unsigned long)-4095", ULONG, (1 << 64) - 2, "1"),
        ("__builtin_expect(!!(REC->x), 0) ? 3 : 4", INT, 9, "3"),
        ("REC->x + TWO", INT, 1, "3"),
        ("REC->x == MINUS", INT, -1, "1"),
        ("REC->x & 010", INT, 15, "8"),
        ("REC->x + 'A'", INT, 1, "66"),
        ("((struct page *)0x1000UL) + REC->x", ULONG, 2, str(0x1080)),
        ("jiffies - REC->x", ULONG, 10, "990"),
        ("jiffies_to_msecs(REC->x)", ULONG, 10, "40"),
        ("sizeof(u32) * REC->x", INT, 3, "12"),
        ("pte_val(native_make_pte(REC->x))", ULONG, 3, "3"),
    ],
)
def test_operators_work_on_cs_types(expression: str, x: EventField, value: int, text: str) -> None:
    assert shown(f'"%lu", {expression}', x, value) == text.encode()


def test_a_format_that_tells_the_time_is_not_lasting() -> None:
    assert not compile_print_fmt('"%lu", jiffies', {}, Kernel()).is_lasting
    assert compile_print_fmt('"%d", REC->x', {"x": INT}, Kernel()).is_lasting


BYTES, CHARS = field("u8", 16, length=16), field("char", 16, signed=True, length=16)
DYNAMIC = field("__data_loc u32[]", 4)
WORDS = field("unsigned long", 16, length=2)
V4 = bytes([192, 168, 0, 1])
V6 = bytes.fromhex("20010db8000000000000000000000001")


@pytest.mark.parametrize(
    ("text", "x", "value", "wanted", "shows"),
    [
        ('"%s", REC->x', CHARS, b"name\0rest", "", "name"),
        ('"%-6s|", REC->x', CHARS, b"ab\0", "", "ab    |"),
        ('"%s", __get_str(x)', field("__data_loc char[]", 4), b"text", "text", "text"),
        ('"%pI4", REC->x', BYTES, V4, "", "192.168.0.1"),
        ('"%pI6c", REC->x', BYTES, V6, "", "2001:db8::1"),
        ('"%pU", REC->x', CHARS, bytes(range(16)), "", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ('"%*phD", 3, REC->x', BYTES, b"\1\2\3\4", "", "01-02-03"),
        ('"%3ph", REC->x', BYTES, b"\1\2\3\4", "", "01 02 03"),
        ('"%s", __print_hex(REC->x, 2)', BYTES, b"\1\2\3", "", "01 02"),
        ('"%s", __print_hex_str(REC->x, 2)', BYTES, b"\1\2\3", "", "0102"),
        (
            '"%s", __print_array(__get_dynamic_array(x), 2, 4)',
            *(DYNAMIC, b"\1\0\0\0\xff\0\0\0", "raw", "{0x1,0xff}"),
        ),
        ('"%u", __get_dynamic_array_len(x)', DYNAMIC, 8, "length", "8"),
        ('"%lx", REC->x[1]', WORDS, bytes(8) + b"\x34\x12" + bytes(6), "", "1234"),
        ('"%0*llx", (int)8 * 2, REC->x', ULONG, 5, "", f"{5:016x}"),
        ('"%s", REC->x', field("const char *", 8), 0x40, "", "s40"),
        ('"%s", REC->x ? "yes" : "no"', U8, 1, "", "yes"),
        ('"%s", __print_symbolic(REC->x, { TWO, "two" }, { -1, 0 })', INT, 2, "", "two"),
        ('"%s", __print_symbolic(REC->x, { MINUS, "none" })', INT, -1, "", "none"),
        ('"%s", __print_symbolic(REC->x, { 1, "one" })', INT, -2, "", "0xfffffffffffffffe"),
        ('"%s", __print_flags(REC->x, "|", { 1 << 1, "b" })', INT, -1, "", "b|0xfffffffffffffffd"),
        ('"nothing of it"', INT, 0, "", "nothing of it"),
    ],
)
def test_arrays_strings_and_helpers(
    text: str, x: EventField, value: object, wanted: str, shows: str
) -> None:
    assert shown(text, x, value, wanted) == shows.encode()


@pytest.mark.parametrize(
    "text",
    [
        '"%s", REC->x',
        '"%pI4", REC->x',
        '"%d", REC->y',
        '"%d", NOBODY',
        '"%d", somebody(REC->x)',
        '"%s", __get_str(x)',
        '"%lx", REC->x[1]',
        '"%d", REC->x.y',
        '"%pK%d", REC->x, "text"',
        '"%s", __print_symbolic(REC->x, { REC->x, "it" })',
    ],
)
def test_what_a_field_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(PrintFmtError):
        compile_print_fmt(text, {"x": INT}, Kernel())


def test_pointers_are_hashed_by_siphash() -> None:
    key = 0x0706050403020100, 0x0F0E0D0C0B0A0908
    assert siphash_1u64(0x0706050403020100, key) == 0x93F5F5799A932462
    assert hashed_pointer(0x0706050403020100, key) == b"000000009a932462"
    assert hashed_pointer(0, key) == b"0" * 16
    assert hashed_pointer((1 << 64) - 2, key) == b"fffffffffffffffe"


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("00000000000000000000000000000000", "::"),
        ("00000000000000000000000000000001", "::1"),
        ("20010db8000000010000000000000001", "2001:db8:0:1::1"),
        ("20010db8000100020003000400050000", "2001:db8:1:2:3:4:5:0"),
        ("00000000000000000000ffffc0a80001", "::ffff:192.168.0.1"),
        ("fe8000000000000000005efec0a80001", "fe80::5efe:192.168.0.1"),
    ],
)
def test_addresses_are_compressed_as_the_kernel_does(address: str, text: str) -> None:
    assert ipv6(bytes.fromhex(address)) == text.encode()


def test_socket_addresses_bitmasks_and_arrays() -> None:
    assert sockaddr(b"\2\0\0\x50" + V4) == b"192.168.0.1:80"
    assert sockaddr(b"\x0a\0\0\x50" + bytes(4) + V6) == b"[2001:db8::1]:80"
    assert print_bitmask(b"\1\0\0\0\2\0\0\0") == b"00000002,00000001"
    assert print_array(b"\1\2", 2, 1) == b"{0x1,0x2}"
    assert uuid(b"") == b"00000000-0000-0000-0000-000000000000"
