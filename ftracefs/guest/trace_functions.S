# The callbacks of the function tracer (kernel/trace/trace_functions.c).

# struct ftrace_entry: common fields, ip, parent_ip.
FTRACE_ENTRY_BYTES = 28
FTRACE_ENTRY_WORDS = 6

.balign 128, 0xcc
FUNC_NOTRACE function_trace_call
    PER_CPU_BUFFER
    cmp dword ptr [r9 + RB_GUARD], 0
    jne .Lguarded
    TRACE_CLOCK_TSC
.Lstamped:
    RB_RESERVE FTRACE_ENTRY_BYTES, FTRACE_ENTRY_WORDS
    RB_COMMON TRACE_FN
    mov [r10 + 12], rdi
    mov [r10 + 20], rsi
    RB_COMMIT
.Lout:
    ret
.Lguarded:
    test dword ptr [r9 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lout
    TRACE_CLOCK
    jmp .Lstamped
    RB_RARE FTRACE_ENTRY_BYTES, .Lout
ENDFUNC function_trace_call
