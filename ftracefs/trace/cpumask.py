"""Sets of CPUs as files have them: hexadecimal, 32 bits between two commas (lib/bitmap.c)."""

from __future__ import annotations

import errno

from ftracefs.errors import TracefsError
from ftracefs.trace.parsers import c_string

_SPACE = b" \t\n\v\f\r\xa0"  # isspace() of the kernel's ctype table
_BETWEEN = _SPACE + b","
_HEX = b"0123456789abcdef"
_CHUNK_DIGITS = 8
_CHUNK_BITS = 32


def bitmap_parse(data: bytes, nmaskbits: int) -> int:
    """The mask that the first line of `data` gives, read from its end.

    EINVAL for what is no digit, EOVERFLOW for more than `nmaskbits` bits: a bit beyond them, a
    group of more than 8 digits, or more groups than it takes, be they zero.
    """
    text = c_string(data).partition(b"\n")[0]
    mask, chunk = 0, 0
    while text := text.rstrip(_BETWEEN):
        if chunk * _CHUNK_BITS >= nmaskbits:
            raise TracefsError(errno.EOVERFLOW, "more groups than there are CPUs")
        value, text = _get_x32_reverse(text)
        mask |= value << chunk * _CHUNK_BITS
        chunk += 1
    if mask >> nmaskbits:
        raise TracefsError(errno.EOVERFLOW, "a CPU that there is not")
    return mask


def _get_x32_reverse(text: bytes) -> tuple[int, bytes]:
    """The group at the end of `text`, and what is in front of it (bitmap_get_x32_reverse).

    As in Linux whatever stands before eight digits ends the group if it is no digit itself.
    """
    value = 0
    for shift in range(0, 4 * _CHUNK_DIGITS, 4):
        value |= _digit(text[-1]) << shift
        text = text[:-1]
        if not text or text[-1] in _BETWEEN:
            return value, text
    if bytes(text[-1:]).lower() in _HEX:
        raise TracefsError(errno.EOVERFLOW, "a group of more than 8 digits")
    return value, text[:-1]


def _digit(char: int) -> int:
    digit = _HEX.find(bytes([char]).lower())
    if digit < 0:
        raise TracefsError(errno.EINVAL, "no hexadecimal digit")
    return digit


def cpumask_text(mask: int, nmaskbits: int) -> str:
    """A mask as printf's %*pb has it."""
    digits = f"{mask:0{-(-nmaskbits // 4)}x}"
    first = len(digits) % _CHUNK_DIGITS or _CHUNK_DIGITS
    groups = [
        digits[:first],
        *(digits[at : at + _CHUNK_DIGITS] for at in range(first, len(digits), _CHUNK_DIGITS)),
    ]
    return ",".join(groups)
