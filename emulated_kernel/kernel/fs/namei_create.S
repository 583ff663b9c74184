# fs/namei.c: making names: files, directories, symlinks.

.text

# A name in the cache of directory dentry rsi: rdi qstr, edx flags; rax dentry, 0 or error.
FUNC lookup_dcache
    ENTER2
    mov r12d, edx
    xchg rdi, rsi
    call d_lookup
    mov rbx, rax
    test rax, rax
    je .Lout
    mov rdi, rax
    mov esi, r12d
    call d_revalidate
    test eax, eax
    jg .Lout
    mov rdi, rbx
    call d_drop
    mov rdi, rbx
    call dput
    xor ebx, ebx
.Lout:
    mov rax, rbx
    LEAVE2
ENDFUNC lookup_dcache

# A name under its locked directory: rdi qstr, rsi directory dentry, edx flags; rax dentry or error.
FUNC lookup_one_qstr_excl
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    call lookup_dcache
    test rax, rax
    jne .Lout
    mov rcx, [r12+DENTRY_INODE]
    cmp dword ptr [rcx+INODE_NLINK], 0  # removed while somebody stood in it
    mov rax, -ENOENT
    je .Lout
    mov rdi, r12
    mov rsi, rbx
    call d_alloc
    mov r14, rax
    test rax, rax
    je .Lnomem
    mov rdi, [r12+DENTRY_INODE]
    mov rsi, r14
    mov edx, r13d
    mov rax, [rdi+INODE_OP]
    call [rax+IOP_LOOKUP]
    test rax, rax
    je .Lnew
    mov rbx, rax
    mov rdi, r14
    call dput
    mov rax, rbx
    LEAVE4
.Lnew:
    mov rax, r14
.Lout:
    LEAVE4
.Lnomem:
    mov rax, -ENOMEM
    LEAVE4
ENDFUNC lookup_one_qstr_excl

# A name of kernel memory under its locked directory: rdi name, rsi directory dentry, edx length.
FUNC lookup_one_len
    ENTER3
    sub rsp, 24
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov rdi, rsi
    mov rsi, rbx
    call full_name_hash
    mov [rsp+QSTR_HASH], eax
    mov [rsp+QSTR_LEN], r13d
    mov [rsp+QSTR_NAME], rbx
    mov rdi, rsp
    mov rsi, r12
    xor edx, edx
    call lookup_one_qstr_excl
    LEAVE3
ENDFUNC lookup_one_len

FUNC may_create                         # rdi ns, rsi directory, rdx dentry; eax 0 or error
    PROLOGUE
    mov eax, -EEXIST
    cmp qword ptr [rdx+DENTRY_INODE], 0
    jne .Lout
    mov eax, -ENOENT
    cmp dword ptr [rsi+INODE_NLINK], 0  # removed while somebody stood in it
    je .Lout
    mov edx, MAY_WRITE | MAY_EXEC
    call inode_permission
.Lout:
    EPILOGUE
ENDFUNC may_create

# A new name: edi dfd, rsi filename, rdx path of its directory to fill, ecx LOOKUP_DIRECTORY or 0; rax a
# negative dentry, with the directory locked and the mount held for writing, or error.
FUNC filename_create
    ENTER5
    sub rsp, 24
    mov rbx, rdx
    mov r12d, ecx
    xor edx, edx
    mov rcx, rbx
    lea r8, [rbp-64]
    call filename_parentat
    test eax, eax
    js .Lerror
    mov r13, -EEXIST
    cmp eax, LAST_NORM
    jne .Lputpath
    mov rdi, [rbx+PATH_MNT]
    call mnt_want_write
    movsxd r15, eax                     # reported when the name is free
    mov rdi, [rbx+PATH_DENTRY]
    mov rdi, [rdi+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call down_write
    lea rdi, [rbp-64]
    mov rsi, [rbx+PATH_DENTRY]
    mov edx, r12d
    or edx, LOOKUP_CREATE | LOOKUP_EXCL
    call lookup_one_qstr_excl
    mov r14, rax
    mov r13, rax
    cmp rax, ERR_MIN
    jae .Lunlock
    mov r13, -EEXIST
    cmp qword ptr [r14+DENTRY_INODE], 0
    jne .Lputdentry
    mov r13, -ENOENT
    test r12d, LOOKUP_DIRECTORY
    jne .Lwritable
    mov eax, [rbp-64+QSTR_LEN]          # only a directory may have a slash behind it
    add rax, [rbp-64+QSTR_NAME]
    cmp byte ptr [rax], 0
    jne .Lputdentry
.Lwritable:
    mov r13, r15
    test r15, r15
    jne .Lputdentry
    mov rax, r14
    LEAVE5
.Lputdentry:
    mov rdi, r14
    call dput
.Lunlock:
    mov rdi, [rbx+PATH_DENTRY]
    mov rdi, [rdi+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call up_write
    test r15, r15
    jne .Lputpath
    mov rdi, [rbx+PATH_MNT]
    call mnt_drop_write
.Lputpath:
    mov rdi, rbx
    call path_put
    mov rax, r13
    LEAVE5
.Lerror:
    movsxd rax, eax
    LEAVE5
ENDFUNC filename_create

FUNC done_path_create                   # rdi path, rsi dentry of filename_create
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, rsi
    call dput
    mov rdi, [rbx+PATH_DENTRY]
    mov rdi, [rdi+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call up_write
    mov rdi, [rbx+PATH_MNT]
    call mnt_drop_write
    mov rdi, rbx
    call path_put
    LEAVE1
ENDFUNC done_path_create

FUNC vfs_create                         # rdi ns, rsi directory, rdx dentry, ecx mode, r8d exclusive; eax
    ENTER4
    mov rbx, rsi
    mov r12, rdx
    mov r13d, ecx
    mov r14d, r8d
    call may_create
    test eax, eax
    jne .Lout
    mov rcx, [rbx+INODE_OP]
    mov rcx, [rcx+IOP_CREATE]
    mov eax, -EACCES
    test rcx, rcx
    je .Lout
    push rcx
    push rcx
    mov rdi, rbx
    mov rsi, r12
    mov edx, r13d
    call security_inode_create
    pop r10
    pop r10
    test eax, eax
    jne .Lout
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov rdx, r12
    mov ecx, r13d
    and ecx, 0xfff
    or ecx, S_IFREG
    mov r8d, r14d
    call r10
    test eax, eax
    jne .Lout
    mov edi, FS_CREATE
    mov rsi, rbx
    mov rdx, r12
    call fsnotify
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC vfs_create

FUNC vfs_mkdir                          # rdi ns, rsi directory, rdx dentry, ecx mode; eax 0 or error
    ENTER4
    mov rbx, rsi
    mov r12, rdx
    mov r13d, ecx
    call may_create
    test eax, eax
    jne .Lout
    mov rcx, [rbx+INODE_OP]
    mov r14, [rcx+IOP_MKDIR]
    mov eax, -EPERM
    test r14, r14
    je .Lout
    and r13d, 0x3ff                     # permissions and the sticky bit
    mov rdi, rbx
    mov rsi, r12
    mov edx, r13d
    call security_inode_mkdir
    test eax, eax
    jne .Lout
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov rdx, r12
    mov ecx, r13d
    call r14
    test eax, eax
    jne .Lout
    mov edi, FS_CREATE
    mov rsi, rbx
    mov rdx, r12
    call fsnotify
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC vfs_mkdir

FUNC do_mkdirat                         # edi dfd, rsi filename, which it puts, edx mode; eax 0 or error
    ENTER4
    sub rsp, 16
    mov rbx, rsi
    mov r12d, edx
    lea rdx, [rbp-48]
    mov ecx, LOOKUP_DIRECTORY
    call filename_create
    mov r13, rax
    cmp rax, ERR_MIN
    jae .Lputname
    mov rax, gs:[CURRENT_TASK]
    mov rax, [rax+TASK_FS]
    mov eax, [rax+FS_UMASK]
    not eax
    and r12d, eax
    lea rdi, [rbp-48]
    mov rsi, r13
    mov edx, r12d
    call security_path_mkdir
    test eax, eax
    jne .Ldone
    mov rdi, offset init_user_ns
    mov rsi, [rbp-48+PATH_DENTRY]
    mov rsi, [rsi+DENTRY_INODE]
    mov rdx, r13
    mov ecx, r12d
    call vfs_mkdir
.Ldone:
    movsxd r14, eax
    lea rdi, [rbp-48]
    mov rsi, r13
    call done_path_create
    mov r13, r14
.Lputname:
    mov rdi, rbx
    call putname
    mov rax, r13
    LEAVE4
ENDFUNC do_mkdirat

FUNC __x64_sys_mkdir                    # rdi pt_regs: (path, mode)
    ENTER1
    push 0
    mov ebx, [rdi+PT_RSI]
    mov rdi, [rdi+PT_RDI]
    call getname
    cmp rax, ERR_MIN
    jae .Lout
    mov edi, AT_FDCWD
    mov rsi, rax
    mov edx, ebx
    call do_mkdirat
.Lout:
    LEAVE1
ENDFUNC __x64_sys_mkdir

FUNC vfs_symlink                        # rdi ns, rsi directory, rdx dentry, rcx target; eax 0 or error
    ENTER4
    mov rbx, rsi
    mov r12, rdx
    mov r13, rcx
    call may_create
    test eax, eax
    jne .Lout
    mov rcx, [rbx+INODE_OP]
    mov r14, [rcx+IOP_SYMLINK]
    mov eax, -EPERM
    test r14, r14
    je .Lout
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call security_inode_symlink
    test eax, eax
    jne .Lout
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov rdx, r12
    mov rcx, r13
    call r14
    test eax, eax
    jne .Lout
    mov edi, FS_CREATE
    mov rsi, rbx
    mov rdx, r12
    call fsnotify
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC vfs_symlink

FUNC do_symlinkat                       # rdi target filename, esi dfd, rdx filename; puts both; rax
    ENTER4
    sub rsp, 16
    mov rbx, rdi
    mov r12, rdx
    mov edi, esi
    mov rsi, rdx
    lea rdx, [rbp-48]
    xor ecx, ecx
    call filename_create
    mov r13, rax
    cmp rax, ERR_MIN
    jae .Lputnames
    lea rdi, [rbp-48]
    mov rsi, r13
    mov rdx, [rbx+FILENAME_NAME]
    call security_path_symlink
    test eax, eax
    jne .Ldone
    mov rdi, offset init_user_ns
    mov rsi, [rbp-48+PATH_DENTRY]
    mov rsi, [rsi+DENTRY_INODE]
    mov rdx, r13
    mov rcx, [rbx+FILENAME_NAME]
    call vfs_symlink
.Ldone:
    movsxd r14, eax
    lea rdi, [rbp-48]
    mov rsi, r13
    call done_path_create
    mov r13, r14
.Lputnames:
    mov rdi, r12
    call putname
    mov rdi, rbx
    call putname
    mov rax, r13
    LEAVE4
ENDFUNC do_symlinkat

FUNC __x64_sys_symlink                  # rdi pt_regs: (target, path)
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
    mov rdi, rbx
    mov esi, AT_FDCWD
    mov rdx, rax
    call do_symlinkat
    LEAVE2
.Lputname:
    mov r12, rax
    mov rdi, rbx
    call putname
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC __x64_sys_symlink

# --- reading a symlink ----------------------------------------------------------------------------

FUNC readlink_copy                      # rdi user buffer, esi its size, rdx target; eax bytes or error
    ENTER4
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    mov rdi, rdx
    call strlen
    cmp eax, r12d
    cmova eax, r12d
    mov r14d, eax
    mov rdi, rbx
    mov rsi, r13
    mov edx, eax
    call _copy_to_user
    mov ecx, -EFAULT
    test rax, rax
    mov eax, r14d
    cmovne eax, ecx
    LEAVE4
ENDFUNC readlink_copy

FUNC vfs_readlink                       # rdi dentry, rsi user buffer, edx its size; eax bytes or error
    ENTER3
    push 0
    mov rbx, rsi
    mov r12d, edx
    mov rsi, [rdi+DENTRY_INODE]
    mov r13, [rsi+INODE_LINK]
    test r13, r13
    jne .Lcopy
    mov rax, [rsi+INODE_OP]
    call [rax+IOP_GET_LINK]
    mov r13, rax
    cmp rax, ERR_MIN
    jae .Lout
.Lcopy:
    mov rdi, rbx
    mov esi, r12d
    mov rdx, r13
    call readlink_copy
.Lout:
    LEAVE3
ENDFUNC vfs_readlink

FUNC do_readlinkat                      # edi dfd, rsi user path, rdx user buffer, ecx its size; eax
    ENTER3
    sub rsp, 24
    mov rbx, rdx
    mov r12d, ecx
    mov eax, -EINVAL
    test ecx, ecx
    jle .Lout
    mov edx, LOOKUP_EMPTY
    lea rcx, [rbp-40]
    call user_path_at_empty
    test eax, eax
    jne .Lout
    mov rdi, [rbp-40+PATH_DENTRY]
    mov eax, [rdi+DENTRY_FLAGS]
    and eax, DCACHE_ENTRY_TYPE
    mov r13d, -EINVAL
    cmp eax, DCACHE_SYMLINK_TYPE
    jne .Lput
    call security_inode_readlink
    mov r13d, eax
    test eax, eax
    jne .Lput
    lea rdi, [rbp-40]
    call touch_atime
    mov rdi, [rbp-40+PATH_DENTRY]
    mov rsi, rbx
    mov edx, r12d
    call vfs_readlink
    mov r13d, eax
.Lput:
    lea rdi, [rbp-40]
    call path_put
    mov eax, r13d
.Lout:
    LEAVE3
ENDFUNC do_readlinkat

FUNC __x64_sys_readlink                 # rdi pt_regs: (path, buffer, size)
    PROLOGUE
    mov rax, rdi
    mov edi, AT_FDCWD
    mov rsi, [rax+PT_RDI]
    mov rdx, [rax+PT_RSI]
    mov ecx, [rax+PT_RDX]
    call do_readlinkat
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_readlink
