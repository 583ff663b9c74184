# Where the probes of a Linux's own events get their records. Its trace_event_buffer_reserve and
# trace_event_buffer_commit begin with a jump here while an event of ours is on. A trace_event_file of
# ours lies in the host's memory, of which Linux knows nothing; what is about another one goes on in
# Linux's own code.
#
# From reserve to commit the probe writes into the buffer itself. So long the guest is not stopped, by
# no interrupt and for nobody's turn (OPEN_RECORDS): nobody sees half a record.

.text

BUF_MAX_DATA_SIZE = 4072                    # what a page has room for

# Carry clear if the trace_event_file at \file is one of ours; uses rax and r8.
.macro IS_OURS file
    mov rax, \file
    mov r8, HOST_HEAP
    sub rax, r8
    cmp rax, HOST_HEAP_BYTES
    cmc
.endm

# void *trace_event_buffer_reserve(struct trace_event_buffer *fbuffer, trace_event_file, unsigned long len)
FUNC_NOTRACE linux_event_buffer_reserve
    IS_OURS rsi
    jb .Ltheirs
    cmp rdx, BUF_MAX_DATA_SIZE
    ja .Lnothing
    TRACE_CONTEXT
    sub dword ptr gs:[TRACE_CTX], LINUX_PREEMPTION << 24    # tracing_gen_ctx_dec
    push rdi
    push rsi
    push rdx
    lea rdi, [rsi - EVENT_FILE_LINUX]
    call trace_event_buffer_reserve
    pop rdx
    pop rsi
    pop rdi
    jb .Lnothing
    inc dword ptr gs:[OPEN_RECORDS]         # whatever is recorded before it is committed comes behind
    lea rax, [r10 + 4]
    mov [rdi + LINUX_FBUFFER_BUFFER], r9
    mov [rdi + LINUX_FBUFFER_FILE], rsi
    mov [rdi + LINUX_FBUFFER_ENTRY], rax
    cmp edx, RB_MAX_SMALL_DATA              # what stands in front of it, for ring_buffer_event_data
    jbe 1f
    sub r10, 4
1:  mov [rdi + LINUX_FBUFFER_EVENT], r10
    ret
.Lnothing:
    xor eax, eax
    ret
.Ltheirs:
    jmp [rip + linux_event_buffer_reserve_rest]
ENDFUNC linux_event_buffer_reserve

# void trace_event_buffer_commit(struct trace_event_buffer *fbuffer)
FUNC_NOTRACE linux_event_buffer_commit
    IS_OURS [rdi + LINUX_FBUFFER_FILE]
    jb .Ltheirs
    cmp dword ptr gs:[OPEN_RECORDS], 0      # the host may have lost its patience
    je 1f
    dec dword ptr gs:[OPEN_RECORDS]
1:  mov r9, [rdi + LINUX_FBUFFER_BUFFER]
    cmp dword ptr [r9 + RB_STACKTRACE], 0
    jne linux_event_stacks
    ret
.Ltheirs:
    jmp [rip + linux_event_buffer_commit_rest]
ENDFUNC linux_event_buffer_commit

# Who passed the tracepoint, and who called that: neither the probe nor the code that calls it; and where
# user mode was left. In: r9 buffer; the probe's return address is on top of the stack.
FUNC_NOTRACE linux_event_stacks
    test byte ptr [r9 + RB_STACKTRACE], RB_STACKTRACE_KERNEL
    je .Luser
    push rbp
    mov r8, rsp
    mov eax, 1
    call trace_stack_of_caller
    pop rbp
.Luser:
    test byte ptr [r9 + RB_STACKTRACE], RB_STACKTRACE_USER
    jne ftrace_trace_userstack
    ret
ENDFUNC linux_event_stacks

.data
.balign 8
OBJECT linux_event_buffer_reserve_rest      # what the jump has taken the place of, and a jump behind it
    .quad 0
ENDOBJECT linux_event_buffer_reserve_rest
OBJECT linux_event_buffer_commit_rest
    .quad 0
ENDOBJECT linux_event_buffer_commit_rest
