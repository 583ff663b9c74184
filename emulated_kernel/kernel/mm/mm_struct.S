# kernel/fork.c, mm/mmap.c: address spaces from birth to end. Zero is the address space of a task that
# has none.

.text

FUNC_NOTRACE proc_caches_init
    PROLOGUE
    mov rdi, offset mm_struct_name
    mov esi, MM_BYTES
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + mm_cachep], rax
    mov rdi, offset vm_area_name
    mov esi, VMA_BYTES
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + vm_area_cachep], rax
    EPILOGUE
ENDFUNC proc_caches_init

FUNC_STATIC mm_init                     # rdi mm, zeroed; rax the same, or 0 with it freed
    ENTER1
    push 0
    mov rbx, rdi
    mov dword ptr [rdi+MM_USERS], 1
    mov dword ptr [rdi+MM_COUNT], 1
    mov rax, MMAP_BASE
    mov [rdi+MM_MMAP_BASE], rax
    add rdi, MM_MMAP_LOCK
    call __init_rwsem
    mov rdi, rbx
    call pgd_alloc
    mov [rbx+MM_PGD], rax
    test rax, rax
    je .Lnopgd
    mov rax, rbx
    LEAVE1
.Lnopgd:
    mov rdi, [rip + mm_cachep]
    mov rsi, rbx
    call kmem_cache_free
    xor eax, eax
    LEAVE1
ENDFUNC mm_init

MMAP_BASE = 0x7ffff7fff000

FUNC mm_alloc                           # rax mm or 0
    PROLOGUE
    mov rdi, [rip + mm_cachep]
    mov esi, GFP_KERNEL | GFP_ZERO
    call kmem_cache_alloc
    test rax, rax
    je .Lout
    mov rdi, rax
    call mm_init
.Lout:
    EPILOGUE
ENDFUNC mm_alloc

FUNC vm_area_alloc                      # rdi mm; rax area or 0
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rip + vm_area_cachep]
    mov esi, GFP_KERNEL | GFP_ZERO
    call kmem_cache_alloc
    test rax, rax
    je .Lout
    mov [rax+VMA_MM], rbx
.Lout:
    LEAVE1
ENDFUNC vm_area_alloc

FUNC vm_area_dup                        # rdi area; rax copy, on no list, or 0
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rip + vm_area_cachep]
    mov esi, GFP_KERNEL
    call kmem_cache_alloc
    test rax, rax
    je .Lout
    mov rdi, rax
    mov rsi, rbx
    mov ecx, VMA_BYTES / 8
    rep movsq
    mov qword ptr [rax+VMA_NEXT], 0
    mov qword ptr [rax+VMA_PREV], 0
.Lout:
    LEAVE1
ENDFUNC vm_area_dup

FUNC vm_area_free                       # rdi area
    PROLOGUE
    mov rsi, rdi
    mov rdi, [rip + vm_area_cachep]
    call kmem_cache_free
    EPILOGUE
ENDFUNC vm_area_free

FUNC dup_mmap                           # rdi new mm, rsi old mm; eax 0 or error
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    lea rdi, [rsi+MM_MMAP_LOCK]
    call down_write
    mov rax, [r12+MM_TOTAL_VM]
    mov [rbx+MM_TOTAL_VM], rax
    mov r13, [r12+MM_MMAP]
    xor r14d, r14d                      # the last of the new ones
.Lnext:
    xor r15d, r15d
    test r13, r13
    je .Lout
    mov r15d, -ENOMEM
    mov rdi, r13
    call vm_area_dup
    test rax, rax
    je .Lout
    mov [rax+VMA_MM], rbx
    mov [rax+VMA_PREV], r14
    mov rcx, [rax+VMA_FILE]
    test rcx, rcx
    je .Llink
    lock inc qword ptr [rcx+FILE_COUNT]
.Llink:
    test r14, r14
    je .Lfirst
    mov [r14+VMA_NEXT], rax
    jmp .Llinked
.Lfirst:
    mov [rbx+MM_MMAP], rax
.Llinked:
    mov r14, rax
    inc qword ptr [rbx+MM_MAP_COUNT]
    mov rdi, rax
    mov rsi, r13
    call copy_page_range
    mov r15d, eax
    test eax, eax
    jne .Lout
    mov r13, [r13+VMA_NEXT]
    jmp .Lnext
.Lout:
    lea rdi, [r12+MM_MMAP_LOCK]
    call up_write
    mov eax, r15d
    LEAVE5
ENDFUNC dup_mmap

FUNC_NOTRACE dup_mm                     # rdi task, rsi mm; rax copy or 0
    ENTER2
    mov r12, rsi
    call mm_alloc
    mov rbx, rax
    test rax, rax
    je .Lout
    lea rsi, [r12+MM_MMAP_BASE]
    lea rdi, [rbx+MM_MMAP_BASE]
    mov ecx, (MM_PAGE_TABLE_LOCK - MM_MMAP_BASE) / 8
    rep movsq
    mov rdi, rbx
    mov rsi, r12
    call dup_mmap
    test eax, eax
    je .Lout
    mov rdi, rbx
    call mmput
    xor ebx, ebx
.Lout:
    mov rax, rbx
    LEAVE2
ENDFUNC dup_mm

FUNC get_task_mm                        # rdi task; rax its mm with one more user, or 0
    PROLOGUE
    xor eax, eax
    test dword ptr [rdi+TASK_FLAGS], PF_KTHREAD
    jne .Lout
    mov rax, [rdi+TASK_MM]
    test rax, rax
    je .Lout
    lock inc dword ptr [rax+MM_USERS]
.Lout:
    EPILOGUE
ENDFUNC get_task_mm

FUNC mmput                              # rdi mm
    ENTER1
    push 0
    mov rbx, rdi
    call __cond_resched
    mov rdi, rbx
    lock dec dword ptr [rdi+MM_USERS]
    jne .Lout
    call exit_mmap
    mov rdi, [rbx+MM_EXE_FILE]
    test rdi, rdi
    je .Ldrop
    call fput
.Ldrop:
    lock dec dword ptr [rbx+MM_COUNT]
    jne .Lout
    mov rdi, rbx
    call __mmdrop
.Lout:
    LEAVE1
ENDFUNC mmput

FUNC exit_mmap                          # rdi mm nobody runs in
    ENTER3
    sub rsp, TLB_BYTES + 8
    mov rbx, rdi
    lea rdi, [rdi+MM_MMAP_LOCK]
    call down_write
    mov r12, [rbx+MM_MMAP]
    mov rdi, rsp
    mov rsi, rbx
    call tlb_gather_mmu
    test r12, r12
    je .Ltables
    mov rdi, rsp
    mov rsi, r12
    xor edx, edx
    mov rcx, TASK_SIZE_MAX
    call unmap_vmas
    mov rdi, rsp
    mov rsi, r12
    xor edx, edx
    mov ecx, 1
    shl rcx, 47
    call free_pgtables
.Ltables:
    mov rdi, rsp
    call tlb_finish_mmu
    mov qword ptr [rbx+MM_MMAP], 0
.Larea:
    test r12, r12
    je .Lout
    mov r13, [r12+VMA_NEXT]
    mov rdi, r12
    call remove_vma
    mov r12, r13
    jmp .Larea
.Lout:
    lea rdi, [rbx+MM_MMAP_LOCK]
    call up_write
    LEAVE3
ENDFUNC exit_mmap

# An area that is on no list any more (inlined in Linux): rdi area.
FUNC_NOTRACE remove_vma
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rdi+VMA_FILE]
    test rdi, rdi
    je .Lfree
    call fput
.Lfree:
    mov rdi, rbx
    call vm_area_free
    LEAVE1
ENDFUNC remove_vma

FUNC __mmdrop                           # rdi mm without users
    ENTER1
    push 0
    mov rbx, rdi
    mov rsi, [rdi+MM_PGD]
    call pgd_free
    mov rdi, [rip + mm_cachep]
    mov rsi, rbx
    call kmem_cache_free
    LEAVE1
ENDFUNC __mmdrop

.data
.balign 8
OBJECT mm_cachep
    .quad 0
ENDOBJECT mm_cachep
OBJECT vm_area_cachep
    .quad 0
ENDOBJECT vm_area_cachep
mm_struct_name:
    .asciz "mm_struct"
vm_area_name:
    .asciz "vm_area_struct"
