"""The kernel's library functions against Python: they compute what their names say."""

from __future__ import annotations

import binascii
import math
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.guest import U64, Guest

CALLBACKS = """
.text
FUNC_NOTRACE compare_u32
    mov eax, [rdi]
    cmp eax, [rsi]
    seta al
    setb cl
    sub al, cl
    movsx eax, al
    ret
ENDFUNC compare_u32
FUNC_NOTRACE compare_nodes               # list_sort: rsi and rdx nodes, their key behind the links
    mov eax, [rsi + 16]
    cmp eax, [rdx + 16]
    seta al
    setb cl
    sub al, cl
    movsx eax, al
    ret
ENDFUNC compare_nodes
FUNC_NOTRACE tree_add                    # rdi node with a key at 24, rsi root
    mov r8, rsi
    mov rdx, rsi
    xor r9d, r9d
1:
    mov rax, [rdx]
    test rax, rax
    je 2f
    mov r9, rax
    lea rdx, [rax + RB_NODE_LEFT]
    mov rcx, [rdi + 24]
    cmp rcx, [rax + 24]
    jb 1b
    lea rdx, [rax + RB_NODE_RIGHT]
    jmp 1b
2:
    mov rsi, r9
    push r8
    call rb_link_node
    pop rsi
    jmp rb_insert_color
ENDFUNC tree_add
"""

BYTES = st.binary(max_size=64)
TEXT = st.binary(max_size=40).map(lambda b: b.replace(b"\0", b"x"))
WORD = st.integers(0, U64)
examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Guest, dict[str, int]]]:
    guest = Guest(cpus=1)
    try:
        yield guest, guest.load(CALLBACKS)
    finally:
        guest.close()


@pytest.fixture
def guest(shared: tuple[Guest, dict[str, int]]) -> Guest:
    return shared[0]


@pytest.fixture
def callbacks(shared: tuple[Guest, dict[str, int]]) -> dict[str, int]:
    return shared[1]


# --- strings --------------------------------------------------------------------------------------


@examples
@given(data=BYTES, to=st.integers(0, 64), source=st.integers(0, 64))
def test_memmove_copies_overlapping_memory(guest: Guest, data: bytes, to: int, source: int) -> None:
    guest.reset()
    room = guest.room(256)
    guest.memory.write(room + source, data)
    assert guest.call("memmove", room + to, room + source, len(data)) == room + to
    assert guest.memory.read(room + to, len(data)) == data


@examples
@given(data=BYTES, byte=st.integers(0, 255))
def test_memory_functions(guest: Guest, data: bytes, byte: int) -> None:
    guest.reset()
    source, target = guest.place(data + b"#"), guest.room(len(data) + 1, fill=0x5A)
    guest.call("memcpy", target, source, len(data))
    assert guest.memory.read(target, len(data) + 1) == data + b"\x5a"
    assert guest.call_int("memcmp", target, source, len(data)) == 0
    found = guest.call("memchr", source, byte, len(data))
    assert found == (source + data.index(byte) if byte in data else 0)
    rest = data.lstrip(bytes([byte]))
    inverse = guest.call("memchr_inv", source, byte, len(data))
    assert inverse == (source + len(data) - len(rest) if rest else 0)
    guest.call("memset", target, byte, len(data))
    assert guest.memory.read(target, len(data) + 1) == bytes([byte]) * len(data) + b"\x5a"


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


@examples
@given(a=TEXT, b=TEXT, count=st.integers(0, 50))
def test_comparisons(guest: Guest, a: bytes, b: bytes, count: int) -> None:
    guest.reset()
    left, right = guest.text(a), guest.text(b)
    order = (a > b) - (a < b)
    assert guest.call_int("strcmp", left, right) == order
    cut = (a[:count] > b[:count]) - (a[:count] < b[:count])
    assert guest.call_int("strncmp", left, right, count) == cut
    assert _sign(guest.call_int("memcmp", left, right, min(len(a), len(b)))) == (
        _sign((a[: len(b)] > b[: len(a)]) - (a[: len(b)] < b[: len(a)]))
    )
    x, y = a.lower(), b.lower()
    assert _sign(guest.call_int("strcasecmp", left, right)) == (x > y) - (x < y)
    assert guest.call_int("strcmp", left, guest.text(a)) == 0
    assert guest.call("str_has_prefix", left, right) == (len(b) if a.startswith(b) else 0)
    assert guest.call("sysfs_streq", guest.text(a + b"\n"), left) == 1
    same = a == b or a == b + b"\n" or b == a + b"\n"
    assert guest.call("sysfs_streq", left, right) == same


@examples
@given(a=TEXT, b=TEXT, size=st.integers(0, 50))
def test_copies(guest: Guest, a: bytes, b: bytes, size: int) -> None:
    guest.reset()
    source, target = guest.text(a), guest.room(128, fill=0x2A)
    assert guest.call("strlen", source) == len(a)
    assert guest.call("strnlen", source, size) == min(size, len(a))
    assert guest.call("strcpy", target, source) == target
    assert guest.memory.cstring(target) == a
    guest.call("strcat", target, guest.text(b))
    assert guest.memory.cstring(target) == a + b
    guest.memory.write(target, b"*" * 128)
    copied = guest.call_long("strscpy", target, source, size)
    if size > len(a):
        assert (copied, guest.memory.cstring(target)) == (len(a), a)
    else:
        assert copied == -7
        if size:
            assert guest.memory.cstring(target) == a[: size - 1]
    assert guest.memory.u8(target + size) == 0x2A or size > len(a)
    guest.memory.write(target, b"*" * 128)
    guest.call("strncpy", target, source, size)
    assert guest.memory.read(target, 60) == a[:size].ljust(size, b"\0") + b"*" * (60 - size)
    guest.memory.write(target, b"*" * 128)
    assert guest.call("strlcpy", target, source, size) == len(a)
    if size:
        assert guest.memory.cstring(target) == a[: size - 1]
    guest.memory.write(target, a + b"\0")
    guest.call("strncat", target, guest.text(b), size)
    assert guest.memory.cstring(target) == a + b[:size]


@examples
@given(text=st.text("ab", max_size=30), what=st.text("ab", max_size=4), limit=st.integers(0, 30))
def test_searches(guest: Guest, text: str, what: str, limit: int) -> None:
    guest.reset()
    a, b = text.encode(), what.encode()
    limit = min(limit, len(a))
    where = guest.text(a)

    def at(index: int) -> int:
        return where + index if index >= 0 else 0

    assert guest.call("strstr", where, guest.text(b)) == at(a.find(b))
    assert guest.call("strnstr", where, guest.text(b), limit) == at(a[:limit].find(b))
    assert guest.call("strchr", where, ord("b")) == at(a.find(b"b"))
    assert guest.call("strchr", where, 0) == where + len(a)
    assert guest.call("strrchr", where, ord("b")) == at(a.rfind(b"b"))
    index = a.find(b"b")
    assert guest.call("strchrnul", where, ord("b")) == where + (index if index >= 0 else len(a))
    assert guest.call("strnchr", where, limit, ord("b")) == at(a[:limit].find(b"b"))
    assert guest.call("strspn", where, guest.text(b"a")) == len(a) - len(a.lstrip(b"a"))
    assert guest.call("strcspn", where, guest.text(b"xb")) == (index if index >= 0 else len(a))
    assert guest.call("strpbrk", where, guest.text(b"xb")) == at(index)


def test_tokens_and_white_space(guest: Guest) -> None:
    guest.reset()
    cursor = guest.words([guest.text(b"one two,,three")])
    tokens = []
    while token := guest.call("strsep", cursor, guest.text(b" ,")):
        tokens.append(guest.memory.cstring(token))
    assert tokens == [b"one", b"two", b"", b"three"]
    for text in (b" \t x y \n", b"", b"   ", b"z", b"\r\f\v a"):
        where = guest.text(text)
        assert guest.memory.cstring(guest.call("strim", where)) == text.strip()
    assert guest.memory.cstring(guest.call("skip_spaces", guest.text(b"  \n a "))) == b"a "
    names = [guest.text(name) for name in (b"alpha", b"beta", b"gamma")]
    table = guest.words([*names, 0])
    assert guest.call_int("match_string", table, 3, guest.text(b"gamma")) == 2
    assert guest.call_int("match_string", table, 2, guest.text(b"gamma")) == -22
    assert guest.call_int("match_string", table, 9, guest.text(b"delta")) == -22
    path = guest.text(b"a/b/c")
    assert guest.call("strreplace", path, ord("/"), ord("!")) == path + 5
    assert guest.memory.cstring(path) == b"a!b!c"


# --- sorting --------------------------------------------------------------------------------------


@examples
@given(values=st.lists(st.integers(0, 1 << 31), max_size=60), width=st.sampled_from([4, 12]))
def test_sort_sorts(guest: Guest, callbacks: dict[str, int], values: list[int], width: int) -> None:
    guest.reset()
    tail = b"." * (width - 4)
    array = guest.place(b"".join(struct.pack("<I", v) + tail for v in values))
    guest.call("sort", array, len(values), width, callbacks["compare_u32"], 0)
    expected = b"".join(struct.pack("<I", v) + tail for v in sorted(values))
    assert guest.memory.read(array, len(values) * width) == expected


@examples
@given(values=st.sets(st.integers(0, 100), max_size=40), key=st.integers(0, 100))
def test_bsearch_finds(guest: Guest, callbacks: dict[str, int], values: set[int], key: int) -> None:
    guest.reset()
    ordered = sorted(values)
    array = guest.place(b"".join(struct.pack("<I", v) for v in ordered))
    probe = guest.place(struct.pack("<I", key))
    found = guest.call("bsearch", probe, array, len(ordered), 4, callbacks["compare_u32"])
    assert found == (array + 4 * ordered.index(key) if key in values else 0)


@examples
@given(keys=st.lists(st.integers(0, 9), max_size=70))
def test_list_sort_is_stable(guest: Guest, callbacks: dict[str, int], keys: list[int]) -> None:
    guest.reset()
    head = guest.room(16)
    nodes = [guest.place(struct.pack("<QQQ", 0, 0, key)) for key in keys]
    ring = [head, *nodes]
    for here, after in zip(ring, ring[1:] + ring[:1], strict=True):
        guest.memory.set_u64(here, after)
        guest.memory.set_u64(after + 8, here)
    guest.call("list_sort", 0, head, callbacks["compare_nodes"])
    expected = [head, *(node for _, node in sorted(zip(keys, nodes, strict=True)))]
    forwards, backwards = [head], [head]
    for seen, link in ((forwards, 0), (backwards, 8)):
        while (node := guest.memory.u64(seen[-1] + link)) != head:
            seen.append(node)
    assert forwards == expected
    assert backwards == [head, *reversed(expected[1:])]


# --- checksums and hashes -------------------------------------------------------------------------


def _crc16(crc: int, data: bytes) -> int:
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc


def _internet_checksum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) & 1)
    total = sum(struct.unpack(f"<{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@examples
@given(data=st.binary(max_size=120), seed=st.integers(0, 0xFFFFFFFF))
def test_crcs(guest: Guest, data: bytes, seed: int) -> None:
    guest.reset()
    where = guest.place(data)
    expected = binascii.crc32(data, seed ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    assert guest.call32("crc32_le", seed, where, len(data)) == expected
    assert guest.call32("crc16", seed & 0xFFFF, where, len(data)) == _crc16(seed & 0xFFFF, data)


def test_crc32c_and_crc32_be_check_values(guest: Guest) -> None:
    guest.reset()
    where = guest.place(b"123456789")
    assert guest.call32("__crc32c_le", 0xFFFFFFFF, where, 9) ^ 0xFFFFFFFF == 0xE3069283
    assert guest.call32("crc32_be", 0xFFFFFFFF, where, 9) ^ 0xFFFFFFFF == 0xFC891918  # bzip2


@examples
@given(data=st.binary(max_size=120), source=WORD, target=WORD)
def test_internet_checksums(guest: Guest, data: bytes, source: int, target: int) -> None:
    guest.reset()
    where = guest.place(data)
    assert guest.call32("ip_compute_csum", where, len(data)) in (
        {_internet_checksum(data)} if any(data) else {0xFFFF}
    )
    header = (data + bytes(40))[:40]
    where = guest.place(header)
    assert guest.call32("ip_fast_csum", where, 10) == _internet_checksum(header)
    addresses = struct.pack("<II", source & 0xFFFFFFFF, target & 0xFFFFFFFF)
    pseudo = addresses + struct.pack(">BBH", 0, 6, len(data))
    where = guest.place(data)
    total = guest.call32("csum_partial", where, len(data), 0)
    check = guest.call32(
        "csum_tcpudp_magic", source & 0xFFFFFFFF, target & 0xFFFFFFFF, len(data), 6, total
    )
    assert check == _internet_checksum(pseudo + data)


def test_jhash_known_values(guest: Guest) -> None:
    guest.reset()
    # lookup3.c's own examples, whose initial value differs from jhash's.
    four_score = b"Four score and seven years ago"
    where = guest.place(four_score)
    assert guest.call32("jhash", where, 30, 0) == 0x17770551
    assert guest.call32("jhash", where, 30, 1) == 0xCD628161
    assert guest.call32("jhash", where, 0, 0) == 0xDEADBEEF
    key = struct.pack("<III", 1, 2, 3)
    assert guest.call32("jhash_3words", 1, 2, 3, 7) == guest.call32(
        "jhash", guest.place(key), 12, 7
    )


# --- numbers --------------------------------------------------------------------------------------


@examples
@given(a=WORD, b=WORD, c=st.integers(1, U64))
def test_arithmetic(guest: Guest, a: int, b: int, c: int) -> None:
    assert guest.call("int_sqrt", a) == math.isqrt(a)
    assert guest.call("gcd", a, b) == math.gcd(a, b)
    assert guest.call("lcm", a & 0xFFFFFFFF, b & 0xFFFFFFFF) == math.lcm(
        a & 0xFFFFFFFF, b & 0xFFFFFFFF
    )
    assert guest.call("div64_u64", a, c) == a // c
    assert guest.call("int_pow", a, b & 31) == pow(a, b & 31, 1 << 64)
    assert guest.call32("__sw_hweight64", a) == a.bit_count()
    if a * b // c <= U64:
        assert guest.call("mul_u64_u64_div_u64", a, b, c) == a * b // c


@examples
@given(data=BYTES)
def test_hexadecimal(guest: Guest, data: bytes) -> None:
    guest.reset()
    target = guest.room(130)
    assert guest.call("bin2hex", target, guest.place(data), len(data)) == target + 2 * len(data)
    assert guest.memory.read(target, 2 * len(data)) == data.hex().encode()
    text = guest.text(data.hex().upper().encode())
    assert guest.call_int("hex2bin", target, text, len(data)) == 0
    assert guest.memory.read(target, len(data)) == data
    for character in range(256):
        digit = chr(character)
        value = int(digit, 16) if digit in "0123456789abcdefABCDEF" else -1
        assert guest.call_int("hex_to_bin", character) == value
    assert guest.call_int("hex2bin", target, guest.text(b"0g"), 1) == -22


def _kstrtoull(text: str, base: int) -> int | str:
    body = text.removesuffix("\n").removeprefix("+")
    digits = body
    if base in (0, 16) and body[:2].lower() == "0x":
        hexadecimal = len(body) > 2 and body[2].lower() in "0123456789abcdef"
        if base == 16 or hexadecimal:
            digits, base = body[2:], 16
    if base == 0:
        base = 8 if body.startswith("0") else 10
    alphabet = "0123456789abcdef"[:base]
    if not digits or any(c not in alphabet for c in digits.lower()):
        return "EINVAL"
    value = int(digits, base)
    return value if value <= U64 else "ERANGE"


NUMBERS = st.one_of(
    st.text("0123456789abcdefxX+-\n ", max_size=22),
    st.integers(0, 1 << 66).map(str),
    st.integers(0, U64).map(hex),
    st.integers(0, U64).map("0{:o}".format),
)


@settings(examples, max_examples=200)
@given(text=NUMBERS, base=st.sampled_from([0, 8, 10, 16]))
def test_kstrtoull_reads_what_the_kernel_reads(guest: Guest, text: str, base: int) -> None:
    guest.reset()
    result = guest.room(8)
    error = guest.call_int("kstrtoull", guest.text(text.encode()), base, result)
    expected = _kstrtoull(text, base)
    if isinstance(expected, int):
        assert (error, guest.memory.u64(result)) == (0, expected)
    elif expected == "EINVAL" and error == -34:
        # a number too long is found out before what follows it is looked at
        digits = text.lower().lstrip("+").removeprefix("0x")
        assert len(digits) > 16
    else:
        assert error == {"EINVAL": -22, "ERANGE": -34}[expected]


@pytest.mark.parametrize(
    ("function", "size", "low", "high"),
    [
        ("kstrtoll", 8, -(1 << 63), (1 << 63) - 1),
        ("kstrtoint", 4, -(1 << 31), (1 << 31) - 1),
        ("kstrtouint", 4, 0, (1 << 32) - 1),
        ("kstrtos16", 2, -(1 << 15), (1 << 15) - 1),
        ("kstrtou16", 2, 0, (1 << 16) - 1),
        ("kstrtos8", 1, -128, 127),
        ("kstrtou8", 1, 0, 255),
    ],
)
def test_narrow_numbers_keep_their_range(
    guest: Guest, function: str, size: int, low: int, high: int
) -> None:
    guest.reset()
    result = guest.room(8)
    for value in (low, low + 1, -1, 0, 1, high - 1, high):
        error = guest.call_int(function, guest.text(str(value).encode()), 10, result)
        if low <= value:
            got = int.from_bytes(guest.memory.read(result, size), "little", signed=low < 0)
            assert (error, got) == (0, value)
        else:
            assert error == -22
    assert guest.call_int(function, guest.text(str(high + 1).encode()), 10, result) == -34
    if low:
        assert guest.call_int(function, guest.text(str(low - 1).encode()), 10, result) == -34


def test_other_number_readers(guest: Guest) -> None:
    guest.reset()
    end = guest.room(8)
    for text, base, value, length in (
        (b"42 rest", 10, 42, 2),
        (b"0x1fz", 0, 31, 4),
        (b"017", 0, 15, 3),
        (b"zz", 10, 0, 0),
    ):
        where = guest.text(text)
        assert guest.call("simple_strtoul", where, end, base) == value
        assert guest.memory.u64(end) == where + length
    assert guest.call_long("simple_strtol", guest.text(b"-12x"), 0, 10) == -12
    assert guest.call("memparse", guest.text(b"3M"), end) == 3 << 20
    assert guest.call("memparse", guest.text(b"16"), 0) == 16
    answer = guest.room(1)
    for text, value in ((b"y", 1), (b"on", 1), (b"1", 1), (b"N", 0), (b"off", 0), (b"0", 0)):
        assert guest.call_int("kstrtobool", guest.text(text), answer) == 0
        assert guest.memory.u8(answer) == value
    assert guest.call_int("kstrtobool", guest.text(b"maybe"), answer) == -22


# --- bit maps -------------------------------------------------------------------------------------


def _map(guest: Guest, value: int) -> int:
    return guest.place(value.to_bytes(32, "little"))


def _read_map(guest: Guest, where: int) -> int:
    return int.from_bytes(guest.memory.read(where, 32), "little")


MAP = st.one_of(
    st.integers(0, (1 << 256) - 1),
    st.sets(st.integers(0, 255)).map(lambda bits: sum(1 << b for b in bits)),
)


@examples
@given(value=MAP, size=st.integers(0, 256), start=st.integers(0, 260))
def test_bit_searches(guest: Guest, value: int, size: int, start: int) -> None:
    guest.reset()
    where = _map(guest, value)
    ones = [i for i in range(size) if value >> i & 1]
    zeros = [i for i in range(size) if not value >> i & 1]

    def first(bits: list[int], at_least: int = 0) -> int:
        return next((i for i in bits if i >= at_least), size)

    assert guest.call("_find_first_bit", where, size) == first(ones)
    assert guest.call("_find_next_bit", where, size, start) == first(ones, start)
    assert guest.call("_find_first_zero_bit", where, size) == first(zeros)
    assert guest.call("_find_next_zero_bit", where, size, start) == first(zeros, start)
    assert guest.call("_find_last_bit", where, size) == (ones[-1] if ones else size)
    assert guest.call32("__bitmap_weight", where, size) == len(ones)


@examples
@given(a=MAP, b=MAP, size=st.integers(1, 256))
def test_bit_map_operations(guest: Guest, a: int, b: int, size: int) -> None:
    guest.reset()
    left, right, target = _map(guest, a), _map(guest, b), _map(guest, 0)
    mask = (1 << size) - 1
    for name, value in (("and", a & b), ("or", a | b), ("xor", a ^ b), ("andnot", a & ~b)):
        some = guest.call_int(f"__bitmap_{name}", target, left, right, size)
        assert _read_map(guest, target) & mask == value & mask
        assert some == bool(value & mask)
    assert guest.call("__bitmap_equal", left, right, size) == ((a ^ b) & mask == 0)
    assert guest.call("__bitmap_intersects", left, right, size) == (a & b & mask != 0)
    assert guest.call("__bitmap_subset", left, right, size) == (a & ~b & mask == 0)
    guest.call("__bitmap_complement", target, left, size)
    assert _read_map(guest, target) & mask == ~a & mask


@examples
@given(value=MAP, start=st.integers(0, 200), count=st.integers(0, 56))
def test_runs_of_bits(guest: Guest, value: int, start: int, count: int) -> None:
    guest.reset()
    where = _map(guest, value)
    run = ((1 << count) - 1) << start
    guest.call("__bitmap_set", where, start, count)
    assert _read_map(guest, where) == value | run
    guest.call("__bitmap_clear", where, start, count)
    assert _read_map(guest, where) == value & ~run
    found = guest.call("bitmap_find_next_zero_area_off", where, 256, start, count + 1, 0, 0)
    current = value & ~run
    fits = [i for i in range(start, 256 - count) if not current >> i & ((1 << (count + 1)) - 1)]
    assert found == fits[0] if fits else found + count + 1 > 256


# --- trees and lists ------------------------------------------------------------------------------


def _check_tree(guest: Guest, root: int) -> list[int]:
    """Keys in order; fails unless the tree keeps the red-black rules."""
    keys: list[int] = []

    def walk(node: int, parent: int) -> int:
        if node == 0:
            return 1
        word, right, left, key = struct.unpack("<4Q", guest.memory.read(node, 32))
        assert word & ~1 == parent
        black = word & 1
        for child in (left, right):
            assert black or child == 0 or guest.memory.u64(child) & 1, "red under red"
        depth = walk(left, node)
        keys.append(key)
        assert walk(right, node) == depth, "unequal black depth"
        return depth + black

    top = guest.memory.u64(root)
    assert top == 0 or guest.memory.u64(top) & 1, "red root"
    walk(top, 0)
    return keys


@examples
@given(keys=st.lists(st.integers(0, 99), max_size=40), order=st.randoms(use_true_random=False))
def test_rb_tree_stays_balanced(
    guest: Guest, callbacks: dict[str, int], keys: list[int], order: object
) -> None:
    guest.reset()
    root = guest.words([0])
    nodes = [guest.words([0, 0, 0, key]) for key in keys]
    for count, node in enumerate(nodes, 1):
        guest.call(callbacks["tree_add"], node, root)
        assert _check_tree(guest, root) == sorted(keys[:count])
    node, walked = guest.call("rb_first", root), []
    while node:
        walked.append(node)
        node = guest.call("rb_next", node)
    assert [guest.memory.u64(n + 24) for n in walked] == sorted(keys)
    node, back = guest.call("rb_last", root), []
    while node:
        back.append(node)
        node = guest.call("rb_prev", node)
    assert back == walked[::-1]
    if nodes:
        twin = guest.words([0, 0, 0, keys[0]])
        guest.call("rb_replace_node", nodes[0], twin, root)
        nodes[0] = twin
        assert _check_tree(guest, root) == sorted(keys)
    left = list(zip(keys, nodes, strict=True))
    order.shuffle(left)  # type: ignore[attr-defined]
    while left:
        _, node = left.pop()
        guest.call("rb_erase", node, root)
        assert _check_tree(guest, root) == sorted(key for key, _ in left)


@examples
@given(times=st.lists(st.integers(0, 1000), min_size=1, max_size=30))
def test_timerqueue_knows_its_first(guest: Guest, times: list[int]) -> None:
    guest.reset()
    queue = guest.words([0, 0])
    nodes = []
    for expires in times:
        is_first = all(expires < other for _, other in nodes)
        node = guest.words([0, 0, 0, expires])
        assert guest.call_int("timerqueue_add", queue, node) == is_first
        nodes.append((node, expires))
    for expires in sorted(times):
        node = guest.memory.u64(queue + 8)
        assert guest.memory.u64(node + 24) == expires
        nodes.remove((node, expires))
        assert guest.call_int("timerqueue_del", queue, node) == bool(nodes)
    assert guest.memory.u64(queue + 8) == 0


def test_llist_gives_back_in_order(guest: Guest) -> None:
    guest.reset()
    head = guest.words([0])
    nodes = [guest.words([0]) for _ in range(4)]
    added = [guest.call_int("llist_add_batch", node, node, head) for node in nodes]
    assert added == [1, 0, 0, 0]
    assert guest.call("llist_del_first", head) == nodes[3]
    chain, walked = guest.call("llist_reverse_order", guest.memory.u64(head)), []
    while chain:
        walked.append(chain)
        chain = guest.memory.u64(chain)
    assert walked == nodes[:3]
