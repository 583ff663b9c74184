# lib/usercopy.c, arch/x86/lib: between kernel and user memory. As all of lib/, without call sites.
# An access that faults goes on at the fixup that __ex_table names for it.

.text

# rdi to, rsi from, edx bytes; rax bytes left over.
FUNC_NOTRACE copy_user_generic_string
    mov ecx, edx
    shr ecx, 3
copy_user_quads:
    rep movsq
    mov ecx, edx
    and ecx, 7
copy_user_tail:
    rep movsb
    xor eax, eax
    ret
copy_user_quads_fixup:
    lea rax, [rcx*8]
    and edx, 7
    add rax, rdx
    ret
copy_user_tail_fixup:
    mov rax, rcx
    ret
ENDFUNC copy_user_generic_string

FUNC_NOTRACE _copy_from_user            # rdi to, rsi user, rdx bytes; rax bytes not copied, zeroed
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    mov rbx, rdx
    lea r12, [rdi+rdx]
    mov rax, rdx
    ACCESS_OK rsi, rdx, rcx, .Lshort
    call copy_user_generic_string
    test rax, rax
    je .Lout
.Lshort:
    mov rbx, rax
    mov rdi, r12
    sub rdi, rax
    mov rcx, rax
    xor eax, eax
    rep stosb
    mov rax, rbx
.Lout:
    mov r12, [rbp-16]
    mov rbx, [rbp-8]
    leave
    ret
ENDFUNC _copy_from_user

FUNC_NOTRACE _copy_to_user              # rdi user, rsi from, rdx bytes; rax bytes not copied
    push rbp
    mov rbp, rsp
    mov rax, rdx
    ACCESS_OK rdi, rdx, rcx, .Lout
    call copy_user_generic_string
.Lout:
    pop rbp
    ret
ENDFUNC _copy_to_user

FUNC_NOTRACE clear_user                 # rdi user, rsi bytes; rax bytes not cleared
    mov rcx, rsi
    mov rax, rsi
    ACCESS_OK rdi, rsi, rdx, .Lout
    xor eax, eax
clear_user_store:
    rep stosb
.Lout:
    ret
clear_user_fixup:
    mov rax, rcx
    ret
ENDFUNC clear_user

# rdi to, rsi user string, rdx size of the buffer; rax length without the NUL, the size if there is
# none in it, or -EFAULT.
FUNC_NOTRACE strncpy_from_user
    xor eax, eax
    mov r8, TASK_SIZE_MAX
.Lnext:
    cmp rax, rdx
    jae .Lout
    lea r9, [rsi+rax]
    cmp r9, r8
    jae strncpy_from_user_fixup
strncpy_from_user_load:
    mov cl, [r9]
    mov [rdi+rax], cl
    test cl, cl
    je .Lout
    inc rax
    jmp .Lnext
.Lout:
    ret
strncpy_from_user_fixup:
    mov rax, -EFAULT
    ret
ENDFUNC strncpy_from_user

# rdi user string, rsi limit; rax its length with the NUL, more than the limit, or 0 for a fault.
FUNC_NOTRACE strnlen_user
    xor eax, eax
    mov r8, TASK_SIZE_MAX
.Lnext:
    lea r9, [rdi+rax]
    inc rax
    cmp rax, rsi
    ja .Lout
    cmp r9, r8
    jae strnlen_user_fixup
strnlen_user_load:
    cmp byte ptr [r9], 0
    jne .Lnext
.Lout:
    ret
strnlen_user_fixup:
    xor eax, eax
    ret
ENDFUNC strnlen_user

# rdi user, rsi bytes; rax 0, or all of the bytes if a page of them cannot be read (mm/gup.c).
FUNC fault_in_readable
    PROLOGUE
    mov rax, rsi
    ACCESS_OK rdi, rsi, rcx, .Lout
    test rsi, rsi
    je .Lout
    lea rdx, [rdi+rsi-1]
.Lnext:
fault_in_readable_load:
    mov cl, [rdi]
    add rdi, PAGE_BYTES
    and rdi, PAGE_MASK
    cmp rdi, rdx
    jbe .Lnext
    xor eax, eax
.Lout:
fault_in_readable_fixup:
    EPILOGUE
ENDFUNC fault_in_readable

# rdi to, rsi kernel address, rdx bytes; 0 or -EFAULT (mm/maccess.c).
FUNC copy_from_kernel_nofault
    PROLOGUE
    mov rax, rsi
    sar rax, 47
    cmp rax, -1                         # the upper half only
    jne .Lfault
    call copy_user_generic_string
    test rax, rax
    je .Lout
.Lfault:
    mov rax, -EFAULT
.Lout:
    EPILOGUE
ENDFUNC copy_from_kernel_nofault

FUNC search_exception_tables            # rdi address of a faulting instruction; rax entry or 0
    PROLOGUE
    mov rax, offset __start___ex_table
    mov rcx, offset __stop___ex_table
.Lnext:
    cmp rax, rcx
    jae .Lnone
    cmp [rax], rdi
    je .Lout
    add rax, 16
    jmp .Lnext
.Lnone:
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC search_exception_tables

FUNC fixup_exception                    # rdi pt_regs, esi trap; eax whether there was a fixup
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rdi+PT_RIP]
    call search_exception_tables
    test rax, rax
    je .Lout
    mov rax, [rax+8]
    mov [rbx+PT_RIP], rax
    mov eax, 1
.Lout:
    LEAVE1
ENDFUNC fixup_exception

.data
.balign 8
OBJECT __start___ex_table
    .quad copy_user_quads, copy_user_quads_fixup
    .quad copy_user_tail, copy_user_tail_fixup
    .quad clear_user_store, clear_user_fixup
    .quad strncpy_from_user_load, strncpy_from_user_fixup
    .quad strnlen_user_load, strnlen_user_fixup
    .quad fault_in_readable_load, fault_in_readable_fixup
ENDOBJECT __start___ex_table
__stop___ex_table:
