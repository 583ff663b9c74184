# What both ways of walking the stack have in common (arch_stack_walk of arch/x86/kernel/stacktrace.c):
# unwind_frame.S for a kernel of ours, unwind_orc.S or unwind_frame_linux.S for a Linux.

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
