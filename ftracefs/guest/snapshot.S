# A snapshot taken from within the kernel (tracing_snapshot_instance, __trace_array_puts of
# kernel/trace/trace.c). The exchange of the rings is the host's, by hypercall: while it happens this
# code holds no address of a page.

.data
OBJECT snapshot_not_allocated
    .ascii "*** SNAPSHOT NOT ALLOCATED ***\n"
ENDOBJECT snapshot_not_allocated
OBJECT snapshot_stopping
    .ascii "*** stopping trace here!   ***\n"
ENDOBJECT snapshot_stopping
OBJECT snapshot_latency_tracer
    .ascii "*** LATENCY TRACER ACTIVE ***\n"
ENDOBJECT snapshot_latency_tracer
OBJECT snapshot_sorry
    .ascii "*** Can not use snapshot (sorry) ***\n"
ENDOBJECT snapshot_sorry
.text

# void tracing_snapshot_instance(u64 *buffers)
# Of the trace array that has these buffers. Keeps what a C function keeps.
FUNC_NOTRACE tracing_snapshot_instance
    push rbp
    mov rbp, rsp
    call tracing_snapshot_instance_cond
    pop rbp
    ret
ENDFUNC tracing_snapshot_instance

FUNC_NOTRACE tracing_snapshot_instance_cond
    push rbp
    mov rbp, rsp
    push rbx
    sub rsp, 8
    mov rbx, rdi
    mov rsi, rsp
    mov qword ptr [rsi], SNAPSHOT_TAKE
    mov eax, HC_SNAPSHOT
    int HYPERCALL
    cmp dword ptr [rsp], SNAPSHOT_NOT_ALLOCATED
    je .Lnot_allocated
    cmp dword ptr [rsp], SNAPSHOT_LATENCY_TRACER
    jne .Lout
    lea rsi, [rip + snapshot_latency_tracer]
    mov edx, 30
    call .Lputs
    lea rsi, [rip + snapshot_sorry]
    mov edx, 37
    call .Lputs
.Lout:
    add rsp, 8
    pop rbx
    pop rbp
    ret
.Lnot_allocated:
    lea rsi, [rip + snapshot_not_allocated]
    mov edx, 31
    call .Lputs
    lea rsi, [rip + snapshot_stopping]
    mov edx, 31
    call .Lputs
    mov rdi, rbx
    mov rsi, rsp
    mov qword ptr [rsi], SNAPSHOT_STOP
    mov eax, HC_SNAPSHOT
    int HYPERCALL
    jmp .Lout
.Lputs:
    mov rdi, rbx
    lea rcx, [rip + tracing_snapshot_instance_cond]
    jmp __trace_array_puts
ENDFUNC tracing_snapshot_instance_cond

# int __trace_array_puts(u64 *buffers, const char *str, int size, unsigned long ip)
# One print record of a text that ends in a newline. Returns size, or 0 when nothing is recorded.
FUNC_NOTRACE __trace_array_puts
    push rbp
    mov rbp, rsp
    push rbx
    mov eax, gs:[CPU_NUMBER]
    mov r9, [rdi + rax*8]
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lnothing
    mov ebx, edx
    add edx, 8 + 8 + 2                      # common fields, ip, "\n\0"
    call ring_buffer_lock_reserve
    jb .Lnothing
    RB_COMMON TRACE_PRINT
    mov [r10 + PRINT_IP], rcx
    RB_COPY PRINT_BUF
    RB_ZERO_REST
    mov eax, ebx
    pop rbx
    pop rbp
    ret
.Lnothing:
    xor eax, eax
    pop rbx
    pop rbp
    ret
ENDFUNC __trace_array_puts
