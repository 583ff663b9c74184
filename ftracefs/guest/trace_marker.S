# What user space writes into a trace (tracing_mark_write, tracing_mark_raw_write of
# kernel/trace/trace.c).

TRACE_BUF_SIZE = 1024
FAULTED_SIZE = 9                            # room that is kept for "<faulted>"
FAULT_SIZE_ID = 13
EBADF = 9
RAW_DATA_ID = 12                            # from four bytes before the payload

# long tracing_mark_write(u64 *buffers, const char *ubuf, size_t cnt, unsigned long ip)
# One print record: a newline is added if the text has none, and a NUL. Returns the bytes taken, at
# most TRACE_BUF_SIZE, or -EBADF when nothing can be recorded.
FUNC_NOTRACE tracing_mark_write
    push rbp
    mov rbp, rsp
    push rbx
    WRITER_CONTEXT
    mov eax, gs:[CPU_NUMBER]
    mov r9, [rdi + rax*8]
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lbadf
    mov ebx, TRACE_BUF_SIZE
    cmp rdx, rbx
    cmovb rbx, rdx
    mov edx, FAULTED_SIZE
    cmp ebx, edx
    cmova edx, ebx
    add edx, 8 + 8 + 2                      # common fields, ip, "\n\0"
    call ring_buffer_lock_reserve
    jb .Lbadf
    RB_COMMON TRACE_PRINT
    mov [r10 + PRINT_IP], rcx
    RB_COPY PRINT_BUF
    cmp byte ptr [rdi - 1], 10              # of an empty text: the last byte of ip, as in Linux
    je 1f
    mov byte ptr [rdi], 10
    inc rdi
1:  RB_ZERO_REST
    mov rax, rbx
    pop rbx
    pop rbp
    ret
.Lbadf:
    mov rax, -EBADF
    pop rbx
    pop rbp
    ret
ENDFUNC tracing_mark_write

# long tracing_mark_raw_write(u64 *buffers, const char *ubuf, size_t cnt)
# One raw_data record: the caller's bytes, the first four of which are its id. The length has been
# checked (4 bytes to a page). Returns as tracing_mark_write does.
FUNC_NOTRACE tracing_mark_raw_write
    push rbp
    mov rbp, rsp
    push rbx
    WRITER_CONTEXT
    mov eax, gs:[CPU_NUMBER]
    mov r9, [rdi + rax*8]
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lbadf
    mov ebx, TRACE_BUF_SIZE
    cmp rdx, rbx
    cmovb rbx, rdx
    lea edx, [rbx + 8 + 4]                  # common fields and, as Linux counts, the id once more
    mov eax, FAULT_SIZE_ID + 12
    cmp edx, eax
    cmovb edx, eax
    call ring_buffer_lock_reserve
    jb .Lbadf
    RB_COMMON TRACE_RAW_DATA
    RB_COPY RAW_DATA_ID
    RB_ZERO_REST
    mov rax, rbx
    pop rbx
    pop rbp
    ret
.Lbadf:
    mov rax, -EBADF
    pop rbx
    pop rbp
    ret
ENDFUNC tracing_mark_raw_write
