"""Names that mean something to an x86 assembler and so can be no symbol's or constant's."""

from __future__ import annotations


def _general_registers() -> dict[str, int]:
    bits: dict[str, int] = {}
    for name in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp"):
        bits |= {f"r{name}": 64, f"e{name}": 32, name: 16}
    for number in range(8, 16):
        bits |= {f"r{number}": 64, f"r{number}d": 32, f"r{number}w": 16, f"r{number}b": 8}
    low = ("al", "bl", "cl", "dl", "sil", "dil", "bpl", "spl")
    return bits | dict.fromkeys([*low, "ah", "bh", "ch", "dh"], 8)


GENERAL = _general_registers()  # name -> bits
SEGMENT = frozenset(("cs", "ds", "es", "fs", "gs", "ss"))
SPECIAL = {f"{kind}{n}": 64 for kind in ("cr", "dr") for n in range(16)}
VECTOR = {f"xmm{n}": 128 for n in range(16)}

# Registers that only a REX prefix reaches, and those that no instruction with one can name.
NEEDS_REX = frozenset(
    [name for name in GENERAL if name[1].isdigit()] + ["sil", "dil", "bpl", "spl"]
)
FORBIDS_REX = frozenset(("ah", "bh", "ch", "dh"))

SIZES = {"byte": 8, "word": 16, "dword": 32, "qword": 64, "xmmword": 128}

# Words that GNU `as` takes for operators of its Intel syntax, whatever the case.
_OPERATORS = (
    *("ptr", "offset", "flat", "short", "near", "far"),
    *("byte", "word", "dword", "fword", "qword", "tbyte", "oword"),
    *("mmword", "xmmword", "ymmword", "zmmword"),
    *("and", "or", "xor", "not", "mod", "shl", "shr", "eq", "ne", "lt", "le", "gt", "ge"),
)
_OTHER_REGISTERS = [
    *("rip", "eip", "riz", "eiz", "st"),
    *(f"{kind}{n}" for kind in ("ymm", "zmm", "xmm") for n in range(32)),
    *(f"{kind}{n}" for kind in ("mm", "k", "tr", "bnd", "tmm") for n in range(8)),
]

RESERVED = frozenset(
    [*GENERAL, *SEGMENT, *SPECIAL, *VECTOR, *SIZES, *_OPERATORS, *_OTHER_REGISTERS]
)
