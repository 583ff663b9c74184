# mm/filemap.c: the page cache: finding, adding and removing the pages of an address space, and waiting
# for their lock. Left out: readahead, shadow entries, large folios.

.text

FUNC filemap_alloc_folio                # edi gfp, esi order; rax folio or 0
    PROLOGUE
    call folio_alloc
    EPILOGUE
ENDFUNC filemap_alloc_folio

FUNC __filemap_add_folio                # rdi mapping, rsi folio (locked), rdx index; eax 0 or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    lea rdi, [rdi+MAPPING_LOCK]
    call _raw_spin_lock_irq
    mov r14, -EEXIST
    mov rdi, rbx
    mov rsi, r13
    call xas_load
    test rax, rax
    jne .Lunlock
    mov rdi, rbx
    mov rsi, r13
    mov rdx, r12
    call xas_store
    mov r14, rax
    test rax, rax
    jne .Lunlock
    GET_PAGE r12
    mov [r12+PAGE_MAPPING], rbx
    mov [r12+PAGE_INDEX], r13
    inc qword ptr [rbx+MAPPING_NRPAGES]
    inc qword ptr [rip + nr_file_pages]
.Lunlock:
    lea rdi, [rbx+MAPPING_LOCK]
    call _raw_spin_unlock_irq
    mov rax, r14
    LEAVE4
ENDFUNC __filemap_add_folio

FUNC filemap_add_folio                  # rdi mapping, rsi folio, rdx index, ecx gfp; eax 0 or error
    ENTER2
    mov rbx, rsi
    or dword ptr [rsi+PAGE_FLAGS], PG_LOCKED
    call __filemap_add_folio
    mov r12, rax
    test rax, rax
    jne .Lrefused
    mov rdi, rbx
    call folio_add_lru
    xor eax, eax
    LEAVE2
.Lrefused:
    and dword ptr [rbx+PAGE_FLAGS], ~PG_LOCKED
    mov rax, r12
    LEAVE2
ENDFUNC filemap_add_folio

FUNC add_to_page_cache_lru              # rdi page, rsi mapping, rdx index, ecx gfp; eax 0 or error
    PROLOGUE
    xchg rdi, rsi
    call filemap_add_folio
    EPILOGUE
ENDFUNC add_to_page_cache_lru

# rdi mapping, rsi index, edx FGP flags, ecx gfp; rax folio with a reference, or 0.
FUNC __filemap_get_folio
    ENTER5
    push rcx
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
.Lrepeat:
    call __rcu_read_lock
    mov rdi, rbx
    mov rsi, r12
    call xas_load
    mov r14, rax
    test rax, rax
    je .Lfound
    GET_PAGE r14
.Lfound:
    call __rcu_read_unlock
    test r14, r14
    je .Lmissing
    test r13d, FGP_LOCK
    je .Laccess
    lock bts dword ptr [r14+PAGE_FLAGS], 0
    jae .Llocked
    test r13d, FGP_NOWAIT
    jne .Lbusy
    mov rdi, r14
    call __folio_lock
.Llocked:
    cmp [r14+PAGE_MAPPING], rbx         # truncated while we slept?
    je .Laccess
    mov rdi, r14
    call folio_unlock
    mov rdi, r14
    call folio_put
    jmp .Lrepeat
.Lbusy:
    mov rdi, r14
    call folio_put
    xor r14d, r14d
    jmp .Lout
.Laccess:
    test r13d, FGP_ACCESSED
    je .Lout
    mov rdi, r14
    call folio_mark_accessed
    jmp .Lout
.Lmissing:
    test r13d, FGP_CREAT
    je .Lout
    mov edi, [rbp-48]
    xor esi, esi
    call filemap_alloc_folio
    mov r14, rax
    test rax, rax
    je .Lout
    test r13d, FGP_ACCESSED
    je .Ladd
    or dword ptr [r14+PAGE_FLAGS], PG_REFERENCED
.Ladd:
    mov rdi, rbx
    mov rsi, r14
    mov rdx, r12
    mov ecx, [rbp-48]
    call filemap_add_folio
    test rax, rax
    je .Ladded
    mov r15, rax
    mov rdi, r14
    call folio_put
    xor r14d, r14d
    cmp r15, -EEXIST
    je .Lrepeat
    jmp .Lout
.Ladded:
    test r13d, FGP_LOCK
    jne .Lout
    mov rdi, r14
    call folio_unlock
.Lout:
    mov rax, r14
    LEAVE5
ENDFUNC __filemap_get_folio

FUNC pagecache_get_page                 # rdi mapping, rsi index, edx FGP flags, ecx gfp; rax page or 0
    PROLOGUE
    call __filemap_get_folio
    EPILOGUE
ENDFUNC pagecache_get_page

FUNC grab_cache_page_write_begin        # rdi mapping, rsi index; rax page, locked, or 0
    PROLOGUE
    mov edx, FGP_LOCK | FGP_WRITE | FGP_CREAT | FGP_STABLE
    mov ecx, [rdi+MAPPING_GFP]
    call pagecache_get_page
    EPILOGUE
ENDFUNC grab_cache_page_write_begin

# Drop a reference (inlined in Linux down to __folio_put).
FUNC_NOTRACE folio_put                  # rdi folio
    lock dec dword ptr [rdi+PAGE_REFCOUNT]
    jne .Lout
    jmp __folio_put
.Lout:
    ret
ENDFUNC folio_put

# --- the lock of a folio --------------------------------------------------------------------------

# rdi folio; rax the wait queue it shares with others.
FUNC_NOTRACE folio_waitqueue
    shr rdi, STRUCT_PAGE_SHIFT
    and edi, FOLIO_WAIT_TABLE_SIZE - 1
    lea rax, [rdi+rdi*2]
    lea rax, [folio_wait_table + rax*8]
    lea rdi, [rax+WQ_HEAD]
    LIST_READY rdi
    ret
ENDFUNC folio_waitqueue

FOLIO_WAIT_TABLE_SIZE = 32

FUNC folio_unlock                       # rdi folio
    PROLOGUE
    lock and dword ptr [rdi+PAGE_FLAGS], ~PG_LOCKED
    test dword ptr [rdi+PAGE_FLAGS], PG_WAITERS
    je .Lout
    xor esi, esi
    call folio_wake_bit
.Lout:
    EPILOGUE
ENDFUNC folio_unlock

FUNC unlock_page                        # rdi page
    PROLOGUE
    mov rax, [rdi+PAGE_COMPOUND_HEAD]
    test rax, rax
    cmovne rdi, rax
    call folio_unlock
    EPILOGUE
ENDFUNC unlock_page

FUNC folio_wake_bit                     # rdi folio, esi bit
    ENTER1
    push 0
    mov rbx, rdi
    lock and dword ptr [rdi+PAGE_FLAGS], ~PG_WAITERS    # sleepers set it again
    call folio_waitqueue
    mov rdi, rax
    mov esi, TASK_NORMAL
    xor edx, edx
    mov rcx, rbx
    call __wake_up
    LEAVE1
ENDFUNC folio_wake_bit

FUNC __folio_lock                       # rdi folio: sleep until it is ours
    ENTER2
    sub rsp, WAIT_SIZE + 8
    mov rbx, rdi
    call folio_waitqueue
    mov r12, rax
    mov rdi, rsp
    xor esi, esi
    call init_wait_entry
.Lagain:
    mov rdi, r12
    mov rsi, rsp
    mov edx, TASK_UNINTERRUPTIBLE
    call prepare_to_wait
    lock or dword ptr [rbx+PAGE_FLAGS], PG_WAITERS
    lock bts dword ptr [rbx+PAGE_FLAGS], 0
    jae .Llocked
    call schedule
    jmp .Lagain
.Llocked:
    mov rdi, r12
    mov rsi, rsp
    call finish_wait
    LEAVE2
ENDFUNC __folio_lock

# --- removing -------------------------------------------------------------------------------------

FUNC __filemap_remove_folio             # rdi folio (locked), rsi shadow; mapping locked
    ENTER2
    mov rbx, rdi
    mov r12, [rdi+PAGE_MAPPING]
    mov rdi, r12
    mov rsi, [rbx+PAGE_INDEX]
    xor edx, edx
    call xas_store
    mov qword ptr [rbx+PAGE_MAPPING], 0
    dec qword ptr [r12+MAPPING_NRPAGES]
    dec qword ptr [rip + nr_file_pages]
    LEAVE2
ENDFUNC __filemap_remove_folio

FUNC filemap_remove_folio               # rdi folio (locked)
    ENTER2
    mov rbx, rdi
    mov r12, [rdi+PAGE_MAPPING]
    lea rdi, [r12+MAPPING_LOCK]
    call _raw_spin_lock_irq
    mov rdi, rbx
    xor esi, esi
    call __filemap_remove_folio
    lea rdi, [r12+MAPPING_LOCK]
    call _raw_spin_unlock_irq
    mov rdi, rbx
    call folio_put                      # the cache's reference
    LEAVE2
ENDFUNC filemap_remove_folio

FUNC delete_from_page_cache_batch       # rdi mapping, rsi folio_batch of locked folios
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    xor r13d, r13d
    lea rdi, [rdi+MAPPING_LOCK]
    call _raw_spin_lock_irq
.Lremove:
    cmp r13, [r12+FBATCH_NR]
    jae .Lremoved
    mov rdi, [r12+r13*8+FBATCH_PAGES]
    xor esi, esi
    call __filemap_remove_folio
    inc r13
    jmp .Lremove
.Lremoved:
    lea rdi, [rbx+MAPPING_LOCK]
    call _raw_spin_unlock_irq
    xor r13d, r13d
.Lput:
    cmp r13, [r12+FBATCH_NR]
    jae .Lout
    mov rdi, [r12+r13*8+FBATCH_PAGES]
    call folio_put
    inc r13
    jmp .Lput
.Lout:
    LEAVE4
ENDFUNC delete_from_page_cache_batch

.data
.balign 8
OBJECT nr_file_pages
    .quad 0
ENDOBJECT nr_file_pages
folio_wait_table:
    .zero WQ_SIZE * 32
