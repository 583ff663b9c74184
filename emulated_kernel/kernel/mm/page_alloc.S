# mm/page_alloc.c: a buddy allocator for one zone, with per-CPU lists of single pages in front of it.
# Left out: nodes, migrate types, compaction, reclaim.

.text

# rdi first free address of the direct map, rsi its end. mem_map takes the front of the memory.
FUNC_NOTRACE mm_init
    ENTER4
    add rdi, 4095
    and rdi, PAGE_MASK
    mov rbx, rdi
    mov r12, rsi
    mov [rip + mem_map], rbx
    sub r12, rbx
    shr r12, PAGE_SHIFT                 # an upper bound of the pages that mem_map describes
    mov rcx, r12
    shl rcx, STRUCT_PAGE_SHIFT - 3
    xor eax, eax
    rep stosq
    add rdi, 4095
    and rdi, PAGE_MASK
    mov [rip + memory_start], rdi
    mov rax, rsi
    sub rax, rdi
    shr rax, PAGE_SHIFT
    mov [rip + max_mapnr], rax
    mov r12, rax
    mov rbx, offset contig_zone
    xor eax, eax
    lea rdi, [rbx+ZONE_FREE_AREA]
.Larea:
    LIST_INIT rdi
    mov qword ptr [rdi+FREE_AREA_COUNT], 0
    add rdi, FREE_AREA_BYTES
    inc eax
    cmp eax, MAX_ORDER
    jb .Larea
    mov qword ptr [rbx+ZONE_WMARK_MIN], 64
    mov qword ptr [rbx+ZONE_WMARK_LOW], 128
    mov rdi, offset node_lruvec
    lea rax, [rdi+LRUVEC_INACTIVE]
    LIST_INIT rax
    lea rax, [rdi+LRUVEC_ACTIVE]
    LIST_INIT rax
    xor r13d, r13d                      # page number
.Lblock:
    cmp r13, r12
    jae .Ldone
    mov r14d, MAX_ORDER - 1
    mov rcx, r13
    bsf rcx, rcx                        # a block starts at a multiple of its size
    je .Lfits
    cmp ecx, r14d
    cmovb r14d, ecx
.Lfits:
    mov eax, 1
    mov ecx, r14d
    shl rax, cl
    add rax, r13
    cmp rax, r12
    jbe .Lfree
    dec r14d
    jmp .Lfits
.Lfree:
    mov rdi, r13
    shl rdi, STRUCT_PAGE_SHIFT
    add rdi, [rip + mem_map]
    mov esi, r14d
    call __free_pages_core
    mov eax, 1
    mov ecx, r14d
    shl rax, cl
    add r13, rax
    jmp .Lblock
.Ldone:
    call kmem_cache_init
    call radix_tree_init
    call proc_caches_init
    LEAVE4
ENDFUNC mm_init

FUNC __free_pages_core                  # rdi page, esi order: a block that boot no longer needs
    PROLOGUE
    mov dword ptr [rdi+PAGE_REFCOUNT], 0
    mov eax, 1
    mov ecx, esi
    shl rax, cl
    add [rip + contig_zone + ZONE_MANAGED], rax
    call __free_pages_ok
    EPILOGUE
ENDFUNC __free_pages_core

# Give a block back to the free lists, merging it with its buddies: rdi page, esi order; zone locked.
FUNC_NOTRACE __free_one_page
    mov r8, offset contig_zone
    mov r9, [rip + mem_map]
    mov ecx, esi
    mov eax, 1
    shl rax, cl
    add [r8+ZONE_NR_FREE], rax
    sub rdi, r9
    shr rdi, STRUCT_PAGE_SHIFT          # page number
.Lmerge:
    cmp ecx, MAX_ORDER - 1
    jae .Ldone
    mov eax, 1
    shl rax, cl
    xor rax, rdi
    cmp rax, [rip + max_mapnr]
    jae .Ldone
    mov rdx, rax
    shl rdx, STRUCT_PAGE_SHIFT
    add rdx, r9
    test dword ptr [rdx+PAGE_FLAGS], PG_BUDDY
    je .Ldone
    cmp [rdx+PAGE_PRIVATE], rcx
    jne .Ldone
    and dword ptr [rdx+PAGE_FLAGS], ~PG_BUDDY
    lea rsi, [rdx+PAGE_LRU]
    LIST_DEL rsi, rdx, r10
    lea rdx, [rcx+rcx*2]
    dec qword ptr [r8+rdx*8+ZONE_FREE_AREA+FREE_AREA_COUNT]
    and rdi, rax
    inc ecx
    jmp .Lmerge
.Ldone:
    shl rdi, STRUCT_PAGE_SHIFT
    add rdi, r9
    mov dword ptr [rdi+PAGE_FLAGS], PG_BUDDY
    mov [rdi+PAGE_PRIVATE], rcx
    lea rdx, [rcx+rcx*2]
    lea rdx, [r8+rdx*8+ZONE_FREE_AREA]
    inc qword ptr [rdx+FREE_AREA_COUNT]
    add rdi, PAGE_LRU
    LIST_ADD rdi, rdx, rax
    ret
ENDFUNC __free_one_page

# Take a block off the free lists, splitting a larger one if need be: esi order; rax page or 0;
# zone locked.
FUNC_NOTRACE __rmqueue_smallest
    mov r8, offset contig_zone
    mov ecx, esi
.Lorder:
    lea rdx, [rcx+rcx*2]
    lea rdx, [r8+rdx*8+ZONE_FREE_AREA]
    cmp [rdx], rdx
    jne .Lfound
    inc ecx
    cmp ecx, MAX_ORDER
    jb .Lorder
    xor eax, eax
    ret
.Lfound:
    mov r9, [rdx]
    dec qword ptr [rdx+FREE_AREA_COUNT]
    LIST_DEL r9, rax, rdi
    lea rax, [r9-PAGE_LRU]
    and dword ptr [rax+PAGE_FLAGS], ~PG_BUDDY
.Lexpand:                               # the upper halves stay free
    cmp ecx, esi
    jbe .Lout
    dec ecx
    mov edi, STRUCT_PAGE_BYTES
    shl rdi, cl
    add rdi, rax
    mov dword ptr [rdi+PAGE_FLAGS], PG_BUDDY
    mov [rdi+PAGE_PRIVATE], rcx
    lea rdx, [rcx+rcx*2]
    lea rdx, [r8+rdx*8+ZONE_FREE_AREA]
    inc qword ptr [rdx+FREE_AREA_COUNT]
    add rdi, PAGE_LRU
    LIST_ADD rdi, rdx, r9
    jmp .Lexpand
.Lout:
    mov edx, 1
    shl rdx, cl
    sub [r8+ZONE_NR_FREE], rdx
    ret
ENDFUNC __rmqueue_smallest

FUNC rmqueue_bulk                       # rdi zone, esi order, edx count, rcx list; eax how many it got
    ENTER5
    push 0
    mov rbx, rdi
    mov r12d, esi
    mov r13d, edx
    mov r14, rcx
    xor r15d, r15d
    call _raw_spin_lock
.Lnext:
    cmp r15d, r13d
    jae .Lout
    mov esi, r12d
    call __rmqueue_smallest
    test rax, rax
    je .Lout
    add rax, PAGE_LRU
    LIST_ADD_TAIL rax, r14, rcx
    inc r15d
    jmp .Lnext
.Lout:
    mov rdi, rbx
    call _raw_spin_unlock
    mov eax, r15d
    LEAVE5
ENDFUNC rmqueue_bulk

FUNC should_fail_alloc_page             # edi gfp, esi order; al: fault injection asks for a failure
    PROLOGUE
    xor eax, eax
    cmp dword ptr [rip + fail_page_alloc_times], 0
    je .Lout
    test edi, GFP_DIRECT_RECLAIM
    je .Lout
    dec dword ptr [rip + fail_page_alloc_times]
    mov eax, 1
.Lout:
    EPILOGUE
ENDFUNC should_fail_alloc_page

FUNC __zone_watermark_ok                # rdi zone, esi order, rdx mark; al
    PROLOGUE
    mov ecx, esi
    mov eax, 1
    shl rax, cl
    add rdx, rax
    xor eax, eax
    cmp [rdi+ZONE_NR_FREE], rdx
    jb .Lout
.Larea:                                 # enough is free, but is there a block large enough
    lea rdx, [rcx+rcx*2]
    cmp qword ptr [rdi+rdx*8+ZONE_FREE_AREA+FREE_AREA_COUNT], 0
    jne .Lgood
    inc ecx
    cmp ecx, MAX_ORDER
    jb .Larea
    jmp .Lout
.Lgood:
    mov eax, 1
.Lout:
    EPILOGUE
ENDFUNC __zone_watermark_ok

FUNC get_page_from_freelist             # edi gfp, esi order, edx alloc flags; rax page or 0
    ENTER4
    mov ebx, edi
    mov r12d, esi
    mov rdi, offset contig_zone
    test edx, ALLOC_NO_WATERMARKS
    jne .Ltake
    mov r13, [rdi+ZONE_WMARK_MIN]
    test edx, ALLOC_WMARK_LOW
    je .Lmark
    mov r13, [rdi+ZONE_WMARK_LOW]
.Lmark:
    test esi, esi
    jne .Lslow
    lea rax, [r13+1]
    cmp [rdi+ZONE_NR_FREE], rax         # zone_watermark_fast
    jae .Ltake
.Lslow:
    mov rdx, r13
    call __zone_watermark_ok
    test al, al
    je .Lnone
.Ltake:
    LOCAL_IRQ_SAVE r14d
    test r12d, r12d
    jne .Lblock
    mov r13, gs:[PERCPU_SELF]
    add r13, PERCPU_MM
    cmp dword ptr [r13+PCP_COUNT], 0
    jne .Lcached
    lea rcx, [r13+PCP_LIST]
    LIST_INIT rcx
    mov rdi, offset contig_zone
    xor esi, esi
    mov edx, PCP_BATCH
    call rmqueue_bulk
    mov [r13+PCP_COUNT], eax
    test eax, eax
    je .Lempty
.Lcached:
    dec dword ptr [r13+PCP_COUNT]
    mov rdx, [r13+PCP_LIST]
    LIST_DEL rdx, rax, rcx
    lea r13, [rdx-PAGE_LRU]
    jmp .Lgot
.Lblock:
    mov rdi, offset contig_zone
    call _raw_spin_lock
    mov esi, r12d
    call __rmqueue_smallest
    mov r13, rax
    mov rdi, offset contig_zone
    call _raw_spin_unlock
    test r13, r13
    je .Lempty
.Lgot:
    LOCAL_IRQ_RESTORE r14d
    mov rdi, r13
    mov esi, r12d
    mov edx, ebx
    call prep_new_page
    mov rax, r13
    jmp .Lout
.Lempty:
    LOCAL_IRQ_RESTORE r14d
.Lnone:
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC get_page_from_freelist

FUNC_NOTRACE prep_new_page              # rdi page, esi order, edx gfp
    ENTER2
    mov eax, esi
    shl eax, 16
    mov [rdi+PAGE_FLAGS], rax
    xor eax, eax
    mov [rdi+PAGE_MAPPING], rax
    mov [rdi+PAGE_INDEX], rax
    mov [rdi+PAGE_PRIVATE], rax
    mov [rdi+PAGE_MAPCOUNT], eax
    mov [rdi+PAGE_COMPOUND_HEAD], rax
    mov dword ptr [rdi+PAGE_REFCOUNT], 1
    mov ecx, esi
    mov eax, 1
    shl eax, cl                         # pages
    mov ecx, eax
    mov r12d, eax
    mov rbx, rdi
    test edx, GFP_COMP
    je .Lcontent
    cmp ecx, 1
    je .Lcontent
    or dword ptr [rdi+PAGE_FLAGS], PG_HEAD
.Ltail:
    add rdi, STRUCT_PAGE_BYTES
    mov [rdi+PAGE_COMPOUND_HEAD], rbx
    dec ecx
    cmp ecx, 1
    jne .Ltail
.Lcontent:
    test edx, GFP_ZERO
    je .Lout
    PAGE_TO_VIRT rbx
.Lclear:
    mov rdi, rbx
    call clear_page_rep
    add rbx, PAGE_BYTES
    dec r12d
    jne .Lclear
.Lout:
    LEAVE2
ENDFUNC prep_new_page

FUNC __alloc_pages                      # edi gfp, esi order; rax page or 0
    ENTER2
    mov ebx, edi
    mov r12d, esi
    xor eax, eax
    cmp esi, MAX_ORDER
    jae .Lout
    test edi, GFP_DIRECT_RECLAIM
    je .Lmaysleep
    call __cond_resched
.Lmaysleep:
    mov edi, ebx
    mov esi, r12d
    call should_fail_alloc_page
    test al, al
    jne .Lfail
    mov edi, ebx
    mov esi, r12d
    mov edx, ALLOC_WMARK_LOW
    call get_page_from_freelist
    test rax, rax
    jne .Lout
    # slow path: what other CPUs keep may complete a block, and the reserve may be touched
    call drain_all_pages
    mov edi, ebx
    mov esi, r12d
    mov edx, ALLOC_WMARK_MIN
    call get_page_from_freelist
    test rax, rax
    jne .Lout
    test ebx, GFP_DIRECT_RECLAIM
    jne .Lfail
    mov edi, ebx
    mov esi, r12d
    mov edx, ALLOC_NO_WATERMARKS
    call get_page_from_freelist
    jmp .Lout
.Lfail:
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC __alloc_pages

FUNC alloc_pages                        # edi gfp, esi order; rax page or 0
    PROLOGUE
    inc qword ptr [rip + vm_event_pgalloc]
    call __alloc_pages
    EPILOGUE
ENDFUNC alloc_pages

FUNC folio_alloc                        # edi gfp, esi order; rax folio or 0
    PROLOGUE
    or edi, GFP_COMP
    call alloc_pages
    EPILOGUE
ENDFUNC folio_alloc

FUNC __get_free_pages                   # edi gfp, esi order; rax address or 0
    PROLOGUE
    call alloc_pages
    test rax, rax
    je .Lout
    PAGE_TO_VIRT rax
.Lout:
    EPILOGUE
ENDFUNC __get_free_pages

FUNC get_zeroed_page                    # edi gfp; rax address or 0
    PROLOGUE
    or edi, GFP_ZERO
    xor esi, esi
    call __get_free_pages
    EPILOGUE
ENDFUNC get_zeroed_page

FUNC free_pcp_prepare                   # rdi page: it must be clean when it goes back; al whether it is
    PROLOGUE
    xor eax, eax
    cmp dword ptr [rdi+PAGE_REFCOUNT], 0
    jne .Lbad
    test dword ptr [rdi+PAGE_FLAGS], PG_LOCKED | PG_LRU | PG_SLAB | PG_BUDDY
    jne .Lbad
    mov qword ptr [rdi+PAGE_FLAGS], 0
    mov [rdi+PAGE_MAPPING], rax
    mov eax, 1
    EPILOGUE
.Lbad:
    inc qword ptr [rip + nr_bad_pages]  # bad_page: it is leaked, not reused
    EPILOGUE
ENDFUNC free_pcp_prepare

FUNC free_pcppages_bulk                 # rdi zone, esi count, rdx pcp
    ENTER3
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    call _raw_spin_lock
.Lnext:
    test r12d, r12d
    je .Lout
    cmp dword ptr [r13+PCP_COUNT], 0
    je .Lout
    mov rdi, [r13+PCP_LIST+8]           # the coldest
    LIST_DEL rdi, rax, rcx
    sub rdi, PAGE_LRU
    xor esi, esi
    call __free_one_page
    dec dword ptr [r13+PCP_COUNT]
    dec r12d
    jmp .Lnext
.Lout:
    mov rdi, rbx
    call _raw_spin_unlock
    LEAVE3
ENDFUNC free_pcppages_bulk

FUNC free_unref_page_commit             # rdi zone, rsi pcp, rdx page; interrupts off
    PROLOGUE
    lea rax, [rsi+PCP_LIST]
    cmp dword ptr [rsi+PCP_COUNT], 0
    jne .Lready
    LIST_INIT rax
.Lready:
    add rdx, PAGE_LRU
    LIST_ADD rdx, rax, rcx
    inc dword ptr [rsi+PCP_COUNT]
    cmp dword ptr [rsi+PCP_COUNT], PCP_HIGH
    jb .Lout
    mov rdx, rsi
    mov esi, PCP_BATCH * 2
    call free_pcppages_bulk
.Lout:
    EPILOGUE
ENDFUNC free_unref_page_commit

FUNC free_unref_page                    # rdi page, with no reference left
    ENTER2
    mov rbx, rdi
    call free_pcp_prepare
    test al, al
    je .Lout
    LOCAL_IRQ_SAVE r12d
    mov rdi, offset contig_zone
    mov rsi, gs:[PERCPU_SELF]
    add rsi, PERCPU_MM
    mov rdx, rbx
    call free_unref_page_commit
    LOCAL_IRQ_RESTORE r12d
.Lout:
    LEAVE2
ENDFUNC free_unref_page

FUNC __free_pages_ok                    # rdi page, esi order; no reference left
    ENTER3
    mov rbx, rdi
    mov r12d, esi
    call free_pcp_prepare
    test al, al
    je .Lout
    mov eax, 1
    mov ecx, r12d
    shl eax, cl
    mov rdx, rbx
.Ltail:
    dec eax
    je .Lclean
    add rdx, STRUCT_PAGE_BYTES
    mov qword ptr [rdx+PAGE_COMPOUND_HEAD], 0
    mov qword ptr [rdx+PAGE_FLAGS], 0
    jmp .Ltail
.Lclean:
    mov rdi, offset contig_zone
    call _raw_spin_lock_irqsave
    mov r13, rax
    mov rdi, rbx
    mov esi, r12d
    call __free_one_page
    mov rdi, offset contig_zone
    mov rsi, r13
    call _raw_spin_unlock_irqrestore
.Lout:
    LEAVE3
ENDFUNC __free_pages_ok

FUNC __free_pages                       # rdi page, esi order: drop a reference
    PROLOGUE
    lock dec dword ptr [rdi+PAGE_REFCOUNT]
    jne .Lout
    test esi, esi
    jne .Lblock
    call free_unref_page
    jmp .Lout
.Lblock:
    call __free_pages_ok
.Lout:
    EPILOGUE
ENDFUNC __free_pages

FUNC free_pages                         # rdi address or 0, esi order
    PROLOGUE
    test rdi, rdi
    je .Lout
    VIRT_TO_PAGE rdi
    call __free_pages
.Lout:
    EPILOGUE
ENDFUNC free_pages

FUNC drain_local_pages                  # the list of this CPU goes back to the zone
    ENTER1
    push 0
    LOCAL_IRQ_SAVE ebx
    mov rdx, gs:[PERCPU_SELF]
    add rdx, PERCPU_MM
    mov esi, [rdx+PCP_COUNT]
    mov rdi, offset contig_zone
    call free_pcppages_bulk
    LOCAL_IRQ_RESTORE ebx
    LEAVE1
ENDFUNC drain_local_pages

# The lists of all CPUs; the others stand still or hold no page of theirs half way.
FUNC drain_all_pages
    ENTER1
    push 0
    call drain_local_pages
    xor ebx, ebx
.Lcpu:
    cmp ebx, [rip + nr_cpu_ids]
    jae .Lout
    mov rdx, [percpu_table + rbx*8]
    add rdx, PERCPU_MM
    mov esi, [rdx+PCP_COUNT]
    test esi, esi
    je .Lnext
    mov rdi, offset contig_zone
    call free_pcppages_bulk
.Lnext:
    inc ebx
    jmp .Lcpu
.Lout:
    LEAVE1
ENDFUNC drain_all_pages

FUNC si_meminfo                         # rdi struct sysinfo {total, free} in pages
    PROLOGUE
    mov rax, [rip + contig_zone + ZONE_MANAGED]
    mov [rdi], rax
    mov rax, [rip + contig_zone + ZONE_NR_FREE]
    xor ecx, ecx
.Lcpu:
    mov rdx, [percpu_table + rcx*8]
    mov edx, [rdx+PERCPU_MM+PCP_COUNT]
    add rax, rdx
    inc ecx
    cmp ecx, [rip + nr_cpu_ids]
    jb .Lcpu
    mov [rdi+8], rax
    EPILOGUE
ENDFUNC si_meminfo

.data
.balign 64
OBJECT contig_zone
    .zero ZONE_BYTES
ENDOBJECT contig_zone
.balign 8
OBJECT mem_map
    .quad 0
ENDOBJECT mem_map
OBJECT memory_start
    .quad 0
ENDOBJECT memory_start
OBJECT max_mapnr
    .quad 0
ENDOBJECT max_mapnr
OBJECT vm_event_pgalloc
    .quad 0
ENDOBJECT vm_event_pgalloc
OBJECT nr_bad_pages
    .quad 0
ENDOBJECT nr_bad_pages
OBJECT fail_page_alloc_times
    .long 0
ENDOBJECT fail_page_alloc_times
