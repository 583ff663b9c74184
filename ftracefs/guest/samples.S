# Targets of direct calls and programs to try them with. Each leaves a line in the trace.

# The sample ftrace-direct-multi of Linux (samples/ftrace): a function that only looks on.
FUNC_NOTRACE my_tramp
    push rbp
    mov rbp, rsp
    push rdi
    push rsi
    push rdx
    push rcx
    push r8
    push r9
    mov rdi, [rbp + 8]
    call my_direct_func
    pop r9
    pop r8
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    pop rbp
    ret
ENDFUNC my_tramp

# void my_direct_func(unsigned long ip)
FUNC_NOTRACE my_direct_func
    push rbp
    mov rbp, rsp
    sub rsp, 64
    mov rdx, rdi
    lea rdi, [rbp - 64]
    lea rsi, [rip + ip_text]
    call append_hex
    lea rsi, [rbp - 64]
    lea rcx, [rip + my_direct_func]
    call trace_printk
    mov rsp, rbp
    pop rbp
    ret
ENDFUNC my_direct_func

# Programs for bpf_trampoline: where the function was called and with what, and what came of it.
FUNC_NOTRACE bpf_prog_fentry
    push rbp
    mov rbp, rsp
    push rbx
    sub rsp, 120
    mov rbx, rdi
    lea rdi, [rbp - 128]
    lea rsi, [rip + ip_text]
    mov rdx, [rbx - 8]
    call append_hex
    lea rsi, [rip + arguments_text]
    mov rdx, [rbx]
    call append_hex
    lea rsi, [rip + comma_text]
    mov rdx, [rbx + 8]
    call append_hex
    lea rsi, [rip + comma_text]
    mov rdx, [rbx + 16]
    call append_hex
    lea rsi, [rbp - 128]
    lea rcx, [rip + bpf_prog_fentry]
    call trace_printk
    xor eax, eax
    add rsp, 120
    pop rbx
    pop rbp
    ret
ENDFUNC bpf_prog_fentry

FUNC_NOTRACE bpf_prog_fexit
    push rbp
    mov rbp, rsp
    push rbx
    sub rsp, 72
    mov rbx, rdi
    lea rdi, [rbp - 80]
    lea rsi, [rip + ip_text]
    mov rdx, [rbx - 8]
    call append_hex
    lea rsi, [rip + returned_text]
    mov rdx, [rbx + 48]
    call append_hex
    lea rsi, [rbp - 80]
    lea rcx, [rip + bpf_prog_fexit]
    call trace_printk
    xor eax, eax
    add rsp, 72
    pop rbx
    pop rbp
    ret
ENDFUNC bpf_prog_fexit

# The C string at rsi and rdx in hexadecimal to rdi, which ends behind them. Uses rax rcx rsi.
FUNC_NOTRACE append_hex
.Ltext:
    mov al, [rsi]
    test al, al
    je .Lnumber
    mov [rdi], al
    inc rsi
    inc rdi
    jmp .Ltext
.Lnumber:
    mov rax, rdx
    or rax, 1
    bsr rcx, rax
    and ecx, 60                             # the shift of the first digit that is not 0
.Ldigit:
    mov rax, rdx
    shr rax, cl
    and eax, 15
    cmp eax, 10
    jb 1f
    add eax, 39                             # from '9' + 1 to 'a'
1:  add eax, 48
    mov [rdi], al
    inc rdi
    sub ecx, 4
    jns .Ldigit
    ret
ENDFUNC append_hex

# The text from rsi to rdi as a line of the top level's trace, said by the function rcx.
FUNC_NOTRACE trace_printk
    mov rdx, rdi
    sub rdx, rsi
    mov rdi, [rip + global_trace_buffers]
    test rdi, rdi
    je .Lout
    call tracing_mark_write
.Lout:
    ret
ENDFUNC trace_printk

.data
OBJECT global_trace_buffers                 # of global_trace, as OP_PRIVATE of its op; 0: there is none
    .quad 0
ENDOBJECT global_trace_buffers
OBJECT ip_text
    .asciz "ip "
ENDOBJECT ip_text
OBJECT arguments_text
    .asciz " arguments "
ENDOBJECT arguments_text
OBJECT comma_text
    .asciz ", "
ENDOBJECT comma_text
OBJECT returned_text
    .asciz " returned "
ENDOBJECT returned_text
