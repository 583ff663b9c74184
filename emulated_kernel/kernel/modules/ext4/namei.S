# fs/ext4/namei.c, dir.c: names. A directory's blocks hold entries one behind the other, each as long as it is
# to the next one. Left out: hashed directories, subdirectories, links, renaming.

.text

FUNC __ext4_check_dir_entry             # rdi entry, rsi the end of its block; eax whether it is none
    PROLOGUE
    movzx eax, word ptr [rdi + DE_REC_LEN]
    movzx ecx, byte ptr [rdi + DE_NAME_LEN]
    add ecx, DE_NAME
    cmp eax, ecx
    jb .Lbad
    test eax, 3
    jne .Lbad
    add rax, rdi
    cmp rax, rsi
    ja .Lbad
    xor eax, eax
    EPILOGUE
.Lbad:
    mov eax, 1
    EPILOGUE
ENDFUNC __ext4_check_dir_entry

FUNC ext4_search_dir                    # rdi buffer of a directory's block, rsi qstr; rax entry or 0
    ENTER3
    push 0
    mov rbx, [rdi + JB_DATA]
    mov r12, rsi
    lea r13, [rbx + PAGE_BYTES]
.Lentry:
    mov rdi, rbx
    mov rsi, r13
    call __ext4_check_dir_entry
    test eax, eax
    jne .Lnone
    cmp dword ptr [rbx + DE_INODE], 0
    je .Lnext
    movzx edx, byte ptr [rbx + DE_NAME_LEN]
    cmp edx, [r12 + QSTR_LEN]
    jne .Lnext
    lea rdi, [rbx + DE_NAME]
    mov rsi, [r12 + QSTR_NAME]
    call memcmp
    test eax, eax
    je .Lfound
.Lnext:
    movzx eax, word ptr [rbx + DE_REC_LEN]
    add rbx, rax
    cmp rbx, r13
    jb .Lentry
.Lnone:
    xor ebx, ebx
.Lfound:
    mov rax, rbx
    LEAVE3
ENDFUNC ext4_search_dir

# rdi directory, rsi qstr, rdx where the entry's buffer goes; rax entry, 0 or error.
FUNC __ext4_find_entry
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    xor r14d, r14d
    mov r15, [rdi + INODE_SIZE]
    shr r15, PAGE_SHIFT
.Lblock:
    xor eax, eax
    cmp r14, r15
    jae .Lout
    xor edi, edi
    mov rsi, rbx
    mov edx, r14d
    xor ecx, ecx
    call ext4_bread
    inc r14
    test rax, rax
    je .Lblock
    cmp rax, ERR_MIN
    jae .Lout
    mov [r13], rax
    mov rdi, rax
    mov rsi, r12
    call ext4_search_dir
    test rax, rax
    je .Lblock
.Lout:
    LEAVE5
ENDFUNC __ext4_find_entry

FUNC ext4_lookup                        # rdi directory, rsi dentry, edx flags; rax 0 or error
    ENTER2
    sub rsp, 16
    mov rbx, rdi
    mov r12, rsi
    mov rax, -ENAMETOOLONG
    cmp dword ptr [rsi + DENTRY_NAME + QSTR_LEN], NAME_MAX
    ja .Lout
    add rsi, DENTRY_NAME
    mov rdx, rsp
    call __ext4_find_entry
    mov rdi, rax
    test rax, rax
    je .Lsplice
    cmp rax, ERR_MIN
    jae .Lout
    mov rdi, [rbx + INODE_SB]
    mov esi, [rax + DE_INODE]
    xor edx, edx
    call __ext4_iget
    mov rdi, rax
.Lsplice:
    mov rsi, r12
    call d_splice_alias
.Lout:
    LEAVE2
ENDFUNC ext4_lookup

FUNC ext4_readdir                       # rdi file, rsi ctx; eax 0 or error
    ENTER5
    sub rsp, 24
    mov r12, rsi
    mov rbx, [rdi + FILE_INODE]
.Lblock:
    mov r13, [r12 + CTX_POS]
    xor eax, eax
    cmp r13, [rbx + INODE_SIZE]
    jge .Lout
    mov rdx, r13
    shr rdx, PAGE_SHIFT
    xor edi, edi
    mov rsi, rbx
    xor ecx, ecx
    call ext4_bread
    cmp rax, ERR_MIN
    jae .Lout
    mov rcx, r13
    and rcx, PAGE_MASK                  # where the block is in the directory
    mov [rbp - 48], rcx
    test rax, rax
    je .Lhole
    mov r14, [rax + JB_DATA]
    lea r15, [r14 + PAGE_BYTES]
    sub [rbp - 48], r14                 # entry + this = its position
.Lentry:
    mov rdi, r14
    mov rsi, r15
    call __ext4_check_dir_entry
    test eax, eax
    jne .Lbad
    mov rcx, [rbp - 48]
    add rcx, r14
    cmp rcx, r13
    jb .Lnext
    mov r8d, [r14 + DE_INODE]
    test r8d, r8d
    je .Lnext
    mov rdi, r12
    lea rsi, [r14 + DE_NAME]
    movzx edx, byte ptr [r14 + DE_NAME_LEN]
    movzx eax, byte ptr [r14 + DE_TYPE]
    and eax, 7
    movzx r9d, byte ptr [ext4_filetype_table + rax]
    call [r12 + CTX_ACTOR]
    test al, al
    je .Lfull
.Lnext:
    movzx eax, word ptr [r14 + DE_REC_LEN]
    add r14, rax
    mov rcx, [rbp - 48]
    add rcx, r14
    cmp rcx, r13
    jbe .Lentered
    mov [r12 + CTX_POS], rcx
.Lentered:
    cmp r14, r15
    jb .Lentry
    jmp .Lblock
.Lhole:
    add rcx, PAGE_BYTES
    mov [r12 + CTX_POS], rcx
    jmp .Lblock
.Lfull:
    xor eax, eax
    jmp .Lout
.Lbad:
    mov eax, -EUCLEAN
.Lout:
    LEAVE5
ENDFUNC ext4_readdir

# --- making and removing --------------------------------------------------------------------------

# \reg: bytes that an entry with a name of \reg bytes takes
.macro DIR_REC_LEN reg
    add \reg, DE_NAME + 3
    and \reg, -4
.endm

# rdi handle, rsi dentry, rdx inode, rcx buffer of a directory's block: eax 0, -ENOSPC: the entry does not
# fit, or error.
FUNC add_dirent_to_buf
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov r15, [rcx + JB_DATA]
.Lentry:
    mov rdi, r15
    mov rsi, [r14 + JB_DATA]
    add rsi, PAGE_BYTES
    call __ext4_check_dir_entry
    test eax, eax
    mov eax, -EUCLEAN
    jne .Lout
    mov edx, [r12 + DENTRY_NAME + QSTR_LEN]
    DIR_REC_LEN edx
    xor ecx, ecx                        # what the entry itself needs
    cmp dword ptr [r15 + DE_INODE], 0
    je .Lfree
    movzx ecx, byte ptr [r15 + DE_NAME_LEN]
    DIR_REC_LEN ecx
.Lfree:
    movzx eax, word ptr [r15 + DE_REC_LEN]
    sub eax, ecx
    cmp eax, edx
    jae .Lfits
    movzx eax, word ptr [r15 + DE_REC_LEN]
    add r15, rax
    mov rcx, [r14 + JB_DATA]
    add rcx, PAGE_BYTES
    mov eax, -ENOSPC
    cmp r15, rcx
    jb .Lentry
.Lout:
    LEAVE5
.Lfits:
    mov [rbp - 48], ecx
    mov rdi, rbx
    mov rsi, r14
    call __ext4_journal_get_write_access
    mov ecx, [rbp - 48]
    test ecx, ecx
    je .Lfill
    movzx eax, word ptr [r15 + DE_REC_LEN]
    sub eax, ecx
    mov [r15 + DE_REC_LEN], cx
    add r15, rcx
    mov [r15 + DE_REC_LEN], ax
.Lfill:
    mov eax, [r13 + INODE_INO]
    mov [r15 + DE_INODE], eax
    mov edx, [r12 + DENTRY_NAME + QSTR_LEN]
    mov [r15 + DE_NAME_LEN], dl
    mov byte ptr [r15 + DE_TYPE], EXT4_FT_REG_FILE
    lea rdi, [r15 + DE_NAME]
    mov rsi, [r12 + DENTRY_NAME + QSTR_NAME]
    call memcpy
    mov rdi, rbx
    mov rsi, r14
    call __ext4_handle_dirty_metadata
    LEAVE5
ENDFUNC add_dirent_to_buf

FUNC ext4_append                        # rdi handle, rsi directory: rax buffer of a new, empty block, or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov rdx, [rsi + INODE_SIZE]
    shr rdx, PAGE_SHIFT
    mov ecx, EXT4_GET_BLOCKS_CREATE
    call ext4_bread
    cmp rax, ERR_MIN
    jae .Lout
    mov r13, rax
    mov rcx, [rax + JB_DATA]
    mov word ptr [rcx + DE_REC_LEN], PAGE_BYTES
    EXT4_I rcx, r12
    add qword ptr [r12 + INODE_SIZE], PAGE_BYTES
    add qword ptr [rcx + EI_DISKSIZE], PAGE_BYTES
    mov rdi, rbx
    mov rsi, r12
    call __ext4_mark_inode_dirty
    mov rax, r13
.Lout:
    LEAVE3
ENDFUNC ext4_append

FUNC ext4_add_entry                     # rdi handle, rsi dentry, rdx inode; eax 0 or error
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, [rsi + DENTRY_PARENT]
    mov r14, [r14 + DENTRY_INODE]
    xor r15d, r15d
.Lblock:
    mov rax, [r14 + INODE_SIZE]
    shr rax, PAGE_SHIFT
    cmp r15, rax
    jae .Lappend
    mov rdi, rbx
    mov rsi, r14
    mov edx, r15d
    xor ecx, ecx
    call ext4_bread
    inc r15
    test rax, rax
    je .Lblock
    cmp rax, ERR_MIN
    jae .Lout
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov rcx, rax
    call add_dirent_to_buf
    cmp eax, -ENOSPC
    je .Lblock
    jmp .Lout
.Lappend:
    mov rdi, rbx
    mov rsi, r14
    call ext4_append
    cmp rax, ERR_MIN
    jae .Lout
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov rcx, rax
    call add_dirent_to_buf
.Lout:
    LEAVE5
ENDFUNC ext4_add_entry

# A directory (rbx) has changed; r13 handle.
.macro TOUCH_DIRECTORY
    mov rdi, rbx
    call current_time
    mov [rbx + INODE_MTIME], rax
    mov [rbx + INODE_MTIME + 8], rdx
    mov [rbx + INODE_CTIME], rax
    mov [rbx + INODE_CTIME + 8], rdx
    mov rdi, r13
    mov rsi, rbx
    call __ext4_mark_inode_dirty
.endm

FUNC ext4_add_nondir                    # rdi handle, rsi dentry, rdx inode, which it takes; eax 0 or error
    ENTER3
    push 0
    mov rbx, rsi
    mov r12, rdx
    mov r13, rdi
    call ext4_add_entry
    test eax, eax
    jne .Lfailed
    mov rdi, rbx
    mov rsi, r12
    call d_instantiate
    cmp qword ptr [rbx + DENTRY_HASH_PPREV], 0
    jne .Lhashed
    mov rdi, rbx
    call d_rehash
.Lhashed:
    mov rbx, [rbx + DENTRY_PARENT]
    mov rbx, [rbx + DENTRY_INODE]
    TOUCH_DIRECTORY
    xor eax, eax
    LEAVE3
.Lfailed:
    mov ebx, eax
    mov rdi, r12
    call drop_nlink
    mov rdi, r12
    call iput                           # frees it again, in the same handle
    mov eax, ebx
    LEAVE3
ENDFUNC ext4_add_nondir

FUNC ext4_create                        # rdi ns, rsi directory, rdx dentry, ecx mode, r8d exclusive; eax
    ENTER4
    mov rbx, rsi
    mov r12, rdx
    mov r14d, ecx
    EXT4_JOURNAL_START r13, rbx, EXT4_CREDITS, .Lout
    mov rdi, r13
    mov rsi, rbx
    mov edx, r14d
    call __ext4_new_inode
    cmp rax, ERR_MIN
    jae .Lstop
    mov rdi, r13
    mov rsi, r12
    mov rdx, rax
    call ext4_add_nondir
.Lstop:
    mov r14d, eax
    mov rdi, r13
    call __ext4_journal_stop
    mov eax, r14d
.Lout:
    LEAVE4
ENDFUNC ext4_create

# rdi handle, rsi directory's buffer, rdx entry in it: it becomes part of the one before, or empty; eax
# 0 or error.
FUNC ext4_delete_entry
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    call __ext4_journal_get_write_access
    test eax, eax
    jne .Lout
    mov rcx, [r12 + JB_DATA]
    xor edx, edx
.Lentry:
    cmp rcx, r13
    jae .Lfound
    mov rdx, rcx
    movzx eax, word ptr [rcx + DE_REC_LEN]
    add rcx, rax
    jmp .Lentry
.Lfound:
    mov dword ptr [r13 + DE_INODE], 0
    test rdx, rdx
    je .Ldirty
    mov ax, [r13 + DE_REC_LEN]
    add [rdx + DE_REC_LEN], ax
.Ldirty:
    mov rdi, rbx
    mov rsi, r12
    call __ext4_handle_dirty_metadata
.Lout:
    LEAVE3
ENDFUNC ext4_delete_entry

FUNC __ext4_unlink                      # rdi directory, rsi dentry; eax 0 or error
    ENTER4
    sub rsp, 16
    mov rbx, rdi
    mov r12, rsi
    mov r14d, -ENOENT
    add rsi, DENTRY_NAME
    mov rdx, rsp
    call __ext4_find_entry
    test rax, rax
    je .Lresult
    cmp rax, ERR_MIN
    mov r14d, eax
    jae .Lresult
    mov [rsp + 8], rax
    EXT4_JOURNAL_START r13, rbx, EXT4_CREDITS, .Lout
    mov rdi, r13
    mov rsi, [rsp]
    mov rdx, [rsp + 8]
    call ext4_delete_entry
    mov r14d, eax
    test eax, eax
    jne .Lstop
    TOUCH_DIRECTORY
    mov r12, [r12 + DENTRY_INODE]
    mov rax, [rbx + INODE_CTIME]
    mov [r12 + INODE_CTIME], rax
    mov rdi, r12
    call drop_nlink
    cmp dword ptr [r12 + INODE_NLINK], 0
    jne .Lmark
    mov rdi, r12
    call current_time
    EXT4_I rcx, r12
    mov [rcx + EI_DTIME], eax
.Lmark:
    mov rdi, r13
    mov rsi, r12
    call __ext4_mark_inode_dirty
.Lstop:
    mov rdi, r13
    call __ext4_journal_stop
.Lresult:
    mov eax, r14d
.Lout:
    LEAVE4
ENDFUNC __ext4_unlink

FUNC ext4_unlink                        # rdi directory, rsi dentry; eax 0 or error
    PROLOGUE
    call __ext4_unlink
    EPILOGUE
ENDFUNC ext4_unlink
