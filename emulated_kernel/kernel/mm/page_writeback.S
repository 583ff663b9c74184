# mm/page-writeback.c: dirty folios, and how they become clean.

.text

FUNC folio_mark_dirty                   # rdi folio; al whether it was clean
    PROLOGUE
    mov rsi, rdi
    mov rdi, [rdi+PAGE_MAPPING]
    test rdi, rdi
    je .Lanonymous
    mov rax, [rdi+MAPPING_OPS]
    call [rax+AOP_DIRTY_FOLIO]
    EPILOGUE
.Lanonymous:
    xor edi, edi
    call noop_dirty_folio
    EPILOGUE
ENDFUNC folio_mark_dirty

FUNC set_page_dirty                     # rdi page; al whether it was clean
    PROLOGUE
    mov rax, [rdi+PAGE_COMPOUND_HEAD]
    test rax, rax
    cmovne rdi, rax
    call folio_mark_dirty
    EPILOGUE
ENDFUNC set_page_dirty

FUNC noop_dirty_folio                   # rdi mapping, rsi folio; al: there is nowhere to write it to
    PROLOGUE
    xor eax, eax
    test dword ptr [rsi+PAGE_FLAGS], PG_DIRTY
    jne .Lout
    lock or dword ptr [rsi+PAGE_FLAGS], PG_DIRTY
    mov eax, 1
.Lout:
    EPILOGUE
ENDFUNC noop_dirty_folio

FUNC filemap_dirty_folio                # rdi mapping, rsi folio; al whether it was clean
    PROLOGUE
    xor eax, eax
    test dword ptr [rsi+PAGE_FLAGS], PG_DIRTY
    jne .Lout
    lock or dword ptr [rsi+PAGE_FLAGS], PG_DIRTY
    lock inc qword ptr [rip + nr_dirty]
    mov rdi, [rdi+MAPPING_HOST]
    mov esi, I_DIRTY_PAGES
    call __mark_inode_dirty
    mov eax, 1
.Lout:
    EPILOGUE
ENDFUNC filemap_dirty_folio

FUNC folio_clear_dirty_for_io           # rdi folio (locked); al whether it was dirty
    PROLOGUE
    xor eax, eax
    lock btr dword ptr [rdi+PAGE_FLAGS], 3
    jae .Lout
    lock dec qword ptr [rip + nr_dirty]
    mov eax, 1
.Lout:
    EPILOGUE
ENDFUNC folio_clear_dirty_for_io

FUNC balance_dirty_pages_ratelimited    # rdi mapping
    PROLOGUE
    xor esi, esi
    call balance_dirty_pages_ratelimited_flags
    EPILOGUE
ENDFUNC balance_dirty_pages_ratelimited

# A writer may go on; now and then it starts the writing back of what it has dirtied.
FUNC balance_dirty_pages_ratelimited_flags
    PROLOGUE
    mov rax, [rdi+MAPPING_HOST]
    mov rax, [rax+INODE_SB]
    test qword ptr [rax+SB_FLAGS], SB_I_WRITEBACK
    je .Lout
    inc dword ptr [rip + bdp_ratelimits]
    cmp dword ptr [rip + bdp_ratelimits], RATELIMIT_PAGES
    jb .Lout
    mov dword ptr [rip + bdp_ratelimits], 0
    xor esi, esi
    call do_writepages
.Lout:
    xor eax, eax
    EPILOGUE
ENDFUNC balance_dirty_pages_ratelimited_flags

RATELIMIT_PAGES = 32

FUNC do_writepages                      # rdi mapping, esi whether to wait; eax 0 or error
    PROLOGUE
    mov rax, [rdi+MAPPING_OPS]
    mov rax, [rax+AOP_WRITEPAGES]
    test rax, rax
    je .Lout
    call rax
.Lout:
    EPILOGUE
ENDFUNC do_writepages

# Hand each dirty folio of mapping rdi to rsi(folio, rdx), locked and clean; it unlocks. eax 0 or error.
FUNC write_cache_pages
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    xor r14d, r14d
.Lnext:
    mov rdi, rbx
    mov rsi, r14
    mov rdx, -1
    call xas_find
    test rax, rax
    je .Ldone
    lea r14, [rdx+1]
    test dword ptr [rax+PAGE_FLAGS], PG_DIRTY
    je .Lnext
    mov r15, rax
    GET_PAGE r15
    lock bts dword ptr [r15+PAGE_FLAGS], 0
    jae .Llocked
    mov rdi, r15
    call __folio_lock
.Llocked:
    cmp [r15+PAGE_MAPPING], rbx
    jne .Lskip
    mov rdi, r15
    call folio_clear_dirty_for_io
    test al, al
    je .Lskip
    mov rdi, r15
    mov rsi, r13
    call r12
    mov [rbp-48], rax
    mov rdi, r15
    call folio_put
    call __cond_resched
    cmp dword ptr [rbp-48], 0
    je .Lnext
    mov eax, [rbp-48]
    jmp .Lout
.Lskip:
    mov rdi, r15
    call folio_unlock
    mov rdi, r15
    call folio_put
    jmp .Lnext
.Ldone:
    xor eax, eax
.Lout:
    LEAVE5
ENDFUNC write_cache_pages

FUNC __filemap_fdatawrite_range         # rdi mapping, rsi start, rdx end, ecx whether to wait
    PROLOGUE
    cmp qword ptr [rdi+MAPPING_NRPAGES], 0
    je .Lclean
    mov esi, ecx
    call filemap_fdatawrite_wbc
    EPILOGUE
.Lclean:
    xor eax, eax
    EPILOGUE
ENDFUNC __filemap_fdatawrite_range

FUNC filemap_fdatawrite_wbc             # rdi mapping, esi whether to wait; eax 0 or error
    PROLOGUE
    call do_writepages
    EPILOGUE
ENDFUNC filemap_fdatawrite_wbc

FUNC filemap_write_and_wait_range       # rdi mapping, rsi start, rdx end; eax 0 or error
    PROLOGUE
    mov ecx, 1
    call __filemap_fdatawrite_range
    EPILOGUE
ENDFUNC filemap_write_and_wait_range

FUNC file_write_and_wait_range          # rdi file, rsi start, rdx end; eax 0 or error
    PROLOGUE
    mov rdi, [rdi+FILE_MAPPING]
    mov ecx, 1
    call __filemap_fdatawrite_range
    EPILOGUE
ENDFUNC file_write_and_wait_range

.data
.balign 8
OBJECT nr_dirty
    .quad 0
ENDOBJECT nr_dirty
OBJECT bdp_ratelimits
    .long 0
ENDOBJECT bdp_ratelimits
