# A trampoline that does what function_trace_call does, without a call and without a frame.
#
# create_trampoline puts it in front of its copy of ftrace_caller for an op whose callback is
# function_trace_call. The nop at its start becomes a jump to that copy while the op has another
# callback.

.balign 128, 0xcc
FUNC_NOTRACE ftrace_function_caller
    INLINE_BEGIN
    mov eax, gs:[CPU_NUMBER]
    shl eax, RB_SHIFT
ftrace_function_caller_buffers:
    movabs r10, 0x7fffffffffffffff          # the first CPU's buffer, of those in OP_PRIVATE of the op
    add r10, rax
    cmp dword ptr [r10 + RB_GUARD], 0
    jne .Lguarded
    INLINE_CLOCK_TSC
.Lstamped:
    INLINE_RESERVE FTRACE_ENTRY_BYTES, FTRACE_ENTRY_WORDS
    INLINE_COMMON TRACE_FN
    mov rax, [rsp + 16]
    sub rax, MCOUNT_INSN_SIZE
    mov [rdx + 12], rax
    mov rax, [rsp + 24]
    mov [rdx + 20], rax
    INLINE_COMMIT
.Lout:
    INLINE_END
.Lguarded:
    test dword ptr [r10 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lout
    INLINE_CLOCK
    jmp .Lstamped
    INLINE_RARE FTRACE_ENTRY_BYTES, ftrace_function_caller_rare
.balign 16, 0xcc
ftrace_function_caller_end:
    int3
ENDFUNC ftrace_function_caller
