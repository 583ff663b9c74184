# lib/idr.c, and the plain interface of lib/xarray.c: numbers for objects, and objects by their
# number, in the tree of mm/xarray.S. An xarray, an idr and an ida are {u32 lock, root, next
# number}.

.text

IDR_NEXT = 16
IDR_SIZE = 24
IDR_MAX = 0x7fffffff

FUNC_NOTRACE xa_load                    # rdi xarray, rsi index; rax entry or 0
    jmp xas_load
ENDFUNC xa_load

FUNC_NOTRACE xa_store                   # rdi xarray, rsi index, rdx entry; rax the one it replaces
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    call _raw_spin_lock
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call xas_store
    mov r12, rax
    mov rdi, rbx
    call _raw_spin_unlock
    mov rax, r12
    LEAVE3
ENDFUNC xa_store

FUNC_NOTRACE xa_erase                   # rdi xarray, rsi index; rax what was there
    xor edx, edx
    jmp xa_store
ENDFUNC xa_erase

# rdi xarray, rsi address of an index, rdx largest: rax the first entry from there on, whose index
# is stored; or 0.
FUNC_NOTRACE xa_find
    ENTER1
    push rax
    mov rbx, rsi
    mov rsi, [rsi]
    call xas_find
    test rax, rax
    je .Lout
    mov [rbx], rdx
.Lout:
    LEAVE1
ENDFUNC xa_find

# rdi idr, rsi object, edx least number, ecx number it must stay below (0: none): eax its number,
# -ENOSPC or -ENOMEM. The caller has the lock.
FUNC_NOTRACE idr_alloc
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov r14d, ecx
    dec r14d
    jns .Lnext
    mov r14d, IDR_MAX
.Lnext:
    mov eax, -ENOSPC
    cmp r13d, r14d
    jg .Lout
    mov rdi, rbx
    mov esi, r13d
    call xas_load
    test rax, rax
    je .Lfree
    inc r13d
    jns .Lnext
    mov eax, -ENOSPC
    jmp .Lout
.Lfree:
    mov rdi, rbx
    mov esi, r13d
    mov rdx, r12
    call xas_store
    test rax, rax
    jne .Lout
    mov eax, r13d
.Lout:
    LEAVE4
ENDFUNC idr_alloc

# The same, going on behind the number given out last.
FUNC_NOTRACE idr_alloc_cyclic
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov r14d, ecx
    mov eax, [rdi + IDR_NEXT]
    cmp edx, eax
    cmovl edx, eax
    call idr_alloc
    cmp eax, -ENOSPC
    jne .Ldone
    mov rdi, rbx
    mov rsi, r12
    mov edx, r13d
    mov ecx, r14d
    call idr_alloc
.Ldone:
    test eax, eax
    js .Lout
    lea ecx, [rax + 1]
    mov [rbx + IDR_NEXT], ecx
.Lout:
    LEAVE4
ENDFUNC idr_alloc_cyclic

FUNC_NOTRACE idr_find                   # rdi idr, rsi number; rax object or 0
    jmp xas_load
ENDFUNC idr_find

FUNC_NOTRACE idr_remove                 # rdi idr, rsi number; rax the object it had
    xor edx, edx
    jmp xas_store
ENDFUNC idr_remove

# rdi ida, esi least, edx most; eax a number nobody has, or an error
FUNC_NOTRACE ida_alloc_range
    ENTER4
    mov rbx, rdi
    mov r12d, esi
    mov r13d, edx
    mov eax, -ENOSPC
    test esi, esi
    js .Lout
    call _raw_spin_lock_irqsave
    mov r14d, eax
    mov rdi, rbx
    mov esi, 1
    mov edx, r12d
    lea ecx, [r13 + 1]
    call idr_alloc
    mov r12d, eax
    mov rdi, rbx
    mov esi, r14d
    call _raw_spin_unlock_irqrestore
    mov eax, r12d
.Lout:
    LEAVE4
ENDFUNC ida_alloc_range

FUNC_NOTRACE ida_free                   # rdi ida, esi number
    ENTER3
    mov rbx, rdi
    mov r12d, esi
    call _raw_spin_lock_irqsave
    mov r13d, eax
    mov rdi, rbx
    mov esi, r12d
    xor edx, edx
    call xas_store
    mov rdi, rbx
    mov esi, r13d
    call _raw_spin_unlock_irqrestore
    LEAVE3
ENDFUNC ida_free
