# A guest that shows whether a processor's native hooks do what they should (self_test.py).
#
# Identity-mapped, and once more ALIAS above. What it saw is left in the words at `seen`.

.text
FUNC_NOTRACE self_test
    ud2                                     # seen_ud
    mov rbx, UNMAPPED
    mov rax, [rbx]                          # seen_faults, twice: a fault is no double fault
    mov rax, [rbx]
    mov [rbx], rax                          # and a store says so
    std
    syscall
after_syscall:
    cld

    # Code written through another mapping than it runs in.
    lea rsi, [rip + written + ALIAS]
    xor edi, edi
.Lagain:
    inc edi
    mov [rsi + 1], edi                      # mov eax, NUMBER
    lea rax, [rip + written]
    call rax
    cmp eax, edi
    jne .Lstale
    cmp edi, 5
    jne .Lagain
    mov qword ptr [rip + seen_fresh], 1
.Lstale:
    hlt
ENDFUNC self_test

FUNC_NOTRACE on_ud
    inc qword ptr [rip + seen_ud]
    add qword ptr [rsp], 2
    iretq
ENDFUNC on_ud

FUNC_NOTRACE on_page_fault
    pop rax
    shl qword ptr [rip + seen_faults], 8
    inc rax
    add [rip + seen_faults], rax
    mov rax, cr2
    mov [rip + seen_address], rax
    add qword ptr [rsp], 3
    iretq
ENDFUNC on_page_fault

FUNC_NOTRACE on_double_fault
    mov qword ptr [rip + seen_double], 1
    hlt
ENDFUNC on_double_fault

FUNC_NOTRACE on_syscall
    mov [rip + seen_return], rcx
    mov [rip + seen_flags], r11
    pushfq
    pop qword ptr [rip + seen_masked]
    jmp rcx
ENDFUNC on_syscall

.data
.balign 4096
written:
    .byte 0xb8
    .long 0
    .byte 0xc3
.balign 4096
seen_ud:
    .quad 0
seen_faults:
    .quad 0
seen_address:
    .quad 0
seen_double:
    .quad 0
seen_return:
    .quad 0
seen_flags:
    .quad 0
seen_masked:
    .quad 0
seen_fresh:
    .quad 0
