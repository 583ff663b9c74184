# fs/ext4/file.c, fsync.c: what an open file of ext4 does.

.text

FUNC ext4_file_open                     # rdi inode, rsi file; eax 0 or error
    PROLOGUE
    call generic_file_open
    EPILOGUE
ENDFUNC ext4_file_open

FUNC ext4_release_file                  # rdi inode, rsi file; eax 0
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC ext4_release_file

# \inode: it goes into the journal with its next change, whether or not the last one has been written back.
.macro JOURNAL_HAS_IT inode
    lock and qword ptr [\inode + INODE_STATE], ~(I_DIRTY_SYNC | I_DIRTY_DATASYNC)
.endm

FUNC ext4_file_read_iter                # rdi kiocb, rsi iter; rax bytes or error
    PROLOGUE
    mov rax, [rdi + KI_FILP]
    mov rax, [rax + FILE_INODE]
    JOURNAL_HAS_IT rax
    xor eax, eax
    cmp [rsi + ITER_COUNT], rax
    je .Lout
    call generic_file_read_iter
.Lout:
    EPILOGUE
ENDFUNC ext4_file_read_iter

FUNC ext4_generic_write_checks          # rdi kiocb, rsi iter; rax bytes to write, 0 or error
    PROLOGUE
    call generic_write_checks
    EPILOGUE
ENDFUNC ext4_generic_write_checks

FUNC ext4_write_checks                  # rdi kiocb, rsi iter; rax bytes to write, 0 or error
    ENTER2
    mov rbx, rdi
    call ext4_generic_write_checks
    test rax, rax
    jle .Lout
    mov r12, rax
    mov rdi, [rbx + KI_FILP]
    call file_modified
    movsxd rax, eax
    test rax, rax
    cmove rax, r12
.Lout:
    LEAVE2
ENDFUNC ext4_write_checks

FUNC ext4_buffered_write_iter           # rdi kiocb, rsi iter; rax bytes or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, [rdi + KI_FILP]
    mov r13, [r13 + FILE_INODE]
    lea rdi, [r13 + INODE_RWSEM]
    call down_write
    JOURNAL_HAS_IT r13
    mov rdi, rbx
    mov rsi, r12
    call ext4_write_checks
    mov r14, rax
    test rax, rax
    jle .Lunlock
    mov rdi, rbx
    mov rsi, r12
    call generic_perform_write
    mov r14, rax
    test rax, rax
    jle .Lunlock
    add [rbx + KI_POS], rax
.Lunlock:
    lea rdi, [r13 + INODE_RWSEM]
    call up_write
    test r14, r14
    jle .Lout
    mov rdi, [rbx + KI_FILP]
    test dword ptr [rdi + FILE_FLAGS], O_DSYNC
    je .Lout
    mov rsi, [rbx + KI_POS]             # generic_write_sync
    lea rdx, [rsi - 1]
    sub rsi, r14
    mov ecx, 1
    call vfs_fsync_range
    test eax, eax
    je .Lout
    movsxd r14, eax
.Lout:
    mov rax, r14
    LEAVE4
ENDFUNC ext4_buffered_write_iter

FUNC ext4_file_write_iter               # rdi kiocb, rsi iter; rax bytes or error
    PROLOGUE
    call ext4_buffered_write_iter
    EPILOGUE
ENDFUNC ext4_file_write_iter

FUNC ext4_file_mmap                     # rdi file, rsi area; eax 0
    PROLOGUE
    call generic_file_mmap
    EPILOGUE
ENDFUNC ext4_file_mmap

FUNC ext4_llseek                        # rdi file, rsi offset, edx whence; rax position or error
    PROLOGUE
    call generic_file_llseek
    EPILOGUE
ENDFUNC ext4_llseek

FUNC ext4_fsync_journal                 # rdi inode, esi only data; eax 0 or error
    PROLOGUE
    EXT4_I rcx, rdi
    mov eax, [rcx + EI_SYNC_TID]
    test esi, esi
    cmovne eax, [rcx + EI_DATASYNC_TID]
    mov rdi, offset ext4_journal
    mov esi, eax
    call jbd2_complete_transaction
    EPILOGUE
ENDFUNC ext4_fsync_journal

FUNC ext4_sync_file                     # rdi file, rsi start, rdx end, ecx only data; eax 0 or error
    ENTER2
    mov rbx, [rdi + FILE_INODE]
    mov r12d, ecx
    call file_write_and_wait_range
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov esi, r12d
    call ext4_fsync_journal
.Lout:
    LEAVE2
ENDFUNC ext4_sync_file

# --- the whole file system (super.c) --------------------------------------------------------------

FUNC ext4_sync_fs                       # rdi super block, esi whether to wait; eax 0
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    mov rdi, offset ext4_journal
    mov rcx, [rdi + J_RUNNING]
    test rcx, rcx
    je .Lclean
    mov esi, [rcx + TX_TID]
    test r12d, r12d
    jne .Lwait
    call jbd2_log_start_commit
    jmp .Lclean
.Lwait:
    call jbd2_complete_transaction
.Lclean:
    mov rdi, rbx
    call ext4_commit_super
    LEAVE2
ENDFUNC ext4_sync_fs

# The counts of the super block on the disk, which no transaction keeps up to date: rdi super block; eax 0.
FUNC ext4_commit_super
    ENTER1
    push 0
    xor esi, esi
    lea rdx, [rbp - 16]
    call ext4_get_group_desc
    mov rdx, [rip + vda1]
    movzx ecx, word ptr [rax + DESC_FREE_BLOCKS]
    mov [rdx + EXT4_FREE_BLOCKS_COUNT], ecx
    movzx ecx, word ptr [rax + DESC_FREE_INODES]
    mov [rdx + EXT4_FREE_INODES_COUNT], ecx
    xor eax, eax
    LEAVE1
ENDFUNC ext4_commit_super
