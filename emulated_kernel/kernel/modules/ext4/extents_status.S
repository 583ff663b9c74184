# fs/ext4/extents_status.c: what is known of a file's blocks without a look at its extents: where they are,
# whether they were written, and which are only promised (delayed). A sorted list where Linux has a tree.

.text

# The node that holds a block or the first one behind it: rdi inode info, esi block; rax node, or the
# head of the list. Clobbers ecx.
FUNC_NOTRACE __es_tree_search
    add rdi, EI_ES_TREE
    mov rax, rdi
.Lnext:
    mov rax, [rax]
    cmp rax, rdi
    je .Lout
    mov ecx, [rax + ES_LBLK]
    add ecx, [rax + ES_LEN]
    cmp esi, ecx
    jae .Lnext
.Lout:
    ret
ENDFUNC __es_tree_search

# rdi inode, esi block, rdx unused, rcx extent_status to fill; eax whether something is known.
FUNC ext4_es_lookup_extent
    ENTER4
    EXT4_I rbx, rdi
    mov r12d, esi
    mov r13, rcx
    xor r14d, r14d
    lea rdi, [rbx + EI_ES_LOCK]
    call _raw_read_lock
    mov rdi, rbx
    mov esi, r12d
    call __es_tree_search
    lea rcx, [rbx + EI_ES_TREE]
    cmp rax, rcx
    je .Lunlock
    cmp [rax + ES_LBLK], r12d
    ja .Lunlock
    mov rcx, [rax + ES_LBLK]            # and length
    mov [r13 + ES_LBLK], rcx
    mov rcx, [rax + ES_PBLK]
    mov [r13 + ES_PBLK], rcx
    mov ecx, [rax + ES_STATUS]
    mov [r13 + ES_STATUS], ecx
    mov r14d, 1
.Lunlock:
    lea rdi, [rbx + EI_ES_LOCK]
    call _raw_read_unlock
    mov eax, r14d
    LEAVE4
ENDFUNC ext4_es_lookup_extent

# rdi inode, esi first block, edx how many, rcx where they are, r8d status; eax 0 or error.
FUNC ext4_es_insert_extent
    ENTER5
    push r8
    EXT4_I rbx, rdi
    mov r12d, esi
    mov r13d, edx
    mov r14, rcx
    lea rdi, [rbx + EI_ES_LOCK]
    call _raw_write_lock
    mov rdi, rbx
    mov esi, r12d
    lea edx, [r12 + r13 - 1]
    call __es_remove_extent
    mov rdi, rbx
    mov esi, r12d
    mov edx, r13d
    mov rcx, r14
    mov r8d, [rbp - 48]
    call __es_insert_extent
    mov r15d, eax
    lea rdi, [rbx + EI_ES_LOCK]
    call _raw_write_unlock
    mov eax, r15d
    LEAVE5
ENDFUNC ext4_es_insert_extent

FUNC ext4_es_insert_delayed_block       # rdi inode, esi block; eax 0 or error
    PROLOGUE
    mov edx, 1
    xor ecx, ecx
    mov r8d, EXTENT_STATUS_DELAYED
    call ext4_es_insert_extent
    EPILOGUE
ENDFUNC ext4_es_insert_delayed_block

# rdi inode, esi first and edx last block: forget them; what was promised to them is free again.
FUNC ext4_es_remove_extent
    ENTER4
    mov r14, rdi
    EXT4_I rbx, rdi
    mov r12d, esi
    mov r13d, edx
    lea rdi, [rbx + EI_ES_LOCK]
    call _raw_write_lock
    mov rdi, rbx
    mov esi, r12d
    mov edx, r13d
    call __es_remove_extent
    mov r12d, eax
    lea rdi, [rbx + EI_ES_LOCK]
    call _raw_write_unlock
    mov rdi, r14
    mov esi, r12d
    call ext4_da_release_space
    xor eax, eax
    LEAVE4
ENDFUNC ext4_es_remove_extent

# Take blocks esi to edx out of the list, cutting nodes where need be: rdi inode info; eax how many of
# them were delayed.
FUNC __es_remove_extent
    ENTER5
    push 0
    mov rbx, rdi
    mov r12d, esi
    mov r13d, edx
    call __es_tree_search
    mov r14, rax
.Lnode:
    lea rax, [rbx + EI_ES_TREE]
    cmp r14, rax
    je .Ldone
    mov eax, [r14 + ES_LBLK]            # eax first, ecx last block of the node
    cmp eax, r13d
    ja .Ldone
    mov ecx, [r14 + ES_LEN]
    lea ecx, [rax + rcx - 1]
    test dword ptr [r14 + ES_STATUS], EXTENT_STATUS_DELAYED
    je .Lcut
    mov edx, ecx
    cmp edx, r13d
    cmova edx, r13d
    mov esi, eax
    cmp esi, r12d
    cmovb esi, r12d
    sub edx, esi
    inc edx
    add [rbp - 48], edx
.Lcut:
    cmp eax, r12d
    jb .Ltail
    cmp ecx, r13d
    ja .Lhead
    mov rdi, r14                        # all of it
    mov r14, [r14]
    LIST_DEL rdi, rax, rcx
    call kfree
    jmp .Lnode
.Ltail:
    mov edx, r12d
    sub edx, eax
    mov [r14 + ES_LEN], edx
    cmp ecx, r13d
    ja .Lsplit
    mov r14, [r14]
    jmp .Lnode
.Lhead:
    mov edx, r13d
    sub edx, eax
    inc edx
    add [r14 + ES_LBLK], edx
    sub [r14 + ES_LEN], edx
    test dword ptr [r14 + ES_STATUS], EXTENT_STATUS_DELAYED
    jne .Ldone
    add [r14 + ES_PBLK], rdx
    jmp .Ldone
.Lsplit:                                # what lies behind the blocks becomes a node of its own
    sub ecx, r13d
    mov r15d, ecx
    mov edx, r13d
    sub edx, eax
    inc edx
    mov r12d, edx
    mov edi, ES_BYTES
    mov esi, GFP_ATOMIC
    call __kmalloc
    test rax, rax
    je .Ldone
    lea ecx, [r13 + 1]
    mov [rax + ES_LBLK], ecx
    mov [rax + ES_LEN], r15d
    mov ecx, [r14 + ES_STATUS]
    mov [rax + ES_STATUS], ecx
    mov rcx, [r14 + ES_PBLK]
    add rcx, r12
    mov [rax + ES_PBLK], rcx
    LIST_ADD rax, r14, rcx
.Ldone:
    mov eax, [rbp - 48]
    LEAVE5
ENDFUNC __es_remove_extent

# Do the blocks r8 … go on where node \left ends? Go to \no if not: ecx where node \right or the new one is,
# edx its first block, r8d its status; clobbers eax.
.macro ES_CAN_BE_MERGED left, no
    cmp [\left + ES_STATUS], r8d
    jne \no
    mov eax, [\left + ES_LBLK]
    add eax, [\left + ES_LEN]
    cmp eax, edx
    jne \no
    cmp r8d, EXTENT_STATUS_DELAYED
    je 1f
    mov eax, [\left + ES_PBLK]
    add eax, [\left + ES_LEN]
    cmp eax, ecx
    jne \no
1:
.endm

# rdi inode info, esi first block, edx how many, rcx where they are, r8d status; eax 0 or error. None of
# them is in the list.
FUNC __es_insert_extent
    ENTER5
    push r8
    mov rbx, rdi
    mov r12d, esi
    mov r13d, edx
    mov r14, rcx
    call __es_tree_search
    mov r15, rax                        # the next node
    lea rbx, [rbx + EI_ES_TREE]
    mov rdi, [rax + 8]                  # the one before
    cmp rdi, rbx
    je .Lright
    mov edx, r12d
    mov ecx, r14d
    mov r8d, [rbp - 48]
    ES_CAN_BE_MERGED rdi, .Lright
    add [rdi + ES_LEN], r13d
    cmp r15, rbx
    je .Lmerged
    mov edx, [r15 + ES_LBLK]            # the gap between the two may be closed now
    mov ecx, [r15 + ES_PBLK]
    cmp [r15 + ES_STATUS], r8d
    jne .Lmerged
    ES_CAN_BE_MERGED rdi, .Lmerged
    mov eax, [r15 + ES_LEN]
    add [rdi + ES_LEN], eax
    LIST_DEL r15, rax, rcx
    mov rdi, r15
    call kfree
    jmp .Lmerged
.Lright:
    cmp r15, rbx
    je .Lnew
    mov eax, [rbp - 48]
    cmp [r15 + ES_STATUS], eax
    jne .Lnew
    lea ecx, [r12 + r13]
    cmp [r15 + ES_LBLK], ecx
    jne .Lnew
    cmp eax, EXTENT_STATUS_DELAYED
    je .Lgrow
    lea ecx, [r14 + r13]
    cmp [r15 + ES_PBLK], ecx
    jne .Lnew
.Lgrow:
    mov [r15 + ES_LBLK], r12d
    add [r15 + ES_LEN], r13d
    mov [r15 + ES_PBLK], r14
    jmp .Lmerged
.Lnew:
    mov edi, ES_BYTES
    mov esi, GFP_ATOMIC
    call __kmalloc
    test rax, rax
    je .Lnomem
    mov [rax + ES_LBLK], r12d
    mov [rax + ES_LEN], r13d
    mov [rax + ES_PBLK], r14
    mov ecx, [rbp - 48]
    mov [rax + ES_STATUS], ecx
    LIST_ADD_TAIL rax, r15, rcx
.Lmerged:
    xor eax, eax
    LEAVE5
.Lnomem:
    mov eax, -ENOMEM
    LEAVE5
ENDFUNC __es_insert_extent
