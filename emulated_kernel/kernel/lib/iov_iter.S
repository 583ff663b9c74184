# lib/iov_iter.c: copying to and from what an iter tells of, user memory or the kernel's.

.text

# The copy of r12 = rdx bytes from rsi to rdi that iter rbx has room for, by \user if the iter is the
# user's; LEAVE2 with rax bytes copied, by which the iter goes on.
.macro ITER_COPY user
    cmp dword ptr [rbx+ITER_KERNEL], 0
    je .Luser
    call memcpy
    xor eax, eax
    jmp .Ldone
.Luser:
    call \user
.Ldone:
    sub r12, rax
    add [rbx+ITER_BASE], r12
    sub [rbx+ITER_COUNT], r12
    mov rax, r12
    LEAVE2
.endm

# \bytes become no more than what the iter rbx has room for, and r12.
.macro ITER_CLAMP bytes
    mov rax, [rbx+ITER_COUNT]
    cmp \bytes, rax
    cmova \bytes, rax
    mov r12, \bytes
.endm

# rdi page, rsi offset in it, rdx bytes, rcx iter; rax bytes copied.
FUNC_NOTRACE copy_page_to_iter
    ENTER2
    mov rbx, rcx
    PAGE_TO_VIRT rdi
    add rsi, rdi
    ITER_CLAMP rdx
    mov rdi, [rbx+ITER_BASE]
    ITER_COPY _copy_to_user
ENDFUNC copy_page_to_iter

# rdi page, rsi offset in it, rdx bytes, rcx iter; rax bytes copied.
FUNC_NOTRACE copy_page_from_iter_atomic
    ENTER2
    mov rbx, rcx
    PAGE_TO_VIRT rdi
    add rdi, rsi
    ITER_CLAMP rdx
    mov rsi, [rbx+ITER_BASE]
    ITER_COPY _copy_from_user
ENDFUNC copy_page_from_iter_atomic

# Kernel memory into an iter: rdi from, rsi bytes, rdx iter; rax bytes copied.
FUNC_NOTRACE _copy_to_iter
    ENTER2
    mov rbx, rdx
    ITER_CLAMP rsi
    mov rdx, rsi
    mov rsi, rdi
    mov rdi, [rbx+ITER_BASE]
    ITER_COPY _copy_to_user
ENDFUNC _copy_to_iter

# Out of an iter: rdi to, rsi bytes, rdx iter; rax bytes copied.
FUNC_NOTRACE _copy_from_iter
    ENTER2
    mov rbx, rdx
    ITER_CLAMP rsi
    mov rdx, rsi
    mov rsi, [rbx+ITER_BASE]
    ITER_COPY _copy_from_user
ENDFUNC _copy_from_iter

# Can the first rsi bytes of iter rdi be read? rax 0 or the bytes that cannot.
FUNC_NOTRACE fault_in_iov_iter_readable
    PROLOGUE
    xor eax, eax
    cmp dword ptr [rdi+ITER_KERNEL], 0
    jne .Lout
    mov rdi, [rdi+ITER_BASE]
    call fault_in_readable
.Lout:
    EPILOGUE
ENDFUNC fault_in_iov_iter_readable
