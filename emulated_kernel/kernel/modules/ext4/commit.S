# fs/jbd2/commit.c, checkpoint.c: writing a transaction into the log, and its blocks to where they belong.
# The log is a ring of blocks; each transaction is a descriptor block that names its blocks, the blocks,
# and a commit record. Nothing here sleeps once a transaction has no handles left.

.text

# rdi journal, locked for writing: wait until its running transaction has no handles left.
FUNC jbd2_journal_wait_updates
    ENTER2
    sub rsp, WAIT_SIZE
    mov rbx, rdi
    mov r12, [rdi + J_RUNNING]
.Lagain:
    mov rdi, rsp
    xor esi, esi
    call init_wait_entry
    lea rdi, [rbx + J_WAIT_UPDATES]
    mov rsi, rsp
    mov edx, TASK_UNINTERRUPTIBLE
    call prepare_to_wait
    cmp dword ptr [r12 + TX_UPDATES], 0
    je .Lnone
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_unlock
    call schedule
    lea rdi, [rbx + J_WAIT_UPDATES]
    mov rsi, rsp
    call finish_wait
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_lock
    jmp .Lagain
.Lnone:
    lea rdi, [rbx + J_WAIT_UPDATES]
    mov rsi, rsp
    call finish_wait
    LEAVE2
ENDFUNC jbd2_journal_wait_updates

FUNC jbd2_journal_commit_transaction    # rdi journal with a running transaction
    ENTER5
    push 0
    mov rbx, rdi
    lea rdi, [rdi + J_STATE_LOCK]
    call _raw_write_lock
    mov r12, [rbx + J_RUNNING]
    mov dword ptr [r12 + TX_STATE], TX_LOCKED
    mov rdi, rbx
    call jbd2_journal_wait_updates
    mov dword ptr [r12 + TX_STATE], TX_COMMIT
    mov [rbx + J_COMMITTING], r12
    mov qword ptr [rbx + J_RUNNING], 0
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_unlock
    cmp dword ptr [r12 + TX_NR_BUFFERS], 0      # there is room for them: add_transaction_credits
    je .Lrecord
    mov rdi, r12
    mov esi, JBD2_DESCRIPTOR_BLOCK
    call jbd2_journal_get_descriptor_buffer
    lea r13, [rax + JH_BYTES]           # the next tag
    xor r15d, r15d                      # the first tag is followed by the uuid
.Lbuffer:
    lea rax, [r12 + TX_BUFFERS]
    mov r14, [rax]
    cmp r14, rax
    je .Ltagged
    sub r14, JB_LIST
    mov rdi, rbx
    lea rsi, [rbp - 48]
    call jbd2_journal_next_log_block
    mov rdi, r12
    mov rsi, r14
    mov rdx, [rbp - 48]
    call jbd2_journal_write_metadata_buffer
    or r15d, eax
    mov eax, [r14 + JB_BLOCK]
    bswap eax
    mov [r13 + TAG_BLOCK], eax
    mov eax, r15d
    rol ax, 8
    mov [r13 + TAG_FLAGS], ax
    mov [rbp - 48], r13
    add r13, TAG_BYTES
    test r15d, JBD2_FLAG_SAME_UUID
    jne .Lunfile
    mov rcx, [rbx + J_SUPERBLOCK]
    mov rax, [rcx + JSB_UUID]
    mov [r13], rax
    mov rax, [rcx + JSB_UUID + 8]
    mov [r13 + 8], rax
    add r13, UUID_BYTES
.Lunfile:
    mov r15d, JBD2_FLAG_SAME_UUID
    mov rdi, r14
    call __jbd2_journal_unfile_buffer
    jmp .Lbuffer
.Ltagged:
    mov rax, [rbp - 48]
    or byte ptr [rax + TAG_FLAGS + 1], JBD2_FLAG_LAST_TAG
.Lrecord:
    mov rdi, rbx
    mov rsi, r12
    call journal_submit_commit_record
    mov rdi, rbx
    mov rsi, r12
    call ext4_journal_commit_callback
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_lock
    mov eax, [r12 + TX_TID]
    mov [rbx + J_COMMIT_SEQUENCE], eax
    mov qword ptr [rbx + J_COMMITTING], 0
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_unlock
    test dword ptr [r12 + TX_FREED], TX_FREED_METADATA
    je .Lkept
    mov rdi, rbx
    call jbd2_log_do_checkpoint
.Lkept:
    mov rdi, r12
    call kfree
    lea rdi, [rbx + J_WAIT_LOCKED]
    mov esi, TASK_NORMAL
    xor edx, edx
    xor ecx, ecx
    call __wake_up
    lea rdi, [rbx + J_WAIT_DONE]
    mov esi, TASK_NORMAL
    xor edx, edx
    xor ecx, ecx
    call __wake_up
    LEAVE5
ENDFUNC jbd2_journal_commit_transaction

FUNC jbd2_journal_next_log_block        # rdi journal, rsi where the disk's block number goes; eax 0
    PROLOGUE
    mov eax, [rdi + J_HEAD]
    mov ecx, eax
    inc ecx
    cmp ecx, [rdi + J_LAST]
    jb .Lhead
    mov ecx, [rdi + J_FIRST]
.Lhead:
    mov [rdi + J_HEAD], ecx
    dec dword ptr [rdi + J_FREE]
    mov rdx, rsi
    mov esi, eax
    call jbd2_journal_bmap
    EPILOGUE
ENDFUNC jbd2_journal_next_log_block

FUNC jbd2_journal_bmap                  # rdi journal, esi block of the log, rdx where the disk's goes; eax 0
    PROLOGUE
    mov eax, esi
    add rax, [rdi + J_BLOCK]
    mov [rdx], rax
    xor eax, eax
    EPILOGUE
ENDFUNC jbd2_journal_bmap

# The next block of the log, empty but for its header: rdi transaction, esi type; rax its memory.
FUNC jbd2_journal_get_descriptor_buffer
    ENTER2
    sub rsp, 16
    mov rbx, rdi
    mov r12d, esi
    mov rdi, offset ext4_journal
    mov rsi, rsp
    call jbd2_journal_next_log_block
    mov rdi, [rsp]
    DISK_BLOCK rdi
    mov [rsp], rdi
    call clear_page_rep
    mov rax, [rsp]
    mov ecx, JBD2_MAGIC
    bswap ecx
    mov [rax], ecx
    bswap r12d
    mov [rax + JH_TYPE], r12d
    mov ecx, [rbx + TX_TID]
    bswap ecx
    mov [rax + JH_SEQUENCE], ecx
    LEAVE2
ENDFUNC jbd2_journal_get_descriptor_buffer

# Into the log: rdi transaction, rsi buffer, rdx block of the disk; eax JBD2_FLAG_ESCAPE when the magic
# number had to be taken out of the copy, or 0.
FUNC jbd2_journal_write_metadata_buffer
    PROLOGUE
    mov rdi, rdx
    DISK_BLOCK rdi
    mov rdx, rdi
    mov rsi, [rsi + JB_DATA]
    COPY_PAGE
    mov ecx, JBD2_MAGIC
    bswap ecx
    xor eax, eax
    cmp [rdx], ecx
    jne .Lout
    mov [rdx], eax
    mov eax, JBD2_FLAG_ESCAPE
.Lout:
    EPILOGUE
ENDFUNC jbd2_journal_write_metadata_buffer

FUNC journal_submit_commit_record       # rdi journal, rsi transaction; eax 0
    ENTER1
    sub rsp, 24
    mov rdi, rsi
    mov esi, JBD2_COMMIT_BLOCK
    call jbd2_journal_get_descriptor_buffer
    mov rbx, rax
    mov rdi, rsp
    call ktime_get_coarse_real_ts64
    mov rax, [rsp]
    bswap rax
    mov [rbx + COMMIT_SEC], rax
    mov eax, [rsp + 8]
    bswap eax
    mov [rbx + COMMIT_NSEC], eax
    xor eax, eax
    LEAVE1
ENDFUNC journal_submit_commit_record

# --- checkpoint -----------------------------------------------------------------------------------

# Copy what a descriptor's tags name from the log home: rdi journal, rsi descriptor, edx its block of the
# log; eax how many blocks of the log that were.
FUNC_NOTRACE jbd2_checkpoint_descriptor
    ENTER5
    sub rsp, 24
    mov rbx, rdi
    lea r12, [rsi + JH_BYTES]
    mov r13d, edx
    xor r14d, r14d
.Ltag:
    inc r14d
    inc r13d
    cmp r13d, [rbx + J_LAST]
    jb 1f
    mov r13d, [rbx + J_FIRST]
1:
    mov rdi, rbx
    mov esi, r13d
    lea rdx, [rbp - 48]
    call jbd2_journal_bmap
    mov rsi, [rbp - 48]
    DISK_BLOCK rsi
    mov eax, [r12 + TAG_BLOCK]
    bswap eax
    mov rdi, rax
    DISK_BLOCK rdi
    mov rdx, rdi
    COPY_PAGE
    movzx eax, word ptr [r12 + TAG_FLAGS]
    rol ax, 8
    test eax, JBD2_FLAG_ESCAPE
    je 2f
    mov ecx, JBD2_MAGIC
    bswap ecx
    mov [rdx], ecx
2:
    add r12, TAG_BYTES
    test eax, JBD2_FLAG_SAME_UUID
    jne 3f
    add r12, UUID_BYTES
3:
    test eax, JBD2_FLAG_LAST_TAG
    je .Ltag
    mov eax, r14d
    LEAVE5
ENDFUNC jbd2_checkpoint_descriptor

# Bring home all that is committed, in the order it was logged, as a recovery would; the log is empty
# then. rdi journal; eax 0.
FUNC jbd2_log_do_checkpoint
    ENTER3
    sub rsp, 24
    mov rbx, rdi
    mov r12d, [rdi + J_TAIL]
    mov r13d, [rdi + J_LAST]
    sub r13d, [rdi + J_FIRST]
    sub r13d, [rdi + J_FREE]            # blocks to look at
    jbe .Lclean
.Lblock:
    mov rdi, rbx
    mov esi, r12d
    lea rdx, [rbp - 32]
    call jbd2_journal_bmap
    mov rsi, [rbp - 32]
    DISK_BLOCK rsi
    mov ecx, 1
    mov eax, [rsi + JH_TYPE]
    bswap eax
    cmp eax, JBD2_DESCRIPTOR_BLOCK
    jne .Lnext
    mov rdi, rbx
    mov edx, r12d
    call jbd2_checkpoint_descriptor
    lea ecx, [rax + 1]
.Lnext:
    add r12d, ecx
    cmp r12d, [rbx + J_LAST]
    jb .Lwrapped
    sub r12d, [rbx + J_LAST]
    add r12d, [rbx + J_FIRST]
.Lwrapped:
    sub r13d, ecx
    ja .Lblock
.Lclean:
    mov rdi, rbx
    call jbd2_cleanup_journal_tail
    xor eax, eax
    LEAVE3
ENDFUNC jbd2_log_do_checkpoint

FUNC jbd2_cleanup_journal_tail          # rdi journal, of which nothing is needed any more; eax 0
    PROLOGUE
    mov esi, [rdi + J_COMMIT_SEQUENCE]
    inc esi
    mov edx, [rdi + J_HEAD]
    call jbd2_update_log_tail
    xor eax, eax
    EPILOGUE
ENDFUNC jbd2_cleanup_journal_tail

FUNC jbd2_update_log_tail               # rdi journal, esi tid, edx block of the log: it begins there
    PROLOGUE
    mov eax, [rdi + J_LAST]
    sub eax, [rdi + J_FIRST]
    mov [rdi + J_FREE], eax
    mov [rdi + J_TAIL], edx
    mov [rdi + J_TAIL_SEQUENCE], esi
    call jbd2_journal_update_sb_log_tail
    EPILOGUE
ENDFUNC jbd2_update_log_tail

FUNC jbd2_journal_update_sb_log_tail    # rdi journal, esi tid, edx block of the log; eax 0
    PROLOGUE
    mov rax, [rdi + J_SUPERBLOCK]
    bswap esi
    mov [rax + JSB_SEQUENCE], esi
    bswap edx
    mov [rax + JSB_START], edx
    xor eax, eax
    EPILOGUE
ENDFUNC jbd2_journal_update_sb_log_tail
