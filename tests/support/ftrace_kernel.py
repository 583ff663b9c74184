"""A kernel of a few functions, and callbacks, for tests of ftrace on a real machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, MODULES_DATA, TEXT_BASE
from emulated_kernel.assembler import Symbol, assemble
from emulated_kernel.image import KernelImage, Module
from emulated_kernel.images.builtin import MODULE_TEXT
from emulated_kernel.machine import Machine
from emulated_kernel.text_poke import text_gen_call
from ftracefs.ftrace import Ftrace
from ftracefs.guest import load_guest

SOURCE = """# A test kernel.
.text
FUNC_NOTRACE __fentry__
    ret
ENDFUNC __fentry__
FUNC_NOTRACE host_return
    hlt
host_return_halt:
    jmp host_return
ENDFUNC host_return

FUNC add_one
    push rbp
    mov rbp, rsp
    lea rax, [rdi + 1]
    pop rbp
    ret
ENDFUNC add_one

FUNC_ENDBR double
    push rbp
    mov rbp, rsp
    lea rax, [rdi + rdi]
    pop rbp
    ret
ENDFUNC double

FUNC add_one_twice
    push rbp
    mov rbp, rsp
    call add_one
    mov rdi, rax
    call add_one
    pop rbp
    ret
ENDFUNC add_one_twice

FUNC six_sum
    push rbp
    mov rbp, rsp
    lea rax, [rdi + rsi*2]
    lea rax, [rax + rdx*4]
    lea rax, [rax + rcx*8]
    shl r8, 4
    shl r9, 5
    add rax, r8
    add rax, r9
    pop rbp
    ret
ENDFUNC six_sum

FUNC_NOTRACE untraced
    mov eax, 7
    ret
ENDFUNC untraced

FUNC_STATIC helper.isra.0
    ret
ENDFUNC helper.isra.0

FUNC loop_add                    # rdi: how often add_one is called
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    mov rbx, rdi
    xor r12d, r12d
1:  mov rdi, r12
    call add_one
    mov r12, rax
    dec rbx
    jne 1b
    mov rax, r12
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC loop_add

# Sets every register it can, calls rdi, and stores what is in them behind it.
#   rsi: 16 words in, in the order below; rdx: 17 words out, the last the flags
FUNC_NOTRACE with_registers
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    push rdx                     # [rsp + 8] after the next push
    push rdi                     # [rsp]
    mov rax, rsi
    mov rbx, [rax + 8]
    mov rcx, [rax + 16]
    mov rdx, [rax + 24]
    mov rsi, [rax + 32]
    mov rdi, [rax + 40]
    mov rbp, [rax + 48]
    mov r8, [rax + 64]
    mov r9, [rax + 72]
    mov r10, [rax + 80]
    mov r11, [rax + 88]
    mov r12, [rax + 96]
    mov r13, [rax + 104]
    mov r14, [rax + 112]
    mov r15, [rax + 120]
    push qword ptr [rax + 56]    # the word of rsp's place: the flags
    popfq
    mov rax, [rax]
    call [rsp]
with_registers_return:
    pushfq
    push rax
    mov rax, [rsp + 24]
    mov [rax + 8], rbx
    mov [rax + 16], rcx
    mov [rax + 24], rdx
    mov [rax + 32], rsi
    mov [rax + 40], rdi
    mov [rax + 48], rbp
    mov [rax + 64], r8
    mov [rax + 72], r9
    mov [rax + 80], r10
    mov [rax + 88], r11
    mov [rax + 96], r12
    mov [rax + 104], r13
    mov [rax + 112], r14
    mov [rax + 120], r15
    pop rbx
    mov [rax], rbx
    pop rbx
    mov [rax + 128], rbx
    pop rdi
    pop rdx
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC with_registers

FUNC nothing                     # changes no register and no flag
    ret
ENDFUNC nothing

FUNC replacement                 # of add_one
    push rbp
    mov rbp, rsp
    lea rax, [rdi + 100]
    pop rbp
    ret
ENDFUNC replacement

# Callbacks; OP_PRIVATE points at what each of them fills.

FUNC_NOTRACE count_call
    mov r8, [rdx + OP_PRIVATE]
    inc qword ptr [r8]
    ret
ENDFUNC count_call

FUNC_NOTRACE count_call_too
    mov r8, [rdx + OP_PRIVATE]
    inc qword ptr [r8]
    ret
ENDFUNC count_call_too

FUNC_NOTRACE log_call            # count, then pairs of ip and parent_ip
    mov r8, [rdx + OP_PRIVATE]
    mov r9, [r8]
    inc qword ptr [r8]
    shl r9, 4
    mov [r8 + r9 + 8], rdi
    mov [r8 + r9 + 16], rsi
    ret
ENDFUNC log_call

FUNC_NOTRACE keep_frame          # rdi rsi rdx rcx rsp, preempt depth, *regs->sp, then the pt_regs
    mov r8, [rdx + OP_PRIVATE]
    mov [r8], rdi
    mov [r8 + 8], rsi
    mov [r8 + 16], rdx
    mov [r8 + 24], rcx
    mov [r8 + 32], rsp
    movzx eax, byte ptr gs:[PREEMPT_DEPTH]
    mov [r8 + 40], rax
    mov rax, [rcx + PT_RSP]
    mov rax, [rax]
    mov [r8 + 48], rax
    xor r9d, r9d
1:  mov rax, [rcx + r9]
    mov [r8 + r9 + 56], rax
    add r9, 8
    cmp r9, FRAME_BYTES
    jne 1b
    ret
ENDFUNC keep_frame

FUNC_NOTRACE redirect            # regs->ip = OP_PRIVATE
    mov r8, [rdx + OP_PRIVATE]
    mov [rcx + PT_RIP], r8
    ret
ENDFUNC redirect

FUNC_NOTRACE call_traced         # counts, and calls a traced function itself
    mov r8, [rdx + OP_PRIVATE]
    inc qword ptr [r8]
    push rdi
    mov edi, 1
    call add_one
    pop rdi
    ret
ENDFUNC call_traced

FUNC_NOTRACE go_direct           # ORIG_RAX = OP_PRIVATE, as call_direct_funcs does it
    mov r8, [rdx + OP_PRIVATE]
    mov [rcx + PT_ORIG_RAX], r8
    ret
ENDFUNC go_direct

FUNC_NOTRACE direct_target       # entered like a trampoline: the traced function goes on behind it
    add rdi, 1000
    ret
ENDFUNC direct_target

FUNC_NOTRACE direct_target_too
    add rdi, 2000
    ret
ENDFUNC direct_target_too

FUNC_NOTRACE ask_host            # a hypercall from inside a callback
    mov eax, HC_CALLBACK
    int HYPERCALL
    ret
ENDFUNC ask_host

.data
    .quad 0
"""

NAMES = ["add_one", "double", "add_one_twice", "six_sum", "helper.isra.0", "loop_add", "nothing"]
NAMES += ["replacement"]


@cache
def kernel_image() -> KernelImage:
    built = assemble({"t.S": SOURCE}, {".text": TEXT_BASE, ".data": DATA_BASE}, CONSTANTS)
    return KernelImage(
        "test", built.segments, built.symbols, built.mcount, built.labels, built.constants
    )


@contextmanager
def ftrace_machine(
    image: KernelImage | None = None,
    *,
    poison: bool = False,
    nr_cpus: int = 2,
    clock: str = "real",
) -> Iterator[Ftrace]:
    """A machine with a kernel (the test kernel) and the engine's code on it, and its ftrace."""
    image = image or kernel_image()
    guest = load_guest(image.labels, poison=poison)
    machine = Machine(image, nr_cpus=nr_cpus, clock=clock)
    try:
        machine.run(lambda: machine.load_segments(dict(guest.segments)))
        yield machine.run(lambda: Ftrace(machine, image, guest))
    finally:
        machine.close()


def load_code(ftrace: Ftrace, source: str) -> dict[str, int]:
    """Put a test's own functions into the machine; their labels."""
    bases = {".text": MODULE_TEXT + 0x400000, ".data": MODULES_DATA + 0x600000}
    names = {**ftrace.machine.image.labels, **ftrace.labels}
    built = assemble({"test.S": source}, bases, CONSTANTS, names)
    ftrace.machine.run(lambda: ftrace.machine.load_segments(dict(built.segments)))
    return dict(built.labels)


def many_functions(names: list[str]) -> KernelImage:
    """A kernel with a function of 16 bytes for each name: a call site and a return."""
    base = TEXT_BASE + 0x1000
    small = assemble({"t.S": SOURCE}, {".text": TEXT_BASE, ".data": DATA_BASE}, CONSTANTS)
    sites = np.arange(len(names), dtype=np.uint64) * np.uint64(16) + np.uint64(base)
    code = np.full((len(names), 16), 0xCC, dtype=np.uint8)
    code[:, :5] = text_gen_call(sites, small.labels["__fentry__"])
    code[:, 5] = 0xC3
    symbols = [
        Symbol(name, address, 16, ".text.many", "T")
        for name, address in zip(names, sites.tolist(), strict=True)
    ]
    return KernelImage(
        "many",
        {**small.segments, ".text.many": (base, code.tobytes())},
        small.symbols + symbols,
        small.mcount + sites.tolist(),
        small.labels,
        small.constants,
    )


def module_of(name: str, functions: list[str], base: int = MODULE_TEXT) -> Module:
    """A module of such functions."""
    sites = np.arange(len(functions), dtype=np.uint64) * np.uint64(16) + np.uint64(base)
    code = np.full((len(functions), 16), 0xCC, dtype=np.uint8)
    code[:, :5] = text_gen_call(sites, kernel_image().labels["__fentry__"])
    code[:, 5] = 0xC3
    symbols = [
        Symbol(function, address, 16, ".text", "t")
        for function, address in zip(functions, sites.tolist(), strict=True)
    ]
    labels = {s.name: s.address for s in symbols}
    return Module(name, {".text": (base, code.tobytes())}, symbols, sites.tolist(), labels)


def assembled_module(name: str, source: str) -> Module:
    """A module of assembler source, which may name what the test kernel has."""
    bases = {".text": MODULE_TEXT, ".data": MODULES_DATA}
    built = assemble({f"{name}.S": source}, bases, CONSTANTS, kernel_image().labels)
    return Module(name, built.segments, built.symbols, built.mcount, built.labels)


def load_module(ftrace: Ftrace, module: Module) -> None:
    """Put a module into the machine."""

    def load() -> None:
        ftrace.machine.load_segments(dict(module.segments))
        ftrace.load_module(module)

    ftrace.machine.run(load)
