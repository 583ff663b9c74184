# The stack tracer (kernel/trace/trace_stack.c): the deepest that a stack has been, and through whom.
# Left out: the check that a stack's end has not been written over, which in Linux is a BUG.

.balign 128, 0xcc
FUNC_NOTRACE stack_trace_call
    CURRENT_STACK
    lea rax, [r8 + STACK_BYTES]
    sub rax, rsp
    sub rax, [rip + tracer_frame]
    cmp rax, [rip + stack_trace_max_size]
    ja .Lobject_is_on_stack
.Lout:
    ret

.Lobject_is_on_stack:
    mov r10, rsp
    sub r10, r8
    cmp r10, STACK_BYTES
    jae .Lout
    cmp dword ptr [rip + disable_stack_tracer], 0
    jne .Lout
    mov r10, rsp
    jmp check_stack
ENDFUNC stack_trace_call

# A new maximum. rax this_size, r10 the callback's stack, r8 the lowest address of the stack it is on,
# rdi and rcx as a callback is given them, rbp the frame of the traced function's caller.
FUNC_NOTRACE check_stack
    push rdi
    push rsi
    push rdx
    push rcx
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov r14, r10
    mov r15, rax
    lea rdx, [r8 + STACK_BYTES]
    mov [rip + stack_trace_max_size], rax
    lea r12, [rip + stack_dump_trace]
    lea r13, [r12 + STACK_TRACE_ENTRIES * 8 - 8]
    call arch_stack_walk

    # Where on the stack these are: index is the distance to its top. An address that is not found,
    # as one that function graph tracing has taken from there, is left out.
    lea rsi, [rip + stack_dump_trace]       # i
    mov rdi, rsi                            # x
    lea rbx, [rip + stack_trace_index]
    mov r9, r14                             # start
.Lentry:
    cmp rsi, r12
    jae .Lend
    mov [rbx], r15d
    mov r10, r9                             # p
    xor r11d, r11d                          # found
.Lword:
    cmp r10, rdx
    jae .Lsearched
    cmp rsi, r12
    jae .Lsearched
    mov r8, [r10]
    cmp r8, [rsi]
    jne .Lnext
    mov [rdi], r8
    add rdi, 8
    add rsi, 8
    mov r15, rdx
    sub r15, r10
    mov [rbx], r15d
    add rbx, 4
    mov r11d, 1
    lea r9, [r10 + 8]
    cmp qword ptr [rip + tracer_frame], 0
    jne .Lnext
    mov r8, r10                             # the first time: what is the tracer's own
    sub r8, r14
    mov [rip + tracer_frame], r8
    sub [rip + stack_trace_max_size], r8
.Lnext:
    add r10, 8
    jmp .Lword
.Lsearched:
    test r11d, r11d
    jne .Lentry
    add rsi, 8
    jmp .Lentry
.Lend:
    lea rax, [rip + stack_dump_trace]
    sub rdi, rax
    shr edi, 3
    mov [rip + stack_trace_nr_entries], edi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    ret
ENDFUNC check_stack

.data
.balign 64
OBJECT stack_trace_max_size
    .quad 0
ENDOBJECT stack_trace_max_size
OBJECT tracer_frame                         # from the callback's stack to where the function's begins
    .quad 0
ENDOBJECT tracer_frame
OBJECT disable_stack_tracer
    .long 0
ENDOBJECT disable_stack_tracer
OBJECT stack_trace_nr_entries
    .long 0
ENDOBJECT stack_trace_nr_entries
OBJECT stack_dump_trace
    .zero STACK_TRACE_ENTRIES * 8
ENDOBJECT stack_dump_trace
OBJECT stack_trace_index
    .zero STACK_TRACE_ENTRIES * 4
ENDOBJECT stack_trace_index
