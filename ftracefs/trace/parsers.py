"""Reading what was written: numbers and words as the kernel's helpers take them.

Models lib/kstrtox.c (`kstrtoul`, `kstrtoul_from_user`) and `strim` of lib/string.c. Text is bytes
throughout, since a write may hold anything; like a C string it ends at its first NUL.
"""

from __future__ import annotations

import errno

from ftracefs.errors import TracefsError

ULONG_MAX = (1 << 64) - 1
_ISSPACE = b" \t\n\v\f\r\xa0"  # the kernel's isspace() counts the Latin-1 no-break space
_FROM_USER_BYTES = 1 + 64 + 1  # a sign, 64 binary digits, a newline


def c_string(data: bytes) -> bytes:
    """What a C function sees of `data`: everything before the first NUL."""
    return data.partition(b"\0")[0]


def strim(data: bytes) -> bytes:
    """The string without white space at either end."""
    return c_string(data).strip(_ISSPACE)


def _digits(text: bytes, base: int) -> bytes:
    end = 0
    while end < len(text) and (digit := _digit(text[end])) is not None and digit < base:
        end += 1
    return text[:end]


def _digit(char: int) -> int | None:
    if 0x30 <= char <= 0x39:
        return char - 0x30
    lower = char | 0x20
    return lower - 0x61 + 10 if 0x61 <= lower <= 0x66 else None


def kstrtoul(data: bytes, base: int = 10) -> int:
    """An unsigned long: an optional '+', digits, an optional newline and nothing else.

    Raises EINVAL, or ERANGE when it does not fit (whatever follows the digits). Base 0 takes 0x and
    a leading 0 as C does; base 16 allows 0x.
    """
    text = c_string(data)
    text = text.removeprefix(b"+")
    hexadecimal = text[:2].lower() == b"0x" and _digits(text[2:3], 16) != b""
    if base == 0:
        base = 16 if hexadecimal else 8 if text[:1] == b"0" else 10
    if base == 16 and text[:2].lower() == b"0x":
        text = text[2:]
    digits = _digits(text, base)
    value = int(digits, base) if digits else 0
    if value > ULONG_MAX:
        raise TracefsError(errno.ERANGE, f"{data!r} does not fit an unsigned long")
    if not digits or text[len(digits) :] not in (b"", b"\n"):
        raise TracefsError(errno.EINVAL, f"{data!r} is not a number")
    return value


def kstrtoul_from_user(data: bytes, base: int = 10) -> int:
    """`kstrtoul` of a write: only its first 66 bytes are looked at."""
    return kstrtoul(data[:_FROM_USER_BYTES], base)
