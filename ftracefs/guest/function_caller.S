# A trampoline that does what function_trace_call does, without a call and without a frame.
#
# create_trampoline puts it in front of its copy of ftrace_caller for an op whose callback is
# function_trace_call. The nop at its start becomes a jump to that copy while the op has another
# callback. It is only ever run as a copy; what depends on the op or on the place has a label.

# rdx: tail, then the record; r10: buffer; r11: time since the last record.
.balign 128, 0xcc
FUNC_NOTRACE ftrace_function_caller
    .byte 0x0f, 0x1f, 0x44, 0, 0
    push rax
    push rdx
    TRACE_CONTEXT
    mov eax, gs:[CPU_NUMBER]
ftrace_function_caller_buffers:
    movabs r10, 0x7fffffffffffffff          # what OP_PRIVATE of the op says
    mov r10, [r10 + rax*8]
    cmp dword ptr [r10 + RB_GUARD], 0
    jne .Lguarded
    rdtsc
    shl rdx, 32
    or rax, rdx
    mul qword ptr [r10 + RB_CLOCK_MULT]
    shrd rax, rdx, 32
    add rax, [r10 + RB_CLOCK_OFFSET]
.Lstamped:
    mov rdx, [r10 + RB_TAIL]
    mov r11, rax
    sub r11, [r10 + RB_STAMP]
    mov [r10 + RB_STAMP], rax
    mov rax, [r10 + RB_END]
    sub rax, rdx
    sub rax, FTRACE_ENTRY_BYTES
    or rax, r11
    shr rax, TS_SHIFT
    jne .Lrare
.Lreserved:
    lea rax, [rdx + FTRACE_ENTRY_BYTES]
    mov [r10 + RB_TAIL], rax
    shl r11d, 5
    or r11d, FTRACE_ENTRY_WORDS
    mov [rdx], r11d
    mov rax, gs:[TRACE_CTX]
    add rax, TRACE_FN
    mov [rdx + 4], rax
    mov rax, [rsp + 16]
    sub rax, MCOUNT_INSN_SIZE
    mov [rdx + 12], rax
    mov rax, [rsp + 24]
    mov [rdx + 20], rax
    inc qword ptr [r10 + RB_EVENTS]
.Lout:
    pop rdx
    pop rax
    LEAVE_TRAMPOLINE
    ret
.Lguarded:
    test dword ptr [r10 + RB_GUARD], ~RB_GUARD_CLOCK
    jne .Lout
    rdtsc
    shl rdx, 32
    or rax, rdx
    mul qword ptr [r10 + RB_CLOCK_MULT]
    shrd rax, rdx, 32
    mov r11, [r10 + RB_CLOCK_PTR]
    mov rdx, [r11]
    add rdx, [r10 + RB_CLOCK_STEP]
    mov [r11], rdx
    add rax, rdx
    add rax, [r10 + RB_CLOCK_OFFSET]
    jmp .Lstamped
.Lrare:
    push r8
    push r9
    mov r9, r10
    mov r8, r11
    mov r10, rdx
    mov eax, FTRACE_ENTRY_BYTES
ftrace_function_caller_rare:
    call rb_reserve_rare
    mov rdx, r10
    mov r10, r9
    mov r11, r8
    pop r9
    pop r8
    jae .Lreserved
    jmp .Lout
ftrace_function_caller_end:
    int3
ENDFUNC ftrace_function_caller
