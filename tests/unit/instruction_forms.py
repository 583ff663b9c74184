"""Instruction texts to encode: idioms that kernel code needs, and every combination around them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

REGISTERS = {
    "qword": ["rax", "rbx", "rcx", "rsp", "rbp", "rdi", "r8", "r12", "r13", "r15"],
    "dword": ["eax", "ecx", "esp", "edi", "r9d", "r13d"],
    "word": ["ax", "dx", "bp", "r10w"],
    "byte": ["al", "cl", "ah", "sil", "r8b", "dil", "bh"],
}
ADDRESSES = [
    *("[rdi]", "[rsp]", "[rbp]", "[r12]", "[r13]", "[rip]", "[rip + 8]"),
    *("[rax + 8]", "[rax + 0]", "[8 + rdi]", "[rbp - 8]", "[rsp + 0x80]"),
    *("[rdi - 0x80]", "[rdi + 127]", "[rdi + 128]", "[rdi + 0x12345678]"),
    *("[rax + rbx]", "[rax + rsp]", "[rsp + rsp*1]", "[rbp + rax*1]", "[r13 + r13]"),
    *("[rax + rbx*4]", "[4*rax + rdi]", "[rbp + r13*8 + 16]", "[rsp + rax*2 - 4]"),
    *("[rbx*8]", "[rbx*2 + 4]", "[rbx*1]", "[r12*1 + 4]", "[rbp*2]"),
    *("[0x1000]", "[0xffffffff81000100]", "gs:[0x28]", "gs:[8 + rax*8]", "gs:[rax]", "fs:[0]"),
    # refused, by one or by both
    *("[rdi + rsp*2]", "[rax*3]", "[rip + rax]", "[rax + rbx + rcx]", "[eax]", "ds:[rdi]"),
]
NUMBERS = [
    *("0", "1", "-1", "127", "128", "-128", "-129", "255", "256", "0x7fff", "0x8000", "0xffff"),
    *("0xff80", "0x10000", "0x7fffffff", "0x80000000", "0xffffff80", "0xffffffff", "0x100000000"),
    *("-0x80000000", "-0x80000001", "0xffffffff80000000", "0xffffffff81000000"),
    *("0x8000000000000000", "0xffffffffffffffff"),
]
ARITHMETIC = ["add", "or", "adc", "sbb", "and", "sub", "xor", "cmp", "test", "mov", "xchg"]
UNARY = ["inc", "dec", "neg", "not", "mul", "imul", "div", "idiv", "push", "pop", "call", "jmp"]
SHIFTS = ["shl", "shr", "sar", "sal", "rol", "ror", "rcl", "rcr"]
BIT_TESTS = ["bt", "bts", "btr", "btc"]
TWO_OPERANDS = ["bsf", "bsr", "popcnt", "tzcnt", "lzcnt", "imul", "lea", "cmove", "cmovae", "cmovl"]
CONDITIONS = [
    *("o", "no", "b", "c", "nae", "ae", "nb", "nc", "e", "z", "ne", "nz", "be", "na", "a", "nbe"),
    *("s", "ns", "p", "pe", "np", "po", "l", "nge", "ge", "nl", "le", "ng", "g", "nle"),
]

IDIOMS = [
    # moves
    *("mov rax, rbx", "mov eax, 1", "mov rdi, -1", "mov rax, 0xffffffff81000000", "mov r8d, edi"),
    *("movabs r11, 0x1122334455667788", "mov qword ptr [rdi + 8], -1", "mov [rbp - 8], rdi"),
    *("mov rax, gs:[0x20]", "mov gs:[8], eax", "mov rax, [rdi + rcx*8 + 0x100]", "mov al, [rsi]"),
    *("movzx eax, byte ptr [rdi]", "movzx eax, word ptr [rdi + 2]", "movsx rax, byte ptr [rdi]"),
    *("movsxd rax, edi", "movsxd rax, dword ptr [rdi]", "movsx rax, edi", "xchg rax, [rdi]"),
    *("push rbp", "pop rbp", "push qword ptr [rdi]", "pop qword ptr [rdi]", "push [rdi + 8]"),
    *("push 0x2b", "push -1", "push 0xffff", "lea rdi, [rsp + 16]", "bswap rax", "cdqe", "cqo"),
    *("cmovne rax, rbx", "cmovz ecx, [rdi]", "sete al", "setne byte ptr [rdi]", "leave"),
    # arithmetic
    *("add rsp, 0x80", "sub rsp, 0x1000", "and rsp, -16", "xor eax, eax", "inc dword ptr [rdi]"),
    *("dec byte ptr gs:[3]", "or byte ptr gs:[2], 1", "and byte ptr gs:[2], 0xfe", "neg rax"),
    *("cmp dword ptr gs:[4], 0", "cmp rax, [rdi]", "test al, 1", "test rdi, rdi", "not rax"),
    *("test dword ptr [rdi + 8], 0x200000", "imul rax, rbx, 24", "imul rcx, rdi", "mul rdi"),
    *("div rcx", "shl rax, 12", "shr eax, 1", "sar rdi, cl", "shld rax, rdx, 32", "rol ecx, 7"),
    *("bt qword ptr [rdi], 3", "bts rax, 63", "btr [rdi], rax", "bsf rax, rdi", "bsr ecx, edi"),
    *("popcnt rax, rdi", "tzcnt rax, rdi"),
    # atomics and strings
    *("lock inc dword ptr [rdi]", "lock cmpxchg [rdi], edx", "lock xadd qword ptr [rdi], rax"),
    *("lock add qword ptr gs:[8], 1", "lock bts qword ptr [rdi], 0", "lock or dword ptr [rdi], 4"),
    *("lock cmpxchg16b xmmword ptr [rdi]", "xchg byte ptr [rdi], al", "lock dec word ptr [rdi]"),
    *("rep movsb", "rep movsq", "rep stosq", "rep stosb", "rep movsd", "rep movsw", "repe cmpsb"),
    *("repne scasb", "lodsb", "stosd", "cld", "std"),
    # calls
    *("call rax", "call qword ptr [rax + 8]", "call [rip + 8]", "jmp rax", "jmp [rax*8 + 0x1000]"),
    *("call qword ptr gs:[8 + rax*8]", "ret", "ret 8", "retq", "lretq"),
    # the machine
    *("cli", "sti", "hlt", "nop", "pause", "swapgs", "syscall", "sysretq", "iretq", "int 0xf0"),
    *("int3", "int 3", "ud2", "endbr64", "rdmsr", "wrmsr", "rdtsc", "rdtscp", "cpuid", "wbinvd"),
    *("mov cr3, rax", "mov rax, cr2", "mov rdi, cr4", "mov dr7, rax", "mov ds, ax", "mov ds, eax"),
    *("mov eax, gs", "mov ss, ax", "push fs", "pop gs", "lgdt [rdi]", "lidt [rip + 16]", "ltr ax"),
    *("invlpg [rdi]", "invlpg byte ptr [rdi]", "mfence", "lfence", "sfence", "clac", "stac"),
    *("pushfq", "popfq", "in al, dx", "out dx, al", "out 0x80, al", "fxsave [rdi]", "clts"),
    *("rdfsbase rax", "wrgsbase rdi", "prefetcht0 [rdi]", "clflush [rdi]", "xgetbv", "monitor"),
    *("movdqu xmm0, [rsi]", "movdqu [rdi], xmm0", "movaps xmm1, xmm2", "movntdq [rdi], xmm8"),
    *("pxor xmm0, xmm0", "ldmxcsr dword ptr [rdi]", "crc32 eax, byte ptr [rdi]"),
]

_PLAIN = """
    nop hlt cli sti cld std clc stc cmc leave ret retq iretq iret iretd lret lretq retf syscall
    sysretq sysret sysexit sysenter swapgs rdmsr wrmsr rdtsc rdtscp rdpmc cpuid ud2 int3 int1 icebp
    into pushfq popfq pushf popf cbw cwde cdqe cwd cdq cqo lahf sahf pause lfence mfence sfence
    wbinvd invd clts clac stac monitor mwait xgetbv xsetbv endbr64 endbr32 emms fninit xlatb xlat
    pusha popa daa aaa wait lock rep data16 rex.w ud0 ud1 serialize rdpid vzeroupper
"""
_ODD = [
    *("int -1", "int 256", "ret -1", "ret 0x10000", "enter 8, 0", "enter 8, 256", "in al, 256"),
    *("mov cr1, rax", "mov cr8, rax", "mov cr9, rax", "mov cr0, eax", "mov rax, dr0", "mov cs, ax"),
    *("mov es, r8w", "mov ax, ds", "mov rax, ds", "mov r9, gs", "mov ss, [rdi]", "mov [rdi], ds"),
    *("mov ss, word ptr [rdi]", "mov word ptr [rdi], ds", "mov gs, r10", "mov r10w, fs"),
    *("push cs", "pop ds", "push ax", "push eax", "lldt ax", "str ax", "sgdt [rdi]", "ltr [rdi]"),
    *("cmpxchg8b [rdi]", "cmpxchg16b [rdi]", "out 0x80, eax", "in eax, 0x60", "bswap ax"),
    *("movbe rax, [rdi]", "rdrand rax", "xchg rax, rax", "xchg eax, eax", "xchg ax, ax"),
    *("movabs rax, 5", "movabs rcx, -1", "movabs eax, 5", "movabs al, [0x1000]", "nop eax"),
    *("nop dword ptr [rax]", "movd eax, xmm3", "movdqa xmm0, xmm1", "movups [rdi + 8], xmm9"),
    *("pshufd xmm0, xmm1, 0x1b", "pshufd xmm0, xmm1, 256", "cvtsi2sd xmm0, [rdi]"),
    *("cvtsi2sd xmm0, qword ptr [rdi]", "movsd xmm0, [rdi]", "movss xmm0, xmm1", "mov ah, r8b"),
    *("mov ah, byte ptr [r8]", "movzx rax, ah", "movsx r8d, ah", "mov rip, rax", "jmp rip"),
    *("andn rax, rbx, rcx", "rorx rax, rbx, 3", "vaddps ymm0, ymm1, ymm2", "loop rax", "call ax"),
    *("mov eax, [rdi + rcx*(2+2)]", "mov eax, [rdi + rcx*(2+1)]", "mov rax, qword [rdi]"),
    *("mov eax, [rdi + 0x100000000]", "mov eax, [rdi + 0x80000000]", "mov eax, [rdi - 0x80000001]"),
    *("mov eax, [rdi + 0xffffffffffffff80]", "lgdt qword ptr [rdi]", "movsb byte ptr [rdi], al"),
]


def forms() -> Iterator[str]:
    """A few ten thousand instructions, good and bad."""
    yield from IDIOMS
    yield from _PLAIN.split()
    yield from _ODD
    for size, registers in REGISTERS.items():
        yield from _arithmetic(size, registers)
        yield from _one_operand(size, registers)
        yield from _shifts(size, registers)
        yield from _atomics(size, registers)
        if size != "byte":
            yield from _wide_only(size, registers)
    yield from _extensions()
    for condition in CONDITIONS:
        yield from (f"set{condition} {to}" for to in ("al", "sil", "ah", "eax", "byte ptr [rdi]"))
        yield f"cmov{condition} rax, rbx"
    for prefix, name, width in product(
        ("", "rep ", "repe ", "repz ", "repne ", "repnz "),
        ("movs", "stos", "lods", "cmps", "scas", "ins", "outs"),
        "bwdq",
    ):
        yield f"{prefix}{name}{width}"


def _arithmetic(size: str, registers: list[str]) -> Iterator[str]:
    for name in ARITHMETIC:
        for register in registers:
            yield from (f"{name} {register}, {other}" for other in registers[::2])
            yield from (f"{name} {register}, {number}" for number in NUMBERS)
        for address in ADDRESSES:
            yield f"{name} {size} ptr {address}, {registers[1]}"
            yield f"{name} {registers[0]}, {size} ptr {address}"
            yield f"{name} {registers[-1]}, {address}"
            yield f"{name} {address}, {registers[0]}"
        for number in NUMBERS:
            yield f"{name} {size} ptr [rdi + 8], {number}"
            yield f"{name} {size} ptr gs:[8], {number}"
        yield from (f"{name} {registers[0]}, {other}" for other in ("ebx", "dword ptr [rdi]"))
        yield f"{name} [rdi], 5"


def _one_operand(size: str, registers: list[str]) -> Iterator[str]:
    for name in UNARY:
        yield from (f"{name} {register}" for register in registers)
        yield from (f"{name} {size} ptr {address}" for address in ADDRESSES)
        yield from (f"{name} {address}" for address in ADDRESSES)
    yield from (f"push {number}" for number in NUMBERS)


def _shifts(size: str, registers: list[str]) -> Iterator[str]:
    for name, target in product(SHIFTS, [*registers[:3], f"{size} ptr [rbx + 4]", "[rbx]"]):
        yield name + " " + target
        for count in ("1", "2", "31", "63", "255", "256", "-1", "cl", "dl"):
            yield f"{name} {target}, {count}"


def _atomics(size: str, registers: list[str]) -> Iterator[str]:
    for prefix, name in product(("", "lock "), ("cmpxchg", "xadd", "xchg")):
        yield f"{prefix}{name} {size} ptr [rdi + 8], {registers[1]}"
        yield f"{prefix}{name} [rdi], {registers[1]}"
        yield f"{prefix}{name} {registers[0]}, {registers[1]}"
        yield f"{prefix}{name} {registers[1]}, [rdi]"
    for name in ("inc", "dec", "neg", "not", *BIT_TESTS, *ARITHMETIC):
        yield f"lock {name} {size} ptr [rdi]"
        yield f"lock {name} {size} ptr [rdi], 1"
        yield f"lock {name} {size} ptr gs:[8], {registers[0]}"
        yield f"lock {name} {registers[0]}, {registers[1]}"


def _wide_only(size: str, registers: list[str]) -> Iterator[str]:
    for name, target in product(BIT_TESTS, [*registers[:3], f"{size} ptr [rdi]", "[rdi]"]):
        for bit in ("1", "63", "128", "255", "256", registers[1]):
            yield f"{name} {target}, {bit}"
    for name in TWO_OPERANDS:
        yield from (f"{name} {register}, {registers[1]}" for register in registers[:3])
        for address in ADDRESSES:
            yield f"{name} {registers[0]}, {size} ptr {address}"
            yield f"{name} {registers[0]}, {address}"
    for number in NUMBERS:
        yield f"imul {registers[1]}, {number}"
        for source in (registers[1], "[rdi]", f"{size} ptr [rdi]"):
            yield f"imul {registers[0]}, {source}, {number}"
    for name, count in product(("shld", "shrd"), ("1", "cl", "63", "300")):
        yield f"{name} {registers[0]}, {registers[1]}, {count}"
        yield f"{name} {size} ptr [rdi], {registers[1]}, {count}"


def _extensions() -> Iterator[str]:
    for name, target, source in product(
        ("movzx", "movsx", "movsxd"), ("word", "dword", "qword"), ("byte", "word", "dword")
    ):
        for register in REGISTERS[target][:3]:
            yield from (f"{name} {register}, {other}" for other in REGISTERS[source])
            yield from (f"{name} {register}, {source} ptr {a}" for a in ADDRESSES[:8])
        yield f"{name} {REGISTERS[target][0]}, [rdi]"
