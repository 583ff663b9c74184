# A trampoline that does what ftrace_graph_func does for a call about which nobody asks anything, without
# a call and without a frame.
#
# create_trampoline puts it in front of its copy of ftrace_caller for graph_ops. Where there are filters,
# limits, a clock besides the local one or no room on the shadow stack it goes on to that copy, which
# calls ftrace_graph_func.

# rcx: the new frame of the shadow stack.
.balign 128, 0xcc
FUNC_NOTRACE ftrace_graph_caller
    INLINE_BEGIN R10
    mov rax, gs:[CURRENT_TASK]
    mov r10, gs:[GRAPH_BUFFER]
    push rcx
    mov rcx, [rax + TASK_RET_TOP]
    cmp rcx, [rax + TASK_RET_END]
    jae .Lframe
    R10_GUARD cmp, 0
    jne .Lguarded
    INLINE_CLOCK_TSC R10
.Lstamped:
    mov [rcx + FG_CALLTIME], rax
    INLINE_RESERVE R10, GRAPH_ENT_BYTES, GRAPH_ENT_WORDS
    INLINE_COMMON TRACE_GRAPH_ENT_PREEMPT
    mov rax, [rsp + 24]
    sub rax, MCOUNT_INSN_SIZE
    mov [rdx + 12], rax
    mov [rcx + FG_FUNC], rax
    FRAME_DEPTH eax, ecx
    mov [rdx + 20], eax
    INLINE_COUNT R10, GRAPH_ENT_BYTES
    lea r11, [rsp + 32]                     # where the traced function's return address is
    mov rax, [r11]
    mov [rcx + FG_RET], rax
    mov [rcx + FG_RETP], r11
    mov rax, offset return_to_handler
    mov [r11], rax
    add rcx, FG_SIZE
    mov rax, gs:[CURRENT_TASK]
    mov [rax + TASK_RET_TOP], rcx
.Lout:
    pop rcx
    INLINE_END R10
.Lguarded:
    R10_GUARD cmp, RB_GUARD_CLOCK
    jne .Lframe
    INLINE_CLOCK R10
    jmp .Lstamped
    INLINE_RARE R10, GRAPH_ENT_BYTES, ftrace_graph_caller_rare
.Lframe:
    pop rcx
    pop rdx
    pop rax
.balign 16, 0x90
ftrace_graph_caller_end:
    int3
ENDFUNC ftrace_graph_caller
