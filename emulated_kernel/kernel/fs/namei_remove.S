# fs/namei.c: taking names away and changing them.

.text

FUNC may_delete                         # rdi ns, rsi directory, rdx dentry, ecx as a directory; eax
    ENTER3
    push 0
    mov rbx, rdx
    mov r12d, ecx
    mov eax, -ENOENT
    cmp qword ptr [rdx+DENTRY_INODE], 0
    je .Lout
    mov edx, MAY_WRITE | MAY_EXEC
    call inode_permission
    test eax, eax
    jne .Lout
    mov ecx, [rbx+DENTRY_FLAGS]
    and ecx, DCACHE_ENTRY_TYPE
    test r12d, r12d
    jne .Ldirectory
    mov eax, -EISDIR
    cmp ecx, DCACHE_DIRECTORY_TYPE
    je .Lout
    xor eax, eax
    LEAVE3
.Ldirectory:
    mov eax, -ENOTDIR
    cmp ecx, DCACHE_DIRECTORY_TYPE
    jne .Lout
    mov eax, -EBUSY
    mov rcx, [rbx+DENTRY_PARENT]
    cmp rcx, rbx
    je .Lout
    xor eax, eax
.Lout:
    LEAVE3
ENDFUNC may_delete

FUNC vfs_unlink                         # rdi ns, rsi directory, rdx dentry, rcx delegated; eax 0 or error
    ENTER4
    mov rbx, rsi
    mov r12, rdx
    xor ecx, ecx
    call may_delete
    test eax, eax
    jne .Lout
    mov rcx, [rbx+INODE_OP]
    mov r14, [rcx+IOP_UNLINK]
    mov eax, -EPERM
    test r14, r14
    je .Lout
    mov r13, [r12+DENTRY_INODE]
    lea rdi, [r13+INODE_RWSEM]
    call down_write
    mov eax, -EBUSY
    test dword ptr [r12+DENTRY_FLAGS], DCACHE_MOUNTED
    jne .Lunlock
    mov rdi, rbx
    mov rsi, r12
    call security_inode_unlink
    test eax, eax
    jne .Lunlock
    mov rdi, rbx
    mov rsi, r12
    call r14
.Lunlock:
    mov r14d, eax
    lea rdi, [r13+INODE_RWSEM]
    call up_write
    mov eax, r14d
    test eax, eax
    jne .Lout
    mov edi, FS_DELETE
    mov rsi, rbx
    mov rdx, r12
    call fsnotify
    mov rdi, r12
    call d_delete
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC vfs_unlink

FUNC vfs_rmdir                          # rdi ns, rsi directory, rdx dentry; eax 0 or error
    ENTER4
    mov rbx, rsi
    mov r12, rdx
    mov ecx, 1
    call may_delete
    test eax, eax
    jne .Lout
    mov rcx, [rbx+INODE_OP]
    mov r14, [rcx+IOP_RMDIR]
    mov eax, -EPERM
    test r14, r14
    je .Lout
    DGET r12
    mov r13, [r12+DENTRY_INODE]
    lea rdi, [r13+INODE_RWSEM]
    call down_write
    mov eax, -EBUSY
    test dword ptr [r12+DENTRY_FLAGS], DCACHE_MOUNTED
    jne .Lunlock
    mov rdi, rbx
    mov rsi, r12
    call security_inode_rmdir
    test eax, eax
    jne .Lunlock
    mov rdi, rbx
    mov rsi, r12
    call r14
.Lunlock:
    mov r14d, eax
    lea rdi, [r13+INODE_RWSEM]
    call up_write
    mov rdi, r12
    call dput
    mov eax, r14d
    test eax, eax
    jne .Lout
    mov edi, FS_DELETE
    mov rsi, rbx
    mov rdx, r12
    call fsnotify
    mov rdi, r12
    call d_delete
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC vfs_rmdir

# do_rmdir and do_unlinkat: edi dfd, rsi filename, which they put. \last tells what a path may not end
# in, \remove does it with rdi ns, rsi directory, rdx dentry, rcx 0.
.macro REMOVE_AT remove, security
    ENTER5
    sub rsp, 56
    mov rbx, rsi
    xor edx, edx
    lea rcx, [rbp-80]
    lea r8, [rbp-64]
    call filename_parentat
    movsxd r15, eax
    test eax, eax
    js .Lputname
    jne .Lbadlast
    mov rdi, [rbp-80+PATH_MNT]
    call mnt_want_write
    movsxd r15, eax
    test eax, eax
    jne .Lputpath
    mov r13, [rbp-80+PATH_DENTRY]
    mov r13, [r13+DENTRY_INODE]
    lea rdi, [r13+INODE_RWSEM]
    call down_write
    lea rdi, [rbp-64]
    mov rsi, [rbp-80+PATH_DENTRY]
    xor edx, edx
    call lookup_one_qstr_excl
    mov r12, rax
    mov r15, rax
    xor r14d, r14d
    cmp rax, ERR_MIN
    jae .Lunlock
    mov r14, [r12+DENTRY_INODE]
    mov r15, -ENOENT
    test r14, r14
    je .Lputdentry
    SLASH_BEHIND
    mov rdi, r14                        # it must not be truncated under the lock
    call ihold
    mov rdi, r13
    mov rsi, r12
    call \security
    movsxd r15, eax
    test eax, eax
    jne .Lputdentry
    mov rdi, offset init_user_ns
    mov rsi, r13
    mov rdx, r12
    xor ecx, ecx
    call \remove
    movsxd r15, eax
.Lputdentry:
    mov rdi, r12
    call dput
.Lunlock:
    lea rdi, [r13+INODE_RWSEM]
    call up_write
    mov rdi, r14
    call iput
    mov rdi, [rbp-80+PATH_MNT]
    call mnt_drop_write
.Lputpath:
    lea rdi, [rbp-80]
    call path_put
.Lputname:
    mov rdi, rbx
    call putname
    mov rax, r15
    LEAVE5
.endm

# A file has no slash behind its name: r15 becomes the error, and the inode is not held.
.macro SLASH_BEHIND
    mov ecx, [rbp-64+QSTR_LEN]
    add rcx, [rbp-64+QSTR_NAME]
    mov eax, [r14+INODE_MODE]
    and eax, S_IFMT
    cmp byte ptr [rcx], 0
    je 1f
    cmp eax, S_IFDIR
    je 1f
    mov r15, -ENOTDIR
    xor r14d, r14d
    jmp .Lputdentry
1:
.endm

FUNC do_unlinkat                        # edi dfd, rsi filename, which it puts; rax 0 or error
    REMOVE_AT vfs_unlink, security_path_unlink
.Lbadlast:
    mov r15, -EISDIR
    jmp .Lputpath
ENDFUNC do_unlinkat

FUNC do_rmdir                           # edi dfd, rsi filename, which it puts; rax 0 or error
    REMOVE_AT vfs_rmdir, security_path_unlink
.Lbadlast:
    cmp r15d, LAST_DOTDOT
    mov r15, -ENOTEMPTY
    je .Lputpath
    mov r15, -EINVAL
    jmp .Lputpath
ENDFUNC do_rmdir

FUNC __x64_sys_unlink                   # rdi pt_regs: (path)
    PROLOGUE
    mov rdi, [rdi+PT_RDI]
    call getname
    cmp rax, ERR_MIN
    jae .Lout
    mov edi, AT_FDCWD
    mov rsi, rax
    call do_unlinkat
.Lout:
    EPILOGUE
ENDFUNC __x64_sys_unlink

FUNC __x64_sys_rmdir                    # rdi pt_regs: (path)
    PROLOGUE
    mov rdi, [rdi+PT_RDI]
    call getname
    cmp rax, ERR_MIN
    jae .Lout
    mov edi, AT_FDCWD
    mov rsi, rax
    call do_rmdir
.Lout:
    EPILOGUE
ENDFUNC __x64_sys_rmdir

# --- rename ---------------------------------------------------------------------------------------

FUNC is_subdir                          # rdi dentry, rsi ancestor; al whether it lies in that tree
    PROLOGUE
    mov eax, 1
.Lnext:
    cmp rdi, rsi
    je .Lout
    mov rcx, [rdi+DENTRY_PARENT]
    cmp rcx, rdi
    mov rdi, rcx
    jne .Lnext
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC is_subdir

# Lock two directories, ancestors first: rdi and rsi their dentries.
FUNC lock_rename
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    cmp rdi, rsi
    je .Lone
    mov rdi, [rdi+DENTRY_SB]
    add rdi, SB_RENAME_MUTEX
    call mutex_lock
    mov rdi, rbx
    mov rsi, r12
    call is_subdir
    test al, al
    je .Lorder
    xchg rbx, r12
.Lorder:
    mov rdi, [rbx+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call down_write
    mov rbx, r12
.Lone:
    mov rdi, [rbx+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call down_write
    LEAVE2
ENDFUNC lock_rename

FUNC unlock_rename                      # rdi and rsi dentries of two directories
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rdi, [rdi+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call up_write
    cmp rbx, r12
    je .Lout
    mov rdi, [r12+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call up_write
    mov rdi, [rbx+DENTRY_SB]
    add rdi, SB_RENAME_MUTEX
    call mutex_unlock
.Lout:
    LEAVE2
ENDFUNC unlock_rename

# struct renamedata
RENAME_OLD_DIR = 8
RENAME_OLD_DENTRY = 16
RENAME_NEW_DIR = 32
RENAME_NEW_DENTRY = 40
RENAME_FLAGS = 56

FUNC vfs_rename                         # rdi renamedata; eax 0 or error
    ENTER4
    mov rbx, rdi
    mov r12, [rbx+RENAME_OLD_DENTRY]
    mov r13, [rbx+RENAME_NEW_DENTRY]
    mov rax, [r12+DENTRY_INODE]
    cmp rax, [r13+DENTRY_INODE]
    mov eax, 0
    je .Lout                            # two names of one file
    mov r14d, [r12+DENTRY_FLAGS]
    and r14d, DCACHE_ENTRY_TYPE
    mov rdi, offset init_user_ns
    mov rsi, [rbx+RENAME_OLD_DIR]
    mov rdx, r12
    xor ecx, ecx
    cmp r14d, DCACHE_DIRECTORY_TYPE
    sete cl
    call may_delete
    test eax, eax
    jne .Lout
    mov rdi, offset init_user_ns
    mov rsi, [rbx+RENAME_NEW_DIR]
    mov rdx, r13
    cmp qword ptr [r13+DENTRY_INODE], 0
    jne .Loverwrite
    call may_create
    jmp .Lmay
.Loverwrite:
    xor ecx, ecx
    cmp r14d, DCACHE_DIRECTORY_TYPE
    sete cl
    call may_delete
.Lmay:
    test eax, eax
    jne .Lout
    mov rcx, [rbx+RENAME_OLD_DIR]
    mov rcx, [rcx+INODE_OP]
    mov r14, [rcx+IOP_RENAME]
    mov eax, -EPERM
    test r14, r14
    je .Lout
    mov eax, -EBUSY
    mov ecx, [r12+DENTRY_FLAGS]
    or ecx, [r13+DENTRY_FLAGS]
    test ecx, DCACHE_MOUNTED
    jne .Lout
    mov rdi, [rbx+RENAME_OLD_DIR]
    mov rsi, r12
    call security_inode_rename
    test eax, eax
    jne .Lout
    DGET r13
    mov rdi, offset init_user_ns
    mov rsi, [rbx+RENAME_OLD_DIR]
    mov rdx, r12
    mov rcx, [rbx+RENAME_NEW_DIR]
    mov r8, r13
    mov r9d, [rbx+RENAME_FLAGS]
    call r14
    mov r14d, eax
    test eax, eax
    jne .Lput
    mov rdi, r12
    mov rsi, r13
    call d_move
    mov edi, FS_MOVED_TO
    mov rsi, [rbx+RENAME_NEW_DIR]
    mov rdx, r12
    call fsnotify
.Lput:
    mov rdi, r13
    call dput
    mov eax, r14d
.Lout:
    LEAVE4
ENDFUNC vfs_rename

RENAMEAT_FROM = 64                      # locals of do_renameat2, below rbp: two paths, two qstrs
RENAMEAT_TO = 80
RENAMEAT_FROM_LAST = 96
RENAMEAT_TO_LAST = 112
RENAMEAT_DATA = 176
RENAMEAT_TO_DENTRY = 184

# edi dfd, rsi filename, edx new dfd, rcx new filename, which it puts both, r8d flags; rax 0 or error.
FUNC do_renameat2
    ENTER5
    sub rsp, 152
    mov rbx, rsi
    mov r12, rcx
    mov r13d, edx
    mov [rbp-RENAMEAT_DATA+RENAME_FLAGS], r8d
    mov r15, -EINVAL
    test r8d, r8d
    jne .Lputnames
    xor edx, edx
    lea rcx, [rbp-RENAMEAT_FROM]
    lea r8, [rbp-RENAMEAT_FROM_LAST]
    call filename_parentat
    movsxd r15, eax
    test eax, eax
    js .Lputnames
    mov r14d, eax
    mov edi, r13d
    mov rsi, r12
    xor edx, edx
    lea rcx, [rbp-RENAMEAT_TO]
    lea r8, [rbp-RENAMEAT_TO_LAST]
    call filename_parentat
    movsxd r15, eax
    test eax, eax
    js .Lputfrom
    mov r15, -EBUSY
    or eax, r14d
    jne .Lputto
    mov r15, -EXDEV
    mov rdi, [rbp-RENAMEAT_FROM+PATH_MNT]
    cmp rdi, [rbp-RENAMEAT_TO+PATH_MNT]
    jne .Lputto
    call mnt_want_write
    movsxd r15, eax
    test eax, eax
    jne .Lputto
    mov rdi, [rbp-RENAMEAT_FROM+PATH_DENTRY]
    mov rsi, [rbp-RENAMEAT_TO+PATH_DENTRY]
    call lock_rename
    lea rdi, [rbp-RENAMEAT_FROM_LAST]
    mov rsi, [rbp-RENAMEAT_FROM+PATH_DENTRY]
    xor edx, edx
    call lookup_one_qstr_excl
    mov r13, rax
    mov r15, rax
    cmp rax, ERR_MIN
    jae .Lunlock
    mov r15, -ENOENT
    cmp qword ptr [r13+DENTRY_INODE], 0
    je .Lputold
    lea rdi, [rbp-RENAMEAT_TO_LAST]
    mov rsi, [rbp-RENAMEAT_TO+PATH_DENTRY]
    mov edx, LOOKUP_CREATE | LOOKUP_RENAME_TARGET
    call lookup_one_qstr_excl
    mov r14, rax
    mov r15, rax
    cmp rax, ERR_MIN
    jae .Lputold
    mov rdi, [rbp-RENAMEAT_TO+PATH_DENTRY]
    mov rsi, r13
    call is_subdir                      # into itself
    mov r15, -EINVAL
    test al, al
    jne .Lputnew
    mov rdi, [rbp-RENAMEAT_FROM+PATH_DENTRY]
    mov rsi, r14
    call is_subdir                      # over one of its ancestors
    mov r15, -ENOTEMPTY
    test al, al
    jne .Lputnew
    lea rdi, [rbp-RENAMEAT_FROM]
    mov rsi, r13
    lea rdx, [rbp-RENAMEAT_TO]
    mov rcx, r14
    call security_path_rename
    movsxd r15, eax
    test eax, eax
    jne .Lputnew
    mov rax, [rbp-RENAMEAT_FROM+PATH_DENTRY]
    mov rax, [rax+DENTRY_INODE]
    mov [rbp-RENAMEAT_DATA+RENAME_OLD_DIR], rax
    mov [rbp-RENAMEAT_DATA+RENAME_OLD_DENTRY], r13
    mov rax, [rbp-RENAMEAT_TO+PATH_DENTRY]
    mov rax, [rax+DENTRY_INODE]
    mov [rbp-RENAMEAT_DATA+RENAME_NEW_DIR], rax
    mov [rbp-RENAMEAT_DATA+RENAME_NEW_DENTRY], r14
    lea rdi, [rbp-RENAMEAT_DATA]
    call vfs_rename
    movsxd r15, eax
.Lputnew:
    mov rdi, r14
    call dput
.Lputold:
    mov rdi, r13
    call dput
.Lunlock:
    mov rdi, [rbp-RENAMEAT_FROM+PATH_DENTRY]
    mov rsi, [rbp-RENAMEAT_TO+PATH_DENTRY]
    call unlock_rename
    mov rdi, [rbp-RENAMEAT_FROM+PATH_MNT]
    call mnt_drop_write
.Lputto:
    lea rdi, [rbp-RENAMEAT_TO]
    call path_put
.Lputfrom:
    lea rdi, [rbp-RENAMEAT_FROM]
    call path_put
.Lputnames:
    mov rdi, rbx
    call putname
    mov rdi, r12
    call putname
    mov rax, r15
    LEAVE5
ENDFUNC do_renameat2

FUNC __x64_sys_rename                   # rdi pt_regs: (path, new path)
    ENTER2
    mov r12, rdi
    mov rdi, [rdi+PT_RDI]
    call getname
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    mov rdi, [r12+PT_RSI]
    call getname
    cmp rax, ERR_MIN
    jae .Lputname
    mov edi, AT_FDCWD
    mov rsi, rbx
    mov edx, AT_FDCWD
    mov rcx, rax
    xor r8d, r8d
    call do_renameat2
    LEAVE2
.Lputname:
    mov r12, rax
    mov rdi, rbx
    call putname
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC __x64_sys_rename
