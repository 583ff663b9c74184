# How long interrupts, preemption or either of them are off (kernel/trace/trace_irqsoff.c,
# kernel/trace/trace_preemptirq.c). The kernel calls the trace_* functions here where it switches
# them, as long as one of the three tracers is in charge; one at a time is.

# What is kept for each CPU.
IC_TRACING = 0                          # tracing_cpu: a section is being measured
IC_IRQ = 4                              # tracing_irq_cpu: interrupts are off, as far as was told
IC_TIMESTAMP = 8                        # preempt_timestamp
IC_START = 16                           # critical_start
IC_SEQUENCE = 24                        # critical_sequence

# \reg: this CPU's words. Uses rax.
.macro IRQSOFF_CPU reg
    mov eax, gs:[CPU_NUMBER]
    shl eax, 6
    lea \reg, [rip + irqsoff_cpu]
    add \reg, rax
.endm

# preempt_count(), as far as it matters whether that is 0. Uses rax.
.macro TEST_PREEMPT_COUNT
    movzx eax, byte ptr gs:[PREEMPT_DEPTH]
    or eax, gs:[IRQ_DEPTH]
    or eax, gs:[SOFTIRQ_DEPTH]
.endm

# The kernel's own registers stay as they are. rdi CALLER_ADDR0, rsi CALLER_ADDR1; rbp is the frame
# of this function, so that the frame at [rbp] is that of the function that called it.
.macro THUNK_ENTER
    push rbp
    mov rbp, rsp
    pushfq
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    mov rdi, [rbp + 8]
    mov rax, [rbp]
    xor esi, esi
    test al, 7
    jne 78f
    test rax, rax
    je 78f
    mov rsi, [rax + 8]
78:
.endm

.macro THUNK_LEAVE
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    popfq
    pop rbp
    ret
.endm

# rsi: get_lock_parent_ip(): who called the function at rdi if that takes or gives back a lock, else
# rdi itself.
.macro LOCK_PARENT_IP
    cmp rdi, [rip + lock_text]
    jb 79f
    cmp rdi, [rip + lock_text + 8]
    jb 78f
79: mov rsi, rdi
78:
.endm

FUNC_NOTRACE trace_hardirqs_off
    THUNK_ENTER
    IRQSOFF_CPU r10
    cmp dword ptr [r10 + IC_IRQ], 0
    jne .Lout
    mov dword ptr [r10 + IC_IRQ], 1
    call tracer_hardirqs_off
.Lout:
    THUNK_LEAVE
ENDFUNC trace_hardirqs_off

FUNC_NOTRACE trace_hardirqs_on
    THUNK_ENTER
    IRQSOFF_CPU r10
    cmp dword ptr [r10 + IC_IRQ], 0
    je .Lout
    call tracer_hardirqs_on
    IRQSOFF_CPU r10
    mov dword ptr [r10 + IC_IRQ], 0
.Lout:
    THUNK_LEAVE
ENDFUNC trace_hardirqs_on

# Called with the count raised already, or not lowered yet: only the outermost counts.
FUNC_NOTRACE trace_preempt_off
    THUNK_ENTER
    LOCK_PARENT_IP
    call tracer_preempt_off
    THUNK_LEAVE
ENDFUNC trace_preempt_off

FUNC_NOTRACE trace_preempt_on
    THUNK_ENTER
    LOCK_PARENT_IP
    call tracer_preempt_on
    THUNK_LEAVE
ENDFUNC trace_preempt_on

# The time a CPU is idle is nobody's latency.
FUNC_NOTRACE stop_critical_timings
    THUNK_ENTER
    call tracer_is_critical
    je .Lout
    call stop_critical_timing
.Lout:
    THUNK_LEAVE
ENDFUNC stop_critical_timings

FUNC_NOTRACE start_critical_timings
    THUNK_ENTER
    call tracer_is_critical
    je .Lout
    call start_critical_timing
.Lout:
    THUNK_LEAVE
ENDFUNC start_critical_timings

# ZF clear when this is a section to be measured: preempt_trace(preempt_count()) || irq_trace().
FUNC_NOTRACE tracer_is_critical
    test dword ptr [rip + irqsoff_trace_type], TRACER_PREEMPT_OFF
    je .Lirq
    TEST_PREEMPT_COUNT
    jne .Lout
.Lirq:
    test dword ptr [rip + irqsoff_trace_type], TRACER_IRQS_OFF
    je .Lout
    test byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_IRQS_OFF
.Lout:
    ret
ENDFUNC tracer_is_critical

# ZF set when interrupts are what is to be measured here: !preempt_trace() && irq_trace().
FUNC_NOTRACE irqs_are_critical
    mov ecx, [rip + irqsoff_trace_type]
    test ecx, TRACER_PREEMPT_OFF
    je .Lirq
    TEST_PREEMPT_COUNT
    jne .Lout
.Lirq:
    xor ecx, TRACER_IRQS_OFF
    test ecx, TRACER_IRQS_OFF
    jne .Lout
    mov al, gs:[IRQ_FLAGS]
    not al
    test al, TRACE_FLAG_IRQS_OFF
.Lout:
    ret
ENDFUNC irqs_are_critical

# ZF set when preemption is: preempt_trace() && !irq_trace(), and this is its outermost level.
FUNC_NOTRACE preemption_is_critical
    mov eax, gs:[IRQ_DEPTH]
    or eax, gs:[SOFTIRQ_DEPTH]
    jne .Lout
    cmp byte ptr gs:[PREEMPT_DEPTH], 1
    jne .Lout
    mov ecx, [rip + irqsoff_trace_type]
    test ecx, TRACER_IRQS_OFF
    je .Lpreempt
    test byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_IRQS_OFF
    jne .Lout
.Lpreempt:
    not ecx
    test ecx, TRACER_PREEMPT_OFF
.Lout:
    ret
ENDFUNC preemption_is_critical

FUNC_NOTRACE tracer_hardirqs_off
    call irqs_are_critical
    jne .Lout
    call start_critical_timing
.Lout:
    ret
ENDFUNC tracer_hardirqs_off

FUNC_NOTRACE tracer_hardirqs_on
    call irqs_are_critical
    jne .Lout
    call stop_critical_timing
.Lout:
    ret
ENDFUNC tracer_hardirqs_on

FUNC_NOTRACE tracer_preempt_off
    call preemption_is_critical
    jne .Lout
    call start_critical_timing
.Lout:
    ret
ENDFUNC tracer_preempt_off

FUNC_NOTRACE tracer_preempt_on
    call preemption_is_critical
    jne .Lout
    call stop_critical_timing
.Lout:
    ret
ENDFUNC tracer_preempt_on

# Goes to \not unless the top level's tracing_on is 1, whoever's tracer this is. Uses rax.
.macro TRACING_IS_ENABLED not
    mov rax, [rip + global_trace_buffers]
    mov rax, [rax]
    test byte ptr [rax + RB_GUARD], RB_GUARD_OFF
    jne \not
.endm

# rdi ip, rsi parent_ip or 0.
FUNC_NOTRACE start_critical_timing
    cmp dword ptr [rip + irqsoff_tracer_enabled], 0
    je .Lout
    TRACING_IS_ENABLED .Lout
    push rbx
    IRQSOFF_CPU rbx
    cmp dword ptr [rbx + IC_TRACING], 0
    jne .Lno
    mov rdx, [rip + irqsoff_ops]
    PER_CPU_BUFFER
    test dword ptr [r9 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lno
    mov rax, [rip + irqsoff_max_sequence]
    mov [rbx + IC_SEQUENCE], rax
    TRACE_CLOCK
    mov [rbx + IC_TIMESTAMP], r8
    mov rax, rsi
    test rax, rax
    jne .Lparent
    mov rax, rdi
.Lparent:
    mov [rbx + IC_START], rax
    call qword ptr [rip + irqsoff_trace_function]
    mov dword ptr [rbx + IC_TRACING], 1
.Lno:
    pop rbx
.Lout:
    ret
ENDFUNC start_critical_timing

# rdi ip, rsi parent_ip or 0; on the stack, an address in the function that asks (CALLER_ADDR0 of
# check_critical_timing, which is part of it).
FUNC_NOTRACE stop_critical_timing
    push rbx
    push r12
    push r13
    push r14
    sub rsp, 32                             # IRQSOFF_MAX_*
    IRQSOFF_CPU rbx
    cmp dword ptr [rbx + IC_TRACING], 0
    je .Lout
    mov dword ptr [rbx + IC_TRACING], 0
    cmp dword ptr [rip + irqsoff_tracer_enabled], 0
    je .Lout
    TRACING_IS_ENABLED .Lout
    cmp qword ptr [rbx + IC_START], 0
    je .Lout
    mov rdx, [rip + irqsoff_ops]
    PER_CPU_BUFFER
    test dword ptr [r9 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lout
    mov r12, r9
    mov r13, [rsp + 64]
    call qword ptr [rip + irqsoff_trace_function]
    test rsi, rsi
    jne .Lparent
    mov rsi, rdi
.Lparent:
    mov r14, rdi

    # check_critical_timing
    mov rdi, r13
    mov r9, r12
    TRACE_CLOCK
    mov rax, r8
    sub rax, [rbx + IC_TIMESTAMP]
    REPORT_LATENCY irqsoff_max_latency, .Lrestart
    mov [rsp + IRQSOFF_MAX_LATENCY], rax
    call qword ptr [rip + irqsoff_trace_function]
    mov r9, r12
    mov rax, r14                            # the stack from the function on that enabled them
    mov r8, [rbp]
    call __trace_stack
    mov rax, [rip + irqsoff_max_sequence]
    cmp [rbx + IC_SEQUENCE], rax
    jne .Lrestart
    mov rax, [rbx + IC_START]
    mov [rsp + IRQSOFF_MAX_START], rax
    mov [rsp + IRQSOFF_MAX_END], rsi
    mov rax, [rbx + IC_TIMESTAMP]
    mov [rsp + IRQSOFF_MAX_TIMESTAMP], rax
    push rdi
    lea rdi, [rsp + 8]
    mov eax, HC_UPDATE_MAX_TR
    int HYPERCALL
    pop rdi
    inc qword ptr [rip + irqsoff_max_sequence]
.Lrestart:
    mov rax, [rip + irqsoff_max_sequence]
    mov [rbx + IC_SEQUENCE], rax
    mov r9, r12
    TRACE_CLOCK
    mov [rbx + IC_TIMESTAMP], r8
    call qword ptr [rip + irqsoff_trace_function]
    mov qword ptr [rbx + IC_START], 0
.Lout:
    add rsp, 32
    pop r14
    pop r13
    pop r12
    pop rbx
    ret
ENDFUNC stop_critical_timing

# func_prolog_dec: goes to \not unless a section is being measured. Uses rax r9.
.macro FUNC_PROLOG_DEC not
    IRQSOFF_CPU r9
    cmp dword ptr [r9 + IC_TRACING], 0
    je \not
    TEST_PREEMPT_COUNT
    jne 77f
    test byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_IRQS_OFF
    je \not
77:
.endm

# The callback of the tracers' op: records calls while a section is being measured.
.balign 128, 0xcc
FUNC_NOTRACE irqsoff_tracer_call
    FUNC_PROLOG_DEC .Lout
    jmp function_trace_call
.Lout:
    ret
ENDFUNC irqsoff_tracer_call

# The same as fgraph has them called, with the option display-graph.
FUNC_NOTRACE irqsoff_graph_entry
    call latency_graph_asks
    jb .Lout
    FUNC_PROLOG_DEC .Lno
    TRACE_GRAPH_ENTRY irqsoff_ops
    ret
.Lno:
    xor eax, eax
.Lout:
    ret
ENDFUNC irqsoff_graph_entry

FUNC_NOTRACE irqsoff_graph_return
    call ftrace_graph_addr_finish
    FUNC_PROLOG_DEC .Lout
    TRACE_GRAPH_RETURN irqsoff_ops
.Lout:
    ret
ENDFUNC irqsoff_graph_return

.data
.balign 64
OBJECT irqsoff_cpu                          # 64 bytes for each CPU
    .zero IRQSOFF_CPUS_BYTES
ENDOBJECT irqsoff_cpu
OBJECT irqsoff_ops                          # of the trace array whose tracer it is
    .quad 0
ENDOBJECT irqsoff_ops
OBJECT irqsoff_trace_function               # how start and end are recorded (__trace_function)
    .quad function_trace_call
ENDOBJECT irqsoff_trace_function
OBJECT irqsoff_max_latency                  # where that one keeps its maximum, nanoseconds
    .quad 0
ENDOBJECT irqsoff_max_latency
OBJECT irqsoff_max_sequence                 # counts the maxima: a section that saw one is not told
    .quad 0
ENDOBJECT irqsoff_max_sequence
OBJECT irqsoff_trace_type
    .long 0
ENDOBJECT irqsoff_trace_type
OBJECT irqsoff_tracer_enabled
    .long 0
ENDOBJECT irqsoff_tracer_enabled
OBJECT lock_text                            # from where to where the functions of locks lie
    .quad 0
    .quad 0
ENDOBJECT lock_text
