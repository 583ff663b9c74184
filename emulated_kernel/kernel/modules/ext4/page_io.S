# fs/ext4/readpage.c, inode.c, page-io.c: pages from the disk, and back to it. What was promised blocks gets
# them here, as unwritten extents that a work item converts once the data is there. The disk is memory,
# so what is submitted has ended when that returns.

.text

# --- reading --------------------------------------------------------------------------------------

# What the disk has for a page: rdi inode, rsi folio; eax 0 or error. It does not unlock.
FUNC_NOTRACE ext4_folio_read_block
    ENTER2
    sub rsp, EM_BYTES
    mov rbx, rsi
    mov rax, [rsi + PAGE_INDEX]
    mov [rsp + EM_LBLK], eax
    mov dword ptr [rsp + EM_LEN], 1
    mov rsi, rdi
    xor edi, edi
    mov rdx, rsp
    xor ecx, ecx
    call ext4_map_blocks
    test eax, eax
    jl .Lout
    mov rdi, rbx
    PAGE_TO_VIRT rdi
    test dword ptr [rsp + EM_FLAGS], EXT4_MAP_MAPPED
    je .Lzero
    mov rsi, [rsp + EM_PBLK]
    DISK_BLOCK rsi
    COPY_PAGE
    jmp .Lread
.Lzero:
    call clear_page_rep
.Lread:
    lock or dword ptr [rbx + PAGE_FLAGS], PG_UPTODATE
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC ext4_folio_read_block

FUNC mpage_end_io                       # rdi folio whose reading has ended
    PROLOGUE
    call folio_unlock
    EPILOGUE
ENDFUNC mpage_end_io

FUNC ext4_mpage_readpages               # rdi inode, rsi readahead or 0, rdx folio; eax 0 or error
    ENTER2
    mov rbx, rdx
    mov rsi, rdx
    call ext4_folio_read_block
    mov r12d, eax
    mov rdi, rbx
    call mpage_end_io
    mov eax, r12d
    LEAVE2
ENDFUNC ext4_mpage_readpages

FUNC ext4_read_folio                    # rdi file, rsi folio (locked); eax 0 or error
    PROLOGUE
    mov rdx, rsi
    mov rdi, [rsi + PAGE_MAPPING]
    mov rdi, [rdi + MAPPING_HOST]
    xor esi, esi
    call ext4_mpage_readpages
    EPILOGUE
ENDFUNC ext4_read_folio

# --- writing back ---------------------------------------------------------------------------------

# Dirty folios side by side, from index rsi on: rdi mapping, rdx folio_batch to fill with them, locked and
# clean; rax the index to look from next, or 0: there is none.
FUNC mpage_prepare_extent_to_map
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov qword ptr [rdx + FBATCH_NR], 0
.Lnext:
    mov rdi, rbx
    mov rsi, r12
    mov rdx, -1
    call xas_find
    test rax, rax
    je .Lend
    mov r14, rax
    mov r15, rdx
    cmp qword ptr [r13 + FBATCH_NR], 0
    je .Lfirst
    cmp r15, r12                        # a gap ends the extent
    jne .Lfull
.Lfirst:
    lea r12, [r15 + 1]
    test dword ptr [r14 + PAGE_FLAGS], PG_DIRTY
    je .Lclean
    GET_PAGE r14
    lock bts dword ptr [r14 + PAGE_FLAGS], 0
    jae .Llocked
    mov rdi, r14
    call __folio_lock
.Llocked:
    cmp [r14 + PAGE_MAPPING], rbx
    jne .Lskip
    mov rdi, r14
    call folio_clear_dirty_for_io
    test al, al
    je .Lskip
    mov rax, [r13 + FBATCH_NR]
    mov [r13 + rax*8 + FBATCH_PAGES], r14
    inc rax
    mov [r13 + FBATCH_NR], rax
    cmp rax, PAGEVEC_SIZE
    jb .Lnext
    jmp .Lfull
.Lskip:
    mov rdi, r14
    call folio_unlock
    mov rdi, r14
    call folio_put
.Lclean:
    cmp qword ptr [r13 + FBATCH_NR], 0
    je .Lnext
.Lfull:
    mov rax, r12
    LEAVE5
.Lend:
    xor eax, eax
    cmp [r13 + FBATCH_NR], rax
    cmovne rax, r12
    LEAVE5
ENDFUNC mpage_prepare_extent_to_map

# Blocks for dirty pages: rdi handle, rsi inode, rdx ext4_map_blocks; eax how many, or error.
FUNC mpage_map_one_extent
    ENTER3
    sub rsp, ES_BYTES
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov rdi, rsi
    mov esi, [rdx + EM_LBLK]
    xor edx, edx
    mov rcx, rsp
    call ext4_es_lookup_extent
    mov ecx, EXT4_GET_BLOCKS_CREATE | EXT4_GET_BLOCKS_UNWRIT_EXT
    test eax, eax
    je .Lmap
    test dword ptr [rsp + ES_STATUS], EXTENT_STATUS_DELAYED
    je .Lmap
    or ecx, EXT4_GET_BLOCKS_DELALLOC_RESERVE
.Lmap:
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call ext4_map_blocks
    LEAVE3
ENDFUNC mpage_map_one_extent

# rdi inode, rsi folio, edx block of the disk: its data go there, zeros behind the end of the file.
FUNC ext4_bio_write_page
    ENTER3
    push 0
    mov rbx, rsi
    mov r13d, edx
    mov r12, [rdi + INODE_SIZE]
    mov rdi, rsi
    PAGE_TO_VIRT rdi
    mov rax, [rbx + PAGE_INDEX]
    shl rax, PAGE_SHIFT
    sub r12, rax                        # bytes of the file in this page
    mov ecx, PAGE_BYTES
    cmp r12, rcx
    jge .Lsubmit
    sub ecx, r12d
    add rdi, r12
    xor eax, eax
    rep stosb
.Lsubmit:
    mov rsi, rbx
    PAGE_TO_VIRT rsi
    mov rdi, r13
    DISK_BLOCK rdi
    COPY_PAGE
    xor eax, eax
    LEAVE3
ENDFUNC ext4_bio_write_page

FUNC ext4_init_io_end                   # rdi inode, esi gfp; rax io_end or 0
    ENTER1
    push 0
    mov rbx, rdi
    mov edi, IOE_BYTES
    or esi, GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lout
    mov [rax + IOE_INODE], rbx
.Lout:
    LEAVE1
ENDFUNC ext4_init_io_end

FUNC ext4_io_submit                     # rdi io_end of blocks that have been sent to the disk
    PROLOGUE
    call ext4_end_bio
    EPILOGUE
ENDFUNC ext4_io_submit

FUNC ext4_end_bio                       # rdi io_end: the disk has its blocks
    PROLOGUE
    call ext4_put_io_end_defer
    EPILOGUE
ENDFUNC ext4_end_bio

FUNC ext4_put_io_end_defer              # rdi io_end: its extent becomes written, but not here
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, [rdi + IOE_INODE]
    EXT4_I r12, r12
    lea rdi, [r12 + EI_COMPLETED_LOCK]
    call _raw_spin_lock_irqsave
    mov r13, rax
    lea rdi, [r12 + EI_RSV_LIST]
    LIST_ADD_TAIL rbx, rdi, rax
    lea rdi, [r12 + EI_COMPLETED_LOCK]
    mov rsi, r13
    call _raw_spin_unlock_irqrestore
    mov edi, WORK_CPU_UNBOUND
    mov rsi, [rip + ext4_rsv_conversion_wq]
    lea rdx, [r12 + EI_RSV_WORK]
    call queue_work_on
    LEAVE3
ENDFUNC ext4_put_io_end_defer

FUNC ext4_end_io_rsv_work               # rdi the inode's work
    PROLOGUE
    mov rdi, [rdi - EI_RSV_WORK + EI_INODE]
    call ext4_do_flush_completed_IO
    EPILOGUE
ENDFUNC ext4_end_io_rsv_work

FUNC ext4_do_flush_completed_IO         # rdi inode; eax 0, or the last error
    ENTER4
    mov r12, rdi
    EXT4_I rbx, rdi
    xor r14d, r14d
.Lnext:
    lea rdi, [rbx + EI_COMPLETED_LOCK]
    call _raw_spin_lock_irqsave
    mov rsi, rax
    lea rdi, [rbx + EI_RSV_LIST]
    xor r13d, r13d
    mov rax, [rdi]
    cmp rax, rdi
    je .Lunlock
    mov r13, rax
    LIST_DEL rax, rcx, rdx
.Lunlock:
    lea rdi, [rbx + EI_COMPLETED_LOCK]
    call _raw_spin_unlock_irqrestore
    test r13, r13
    je .Lout
    mov rdi, r13
    call ext4_end_io_end
    test eax, eax
    cmovne r14d, eax
    jmp .Lnext
.Lout:
    mov eax, r14d
    LEAVE4
ENDFUNC ext4_do_flush_completed_IO

FUNC ext4_end_io_end                    # rdi io_end; eax 0 or error
    ENTER2
    mov rbx, rdi
    call ext4_convert_unwritten_io_end_vec
    mov r12d, eax
    mov rdi, rbx
    call kfree
    mov eax, r12d
    LEAVE2
ENDFUNC ext4_end_io_end

FUNC ext4_convert_unwritten_io_end_vec  # rdi io_end; eax 0 or error
    ENTER4
    mov rbx, rdi
    mov r12, [rdi + IOE_INODE]
    EXT4_JOURNAL_START r13, r12, EXT4_CREDITS, .Lout
    EXT4_I rdi, r12
    add rdi, EI_DATA_SEM
    call down_write
    mov rdi, r13
    mov rsi, r12
    mov edx, [rbx + IOE_LBLK]
    mov ecx, [rbx + IOE_PBLK]
    call ext4_convert_unwritten_extents_endio
    mov r14d, eax
    EXT4_I rdi, r12
    add rdi, EI_DATA_SEM
    call up_write
    mov rdi, r13
    mov rsi, r12
    call __ext4_mark_inode_dirty
    mov rdi, r13
    call __ext4_journal_stop
    mov eax, r14d
.Lout:
    LEAVE4
ENDFUNC ext4_convert_unwritten_io_end_vec

# There are no blocks for dirty pages, and never will be: rdi folio_batch. What was written is lost, as the
# file's writers learn from fsync; else a sync would never end.
FUNC mpage_release_unused_pages
    ENTER2
    mov rbx, rdi
    xor r12d, r12d
.Lfolio:
    mov rdi, [rbx + r12*8 + FBATCH_PAGES]
    lock bts dword ptr [rdi + PAGE_FLAGS], 0
    jae .Llocked
    call __folio_lock
    mov rdi, [rbx + r12*8 + FBATCH_PAGES]
.Llocked:
    call folio_clear_dirty_for_io
    mov rdi, [rbx + r12*8 + FBATCH_PAGES]
    call folio_unlock
    inc r12d
    cmp r12d, [rbx + FBATCH_NR]
    jb .Lfolio
    LEAVE2
ENDFUNC mpage_release_unused_pages

# rdi handle, rsi inode, rdx folio_batch of locked, clean folios side by side: find blocks for them, send
# them there and unlock them; eax 0 or error. Those left without a block are dirty again.
FUNC mpage_map_and_submit_extent
    ENTER5
    sub rsp, EM_BYTES + 16
    mov rbx, rdx
    mov r12, rsi
    mov r13, rdi
    xor r14d, r14d                      # the next folio
.Lextent:
    mov rax, [rbx + r14*8 + FBATCH_PAGES]
    mov rax, [rax + PAGE_INDEX]
    mov [rsp + EM_LBLK], eax
    mov eax, [rbx + FBATCH_NR]
    sub eax, r14d
    mov [rsp + EM_LEN], eax
    mov rdi, r13
    mov rsi, r12
    mov rdx, rsp
    call mpage_map_one_extent
    test eax, eax
    jle .Lfailed
    mov r15d, eax
    mov [rsp + EM_BYTES + 8], eax
.Lfolio:
    mov rdi, r12
    mov rsi, [rbx + r14*8 + FBATCH_PAGES]
    mov edx, [rsp + EM_PBLK]
    add edx, [rsp + EM_BYTES + 8]
    sub edx, r15d
    call ext4_bio_write_page
    mov rdi, [rbx + r14*8 + FBATCH_PAGES]
    call folio_unlock
    inc r14d
    dec r15d
    jne .Lfolio
    mov eax, [rsp + EM_FLAGS]
    and eax, EXT4_MAP_NEW | EXT4_MAP_UNWRITTEN
    cmp eax, EXT4_MAP_NEW | EXT4_MAP_UNWRITTEN
    jne .Lnext
    mov rdi, r12
    mov esi, GFP_KERNEL
    call ext4_init_io_end
    mov rdi, rax
    test rax, rax
    je .Lnomem
    mov ecx, [rsp + EM_LBLK]
    mov [rdi + IOE_LBLK], ecx
    mov ecx, [rsp + EM_BYTES + 8]
    mov [rdi + IOE_LEN], ecx
    mov ecx, [rsp + EM_PBLK]
    mov [rdi + IOE_PBLK], ecx
    call ext4_io_submit
.Lnext:
    cmp r14d, [rbx + FBATCH_NR]
    jb .Lextent
    xor r15d, r15d
    jmp .Lsize
.Lnomem:
    mov rdi, r13                        # at once then
    mov rsi, r12
    mov edx, [rsp + EM_LBLK]
    mov ecx, [rsp + EM_PBLK]
    call ext4_convert_unwritten_extents_endio
    jmp .Lnext
.Lfailed:
    mov r15d, eax
.Lagain:
    cmp r14d, [rbx + FBATCH_NR]
    jae .Lsize
    mov rdi, [rbx + r14*8 + FBATCH_PAGES]
    call set_page_dirty
    mov rdi, [rbx + r14*8 + FBATCH_PAGES]
    call folio_unlock
    inc r14d
    jmp .Lagain
.Lsize:
    mov rax, [rsp + EM_LBLK]           # the file is as long on the disk as it has blocks now
    mov eax, eax
    mov ecx, [rsp + EM_LEN]
    test r15d, r15d
    je .Lend
    xor ecx, ecx
.Lend:
    add rax, rcx
    shl rax, PAGE_SHIFT
    cmp rax, [r12 + INODE_SIZE]
    jle .Lwithin
    mov rax, [r12 + INODE_SIZE]
.Lwithin:
    EXT4_I rcx, r12
    cmp rax, [rcx + EI_DISKSIZE]
    jle .Lout
    mov [rcx + EI_DISKSIZE], rax
    mov rdi, r13
    mov rsi, r12
    call __ext4_mark_inode_dirty
.Lout:
    mov eax, r15d
    LEAVE5
ENDFUNC mpage_map_and_submit_extent

FUNC ext4_writepages                    # rdi mapping, esi whether to wait; eax 0 or error
    ENTER5
    sub rsp, FBATCH_BYTES + 24
    mov [rbp - 48], esi
    mov dword ptr [rbp - 56], 0         # how often there was no room
    mov rbx, rdi
    mov r12, [rdi + MAPPING_HOST]
    xor r13d, r13d
.Lextent:
    mov rdi, rbx
    mov rsi, r13
    mov rdx, -1
    call xas_find
    test rax, rax
    je .Lclean
    lea r13, [rdx + 1]
    test dword ptr [rax + PAGE_FLAGS], PG_DIRTY
    je .Lextent
    mov [rbp - 64], rdx
    EXT4_JOURNAL_START r14, r12, EXT4_CREDITS, .Lout
    mov rdi, rbx
    mov rsi, [rbp - 64]
    mov rdx, rsp
    call mpage_prepare_extent_to_map
    mov r13, rax
    xor r15d, r15d
    cmp qword ptr [rsp + FBATCH_NR], 0
    je .Lstop
    mov rdi, r14
    mov rsi, r12
    mov rdx, rsp
    call mpage_map_and_submit_extent
    mov r15d, eax
.Lstop:
    mov rdi, r14
    call __ext4_journal_stop
    xor r14d, r14d
    test r15d, r15d
    je .Lput
    cmp r15d, -ENOSPC
    jne .Lfailed
    mov rdi, [r12 + INODE_SB]
    lea rsi, [rbp - 56]
    call ext4_should_retry_alloc
    mov r14d, eax
    test eax, eax
    jne .Lput
.Lfailed:
    mov rdi, rsp
    call mpage_release_unused_pages
.Lput:
    lea rdi, [rsp + FBATCH_PAGES]
    mov rsi, [rsp + FBATCH_NR]
    call release_pages
    mov eax, r15d
    test r14d, r14d
    jne .Lagain
    test r15d, r15d
    jne .Lout
    test r13, r13
    jne .Lextent
    jmp .Lclean
.Lagain:
    mov r13, [rbp - 64]
    jmp .Lextent
.Lclean:
    xor eax, eax
    cmp dword ptr [rbp - 48], 0
    je .Lout
    mov rdi, r12
    call ext4_do_flush_completed_IO
.Lout:
    LEAVE5
ENDFUNC ext4_writepages
