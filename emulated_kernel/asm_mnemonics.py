"""The instructions of our assembler.

A list of the allowed, since the encoder does not merely refuse others: on some it answers with
something else, and on some it ends the process. What is added here has to be added to the forms
that the tests compare with GNU `as`.
"""

from __future__ import annotations

from collections.abc import Iterable

_CONDITIONS = (
    ("o",),
    ("no",),
    ("b", "c", "nae"),
    ("ae", "nb", "nc"),
    ("e", "z"),
    ("ne", "nz"),
    ("be", "na"),
    ("a", "nbe"),
    ("s",),
    ("ns",),
    ("p", "pe"),
    ("np", "po"),
    ("l", "nge"),
    ("ge", "nl"),
    ("le", "ng"),
    ("g", "nle"),
)
CONDITIONS = {name: code for code, aliases in enumerate(_CONDITIONS) for name in aliases}

# mnemonic -> (opcode before an 8-bit distance, opcode before a 32-bit one; empty: there is none)
BRANCHES = {
    "call": (b"", b"\xe8"),
    "jmp": (b"\xeb", b"\xe9"),
    "loop": (b"\xe2", b""),
    "loope": (b"\xe1", b""),
    "loopz": (b"\xe1", b""),
    "loopne": (b"\xe0", b""),
    "loopnz": (b"\xe0", b""),
    "jrcxz": (b"\xe3", b""),
    "jecxz": (b"\x67\xe3", b""),
} | {f"j{name}": (bytes([0x70 + n]), bytes([0x0F, 0x80 + n])) for name, n in CONDITIONS.items()}

PREFIXES = {
    "lock": b"\xf0",
    "rep": b"\xf3",
    "repe": b"\xf3",
    "repz": b"\xf3",
    "repne": b"\xf2",
    "repnz": b"\xf2",
}
# Prefix bytes that GNU `as` puts before those: segment and operand size.
EARLIER_PREFIXES = b"\x64\x65\x66"

STRING_OPERATIONS = frozenset(
    f"{name}{size}" for name in ("movs", "stos", "lods", "cmps", "scas") for size in "bwdq"
)
SHIFTS = frozenset(("shl", "sal", "shr", "sar", "rol", "ror", "rcl", "rcr"))
DOUBLE_SHIFTS = frozenset(("shld", "shrd"))
BIT_TESTS = frozenset(("bt", "bts", "btr", "btc"))
LOCKABLE = frozenset(
    (
        *("add", "adc", "and", "btc", "btr", "bts", "cmpxchg", "cmpxchg8b", "cmpxchg16b", "dec"),
        *("inc", "neg", "not", "or", "sbb", "sub", "xadd", "xchg", "xor"),
    )
)

_NO_OPERANDS = (
    *STRING_OPERATIONS,
    *("cbw", "cwde", "cdqe", "cwd", "cdq", "cqo", "clc", "stc", "cmc", "cld", "std", "cli", "sti"),
    *("clac", "stac", "clts", "cpuid", "endbr64", "hlt", "int1", "int3", "invd", "wbinvd", "iretq"),
    *("lahf", "sahf", "leave", "lfence", "mfence", "sfence", "lret", "lretq", "monitor", "mwait"),
    *("nop", "pause", "popfq", "pushfq", "rdmsr", "wrmsr", "rdpmc", "rdtsc", "rdtscp", "swapgs"),
    *("syscall", "sysretq", "ud2", "xgetbv", "xsetbv", "xlatb", "fninit", "fnclex", "emms"),
)
_ONE_OPERAND = (
    *("call", "jmp", "push", "pop", "inc", "dec", "neg", "not", "mul", "div", "idiv", "bswap"),
    *("int", "invlpg", "lgdt", "lidt", "sgdt", "sidt", "lldt", "ltr", "verw"),
    *("clflush", "prefetcht0", "prefetcht1", "prefetcht2", "prefetchnta", "prefetchw"),
    *("fxsave", "fxrstor", "fxsave64", "fxrstor64", "ldmxcsr", "stmxcsr"),
    *("cmpxchg8b", "cmpxchg16b"),
    *("rdfsbase", "wrfsbase", "rdgsbase", "wrgsbase", "rdrand", "rdseed"),
    *(f"set{condition}" for condition in CONDITIONS),
)
_TWO_OPERANDS = (
    *("mov", "movabs", "movzx", "movsx", "movsxd", "movnti", "movbe", "lea", "xchg", "test"),
    *("add", "or", "adc", "sbb", "and", "sub", "xor", "cmp", "cmpxchg", "xadd", "in", "out"),
    *("bsf", "bsr", "popcnt", "tzcnt", "lzcnt", "crc32", "enter"),
    *("movdqu", "movdqa", "movups", "movaps", "movntdq", "pxor", "por", "pand"),
    *(f"cmov{condition}" for condition in CONDITIONS),
    *BIT_TESTS,
)


def _operands() -> dict[str, tuple[int, ...]]:
    counts: dict[str, tuple[int, ...]] = {}
    groups: tuple[tuple[Iterable[str], tuple[int, ...]], ...] = (
        (_NO_OPERANDS, (0,)),
        (_ONE_OPERAND, (1,)),
        (_TWO_OPERANDS, (2,)),
        (SHIFTS, (1, 2)),
        (DOUBLE_SHIFTS, (3,)),
        (("ret", "retq"), (0, 1)),
        (("imul",), (1, 2, 3)),
    )
    for mnemonics, numbers in groups:
        counts |= dict.fromkeys(mnemonics, numbers)
    return counts


# mnemonic -> how many operands it can have
OPERANDS = _operands()

# What the encoder does not know, or writes differently from GNU `as`.
FIXED = {
    "endbr64": bytes.fromhex("f30f1efa"),
    "int 0x3": bytes.fromhex("cc"),
    "lret": bytes.fromhex("cb"),
    "lretq": bytes.fromhex("48cb"),
    "movsd": bytes.fromhex("a5"),
    "retq": bytes.fromhex("c3"),
    "sysretq": bytes.fromhex("480f07"),
    "xchg rax,rax": bytes.fromhex("90"),
}

# Means something else than it seems to, to the encoder or to GNU `as`.
HINTS = {
    "data16": "write the instruction itself",
    "icebp": "write int1",
    "into": "there is none in 64-bit mode",
    "iret": "write iretq",
    "iretd": "write iretq",
    "popf": "write popfq",
    "pushf": "write pushfq",
    "retf": "write lretq",
    "sysret": "write sysretq",
} | dict.fromkeys(PREFIXES, "it needs an instruction behind it")

# Immediates that do not have the width of the first operand: their own width, unsigned.
NARROW_IMMEDIATES = dict.fromkeys((*SHIFTS, *DOUBLE_SHIFTS, *BIT_TESTS, "int", "in", "out"), 8) | {
    "ret": 16,
    "retq": 16,
    "enter": 16,
}
# No register beside the memory operand says how wide that is.
NEEDS_SIZE = frozenset(("movzx", "movsx", "movsxd", "crc32"))
NEEDS_NO_SIZE = frozenset(
    ("lgdt", "lidt", "sgdt", "sidt", "fxsave", "fxrstor", "fxsave64", "fxrstor64")
)
