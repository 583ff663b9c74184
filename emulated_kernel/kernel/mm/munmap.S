# mm/mmap.c, mprotect.c: taking areas away, the heap, and protection.

.text

# Cut area rsi at address rdx: ecx whether the new piece is the lower one; eax 0 or error. rdi mm.
FUNC __split_vma
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14d, ecx
    mov rdi, rsi
    call vm_area_dup
    mov r15, rax
    test rax, rax
    je .Lnomem
    mov rdi, [r15+VMA_FILE]
    test rdi, rdi
    je .Lranges
    call get_file
.Lranges:
    mov rdi, r15
    test r14d, r14d
    je .Lupper
    mov rsi, [r15+VMA_START]
    mov rdx, r13
    call __vma_adjust
    mov rdi, r12
    mov rsi, r13
    mov rdx, [r12+VMA_END]
    call __vma_adjust
    jmp .Llink
.Lupper:
    mov rsi, r13
    mov rdx, [r15+VMA_END]
    call __vma_adjust
    mov rdi, r12
    mov rsi, [r12+VMA_START]
    mov rdx, r13
    call __vma_adjust
.Llink:
    mov rdi, rbx
    mov rsi, r15
    call vma_link
    xor eax, eax
    LEAVE5
.Lnomem:
    mov eax, -ENOMEM
    LEAVE5
ENDFUNC __split_vma

# The pages in [rcx, r8) of the areas that begin with rsi and are on no list: rdi mm, rdx the area before.
FUNC unmap_region
    ENTER5
    sub rsp, TLB_BYTES + 8
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov r15, r8
    call lru_add_drain
    mov rdi, rsp
    mov rsi, rbx
    call tlb_gather_mmu
    mov rdi, rsp
    mov rsi, r12
    mov rdx, r14
    mov rcx, r15
    call unmap_vmas
    xor edx, edx                        # tables that no neighbour needs
    mov rax, [rbx+MM_MMAP]
    test r13, r13
    je .Lceiling
    mov rdx, [r13+VMA_END]
    mov rax, [r13+VMA_NEXT]
.Lceiling:
    mov ecx, 1
    shl rcx, 47
    test rax, rax
    je .Ltables
    mov rcx, [rax+VMA_START]
.Ltables:
    mov rdi, rsp
    mov rsi, r12
    call free_pgtables
    mov rdi, rsp
    call tlb_finish_mmu
    LEAVE5
ENDFUNC unmap_region

# rdi mm, rsi first area that is hit, rdx start, rcx end, both aligned; eax 0 or error
FUNC do_mas_align_munmap
    ENTER5
    sub rsp, 24
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    cmp [r12+VMA_START], r13
    jae .Lend
    mov rdx, r13                        # keep what lies below
    mov ecx, 1
    call __split_vma
    test eax, eax
    jne .Lout
.Lend:
    mov rdi, rbx
    mov rsi, r14
    call find_vma
    test rax, rax
    je .Ldetach
    cmp [rax+VMA_START], r14
    jae .Ldetach
    mov rdi, rbx                        # and what lies above
    mov rsi, rax
    mov rdx, r14
    mov ecx, 1
    call __split_vma
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov rsi, r13
    call find_vma
    mov r12, rax
.Ldetach:
    mov r15, [r12+VMA_PREV]
    xor eax, eax
    mov [rbp-48], rax                   # last of the detached ones
    mov rsi, r12
.Lunlink:
    test rsi, rsi
    je .Ldetached
    cmp [rsi+VMA_START], r14
    jae .Ldetached
    mov rdi, rbx
    mov [rbp-56], rsi
    call vma_unlink
    mov rsi, [rbp-56]
    mov [rbp-48], rsi
    mov rdi, rbx
    mov rdx, [rsi+VMA_START]
    sub rdx, [rsi+VMA_END]
    sar rdx, PAGE_SHIFT
    mov rsi, [rsi+VMA_FLAGS]
    call vm_stat_account
    mov rsi, [rbp-56]
    mov rsi, [rsi+VMA_NEXT]
    jmp .Lunlink
.Ldetached:
    mov rax, [rbp-48]
    mov qword ptr [rax+VMA_NEXT], 0     # a list of their own
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r15
    mov rcx, r13
    mov r8, r14
    call unmap_region
.Lremove:
    mov r13, [r12+VMA_NEXT]
    mov rdi, r12
    call remove_vma
    mov r12, r13
    test r12, r12
    jne .Lremove
    xor eax, eax
.Lout:
    LEAVE5
ENDFUNC do_mas_align_munmap

FUNC do_mas_munmap                      # rdi mm, rsi start, rdx length; eax 0 or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov eax, -EINVAL
    test esi, PAGE_BYTES - 1
    jne .Lout
    mov rcx, TASK_SIZE_MAX
    cmp rsi, rcx
    ja .Lout
    sub rcx, rsi
    cmp rdx, rcx
    ja .Lout
    lea r13, [rsi+rdx+PAGE_BYTES-1]
    and r13, PAGE_MASK
    cmp r13, rsi
    je .Lout
    mov rdx, r13
    call find_vma_intersection
    test rax, rax
    je .Lnothing
    mov rdi, rbx
    mov rsi, rax
    mov rdx, r12
    mov rcx, r13
    call do_mas_align_munmap
    LEAVE4
.Lnothing:
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC do_mas_munmap

FUNC do_munmap                          # rdi mm, rsi start, rdx length; mmap_lock held; eax 0 or error
    PROLOGUE
    call do_mas_munmap
    EPILOGUE
ENDFUNC do_munmap

FUNC __vm_munmap                        # rdi start, rsi length, edx downgrade; eax 0 or error
    ENTER4
    mov r12, rdi
    mov r13, rsi
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_MM]
    mov eax, -EINVAL
    test rbx, rbx
    je .Lout
    lea rdi, [rbx+MM_MMAP_LOCK]
    call down_write
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call do_mas_munmap
    mov r14d, eax
    lea rdi, [rbx+MM_MMAP_LOCK]
    call up_write
    mov eax, r14d
.Lout:
    LEAVE4
ENDFUNC __vm_munmap

FUNC vm_munmap                          # rdi start, rsi length; eax 0 or error
    PROLOGUE
    xor edx, edx
    call __vm_munmap
    EPILOGUE
ENDFUNC vm_munmap

FUNC __x64_sys_munmap                   # rdi pt_regs: (address, length)
    PROLOGUE
    mov rsi, [rdi+PT_RSI]
    mov rdi, [rdi+PT_RDI]
    mov edx, 1
    call __vm_munmap
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_munmap

# --- the heap -------------------------------------------------------------------------------------

FUNC check_brk_limits                   # rdi address, rsi length; eax 0 or error
    PROLOGUE
    mov rdx, rsi
    mov rsi, rdi
    xor edi, edi
    xor ecx, ecx
    mov r8d, MAP_FIXED
    call get_unmapped_area
    cmp rax, ERR_MIN
    jae .Lout
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC check_brk_limits

FUNC do_brk_flags                       # rdi address, rsi length, rdx flags; mmap_lock held; eax
    ENTER4
    sub rsp, 16
    mov r12, rdi
    mov r13, rsi
    mov r14, rdx
    or r14, VM_READ | VM_WRITE | VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_MM]
    mov rdi, rbx
    mov rsi, r14
    mov rdx, r13
    shr rdx, PAGE_SHIFT
    call may_expand_vm
    test al, al
    mov eax, -ENOMEM
    je .Lout
    mov rdi, rbx
    mov rsi, r12
    lea rdx, [rbp-48]
    call find_vma_prev
    mov rdi, rbx
    mov rsi, [rbp-48]
    mov rdx, r12
    lea rcx, [r12+r13]
    mov r8, r14
    call vma_merge
    test rax, rax
    jne .Laccount
    mov rdi, rbx
    call vm_area_alloc
    test rax, rax
    mov ecx, -ENOMEM
    je .Lnomem
    mov [rax+VMA_START], r12
    lea rcx, [r12+r13]
    mov [rax+VMA_END], rcx
    mov [rax+VMA_FLAGS], r14
    mov rcx, r12
    shr rcx, PAGE_SHIFT
    mov [rax+VMA_PGOFF], rcx
    mov rdi, rbx
    mov rsi, rax
    call vma_link
.Laccount:
    mov rdi, rbx
    mov rsi, r14
    mov rdx, r13
    shr rdx, PAGE_SHIFT
    call vm_stat_account
    xor eax, eax
    LEAVE4
.Lnomem:
    mov eax, ecx
.Lout:
    LEAVE4
ENDFUNC do_brk_flags

FUNC vm_brk_flags                       # rdi address, rsi length, rdx flags; eax 0 or error
    ENTER4
    mov r12, rdi
    mov r14, rdx
    xor eax, eax
    lea r13, [rsi+PAGE_BYTES-1]
    and r13, PAGE_MASK
    je .Lout
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_MM]
    lea rdi, [rbx+MM_MMAP_LOCK]
    call down_write
    mov rdi, r12
    mov rsi, r13
    call check_brk_limits
    test eax, eax
    jne .Lunlock
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call do_munmap
    test eax, eax
    jne .Lunlock
    mov rdi, r12
    mov rsi, r13
    mov rdx, r14
    call do_brk_flags
.Lunlock:
    mov r12d, eax
    lea rdi, [rbx+MM_MMAP_LOCK]
    call up_write
    mov eax, r12d
.Lout:
    LEAVE4
ENDFUNC vm_brk_flags

FUNC __x64_sys_brk                      # rdi pt_regs: (new end or 0); rax the end
    ENTER4
    mov r12, [rdi+PT_RDI]
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_MM]
    mov rax, -ENOMEM
    test rbx, rbx
    je .Lnone
    lea rdi, [rbx+MM_MMAP_LOCK]
    call down_write
    mov r13, [rbx+MM_BRK]
    cmp r12, [rbx+MM_START_BRK]
    jb .Lout
    lea r14, [r13+PAGE_BYTES-1]
    and r14, PAGE_MASK                  # old end
    lea rdx, [r12+PAGE_BYTES-1]
    and rdx, PAGE_MASK
    cmp rdx, r14
    je .Lset
    ja .Lgrow
    mov rdi, rbx
    mov rsi, rdx
    sub rdx, r14
    neg rdx
    call do_munmap
    test eax, eax
    jne .Lout
    jmp .Lset
.Lgrow:
    mov rdi, r14
    mov rsi, rdx
    sub rsi, r14
    push rsi
    push rsi
    call check_brk_limits
    pop rsi
    pop rsi
    test eax, eax
    jne .Lout
    push rsi
    push rsi
    mov rdi, rbx
    lea rdx, [r14+rsi+PAGE_BYTES]       # a page stays free before the next area
    mov rsi, r14
    call find_vma_intersection
    pop rsi
    pop rsi
    test rax, rax
    jne .Lout
    mov rdi, r14
    xor edx, edx
    call do_brk_flags
    test eax, eax
    jne .Lout
.Lset:
    mov [rbx+MM_BRK], r12
    mov r13, r12
.Lout:
    lea rdi, [rbx+MM_MMAP_LOCK]
    call up_write
    mov rax, r13
.Lnone:
    LEAVE4
ENDFUNC __x64_sys_brk

# --- protection -----------------------------------------------------------------------------------

# Entries of area rdi in [rsi, rdx): no longer writable (ecx 0), or only by a fault; eax pages changed.
FUNC change_protection
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    xor r14d, r14d
.Lnext:
    cmp r12, r13
    jae .Lout
    mov rdi, [rbx+VMA_MM]
    mov rsi, r12
    call pte_walk
    test rax, rax
    jne .Lentry
    mov r12, rdx
    jmp .Lnext
.Lentry:
    add r12, PAGE_BYTES
    test dword ptr [rax], PTE_PRESENT
    je .Lnext
    and qword ptr [rax], ~PTE_RW        # a write finds out by a fault whether it may
    inc r14d
    jmp .Lnext
.Lout:
    mov eax, r14d
    LEAVE5
ENDFUNC change_protection

FUNC mprotect_fixup                     # rdi mm, rsi area, rdx start, rcx end, r8 new flags; eax 0 or error
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov r15, r8
    cmp [r12+VMA_FLAGS], r8
    je .Ldone
    cmp [r12+VMA_START], r13
    je .Lend
    mov ecx, 1
    call __split_vma
    test eax, eax
    jne .Lout
.Lend:
    cmp [r12+VMA_END], r14
    je .Lset
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r14
    xor ecx, ecx
    call __split_vma
    test eax, eax
    jne .Lout
.Lset:
    mov [r12+VMA_FLAGS], r15
    mov rdi, r12
    mov rsi, r13
    mov rdx, r14
    call change_protection
.Ldone:
    xor eax, eax
.Lout:
    LEAVE5
ENDFUNC mprotect_fixup

FUNC do_mprotect_pkey                   # rdi start, rsi length, edx PROT_*, ecx pkey; eax 0 or error
    ENTER5
    push 0
    mov r12, rdi
    mov r14d, edx
    mov eax, -EINVAL
    test edi, PAGE_BYTES - 1
    jne .Lout
    xor eax, eax
    test rsi, rsi
    je .Lout
    lea r13, [rdi+rsi+PAGE_BYTES-1]
    and r13, PAGE_MASK
    mov eax, -ENOMEM
    cmp r13, rdi
    jbe .Lout
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_MM]
    test rbx, rbx
    je .Lout
    lea rdi, [rbx+MM_MMAP_LOCK]
    call down_write
.Lnext:
    mov rdi, rbx
    mov rsi, r12
    call find_vma
    mov r15d, -ENOMEM
    test rax, rax
    je .Lunlock
    cmp [rax+VMA_START], r12            # a hole
    ja .Lunlock
    mov rcx, [rax+VMA_END]
    cmp rcx, r13
    cmova rcx, r13
    mov r8, [rax+VMA_FLAGS]
    mov edx, r8d
    shr edx, 4                          # VM_MAY* -> VM_*
    not edx
    and edx, r14d
    mov r15d, -EACCES
    test edx, VM_READ | VM_WRITE | VM_EXEC
    jne .Lunlock
    and r8, ~(VM_READ | VM_WRITE | VM_EXEC)
    mov edx, r14d
    and edx, PROT_READ | PROT_WRITE | PROT_EXEC
    or r8, rdx
    mov rdi, rbx
    mov rsi, rax
    mov rdx, r12
    mov [rbp-48], rcx
    call mprotect_fixup
    mov r15d, eax
    test eax, eax
    jne .Lunlock
    mov r12, [rbp-48]
    cmp r12, r13
    jb .Lnext
.Lunlock:
    lea rdi, [rbx+MM_MMAP_LOCK]
    call up_write
    mov eax, r15d
.Lout:
    LEAVE5
ENDFUNC do_mprotect_pkey

FUNC __x64_sys_mprotect                 # rdi pt_regs: (address, length, prot)
    PROLOGUE
    mov rax, rdi
    mov rdi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    mov edx, [rax+PT_RDX]
    mov ecx, -1
    call do_mprotect_pkey
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_mprotect
