# fs/namespace.c: what is mounted where, who may write, and references to mounts.

.text

FUNC __mnt_want_write                   # rdi mount; eax 0, or -EROFS
    PROLOGUE
    PREEMPT_DISABLE
    inc dword ptr [rdi+MNT_WRITERS]
    xor eax, eax
    test dword ptr [rdi+MNT_FLAGS], MNT_READONLY
    je .Lout
    dec dword ptr [rdi+MNT_WRITERS]
    mov eax, -EROFS
.Lout:
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC __mnt_want_write

FUNC mnt_want_write                     # rdi mount; eax 0 or error
    PROLOGUE
    call __mnt_want_write
    EPILOGUE
ENDFUNC mnt_want_write

FUNC __mnt_want_write_file              # rdi file; eax 0 or error
    PROLOGUE
    test dword ptr [rdi+FILE_MODE], FMODE_WRITER
    mov rdi, [rdi+FILE_MNT]
    jne .Lwriter
    call __mnt_want_write
    EPILOGUE
.Lwriter:                               # the open file counts already; only a remount is to be seen
    inc dword ptr [rdi+MNT_WRITERS]
    xor eax, eax
    EPILOGUE
ENDFUNC __mnt_want_write_file

FUNC mnt_want_write_file                # rdi file; eax 0 or error
    PROLOGUE
    call __mnt_want_write_file
    EPILOGUE
ENDFUNC mnt_want_write_file

FUNC __mnt_drop_write                   # rdi mount
    PROLOGUE
    PREEMPT_DISABLE
    dec dword ptr [rdi+MNT_WRITERS]
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC __mnt_drop_write

FUNC mnt_drop_write                     # rdi mount
    PROLOGUE
    call __mnt_drop_write
    EPILOGUE
ENDFUNC mnt_drop_write

FUNC mntget                             # rdi mount or 0; rax the same
    PROLOGUE
    mov rax, rdi
    test rdi, rdi
    je .Lout
    lock inc dword ptr [rdi+MNT_COUNT]
.Lout:
    EPILOGUE
ENDFUNC mntget

FUNC mntput                             # rdi mount or 0
    PROLOGUE
    test rdi, rdi
    je .Lout
    call mntput_no_expire
.Lout:
    EPILOGUE
ENDFUNC mntput

FUNC mntput_no_expire                   # rdi mount: what is mounted holds a reference for good
    ENTER1
    push 0
    mov rbx, rdi
    call __rcu_read_lock
    lock dec dword ptr [rbx+MNT_COUNT]
    call __rcu_read_unlock
    LEAVE1
ENDFUNC mntput_no_expire

FUNC path_get                           # rdi path
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rdi+PATH_MNT]
    call mntget
    mov rax, [rbx+PATH_DENTRY]
    DGET rax
    LEAVE1
ENDFUNC path_get

FUNC path_put                           # rdi path
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rdi+PATH_DENTRY]
    call dput
    mov rdi, [rbx+PATH_MNT]
    call mntput
    LEAVE1
ENDFUNC path_put

FUNC __lookup_mnt                       # rdi mount, rsi dentry in it; rax what is mounted there, or 0
    PROLOGUE
    mov rax, [rip + mount_list]
.Lnext:
    test rax, rax
    je .Lout
    cmp [rax+MNT_PARENT], rdi
    jne .Lother
    cmp [rax+MNT_MOUNTPOINT], rsi
    jne .Lother
    cmp rax, rdi
    jne .Lout
.Lother:
    mov rax, [rax+MNT_NEXT]
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC __lookup_mnt

FUNC __traverse_mounts                  # rdi path at a mount point: to the top of what is mounted there
    ENTER1
    push 0
    mov rbx, rdi
.Lnext:
    mov rax, [rbx+PATH_DENTRY]
    test dword ptr [rax+DENTRY_FLAGS], DCACHE_MOUNTED
    je .Lout
    mov rdi, [rbx+PATH_MNT]
    mov rsi, rax
    call __lookup_mnt
    test rax, rax
    je .Lout
    mov [rbx+PATH_MNT], rax
    mov rax, [rax+MNT_ROOT]
    mov [rbx+PATH_DENTRY], rax
    jmp .Lnext
.Lout:
    LEAVE1
ENDFUNC __traverse_mounts

# Mount super block rdi, with its name for /proc/mounts in rsi, at path rdx (0: as a root of its own,
# nowhere to be found); rax mount or 0.
FUNC_NOTRACE vfs_mount_sb
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    KMALLOC KMALLOC_64, MNT_BYTES, GFP_KERNEL | GFP_ZERO
    test rax, rax
    je .Lout
    mov rcx, [rbx+SB_ROOT]
    DGET rcx
    mov [rax+MNT_ROOT], rcx
    mov [rax+MNT_SB], rbx
    mov dword ptr [rax+MNT_COUNT], 1
    mov [rax+MNT_NAME], r12
    mov [rax+MNT_PARENT], rax
    mov [rax+MNT_MOUNTPOINT], rcx
    test r13, r13
    je .Lout
    mov rcx, [rip + mount_list]
    mov [rax+MNT_NEXT], rcx
    mov [rip + mount_list], rax
    mov rcx, [r13+PATH_MNT]
    mov [rax+MNT_PARENT], rcx
    mov rcx, [r13+PATH_DENTRY]
    DGET rcx
    mov [rax+MNT_MOUNTPOINT], rcx
    or dword ptr [rcx+DENTRY_FLAGS], DCACHE_MOUNTED
.Lout:
    LEAVE3
ENDFUNC vfs_mount_sb

.data
.balign 8
OBJECT mount_list
    .quad 0
ENDOBJECT mount_list
