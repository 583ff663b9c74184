# What is asked and recorded of a call that is graphed (kernel/trace/trace_functions_graph.c, and
# ftrace_graph_* of kernel/trace/trace.h). The tracer function_graph writes its records in place, in
# fgraph.S; here is how the latency tracers do.

# CF set when the function at rdi is in set_graph_notrace. Uses rax r10 r11.
FUNC_NOTRACE ftrace_graph_notrace_addr
    mov r11, [rip + ftrace_graph_notrace_hash]
    test r11, r11
    je .Lout
    mov r10, r8
    LOOKUP_IP ftrace_graph_notrace_hash, .Lfound
    mov r8, r10
    clc
.Lout:
    ret
.Lfound:
    mov r8, r10
    stc
    ret
ENDFUNC ftrace_graph_notrace_addr

# CF set when the function at rdi, called too deep or not by one of set_graph_function, is not to be
# traced. rdx its frame, r8 RET_BASE. Uses rax r10 r11.
FUNC_NOTRACE ftrace_graph_ignore_func
    FRAME_DEPTH eax, edx
    mov r11d, [rip + fgraph_max_depth]
    dec r11d                                # no limit: the largest number
    cmp r11d, eax
    jb .Lout
    test dword ptr [r8 + FGT_FLAGS], FGT_IN_GRAPH
    jne .Lout
    mov r11, [rip + ftrace_graph_hash]      # ftrace_graph_addr
    test r11, r11
    je .Lout
    mov r10, r8
    LOOKUP_IP ftrace_graph_hash, .Lfound
    mov r8, r10
    stc
.Lout:
    ret
.Lfound:
    mov r8, r10
    FRAME_DEPTH eax, edx
    mov [r8 + FGT_DEPTH], eax
    mov r10d, FGT_IN_GRAPH
    test byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_HARDIRQ
    je 2f
    mov r10d, FGT_IN_GRAPH | FGT_IN_IRQ
2:  mov [r8 + FGT_FLAGS], r10d
    clc
    ret
ENDFUNC ftrace_graph_ignore_func

# What a latency tracer asks of a call before anything else. CF set: eax is the answer, 0 for a function
# that is not to be traced, 1 for one in set_graph_notrace, of which only the return is recorded. rdi the
# call site, rdx its frame. Uses r8 r10 r11.
FUNC_NOTRACE latency_graph_asks
    mov r8, gs:[CURRENT_TASK]
    mov r8, [r8 + TASK_RET_BASE]
    call ftrace_graph_ignore_func
    mov eax, 0
    jb .Lout
    call ftrace_graph_notrace_addr
    mov eax, 1
.Lout:
    ret
ENDFUNC latency_graph_asks

# The function from set_graph_function returns. rsi its frame, rcx RET_BASE. Uses rax.
FUNC_NOTRACE ftrace_graph_addr_finish
    test dword ptr [rcx + FGT_FLAGS], FGT_IN_GRAPH
    je .Lout
    FRAME_DEPTH eax, esi
    cmp eax, [rcx + FGT_DEPTH]
    jne .Lout
    and dword ptr [rcx + FGT_FLAGS], FGT_IN_NOTRACE
.Lout:
    ret
ENDFUNC ftrace_graph_addr_finish

# eax = 1 when the call of rdi at depth ecx was recorded, else 0. r9 buffer, edx the record's type and
# what is added to the preemption depth. Uses r8 r10 r11.
FUNC_NOTRACE __trace_graph_entry
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lnone
    push rdx
    mov edx, GRAPH_ENT_WORDS * 4
    call ring_buffer_lock_reserve
    pop rdx
    jb .Lnone
    mov rax, gs:[TRACE_CTX]
    add rax, rdx
    mov [r10 + 4], rax
    mov [r10 + 12], rdi
    mov [r10 + 20], ecx
    mov eax, 1
    ret
.Lnone:
    xor eax, eax
    ret
ENDFUNC __trace_graph_entry

# A record of a return: rsi the frame, its RETP the return time, ecx its depth, edx overrun, r9 buffer.
# Uses rax r8 r10 r11.
FUNC_NOTRACE __trace_graph_return
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lout
    push rdx
    mov edx, GRAPH_RET_WORDS * 4
    call ring_buffer_lock_reserve
    pop rdx
    jb .Lout
    RB_COMMON TRACE_GRAPH_RET
    mov [r10 + 20], ecx
    mov [r10 + 24], edx
    GRAPH_RET_OF_FRAME
.Lout:
    ret
ENDFUNC __trace_graph_return

# In the place of function_trace_call: a call of rdi that returned at once; rdx the op. Keeps rdi rsi
# rdx rcx, uses rax r8 r9 r10 r11.
FUNC_NOTRACE trace_graph_function
    push rsi
    push rcx
    push rdx
    PER_CPU_BUFFER
    TRACE_CLOCK_LOCAL
    push r8                                 # a frame: FG_RETP, FG_CALLTIME, FG_FUNC, FG_RET
    push r8
    push rdi
    push 0
    xor ecx, ecx
    mov edx, TRACE_GRAPH_ENT
    call __trace_graph_entry
    mov rsi, rsp
    xor edx, edx
    call __trace_graph_return
    add rsp, FG_SIZE
    pop rdx
    pop rcx
    pop rsi
    ret
ENDFUNC trace_graph_function
