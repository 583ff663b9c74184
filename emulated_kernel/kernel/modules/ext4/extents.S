# fs/ext4/extents.c: which blocks of the disk hold a file. An inode has room for four extents; with more of
# them the root becomes an index of one leaf, which holds more than this disk has blocks. Left out: deeper
# trees. Unwritten extents are never merged, so that each can be converted by itself.

.text

# rdi inode, esi block, rdx ext4_ext_path to fill; eax 0 or error.
FUNC ext4_find_extent
    ENTER3
    push 0
    EXT4_I rbx, rdi
    mov r12d, esi
    mov r13, rdx
    mov qword ptr [rdx + EPATH_BH], 0
    add rbx, EI_DATA
    cmp word ptr [rbx + EH_DEPTH], 0
    je .Lleaf
    mov rdi, [rdi + INODE_SB]
    mov esi, [rbx + EH_BYTES + EI_LEAF]
    xor edx, edx
    call ext4_sb_bread
    cmp rax, ERR_MIN
    jae .Lout
    mov [r13 + EPATH_BH], rax
    mov rbx, [rax + JB_DATA]
.Lleaf:
    mov rdi, rbx
    call __ext4_ext_check
    test eax, eax
    jne .Lout
    mov [r13 + EPATH_HDR], rbx
    xor edx, edx
    movzx ecx, word ptr [rbx + EH_ENTRIES]
    lea rax, [rbx + EH_BYTES]
.Lextent:
    sub ecx, 1
    jb .Lfound
    cmp [rax + EE_BLOCK], r12d
    ja .Lfound
    mov rdx, rax
    add rax, EE_BYTES
    jmp .Lextent
.Lfound:
    mov [r13 + EPATH_EXT], rdx
    xor eax, eax
.Lout:
    LEAVE3
ENDFUNC ext4_find_extent

FUNC __ext4_ext_check                   # rdi header of a leaf; eax 0, or -EUCLEAN when it is none
    PROLOGUE
    mov eax, -EUCLEAN
    cmp word ptr [rdi + EH_MAGIC], EXT_MAGIC
    jne .Lout
    cmp word ptr [rdi + EH_DEPTH], 0
    jne .Lout
    mov cx, [rdi + EH_MAX]
    cmp [rdi + EH_ENTRIES], cx
    ja .Lout
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC __ext4_ext_check

# The first block behind a path's that has an extent: rdi path; eax.
FUNC ext4_ext_next_allocated_block
    PROLOGUE
    mov rcx, [rdi + EPATH_HDR]
    mov rax, [rdi + EPATH_EXT]
    lea rdx, [rcx + EH_BYTES]
    test rax, rax
    je .Lfirst
    lea rdx, [rax + EE_BYTES]
.Lfirst:
    movzx eax, word ptr [rcx + EH_ENTRIES]
    imul eax, eax, EE_BYTES
    lea rcx, [rcx + rax + EH_BYTES]
    mov eax, EXT_MAX_BLOCKS
    cmp rdx, rcx
    jae .Lout
    mov eax, [rdx + EE_BLOCK]
.Lout:
    EPILOGUE
ENDFUNC ext4_ext_next_allocated_block

# Where a new block would continue the extent before it: rdi path, esi block; rax block of the disk or 0.
FUNC ext4_ext_find_goal
    PROLOGUE
    xor eax, eax
    mov rcx, [rdi + EPATH_EXT]
    test rcx, rcx
    je .Lout
    mov eax, [rcx + EE_START]
    sub esi, [rcx + EE_BLOCK]
    add rax, rsi
.Lout:
    EPILOGUE
ENDFUNC ext4_ext_find_goal

EMAP_PATH = 72                          # locals of ext4_ext_map_blocks, below rbp
EMAP_AR = 96
EMAP_ERROR = 104
EMAP_NEW = 120                          # the new extent

# rdi handle or 0, rsi inode, rdx ext4_map_blocks, ecx EXT4_GET_BLOCKS_*; eax blocks mapped, 0 or error.
FUNC ext4_ext_map_blocks
    ENTER5
    sub rsp, EMAP_NEW - 40
    mov rbx, rsi
    mov r12, rdx
    mov r13, rdi
    mov r14d, ecx
    mov rdi, rsi
    mov esi, [r12 + EM_LBLK]
    lea rdx, [rbp - EMAP_PATH]
    call ext4_find_extent
    test eax, eax
    jne .Lout
    mov rdx, [rbp - EMAP_PATH + EPATH_EXT]
    test rdx, rdx
    je .Lhole
    EXT_ACTUAL_LEN eax, rdx, r8d
    mov ecx, [r12 + EM_LBLK]
    sub ecx, [rdx + EE_BLOCK]
    sub eax, ecx
    jbe .Lhole
    add ecx, [rdx + EE_START]
    mov [r12 + EM_PBLK], rcx
    mov ecx, EXT4_MAP_MAPPED
    cmp r8d, EXT_INIT_MAX_LEN
    jbe .Lwritten
    mov ecx, EXT4_MAP_UNWRITTEN
.Lwritten:
    or [r12 + EM_FLAGS], ecx
    cmp eax, [r12 + EM_LEN]
    jae .Llength
    mov [r12 + EM_LEN], eax
.Llength:
    mov eax, [r12 + EM_LEN]
    LEAVE5
.Lhole:
    lea rdi, [rbp - EMAP_PATH]
    call ext4_ext_next_allocated_block
    sub eax, [r12 + EM_LBLK]
    cmp eax, [r12 + EM_LEN]
    jae .Lgap
    mov [r12 + EM_LEN], eax
.Lgap:
    xor eax, eax
    test r14d, EXT4_GET_BLOCKS_CREATE
    je .Lout
    mov [rbp - EMAP_AR + AR_INODE], rbx
    mov eax, [r12 + EM_LEN]
    mov [rbp - EMAP_AR + AR_LEN], eax
    mov [rbp - EMAP_AR + AR_FLAGS], r14d
    lea rdi, [rbp - EMAP_PATH]
    mov esi, [r12 + EM_LBLK]
    call ext4_ext_find_goal
    mov [rbp - EMAP_AR + AR_GOAL], rax
    mov rdi, r13
    lea rsi, [rbp - EMAP_AR]
    lea rdx, [rbp - EMAP_ERROR]
    call ext4_mb_new_blocks
    test rax, rax
    mov r15, rax
    mov eax, [rbp - EMAP_ERROR]
    je .Lout
    mov [r12 + EM_PBLK], r15
    mov eax, [rbp - EMAP_AR + AR_LEN]
    mov [r12 + EM_LEN], eax
    mov ecx, [r12 + EM_LBLK]
    mov [rbp - EMAP_NEW + EE_BLOCK], ecx
    mov [rbp - EMAP_NEW + EE_START], r15d
    mov ecx, EXT4_MAP_NEW | EXT4_MAP_MAPPED
    test r14d, EXT4_GET_BLOCKS_UNWRIT_EXT
    je .Lflags
    mov ecx, EXT4_MAP_NEW | EXT4_MAP_UNWRITTEN
    or eax, EXT_INIT_MAX_LEN
.Lflags:
    or [r12 + EM_FLAGS], ecx
    mov [rbp - EMAP_NEW + EE_LEN], eax  # and the high bits of where it is
    mov rdi, r13
    mov rsi, rbx
    lea rdx, [rbp - EMAP_PATH]
    lea rcx, [rbp - EMAP_NEW]
    call ext4_ext_insert_extent
    test eax, eax
    jne .Lgiveback
    mov eax, [r12 + EM_LEN]
    shl eax, PAGE_SHIFT - 9
    add [rbx + INODE_BLOCKS], rax
    test r14d, EXT4_GET_BLOCKS_DELALLOC_RESERVE
    je .Ldirty
    mov rdi, rbx
    mov esi, [r12 + EM_LEN]
    call ext4_da_update_reserve_space
.Ldirty:
    mov rdi, r13
    mov rsi, rbx
    call __ext4_mark_inode_dirty
    test eax, eax
    jne .Lout
    mov eax, [r12 + EM_LEN]
.Lout:
    LEAVE5
.Lgiveback:
    mov r14d, eax
    mov rdi, r13
    mov rsi, rbx
    mov edx, r15d
    mov ecx, [r12 + EM_LEN]
    xor r8d, r8d
    call ext4_free_blocks
    mov eax, r14d
    LEAVE5
ENDFUNC ext4_ext_map_blocks

# The block of a path is about to be changed, \fail if it may not. The inode's own extents go with it.
.macro EXT4_EXT_GET_ACCESS handle, path, fail
    mov rsi, [\path + EPATH_BH]
    test rsi, rsi
    je 1f
    mov rdi, \handle
    call __ext4_journal_get_write_access
    test eax, eax
    jne \fail
1:
.endm

FUNC __ext4_ext_dirty                   # rdi handle, rsi inode, rdx path whose extents changed; eax
    PROLOGUE
    mov rcx, [rdx + EPATH_BH]
    test rcx, rcx
    je .Linode
    mov rdx, [rdx + EPATH_HDR]
    EXT4_I rax, rsi
    mov edx, [rdx + EH_BYTES + EE_BLOCK]
    mov [rax + EI_DATA + EH_BYTES + EE_BLOCK], edx  # ext4_ext_correct_indexes
    mov rsi, rcx
    call __ext4_handle_dirty_metadata
    EPILOGUE
.Linode:
    call __ext4_mark_inode_dirty
    EPILOGUE
ENDFUNC __ext4_ext_dirty

# rdi handle, rsi inode, rdx path of where it belongs, rcx the new extent; eax 0 or error.
FUNC ext4_ext_insert_extent
    ENTER5
    push 0
    mov rbx, rsi
    mov r12, rdx
    mov r13, rcx
    mov r14, rdi
    EXT4_EXT_GET_ACCESS r14, r12, .Lout
    mov rdx, [r12 + EPATH_EXT]
    mov rdi, rdx
    mov rsi, r13
    call ext4_can_extents_be_merged
    test al, al
    je .Linsert
    mov rdx, [r12 + EPATH_EXT]
    mov ax, [r13 + EE_LEN]
    add [rdx + EE_LEN], ax
    jmp .Ldirty
.Linsert:
    mov rdx, [r12 + EPATH_HDR]
    mov ax, [rdx + EH_MAX]
    cmp [rdx + EH_ENTRIES], ax
    jb .Lroom
    mov rdi, r14
    mov rsi, rbx
    call ext4_ext_grow_indepth
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov esi, [r13 + EE_BLOCK]
    mov rdx, r12
    call ext4_find_extent
    test eax, eax
    jne .Lout
    EXT4_EXT_GET_ACCESS r14, r12, .Lout
.Lroom:
    mov rdx, [r12 + EPATH_HDR]
    movzx eax, word ptr [rdx + EH_ENTRIES]
    inc word ptr [rdx + EH_ENTRIES]
    imul eax, eax, EE_BYTES
    lea rcx, [rdx + rax + EH_BYTES]     # the end
    lea rsi, [rdx + EH_BYTES]
    mov rax, [r12 + EPATH_EXT]
    test rax, rax
    je .Lfirst
    lea rsi, [rax + EE_BYTES]
.Lfirst:
    mov [r12 + EPATH_EXT], rsi
    mov rdx, rcx
    sub rdx, rsi
    lea rdi, [rsi + EE_BYTES]
    call memmove
    mov rdi, [r12 + EPATH_EXT]
    mov rax, [r13]
    mov [rdi], rax
    mov eax, [r13 + EE_START]
    mov [rdi + EE_START], eax
.Ldirty:
    mov rdi, r14
    mov rsi, rbx
    mov rdx, r12
    call __ext4_ext_dirty
.Lout:
    LEAVE5
ENDFUNC ext4_ext_insert_extent

FUNC ext4_can_extents_be_merged         # rdi extent or 0, rsi the next one; al: both written, and adjacent
    PROLOGUE
    test rdi, rdi
    je .Lno
    movzx eax, word ptr [rdi + EE_LEN]
    movzx ecx, word ptr [rsi + EE_LEN]
    cmp eax, EXT_INIT_MAX_LEN
    ja .Lno
    cmp ecx, EXT_INIT_MAX_LEN
    ja .Lno
    add ecx, eax
    cmp ecx, EXT_INIT_MAX_LEN
    ja .Lno
    mov ecx, [rdi + EE_BLOCK]
    add ecx, eax
    cmp ecx, [rsi + EE_BLOCK]
    jne .Lno
    add eax, [rdi + EE_START]
    cmp eax, [rsi + EE_START]
    jne .Lno
    mov eax, 1
    EPILOGUE
.Lno:
    xor eax, eax
    EPILOGUE
ENDFUNC ext4_can_extents_be_merged

# The next extent becomes part of one, if it can: rdi path, rsi extent; al.
FUNC ext4_ext_try_to_merge_right
    ENTER2
    mov rbx, [rdi + EPATH_HDR]
    mov r12, rsi
    movzx ecx, word ptr [rbx + EH_ENTRIES]
    imul ecx, ecx, EE_BYTES
    lea rcx, [rbx + rcx + EH_BYTES - EE_BYTES]
    xor eax, eax
    cmp rsi, rcx                        # there is none
    jae .Lout
    mov rdi, rsi
    add rsi, EE_BYTES
    call ext4_can_extents_be_merged
    test al, al
    je .Lout
    mov ax, [r12 + EE_BYTES + EE_LEN]
    add [r12 + EE_LEN], ax
    movzx edx, word ptr [rbx + EH_ENTRIES]
    dec word ptr [rbx + EH_ENTRIES]
    imul edx, edx, EE_BYTES
    lea rdi, [r12 + EE_BYTES]
    lea rsi, [rdi + EE_BYTES]
    lea rdx, [rbx + rdx + EH_BYTES]
    sub rdx, rsi
    call memmove
    mov eax, 1
.Lout:
    LEAVE2
ENDFUNC ext4_ext_try_to_merge_right

FUNC ext4_ext_try_to_merge              # rdi path, whose extent and its neighbours may have become one
    ENTER1
    push 0
    mov rbx, rdi
    mov rsi, [rdi + EPATH_EXT]
    call ext4_ext_try_to_merge_right
    mov rdi, rbx
    mov rsi, [rbx + EPATH_EXT]
    mov rax, [rbx + EPATH_HDR]
    sub rsi, EE_BYTES
    add rax, EH_BYTES
    cmp rsi, rax
    jb .Lout
    call ext4_ext_try_to_merge_right
.Lout:
    LEAVE1
ENDFUNC ext4_ext_try_to_merge

# The extents move from the inode to a leaf: rdi handle, rsi inode; eax 0 or error.
FUNC ext4_ext_grow_indepth
    ENTER4
    sub rsp, AR_BYTES + 8
    mov rbx, rdi
    mov r12, rsi
    mov [rsp + AR_INODE], rsi
    mov qword ptr [rsp + AR_GOAL], 0
    mov dword ptr [rsp + AR_LEN], 1
    EXT4_I rax, rsi
    cmp dword ptr [rax + EI_RESERVED], 1
    sbb eax, eax
    not eax
    and eax, EXT4_GET_BLOCKS_DELALLOC_RESERVE   # a block was promised for it
    mov [rsp + AR_FLAGS], eax
    mov rsi, rsp
    lea rdx, [rsp + AR_BYTES]
    call ext4_mb_new_blocks
    mov r13, rax
    test rax, rax
    mov eax, [rsp + AR_BYTES]
    je .Lout
    mov rsi, r13
    call ext4_sb_getblk
    test rax, rax
    je .Lnomem
    mov r14, rax
    mov rdi, rbx
    mov rsi, rax
    call jbd2_journal_get_create_access
    mov rdi, [r14 + JB_DATA]
    EXT4_I rsi, r12
    add rsi, EI_DATA
    mov edx, RAW_BLOCK_BYTES
    call memcpy
    mov rdi, [r14 + JB_DATA]
    mov word ptr [rdi + EH_MAX], EXT_LEAF_MAX
    EXT4_I rax, r12
    add rax, EI_DATA
    mov word ptr [rax + EH_ENTRIES], 1
    mov word ptr [rax + EH_DEPTH], 1
    mov [rax + EH_BYTES + EI_LEAF], r13d
    mov dword ptr [rax + EH_BYTES + EE_START], 0
    mov rdi, rbx
    mov rsi, r14
    call __ext4_handle_dirty_metadata
    add qword ptr [r12 + INODE_BLOCKS], PAGE_BYTES / 512
    mov rdi, rbx
    mov rsi, r12
    call __ext4_mark_inode_dirty
.Lout:
    LEAVE4
.Lnomem:
    mov eax, -ENOMEM
    LEAVE4
ENDFUNC ext4_ext_grow_indepth

# The data of an unwritten extent is on the disk: rdi handle, rsi inode, edx first block, ecx where it is;
# eax 0 or error. An extent that was truncated meanwhile is none of ours.
FUNC ext4_convert_unwritten_extents_endio
    ENTER4
    sub rsp, EPATH_BYTES + 8
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov r14d, ecx
    mov rdi, rsi
    mov esi, edx
    mov rdx, rsp
    call ext4_find_extent
    test eax, eax
    jne .Lout
    mov rdx, [rsp + EPATH_EXT]
    test rdx, rdx
    je .Lout
    cmp [rdx + EE_BLOCK], r13d
    jne .Lout
    cmp [rdx + EE_START], r14d
    jne .Lout
    EXT_ACTUAL_LEN ecx, rdx, eax
    cmp eax, ecx
    mov eax, 0
    je .Lout                            # written already
    mov [rsp + EPATH_BYTES], ecx
    EXT4_EXT_GET_ACCESS rbx, rsp, .Lout
    mov rdx, [rsp + EPATH_EXT]
    mov ecx, [rsp + EPATH_BYTES]
    mov [rdx + EE_LEN], cx
    mov rdi, rsp
    call ext4_ext_try_to_merge
    mov rdi, rbx
    mov rsi, r12
    mov rdx, rsp
    call __ext4_ext_dirty
    test eax, eax
    jne .Lout
    mov rdi, r12
    mov esi, r13d
    mov edx, [rsp + EPATH_BYTES]
    mov ecx, r14d
    mov r8d, EXTENT_STATUS_WRITTEN
    call ext4_es_insert_extent
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC ext4_convert_unwritten_extents_endio

# Free the blocks of a file from block edx on: rdi handle, rsi inode; eax 0 or error.
FUNC ext4_ext_remove_space
    ENTER5
    sub rsp, EPATH_BYTES + 16
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
.Lextent:
    mov rdi, r12
    mov esi, EXT_MAX_BLOCKS
    mov rdx, rsp
    call ext4_find_extent
    test eax, eax
    jne .Lout
    mov r14, [rsp + EPATH_EXT]
    test r14, r14
    je .Lnone
    EXT_ACTUAL_LEN ecx, r14, eax
    mov r15d, [r14 + EE_BLOCK]
    add r15d, ecx
    sub r15d, r13d                      # blocks behind the new end
    jbe .Ldone
    EXT4_EXT_GET_ACCESS rbx, rsp, .Lout
    EXT_ACTUAL_LEN ecx, r14, eax
    cmp r15d, ecx
    jb .Lpart
    mov r15d, ecx
    mov rax, [rsp + EPATH_HDR]
    dec word ptr [rax + EH_ENTRIES]
    mov edx, [r14 + EE_START]
    jmp .Lfree
.Lpart:
    sub [r14 + EE_LEN], r15w
    mov edx, [r14 + EE_START]
    add edx, ecx
    sub edx, r15d
.Lfree:
    mov rdi, rbx
    mov rsi, r12
    mov ecx, r15d
    xor r8d, r8d
    call ext4_free_blocks
    test eax, eax
    jne .Lout
    shl r15d, PAGE_SHIFT - 9
    sub [r12 + INODE_BLOCKS], r15
    mov rdi, rbx
    mov rsi, r12
    mov rdx, rsp
    call __ext4_ext_dirty
    test eax, eax
    je .Lextent
    jmp .Lout
.Lnone:
    cmp qword ptr [rsp + EPATH_BH], 0
    je .Ldone
    EXT4_I rax, r12                     # an empty leaf goes as well
    add rax, EI_DATA
    mov edx, [rax + EH_BYTES + EI_LEAF]
    mov word ptr [rax + EH_ENTRIES], 0
    mov word ptr [rax + EH_DEPTH], 0
    mov rdi, rbx
    mov rsi, r12
    mov ecx, 1
    mov r8d, EXT4_FREE_BLOCKS_METADATA
    call ext4_free_blocks
    sub qword ptr [r12 + INODE_BLOCKS], PAGE_BYTES / 512
.Ldone:
    xor eax, eax
.Lout:
    LEAVE5
ENDFUNC ext4_ext_remove_space

FUNC ext4_ext_truncate                  # rdi handle, rsi inode of its new size; eax 0 or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, [rsi + INODE_SIZE]
    add r13, PAGE_BYTES - 1
    shr r13, PAGE_SHIFT
    mov rdi, rsi
    mov esi, r13d
    mov edx, EXT_MAX_BLOCKS
    call ext4_es_remove_extent
    mov rdi, rbx
    mov rsi, r12
    mov edx, r13d
    call ext4_ext_remove_space
    LEAVE3
ENDFUNC ext4_ext_truncate
