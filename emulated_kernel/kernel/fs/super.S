# fs/super.c, fs/sync.c: super blocks, and writing everything back.

.text

# rdi name, esi magic, rdx super_operations or 0, rcx dentry_operations or 0, r8d flags; rax super
# block without a root, or 0.
FUNC alloc_super
    ENTER5
    push r8
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    mov r14, rcx
    KMALLOC KMALLOC_256, SB_BYTES, GFP_KERNEL | GFP_ZERO
    test rax, rax
    je .Lout
    mov r15, rax
    mov [rax+SB_NAME], rbx
    mov [rax+SB_MAGIC], r12
    mov [rax+SB_OP], r13
    mov [rax+SB_D_OP], r14
    mov rcx, [rbp-48]
    mov [rax+SB_FLAGS], rcx
    mov dword ptr [rax+SB_BLOCKSIZE], PAGE_BYTES
    mov dword ptr [rax+SB_COUNT], 1
    mov ecx, 1
    lock xadd [rip + unnamed_dev], ecx
    mov [rax+SB_DEV], ecx
    lea rcx, [rax+SB_INODES]
    LIST_INIT rcx
    lea rcx, [rax+SB_LRU]
    LIST_INIT rcx
    mov rdi, offset sb_lock
    call _raw_spin_lock
    lea rsi, [r15+SB_LIST]
    mov rdi, offset super_blocks
    LIST_ADD_TAIL rsi, rdi, rax
    mov rdi, offset sb_lock
    call _raw_spin_unlock
    mov rax, r15
.Lout:
    LEAVE5
ENDFUNC alloc_super

FUNC iterate_supers                     # rdi function(super block, argument), rsi argument
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, [rip + super_blocks]
.Lnext:
    mov rax, offset super_blocks
    cmp r13, rax
    je .Lout
    lea rdi, [r13+SB_UMOUNT]
    call down_read
    mov rdi, r13
    mov rsi, r12
    call rbx
    lea rdi, [r13+SB_UMOUNT]
    call up_read
    mov r13, [r13]
    jmp .Lnext
.Lout:
    LEAVE4
ENDFUNC iterate_supers

FUNC __x64_sys_sync                      # rdi pt_regs
    PROLOGUE
    call ksys_sync
    xor eax, eax
    EPILOGUE
ENDFUNC __x64_sys_sync

FUNC ksys_sync
    ENTER1
    push 0
    mov rdi, offset sync_inodes_one_sb
    xor esi, esi
    call iterate_supers
    mov qword ptr [rbp-16], 0
    mov rdi, offset sync_fs_one_sb
    lea rsi, [rbp-16]
    call iterate_supers
    mov qword ptr [rbp-16], 1
    mov rdi, offset sync_fs_one_sb
    lea rsi, [rbp-16]
    call iterate_supers
    LEAVE1
ENDFUNC ksys_sync

FUNC sync_inodes_one_sb                 # rdi super block
    PROLOGUE
    test qword ptr [rdi+SB_FLAGS], SB_I_WRITEBACK
    je .Lout
    call sync_inodes_sb
.Lout:
    EPILOGUE
ENDFUNC sync_inodes_one_sb

FUNC sync_inodes_sb                     # rdi super block: write its dirty inodes' pages
    ENTER3
    push 0
    mov rbx, rdi
.Lagain:
    lea rdi, [rbx+SB_INODE_LOCK]
    call _raw_spin_lock
    lea r12, [rbx+SB_INODES]
    mov r13, [r12]
.Lnext:
    cmp r13, r12
    je .Ldone
    test qword ptr [r13-INODE_SB_LIST+INODE_STATE], I_DIRTY_ALL
    jne .Ldirty
    mov r13, [r13]
    jmp .Lnext
.Ldirty:
    sub r13, INODE_SB_LIST
    lock inc dword ptr [r13+INODE_COUNT]
    lea rdi, [rbx+SB_INODE_LOCK]
    call _raw_spin_unlock
    mov rdi, r13
    mov esi, 1
    call write_inode_now
    mov rdi, r13
    call iput
    jmp .Lagain                         # the list may have changed
.Ldone:
    lea rdi, [rbx+SB_INODE_LOCK]
    call _raw_spin_unlock
    LEAVE3
ENDFUNC sync_inodes_sb

FUNC write_inode_now                    # rdi inode, esi whether to wait; eax 0 or error
    PROLOGUE
    call writeback_single_inode
    EPILOGUE
ENDFUNC write_inode_now

FUNC writeback_single_inode             # rdi inode, esi whether to wait; eax 0 or error
    PROLOGUE
    lock and qword ptr [rdi+INODE_STATE], ~I_DIRTY_ALL
    mov rdi, [rdi+INODE_MAPPING]
    call do_writepages
    EPILOGUE
ENDFUNC writeback_single_inode

FUNC sync_fs_one_sb                     # rdi super block, rsi whether to wait *
    PROLOGUE
    mov rax, [rdi+SB_OP]
    test rax, rax
    je .Lout
    mov rax, [rax+SOP_SYNC_FS]
    test rax, rax
    je .Lout
    mov esi, [rsi]
    call rax
.Lout:
    EPILOGUE
ENDFUNC sync_fs_one_sb

FUNC __x64_sys_fsync                    # rdi pt_regs: (fd)
    ENTER2
    mov edi, [rdi+PT_RDI]
    call __fdget
    mov r12, rax
    mov rdi, rax
    and rdi, -4
    mov rax, -EBADF
    je .Lout
    mov rbx, rdi
    xor esi, esi
    call vfs_fsync
    movsxd rbx, eax
    FDPUT r12
    mov rax, rbx
.Lout:
    LEAVE2
ENDFUNC __x64_sys_fsync

FUNC vfs_fsync                          # rdi file, esi only data; eax 0 or error
    PROLOGUE
    mov ecx, esi
    xor esi, esi
    mov rdx, 0x7fffffffffffffff
    call vfs_fsync_range
    EPILOGUE
ENDFUNC vfs_fsync

FUNC vfs_fsync_range                    # rdi file, rsi start, rdx end, ecx only data; eax 0 or error
    PROLOGUE
    mov rax, [rdi+FILE_OP]
    mov rax, [rax+FOPS_FSYNC]
    test rax, rax
    je .Lnone
    call rax
    EPILOGUE
.Lnone:
    mov eax, -EINVAL
    EPILOGUE
ENDFUNC vfs_fsync_range

.data
.balign 8
OBJECT super_blocks
    .quad super_blocks
    .quad super_blocks
ENDOBJECT super_blocks
OBJECT sb_lock
    .long 0
ENDOBJECT sb_lock
OBJECT unnamed_dev
    .long 1
ENDOBJECT unnamed_dev
