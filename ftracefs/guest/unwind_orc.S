# Walking the stack of a Linux by its ORC tables (arch/x86/kernel/unwind_orc.c), for its functions keep
# no frame pointer. For each stretch of text a struct orc_entry says where, seen from the stack pointer
# or from rbp, the caller's stack begins, and where rbp was saved:
#
#     s16 sp_offset, s16 bp_offset, u8 sp_reg | bp_reg << 4, u8 type and flags
#
# A table of 32-bit distances, sorted, tells which one; orc_lookup where in it each 256 bytes of text
# begin. Left out: frames found by another register than these two (the walk ends), and the text of
# modules.

ORC_REG_BP = 4
ORC_REG_SP_INDIRECT = 9
ORC_ENTRY_BYTES = 6
LOOKUP_BLOCK_ORDER = 8

# From a callback: where the traced function stands, who called it, and so on outwards. In: rdi call
# site, rcx pt_regs, r12 where the addresses go, r13 the end of the room there. Out: r12 behind the
# last of them. Uses rax rbx rbp r8 r11.
FUNC_NOTRACE arch_stack_walk
    lea r11, [rdi + MCOUNT_INSN_SIZE]
    mov [r12], r11
    add r12, 8
    push rdi
    push rsi
    push rdx
    push rcx
    mov rbx, [rcx + PT_RSP]
.Lcall:                                     # rbx: where a return address is
    mov rax, rbx
    call on_stack
    jb .Lout
    call stack_trace_consume
    jb .Lout
    lea rsi, [rbx + 8]
    mov rdi, [r12 - 8]
    dec rdi                                 # in the call, not behind it
.Lfind:                                     # rdi an address of text, rsi the stack pointer there
    call orc_find
    jb .Lout
    movzx ecx, byte ptr [rdx + 4]
    and ecx, 15
    movsx rax, word ptr [rdx]
    cmp ecx, LINUX_ORC_REG_SP
    je .Lsp
    cmp ecx, ORC_REG_BP
    je .Lbp
    cmp ecx, LINUX_ORC_REG_BP_INDIRECT
    je .Lbp_indirect
    cmp ecx, ORC_REG_SP_INDIRECT
    jne .Lout                               # the stack's end, or another register
    mov rcx, rax
    mov rax, rsi
    call on_stack
    jb .Lout
    mov rsi, [rsi]
    add rsi, rcx
    jmp .Lcaller
.Lbp_indirect:
    add rax, rbp
    call on_stack
    jb .Lout
    mov rsi, [rax]
    jmp .Lcaller
.Lbp:
    lea rsi, [rbp + rax]
    jmp .Lcaller
.Lsp:
    add rsi, rax
.Lcaller:                                   # rsi: where the caller's stack begins
    movzx eax, byte ptr [rdx + 5]
    and eax, LINUX_ORC_TYPE_MASK
    cmp eax, LINUX_ORC_TYPE_REGS
    je .Lregs
    cmp eax, LINUX_ORC_TYPE_REGS_PARTIAL
    je .Liret
    cmp eax, LINUX_ORC_TYPE_CALL
    jne .Lout
    lea rbx, [rsi - 8]
    movzx ecx, byte ptr [rdx + 4]
    shr ecx, 4
    je .Lcall                               # rbp is as it was
    movsx rax, word ptr [rdx + 2]
    cmp ecx, LINUX_ORC_REG_PREV_SP
    jne 1f
    add rax, rsi
    jmp .Lsaved
1:  cmp ecx, ORC_REG_BP
    jne .Lout
    add rax, rbp
.Lsaved:
    call on_stack
    jb .Lout
    mov rbp, [rax]
    jmp .Lcall

.Lregs:                                     # a whole pt_regs: interrupted, or called by user mode
    lea rax, [rsi + PT_SS]
    call on_stack
    jb .Lout
    mov rax, rsi
    call on_stack
    jb .Lout
    test byte ptr [rsi + PT_CS], 3
    jne .Lout
    lea rbx, [rsi + PT_RIP]
    mov rbp, [rsi + PT_RBP]
    mov rsi, [rsi + PT_RSP]
    jmp .Linterrupted
.Liret:                                     # only what the processor has pushed
    lea rax, [rsi + PT_SS - PT_RIP]
    call on_stack
    jb .Lout
    mov rax, rsi
    call on_stack
    jb .Lout
    test byte ptr [rsi + PT_CS - PT_RIP], 3
    jne .Lout
    mov rbx, rsi
    mov rsi, [rsi + PT_RSP - PT_RIP]
.Linterrupted:
    call stack_trace_consume
    jb .Lout
    mov rdi, [r12 - 8]
    jmp .Lfind
.Lout:
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    ret
ENDFUNC arch_stack_walk

# The entry for the address in rdi, in rdx; carry set if there is none. Uses rax rcx r8 r11.
FUNC_NOTRACE orc_find
    mov rax, rdi
    sub rax, LINUX_STEXT
    cmp rax, LINUX_TEXT_BYTES
    jae .Lnone
    shr rax, LOOKUP_BLOCK_ORDER
    mov ecx, [rax*4 + LINUX_ORC_LOOKUP]
    mov edx, [rax*4 + LINUX_ORC_LOOKUP + 4]
.Lhalve:                                    # from ecx to edx, both included, the last one not above
    cmp ecx, edx
    jae .Lfound
    lea eax, [rcx + rdx + 1]
    shr eax, 1
    lea r8, [rax*4 + LINUX_ORC_UNWIND_IP]
    movsxd r11, dword ptr [r8]
    add r8, r11
    cmp r8, rdi
    ja .Labove
    mov ecx, eax
    jmp .Lhalve
.Labove:
    lea edx, [rax - 1]
    jmp .Lhalve
.Lfound:
    lea rdx, [rcx + rcx*2]
    lea rdx, [rdx*2 + LINUX_ORC_UNWIND]
    clc
    ret
.Lnone:
    stc
    ret
ENDFUNC orc_find
