# A trampoline in the shape of BPF's (arch_prepare_bpf_trampoline of arch/x86/net/bpf_jit_comp.c), the
# target of a direct call: programs run before the traced function and, since it calls that itself,
# after it, when they see what it returned.
#
#     rbp + 16    return address into the caller of the traced function
#     rbp + 8     return address into the traced function
#     rbp         the caller's rbp
#     rbp - 8     what the traced function returned   ctx[6]
#     rbp - 56    its arguments in registers          ctx[0] to ctx[5]
#     rbp - 64    its call site                       ctx[-1]
#
# A program is a function of the C ABI whose argument is ctx. What it returns is not used.
#
# bpf_trampoline can be the target itself: it runs two sample programs, and takes call site and
# function from the stack, where beside a live patch the replacement stands. BpfTrampoline puts others
# together from the parts between the labels, for one function and any number of programs.

BPF_CTX = 56

FUNC_NOTRACE bpf_trampoline
    push rbp
    mov rbp, rsp
    sub rsp, 72
    mov [rbp - BPF_CTX], rdi
    mov [rbp - BPF_CTX + 8], rsi
    mov [rbp - BPF_CTX + 16], rdx
    mov [rbp - BPF_CTX + 24], rcx
    mov [rbp - BPF_CTX + 32], r8
    mov [rbp - BPF_CTX + 40], r9
bpf_trampoline_ip:                          # a copy has the address in the instruction
    mov rax, [rbp + 8]
    sub rax, MCOUNT_INSN_SIZE
bpf_trampoline_ip_end:
    mov [rbp - BPF_CTX - 8], rax
bpf_trampoline_fentry:                      # once for each program
    lea rdi, [rbp - BPF_CTX]
    call bpf_prog_fentry
bpf_trampoline_fentry_end:
    mov r9, [rbp - BPF_CTX + 40]
    mov r8, [rbp - BPF_CTX + 32]
    mov rcx, [rbp - BPF_CTX + 24]
    mov rdx, [rbp - BPF_CTX + 16]
    mov rsi, [rbp - BPF_CTX + 8]
    mov rdi, [rbp - BPF_CTX]
bpf_trampoline_orig:                        # without BPF_TRAMP_F_ORIG_STACK a call of the address
    call [rbp + 8]
bpf_trampoline_orig_end:
    mov [rbp - BPF_CTX + 48], rax
bpf_trampoline_fexit:                       # once for each program
    lea rdi, [rbp - BPF_CTX]
    call bpf_prog_fexit
bpf_trampoline_fexit_end:
    mov rax, [rbp - BPF_CTX + 48]
    mov rsp, rbp
    pop rbp
    lea rsp, [rsp + 8]                      # not into the traced function: it has returned
    ret
bpf_trampoline_end:
ENDFUNC bpf_trampoline
