# A trampoline that does what function_trace_call does, without a call and without a frame.
#
# create_trampoline puts it in front of its copy of ftrace_caller for an op whose callback is
# function_trace_call. The nop at its start becomes a jump to that copy while the op has another
# callback.

.balign 128, 0xcc
FUNC_NOTRACE ftrace_function_caller
    INLINE_BEGIN OPS
    OPS_BUFFER ftrace_function_caller_buffers
    OPS_GUARD cmp, 0
    jne .Lguarded
    INLINE_CLOCK_TSC OPS
.Lstamped:
    INLINE_RESERVE OPS, FTRACE_ENTRY_BYTES, FTRACE_ENTRY_WORDS
    INLINE_COMMON TRACE_FN
    mov rax, [rsp + OPS_SAVED]
    sub rax, MCOUNT_INSN_SIZE
    mov [rdx + 12], rax
    mov rax, [rsp + OPS_SAVED + 8]
    mov [rdx + 20], rax
.Lout:
    INLINE_END OPS
.Lguarded:
    OPS_GUARD test, ~RB_GUARD_CLOCK
    jne .Lout
    INLINE_CLOCK OPS
    jmp .Lstamped
    INLINE_RARE OPS, FTRACE_ENTRY_BYTES, ftrace_function_caller_rare
.balign 16, 0xcc
ftrace_function_caller_end:
    int3
ENDFUNC ftrace_function_caller
