# Where the probes of trace events get their records (kernel/trace/trace_events.c). A probe belongs
# to an event of one trace array: it is given that trace_event_file, which leads to the buffers.

# rdi trace_event_file, edx bytes of payload. r9 the buffer of this CPU, r10 four bytes before the
# payload, its common fields written; or carry set: nothing is to be recorded. Uses rax rdx r8 r11.
FUNC_NOTRACE trace_event_buffer_reserve
    mov eax, [rdi + EVENT_FILE_FLAGS]
    test eax, EVENT_FILE_FL_SOFT_DISABLED | EVENT_FILE_FL_PID_FILTER
    jne .Lconditions
.Lrecord:
    mov eax, gs:[CPU_NUMBER]
    mov r9, [rdi + EVENT_FILE_TR]
    mov r9, [r9 + TR_BUFFERS]
    mov r9, [r9 + rax*8]
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lnothing
    call ring_buffer_lock_reserve
    jb .Lout
    mov eax, [rdi + EVENT_FILE_TYPE]
    add rax, gs:[TRACE_CTX]
    mov [r10 + 4], rax
    clc
.Lout:
    ret
.Lconditions:
    test eax, EVENT_FILE_FL_SOFT_DISABLED
    jne .Lnothing
    mov eax, gs:[CPU_NUMBER]            # trace_event_ignore_this_pid
    mov r9, [rdi + EVENT_FILE_TR]
    cmp byte ptr [r9 + rax + TR_IGNORE_PID], 0
    je .Lrecord
.Lnothing:
    stc
    ret
ENDFUNC trace_event_buffer_reserve

BUF_MAX_DATA_SIZE = 4072                # what a page has room for

# The same for a record with a string behind its edx bytes: rsi the string, r12 its length with the NUL.
FUNC_NOTRACE trace_event_string_reserve
    push rdi
    mov rdi, rsi
    mov rcx, -1
    xor eax, eax
    repne scasb
    not rcx
    mov r12, rcx
    pop rdi
    mov eax, edx
    lea rdx, [rax + rcx]
    cmp rdx, BUF_MAX_DATA_SIZE
    jbe trace_event_buffer_reserve
    stc
    ret
ENDFUNC trace_event_string_reserve
