# The callbacks of the function tracer (kernel/trace/trace_functions.c).

.balign 128, 0xcc
FUNC_NOTRACE function_trace_call
    PER_CPU_BUFFER
    cmp dword ptr [r9 + RB_GUARD], 0
    jne .Lguarded
    TRACE_CLOCK_TSC
.Lstamped:
    TRACE_FUNCTION TRACE_FN
.Lout:
    ret
.Lguarded:
    test dword ptr [r9 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lout
    TRACE_CLOCK
    jmp .Lstamped
    RB_RARE FTRACE_ENTRY_BYTES, .Lout
ENDFUNC function_trace_call
