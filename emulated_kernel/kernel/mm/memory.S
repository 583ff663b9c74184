# mm/memory.c: faults, and the pages of an area from its first use to its end.

.text

# Set vmf's entry to page rsi: rdi vm_fault, edx whether it may be written.
FUNC do_set_pte
    PROLOGUE
    mov rax, rsi
    PAGE_TO_VIRT rax
    VIRT_TO_ENTRY rax, rcx
    or rax, PTE_PRESENT | PTE_USER | PTE_ACCESSED
    test edx, edx
    je .Lset
    or rax, PTE_RW | PTE_DIRTY
.Lset:
    mov rcx, [rdi+VMF_PTE]
    mov [rcx], rax
    mov rcx, [rdi+VMF_VMA]
    mov rcx, [rcx+VMA_MM]
    inc qword ptr [rcx+MM_RSS]
    EPILOGUE
ENDFUNC do_set_pte

FUNC page_add_new_anon_rmap             # rdi page, rsi area, rdx address (mm/rmap.c)
    PROLOGUE
    inc dword ptr [rdi+PAGE_MAPCOUNT]
    or dword ptr [rdi+PAGE_FLAGS], PG_SWAPBACKED | PG_UPTODATE
    mov rax, rdx
    sub rax, [rsi+VMA_START]
    shr rax, PAGE_SHIFT
    add rax, [rsi+VMA_PGOFF]
    mov [rdi+PAGE_INDEX], rax
    EPILOGUE
ENDFUNC page_add_new_anon_rmap

FUNC page_add_file_rmap                 # rdi page, rsi area
    PROLOGUE
    lock inc dword ptr [rdi+PAGE_MAPCOUNT]
    EPILOGUE
ENDFUNC page_add_file_rmap

FUNC page_remove_rmap                   # rdi page, rsi area
    PROLOGUE
    lock dec dword ptr [rdi+PAGE_MAPCOUNT]
    EPILOGUE
ENDFUNC page_remove_rmap

FUNC lru_cache_add_inactive_or_unevictable  # rdi page, rsi area (mm/swap.c)
    PROLOGUE
    call folio_add_lru
    EPILOGUE
ENDFUNC lru_cache_add_inactive_or_unevictable

FUNC vma_alloc_folio                    # edi gfp, esi order, rdx area, rcx address; rax folio or 0
    PROLOGUE
    call folio_alloc
    EPILOGUE
ENDFUNC vma_alloc_folio

# A private copy of the page that is mapped, or of nothing: rdi vm_fault, rsi page or 0; rax page or 0.
FUNC_NOTRACE new_anonymous_page
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov edi, GFP_USER
    test rsi, rsi
    jne .Lalloc
    or edi, GFP_ZERO
.Lalloc:
    xor esi, esi
    mov rdx, [rbx+VMF_VMA]
    mov rcx, [rbx+VMF_ADDRESS]
    call vma_alloc_folio
    mov r13, rax
    test rax, rax
    je .Lout
    test r12, r12
    je .Lout
    mov rdi, r13
    PAGE_TO_VIRT rdi
    mov rsi, r12
    PAGE_TO_VIRT rsi
    call copy_page
.Lout:
    mov rax, r13
    LEAVE3
ENDFUNC new_anonymous_page

FUNC wp_page_copy                       # rdi vm_fault, whose page is shared; eax VM_FAULT_*
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, [rdi+VMF_PAGE]
    mov rsi, r12
    call new_anonymous_page
    test rax, rax
    je .Loom
    mov r13, rax
    mov rdi, rax
    mov rsi, [rbx+VMF_VMA]
    mov rdx, [rbx+VMF_ADDRESS]
    call page_add_new_anon_rmap
    mov rdi, r13
    mov rsi, [rbx+VMF_VMA]
    call lru_cache_add_inactive_or_unevictable
    mov rdi, rbx
    mov rsi, r13
    mov edx, 1
    call do_set_pte
    mov rax, [rbx+VMF_VMA]
    mov rax, [rax+VMA_MM]
    dec qword ptr [rax+MM_RSS]          # one for another
    mov rdi, r12
    mov rsi, [rbx+VMF_VMA]
    call page_remove_rmap
    mov rdi, r12
    call folio_put
    xor eax, eax
    LEAVE3
.Loom:
    mov eax, VM_FAULT_OOM
    LEAVE3
ENDFUNC wp_page_copy

FUNC do_wp_page                         # rdi vm_fault: a write to a page mapped for reading; eax
    PROLOGUE
    mov rax, [rdi+VMF_PTE]
    mov rdx, [rax]
    ENTRY_TO_VIRT rdx, rcx
    VIRT_TO_PAGE rdx
    mov [rdi+VMF_PAGE], rdx
    mov rcx, [rdi+VMF_VMA]
    test qword ptr [rcx+VMA_FLAGS], VM_SHARED
    jne .Lreuse
    cmp qword ptr [rdx+PAGE_MAPPING], 0
    jne .Lcopy                          # a page of a file
    cmp dword ptr [rdx+PAGE_MAPCOUNT], 1
    jne .Lcopy
.Lreuse:                                # nobody else has it
    or qword ptr [rax], PTE_RW | PTE_DIRTY
    xor eax, eax
    EPILOGUE
.Lcopy:
    call wp_page_copy
    EPILOGUE
ENDFUNC do_wp_page

FUNC __do_fault                         # rdi vm_fault; eax VM_FAULT_*: the file's page, locked
    ENTER1
    push 0
    mov rbx, rdi
    mov rax, [rdi+VMF_VMA]
    mov rax, [rax+VMA_OPS]
    call [rax+VMOP_FAULT]
    test eax, VM_FAULT_OOM | VM_FAULT_SIGBUS
    jne .Lout
    mov rcx, [rbx+VMF_PAGE]
    mov [rbx+VMF_COW_PAGE], rcx
.Lout:
    LEAVE1
ENDFUNC __do_fault

FUNC finish_fault                       # rdi vm_fault with its page; eax 0 or VM_FAULT_NOPAGE
    ENTER3
    push 0
    mov rbx, rdi
    mov rax, [rdi+VMF_VMA]
    mov rdi, [rax+VMA_MM]
    add rdi, MM_PAGE_TABLE_LOCK
    call _raw_spin_lock
    mov r13d, VM_FAULT_NOPAGE
    mov rax, [rbx+VMF_PTE]
    cmp qword ptr [rax], 0              # somebody else was first
    jne .Lunlock
    xor edx, edx
    test dword ptr [rbx+VMF_FLAGS], FAULT_FLAG_WRITE
    setne dl
    mov r12, [rbx+VMF_PAGE]
    mov rdi, rbx
    mov rsi, r12
    call do_set_pte
    cmp qword ptr [r12+PAGE_MAPPING], 0
    je .Lanonymous
    mov rdi, r12
    mov rsi, [rbx+VMF_VMA]
    call page_add_file_rmap
    jmp .Lmapped
.Lanonymous:
    mov rdi, r12
    mov rsi, [rbx+VMF_VMA]
    mov rdx, [rbx+VMF_ADDRESS]
    call page_add_new_anon_rmap
.Lmapped:
    xor r13d, r13d
.Lunlock:
    mov rax, [rbx+VMF_VMA]
    mov rdi, [rax+VMA_MM]
    add rdi, MM_PAGE_TABLE_LOCK
    call _raw_spin_unlock
    mov eax, r13d
    LEAVE3
ENDFUNC finish_fault

FUNC do_fault                           # rdi vm_fault in a mapped file; eax VM_FAULT_*
    ENTER4
    mov rbx, rdi
    call __do_fault
    mov r13d, eax
    test eax, VM_FAULT_OOM | VM_FAULT_SIGBUS
    jne .Lout
    mov r12, [rbx+VMF_PAGE]
    test dword ptr [rbx+VMF_FLAGS], FAULT_FLAG_WRITE
    je .Lmap
    mov rax, [rbx+VMF_VMA]
    test qword ptr [rax+VMA_FLAGS], VM_SHARED
    jne .Lshared
    mov rdi, rbx                        # do_cow_fault
    mov rsi, r12
    call new_anonymous_page
    mov r14, rax
    mov r13d, VM_FAULT_OOM
    test rax, rax
    je .Lput
    mov [rbx+VMF_PAGE], rax
    mov rdi, rbx
    call finish_fault
    mov r13d, eax
    test eax, eax
    jne .Lputcopy
    mov rdi, r14
    mov rsi, [rbx+VMF_VMA]
    call lru_cache_add_inactive_or_unevictable
    jmp .Lput
.Lputcopy:
    mov rdi, r14
    call folio_put
.Lput:
    mov rdi, r12
    call unlock_page
    mov rdi, r12
    call folio_put
    jmp .Lout
.Lshared:
    mov rdi, r12
    call set_page_dirty
.Lmap:                                  # the entry takes the page's reference
    mov rdi, rbx
    call finish_fault
    mov r13d, eax
    mov rdi, r12
    call unlock_page
    test r13d, r13d
    je .Lout
    mov rdi, r12
    call folio_put
.Lout:
    mov eax, r13d
    LEAVE4
ENDFUNC do_fault

FUNC __handle_mm_fault                  # rdi area, rsi address, edx FAULT_FLAG_*; eax VM_FAULT_*
    ENTER2
    sub rsp, VMF_BYTES
    mov rbx, rdi
    and rsi, PAGE_MASK
    mov [rsp+VMF_VMA], rdi
    mov [rsp+VMF_ADDRESS], rsi
    mov [rsp+VMF_FLAGS], rdx
    mov rax, rsi
    sub rax, [rdi+VMA_START]
    shr rax, PAGE_SHIFT
    add rax, [rdi+VMA_PGOFF]
    mov [rsp+VMF_PGOFF], rax
    mov rdi, [rdi+VMA_MM]
    call pte_alloc_walk
    test rax, rax
    je .Loom
    mov [rsp+VMF_PTE], rax
    mov rcx, [rax]                      # handle_pte_fault
    test ecx, PTE_PRESENT
    jne .Lpresent
    cmp qword ptr [rbx+VMA_OPS], 0
    jne .Lfile
    mov rdi, rsp                        # do_anonymous_page
    xor esi, esi
    call new_anonymous_page
    mov r12, rax
    test rax, rax
    je .Loom
    mov [rsp+VMF_PAGE], rax
    test qword ptr [rbx+VMA_FLAGS], VM_WRITE
    je .Lreadonly
    or dword ptr [rsp+VMF_FLAGS], FAULT_FLAG_WRITE
.Lreadonly:
    mov rdi, rsp
    call finish_fault
    test eax, eax
    jne .Llost
    mov rdi, r12
    mov rsi, rbx
    call lru_cache_add_inactive_or_unevictable
    xor eax, eax
    LEAVE2
.Llost:
    mov rdi, r12
    call folio_put
    xor eax, eax
    LEAVE2
.Lfile:
    mov rdi, rsp
    call do_fault
    LEAVE2
.Lpresent:
    test dword ptr [rsp+VMF_FLAGS], FAULT_FLAG_WRITE
    je .Lyoung
    test ecx, PTE_RW
    jne .Lyoung
    mov rdi, rsp
    call do_wp_page
    LEAVE2
.Lyoung:
    or qword ptr [rax], PTE_ACCESSED
    xor eax, eax
    LEAVE2
.Loom:
    mov eax, VM_FAULT_OOM
    LEAVE2
ENDFUNC __handle_mm_fault

FUNC handle_mm_fault                    # rdi area, rsi address, edx FAULT_FLAG_*, rcx pt_regs; eax VM_FAULT_*
    PROLOGUE
    mov eax, VM_FAULT_SIGSEGV
    mov r8d, VM_READ | VM_EXEC
    test edx, FAULT_FLAG_WRITE
    je .Laccess
    mov r8d, VM_WRITE
.Laccess:
    test [rdi+VMA_FLAGS], r8
    je .Lout
    lock inc qword ptr [rip + vm_event_pgfault]
    call __handle_mm_fault
.Lout:
    EPILOGUE
ENDFUNC handle_mm_fault

# --- the end of pages ------------------------------------------------------------------------------

FUNC unmap_page_range                   # rdi mmu_gather, rsi area, rdx address, rcx end
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
.Lnext:
    cmp r13, r14
    jae .Lout
    mov rdi, [rbx+TLB_MM]
    mov rsi, r13
    call pte_walk
    test rax, rax
    jne .Lentry
    mov r13, rdx
    jmp .Lnext
.Lentry:
    add r13, PAGE_BYTES
    xor r15d, r15d
    xchg r15, [rax]
    test r15d, PTE_PRESENT
    je .Lnext
    mov rax, [rbx+TLB_MM]
    dec qword ptr [rax+MM_RSS]
    mov eax, r15d
    ENTRY_TO_VIRT r15, rcx
    VIRT_TO_PAGE r15
    test eax, PTE_DIRTY
    je .Lclean
    cmp qword ptr [r15+PAGE_MAPPING], 0
    je .Lclean
    mov rdi, r15
    call set_page_dirty
.Lclean:
    mov rdi, r15
    mov rsi, r12
    call page_remove_rmap
    mov rax, [rbx+TLB_NR]
    mov [rbx+rax*8+TLB_PAGES], r15
    inc rax
    mov [rbx+TLB_NR], rax
    cmp rax, TLB_MAX
    jb .Lnext
    mov rdi, rbx
    call tlb_flush_mmu
    jmp .Lnext
.Lout:
    LEAVE5
ENDFUNC unmap_page_range

FUNC unmap_single_vma                   # rdi mmu_gather, rsi area, rdx start, rcx end
    PROLOGUE
    cmp rdx, [rsi+VMA_START]
    cmovb rdx, [rsi+VMA_START]
    cmp rcx, [rsi+VMA_END]
    cmova rcx, [rsi+VMA_END]
    cmp rdx, rcx
    jae .Lout
    call unmap_page_range
.Lout:
    EPILOGUE
ENDFUNC unmap_single_vma

FUNC unmap_vmas                         # rdi mmu_gather, rsi first area, rdx start, rcx end
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
.Lnext:
    test r12, r12
    je .Lout
    cmp [r12+VMA_START], r14
    jae .Lout
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov rcx, r14
    call unmap_single_vma
    mov r12, [r12+VMA_NEXT]
    jmp .Lnext
.Lout:
    LEAVE4
ENDFUNC unmap_vmas

# The pages of area rsi for its copy rdi in the mm of a child: both share them, and whoever writes to a
# private one gets a copy. eax 0 or -ENOMEM.
FUNC copy_page_range
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, [rsi+VMA_START]
.Lnext:
    cmp r13, [r12+VMA_END]
    jae .Ldone
    mov rdi, [r12+VMA_MM]
    mov rsi, r13
    call pte_walk
    test rax, rax
    jne .Lentry
    mov r13, rdx
    jmp .Lnext
.Lentry:
    test dword ptr [rax], PTE_PRESENT
    je .Lskip
    mov r14, rax
    mov rdi, [rbx+VMA_MM]
    mov rsi, r13
    call pte_alloc_walk
    test rax, rax
    je .Lnomem
    test qword ptr [r12+VMA_FLAGS], VM_SHARED
    jne .Lshare
    and qword ptr [r14], ~PTE_RW
.Lshare:
    mov rcx, [r14]
    mov [rax], rcx
    ENTRY_TO_VIRT rcx, rdx
    VIRT_TO_PAGE rcx
    GET_PAGE rcx
    lock inc dword ptr [rcx+PAGE_MAPCOUNT]
    mov rax, [rbx+VMA_MM]
    inc qword ptr [rax+MM_RSS]
.Lskip:
    add r13, PAGE_BYTES
    jmp .Lnext
.Ldone:
    xor eax, eax
    LEAVE5
.Lnomem:
    mov eax, -ENOMEM
    LEAVE5
ENDFUNC copy_page_range

.data
.balign 8
OBJECT vm_event_pgfault
    .quad 0
ENDOBJECT vm_event_pgfault
