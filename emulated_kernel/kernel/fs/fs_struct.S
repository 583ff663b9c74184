# fs/fs_struct.c, fs/open.c, fs/d_path.c: root and working directory of a task.

.text

# Have the path at \where in a fs be another: rdi fs, rsi path.
.macro SET_FS_PATH where
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov rdi, rsi
    call path_get
    lea rdi, [rbx+FS_LOCK]
    call _raw_spin_lock
    mov r13, [rbx+\where+PATH_MNT]
    mov r14, [rbx+\where+PATH_DENTRY]
    mov rax, [r12+PATH_MNT]
    mov [rbx+\where+PATH_MNT], rax
    mov rax, [r12+PATH_DENTRY]
    mov [rbx+\where+PATH_DENTRY], rax
    lea rdi, [rbx+FS_LOCK]
    call _raw_spin_unlock
    mov rdi, r14
    call dput
    mov rdi, r13
    call mntput
    LEAVE4
.endm

FUNC set_fs_root                        # rdi fs, rsi path
    SET_FS_PATH FS_ROOT
ENDFUNC set_fs_root

FUNC set_fs_pwd                         # rdi fs, rsi path
    SET_FS_PATH FS_PWD
ENDFUNC set_fs_pwd

FUNC copy_fs_struct                     # rdi fs; rax copy or 0
    ENTER2
    mov rbx, rdi
    mov rdi, [rip + fs_cachep]
    mov esi, GFP_KERNEL | GFP_ZERO
    call kmem_cache_alloc
    mov r12, rax
    test rax, rax
    je .Lout
    mov dword ptr [r12+FS_USERS], 1
    lea rdi, [rbx+FS_LOCK]
    call _raw_spin_lock
    mov eax, [rbx+FS_UMASK]
    mov [r12+FS_UMASK], eax
    lea rsi, [rbx+FS_ROOT]
    lea rdi, [r12+FS_ROOT]
    mov ecx, 4
    rep movsq
    lea rdi, [r12+FS_ROOT]
    call path_get
    lea rdi, [r12+FS_PWD]
    call path_get
    lea rdi, [rbx+FS_LOCK]
    call _raw_spin_unlock
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC copy_fs_struct

FUNC free_fs_struct                     # rdi fs nobody uses
    ENTER1
    push 0
    mov rbx, rdi
    add rdi, FS_ROOT
    call path_put
    lea rdi, [rbx+FS_PWD]
    call path_put
    mov rdi, [rip + fs_cachep]
    mov rsi, rbx
    call kmem_cache_free
    LEAVE1
ENDFUNC free_fs_struct

FUNC exit_fs                            # rdi task
    ENTER2
    xor ebx, ebx
    xchg rbx, [rdi+TASK_FS]
    test rbx, rbx
    je .Lout
    lea rdi, [rbx+FS_LOCK]
    call _raw_spin_lock
    dec dword ptr [rbx+FS_USERS]
    mov r12d, [rbx+FS_USERS]
    lea rdi, [rbx+FS_LOCK]
    call _raw_spin_unlock
    test r12d, r12d
    jne .Lout
    mov rdi, rbx
    call free_fs_struct
.Lout:
    LEAVE2
ENDFUNC exit_fs

FUNC __x64_sys_chdir                    # rdi pt_regs: (path)
    ENTER1
    sub rsp, 24
    mov rsi, [rdi+PT_RDI]
    mov edi, AT_FDCWD
    mov edx, LOOKUP_FOLLOW | LOOKUP_DIRECTORY
    mov rcx, rsp
    call user_path_at_empty
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rdi, offset init_user_ns
    mov rsi, [rsp+PATH_DENTRY]
    mov rsi, [rsi+DENTRY_INODE]
    mov edx, MAY_EXEC | MAY_CHDIR
    call inode_permission
    movsxd rbx, eax
    test eax, eax
    jne .Lput
    mov rdi, gs:[CURRENT_TASK]
    mov rdi, [rdi+TASK_FS]
    mov rsi, rsp
    call set_fs_pwd
.Lput:
    mov rdi, rsp
    call path_put
    mov rax, rbx
.Lout:
    LEAVE1
ENDFUNC __x64_sys_chdir

FUNC __x64_sys_getcwd                   # rdi pt_regs: (buffer, size); rax length with the NUL, or error
    ENTER4
    mov r12, rdi
    mov rdi, [rip + names_cachep]
    mov esi, GFP_KERNEL
    call kmem_cache_alloc
    mov rbx, rax
    mov r13, -ENOMEM
    test rax, rax
    je .Lout
    call __rcu_read_lock
    mov rax, gs:[CURRENT_TASK]
    mov rax, [rax+TASK_FS]
    lea rdi, [rax+FS_PWD]
    lea rsi, [rax+FS_ROOT]
    lea rdx, [rbx+PATH_MAX]
    mov ecx, PATH_MAX
    call prepend_path
    mov r14, rax
    call __rcu_read_unlock
    mov r13, r14
    cmp r14, ERR_MIN
    jae .Lfree
    lea rdx, [rbx+PATH_MAX]
    sub rdx, r14
    mov r13, -ERANGE
    cmp rdx, [r12+PT_RSI]
    ja .Lfree
    mov rdi, [r12+PT_RDI]
    mov rsi, r14
    mov r13, rdx
    call _copy_to_user
    test rax, rax
    je .Lfree
    mov r13, -EFAULT
.Lfree:
    mov rdi, [rip + names_cachep]
    mov rsi, rbx
    call kmem_cache_free
.Lout:
    mov rax, r13
    LEAVE4
ENDFUNC __x64_sys_getcwd

.data
.balign 8
OBJECT init_fs
    .long 1
    .long 0
    .long 0x12                          # umask 022
    .long 0
    .zero 32
ENDOBJECT init_fs
OBJECT init_files
    .zero FILES_BYTES
ENDOBJECT init_files
