# The module ext4: a file system on a disk of its own, vda1, which is memory. The format is ext4's and
# its journal jbd2's; see ext4/ for both. init_module makes the file system, mounts it on /mnt and starts the
# journal's thread and a work that appends a line to a log once a second. Left out: more than one file
# system, mounting a disk that was there before (so the log is never replayed).

.text

FUNC_NOTRACE init_module                # eax 0 or error; it does not sleep
    ENTER2
    PREEMPT_DISABLE
    mov edi, GFP_KERNEL | GFP_ZERO
    mov esi, DISK_ORDER
    call __get_free_pages
    mov [rip + vda1], rax
    test rax, rax
    je .Lnomem
    mov edi, NR_BLOCKS * JB_BYTES
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    mov [rip + vda1_buffers], rax
    test rax, rax
    je .Lnomem
    mov rdi, offset ext4_rsv_conversion_name
    xor esi, esi
    xor edx, edx
    call alloc_workqueue
    mov [rip + ext4_rsv_conversion_wq], rax
    test rax, rax
    je .Lnomem
    call ext4_mkfs
    call jbd2_journal_init_inode
    mov rdi, offset ext4_name
    mov esi, EXT4_MAGIC
    mov rdx, offset ext4_sops
    xor ecx, ecx
    mov r8d, SB_I_WRITEBACK
    call alloc_super
    mov [rip + ext4_sb], rax
    test rax, rax
    je .Lnomem
    call ext4_fill_super
    test rax, rax
    je .Lnomem
    call ext4_start_thread
    cmp rax, ERR_MIN
    jae .Lnomem
    call ext4_mount
    test rax, rax
    je .Lnomem
    call ext4_make_files
    cmp rax, ERR_MIN
    jae .Lout
    mov rdi, offset ext4_journal
    call jbd2_journal_force_commit_here
    mov rax, offset ext4_ambient_work
    mov [rip + ext4_log_work + WORK_FUNC], rax
    mov edi, WORK_CPU_UNBOUND
    mov rsi, offset system_wq
    mov rdx, offset ext4_log_work
    mov ecx, HZ
    call queue_delayed_work_on
    xor eax, eax
    jmp .Lout
.Lnomem:
    mov eax, -ENOMEM
.Lout:
    PREEMPT_ENABLE
    LEAVE2
ENDFUNC init_module

# --- the pieces ------------------------------------------------------------------------------------

FUNC_NOTRACE jbd2_journal_init_inode
    ENTER1
    push 0
    mov rbx, offset ext4_journal
    mov rax, [rip + vda1]
    add rax, JOURNAL_BLOCK * PAGE_BYTES
    mov [rbx + J_SUPERBLOCK], rax
    mov qword ptr [rbx + J_BLOCK], JOURNAL_BLOCK
    mov dword ptr [rbx + J_FIRST], 1
    mov dword ptr [rbx + J_LAST], JOURNAL_BLOCKS
    mov dword ptr [rbx + J_FREE], JOURNAL_BLOCKS - 1
    mov dword ptr [rbx + J_HEAD], 1
    mov dword ptr [rbx + J_TAIL], 1
    mov dword ptr [rbx + J_TAIL_SEQUENCE], 1
    mov dword ptr [rbx + J_TRANSACTION_SEQUENCE], 1
    lea rdi, [rbx + J_WAIT_LOCKED]
    call __init_waitqueue_head
    lea rdi, [rbx + J_WAIT_DONE]
    call __init_waitqueue_head
    lea rdi, [rbx + J_WAIT_COMMIT]
    call __init_waitqueue_head
    lea rdi, [rbx + J_WAIT_UPDATES]
    call __init_waitqueue_head
    lea rax, [rbx + J_HANDLES]
    LIST_INIT rax
    lea rdi, [rbx + J_COMMIT_TIMER]
    mov rsi, offset commit_timeout
    xor edx, edx
    call init_timer_key
    LEAVE1
ENDFUNC jbd2_journal_init_inode

FUNC_NOTRACE ext4_fill_super            # rax the root's dentry or 0
    ENTER1
    push 0
    xor ebx, ebx
.Lblock:
    mov rdi, [rip + ext4_sb]            # what is always needed is always there
    mov rsi, rbx
    xor edx, edx
    call ext4_sb_bread
    cmp rax, ERR_MIN
    jae .Lfailed
    inc ebx
    cmp ebx, ROOT_BLOCK + 1
    jb .Lblock
    mov rdi, [rip + ext4_sb]
    xor esi, esi
    call ext4_process_freed_data
    mov rdi, [rip + ext4_sb]
    mov esi, ROOT_INO
    xor edx, edx
    call __ext4_iget
    cmp rax, ERR_MIN
    jae .Lfailed
    mov rdi, rax
    call d_make_root
    mov rcx, [rip + ext4_sb]
    mov [rcx + SB_ROOT], rax
    LEAVE1
.Lfailed:
    xor eax, eax
    LEAVE1
ENDFUNC ext4_fill_super

# The thread is made as the idle task makes those of the kernel: it has nothing of whoever loads the module.
FUNC_NOTRACE ext4_start_thread          # rax its task or error
    ENTER1
    push 0
    mov rax, gs:[RQ_IDLE]
    mov rbx, gs:[CURRENT_TASK]
    mov gs:[CURRENT_TASK], rax
    mov rdi, offset kjournald2
    mov rsi, offset ext4_journal
    mov rdx, offset vda1_kjournald2_name
    call kthread_create_on_node
    mov gs:[CURRENT_TASK], rbx
    cmp rax, ERR_MIN
    jae .Lout
    mov [rip + ext4_journal + J_TASK], rax
    mov rdi, rax
    call wake_up_new_task
    mov rax, [rip + ext4_journal + J_TASK]
.Lout:
    LEAVE1
ENDFUNC ext4_start_thread

# --- mounting it ----------------------------------------------------------------------------------

# On /mnt, which is made where it is missing: rax the mount or 0.
FUNC_NOTRACE ext4_mount
    ENTER2
    sub rsp, 16
    xor edx, edx
    mov rcx, offset init_fs
    mov rax, [rcx + FS_ROOT + PATH_MNT]
    test rax, rax
    je .Lmount                          # a kernel without a root: on nothing then
    mov [rsp + PATH_MNT], rax
    mov r12, [rcx + FS_ROOT + PATH_DENTRY]
    mov rdi, offset ext4_mnt_name
    mov rsi, r12
    mov edx, 3
    call lookup_one_len
    cmp rax, ERR_MIN
    jae .Lfailed
    mov [rsp + PATH_DENTRY], rax
    cmp qword ptr [rax + DENTRY_INODE], 0
    jne .Lthere
    mov rdi, offset init_user_ns
    mov rsi, [r12 + DENTRY_INODE]
    mov rdx, rax
    mov ecx, 0x1ed                      # 0755
    mov rax, [rsi + INODE_OP]
    call [rax + IOP_MKDIR]
    test eax, eax
    jne .Lfailed
.Lthere:
    mov rdx, rsp
.Lmount:
    mov rbx, rdx
    mov rdi, [rip + ext4_sb]
    mov rsi, offset ext4_name
    call vfs_mount_sb
    mov [rip + ext4_mnt], rax
    test rbx, rbx
    je .Lout
    mov rdi, [rsp + PATH_DENTRY]
    call dput
    mov rax, [rip + ext4_mnt]
.Lout:
    LEAVE2
.Lfailed:
    xor eax, eax
    LEAVE2
ENDFUNC ext4_mount

# A file of the root directory for the kernel itself: rdi name, esi its length; rax file or error. It is
# made where it is missing.
FUNC_NOTRACE ext4_open_here
    ENTER3
    sub rsp, 24
    mov rdx, [rip + ext4_sb]
    mov r12, [rdx + SB_ROOT]
    mov edx, esi
    mov rsi, r12
    call lookup_one_len
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    cmp qword ptr [rax + DENTRY_INODE], 0
    jne .Lthere
    mov rdi, offset init_user_ns
    mov rsi, [r12 + DENTRY_INODE]
    mov rdx, rax
    mov ecx, S_IFREG | 0x1a4            # 0644
    mov r8d, 1
    call ext4_create
    movsxd r13, eax
    test eax, eax
    jne .Lput
.Lthere:
    mov rdi, [rip + ext4_mnt]
    call mntget
    mov [rsp + PATH_MNT], rax
    mov [rsp + PATH_DENTRY], rbx
    mov rdi, rsp
    mov esi, O_WRONLY | O_APPEND
    mov rdx, offset ext4_file_operations
    call alloc_file
.Lout:
    LEAVE3
.Lput:
    mov rdi, rbx
    call dput
    mov rax, r13
    LEAVE3
ENDFUNC ext4_open_here

FUNC_NOTRACE ext4_kernel_write          # rdi file, rsi text, rdx bytes; rax bytes or error
    ENTER1
    sub rsp, KI_BYTES + ITER_BYTES + 8
    mov rbx, rdi
    lea rax, [rsp + KI_BYTES]
    mov dword ptr [rax + ITER_KERNEL], 1
    mov dword ptr [rax + ITER_SOURCE], 1
    mov [rax + ITER_BASE], rsi
    mov [rax + ITER_COUNT], rdx
    xor edx, edx
    INIT_SYNC_KIOCB rsp, rbx, rdx
    mov rdi, rsp
    lea rsi, [rsp + KI_BYTES]
    call ext4_file_write_iter
    LEAVE1
ENDFUNC ext4_kernel_write

# The files that are there from the start, on the disk; the last one stays open. rax 0 or error.
FUNC_NOTRACE ext4_make_files
    ENTER3
    push 0
    mov rbx, offset vda1_first_files
.Lfile:
    mov rdi, [rbx]
    call strlen
    mov esi, eax
    mov rdi, [rbx]
    call ext4_open_here
    cmp rax, ERR_MIN
    jae .Lout
    mov r12, rax
    mov rdi, [rbx + 8]
    call strlen
    mov rdi, r12
    mov rsi, [rbx + 8]
    mov rdx, rax
    call ext4_kernel_write
    cmp rax, ERR_MIN
    jae .Lout
    mov rdi, [r12 + FILE_MAPPING]
    mov esi, 1
    call ext4_writepages
    add rbx, 16
    mov rax, offset vda1_first_files_end
    cmp rbx, rax
    jae .Llast
    mov rdi, r12
    call fput
    jmp .Lfile
.Llast:
    mov [rip + ext4_log_file], r12
    xor eax, eax
.Lout:
    LEAVE3
ENDFUNC ext4_make_files

# Commit at once, for who cannot sleep and has seen to it that there are no handles: rdi journal.
FUNC_NOTRACE jbd2_journal_force_commit_here
    ENTER1
    push 0
    mov rbx, rdi
    mov rax, [rdi + J_RUNNING]
    test rax, rax
    je .Lout
    mov eax, [rax + TX_TID]
    mov [rdi + J_COMMIT_REQUEST], eax
    lea rdi, [rdi + J_COMMIT_TIMER]
    call timer_delete_sync
    mov rdi, rbx
    call jbd2_journal_commit_transaction
.Lout:
    LEAVE1
ENDFUNC jbd2_journal_force_commit_here

# --- what happens by itself -----------------------------------------------------------------------

# Append a line to the log, so that the journal has something to commit. In an interrupt or in the idle
# task, neither of which can sleep, it only sees to it that the work does so soon.
FUNC_NOTRACE ext4_ambient
    ENTER3
    sub rsp, LINE_MAX + 8
    mov eax, gs:[IRQ_DEPTH]
    or eax, gs:[SOFTIRQ_DEPTH]
    jne .Lsoon
    mov rax, gs:[CURRENT_TASK]
    test dword ptr [rax + TASK_FLAGS], PF_IDLE
    jne .Lsoon
    lock inc dword ptr [rip + ext4_log_users]
    mov rbx, [rip + ext4_log_file]
    mov r12, [rbx + FILE_INODE]
    cmp qword ptr [r12 + INODE_SIZE], LOG_MAX
    jb .Lappend
    mov rdi, offset init_user_ns
    mov rsi, [rbx + FILE_DENTRY]
    xor edx, edx
    mov ecx, ATTR_MTIME_BIT | ATTR_CTIME_BIT
    mov r8, rbx
    call do_truncate
.Lappend:
    call sched_clock
    xor edx, edx
    mov ecx, NSEC_PER_SEC
    div rcx
    mov r9, rax
    mov eax, edx
    xor edx, edx
    mov ecx, 1000
    div ecx
    mov r8d, eax
    mov rcx, r9
    mov r9d, [rip + ext4_s_freeclusters]
    mov eax, [rip + ext4_journal + J_COMMIT_SEQUENCE]
    push rax
    push rax
    lea rdi, [rsp + 16]
    mov esi, LINE_MAX
    mov rdx, offset ext4_log_format
    xor eax, eax
    call scnprintf
    add rsp, 16
    mov rdi, rbx
    mov rsi, rsp
    mov edx, eax
    call ext4_kernel_write
    mov rdi, offset ext4_journal
    mov esi, 2
    call jbd2_journal_start
    mov r13, rax
    cmp rax, ERR_MIN
    jae .Lmarked
    mov rdi, r13
    mov rsi, r12
    call __ext4_mark_inode_dirty
    mov rdi, r13
    call jbd2_journal_stop
.Lmarked:
    inc dword ptr [rip + ext4_log_lines]
    mov eax, [rip + ext4_log_lines]     # every fifth line what was written goes to the disk: the flusher
    xor edx, edx
    mov ecx, 5
    div ecx
    test edx, edx
    jne .Ldone
    mov rdi, r12
    xor esi, esi
    call write_inode_now
.Ldone:
    lock dec dword ptr [rip + ext4_log_users]
    LEAVE3
.Lsoon:
    mov edi, WORK_CPU_UNBOUND
    mov rsi, offset system_wq
    mov rdx, offset ext4_log_work
    xor ecx, ecx
    call mod_delayed_work_on
    LEAVE3
ENDFUNC ext4_ambient

FUNC_NOTRACE ext4_ambient_work          # rdi the work
    PROLOGUE
    call ext4_ambient
    mov edi, WORK_CPU_UNBOUND
    mov rsi, offset system_wq
    mov rdx, offset ext4_log_work
    mov ecx, HZ
    call queue_delayed_work_on
    EPILOGUE
ENDFUNC ext4_ambient_work

# --- unmounting -----------------------------------------------------------------------------------

# eax 0, or -EBUSY: somebody has a file open, or is on the way in one of the functions here. It does not
# sleep.
FUNC_NOTRACE cleanup_module
    ENTER3
    push 0
    PREEMPT_DISABLE
    mov r12, offset ext4_journal
    mov rbx, [rip + ext4_mnt]
    call ext4_is_busy
    test eax, eax
    jne .Lbusy
    mov rdi, offset ext4_log_work
    call cancel_delayed_work
    mov rdi, [rip + ext4_log_file]
    call fput
    mov rdi, r12
    call jbd2_journal_force_commit_here
    mov rdi, r12
    call jbd2_log_do_checkpoint
    mov r13, [rip + ext4_sb]
.Lprune:
    mov rdi, r13                        # dentries go, and with them inodes, which write what is dirty
    mov esi, 64
    call prune_dcache_sb
    cmp dword ptr [r13 + SB_NR_UNUSED], 0
    jne .Lprune
    mov rdi, rbx
    call ext4_umount
    mov rdi, r12
    call jbd2_journal_force_commit_here
    mov rdi, r12
    call jbd2_log_do_checkpoint
    mov rdi, r13
    call ext4_commit_super
    mov rax, [rip + vda1]
    and dword ptr [rax + SUPER_OFFSET + 96], ~4     # no recovery needed
    mov rax, [r12 + J_SUPERBLOCK]
    mov dword ptr [rax + JSB_START], 0
    mov rdi, offset sb_lock
    call _raw_spin_lock
    LIST_DEL r13, rax, rcx
    mov rdi, offset sb_lock
    call _raw_spin_unlock
    mov rdi, r13
    call kfree
    mov qword ptr [rip + ext4_sb], 0
    mov rdi, [r12 + J_TASK]
    call kjournald2_stop
    mov rdi, [rip + ext4_rsv_conversion_wq]
    call destroy_workqueue
    xor ebx, ebx
.Lbuffer:
    imul eax, ebx, JB_BYTES
    add rax, [rip + vda1_buffers]
    mov rdi, [rax + JB_DATA]
    xor esi, esi
    call free_pages
    inc ebx
    cmp ebx, NR_BLOCKS
    jb .Lbuffer
    mov rdi, [rip + vda1_buffers]
    call kfree
    mov rdi, [rip + vda1]
    mov esi, DISK_ORDER
    call free_pages
    xor eax, eax
    jmp .Lout
.Lbusy:
    mov eax, -EBUSY
.Lout:
    PREEMPT_ENABLE
    LEAVE3
ENDFUNC cleanup_module

FUNC_NOTRACE ext4_is_busy               # rbx the mount, r12 the journal; eax
    PROLOGUE
    mov eax, 1
    cmp dword ptr [rbx + MNT_COUNT], 2  # the mount itself, and the log
    jne .Lout
    cmp dword ptr [rip + ext4_log_users], 0
    jne .Lout
    lea rcx, [r12 + J_HANDLES]
    cmp [rcx], rcx
    jne .Lout
    lea rcx, [r12 + J_WAIT_LOCKED + WQ_HEAD]
    cmp [rcx], rcx
    jne .Lout
    lea rcx, [r12 + J_WAIT_DONE + WQ_HEAD]
    cmp [rcx], rcx
    jne .Lout
    cmp qword ptr [r12 + J_COMMITTING], 0
    jne .Lout
    mov rcx, [r12 + J_TASK]
    cmp dword ptr [rcx + TASK_STATE], TASK_RUNNING
    jne .Lidle
    cmp dword ptr [rcx + TASK_ON_RQ], 0
    je .Lout                            # on the list of a CPU that is to wake it
.Lidle:
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC ext4_is_busy

FUNC_NOTRACE ext4_umount                # rdi the mount, which nobody uses
    ENTER2
    mov rbx, rdi
    mov rcx, offset mount_list
.Lnext:
    mov rax, [rcx]
    test rax, rax
    je .Lunlisted
    cmp rax, rbx
    je .Lfound
    lea rcx, [rax + MNT_NEXT]
    jmp .Lnext
.Lfound:
    mov rax, [rbx + MNT_NEXT]
    mov [rcx], rax
    mov rdi, [rbx + MNT_MOUNTPOINT]
    and dword ptr [rdi + DENTRY_FLAGS], ~DCACHE_MOUNTED
    call dput
.Lunlisted:
    mov r12, [rbx + MNT_ROOT]
    mov rdi, rbx
    call kfree
    mov rdi, r12
    call dput
    mov rdi, r12                        # the super block's
    call dput
    LEAVE2
ENDFUNC ext4_umount

# Linux waits until the thread has ended by itself. Here it is taken away where it sleeps: rdi task.
FUNC_NOTRACE kjournald2_stop
    ENTER1
    push 0
    mov rbx, rdi
    LOCAL_IRQ_DISABLE
    cmp dword ptr [rbx + TASK_ON_RQ], 0
    je .Lasleep
    mov eax, [rbx + TASK_CPU]
    mov rdi, [percpu_table + rax*8]
    mov rsi, rbx
    call deactivate_task
.Lasleep:
    LOCAL_IRQ_ENABLE
    mov rdi, rbx
    call exit_files
    mov rdi, rbx
    call exit_fs
    mov rdi, rbx
    call release_task
    LEAVE1
ENDFUNC kjournald2_stop

.data
.balign 64
OBJECT ext4_journal
    .zero J_BYTES
ENDOBJECT ext4_journal
.balign 8
OBJECT ext4_s_buddy                          # blocks that cannot be had
    .zero NR_BLOCKS / 8
ENDOBJECT ext4_s_buddy
OBJECT ext4_s_freeclusters
    .long 0
ENDOBJECT ext4_s_freeclusters
OBJECT ext4_s_dirtyclusters                  # promised
    .long 0
ENDOBJECT ext4_s_dirtyclusters
OBJECT vda1
    .quad 0
ENDOBJECT vda1
vda1_buffers:
    .quad 0
ext4_rsv_conversion_wq:
    .quad 0
ext4_sb:
    .quad 0
ext4_mnt:
    .quad 0
ext4_log_file:
    .quad 0
ext4_log_work:
    .zero DWORK_SIZE
ext4_log_lines:
    .long 0
ext4_log_users:
    .long 0

OBJECT ext4_sops
    .quad ext4_evict_inode
    .quad ext4_sync_fs
    .quad ext4_dirty_inode
ENDOBJECT ext4_sops
OBJECT ext4_da_aops
    .quad ext4_read_folio
    .quad ext4_da_write_begin
    .quad ext4_da_write_end
    .quad ext4_dirty_folio
    .quad ext4_writepages
ENDOBJECT ext4_da_aops
OBJECT ext4_file_operations
    .quad ext4_llseek
    .quad 0
    .quad 0
    .quad ext4_file_read_iter
    .quad ext4_file_write_iter
    .zero FOPS_MMAP - FOPS_ITERATE
    .quad ext4_file_mmap
    .quad ext4_file_open
    .quad 0
    .quad ext4_release_file
    .quad ext4_sync_file
ENDOBJECT ext4_file_operations
OBJECT ext4_file_inode_operations
    .zero IOP_SETATTR
    .quad ext4_setattr
    .quad ext4_file_getattr
    .quad 0
ENDOBJECT ext4_file_inode_operations
OBJECT ext4_dir_operations
    .quad ext4_llseek
    .quad generic_read_dir
    .zero FOPS_ITERATE - FOPS_WRITE
    .quad ext4_readdir
    .zero FOPS_FSYNC - FOPS_POLL
    .quad ext4_sync_file
ENDOBJECT ext4_dir_operations
OBJECT ext4_dir_inode_operations
    .quad ext4_lookup
    .zero IOP_CREATE - IOP_GET_LINK
    .quad ext4_create
    .quad ext4_unlink
    .zero IOP_SETATTR - IOP_SYMLINK
    .quad ext4_setattr
    .quad ext4_getattr
    .quad 0
ENDOBJECT ext4_dir_inode_operations
ext4_filetype_table:                    # EXT4_FT_* -> DT_*
    .byte 0, DT_REG, DT_DIR, DT_CHR, 6, DT_FIFO, 12, DT_LNK

.balign 8
vda1_first_files:                            # name, contents
    .quad vda1_motd_name, vda1_motd_text
    .quad vda1_hostname_name, vda1_hostname_text
    .quad vda1_syslog_name, vda1_syslog_text
vda1_first_files_end:
ext4_name:
    .asciz "ext4"
ext4_mnt_name:
    .asciz "mnt"
ext4_rsv_conversion_name:
    .asciz "ext4-rsv-conversion"
vda1_kjournald2_name:
    .asciz "jbd2/vda1-8"
ext4_log_format:
    .asciz "[%5llu.%06u] vda1: %u blocks free, transaction %u\n"
vda1_motd_name:
    .asciz "motd"
vda1_motd_text:
    .asciz "This system is emulated. Whatever it does can be traced.\n"
vda1_hostname_name:
    .asciz "hostname"
vda1_hostname_text:
    .asciz "emulated\n"
vda1_syslog_name:
    .asciz "syslog"
vda1_syslog_text:
    .asciz "[    0.000000] EXT4-fs (vda1): mounted filesystem with ordered data mode\n"
