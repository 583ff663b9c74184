# fs/ext4/inode.c, super.c: inodes from the disk's table and back, where their blocks are, and their end.
# Left out: the list of orphans (a crash leaves files that were removed while open), quotas.

.text

FUNC ext4_alloc_inode                   # rdi inode; rax its ext4_inode_info, or 0
    ENTER1
    push 0
    mov rbx, rdi
    mov edi, EI_BYTES
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lout
    mov [rbx + INODE_FS_DATA], rax
    mov [rax + EI_INODE], rbx
    mov rbx, rax
    lea rcx, [rbx + EI_ES_TREE]
    LIST_INIT rcx
    lea rcx, [rbx + EI_RSV_LIST]
    LIST_INIT rcx
    mov rax, offset ext4_end_io_rsv_work
    mov [rbx + EI_RSV_WORK + WORK_FUNC], rax
    lea rdi, [rbx + EI_DATA_SEM]
    call __init_rwsem
    mov rax, rbx
.Lout:
    LEAVE1
ENDFUNC ext4_alloc_inode

FUNC ext4_free_in_core_inode            # rdi inode: what was allocated beside it
    ENTER1
    push 0
    mov rbx, rdi
    xor esi, esi
    mov edx, EXT_MAX_BLOCKS
    call ext4_es_remove_extent
    xor edi, edi
    xchg rdi, [rbx + INODE_FS_DATA]
    call kfree
    LEAVE1
ENDFUNC ext4_free_in_core_inode

FUNC_NOTRACE ext4_set_inode_operations  # rdi inode
    mov eax, [rdi + INODE_MODE]
    and eax, S_IFMT
    mov rcx, offset ext4_dir_inode_operations
    mov rdx, offset ext4_dir_operations
    cmp eax, S_IFDIR
    je .Lset
    mov rcx, offset ext4_file_inode_operations
    mov rdx, offset ext4_file_operations
    mov rax, offset ext4_da_aops
    mov [rdi + INODE_DATA + MAPPING_OPS], rax
.Lset:
    mov [rdi + INODE_OP], rcx
    mov [rdi + INODE_FOP], rdx
    ret
ENDFUNC ext4_set_inode_operations

# --- the inode table ------------------------------------------------------------------------------

FUNC __ext4_get_inode_loc               # rdi super block, rsi inode number, rdx ext4_iloc to fill; eax
    ENTER2
    mov rbx, rdx
    mov eax, -EUCLEAN
    lea r12, [rsi - 1]
    cmp r12, NR_INODES
    jae .Lout
    shl r12, 7
    mov rsi, r12
    shr rsi, PAGE_SHIFT
    add rsi, INODE_TABLE_BLOCK
    and r12d, PAGE_BYTES - 1
    xor edx, edx
    call ext4_sb_bread
    cmp rax, ERR_MIN
    jae .Lout
    mov [rbx + ILOC_BH], rax
    add r12, [rax + JB_DATA]
    mov [rbx + ILOC_RAW], r12
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC __ext4_get_inode_loc

FUNC ext4_get_inode_loc                 # rdi inode, rsi ext4_iloc to fill; eax 0 or error
    PROLOGUE
    mov rdx, rsi
    mov rsi, [rdi + INODE_INO]
    mov rdi, [rdi + INODE_SB]
    call __ext4_get_inode_loc
    EPILOGUE
ENDFUNC ext4_get_inode_loc

# rdi super block, esi inode number: rax the inode that is in use already, with a reference, or 0.
FUNC_NOTRACE ext4_find_inode
    ENTER3
    push 0
    mov rbx, rdi
    mov r12d, esi
    lea rdi, [rdi + SB_INODE_LOCK]
    call _raw_spin_lock
    lea rcx, [rbx + SB_INODES]
    mov rax, rcx
.Lnext:
    xor r13d, r13d
    mov rax, [rax]
    cmp rax, rcx
    je .Lunlock
    lea r13, [rax - INODE_SB_LIST]
    cmp [r13 + INODE_INO], r12
    jne .Lnext
    lock inc dword ptr [r13 + INODE_COUNT]
.Lunlock:
    lea rdi, [rbx + SB_INODE_LOCK]
    call _raw_spin_unlock
    mov rax, r13
    LEAVE3
ENDFUNC ext4_find_inode

# A time of the raw inode at r12: \raw its field, \field the inode's.
.macro GET_TIME raw, field
    movsxd rax, dword ptr [r12 + \raw]
    mov [rbx + \field], rax
.endm
.macro PUT_TIME raw, field
    mov eax, [rbx + \field]
    mov [r12 + \raw], eax
.endm

FUNC __ext4_iget                        # rdi super block, rsi inode number, edx flags; rax inode or error
    ENTER3
    sub rsp, ILOC_BYTES + 8
    mov r12, rdi
    mov r13, rsi
    call ext4_find_inode
    test rax, rax
    jne .Lout
    mov rdi, r12
    call new_inode
    test rax, rax
    je .Lnomem
    mov rbx, rax
    mov [rbx + INODE_INO], r13
    mov rdi, rax
    call ext4_alloc_inode
    mov r13, -ENOMEM
    test rax, rax
    je .Lbad
    mov rdi, rbx
    mov rsi, rsp
    call ext4_get_inode_loc
    movsxd r13, eax
    test eax, eax
    jne .Lbad
    mov r12, [rsp + ILOC_RAW]
    mov r13, -ESTALE
    movzx eax, word ptr [r12 + RAW_LINKS]
    test eax, eax
    je .Lbad
    mov [rbx + INODE_NLINK], eax
    movzx eax, word ptr [r12 + RAW_MODE]
    mov [rbx + INODE_MODE], eax
    movzx eax, word ptr [r12 + RAW_UID]
    mov [rbx + INODE_UID], eax
    movzx eax, word ptr [r12 + RAW_GID]
    mov [rbx + INODE_GID], eax
    mov eax, [r12 + RAW_BLOCKS]
    mov [rbx + INODE_BLOCKS], rax
    mov eax, [r12 + RAW_SIZE_HIGH]
    shl rax, 32
    mov ecx, [r12 + RAW_SIZE]
    or rax, rcx
    mov [rbx + INODE_SIZE], rax
    EXT4_I rcx, rbx
    mov [rcx + EI_DISKSIZE], rax
    GET_TIME RAW_ATIME, INODE_ATIME
    GET_TIME RAW_MTIME, INODE_MTIME
    GET_TIME RAW_CTIME, INODE_CTIME
    mov eax, [rip + ext4_journal + J_COMMIT_SEQUENCE]   # the last change may be one of the running transaction
    mov rdx, [rip + ext4_journal + J_RUNNING]
    test rdx, rdx
    je .Ltid
    mov eax, [rdx + TX_TID]
.Ltid:
    mov [rcx + EI_SYNC_TID], eax
    mov [rcx + EI_DATASYNC_TID], eax
    lea rdi, [rcx + EI_DATA]
    lea rsi, [r12 + RAW_BLOCK]
    mov edx, RAW_BLOCK_BYTES
    call memcpy
    mov rdi, rbx
    call ext4_set_inode_operations
    mov rax, rbx
.Lout:
    LEAVE3
.Lbad:
    mov rdi, rbx
    call iput
    mov rax, r13
    LEAVE3
.Lnomem:
    mov rax, -ENOMEM
    LEAVE3
ENDFUNC __ext4_iget

# Into its place in the table: rdi handle, rsi inode, rdx ext4_iloc; eax 0 or error.
FUNC ext4_do_update_inode
    ENTER4
    mov rbx, rsi
    mov r12, [rdx + ILOC_RAW]
    mov r13, rdi
    mov r14, [rdx + ILOC_BH]
    mov eax, [rbx + INODE_MODE]
    mov [r12 + RAW_MODE], ax
    mov eax, [rbx + INODE_UID]
    mov [r12 + RAW_UID], ax
    mov eax, [rbx + INODE_GID]
    mov [r12 + RAW_GID], ax
    mov eax, [rbx + INODE_NLINK]
    mov [r12 + RAW_LINKS], ax
    mov eax, [rbx + INODE_BLOCKS]
    mov [r12 + RAW_BLOCKS], eax
    PUT_TIME RAW_ATIME, INODE_ATIME
    PUT_TIME RAW_MTIME, INODE_MTIME
    PUT_TIME RAW_CTIME, INODE_CTIME
    mov dword ptr [r12 + RAW_FLAGS], EXT4_EXTENTS_FL
    EXT4_I rcx, rbx
    mov eax, [rcx + EI_DTIME]
    mov [r12 + RAW_DTIME], eax
    mov rax, [rcx + EI_DISKSIZE]
    mov [r12 + RAW_SIZE], eax
    shr rax, 32
    mov [r12 + RAW_SIZE_HIGH], eax
    lea rdi, [r12 + RAW_BLOCK]
    lea rsi, [rcx + EI_DATA]
    mov edx, RAW_BLOCK_BYTES
    call memcpy
    mov rdi, r13
    mov rsi, r14
    call __ext4_handle_dirty_metadata
    mov rcx, [r13 + HDL_TRANSACTION]      # ext4_update_inode_fsync_trans
    mov ecx, [rcx + TX_TID]
    EXT4_I rdx, rbx
    mov [rdx + EI_SYNC_TID], ecx
    mov [rdx + EI_DATASYNC_TID], ecx
    LEAVE4
ENDFUNC ext4_do_update_inode

FUNC ext4_mark_iloc_dirty               # rdi handle, rsi inode, rdx ext4_iloc; eax 0 or error
    PROLOGUE
    call ext4_do_update_inode
    EPILOGUE
ENDFUNC ext4_mark_iloc_dirty

FUNC ext4_reserve_inode_write           # rdi handle, rsi inode, rdx ext4_iloc to fill; eax 0 or error
    ENTER2
    mov rbx, rdi
    mov r12, rdx
    mov rdi, rsi
    mov rsi, rdx
    call ext4_get_inode_loc
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov rsi, [r12 + ILOC_BH]
    call __ext4_journal_get_write_access
.Lout:
    LEAVE2
ENDFUNC ext4_reserve_inode_write

FUNC __ext4_mark_inode_dirty            # rdi handle, rsi inode; eax 0 or error
    ENTER2
    sub rsp, ILOC_BYTES
    mov rbx, rdi
    mov r12, rsi
    mov rdx, rsp
    call ext4_reserve_inode_write
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov rsi, r12
    mov rdx, rsp
    call ext4_mark_iloc_dirty
.Lout:
    LEAVE2
ENDFUNC __ext4_mark_inode_dirty

FUNC ext4_dirty_inode                   # rdi inode, esi I_DIRTY_*: it has changed, not its pages
    ENTER2
    mov rbx, rdi
    test esi, I_DIRTY_SYNC | I_DIRTY_DATASYNC
    je .Lout
    EXT4_JOURNAL_START r12, rbx, 2, .Lout
    mov rdi, r12
    mov rsi, rbx
    call __ext4_mark_inode_dirty
    mov rdi, r12
    call __ext4_journal_stop
.Lout:
    LEAVE2
ENDFUNC ext4_dirty_inode

# --- its blocks -----------------------------------------------------------------------------------

# rdi handle or 0, rsi inode, rdx ext4_map_blocks, ecx EXT4_GET_BLOCKS_*: eax how many blocks from the first
# on lie together on the disk, 0 for a hole, or error.
FUNC ext4_map_blocks
    ENTER5
    sub rsp, ES_BYTES + 16
    mov rbx, rsi
    mov r12, rdx
    mov r13, rdi
    mov r14d, ecx
    mov dword ptr [r12 + EM_FLAGS], 0
    mov rdi, rsi
    mov esi, [r12 + EM_LBLK]
    xor edx, edx
    mov rcx, rsp
    call ext4_es_lookup_extent
    test eax, eax
    je .Lextents
    mov ecx, [r12 + EM_LBLK]
    sub ecx, [rsp + ES_LBLK]
    mov eax, [rsp + ES_LEN]
    sub eax, ecx
    cmp eax, [r12 + EM_LEN]
    jae .Llength
    mov [r12 + EM_LEN], eax
.Llength:
    add rcx, [rsp + ES_PBLK]
    mov edx, [rsp + ES_STATUS]
    mov eax, EXT4_MAP_DELAYED
    xor r15d, r15d
    test edx, EXTENT_STATUS_DELAYED
    jne .Lflags
    mov [r12 + EM_PBLK], rcx
    mov r15d, [r12 + EM_LEN]
    mov eax, EXT4_MAP_MAPPED
    test edx, EXTENT_STATUS_WRITTEN
    jne .Lflags
    mov eax, EXT4_MAP_UNWRITTEN
.Lflags:
    mov [r12 + EM_FLAGS], eax
    jmp .Lmapped
.Lextents:
    EXT4_I rdi, rbx
    add rdi, EI_DATA_SEM
    call down_read
    mov rdi, r13
    mov rsi, rbx
    mov rdx, r12
    xor ecx, ecx
    call ext4_ext_map_blocks
    mov r15d, eax
    EXT4_I rdi, rbx
    add rdi, EI_DATA_SEM
    call up_read
    mov eax, r15d
    test eax, eax
    jg .Lremember
    jl .Lout
.Lmapped:
    mov eax, r15d
    test r14d, EXT4_GET_BLOCKS_CREATE
    je .Lout
    test r15d, r15d
    jg .Lout
    EXT4_I rdi, rbx
    add rdi, EI_DATA_SEM
    call down_write
    mov dword ptr [r12 + EM_FLAGS], 0
    mov rdi, r13
    mov rsi, rbx
    mov rdx, r12
    mov ecx, r14d
    call ext4_ext_map_blocks
    mov r15d, eax
    EXT4_I rdi, rbx
    add rdi, EI_DATA_SEM
    call up_write
    mov eax, r15d
    test eax, eax
    jle .Lout
.Lremember:
    mov r8d, EXTENT_STATUS_WRITTEN
    test dword ptr [r12 + EM_FLAGS], EXT4_MAP_UNWRITTEN
    je .Linsert
    mov r8d, EXTENT_STATUS_UNWRITTEN
.Linsert:
    mov rdi, rbx
    mov esi, [r12 + EM_LBLK]
    mov edx, r15d
    mov rcx, [r12 + EM_PBLK]
    call ext4_es_insert_extent
    mov eax, r15d
.Lout:
    LEAVE5
ENDFUNC ext4_map_blocks

# A block of a directory: rdi handle, rsi inode, edx block, ecx EXT4_GET_BLOCKS_*; rax buffer, 0 for a
# hole, or error.
FUNC ext4_bread
    ENTER2
    sub rsp, EM_BYTES
    mov rbx, rdi
    mov r12, rsi
    mov [rsp + EM_LBLK], edx
    mov dword ptr [rsp + EM_LEN], 1
    mov rdx, rsp
    call ext4_map_blocks
    movsxd rax, eax
    test rax, rax
    jle .Lout
    mov rsi, [rsp + EM_PBLK]
    test dword ptr [rsp + EM_FLAGS], EXT4_MAP_NEW
    jne .Lnew
    mov rdi, [r12 + INODE_SB]
    xor edx, edx
    call ext4_sb_bread
.Lout:
    LEAVE2
.Lnew:
    call ext4_sb_getblk
    test rax, rax
    je .Lnomem
    mov r12, rax
    mov rdi, rbx
    mov rsi, rax
    call jbd2_journal_get_create_access
    mov rax, r12
    LEAVE2
.Lnomem:
    mov rax, -ENOMEM
    LEAVE2
ENDFUNC ext4_bread

# --- truncating -----------------------------------------------------------------------------------

# The rest of the page behind byte rdx becomes zero, on the disk as well: rdi handle, rsi mapping; eax.
FUNC ext4_block_truncate_page
    ENTER3
    sub rsp, EM_BYTES
    mov r12, rsi
    mov r13, rdx
    xor eax, eax
    test r13d, PAGE_BYTES - 1
    je .Lout
    mov rdx, r13
    shr rdx, PAGE_SHIFT
    mov [rsp + EM_LBLK], edx
    mov dword ptr [rsp + EM_LEN], 1
    mov rsi, [rsi + MAPPING_HOST]
    mov rdx, rsp
    xor ecx, ecx
    call ext4_map_blocks
    test dword ptr [rsp + EM_FLAGS], EXT4_MAP_MAPPED | EXT4_MAP_UNWRITTEN | EXT4_MAP_DELAYED
    je .Lout
    mov rdi, r12
    mov rsi, r13
    shr rsi, PAGE_SHIFT
    call grab_cache_page_write_begin
    mov rbx, rax
    test rax, rax
    mov eax, -ENOMEM
    je .Lout
    test dword ptr [rbx + PAGE_FLAGS], PG_UPTODATE
    jne .Lzero
    mov rdi, [r12 + MAPPING_HOST]
    mov rsi, rbx
    call ext4_folio_read_block
.Lzero:
    mov rdi, rbx
    PAGE_TO_VIRT rdi
    and r13d, PAGE_BYTES - 1
    add rdi, r13
    mov ecx, PAGE_BYTES
    sub ecx, r13d
    xor eax, eax
    rep stosb
    mov rdi, rbx
    call set_page_dirty
    mov rdi, rbx
    call unlock_page
    mov rdi, rbx
    call folio_put
    xor eax, eax
.Lout:
    LEAVE3
ENDFUNC ext4_block_truncate_page

FUNC ext4_truncate                      # rdi inode of its new, smaller size; eax 0 or error
    ENTER3
    push 0
    mov rbx, rdi
    EXT4_JOURNAL_START r12, rbx, EXT4_CREDITS, .Lout
    mov rdi, r12
    mov rsi, [rbx + INODE_MAPPING]
    mov rdx, [rbx + INODE_SIZE]
    call ext4_block_truncate_page
    EXT4_I rdi, rbx
    mov rax, [rbx + INODE_SIZE]
    mov [rdi + EI_DISKSIZE], rax
    add rdi, EI_DATA_SEM
    call down_write
    mov rdi, r12
    mov rsi, rbx
    call ext4_ext_truncate
    mov r13d, eax
    EXT4_I rdi, rbx
    add rdi, EI_DATA_SEM
    call up_write
    mov rdi, r12
    mov rsi, rbx
    call __ext4_mark_inode_dirty
    mov rdi, r12
    call __ext4_journal_stop
    mov eax, r13d
.Lout:
    LEAVE3
ENDFUNC ext4_truncate

FUNC ext4_setattr                       # rdi ns, rsi dentry, rdx iattr; eax 0 or error
    ENTER3
    push 0
    mov rbx, [rsi + DENTRY_INODE]
    mov r12, rdx
    call setattr_prepare
    test eax, eax
    jne .Lout
    test dword ptr [r12 + IATTR_VALID], ATTR_SIZE_BIT
    je .Lcopy
    mov rsi, [r12 + IATTR_SIZE]
    mov r13, [rbx + INODE_SIZE]
    cmp rsi, r13
    je .Lcopy
    mov rdi, rbx
    call ext4_do_flush_completed_IO     # whose blocks may be among those that go
    mov rdi, rbx
    mov rsi, [r12 + IATTR_SIZE]
    call truncate_setsize
    mov rax, [rbx + INODE_SIZE]
    cmp rax, r13
    jl .Lshrink
    EXT4_I rcx, rbx
    mov [rcx + EI_DISKSIZE], rax
    jmp .Lcopy
.Lshrink:
    mov rdi, rbx
    call ext4_truncate
    test eax, eax
    jne .Lout
.Lcopy:
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov rdx, r12
    call setattr_copy
    EXT4_JOURNAL_START r12, rbx, 2, .Lout
    mov rdi, r12
    mov rsi, rbx
    call __ext4_mark_inode_dirty
    mov r13d, eax
    mov rdi, r12
    call __ext4_journal_stop
    mov eax, r13d
.Lout:
    LEAVE3
ENDFUNC ext4_setattr

FUNC ext4_getattr                       # rdi ns, rsi path, rdx kstat, ecx mask, r8d flags; eax 0
    PROLOGUE
    mov rsi, [rsi + PATH_DENTRY]
    mov rsi, [rsi + DENTRY_INODE]
    call generic_fillattr
    xor eax, eax
    EPILOGUE
ENDFUNC ext4_getattr

FUNC ext4_file_getattr                  # as ext4_getattr; what is promised to a file counts as its own
    ENTER2
    mov rbx, [rsi + PATH_DENTRY]
    mov rbx, [rbx + DENTRY_INODE]
    mov r12, rdx
    call ext4_getattr
    EXT4_I rcx, rbx
    mov ecx, [rcx + EI_RESERVED]
    shl rcx, PAGE_SHIFT - 9
    add [r12 + KSTAT_BLOCKS], rcx
    LEAVE2
ENDFUNC ext4_file_getattr

# --- the end --------------------------------------------------------------------------------------

FUNC ext4_evict_inode                   # rdi inode nobody uses; with its last name go its blocks
    ENTER2
    mov rbx, rdi
    cmp qword ptr [rdi + INODE_FS_DATA], 0
    je .Lclear
    cmp dword ptr [rdi + INODE_NLINK], 0
    je .Lflush
    mov rdi, [rbx + INODE_MAPPING]
    xor esi, esi
    mov rdx, -1
    call filemap_write_and_wait_range
.Lflush:
    mov rdi, rbx
    call ext4_do_flush_completed_IO
    EXT4_I rdi, rbx
    add rdi, EI_RSV_WORK
    call cancel_work_sync
    lea rdi, [rbx + INODE_DATA]
    call truncate_inode_pages_final
    cmp dword ptr [rbx + INODE_NLINK], 0
    jne .Lfree
    mov qword ptr [rbx + INODE_SIZE], 0
    mov rdi, rbx
    call current_time
    EXT4_I rcx, rbx
    mov [rcx + EI_DTIME], eax
    EXT4_JOURNAL_START r12, rbx, EXT4_CREDITS, .Lfree
    mov rdi, rbx
    call ext4_truncate                  # in the same handle
    mov rdi, r12
    mov rsi, rbx
    call ext4_free_inode
    mov rdi, r12
    call __ext4_journal_stop
.Lfree:
    mov rdi, rbx
    call ext4_free_in_core_inode
.Lclear:
    mov rdi, rbx
    call clear_inode
    LEAVE2
ENDFUNC ext4_evict_inode
