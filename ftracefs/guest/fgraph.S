# The function graph tracer (kernel/trace/fgraph.c, kernel/trace/trace_functions_graph.c, and
# prepare_ftrace_return and return_to_handler of arch/x86).
#
# At a traced function's entry its return address is exchanged for return_to_handler and kept in a
# frame of the task's shadow stack:
#
#     task.RET_BASE    first frame; the FGT_ words lie in front of it, at a multiple of FGT_ALIGN
#     task.RET_TOP     where the next one goes; its distance from RET_BASE is the depth
#     task.RET_END     where no frame fits any more; 0 for a task that is paused or has no stack
#
# What is rarely wanted costs nothing: as long as nobody asks for a filter, a limit or another clock,
# RB_GUARD is zero and is all that is looked at.

# The callback. Linux takes a recursion bit here, which is why an entry record shows one level of
# preemption more; this code calls nothing that could be traced, and is never interrupted.
.balign 128, 0xcc
FUNC_NOTRACE ftrace_graph_func
    mov r9, gs:[GRAPH_BUFFER]
    push rdx
    mov r8, gs:[CURRENT_TASK]
    mov rdx, [r8 + TASK_RET_TOP]
    cmp rdx, [r8 + TASK_RET_END]
    jae .Lno_room
.Lfunction_graph_enter:
    cmp dword ptr [r9 + RB_GUARD], 0
    jne .Lask
    TRACE_CLOCK_TSC
.Lstamped:
    mov [rdx + FG_CALLTIME], r8
.Lentry:
    RB_RESERVE GRAPH_ENT_BYTES, GRAPH_ENT_WORDS
    RB_COMMON TRACE_GRAPH_ENT_PREEMPT
    mov [r10 + 12], rdi
    FRAME_DEPTH eax, edx
    mov [r10 + 20], eax
    RB_COUNT GRAPH_ENT_BYTES
.Lpush_return_trace:
    mov r8, [rcx + PT_RSP]
    mov r10, [r8]                           # another callback may have changed it
    mov [rdx + FG_RET], r10
    mov [rdx + FG_FUNC], rdi
    mov [rdx + FG_RETP], r8
    add rdx, FG_SIZE
    mov rax, gs:[CURRENT_TASK]
    mov [rax + TASK_RET_TOP], rdx
    lea rax, [rip + return_to_handler]
    mov [r8], rax
.Lout:
    pop rdx
    ret
    RB_RARE GRAPH_ENT_BYTES, .Lout

.Lno_room:
    mov rax, [r8 + TASK_RET_BASE]
    test rax, rax
    je .Lno_stack
    cmp dword ptr [rax + FGT_PAUSE], 0
    jne .Lout
    inc dword ptr [rax + FGT_OVERRUN]
    jmp .Lout

    # A task that came while the tracer runs takes one of the stacks the host has made ready.
.Lno_stack:
    mov rax, [rip + ret_stack_list]
    test rax, rax
    je .Lout
    mov rdx, [rax + FG_RET]
    mov [rip + ret_stack_list], rdx
    dec dword ptr [rip + ret_stack_count]
    mov [rax + FGT_OWNER], r8
    mov [r8 + TASK_RET_BASE], rax
    mov [r8 + TASK_RET_TOP], rax
    lea rdx, [rax + FTRACE_RETFUNC_DEPTH * FG_SIZE]
    mov [r8 + TASK_RET_END], rdx
    mov rdx, rax
    jmp .Lfunction_graph_enter

    # trace_graph_entry with all its questions. r8 task, rdx the new frame.
.Lask:
    cmp dword ptr [r9 + RB_GUARD], RB_GUARD_CLOCK
    je .Lone_clock
    cmp dword ptr [r9 + RB_GUARD], RB_GUARD_FGRAPH_OPS
    je .Lentryfunc
    mov r8, [r8 + TASK_RET_BASE]
    test dword ptr [r8 + FGT_FLAGS], FGT_IN_NOTRACE
    jne .Lout
    call ftrace_graph_notrace_addr
    jb .Lnotrace
    mov rax, [rip + graph_array]            # ftrace_trace_task
    mov r11d, gs:[CPU_NUMBER]
    cmp dword ptr [rax + r11*4 + TR_FTRACE_IGNORE_PID], FTRACE_PID_IGNORE
    je .Lout
    call ftrace_graph_ignore_func
    jb .Lout
    cmp dword ptr [rip + ftrace_graph_skip_irqs], 0
    jne .Lignore_irqs
.Lnot_ignored:
    cmp qword ptr [rip + tracing_thresh], 0
    jne .Ltime                              # the return tells whether there is a record
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lout
    cmp dword ptr [rip + fgraph_two_clocks], 0
    je .Lone_clock
    TRACE_CLOCK_LOCAL
    mov [rdx + FG_CALLTIME], r8
    TRACE_CLOCK
    jmp .Lentry
.Lone_clock:
    TRACE_CLOCK
    jmp .Lstamped
.Ltime:
    TRACE_CLOCK_LOCAL
    mov [rdx + FG_CALLTIME], r8
    jmp .Lpush_return_trace

    # A function that is not to be traced needs a frame to tell when it returns.
.Lnotrace:
    or dword ptr [r8 + FGT_FLAGS], FGT_IN_NOTRACE
    jmp .Lpush_return_trace

.Lignore_irqs:
    test dword ptr [r8 + FGT_FLAGS], FGT_IN_IRQ
    jne .Lnot_ignored
    test byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_HARDIRQ
    je .Lnot_ignored
    jmp .Lout

.Lentryfunc:
    TRACE_CLOCK_LOCAL
    mov [rdx + FG_CALLTIME], r8
    call qword ptr [rip + ftrace_graph_entry]
    test eax, eax
    je .Lout
    jmp .Lpush_return_trace
ENDFUNC ftrace_graph_func

# Where a traced function returns to. rax and rdx hold what it returns; every other register that a
# called function may change is free. Works for as long as there are frames, tracer or not.
.balign 128, 0xcc
FUNC_NOTRACE return_to_handler
    mov rdi, rax
    TRACE_CONTEXT
    mov rcx, gs:[CURRENT_TASK]
    mov rsi, [rcx + TASK_RET_TOP]
    sub rsi, FG_SIZE
    mov [rcx + TASK_RET_TOP], rsi
    mov r9, gs:[GRAPH_BUFFER]
    mov rcx, rsi
    and rcx, -FGT_ALIGN
    add rcx, FGT_BYTES                      # RET_BASE
    cmp dword ptr [r9 + RB_GUARD], 0
    jne .Lask
    TRACE_CLOCK_TSC
    mov [rsi + FG_RETP], r8                 # the return time: the slot on the stack is gone
.Lreturn:
    RB_RESERVE GRAPH_RET_BYTES, GRAPH_RET_WORDS
    RB_COMMON TRACE_GRAPH_RET
    FRAME_DEPTH eax, esi
    mov [r10 + 20], eax
    mov eax, [rcx + FGT_OVERRUN]
    mov [r10 + 24], eax
    GRAPH_RET_OF_FRAME
    RB_COUNT GRAPH_RET_BYTES
.Lout:
    mov rax, rdi
    LEAVE_RETURN_TO_HANDLER
    RB_RARE GRAPH_RET_BYTES, .Lout

    # trace_graph_return and trace_graph_thresh_return with all their questions.
.Lask:
    cmp dword ptr [r9 + RB_GUARD], RB_GUARD_CLOCK
    je .Lone_clock
    cmp dword ptr [r9 + RB_GUARD], RB_GUARD_FGRAPH_OPS
    je .Lretfunc
    cmp dword ptr [rcx + FGT_FLAGS], 0
    jne .Lflags
.Ltraced:
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lout
    cmp dword ptr [rip + fgraph_two_clocks], 0
    jne .Ltwo_clocks
    TRACE_CLOCK
    mov [rsi + FG_RETP], r8
    mov rax, r8
    sub rax, [rsi + FG_CALLTIME]
    cmp rax, [rip + tracing_thresh]
    jb .Lout
    jmp .Lreturn
.Lone_clock:
    TRACE_CLOCK
    mov [rsi + FG_RETP], r8
    jmp .Lreturn
.Ltwo_clocks:
    TRACE_CLOCK_LOCAL
    mov [rsi + FG_RETP], r8
    sub r8, [rsi + FG_CALLTIME]
    cmp r8, [rip + tracing_thresh]
    jb .Lout
    TRACE_CLOCK
    jmp .Lreturn

.Lflags:
    call ftrace_graph_addr_finish
    test dword ptr [rcx + FGT_FLAGS], FGT_IN_NOTRACE
    je .Ltraced
    and dword ptr [rcx + FGT_FLAGS], FGT_IN_GRAPH | FGT_IN_IRQ
    jmp .Lout

.Lretfunc:
    TRACE_CLOCK_LOCAL
    mov [rsi + FG_RETP], r8
    call qword ptr [rip + ftrace_graph_return]
    jmp .Lout
ENDFUNC return_to_handler

# void ftrace_graph_probe_sched_switch(void *ignore, bool preempt, prev, next, unsigned int prev_state)
# Takes the time that next was not running off what it has not returned from, with the option
# sleep-time off.
FUNC_NOTRACE ftrace_graph_probe_sched_switch
    cmp dword ptr [rip + fgraph_sleep_time], 0
    jne .Lout
    TRACE_CLOCK_LOCAL
    mov r9, [rdx + TASK_RET_BASE]
    test r9, r9
    je 1f
    mov [r9 + FGT_TIMESTAMP], r8
1:  mov r9, [rcx + TASK_RET_BASE]
    test r9, r9
    je .Lout
    mov rax, [r9 + FGT_TIMESTAMP]
    test rax, rax
    je .Lout
    sub r8, rax
    mov r10, [rcx + TASK_RET_TOP]
2:  cmp r10, r9
    je .Lout
    sub r10, FG_SIZE
    add [r10 + FG_CALLTIME], r8
    jmp 2b
.Lout:
    ret
ENDFUNC ftrace_graph_probe_sched_switch

.data
.balign 64
OBJECT ftrace_graph_entry                   # of the struct fgraph_ops in charge, if it has functions:
    .quad 0                                 # rdi the call site, rdx the frame; eax: is it traced?
ENDOBJECT ftrace_graph_entry                # Keeps rdi rsi rdx rcx.
OBJECT ftrace_graph_return                  # rsi the frame, taken off already, rcx RET_BASE.
    .quad 0                                 # Keeps rdi rsi rdx.
ENDOBJECT ftrace_graph_return
OBJECT ftrace_graph_hash                    # table and mask, as in struct ftrace_ops; 0: everything
    .quad 0
    .quad 0
ENDOBJECT ftrace_graph_hash
OBJECT ftrace_graph_notrace_hash
    .quad 0
    .quad 0
ENDOBJECT ftrace_graph_notrace_hash
OBJECT graph_array                          # struct trace_array: whose calls and returns are recorded
    .quad ftrace_no_array
ENDOBJECT graph_array
OBJECT tracing_thresh                       # nanoseconds
    .quad 0
ENDOBJECT tracing_thresh
OBJECT ret_stack_list                       # stacks for new tasks, linked by their first word
    .quad 0
ENDOBJECT ret_stack_list
OBJECT ret_stack_count
    .long 0
ENDOBJECT ret_stack_count
OBJECT fgraph_max_depth                     # 0: no limit
    .long 0
ENDOBJECT fgraph_max_depth
OBJECT ftrace_graph_skip_irqs
    .long 0
ENDOBJECT ftrace_graph_skip_irqs
OBJECT fgraph_sleep_time
    .long 1
ENDOBJECT fgraph_sleep_time
OBJECT fgraph_two_clocks                    # records are stamped by another clock than the local one
    .long 0
ENDOBJECT fgraph_two_clocks
.balign 64
OBJECT ftrace_stub_graph                    # GRAPH_BUFFER while nothing is traced: a buffer that is off
    .long RB_GUARD_OFF
    .long 0
ENDOBJECT ftrace_stub_graph
OBJECT ftrace_graph_ops_buffer              # GRAPH_BUFFER while such functions are to be called
    .long RB_GUARD_FGRAPH_OPS
    .long 0
ENDOBJECT ftrace_graph_ops_buffer
OBJECT ftrace_no_array                      # struct trace_array without a list of pids
    .zero TR_SIZE
ENDOBJECT ftrace_no_array
