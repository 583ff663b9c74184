"""No function of the built-in kernel counts on a register that a traced call may change."""

from __future__ import annotations

from support.register_flow import CHANGED, Misuse, RegisterFlow

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, TEXT_BASE
from emulated_kernel.assembler import assemble
from emulated_kernel.image import KernelImage
from emulated_kernel.images.builtin import load_builtin

# They take as many arguments as their format says, and put all that could be one aside.
FORMAT_IN = {
    "_printk": "rdi",
    "sprintf": "rdi rsi",
    "snprintf": "rdi rsi rdx",
    "seq_printf": "rdi rsi",
    "audit_log_format": "rdi rsi",
    "kasprintf": "rdi rsi",
}
KNOWN = {name: frozenset(registers.split()) for name, registers in FORMAT_IN.items()}
# The one calls what keeps rdi and rsi, the other is never returned to.
FINE = {"__switch_to", "exc_kernel_fault"}


def test_no_register_is_expected_to_live_through_a_call() -> None:
    flow = RegisterFlow(load_builtin())
    flow.settle(KNOWN)
    found = [misuse for misuse in flow.misuses() if misuse.place.partition("+")[0] not in FINE]
    assert found == []


SOURCE = """
.text
FUNC_NOTRACE __fentry__
    ret
ENDFUNC __fentry__
FUNC callee
    mov eax, edi
    ret
ENDFUNC callee
FUNC_NOTRACE quiet
    ret
ENDFUNC quiet
FUNC uses
    call callee
    mov [rax], rsi
    ret
ENDFUNC uses
FUNC passes
    call callee
    call callee
    ret
ENDFUNC passes
FUNC on_one_path
    test edi, edi
    je 1f
    call callee
1:  mov eax, r8d
    ret
ENDFUNC on_one_path
FUNC by_flags
    call callee
    jb 1f
    inc eax
1:  ret
ENDFUNC by_flags
FUNC tail
    call callee
    jmp callee
ENDFUNC tail
FUNC good
    push rbx
    mov rbx, rdi
    call callee
    mov rdi, rbx
    call callee
    mov ecx, eax
    lea eax, [rcx + rdx]
    xor esi, esi
    mov edx, esi
    call quiet
    mov eax, ecx
    pop rbx
    ret
ENDFUNC good
"""


def test_what_it_finds() -> None:
    built = assemble({"t.S": SOURCE}, {".text": TEXT_BASE, ".data": DATA_BASE}, CONSTANTS)
    image = KernelImage(
        "test", built.segments, built.symbols, built.mcount, built.labels, built.constants
    )
    flow = RegisterFlow(image)
    flow.settle({})
    assert list(flow.misuses()) == [
        Misuse("uses+0xa", ("rsi",)),
        Misuse("passes+0xa", ("rdi",)),
        Misuse("on_one_path+0xe", ("r8",)),
        Misuse("by_flags+0xa", ("flags",)),
        Misuse("tail+0xa", ("rdi",)),
    ]
    assert "rax" not in CHANGED
    assert "rdx" not in CHANGED
