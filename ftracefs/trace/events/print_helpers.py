"""What print formats call: the helpers of trace events and the kernel's forms of %p.

Models trace_print_*_seq of kernel/trace/trace_output.c and pointer() of lib/vsprintf.c.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Protocol

Names = tuple[tuple[int, bytes], ...]
_ROW = 64
_M64 = (1 << 64) - 1
_AF_INET, _AF_INET6 = 2, 10
_IS_ERR = _M64 - 4095


class PrintEnvironment(Protocol):
    """What a text is about beside the record."""

    def symbol(self, address: int) -> bytes:
        """%ps."""

    def symbol_offset(self, address: int) -> bytes:
        """%pS."""

    def pointer(self, address: int) -> bytes:
        """%p."""

    def string(self, address: int) -> bytes:
        """%s of a pointer to the kernel's own text."""

    def variable(self, name: str) -> int:
        """A variable of the kernel's, as it is now."""


def print_flags(value: int, delimiter: bytes, names: Names) -> bytes:
    """__print_flags: the names of the bits that are set, what is left over as a number."""
    found = []
    for mask, name in names:
        if value & mask == mask and value:
            found.append(name)
            value &= ~mask
    if value:
        found.append(b"0x%x" % value)
    return delimiter.join(found)


def print_symbolic(value: int, names: Mapping[int, bytes]) -> bytes:
    """__print_symbolic: the name of a value, or the value."""
    name = names.get(value)
    return b"0x%x" % value if name is None else name


def print_hex(data: bytes, length: int) -> bytes:
    """__print_hex."""
    return data[:length].hex(" ").encode()


def print_hex_str(data: bytes, length: int) -> bytes:
    """__print_hex_str."""
    return data[:length].hex().encode()


def print_array(data: bytes, count: int, size: int) -> bytes:
    """__print_array: of `count` numbers of `size` bytes."""
    numbers = (element(data, index, size, False) for index in range(count))
    return b"{%b}" % b",".join(b"0x%x" % number for number in numbers)


def print_bitmask(data: bytes) -> bytes:
    """__get_bitmask: 32 bits a word, the highest first."""
    words = struct.unpack(f"<{len(data) // 4}I", data[: len(data) & ~3])
    return b",".join(b"%08x" % word for word in reversed(words))


def element(data: bytes, index: int, size: int, is_signed: bool) -> int:
    """A number in an array; 0 beyond its end."""
    return int.from_bytes(data[index * size : (index + 1) * size], "little", signed=is_signed)


def divide(a: int, b: int) -> int:
    """C's /, which cuts towards zero; 0 by nothing is nothing."""
    if not b:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def remainder(a: int, b: int) -> int:
    """C's %."""
    return a - divide(a, b) * b if b else 0


def alternate(marked: bytes, plain: bytes, value: int) -> bytes:
    """A conversion with #, which marks no 0."""
    return (marked if value else plain) % value


# --- the kernel's forms of %p ---------------------------------------------------------------------


def ipv4(data: bytes) -> bytes:
    """%pI4."""
    return b"%d.%d.%d.%d" % struct.unpack("4B", data[:4].ljust(4, b"\0"))


def ipv6(data: bytes) -> bytes:
    """%pI6c (ip6_compressed_string)."""
    data = data[:16].ljust(16, b"\0")
    words = list(struct.unpack(">8H", data))
    # Mapped, or made by ISATAP: the last four bytes as an address of the old kind.
    is_mapped = words[:6] == [0, 0, 0, 0, 0, 0xFFFF]
    is_old = is_mapped or (words[4] | 0x0200, words[5]) == (0x0200, 0x5EFE)
    if is_old:
        words = words[:6]
    start, length = _longest_zeros(words)
    parts = [b"%x" % word for word in words]
    if is_old:
        parts.append(ipv4(data[12:]))
    if length < 2:
        return b":".join(parts)
    return b":".join(parts[:start]) + b"::" + b":".join(parts[start + length :])


def _longest_zeros(words: Sequence[int]) -> tuple[int, int]:
    best = run = 0
    at = 0
    for index, word in enumerate(words):
        run = 0 if word else run + 1
        if run > best:
            best, at = run, index + 1 - run
    return at, best


def ipv6_long(data: bytes) -> bytes:
    """%pI6."""
    return b":".join(b"%04x" % word for word in struct.unpack(">8H", data[:16].ljust(16, b"\0")))


def sockaddr(data: bytes) -> bytes:
    """%pISpc: address and port, in short."""
    data = data.ljust(28, b"\0")
    (family,) = struct.unpack_from("<H", data)
    (port,) = struct.unpack_from(">H", data, 2)
    if family == _AF_INET:
        return b"%b:%d" % (ipv4(data[4:8]), port)
    if family == _AF_INET6:
        return b"[%b]:%d" % (ipv6(data[8:24]), port)
    return b"(%b)" % b"invalid address"


def uuid(data: bytes) -> bytes:
    """%pU: the bytes in their order."""
    digits = data[:16].ljust(16, b"\0").hex()
    return "-".join(
        digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    ).encode()


def hex_string(data: bytes, length: int, separator: str) -> bytes:
    """%*ph and its like: at most 64 bytes."""
    data = data[: min(length, _ROW)]
    return (data.hex(separator) if separator else data.hex()).encode()


def raw_pointer(address: int) -> bytes:
    """%px."""
    return b"%016x" % (address & _M64)


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _M64


def _rounds(v: list[int], count: int) -> None:
    """SIPROUND of lib/siphash.c."""
    for _ in range(count):
        v[0] = (v[0] + v[1]) & _M64
        v[1] = _rotate(v[1], 13) ^ v[0]
        v[0] = _rotate(v[0], 32)
        v[2] = (v[2] + v[3]) & _M64
        v[3] = _rotate(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & _M64
        v[3] = _rotate(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & _M64
        v[1] = _rotate(v[1], 17) ^ v[2]
        v[2] = _rotate(v[2], 32)


def siphash_1u64(word: int, key: tuple[int, int]) -> int:
    """SipHash-2-4 of one word."""
    k0, k1 = key
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    for block in (word, 8 << 56):
        v[3] ^= block
        _rounds(v, 2)
        v[0] ^= block
    v[2] ^= 0xFF
    _rounds(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def is_shown(address: int) -> bool:
    """Whether a pointer leads nowhere, so that nothing is to be hidden (IS_ERR_OR_NULL)."""
    return address == 0 or address >= _IS_ERR


def hashed_pointer(address: int, key: tuple[int, int]) -> bytes:
    """%p (ptr_to_id): not where something is, but the same for the same."""
    address &= _M64
    if is_shown(address):
        return raw_pointer(address)
    return b"%016x" % (siphash_1u64(address, key) & 0xFFFFFFFF)
