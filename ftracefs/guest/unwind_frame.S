# Walking the stack by frame pointers (arch/x86/kernel/unwind_frame.c). Every function of the kernel
# keeps one:
#
#     rbp + 8     return address
#     rbp         the caller's rbp; 0 where the kernel was entered from outside,
#                 odd (a pt_regs + 1) where it was interrupted
#
# In a callback rbp is the frame of the traced function's caller. What lies below it is known: the
# return address of the traced function at pt_regs->rsp, that into the trampoline in front of the
# pt_regs, and between the two at most a function that the trampoline calls and that calls all ops.

# From a callback: where the traced function stands, who called it, and so on outwards. In: rdi call
# site, rcx pt_regs, r12 where the addresses go, r13 the end of the room there. Out: r12 behind the
# last of them. Uses rax rbx rbp r8 r11.
FUNC_NOTRACE arch_stack_walk
    lea r11, [rdi + MCOUNT_INSN_SIZE]
    mov [r12], r11
    add r12, 8
    mov rbx, [rcx + PT_RSP]
    call stack_trace_consume
    jae stack_walk_frames
    ret
ENDFUNC arch_stack_walk

# The same from the function on whose frame rbp is.
FUNC_NOTRACE stack_walk_frames
.Lframe:
    test ebp, 1
    jne .Lregs
    mov rax, rbp
    sub rax, rsp                            # on this stack
    cmp rax, STACK_BYTES
    jb .Lon_stack
    mov rax, gs:[CURRENT_TASK]
    mov r11, rbp
    sub r11, [rax + TASK_STACK]
    cmp r11, STACK_BYTES - 16
    ja .Lout                                # 0, or no frame pointer at all
.Lon_stack:
    test ebp, 7
    jne .Lout
    lea rbx, [rbp + 8]
    mov rbp, [rbp]
    call stack_trace_consume
    jae .Lframe
    jmp .Lout
.Lregs:
    dec rbp
    mov rax, rbp
    sub rax, rsp
    cmp rax, STACK_BYTES
    jae .Lout
    lea rbx, [rbp + PT_RIP]
    mov rbp, [rbp + PT_RBP]
    mov rax, [rbx]
    cmp rax, [rip + stack_trace_user]       # user mode
    je .Lout
    cmp rax, [rip + stack_trace_user + 8]
    je .Lout
    call stack_trace_consume
    jae .Lframe
.Lout:
    ret
ENDFUNC stack_walk_frames

.data
.balign 8
OBJECT stack_trace_user                     # where a task of this kernel stands in user mode
    .quad 0
    .quad 0
ENDOBJECT stack_trace_user
