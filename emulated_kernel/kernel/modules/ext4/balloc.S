# fs/ext4/super.c (buffers), ext4_jbd2.c, balloc.c, mballoc.c, ialloc.c: blocks and inodes, given and taken back.
# A block that is freed can be had again once the transaction that freed it is committed: the bit map in
# memory, which the allocator looks at, follows the one on the disk then. Left out: groups, preallocation.

.text

# --- buffers --------------------------------------------------------------------------------------

FUNC_NOTRACE ext4_sb_getblk                  # rsi block; rax its buffer, whatever is in it, or 0
    ENTER1
    push 0
    xor eax, eax
    cmp rsi, NR_BLOCKS
    jae .Lout
    imul rbx, rsi, JB_BYTES
    add rbx, [rip + vda1_buffers]
    mov [rbx + JB_BLOCK], esi
    cmp qword ptr [rbx + JB_DATA], 0
    jne .Lfound
    mov edi, GFP_KERNEL
    call get_zeroed_page
    mov [rbx + JB_DATA], rax
    test rax, rax
    je .Lout
.Lfound:
    mov rax, rbx
.Lout:
    LEAVE1
ENDFUNC ext4_sb_getblk

FUNC ext4_sb_bread                      # rdi super block, rsi block, edx flags; rax buffer or error
    ENTER1
    push 0
    call ext4_sb_getblk
    test rax, rax
    je .Lerror
    mov rbx, rax
    test dword ptr [rax + JB_STATE], JB_UPTODATE
    jne .Lout
    mov rdi, rax
    call ext4_read_bh
    mov rax, rbx
.Lout:
    LEAVE1
.Lerror:
    mov rax, -EIO
    LEAVE1
ENDFUNC ext4_sb_bread

FUNC ext4_read_bh                       # rdi buffer; eax 0
    PROLOGUE
    mov rdx, rdi
    mov esi, [rdi + JB_BLOCK]
    DISK_BLOCK rsi
    mov rdi, [rdi + JB_DATA]
    COPY_PAGE
    or dword ptr [rdx + JB_STATE], JB_UPTODATE
    xor eax, eax
    EPILOGUE
ENDFUNC ext4_read_bh

# --- handles (ext4_jbd2.c) ------------------------------------------------------------------------

# rdi super block, esi line, edx type, ecx credits, r8d reserved, r9d revoked; rax handle or error.
FUNC __ext4_journal_start_sb
    ENTER1
    push 0
    mov ebx, ecx
    call ext4_journal_check_start
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rdi, offset ext4_journal
    mov esi, ebx
    xor edx, edx
    xor ecx, ecx
    call jbd2__journal_start
.Lout:
    LEAVE1
ENDFUNC __ext4_journal_start_sb

FUNC ext4_journal_check_start           # rdi super block; eax 0, or -EROFS when it is being unmounted
    PROLOGUE
    xor eax, eax
    cmp [rip + ext4_sb], rdi
    je .Lout
    mov eax, -EROFS
.Lout:
    EPILOGUE
ENDFUNC ext4_journal_check_start

FUNC __ext4_journal_stop                # rdi handle; eax 0 or error
    PROLOGUE
    call jbd2_journal_stop
    EPILOGUE
ENDFUNC __ext4_journal_stop

FUNC __ext4_journal_get_write_access    # rdi handle, rsi buffer; eax 0 or error
    PROLOGUE
    call jbd2_journal_get_write_access
    EPILOGUE
ENDFUNC __ext4_journal_get_write_access

FUNC __ext4_handle_dirty_metadata       # rdi handle, rsi buffer; eax 0 or error
    PROLOGUE
    call jbd2_journal_dirty_metadata
    EPILOGUE
ENDFUNC __ext4_handle_dirty_metadata

# A block of metadata is freed: rdi handle, esi block; eax 0.
FUNC __ext4_forget
    ENTER1
    push 0
    mov rbx, rdi
    call ext4_sb_getblk
    mov rdi, rbx
    mov rsi, rax
    call jbd2_journal_forget
    LEAVE1
ENDFUNC __ext4_forget

# --- blocks ---------------------------------------------------------------------------------------

FUNC ext4_get_group_desc                # rdi super block, esi group, rdx where its buffer goes; rax
    ENTER1
    push 0
    mov rbx, rdx
    mov esi, GROUP_DESC_BLOCK
    xor edx, edx
    call ext4_sb_bread
    cmp rax, ERR_MIN
    jae .Lout
    mov [rbx], rax
    mov rax, [rax + JB_DATA]
.Lout:
    LEAVE1
ENDFUNC ext4_get_group_desc

FUNC ext4_read_block_bitmap             # rdi super block, esi group; rax buffer or error
    PROLOGUE
    mov esi, BLOCK_BITMAP_BLOCK
    xor edx, edx
    call ext4_sb_bread
    EPILOGUE
ENDFUNC ext4_read_block_bitmap

# rdi super block: are there esi free blocks beside those promised, and edx more? al.
FUNC ext4_has_free_clusters
    PROLOGUE
    add esi, edx
    add esi, [rip + ext4_s_dirtyclusters]
    cmp esi, [rip + ext4_s_freeclusters]
    setbe al
    movzx eax, al
    EPILOGUE
ENDFUNC ext4_has_free_clusters

# A write had no room. Blocks may come free with a commit: eax 1 when there was one, to try again.
FUNC ext4_should_retry_alloc            # rdi super block, rsi int *retries
    PROLOGUE
    inc dword ptr [rsi]
    xor eax, eax
    cmp dword ptr [rsi], 3
    ja .Lout
    cmp byte ptr gs:[PREEMPT_DEPTH], 0  # who must not sleep does without
    jne .Lout
    mov rdi, offset ext4_journal
    call jbd2_journal_force_commit_nested
.Lout:
    EPILOGUE
ENDFUNC ext4_should_retry_alloc

FUNC ext4_mb_find_by_goal               # rdi allocation request; eax its goal, or 0 when that is taken
    PROLOGUE
    mov rax, [rdi + AR_GOAL]
    cmp rax, NR_BLOCKS
    jae .Ltaken
    bt [rip + ext4_s_buddy], eax
    jae .Lout
.Ltaken:
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC ext4_mb_find_by_goal

# rdi allocation request: eax the first of at most AR_LEN blocks, AR_LEN how many; or 0. At the goal, in
# the first gap that is large enough, or wherever there is a block.
FUNC ext4_mb_regular_allocator
    ENTER2
    mov rbx, rdi
    call ext4_mb_find_by_goal
    mov r12d, eax
    test eax, eax
    jne .Lfound
    mov rdi, offset ext4_s_buddy
    mov esi, NR_BLOCKS
    xor edx, edx
    mov ecx, [rbx + AR_LEN]
    xor r8d, r8d
    call bitmap_find_next_zero_area_off
    mov r12, rax
    cmp rax, NR_BLOCKS
    jb .Lfound
    mov rdi, offset ext4_s_buddy
    mov esi, NR_BLOCKS
    xor edx, edx
    call _find_next_zero_bit
    mov r12, rax
    xor eax, eax
    cmp r12, NR_BLOCKS
    jae .Lout
.Lfound:
    mov rdi, offset ext4_s_buddy
    mov esi, NR_BLOCKS
    mov edx, r12d
    call _find_next_bit
    sub eax, r12d
    cmp eax, [rbx + AR_LEN]
    jae .Lenough
    mov [rbx + AR_LEN], eax
.Lenough:
    mov eax, r12d
.Lout:
    LEAVE2
ENDFUNC ext4_mb_regular_allocator

# Blocks r12d … change hands: \bits is what happens to the bit map, \count to the descriptor's count.
# rbx handle, r13d how many; clobbers r14. To .Lout with the error in eax.
.macro CHANGE_BITMAP bits, count
    mov rdi, [rip + ext4_sb]
    xor esi, esi
    call ext4_read_block_bitmap
    mov r14, rax
    mov rdi, rbx
    mov rsi, rax
    call __ext4_journal_get_write_access
    mov rdi, [r14 + JB_DATA]
    mov esi, r12d
    mov edx, r13d
    call \bits
    mov rdi, rbx
    mov rsi, r14
    call __ext4_handle_dirty_metadata
    test eax, eax
    jne .Lout
    mov rdi, [rip + ext4_sb]
    xor esi, esi
    lea rdx, [rbp - 48]
    call ext4_get_group_desc
    mov r14, rax
    mov rdi, rbx
    mov rsi, [rbp - 48]
    call __ext4_journal_get_write_access
    \count word ptr [r14 + DESC_FREE_BLOCKS], r13w
    mov rdi, rbx
    mov rsi, [rbp - 48]
    call __ext4_handle_dirty_metadata
.endm

FUNC ext4_mb_mark_diskspace_used        # rdi handle, esi first, edx how many; eax 0 or error
    ENTER4
    sub rsp, 16
    mov rbx, rdi
    mov r12d, esi
    mov r13d, edx
    CHANGE_BITMAP __bitmap_set, sub
    test eax, eax
    jne .Lout
    mov rdi, offset ext4_s_buddy
    mov esi, r12d
    mov edx, r13d
    call __bitmap_set
    sub [rip + ext4_s_freeclusters], r13d
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC ext4_mb_mark_diskspace_used

FUNC ext4_mb_new_blocks                 # rdi handle, rsi allocation request, rdx int *error; rax first or 0
    ENTER4
    mov rbx, rsi
    mov r12, rdi
    mov r13, rdx
    mov dword ptr [rdx], -ENOSPC
    test dword ptr [rsi + AR_FLAGS], EXT4_GET_BLOCKS_DELALLOC_RESERVE
    jne .Lclaimed
    mov rdi, [rip + ext4_sb]
    mov esi, [rbx + AR_LEN]
    xor edx, edx
    call ext4_has_free_clusters
    test al, al
    jne .Lclaimed
    mov dword ptr [rbx + AR_LEN], 1
    mov rdi, [rip + ext4_sb]
    mov esi, 1
    xor edx, edx
    call ext4_has_free_clusters
    test al, al
    je .Lnone
.Lclaimed:
    mov rdi, rbx
    call ext4_mb_regular_allocator
    mov r14d, eax
    test eax, eax
    je .Lnone
    mov rdi, r12
    mov esi, eax
    mov edx, [rbx + AR_LEN]
    call ext4_mb_mark_diskspace_used
    mov [r13], eax
    test eax, eax
    jne .Lnone
    mov rax, r14
    LEAVE4
.Lnone:
    xor eax, eax
    LEAVE4
ENDFUNC ext4_mb_new_blocks

FUNC ext4_free_blocks                   # rdi handle, rsi inode, edx first, ecx how many, r8d flags
    ENTER4
    sub rsp, 16
    mov rbx, rdi
    mov r12d, edx
    mov r13d, ecx
    mov rax, [rdi + HDL_TRANSACTION]
    or dword ptr [rax + TX_FREED], TX_FREED_BLOCKS
    test r8d, EXT4_FREE_BLOCKS_METADATA
    je .Ldata
    mov esi, edx
    call __ext4_forget
.Ldata:
    CHANGE_BITMAP __bitmap_clear, add
.Lout:
    LEAVE4
ENDFUNC ext4_free_blocks

# The transaction is in the log, so what it freed is free. rdi journal, rsi transaction.
FUNC ext4_journal_commit_callback
    PROLOGUE
    test dword ptr [rsi + TX_FREED], TX_FREED_BLOCKS
    je .Lout
    mov rdi, [rip + ext4_sb]
    mov esi, [rsi + TX_TID]
    call ext4_process_freed_data
.Lout:
    EPILOGUE
ENDFUNC ext4_journal_commit_callback

FUNC ext4_process_freed_data            # rdi super block, esi tid
    PROLOGUE
    xor esi, esi
    call ext4_read_block_bitmap
    mov rsi, [rax + JB_DATA]
    mov rdi, offset ext4_s_buddy
    mov ecx, NR_BLOCKS / 64
    rep movsq
    mov rdi, offset ext4_s_buddy
    mov esi, NR_BLOCKS
    call __bitmap_weight
    neg eax
    add eax, NR_BLOCKS
    mov [rip + ext4_s_freeclusters], eax
    EPILOGUE
ENDFUNC ext4_process_freed_data

# --- inodes ---------------------------------------------------------------------------------------

# Bit r12d of the inode bit map changes by \bit, the descriptor's count by \count; rbx handle. As
# CHANGE_BITMAP.
.macro CHANGE_INODE_BITMAP bit, count
    mov rdi, [rip + ext4_sb]
    mov esi, INODE_BITMAP_BLOCK
    xor edx, edx
    call ext4_sb_bread
    mov r14, rax
    mov rdi, rbx
    mov rsi, rax
    call __ext4_journal_get_write_access
    mov rax, [r14 + JB_DATA]
    \bit dword ptr [rax], r12d
    mov rdi, rbx
    mov rsi, r14
    call __ext4_handle_dirty_metadata
    test eax, eax
    jne .Lout
    mov rdi, [rip + ext4_sb]
    xor esi, esi
    lea rdx, [rbp - 48]
    call ext4_get_group_desc
    mov r14, rax
    mov rdi, rbx
    mov rsi, [rbp - 48]
    call __ext4_journal_get_write_access
    \count word ptr [r14 + DESC_FREE_INODES]
    mov rdi, rbx
    mov rsi, [rbp - 48]
    call __ext4_handle_dirty_metadata
.endm

FUNC ext4_mark_inode_used               # rdi handle, esi inode number; eax 0 or error
    ENTER4
    sub rsp, 16
    mov rbx, rdi
    lea r12d, [rsi - 1]
    CHANGE_INODE_BITMAP bts, dec
.Lout:
    LEAVE4
ENDFUNC ext4_mark_inode_used

FUNC ext4_free_inode                    # rdi handle, rsi inode; eax 0 or error
    ENTER4
    sub rsp, 16
    mov rbx, rdi
    mov r12, [rsi + INODE_INO]
    dec r12d
    CHANGE_INODE_BITMAP btr, inc
.Lout:
    LEAVE4
ENDFUNC ext4_free_inode

FUNC __ext4_new_inode                   # rdi handle, rsi directory, edx mode; rax inode or error
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov rdi, [rsi + INODE_SB]
    mov esi, INODE_BITMAP_BLOCK
    xor edx, edx
    call ext4_sb_bread
    mov rdi, [rax + JB_DATA]
    mov esi, NR_INODES
    mov edx, FIRST_INO - 1
    call _find_next_zero_bit
    mov r14, rax
    mov rax, -ENOSPC
    cmp r14, NR_INODES
    jae .Lout
    mov rdi, [r12 + INODE_SB]
    call new_inode
    test rax, rax
    je .Lnomem
    mov r15, rax
    lea esi, [r14 + 1]
    mov [rax + INODE_INO], rsi
    mov rdi, offset init_user_ns
    mov rsi, rax
    mov rdx, r12
    mov ecx, r13d
    call inode_init_owner
    mov rdi, r15
    call current_time
    mov [r15 + INODE_ATIME], rax
    mov [r15 + INODE_ATIME + 8], rdx
    mov [r15 + INODE_MTIME], rax
    mov [r15 + INODE_MTIME + 8], rdx
    mov [r15 + INODE_CTIME], rax
    mov [r15 + INODE_CTIME + 8], rdx
    mov rdi, r15
    call ext4_alloc_inode
    test rax, rax
    je .Lput
    mov dword ptr [rax + EI_DATA], EXT_MAGIC
    mov dword ptr [rax + EI_DATA + EH_MAX], EXT_ROOT_MAX
    mov rdi, r15
    call ext4_set_inode_operations
    mov rdi, rbx
    lea esi, [r14 + 1]
    call ext4_mark_inode_used
    movsxd r14, eax
    test eax, eax
    jne .Lbusy
    mov rdi, rbx
    mov rsi, r15
    call __ext4_mark_inode_dirty
    mov rax, r15
.Lout:
    LEAVE5
.Lput:
    mov r14, -ENOMEM
.Lbusy:
    mov rdi, r15                        # evicting it changes nothing on the disk
    call iput
    mov rax, r14
    LEAVE5
.Lnomem:
    mov rax, -ENOMEM
    LEAVE5
ENDFUNC __ext4_new_inode
