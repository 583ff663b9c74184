# How long the task of the highest priority waits after it was woken
# (kernel/trace/trace_sched_wakeup.c): probes of the scheduler's tracepoints while one of the tracers
# wakeup, wakeup_rt and wakeup_dl is in charge; one at a time is. Tasks are the kernel's own
# (KERNEL_TASK_). Nothing is done between two instructions here, so there is no lock.

TRACE_CTX_SWITCH = 2
TRACE_WAKE = 3
# struct ctx_switch_entry, from four bytes before the payload, as ring_buffer_lock_reserve answers.
CTX_PREV_PID = 12
CTX_NEXT_PID = 16
CTX_NEXT_CPU = 20
CTX_PREV_PRIO = 24
CTX_PREV_STATE = 25
CTX_NEXT_PRIO = 26
CTX_NEXT_STATE = 27
CTX_BYTES = 24

WAKEUP_MAX_PRIO = 100                   # of realtime tasks: below; of deadline tasks: below 0
WAKEUP_TASK_REPORT = 0x7f
WAKEUP_REPORT_IDLE = 0x80
TASK_RTLOCK_WAIT = 0x1000
TASK_FROZEN = 0x8000

# eax: task_state_index() of \task. Uses r8 and r11.
.macro TASK_STATE_INDEX task
    mov r8d, [\task + KERNEL_TASK_STATE]
    mov eax, r8d
    or eax, [\task + KERNEL_TASK_EXIT_STATE]
    and eax, WAKEUP_TASK_REPORT
    mov r11d, r8d
    and r11d, TASK_IDLE
    cmp r11d, TASK_IDLE
    jne 77f
    mov eax, WAKEUP_REPORT_IDLE
77: test r8d, TASK_RTLOCK_WAIT | TASK_FROZEN
    je 78f
    mov eax, TASK_UNINTERRUPTIBLE
78: test eax, eax
    je 79f
    bsr eax, eax
    inc eax
79:
.endm

# Goes to \not unless that is who is waited for. Uses rax.
.macro IS_WAKEUP_TASK task, not
    cmp \task, [rip + wakeup_task]
    jne \not
    mov rax, [\task + KERNEL_TASK_BIRTH]
    cmp rax, [rip + wakeup_task_birth]
    jne \not
.endm

# __trace_stack, in a probe with its frame at rbp; r9 buffer.
.macro PROBE_STACK
    mov r8, rbp
    xor eax, eax
    call trace_stack_of_caller
.endm

# In a probe with its frame at rbp: rdi and rsi are who passed the tracepoint and who called that, or
# those one further out. But for the first they are 0 where functions keep no frame pointers
# (ftrace_return_address). Uses rax.
.macro CALLER_ADDR0_AND_1
    mov rdi, [rbp + 8]
    xor esi, esi
    mov eax, FRAME_POINTERS
    test eax, eax
    je 1f
    mov rax, [rbp]
    mov rsi, [rax + 8]
1:
.endm
.macro CALLER_ADDR1_AND_2
    xor edi, edi
    xor esi, esi
    mov eax, FRAME_POINTERS
    test eax, eax
    je 1f
    mov rax, [rbp]
    mov rdi, [rax + 8]
    mov rax, [rax]
    mov rsi, [rax + 8]
1:
.endm

# func_prolog_preempt_disable: goes to \not unless this is the CPU that a task waits for. Uses rax.
.macro FUNC_PROLOG_PREEMPT_DISABLE not
    cmp qword ptr [rip + wakeup_task], 0
    je \not
    mov eax, gs:[CPU_NUMBER]
    cmp eax, [rip + wakeup_current_cpu]
    jne \not
.endm

# The callback of the tracers' op: records calls on that CPU.
.balign 128, 0xcc
FUNC_NOTRACE wakeup_tracer_call
    FUNC_PROLOG_PREEMPT_DISABLE .Lout
    jmp function_trace_call
.Lout:
    ret
ENDFUNC wakeup_tracer_call

# The same as fgraph has them called, with the option display-graph.
FUNC_NOTRACE wakeup_graph_entry
    call latency_graph_asks
    jb .Lout
    FUNC_PROLOG_PREEMPT_DISABLE .Lno
    TRACE_GRAPH_ENTRY wakeup_ops
    ret
.Lno:
    xor eax, eax
.Lout:
    ret
ENDFUNC wakeup_graph_entry

FUNC_NOTRACE wakeup_graph_return
    call ftrace_graph_addr_finish
    FUNC_PROLOG_PREEMPT_DISABLE .Lout
    TRACE_GRAPH_RETURN wakeup_ops
.Lout:
    ret
ENDFUNC wakeup_graph_return

# void probe_wakeup(void *ignore, struct task_struct *p)
FUNC_NOTRACE probe_wakeup
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    cmp dword ptr [rip + wakeup_tracer_enabled], 0
    je .Lout
    cmp dword ptr [rip + wakeup_tracing_dl], 0
    jne .Lout
    KERNEL_CURRENT rcx
    mov eax, [rsi + KERNEL_TASK_PRIO]
    test eax, eax
    js .Lchosen
    cmp dword ptr [rip + wakeup_dl], 0
    jne .Lout
    cmp dword ptr [rip + wakeup_rt], 0
    je .Lany
    cmp eax, WAKEUP_MAX_PRIO
    jge .Lout
.Lany:
    cmp eax, [rip + wakeup_prio]            # unsigned: -1 is no task
    jae .Lout
    cmp eax, [rcx + KERNEL_TASK_PRIO]
    jge .Lout
.Lchosen:
    TRACE_CONTEXT
    mov rdx, [rip + wakeup_ops]
    PER_CPU_BUFFER
    test dword ptr [r9 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lout
    mov eax, [rsi + KERNEL_TASK_PRIO]
    mov [rip + wakeup_prio], eax
    shr eax, 31
    mov [rip + wakeup_tracing_dl], eax
    mov eax, [rsi + KERNEL_TASK_CPU]
    mov [rip + wakeup_cpu], eax
    mov [rip + wakeup_current_cpu], eax
    mov rax, [rsi + KERNEL_TASK_BIRTH]
    mov [rip + wakeup_task_birth], rax
    mov [rip + wakeup_task], rsi
    mov rbx, r9
    mov r12, rdx
    TRACE_CLOCK
    mov [rip + wakeup_timestamp], r8
    mov rdi, rcx                            # the current task, and the one that is woken
    mov ecx, TRACE_WAKE
    call tracing_sched_trace
    mov r9, rbx
    PROBE_STACK
    CALLER_ADDR1_AND_2
    mov rdx, r12
    call qword ptr [rip + wakeup_trace_function]
.Lout:
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC probe_wakeup

# void probe_wakeup_migrate_task(void *ignore, struct task_struct *task, int cpu)
FUNC_NOTRACE probe_wakeup_migrate_task
    IS_WAKEUP_TASK rsi, .Lout
    mov [rip + wakeup_current_cpu], edx
.Lout:
    ret
ENDFUNC probe_wakeup_migrate_task

# void probe_wakeup_sched_switch(void *ignore, bool preempt, prev, next, unsigned int prev_state)
FUNC_NOTRACE probe_wakeup_sched_switch
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    push r13
    push r14
    cmp dword ptr [rip + wakeup_tracer_enabled], 0
    je .Lout
    IS_WAKEUP_TASK rcx, .Lout
    TRACE_CONTEXT
    mov r12, rdx
    mov r13, rcx
    mov rdx, [rip + wakeup_ops]
    mov r14, rdx
    PER_CPU_BUFFER
    mov rbx, r9
    test dword ptr [r9 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lreset
    CALLER_ADDR0_AND_1
    call qword ptr [rip + wakeup_trace_function]
    mov r9, rbx
    mov rdi, r12
    mov rsi, r13
    mov ecx, TRACE_CTX_SWITCH
    call tracing_sched_trace
    mov r9, rbx
    PROBE_STACK
    mov r9, rbx
    TRACE_CLOCK
    mov rax, r8
    sub rax, [rip + wakeup_timestamp]
    REPORT_LATENCY wakeup_max_latency, .Lreset
    mov [rip + wakeup_latency], rax
    mov eax, HC_WAKEUP_MAX
    int HYPERCALL
.Lreset:
    call __wakeup_reset
.Lout:
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC probe_wakeup_sched_switch

FUNC_NOTRACE __wakeup_reset
    mov dword ptr [rip + wakeup_cpu], -1
    mov dword ptr [rip + wakeup_prio], -1
    mov dword ptr [rip + wakeup_tracing_dl], 0
    mov qword ptr [rip + wakeup_task], 0
    ret
ENDFUNC __wakeup_reset

# A record of type ecx of two tasks: rdi the one that runs, rsi the one that comes; r9 buffer, rbp the
# frame of the probe. Behind it the stacks that the options ask for (trace_buffer_unlock_commit). Keeps
# what a function keeps.
FUNC_NOTRACE tracing_sched_trace
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rsi
    mov edx, CTX_BYTES
    call ring_buffer_lock_reserve
    jb .Lout
    mov rax, gs:[TRACE_CTX]
    mov ecx, ecx
    add rax, rcx
    mov [r10 + 4], rax
    mov eax, [rbx + KERNEL_TASK_PID]
    mov [r10 + CTX_PREV_PID], eax
    mov eax, [rbx + KERNEL_TASK_PRIO]
    mov [r10 + CTX_PREV_PRIO], al
    TASK_STATE_INDEX rbx
    mov [r10 + CTX_PREV_STATE], al
    mov eax, [r12 + KERNEL_TASK_PID]
    mov [r10 + CTX_NEXT_PID], eax
    mov eax, [r12 + KERNEL_TASK_CPU]
    mov [r10 + CTX_NEXT_CPU], eax
    mov eax, [r12 + KERNEL_TASK_PRIO]
    mov [r10 + CTX_NEXT_PRIO], al
    TASK_STATE_INDEX r12
    mov [r10 + CTX_NEXT_STATE], al
    test byte ptr [r9 + RB_STACKTRACE], RB_STACKTRACE_KERNEL
    je .Luser
    PROBE_STACK
.Luser:
    test byte ptr [r9 + RB_STACKTRACE], RB_STACKTRACE_USER
    je .Lout
    call ftrace_trace_userstack
.Lout:
    pop r12
    pop rbx
    ret
ENDFUNC tracing_sched_trace

.data
.balign 64
OBJECT wakeup_task                          # who is waited for
    .quad 0
ENDOBJECT wakeup_task
OBJECT wakeup_task_birth
    .quad 0
ENDOBJECT wakeup_task_birth
OBJECT wakeup_timestamp                     # since when
    .quad 0
ENDOBJECT wakeup_timestamp
OBJECT wakeup_latency                       # how long it was, for the host
    .quad 0
ENDOBJECT wakeup_latency
OBJECT wakeup_ops                           # of the trace array whose tracer it is
    .quad 0
ENDOBJECT wakeup_ops
OBJECT wakeup_trace_function                # how start and end are recorded (__trace_function)
    .quad function_trace_call
ENDOBJECT wakeup_trace_function
OBJECT wakeup_max_latency                   # where that one keeps its maximum, nanoseconds
    .quad 0
ENDOBJECT wakeup_max_latency
OBJECT wakeup_cpu
    .long -1
ENDOBJECT wakeup_cpu
OBJECT wakeup_current_cpu
    .long -1
ENDOBJECT wakeup_current_cpu
OBJECT wakeup_prio
    .long -1
ENDOBJECT wakeup_prio
OBJECT wakeup_rt                            # realtime tasks alone
    .long 0
ENDOBJECT wakeup_rt
OBJECT wakeup_dl                            # deadline tasks alone
    .long 0
ENDOBJECT wakeup_dl
OBJECT wakeup_tracing_dl                    # a deadline task is waited for, and gives way to nobody
    .long 0
ENDOBJECT wakeup_tracing_dl
OBJECT wakeup_tracer_enabled
    .long 0
ENDOBJECT wakeup_tracer_enabled
