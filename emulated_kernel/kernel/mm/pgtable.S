# mm/memory.c, arch/x86/mm/pgtable.c: the page tables of a process, four levels of them. No vCPU ever uses
# one: user memory is a window of its own. They are kept as the processor would want them.

.text

FUNC pgd_alloc                          # rdi mm; rax table or 0
    ENTER1
    push 0
    mov rbx, rdi
    mov edi, GFP_KERNEL
    call get_zeroed_page
    test rax, rax
    je .Lout
    inc qword ptr [rbx+MM_PGTABLES]
.Lout:
    LEAVE1
ENDFUNC pgd_alloc

FUNC pgd_free                           # rdi mm, rsi table
    PROLOGUE
    dec qword ptr [rdi+MM_PGTABLES]
    mov rdi, rsi
    xor esi, esi
    call free_pages
    EPILOGUE
ENDFUNC pgd_free

FUNC pte_alloc_one                      # rdi mm; rax page or 0
    PROLOGUE
    mov edi, GFP_KERNEL | GFP_ZERO
    xor esi, esi
    call alloc_pages
    EPILOGUE
ENDFUNC pte_alloc_one

# Table page rdx (struct page) into entry rsi, unless one is there already: rdi mm.
FUNC_NOTRACE pgtable_install
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    lea rdi, [rdi+MM_PAGE_TABLE_LOCK]
    call _raw_spin_lock
    cmp qword ptr [r12], 0
    jne .Llost
    mov rax, r13
    PAGE_TO_VIRT rax
    VIRT_TO_ENTRY rax, rcx
    or rax, PTE_TABLE_BITS
    mov [r12], rax
    inc qword ptr [rbx+MM_PGTABLES]
    xor r13d, r13d
.Llost:
    lea rdi, [rbx+MM_PAGE_TABLE_LOCK]
    call _raw_spin_unlock
    test r13, r13
    je .Lout
    mov rdi, r13
    xor esi, esi
    call __free_pages
.Lout:
    xor eax, eax
    LEAVE3
ENDFUNC pgtable_install

# One level each: rdi mm, rsi the entry above, rdx address; eax 0 or -ENOMEM.
.macro TABLE_ALLOC
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call pte_alloc_one
    test rax, rax
    je .Lnomem
    mov rdi, rbx
    mov rsi, r12
    mov rdx, rax
    call pgtable_install
    LEAVE2
.Lnomem:
    mov eax, -ENOMEM
    LEAVE2
.endm

FUNC __pud_alloc
    TABLE_ALLOC
ENDFUNC __pud_alloc

FUNC __pmd_alloc
    TABLE_ALLOC
ENDFUNC __pmd_alloc

FUNC __pte_alloc
    TABLE_ALLOC
ENDFUNC __pte_alloc

# The entry of address rsi in mm rdi: rax its address; or 0, and rdx the next address worth a look.
FUNC_NOTRACE pte_walk
    mov rax, [rdi+MM_PGD]
    mov ecx, 39
.Llevel:
    mov rdx, rsi
    shr rdx, cl
    and edx, 511
    lea rax, [rax+rdx*8]
    cmp ecx, PAGE_SHIFT
    je .Lout
    mov rax, [rax]
    test eax, PTE_PRESENT
    je .Lnone
    ENTRY_TO_VIRT rax, rdx
    sub ecx, 9
    jmp .Llevel
.Lnone:
    mov rdx, rsi
    shr rdx, cl
    inc rdx
    shl rdx, cl
    xor eax, eax
.Lout:
    ret
ENDFUNC pte_walk

# As pte_walk, making the tables that are missing: rax the entry's address, or 0.
FUNC_NOTRACE pte_alloc_walk
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, [rdi+MM_PGD]
    mov r14d, 39
.Llevel:
    mov rdx, r12
    mov ecx, r14d
    shr rdx, cl
    and edx, 511
    lea r13, [r13+rdx*8]
    cmp r14d, PAGE_SHIFT
    je .Lfound
    test dword ptr [r13], PTE_PRESENT
    jne .Lthere
    mov rdi, rbx
    mov rsi, r13
    mov rdx, r12
    cmp r14d, 30
    je .Lpmd
    ja .Lpud
    call __pte_alloc
    jmp .Lmade
.Lpmd:
    call __pmd_alloc
    jmp .Lmade
.Lpud:
    call __pud_alloc
.Lmade:
    test eax, eax
    jne .Lnone
.Lthere:
    mov r13, [r13]
    ENTRY_TO_VIRT r13, rdx
    sub r14d, 9
    jmp .Llevel
.Lnone:
    xor r13d, r13d
.Lfound:
    mov rax, r13
    LEAVE4
ENDFUNC pte_alloc_walk

# Give back the tables below table rsi (edx: what an entry's index is shifted by, rcx: its first
# address) that lie wholly in [r8, r9): rdi mm.
FUNC_NOTRACE free_tables
    ENTER5
    sub rsp, 40
    mov rbx, rdi
    mov r12, rsi
    mov [rbp-48], edx
    mov r13, rcx
    mov [rbp-56], r8
    mov [rbp-64], r9
    xor r14d, r14d
.Lentry:
    mov r15, [r12+r14*8]
    test r15d, PTE_PRESENT
    je .Lnext
    mov ecx, [rbp-48]
    mov eax, 1
    shl rax, cl
    add rax, r13                        # where it ends
    cmp rax, [rbp-56]
    jbe .Lnext
    cmp r13, [rbp-64]
    jae .Lout
    ENTRY_TO_VIRT r15, rdx
    cmp ecx, 21
    je .Llast
    mov [rbp-72], rax
    mov rdi, rbx
    mov rsi, r15
    lea edx, [rcx-9]
    mov rcx, r13
    mov r8, [rbp-56]
    mov r9, [rbp-64]
    call free_tables
    mov rax, [rbp-72]
.Llast:
    cmp r13, [rbp-56]
    jb .Lnext
    cmp rax, [rbp-64]
    ja .Lnext
    mov qword ptr [r12+r14*8], 0
    dec qword ptr [rbx+MM_PGTABLES]
    mov rdi, r15
    xor esi, esi
    call free_pages
.Lnext:
    mov ecx, [rbp-48]
    mov eax, 1
    shl rax, cl
    add r13, rax
    inc r14d
    cmp r14d, 512
    jb .Lentry
.Lout:
    LEAVE5
ENDFUNC free_tables

FUNC free_pgd_range                     # rdi mmu_gather, rsi address, rdx end, rcx floor, r8 ceiling
    PROLOGUE
    mov rdi, [rdi+TLB_MM]
    mov rsi, [rdi+MM_PGD]
    mov edx, 39
    mov r9, r8
    mov r8, rcx
    xor ecx, ecx
    call free_tables
    EPILOGUE
ENDFUNC free_pgd_range

FUNC free_pgtables                      # rdi mmu_gather, rsi area, rdx floor, rcx ceiling
    PROLOGUE
    mov r8, rcx
    mov rcx, rdx
    mov rdx, [rsi+VMA_END]
    mov rsi, [rsi+VMA_START]
    call free_pgd_range
    EPILOGUE
ENDFUNC free_pgtables

# --- mmu_gather (mm/mmu_gather.c) -------------------------------------------------------------------

FUNC tlb_gather_mmu                     # rdi mmu_gather, rsi mm
    PROLOGUE
    mov [rdi+TLB_MM], rsi
    mov qword ptr [rdi+TLB_NR], 0
    EPILOGUE
ENDFUNC tlb_gather_mmu

FUNC tlb_flush_mmu                      # rdi mmu_gather
    ENTER1
    push 0
    mov rbx, rdi
    mov rsi, [rdi+TLB_NR]
    test rsi, rsi
    je .Lout
    call lru_add_drain
    lea rdi, [rbx+TLB_PAGES]
    mov rsi, [rbx+TLB_NR]
    call release_pages
    mov qword ptr [rbx+TLB_NR], 0
.Lout:
    LEAVE1
ENDFUNC tlb_flush_mmu

FUNC tlb_finish_mmu                     # rdi mmu_gather
    PROLOGUE
    call tlb_flush_mmu
    EPILOGUE
ENDFUNC tlb_finish_mmu
