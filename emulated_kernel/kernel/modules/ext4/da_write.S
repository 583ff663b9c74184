# fs/ext4/inode.c: writing into pages with delayed allocation. A write only promises the file a block; writing
# back finds one.

.text

# rdi inode: promise it a block; eax 0 or -ENOSPC. With the first one goes a block for a leaf of extents.
FUNC ext4_da_reserve_space
    ENTER2
    EXT4_I rbx, rdi
    mov r12d, 1
    cmp dword ptr [rbx + EI_RESERVED], 1
    adc r12d, 0
    mov rdi, [rdi + INODE_SB]
    mov esi, r12d
    mov edx, EXT4_ROOT_BLOCKS
    call ext4_has_free_clusters
    test al, al
    mov eax, -ENOSPC
    je .Lout
    lock inc dword ptr [rbx + EI_RESERVED]
    lock add [rip + ext4_s_dirtyclusters], r12d
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC ext4_da_reserve_space

FUNC ext4_da_update_reserve_space       # rdi inode, esi promised blocks that it has now
    PROLOGUE
    call ext4_da_release_space
    EPILOGUE
ENDFUNC ext4_da_update_reserve_space

FUNC ext4_da_release_space              # rdi inode, esi promised blocks that it will not need
    PROLOGUE
    test esi, esi
    je .Lout
    EXT4_I rcx, rdi
    lock sub [rcx + EI_RESERVED], esi
    jne .Lsome
    inc esi
.Lsome:
    lock sub [rip + ext4_s_dirtyclusters], esi
.Lout:
    EPILOGUE
ENDFUNC ext4_da_release_space

# A block is about to be written into: rdi inode, esi block, rdx ext4_map_blocks; eax 0 or error. It is
# found, or promised.
FUNC ext4_da_get_block_prep
    ENTER2
    mov rbx, rdi
    mov r12, rdx
    mov [rdx + EM_LBLK], esi
    mov dword ptr [rdx + EM_LEN], 1
    mov rsi, rdi
    xor edi, edi
    xor ecx, ecx
    call ext4_map_blocks
    test eax, eax
    jl .Lout
    jg .Lfound
    test dword ptr [r12 + EM_FLAGS], EXT4_MAP_DELAYED
    jne .Lfound
    mov rdi, rbx
    mov esi, [r12 + EM_LBLK]
    call ext4_insert_delayed_block
    mov dword ptr [r12 + EM_FLAGS], EXT4_MAP_NEW | EXT4_MAP_DELAYED
    LEAVE2
.Lfound:
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC ext4_da_get_block_prep

FUNC ext4_insert_delayed_block          # rdi inode, esi block; eax 0 or error
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    call ext4_da_reserve_space
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov esi, r12d
    call ext4_es_insert_delayed_block
    test eax, eax
    je .Lout
    mov r12d, eax
    mov rdi, rbx
    mov esi, 1
    call ext4_da_release_space
    mov eax, r12d
.Lout:
    LEAVE2
ENDFUNC ext4_insert_delayed_block

# The part of a page that a write leaves alone has to be there: rdi page, rsi position, edx length; eax 0 or
# error (__block_write_begin).
FUNC ext4_block_write_begin
    ENTER4
    sub rsp, EM_BYTES + 8
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov r14, [rdi + PAGE_MAPPING]
    mov r14, [r14 + MAPPING_HOST]
    mov rdi, r14
    mov rsi, [rbx + PAGE_INDEX]
    mov rdx, rsp
    call ext4_da_get_block_prep
    test eax, eax
    jne .Lout
    test dword ptr [rbx + PAGE_FLAGS], PG_UPTODATE
    jne .Lout
    cmp r13d, PAGE_BYTES
    je .Lout
    mov rdi, r14                        # a block that is new is read as zeros
    mov rsi, rbx
    call ext4_folio_read_block
.Lout:
    LEAVE4
ENDFUNC ext4_block_write_begin

# rdi file, rsi mapping, rdx position, ecx length, r8 page **, r9 fsdata **; eax 0 or error
FUNC ext4_da_write_begin
    ENTER5
    sub rsp, 24
    mov rbx, rsi
    mov r12, rdx
    mov r13d, ecx
    mov r14, r8
    mov dword ptr [rsp], 0
.Lretry:
    mov rdi, rbx
    mov rsi, r12
    shr rsi, PAGE_SHIFT
    call grab_cache_page_write_begin
    mov r15, rax
    test rax, rax
    mov eax, -ENOMEM
    je .Lout
    mov rdi, r15
    mov rsi, r12
    mov edx, r13d
    call ext4_block_write_begin
    test eax, eax
    jne .Lfailed
    mov [r14], r15
    LEAVE5
.Lfailed:
    mov [rsp + 8], eax
    mov rdi, r15
    call unlock_page
    mov rdi, r15
    call folio_put
    mov eax, [rsp + 8]
    cmp eax, -ENOSPC
    jne .Lout
    mov rdi, [rbx + MAPPING_HOST]
    mov rdi, [rdi + INODE_SB]
    mov rsi, rsp
    call ext4_should_retry_alloc
    test eax, eax
    jne .Lretry
    mov eax, -ENOSPC
.Lout:
    LEAVE5
ENDFUNC ext4_da_write_begin

# Has the block of a page a place already, so that the file may be as long on the disk as the write makes it?
FUNC ext4_da_should_update_i_disksize   # rdi page; al
    PROLOGUE
    sub rsp, EM_BYTES + 8
    mov rax, [rdi + PAGE_INDEX]
    mov [rsp + EM_LBLK], eax
    mov dword ptr [rsp + EM_LEN], 1
    mov rsi, [rdi + PAGE_MAPPING]
    mov rsi, [rsi + MAPPING_HOST]
    xor edi, edi
    mov rdx, rsp
    xor ecx, ecx
    call ext4_map_blocks
    test eax, eax
    setg al
    movzx eax, al
    leave
    ret
ENDFUNC ext4_da_should_update_i_disksize

# rdi file, rsi mapping, rdx position, ecx length, r8d copied, r9 page, fsdata; eax bytes taken
FUNC ext4_da_write_end
    ENTER5
    push 0
    mov rbx, r9
    mov r12, [rsi + MAPPING_HOST]
    mov r13, rdx
    mov r14d, r8d
    test dword ptr [r9 + PAGE_FLAGS], PG_UPTODATE
    jne .Ltake
    cmp ecx, PAGE_BYTES
    jne .Lwhole
    cmp r8d, ecx
    je .Lwhole
    xor r14d, r14d                      # the rest of the page is not there
    jmp .Lsize
.Lwhole:
    lock or dword ptr [rbx + PAGE_FLAGS], PG_UPTODATE
.Ltake:
    test r14d, r14d
    je .Lsize
    mov rdi, rbx
    call set_page_dirty
.Lsize:
    mov eax, r14d
    add r13, rax
    xor r15d, r15d
    cmp r13, [r12 + INODE_SIZE]
    jle .Lunlock
    mov [r12 + INODE_SIZE], r13
    mov r15d, 1
    mov rdi, rbx
    call ext4_da_should_update_i_disksize
    test al, al
    je .Lunlock
    EXT4_I rcx, r12
    mov [rcx + EI_DISKSIZE], r13
.Lunlock:
    mov rdi, rbx
    call unlock_page
    mov rdi, rbx
    call folio_put
    test r15d, r15d
    je .Lout
    mov rdi, r12
    mov esi, I_DIRTY_SYNC | I_DIRTY_DATASYNC
    call ext4_dirty_inode
.Lout:
    mov eax, r14d
    LEAVE5
ENDFUNC ext4_da_write_end

FUNC ext4_dirty_folio                   # rdi mapping, rsi folio; al whether it was clean
    PROLOGUE
    call filemap_dirty_folio
    EPILOGUE
ENDFUNC ext4_dirty_folio
