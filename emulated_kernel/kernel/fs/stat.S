# fs/stat.c: what an inode says about its file, for user space.

.text

STATX_BASIC_STATS = 0x7ff

FUNC generic_fillattr                   # rdi ns, rsi inode, rdx kstat
    PROLOGUE
    mov eax, [rsi+INODE_MODE]
    mov [rdx+KSTAT_MODE], eax
    mov eax, [rsi+INODE_NLINK]
    mov [rdx+KSTAT_NLINK], eax
    mov eax, [rsi+INODE_UID]
    mov [rdx+KSTAT_UID], eax
    mov eax, [rsi+INODE_GID]
    mov [rdx+KSTAT_GID], eax
    mov eax, [rsi+INODE_RDEV]
    mov [rdx+KSTAT_RDEV], eax
    mov rax, [rsi+INODE_INO]
    mov [rdx+KSTAT_INO], rax
    mov rax, [rsi+INODE_SIZE]
    mov [rdx+KSTAT_SIZE], rax
    mov rax, [rsi+INODE_BLOCKS]
    mov [rdx+KSTAT_BLOCKS], rax
    mov ecx, [rsi+INODE_BLKBITS]
    mov eax, 1
    shl eax, cl
    mov [rdx+KSTAT_BLKSIZE], eax
    mov rax, [rsi+INODE_SB]
    mov eax, [rax+SB_DEV]
    mov [rdx+KSTAT_DEV], eax
    add rsi, INODE_ATIME
    lea rdi, [rdx+KSTAT_ATIME]          # access, modification and change lie alike in both
    mov ecx, 6
    rep movsq
    EPILOGUE
ENDFUNC generic_fillattr

FUNC simple_getattr                     # rdi ns, rsi path, rdx kstat, ecx mask, r8d flags; eax 0
    ENTER2
    mov rbx, rdx
    mov rsi, [rsi+PATH_DENTRY]
    mov r12, [rsi+DENTRY_INODE]
    mov rsi, r12
    call generic_fillattr
    mov rax, [r12+INODE_MAPPING]
    mov rax, [rax+MAPPING_NRPAGES]
    shl rax, PAGE_SHIFT - 9
    mov [rbx+KSTAT_BLOCKS], rax
    xor eax, eax
    LEAVE2
ENDFUNC simple_getattr

FUNC vfs_getattr_nosec                  # rdi path, rsi kstat, edx mask, ecx flags; eax 0 or error
    PROLOGUE
    mov dword ptr [rsi+KSTAT_RESULT_MASK], STATX_BASIC_STATS
    mov r8d, ecx
    mov ecx, edx
    mov rdx, rsi
    mov rsi, rdi
    mov rdi, offset init_user_ns
    mov r9, [rsi+PATH_DENTRY]
    mov r9, [r9+DENTRY_INODE]
    mov rax, [r9+INODE_OP]
    mov rax, [rax+IOP_GETATTR]
    test rax, rax
    je .Lgeneric
    call rax
    EPILOGUE
.Lgeneric:
    mov rsi, r9
    call generic_fillattr
    xor eax, eax
    EPILOGUE
ENDFUNC vfs_getattr_nosec

FUNC vfs_getattr                        # rdi path, rsi kstat, edx mask, ecx flags; eax 0 or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov r14d, ecx
    call security_inode_getattr
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov rsi, r12
    mov edx, r13d
    mov ecx, r14d
    call vfs_getattr_nosec
.Lout:
    LEAVE4
ENDFUNC vfs_getattr

FUNC vfs_fstat                          # edi fd, rsi kstat; eax 0 or error
    ENTER3
    push 0
    mov r12, rsi
    call __fdget
    mov rbx, rax
    mov rdi, rax
    mov eax, -EBADF
    and rdi, -4
    je .Lout
    add rdi, FILE_PATH
    mov rsi, r12
    mov edx, STATX_BASIC_STATS
    xor ecx, ecx
    call vfs_getattr
    mov r13d, eax
    FDPUT rbx
    mov eax, r13d
.Lout:
    LEAVE3
ENDFUNC vfs_fstat

FUNC vfs_statx                          # edi dfd, rsi filename, edx AT_*, rcx kstat, r8d mask; eax
    ENTER4
    sub rsp, 16
    mov rbx, rcx
    mov r12d, edx
    mov r13d, r8d
    mov eax, -EINVAL
    test edx, ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | 0x800 | 0x6000)
    jne .Lout
    mov edx, LOOKUP_FOLLOW
    test r12d, AT_SYMLINK_NOFOLLOW
    je .Lempty
    xor edx, edx
.Lempty:
    test r12d, AT_EMPTY_PATH
    je .Llookup
    or edx, LOOKUP_EMPTY
.Llookup:
    lea rcx, [rbp-48]
    call filename_lookup
    test eax, eax
    jne .Lout
    lea rdi, [rbp-48]
    mov rsi, rbx
    mov edx, r13d
    mov ecx, r12d
    call vfs_getattr
    mov r14d, eax
    lea rdi, [rbp-48]
    call path_put
    mov eax, r14d
.Lout:
    LEAVE4
ENDFUNC vfs_statx

FUNC vfs_fstatat                        # edi dfd, rsi user path, rdx kstat, ecx AT_*; eax 0 or error
    ENTER4
    mov ebx, edi
    mov r12, rdx
    mov r13d, ecx
    mov rdi, rsi
    xor esi, esi
    test ecx, AT_EMPTY_PATH
    je .Lname
    mov esi, LOOKUP_EMPTY
.Lname:
    xor edx, edx
    call getname_flags
    cmp rax, ERR_MIN
    jae .Lout
    mov r14, rax
    mov edi, ebx
    mov rsi, rax
    mov edx, r13d
    mov rcx, r12
    mov r8d, STATX_BASIC_STATS
    call vfs_statx
    mov ebx, eax
    mov rdi, r14
    call putname
    mov eax, ebx
.Lout:
    LEAVE4
ENDFUNC vfs_fstatat

FUNC cp_new_stat                        # rdi kstat, rsi user stat; eax 0 or error
    ENTER2
    sub rsp, STAT_BYTES
    mov rbx, rdi
    mov r12, rsi
    mov rdi, rsp
    mov ecx, STAT_BYTES / 8
    xor eax, eax
    rep stosq
    mov eax, [rbx+KSTAT_DEV]
    mov [rsp+STAT_DEV], rax
    mov rax, [rbx+KSTAT_INO]
    mov [rsp+STAT_INO], rax
    mov eax, [rbx+KSTAT_NLINK]
    mov [rsp+STAT_NLINK], rax
    mov eax, [rbx+KSTAT_MODE]
    mov [rsp+STAT_MODE], eax
    mov eax, [rbx+KSTAT_UID]
    mov [rsp+STAT_UID], eax
    mov eax, [rbx+KSTAT_GID]
    mov [rsp+STAT_GID], eax
    mov eax, [rbx+KSTAT_RDEV]
    mov [rsp+STAT_RDEV], rax
    mov rax, [rbx+KSTAT_SIZE]
    mov [rsp+STAT_SIZE], rax
    mov eax, [rbx+KSTAT_BLKSIZE]
    mov [rsp+STAT_BLKSIZE], rax
    mov rax, [rbx+KSTAT_BLOCKS]
    mov [rsp+STAT_BLOCKS], rax
    lea rsi, [rbx+KSTAT_ATIME]
    lea rdi, [rsp+STAT_ATIME]
    mov ecx, 6
    rep movsq
    mov rdi, r12
    mov rsi, rsp
    mov edx, STAT_BYTES
    call _copy_to_user
    test rax, rax
    je .Lout
    mov eax, -EFAULT
.Lout:
    LEAVE2
ENDFUNC cp_new_stat

FUNC __x64_sys_newfstatat               # rdi pt_regs: (dfd, path, stat, flags)
    ENTER1
    sub rsp, KSTAT_BYTES + 8
    mov rbx, [rdi+PT_RDX]
    mov rax, rdi
    mov edi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    mov rdx, rsp
    mov ecx, [rax+PT_R10]
    call vfs_fstatat
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rdi, rsp
    mov rsi, rbx
    call cp_new_stat
    movsxd rax, eax
.Lout:
    LEAVE1
ENDFUNC __x64_sys_newfstatat

# stat and lstat: rdi pt_regs: (path, stat).
.macro NEWSTAT flags
    ENTER1
    sub rsp, KSTAT_BYTES + 8
    mov rbx, [rdi+PT_RSI]
    mov rsi, [rdi+PT_RDI]
    mov edi, AT_FDCWD
    mov rdx, rsp
    mov ecx, \flags
    call vfs_fstatat
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rdi, rsp
    mov rsi, rbx
    call cp_new_stat
    movsxd rax, eax
.Lout:
    LEAVE1
.endm

FUNC __x64_sys_newstat
    NEWSTAT 0
ENDFUNC __x64_sys_newstat

FUNC __x64_sys_newlstat
    NEWSTAT AT_SYMLINK_NOFOLLOW
ENDFUNC __x64_sys_newlstat

FUNC __x64_sys_newfstat                 # rdi pt_regs: (fd, stat)
    ENTER1
    sub rsp, KSTAT_BYTES + 8
    mov rbx, [rdi+PT_RSI]
    mov edi, [rdi+PT_RDI]
    mov rsi, rsp
    call vfs_fstat
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rdi, rsp
    mov rsi, rbx
    call cp_new_stat
    movsxd rax, eax
.Lout:
    LEAVE1
ENDFUNC __x64_sys_newfstat

STATX_BYTES = 256

FUNC cp_statx                           # rdi kstat, rsi user statx; eax 0 or error
    ENTER2
    sub rsp, STATX_BYTES
    mov rbx, rdi
    mov r12, rsi
    mov rdi, rsp
    mov ecx, STATX_BYTES / 8
    xor eax, eax
    rep stosq
    mov eax, [rbx+KSTAT_RESULT_MASK]
    mov [rsp], eax
    mov eax, [rbx+KSTAT_BLKSIZE]
    mov [rsp+4], eax
    mov eax, [rbx+KSTAT_NLINK]
    mov [rsp+16], eax
    mov eax, [rbx+KSTAT_UID]
    mov [rsp+20], eax
    mov eax, [rbx+KSTAT_GID]
    mov [rsp+24], eax
    mov eax, [rbx+KSTAT_MODE]
    mov [rsp+28], ax
    mov rax, [rbx+KSTAT_INO]
    mov [rsp+32], rax
    mov rax, [rbx+KSTAT_SIZE]
    mov [rsp+40], rax
    mov rax, [rbx+KSTAT_BLOCKS]
    mov [rsp+48], rax
    mov rax, [rbx+KSTAT_ATIME]
    mov [rsp+64], rax
    mov eax, [rbx+KSTAT_ATIME+8]
    mov [rsp+72], eax
    mov rax, [rbx+KSTAT_CTIME]
    mov [rsp+96], rax
    mov eax, [rbx+KSTAT_CTIME+8]
    mov [rsp+104], eax
    mov rax, [rbx+KSTAT_MTIME]
    mov [rsp+112], rax
    mov eax, [rbx+KSTAT_MTIME+8]
    mov [rsp+120], eax
    mov eax, [rbx+KSTAT_RDEV]
    shr eax, 20
    mov [rsp+128], eax
    mov eax, [rbx+KSTAT_RDEV]
    and eax, 0xfffff
    mov [rsp+132], eax
    mov eax, [rbx+KSTAT_DEV]
    shr eax, 20
    mov [rsp+136], eax
    mov eax, [rbx+KSTAT_DEV]
    and eax, 0xfffff
    mov [rsp+140], eax
    mov rdi, r12
    mov rsi, rsp
    mov edx, STATX_BYTES
    call _copy_to_user
    test rax, rax
    je .Lout
    mov eax, -EFAULT
.Lout:
    LEAVE2
ENDFUNC cp_statx

FUNC do_statx                           # edi dfd, rsi filename, edx AT_*, ecx mask, r8 user statx; eax
    ENTER1
    sub rsp, KSTAT_BYTES + 8
    mov rbx, r8
    mov eax, -EINVAL
    test ecx, ecx                       # STATX__RESERVED
    js .Lout
    mov r8d, ecx
    mov rcx, rsp
    call vfs_statx
    test eax, eax
    jne .Lout
    mov rdi, rsp
    mov rsi, rbx
    call cp_statx
.Lout:
    LEAVE1
ENDFUNC do_statx

FUNC __x64_sys_statx                    # rdi pt_regs: (dfd, path, flags, mask, statx)
    ENTER2
    mov rbx, rdi
    xor esi, esi
    test dword ptr [rdi+PT_RDX], AT_EMPTY_PATH
    je .Lname
    mov esi, LOOKUP_EMPTY
.Lname:
    mov rdi, [rdi+PT_RSI]
    xor edx, edx
    call getname_flags
    cmp rax, ERR_MIN
    jae .Lout
    mov r12, rax
    mov edi, [rbx+PT_RDI]
    mov rsi, rax
    mov edx, [rbx+PT_RDX]
    mov ecx, [rbx+PT_R10]
    mov r8, [rbx+PT_R8]
    call do_statx
    movsxd rbx, eax
    mov rdi, r12
    call putname
    mov rax, rbx
.Lout:
    LEAVE2
ENDFUNC __x64_sys_statx
