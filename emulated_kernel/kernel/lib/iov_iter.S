# lib/iov_iter.c: what mm/uaccess.S leaves to be copied the other way.

.text

# Out of an iter: rdi to, rsi bytes, rdx iter; rax bytes copied.
FUNC_NOTRACE _copy_from_iter
    ENTER2
    mov rbx, rdx
    mov rax, [rdx + ITER_COUNT]
    cmp rsi, rax
    cmova rsi, rax
    mov r12, rsi
    mov rdx, rsi
    mov rsi, [rbx + ITER_BASE]
    cmp dword ptr [rbx + ITER_KERNEL], 0
    je .Luser
    call memcpy
    xor eax, eax
    jmp .Ldone
.Luser:
    call _copy_from_user
.Ldone:
    sub r12, rax
    add [rbx + ITER_BASE], r12
    sub [rbx + ITER_COUNT], r12
    mov rax, r12
    LEAVE2
ENDFUNC _copy_from_iter
