# mm/truncate.c: taking pages out of an address space.

.text

# rdi folio, locked: it will not be written any more.
FUNC truncate_cleanup_folio
    PROLOGUE
    test dword ptr [rdi+PAGE_FLAGS], PG_DIRTY
    je .Lout
    call __folio_cancel_dirty
.Lout:
    EPILOGUE
ENDFUNC truncate_cleanup_folio

FUNC __folio_cancel_dirty               # rdi folio
    PROLOGUE
    lock btr dword ptr [rdi+PAGE_FLAGS], 3
    jae .Lout
    mov rax, [rdi+PAGE_MAPPING]
    test rax, rax
    je .Lout
    mov rax, [rax+MAPPING_HOST]
    mov rax, [rax+INODE_SB]
    test qword ptr [rax+SB_FLAGS], SB_I_WRITEBACK
    je .Lout
    lock dec qword ptr [rip + nr_dirty]
.Lout:
    EPILOGUE
ENDFUNC __folio_cancel_dirty

# find_lock_entries and find_get_entries up to a folio rax that was found, and from there on.
.macro FIND_ENTRIES
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov qword ptr [rcx+FBATCH_NR], 0
    call __rcu_read_lock
.Lnext:
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call xas_find
    test rax, rax
    je .Lout
    lea r12, [rdx+1]
.endm

.macro FOUND_ENTRY
    GET_PAGE rax
    mov rcx, [r14+FBATCH_NR]
    mov [r14+rcx*8+FBATCH_PAGES], rax
    inc rcx
    mov [r14+FBATCH_NR], rcx
    cmp ecx, PAGEVEC_SIZE
    jb .Lnext
.Lout:
    call __rcu_read_unlock
    mov eax, [r14+FBATCH_NR]
    LEAVE4
.endm

# rdi mapping, rsi first and rdx last index, rcx folio_batch, filled with folios locked and held;
# eax how many.
FUNC find_lock_entries
    FIND_ENTRIES
    lock bts dword ptr [rax+PAGE_FLAGS], 0
    jb .Lnext                           # busy: the second round waits for it
    FOUND_ENTRY
ENDFUNC find_lock_entries

# As find_lock_entries, but the folios are only held.
FUNC find_get_entries
    FIND_ENTRIES
    FOUND_ENTRY
ENDFUNC find_get_entries

# Zero what of its page lies behind byte rsi of mapping rdi.
FUNC truncate_inode_partial_folio
    ENTER2
    mov r12, rsi
    shr rsi, PAGE_SHIFT
    mov edx, FGP_LOCK
    xor ecx, ecx
    call __filemap_get_folio
    test rax, rax
    je .Lout
    mov rbx, rax
    mov rdi, rax
    PAGE_TO_VIRT rdi
    and r12d, PAGE_BYTES - 1
    add rdi, r12
    mov ecx, PAGE_BYTES
    sub ecx, r12d
    xor eax, eax
    rep stosb
    mov rdi, rbx
    call folio_unlock
    mov rdi, rbx
    call folio_put
.Lout:
    LEAVE2
ENDFUNC truncate_inode_partial_folio

TRUNCATE_FBATCH = 40 + FBATCH_BYTES     # locals of truncate_inode_pages_range, below rbp

FUNC truncate_inode_pages_range         # rdi mapping, rsi first and rdx last byte (-1: the end)
    ENTER5
    sub rsp, FBATCH_BYTES + 8
    mov rbx, rdi
    cmp qword ptr [rdi+MAPPING_NRPAGES], 0
    je .Lout
    lea r12, [rsi+PAGE_BYTES-1]
    shr r12, PAGE_SHIFT                 # first whole page
    mov r13, rdx
    cmp rdx, -1
    je .Lfirst
    inc r13
    shr r13, PAGE_SHIFT
    dec r13
.Lfirst:
    test esi, PAGE_BYTES - 1
    je .Lbatch
    call truncate_inode_partial_folio
.Lbatch:
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    lea rcx, [rbp-TRUNCATE_FBATCH]
    call find_lock_entries
    test eax, eax
    je .Lrest
    xor r14d, r14d
.Lclean:
    mov rdi, [rbp+r14*8-TRUNCATE_FBATCH+FBATCH_PAGES]
    call truncate_cleanup_folio
    inc r14
    cmp r14, [rbp-TRUNCATE_FBATCH+FBATCH_NR]
    jb .Lclean
    mov rdi, rbx
    lea rsi, [rbp-TRUNCATE_FBATCH]
    call delete_from_page_cache_batch
    xor r14d, r14d
.Lunlock:
    mov rdi, [rbp+r14*8-TRUNCATE_FBATCH+FBATCH_PAGES]
    call folio_unlock
    inc r14
    cmp r14, [rbp-TRUNCATE_FBATCH+FBATCH_NR]
    jb .Lunlock
    lea rdi, [rbp-TRUNCATE_FBATCH]
    call __pagevec_release
    call __cond_resched
    jmp .Lbatch
.Lrest:                                 # those that were busy
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    lea rcx, [rbp-TRUNCATE_FBATCH]
    call find_get_entries
    test eax, eax
    je .Lout
    xor r14d, r14d
.Lwait:
    mov r15, [rbp+r14*8-TRUNCATE_FBATCH+FBATCH_PAGES]
    lock bts dword ptr [r15+PAGE_FLAGS], 0
    jae .Llocked
    mov rdi, r15
    call __folio_lock
.Llocked:
    cmp [r15+PAGE_MAPPING], rbx
    jne .Lgone
    mov rdi, r15
    call truncate_cleanup_folio
    mov rdi, r15
    call filemap_remove_folio
.Lgone:
    mov rdi, r15
    call folio_unlock
    inc r14
    cmp r14, [rbp-TRUNCATE_FBATCH+FBATCH_NR]
    jb .Lwait
    lea rdi, [rbp-TRUNCATE_FBATCH]
    call __pagevec_release
    jmp .Lrest
.Lout:
    LEAVE5
ENDFUNC truncate_inode_pages_range

FUNC truncate_inode_pages               # rdi mapping, rsi first byte
    PROLOGUE
    mov rdx, -1
    call truncate_inode_pages_range
    EPILOGUE
ENDFUNC truncate_inode_pages

FUNC truncate_inode_pages_final         # rdi mapping of an inode that goes
    PROLOGUE
    cmp qword ptr [rdi+MAPPING_NRPAGES], 0
    je .Lout
    xor esi, esi
    call truncate_inode_pages
.Lout:
    EPILOGUE
ENDFUNC truncate_inode_pages_final

FUNC truncate_pagecache                 # rdi inode, rsi new size
    PROLOGUE
    mov rdi, [rdi+INODE_MAPPING]
    call truncate_inode_pages
    EPILOGUE
ENDFUNC truncate_pagecache

FUNC truncate_setsize                   # rdi inode, rsi new size
    PROLOGUE
    mov rax, [rdi+INODE_SIZE]
    mov [rdi+INODE_SIZE], rsi
    cmp rsi, rax
    jle .Lshrunk
    mov rdx, rsi
    mov rsi, rax
    call pagecache_isize_extended
    EPILOGUE
.Lshrunk:
    call truncate_pagecache
    EPILOGUE
ENDFUNC truncate_setsize

# What lies behind the old end in its page becomes visible: it must be zeros. rdi inode, rsi from, rdx to.
FUNC pagecache_isize_extended
    PROLOGUE
    test esi, PAGE_BYTES - 1
    je .Lout
    mov rdi, [rdi+INODE_MAPPING]
    call truncate_inode_partial_folio
.Lout:
    EPILOGUE
ENDFUNC pagecache_isize_extended
