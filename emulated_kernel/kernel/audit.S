# kernel/audit.c: records for the audit daemon. There is none, so a finished record goes to the log, as
# kauditd does with it then. Left out: rules, system call contexts, rate limits.

.text

# struct audit_buffer
AUDIT_SKB = 0
AUDIT_CTX = 8
AUDIT_TYPE = 16
AUDIT_BUFFER_SIZE = 24
AUDIT_RECORD_MAX = 1024

FUNC audit_serial                       # eax the next record's number
    PROLOGUE
    mov eax, 1
    lock xadd [rip + audit_serial_number], eax
    inc eax
    EPILOGUE
ENDFUNC audit_serial

# rdi context or 0, esi gfp, edx type of record; rax audit_buffer, or 0 when nobody wants records.
FUNC audit_log_start
    ENTER3
    sub rsp, 24
    mov r12, rdi
    mov r13d, edx
    xor eax, eax
    cmp dword ptr [rip + audit_enabled], 0
    je .Lout
    mov edi, AUDIT_BUFFER_SIZE
    call __kmalloc
    mov rbx, rax
    test rax, rax
    je .Lout
    mov [rbx + AUDIT_CTX], r12
    mov [rbx + AUDIT_TYPE], r13
    mov edi, AUDIT_RECORD_MAX
    mov esi, GFP_KERNEL
    xor edx, edx
    mov ecx, -1
    call __alloc_skb
    mov [rbx + AUDIT_SKB], rax
    test rax, rax
    je .Lnomem
    mov rdi, rsp
    call ktime_get_coarse_real_ts64
    call audit_serial
    mov r8d, eax
    mov rax, [rsp + 8]
    xor edx, edx
    mov ecx, 1000000
    div rcx
    mov rcx, rax
    mov rdi, rbx
    mov rsi, offset audit_stamp_format
    mov rdx, [rsp]
    call audit_log_format
    mov rax, rbx
.Lout:
    LEAVE3
.Lnomem:
    lock inc dword ptr [rip + audit_lost]
    mov rdi, rbx
    call kfree
    xor eax, eax
    LEAVE3
ENDFUNC audit_log_start

FUNC audit_log_format                   # rdi audit_buffer or 0, rsi format, …
    push rbp
    mov rbp, rsp
    VA_START 2
    lea rdx, [rbp - 80]
    call audit_log_vformat
    leave
    ret
ENDFUNC audit_log_format

# rdi audit_buffer or 0, rsi format, rdx va_list. What does not fit any more is cut off.
FUNC audit_log_vformat
    ENTER1
    push rax
    test rdi, rdi
    je .Lout
    mov rbx, [rdi + AUDIT_SKB]
    mov rcx, rdx
    mov rdx, rsi
    mov edi, [rbx + SKB_TAIL]
    mov esi, [rbx + SKB_END]
    sub esi, edi
    add rdi, [rbx + SKB_HEAD]
    call vscnprintf
    mov rdi, rbx
    mov esi, eax
    call skb_put
.Lout:
    LEAVE1
ENDFUNC audit_log_vformat

FUNC audit_log_end                      # rdi audit_buffer or 0
    ENTER1
    push rax
    mov rbx, rdi
    test rdi, rdi
    je .Lout
    call kauditd_printk_skb
    mov rdi, [rbx + AUDIT_SKB]
    call consume_skb
    mov rdi, rbx
    call kfree
.Lout:
    LEAVE1
ENDFUNC audit_log_end

FUNC_NOTRACE kauditd_printk_skb         # rdi audit_buffer
    ENTER1
    push rax
    mov rbx, [rdi + AUDIT_SKB]
    mov edx, [rdi + AUDIT_TYPE]
    mov ecx, [rbx + SKB_LEN]
    mov rax, [rbx + SKB_DATA]
    mov rsi, rdx
    mov edx, ecx
    mov rcx, rax
    mov rdi, offset audit_line_format
    call _printk
    LEAVE1
ENDFUNC kauditd_printk_skb

.data
OBJECT audit_enabled
    .long 1
ENDOBJECT audit_enabled
OBJECT audit_lost
    .long 0
ENDOBJECT audit_lost
audit_serial_number:
    .long 0
audit_stamp_format:
    .asciz "audit(%llu.%03lu:%u): "
audit_line_format:
    .ascii "\001"
    .asciz "5audit: type=%d %.*s\n"
.text
