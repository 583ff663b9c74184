# The callbacks of the function tracer with its options on (kernel/trace/trace_functions.c).

# struct func_repeats_entry: common fields, ip, parent_ip, u16 count, a delta of 48 bits.
FUNC_REPEATS_BYTES = 36
FUNC_REPEATS_WORDS = 8
MAX_REPEATS = 0xffff

# With the option func_stack_trace: each call and how it came about.
FUNC_NOTRACE function_stack_trace_call
    PER_CPU_BUFFER
    test dword ptr [r9 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lout
    TRACE_CLOCK
    TRACE_FUNCTION TRACE_FN
.Ltrace_stack:
    xor eax, eax
    mov r8, rsp
    jmp __ftrace_trace_stack
.Lout:
    ret
    RB_RARE FTRACE_ENTRY_BYTES, .Ltrace_stack
ENDFUNC function_stack_trace_call

# With the option func-no-repeats: a call like the last one of its CPU is only counted.
FUNC_NOTRACE function_no_repeats_trace_call
    call process_repeats
    jae function_trace_call
    ret
ENDFUNC function_no_repeats_trace_call

FUNC_NOTRACE function_stack_no_repeats_trace_call
    call process_repeats
    jae function_stack_trace_call
    ret
ENDFUNC function_stack_no_repeats_trace_call

# is_repeat_check and process_repeats. Carry clear: the call is to be recorded. Calls are counted
# while tracing_on is 0 too, as in Linux.
FUNC_NOTRACE process_repeats
    PER_CPU_BUFFER
    test dword ptr [r9 + RB_GUARD], ~(RB_GUARD_OFF | RB_GUARD_DISABLED | RB_GUARD_CLOCK)
    jne .Lnot_traced
    push rbx
    shl eax, 5
    mov rbx, [rdx + OP_FUNC_REPEATS]
    add rbx, rax
    cmp [rbx + REPEATS_IP], rdi
    jne .Lprocess
    cmp [rbx + REPEATS_PARENT_IP], rsi
    jne .Lprocess
    cmp qword ptr [rbx + REPEATS_COUNT], MAX_REPEATS
    jae .Lprocess
    TRACE_CLOCK
    mov [rbx + REPEATS_TS_LAST_CALL], r8
    inc qword ptr [rbx + REPEATS_COUNT]
    pop rbx
.Lnot_traced:
    stc
    ret
.Lprocess:
    cmp qword ptr [rbx + REPEATS_COUNT], 0
    je .Lremember
    test dword ptr [r9 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lremember
    TRACE_CLOCK                             # trace_last_func_repeats
    RB_RESERVE FUNC_REPEATS_BYTES, FUNC_REPEATS_WORDS
    RB_COMMON TRACE_FUNC_REPEATS
    mov rax, [rbx + REPEATS_IP]
    mov [r10 + 12], rax
    mov rax, [rbx + REPEATS_PARENT_IP]
    mov [r10 + 20], rax
    mov eax, [rbx + REPEATS_COUNT]
    mov [r10 + 28], eax                     # 16 bits; the next two are written below
    mov rax, [r9 + RB_STAMP]
    sub rax, [rbx + REPEATS_TS_LAST_CALL]
    mov [r10 + 32], eax
    shr rax, 32
    mov [r10 + 30], ax
    RB_COUNT FUNC_REPEATS_BYTES
.Lremember:
    mov qword ptr [rbx + REPEATS_COUNT], 0
    mov [rbx + REPEATS_IP], rdi
    mov [rbx + REPEATS_PARENT_IP], rsi
    pop rbx
    clc
    ret
    RB_RARE FUNC_REPEATS_BYTES, .Lremember
ENDFUNC process_repeats
