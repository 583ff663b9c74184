# fs/jbd2/transaction.c, journal.c: handles, the transaction they belong to, and the thread that commits it.
# One journal. Left out: reserved handles, revoke records (see jbd2_journal_forget), data buffers,
# checksums, aborts.

.text

# The handle of this task, or 0 in rax (current->journal_info).
FUNC_NOTRACE journal_current_handle
    mov rdx, offset ext4_journal
    add rdx, J_HANDLES
    mov rcx, gs:[CURRENT_TASK]
    mov rax, rdx
1:
    mov rax, [rax]
    cmp rax, rdx
    je 2f
    cmp [rax + HDL_TASK], rcx
    jne 1b
    ret
2:
    xor eax, eax
    ret
ENDFUNC journal_current_handle

FUNC jbd2_journal_start                 # rdi journal, esi credits; rax handle or error
    PROLOGUE
    xor edx, edx
    xor ecx, ecx
    call jbd2__journal_start
    EPILOGUE
ENDFUNC jbd2_journal_start

FUNC jbd2__journal_start                # rdi journal, esi credits, edx reserved, ecx revoked; rax
    ENTER3
    push 0
    mov rbx, rdi
    mov r12d, esi
    call journal_current_handle
    test rax, rax
    je .Lnew
    inc dword ptr [rax + HDL_REF]
    LEAVE3
.Lnew:
    mov edi, HDL_BYTES
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lnomem
    mov r13, rax
    mov dword ptr [rax + HDL_REF], 1
    mov [rax + HDL_CREDITS], r12d
    mov rcx, gs:[CURRENT_TASK]
    mov [rax + HDL_TASK], rcx
    mov rdi, rbx
    mov rsi, rax
    call start_this_handle
    movsxd r12, eax
    mov rax, r13
    test r12, r12
    je .Lout
    mov rdi, r13
    call kfree
    mov rax, r12
.Lout:
    LEAVE3
.Lnomem:
    mov rax, -ENOMEM
    LEAVE3
ENDFUNC jbd2__journal_start

# Join the running transaction, or begin one: rdi journal, rsi handle; eax 0 or error.
FUNC start_this_handle
    ENTER4
    mov rbx, rdi
    mov r12, rsi
.Lrepeat:
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_read_lock
    mov r13, [rbx + J_RUNNING]
    test r13, r13
    jne .Lrunning
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_read_unlock
    mov edi, TX_BYTES
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    mov r13, rax
    test rax, rax
    je .Lnomem
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_lock
    cmp qword ptr [rbx + J_RUNNING], 0
    jne .Llost
    mov rdi, rbx
    mov rsi, r13
    call jbd2_get_transaction
    xor r13d, r13d
.Llost:
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_unlock
    mov rdi, r13
    call kfree
    jmp .Lrepeat
.Lrunning:
    cmp dword ptr [r13 + TX_STATE], TX_RUNNING
    je .Lcredits
    mov rdi, rbx
    call wait_transaction_locked
    jmp .Lrepeat
.Lcredits:
    mov rdi, rbx
    mov esi, [r12 + HDL_CREDITS]
    call add_transaction_credits
    test eax, eax
    jne .Lrepeat
    mov [r12 + HDL_TRANSACTION], r13
    lock inc dword ptr [r13 + TX_UPDATES]
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_read_unlock
    lea rdi, [rbx + J_LIST_LOCK]
    call _raw_spin_lock
    lea rdi, [rbx + J_HANDLES]
    LIST_ADD_TAIL r12, rdi, rax
    lea rdi, [rbx + J_LIST_LOCK]
    call _raw_spin_unlock
    xor eax, eax
    LEAVE4
.Lnomem:
    mov eax, -ENOMEM
    LEAVE4
ENDFUNC start_this_handle

FUNC jbd2_get_transaction               # rdi journal (locked for writing), rsi new transaction
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov eax, [rdi + J_TRANSACTION_SEQUENCE]
    inc dword ptr [rdi + J_TRANSACTION_SEQUENCE]
    mov [rsi + TX_TID], eax
    mov dword ptr [rsi + TX_STATE], TX_RUNNING
    lea rax, [rsi + TX_BUFFERS]
    LIST_INIT rax
    mov [rdi + J_RUNNING], rsi
    mov rsi, [rip + jiffies_64]
    add rsi, COMMIT_INTERVAL
    mov [r12 + TX_EXPIRES], rsi
    lea rdi, [rbx + J_COMMIT_TIMER]
    call mod_timer
    LEAVE2
ENDFUNC jbd2_get_transaction

# The running transaction takes no more handles: sleep until the next one may. rdi journal, locked for
# reading, which it no longer is afterwards.
FUNC wait_transaction_locked
    ENTER1
    sub rsp, WAIT_SIZE
    mov rbx, rdi
    mov rdi, rsp
    xor esi, esi
    call init_wait_entry
    lea rdi, [rbx + J_WAIT_LOCKED]
    mov rsi, rsp
    mov edx, TASK_UNINTERRUPTIBLE
    call prepare_to_wait
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_read_unlock
    call schedule
    lea rdi, [rbx + J_WAIT_LOCKED]
    mov rsi, rsp
    call finish_wait
    LEAVE1
ENDFUNC wait_transaction_locked

# Promise the running transaction room in the log: rdi journal, locked for reading, esi blocks; eax 0, or
# 1 when the lock was dropped to make room.
FUNC add_transaction_credits
    ENTER1
    push 0
    mov rbx, rdi
    mov rcx, [rdi + J_RUNNING]
    mov eax, esi
    lock xadd [rcx + TX_CREDITS], eax
    add eax, esi
    add eax, 2                          # descriptor and commit record
    cmp eax, [rbx + J_FREE]
    ja .Lfull
    xor eax, eax
    LEAVE1
.Lfull:
    lock sub [rcx + TX_CREDITS], esi
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_read_unlock
    mov rdi, rbx
    call __jbd2_log_wait_for_space
    mov eax, 1
    LEAVE1
ENDFUNC add_transaction_credits

FUNC jbd2_journal_stop                  # rdi handle; eax 0
    ENTER2
    mov rbx, rdi
    dec dword ptr [rdi + HDL_REF]
    jne .Lout
    mov r12, offset ext4_journal
    lea rdi, [r12 + J_LIST_LOCK]
    call _raw_spin_lock
    LIST_DEL rbx, rax, rcx
    lea rdi, [r12 + J_LIST_LOCK]
    call _raw_spin_unlock
    mov rdi, rbx
    call stop_this_handle
    mov rdi, rbx
    call kfree
.Lout:
    xor eax, eax
    LEAVE2
ENDFUNC jbd2_journal_stop

FUNC stop_this_handle                   # rdi handle: what it did not use goes back
    PROLOGUE
    mov rcx, [rdi + HDL_TRANSACTION]
    mov eax, [rdi + HDL_CREDITS]
    lock sub [rcx + TX_CREDITS], eax
    lock dec dword ptr [rcx + TX_UPDATES]
    jne .Lout
    mov rdi, offset ext4_journal
    add rdi, J_WAIT_UPDATES
    mov esi, TASK_NORMAL
    xor edx, edx
    xor ecx, ecx
    call __wake_up
.Lout:
    EPILOGUE
ENDFUNC stop_this_handle

# --- buffers --------------------------------------------------------------------------------------

FUNC jbd2_journal_get_write_access      # rdi handle, rsi buffer about to be changed; eax 0
    PROLOGUE
    call do_get_write_access
    EPILOGUE
ENDFUNC jbd2_journal_get_write_access

# A commit copies its buffers without sleeping, so no change ever meets one that is just being written.
FUNC do_get_write_access                # rdi handle, rsi buffer; eax 0
    PROLOGUE
    mov rax, [rdi + HDL_TRANSACTION]
    cmp [rsi + JB_TRANSACTION], rax
    je .Lout
    mov [rsi + JB_TRANSACTION], rax
    and dword ptr [rsi + JB_STATE], ~JB_MODIFIED
.Lout:
    xor eax, eax
    EPILOGUE
ENDFUNC do_get_write_access

FUNC jbd2_journal_get_create_access     # rdi handle, rsi buffer of a block that is new; eax 0
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rdi, [rsi + JB_DATA]
    call clear_page_rep
    or dword ptr [r12 + JB_STATE], JB_UPTODATE
    mov rdi, rbx
    mov rsi, r12
    call do_get_write_access
    LEAVE2
ENDFUNC jbd2_journal_get_create_access

FUNC jbd2_journal_dirty_metadata        # rdi handle, rsi buffer that was changed; eax 0 or error
    ENTER1
    push 0
    mov rbx, rsi
    mov rcx, [rdi + HDL_TRANSACTION]
    mov eax, -EINVAL
    cmp [rsi + JB_TRANSACTION], rcx
    jne .Lout
    test dword ptr [rsi + JB_STATE], JB_MODIFIED
    jne .Lfile
    mov eax, -ENOSPC
    cmp dword ptr [rdi + HDL_CREDITS], 0
    je .Lout
    dec dword ptr [rdi + HDL_CREDITS]
    or dword ptr [rsi + JB_STATE], JB_MODIFIED
.Lfile:
    xor eax, eax
    test dword ptr [rsi + JB_STATE], JB_JBDDIRTY
    jne .Lout
    mov rdi, offset ext4_journal
    add rdi, J_LIST_LOCK
    call _raw_spin_lock
    mov rdi, rbx
    call __jbd2_journal_file_buffer
    mov rdi, offset ext4_journal
    add rdi, J_LIST_LOCK
    call _raw_spin_unlock
    xor eax, eax
.Lout:
    LEAVE1
ENDFUNC jbd2_journal_dirty_metadata

FUNC __jbd2_journal_file_buffer         # rdi buffer: onto its transaction's list
    PROLOGUE
    or dword ptr [rdi + JB_STATE], JB_JBDDIRTY
    mov rdx, [rdi + JB_TRANSACTION]
    inc dword ptr [rdx + TX_NR_BUFFERS]
    add rdi, JB_LIST
    add rdx, TX_BUFFERS
    LIST_ADD_TAIL rdi, rdx, rax
    EPILOGUE
ENDFUNC __jbd2_journal_file_buffer

FUNC __jbd2_journal_unfile_buffer       # rdi buffer: off its transaction's list
    PROLOGUE
    and dword ptr [rdi + JB_STATE], ~(JB_JBDDIRTY | JB_MODIFIED)
    xor edx, edx
    xchg rdx, [rdi + JB_TRANSACTION]
    dec dword ptr [rdx + TX_NR_BUFFERS]
    add rdi, JB_LIST
    LIST_DEL rdi, rax, rcx
    EPILOGUE
ENDFUNC __jbd2_journal_unfile_buffer

# A metadata block is freed: rdi handle, rsi buffer; eax 0. What older transactions logged for it must
# not come back over whatever it holds next, so this one's commit clears the log.
FUNC jbd2_journal_forget
    ENTER1
    push 0
    mov rbx, rsi
    mov rax, [rdi + HDL_TRANSACTION]
    or dword ptr [rax + TX_FREED], TX_FREED_METADATA
    mov rdi, offset ext4_journal
    add rdi, J_LIST_LOCK
    call _raw_spin_lock
    test dword ptr [rbx + JB_STATE], JB_JBDDIRTY
    je .Lunfiled
    mov rdi, rbx
    call __jbd2_journal_unfile_buffer
.Lunfiled:
    mov qword ptr [rbx + JB_TRANSACTION], 0
    and dword ptr [rbx + JB_STATE], ~(JB_UPTODATE | JB_MODIFIED)
    mov rdi, offset ext4_journal
    add rdi, J_LIST_LOCK
    call _raw_spin_unlock
    xor eax, eax
    LEAVE1
ENDFUNC jbd2_journal_forget

# --- asking for a commit, and waiting for it ------------------------------------------------------

FUNC __jbd2_log_start_commit            # rdi journal (locked for writing), esi tid; eax whether it was news
    PROLOGUE
    xor eax, eax
    cmp [rdi + J_COMMIT_REQUEST], esi
    je .Lout
    mov rcx, [rdi + J_RUNNING]
    test rcx, rcx
    je .Lout
    cmp [rcx + TX_TID], esi
    jne .Lout
    mov [rdi + J_COMMIT_REQUEST], esi
    add rdi, J_WAIT_COMMIT
    mov esi, TASK_NORMAL
    xor edx, edx
    xor ecx, ecx
    call __wake_up
    mov eax, 1
.Lout:
    EPILOGUE
ENDFUNC __jbd2_log_start_commit

FUNC jbd2_log_start_commit              # rdi journal, esi tid; eax whether it was news
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    lea rdi, [rdi + J_STATE_LOCK]
    call _raw_write_lock
    mov rdi, rbx
    mov esi, r12d
    call __jbd2_log_start_commit
    mov r12d, eax
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_unlock
    mov eax, r12d
    LEAVE2
ENDFUNC jbd2_log_start_commit

FUNC jbd2_log_wait_commit               # rdi journal, esi tid; eax 0 when it is in the log
    ENTER2
    sub rsp, WAIT_SIZE
    mov rbx, rdi
    mov r12d, esi
    mov rdi, rsp
    xor esi, esi
    call init_wait_entry
.Lagain:
    lea rdi, [rbx + J_WAIT_DONE]
    mov rsi, rsp
    mov edx, TASK_UNINTERRUPTIBLE
    call prepare_to_wait
    mov eax, r12d
    sub eax, [rbx + J_COMMIT_SEQUENCE]
    jle .Ldone
    call schedule
    jmp .Lagain
.Ldone:
    lea rdi, [rbx + J_WAIT_DONE]
    mov rsi, rsp
    call finish_wait
    xor eax, eax
    LEAVE2
ENDFUNC jbd2_log_wait_commit

FUNC jbd2_complete_transaction          # rdi journal, esi tid; eax 0 when it is in the log
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    mov eax, esi
    sub eax, [rdi + J_COMMIT_SEQUENCE]
    jle .Ldone
    call jbd2_log_start_commit
    mov rdi, rbx
    mov esi, r12d
    call jbd2_log_wait_commit
.Ldone:
    xor eax, eax
    LEAVE2
ENDFUNC jbd2_complete_transaction

# Commit what is running; eax 1 when there was something. The caller has no handle.
FUNC jbd2_journal_force_commit_nested   # rdi journal
    ENTER1
    push 0
    mov rbx, rdi
    mov rcx, [rdi + J_RUNNING]
    xor eax, eax
    test rcx, rcx
    je .Lout
    mov esi, [rcx + TX_TID]
    call jbd2_complete_transaction
    mov eax, 1
.Lout:
    LEAVE1
ENDFUNC jbd2_journal_force_commit_nested

# Room in the log: by a checkpoint, or where that is not enough by a commit. rdi journal.
FUNC __jbd2_log_wait_for_space
    PROLOGUE
    mov eax, [rdi + J_LAST]
    sub eax, [rdi + J_FIRST]
    cmp [rdi + J_FREE], eax
    je .Lempty
    call jbd2_log_do_checkpoint
    EPILOGUE
.Lempty:
    call jbd2_journal_force_commit_nested
    EPILOGUE
ENDFUNC __jbd2_log_wait_for_space

# --- the thread -----------------------------------------------------------------------------------

FUNC commit_timeout                     # rdi the journal's timer
    PROLOGUE
    mov rdi, [rip + ext4_journal + J_TASK]
    call wake_up_process
    EPILOGUE
ENDFUNC commit_timeout

FUNC kjournald2                         # rdi journal; does not return
    ENTER2
    sub rsp, WAIT_SIZE
    mov rbx, rdi
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_lock
.Lloop:
    mov eax, [rbx + J_COMMIT_REQUEST]
    cmp [rbx + J_COMMIT_SEQUENCE], eax
    je .Lidle
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_unlock
    lea rdi, [rbx + J_COMMIT_TIMER]
    call timer_delete_sync
    mov rdi, rbx
    call jbd2_journal_commit_transaction
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_lock
    jmp .Lloop
.Lidle:
    mov rdi, rsp
    xor esi, esi
    call init_wait_entry
    lea rdi, [rbx + J_WAIT_COMMIT]
    mov rsi, rsp
    mov edx, TASK_INTERRUPTIBLE
    call prepare_to_wait
    mov r12, [rbx + J_RUNNING]
    test r12, r12
    je .Lsleep
    TIME_AFTER_JIFFIES [r12 + TX_EXPIRES]
    jns .Lawake
.Lsleep:
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_unlock
    call schedule
    lea rdi, [rbx + J_STATE_LOCK]
    call _raw_write_lock
.Lawake:
    lea rdi, [rbx + J_WAIT_COMMIT]
    mov rsi, rsp
    call finish_wait
    mov r12, [rbx + J_RUNNING]
    test r12, r12
    je .Lloop
    TIME_AFTER_JIFFIES [r12 + TX_EXPIRES]
    js .Lloop
    mov eax, [r12 + TX_TID]
    mov [rbx + J_COMMIT_REQUEST], eax
    jmp .Lloop
ENDFUNC kjournald2
