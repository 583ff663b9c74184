# Walking the stack of a Linux whose functions keep frame pointers (arch/x86/kernel/unwind_frame.c):
#
#     rbp + 8     return address
#     rbp         the caller's rbp; 0 where user mode called, odd (a pt_regs + 1) where it was interrupted
#
# In a callback rbp is the frame of the traced function's caller. Left out: the caller of a function
# that was interrupted before it had a frame.

# From a callback: where the traced function stands, who called it, and so on outwards. In: rdi call
# site, rcx pt_regs, r12 where the addresses go, r13 the end of the room there. Out: r12 behind the
# last of them. Uses rax rbx rbp r8 r11.
FUNC_NOTRACE arch_stack_walk
    lea r11, [rdi + MCOUNT_INSN_SIZE]
    mov [r12], r11
    add r12, 8
    mov rbx, [rcx + PT_RSP]
    mov rax, rbx
    call on_stack
    jb .Lout
.Lcaller:                                   # rbx: where a return address is
    call stack_trace_consume
    jb .Lout
    test ebp, 1
    jne .Lregs
    mov rax, rbp
    call on_stack
    jb .Lout
    lea rbx, [rbp + 8]
    mov rax, rbx
    call on_stack
    jb .Lout
    mov rbp, [rbp]
    jmp .Lcaller
.Lregs:
    dec rbp
    mov rax, rbp
    call on_stack
    jb .Lout
    lea rax, [rbp + PT_SS]
    call on_stack
    jb .Lout
    test byte ptr [rbp + PT_CS], 3
    jne .Lout
    lea rbx, [rbp + PT_RIP]
    mov rbp, [rbp + PT_RBP]
    jmp .Lcaller
.Lout:
    ret
ENDFUNC arch_stack_walk
