# Stack traces (__ftrace_trace_stack of kernel/trace/trace.c, arch_stack_walk of
# arch/x86/kernel/stacktrace.c). Every function of the kernel keeps a frame pointer:
#
#     rbp + 8     return address
#     rbp         the caller's rbp; 0 where the kernel was entered from outside,
#                 odd (a pt_regs + 1) where it was interrupted
#
# In a callback rbp is the frame of the traced function's caller. What lies below it is known: the
# return address of the traced function at pt_regs->rsp, that into the trampoline in front of the
# pt_regs, and between the two at most a function that the trampoline calls and that calls all ops.

FTRACE_KSTACK_ENTRIES = 1024
BUF_MAX_DATA_SIZE = 4072
# struct stack_entry: common fields, size, four bytes of nothing, caller[size]. From four bytes
# before the payload, as ring_buffer_lock_reserve answers.
STACK_ENTRY_BYTES = 16
STACK_SIZE = 12
STACK_CALLER = 20

# Records where the traced function was called from. In: rdi call site, rcx fregs, r9 buffer, r8
# where the return address of the callback stands, eax how many of the functions nearest to it are
# left out (0 or 1). Keeps rdi rsi rdx rcx r9 and what a function keeps.
FUNC_NOTRACE __ftrace_trace_stack
    push rdx
    push rbx
    push rbp
    push r12
    push r13
    push r14
    mov r10d, gs:[CPU_NUMBER]
    shl r10d, 13
    lea r14, [rip + ftrace_stacks]
    add r14, r10
    lea r13, [r14 + FTRACE_KSTACK_ENTRIES * 8]
    mov r12, r14                            # the next entry
    lea r10, [rcx - 8]
    cmp r8, r10
    je .Ltrampoline
    test eax, eax
    mov eax, 0
    jne .Ltrampoline_wanted
    mov r11, [r8]
    mov [r12], r11
    add r12, 8
.Ltrampoline:
    test eax, eax
    jne .Lfunction
.Ltrampoline_wanted:
    mov r11, [r10]
    mov [r12], r11
    add r12, 8
.Lfunction:
    lea r11, [rdi + MCOUNT_INSN_SIZE]
    mov [r12], r11
    add r12, 8
    mov rbx, [rcx + PT_RSP]
    call stack_trace_consume
    jb .Lrecord
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
    ja .Lrecord                             # 0, or no frame pointer at all
.Lon_stack:
    test ebp, 7
    jne .Lrecord
    lea rbx, [rbp + 8]
    mov rbp, [rbp]
    call stack_trace_consume
    jae .Lframe
    jmp .Lrecord
.Lregs:
    dec rbp
    mov rax, rbp
    sub rax, rsp
    cmp rax, STACK_BYTES
    jae .Lrecord
    lea rbx, [rbp + PT_RIP]
    mov rbp, [rbp + PT_RBP]
    mov rax, [rbx]
    cmp rax, [rip + stack_trace_user]       # user mode
    je .Lrecord
    cmp rax, [rip + stack_trace_user + 8]
    je .Lrecord
    call stack_trace_consume
    jae .Lframe
.Lrecord:
    mov rdx, r12
    sub rdx, r14
    add edx, STACK_ENTRY_BYTES
    cmp edx, BUF_MAX_DATA_SIZE
    ja .Lout
    call ring_buffer_lock_reserve
    jb .Lout
    RB_COMMON TRACE_STACK
    mov rax, r12
    sub rax, r14
    shr eax, 3
    mov [r10 + STACK_SIZE], rax
    add r10, STACK_CALLER
.Lcopy:
    mov rax, [r14]
    mov [r10], rax
    add r14, 8
    add r10, 8
    cmp r14, r12
    jb .Lcopy
    RB_COMMIT
.Lout:
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop rdx
    ret
ENDFUNC __ftrace_trace_stack

# Takes the return address at [rbx] as the next entry at r12, or the one that the function graph
# tracer has exchanged there for its own (ftrace_graph_ret_addr). Carry set: the walk ends, for want
# of room at r13 or because that is no address of kernel text. Uses rax r8 r11.
FUNC_NOTRACE stack_trace_consume
    cmp r12, r13
    jae .Lend
    mov rax, [rbx]
    lea r11, [rip + return_to_handler]
    cmp rax, r11
    je .Lgraph
.Lfound:
    mov r11, rax
    sar r11, 31
    inc r11                                 # 0 in the upper 2 GiB, where text is
    jne .Lend
    mov [r12], rax
    add r12, 8
    clc
    ret
.Lend:
    stc
    ret
.Lgraph:                                    # several frames may be for one place: the first counts
    mov r8, gs:[CURRENT_TASK]
    mov r11, [r8 + TASK_RET_BASE]
    mov r8, [r8 + TASK_RET_TOP]
.Lframe:
    cmp r11, r8
    jae .Lfound
    cmp [r11 + FG_RETP], rbx
    je .Lhere
    add r11, FG_SIZE
    jmp .Lframe
.Lhere:
    mov rax, [r11 + FG_RET]
    jmp .Lfound
ENDFUNC stack_trace_consume

.data
.balign 64
OBJECT ftrace_stacks                        # what is being collected, 8 KiB a CPU
    .zero FTRACE_KSTACK_ENTRIES * 8 * 8
ENDOBJECT ftrace_stacks
OBJECT stack_trace_user                     # where a task of this kernel stands in user mode
    .quad 0
    .quad 0
ENDOBJECT stack_trace_user
