# fs/open.c: from a path to a descriptor, and closing and truncating files.

.text

O_TMPFILE_BIT = 0x400000

FUNC do_sys_open                        # edi dfd, rsi user path, edx flags, ecx mode; eax fd or error
    PROLOGUE
    sub rsp, 32
    mov eax, edx
    or eax, O_LARGEFILE
    mov [rsp+HOW_FLAGS], rax
    mov eax, ecx
    and eax, 0xfff
    mov [rsp+HOW_MODE], rax
    mov qword ptr [rsp+HOW_RESOLVE], 0
    mov rdx, rsp
    call do_sys_openat2
    leave
    ret
ENDFUNC do_sys_open

FUNC __x64_sys_open                     # rdi pt_regs: (path, flags, mode)
    PROLOGUE
    mov rax, rdi
    mov edi, AT_FDCWD
    mov rsi, [rax+PT_RDI]
    mov edx, [rax+PT_RSI]
    mov ecx, [rax+PT_RDX]
    call do_sys_open
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_open

FUNC __x64_sys_creat                    # rdi pt_regs: (path, mode)
    PROLOGUE
    mov rax, rdi
    mov edi, AT_FDCWD
    mov rsi, [rax+PT_RDI]
    mov edx, O_CREAT | O_WRONLY | O_TRUNC
    mov ecx, [rax+PT_RSI]
    call do_sys_open
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_creat

FUNC __x64_sys_openat                   # rdi pt_regs: (dfd, path, flags, mode)
    PROLOGUE
    sub rsp, 32
    mov rax, rdi
    mov edi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    mov ecx, [rax+PT_RDX]
    or ecx, O_LARGEFILE
    mov [rsp+HOW_FLAGS], rcx
    mov ecx, [rax+PT_R10]
    and ecx, 0xfff
    mov [rsp+HOW_MODE], rcx
    mov qword ptr [rsp+HOW_RESOLVE], 0
    mov rdx, rsp
    call do_sys_openat2
    movsxd rax, eax
    leave
    ret
ENDFUNC __x64_sys_openat

# rdi open_how, rsi open_flags to fill; eax 0 or error.
FUNC_NOTRACE build_open_flags
    mov ecx, [rdi+HOW_FLAGS]
    mov edx, [rdi+HOW_MODE]
    test ecx, O_CREAT
    jne .Lmode
    xor edx, edx
.Lmode:
    or edx, S_IFREG
    mov [rsi+OPEN_MODE], edx
    mov eax, -EINVAL
    test ecx, O_TMPFILE_BIT             # no file system here has unnamed files
    jne .Lout
    test ecx, O_PATH
    je .Lflag
    and ecx, O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC
.Lflag:
    mov [rsi+OPEN_FLAG], ecx
    mov eax, ecx
    and eax, O_ACCMODE
    movzx eax, byte ptr [open_acc_modes + rax]
    test ecx, O_TRUNC
    je .Lappend
    or eax, MAY_WRITE
.Lappend:
    test ecx, O_APPEND
    je .Lacc
    or eax, MAY_APPEND
.Lacc:
    test ecx, O_PATH
    je .Laccset
    xor eax, eax
.Laccset:
    mov [rsi+OPEN_ACC_MODE], eax
    mov eax, LOOKUP_OPEN
    test ecx, O_CREAT
    je .Lintent
    or eax, LOOKUP_CREATE
    test ecx, O_EXCL
    je .Lintent
    or eax, LOOKUP_EXCL
    or ecx, O_NOFOLLOW
.Lintent:
    mov [rsi+OPEN_INTENT], eax
    xor eax, eax
    test ecx, O_DIRECTORY
    je .Lfollow
    or eax, LOOKUP_DIRECTORY
.Lfollow:
    test ecx, O_NOFOLLOW
    jne .Llookup
    or eax, LOOKUP_FOLLOW
.Llookup:
    mov [rsi+OPEN_LOOKUP_FLAGS], eax
    xor eax, eax
.Lout:
    ret
ENDFUNC build_open_flags

FUNC do_sys_openat2                     # edi dfd, rsi user path, rdx open_how; eax fd or error
    ENTER5
    sub rsp, OPEN_BYTES
    mov r12d, edi
    mov r13, rsi
    mov rbx, rdx
    mov rdi, rdx
    mov rsi, rsp
    call build_open_flags
    test eax, eax
    jne .Lout
    mov rdi, r13
    call getname
    cmp rax, ERR_MIN
    jae .Lout
    mov r13, rax
    mov edi, [rbx+HOW_FLAGS]
    call get_unused_fd_flags
    mov r14d, eax
    test eax, eax
    js .Lputname
    mov edi, r12d
    mov rsi, r13
    mov rdx, rsp
    call do_filp_open
    mov r15, rax
    cmp rax, ERR_MIN
    jb .Lopened
    mov edi, r14d
    call put_unused_fd
    mov r14d, r15d
    jmp .Lputname
.Lopened:
    test dword ptr [r15+FILE_MODE], FMODE_NONOTIFY
    jne .Linstall
    mov rdi, [r15+FILE_DENTRY]
    mov esi, FS_OPEN
    mov rdx, [r15+FILE_INODE]
    call __fsnotify_parent
.Linstall:
    mov edi, r14d
    mov rsi, r15
    call fd_install
.Lputname:
    mov rdi, r13
    call putname
    mov eax, r14d
.Lout:
    LEAVE5
ENDFUNC do_sys_openat2

FUNC file_open_name                     # rdi filename, esi flags, edx mode; rax file or error
    PROLOGUE
    sub rsp, 64
    mov eax, esi
    mov [rsp+HOW_FLAGS], rax
    mov eax, edx
    mov [rsp+HOW_MODE], rax
    mov [rsp+HOW_RESOLVE], rdi
    mov rdi, rsp
    lea rsi, [rsp+32]
    call build_open_flags
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov edi, AT_FDCWD
    mov rsi, [rsp+HOW_RESOLVE]
    lea rdx, [rsp+32]
    call do_filp_open
.Lout:
    leave
    ret
ENDFUNC file_open_name

FUNC filp_open                          # rdi path in kernel memory, esi flags, edx mode; rax file or error
    ENTER4
    mov r12d, esi
    mov r13d, edx
    call getname_kernel
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    mov rdi, rax
    mov esi, r12d
    mov edx, r13d
    call file_open_name
    mov r12, rax
    mov rdi, rbx
    call putname
    mov rax, r12
.Lout:
    LEAVE4
ENDFUNC filp_open

FUNC vfs_open                           # rdi path, rsi file; eax 0 or error
    PROLOGUE
    mov rax, [rdi+PATH_MNT]
    mov [rsi+FILE_MNT], rax
    mov rax, [rdi+PATH_DENTRY]
    mov [rsi+FILE_DENTRY], rax
    mov rdi, rsi
    mov rsi, [rax+DENTRY_INODE]
    xor edx, edx
    call do_dentry_open
    EPILOGUE
ENDFUNC vfs_open

FUNC do_dentry_open                     # rdi file, rsi inode, rdx open instead of the file's, or 0
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    lea rdi, [rbx+FILE_PATH]
    call path_get
    mov [rbx+FILE_INODE], r12
    mov rax, [r12+INODE_MAPPING]
    mov [rbx+FILE_MAPPING], rax
    test dword ptr [rbx+FILE_FLAGS], O_PATH
    je .Lreal
    mov dword ptr [rbx+FILE_MODE], FMODE_OPENED
    mov rax, offset empty_fops
    mov [rbx+FILE_OP], rax
    xor eax, eax
    LEAVE4
.Lreal:
    mov eax, [r12+INODE_MODE]
    and eax, S_IFMT
    cmp eax, S_IFREG
    je .Lposition
    cmp eax, S_IFDIR
    jne .Lops
.Lposition:
    or dword ptr [rbx+FILE_MODE], FMODE_ATOMIC_POS
    test dword ptr [rbx+FILE_MODE], FMODE_WRITE
    je .Lops
    mov rdi, [rbx+FILE_MNT]
    call __mnt_want_write
    mov r14d, eax
    test eax, eax
    jne .Lfailed
    lock inc dword ptr [r12+INODE_WRITECOUNT]
    or dword ptr [rbx+FILE_MODE], FMODE_WRITER
.Lops:
    mov rax, [r12+INODE_FOP]
    mov [rbx+FILE_OP], rax
    mov rdi, rbx
    call security_file_open
    mov r14d, eax
    test eax, eax
    jne .Lcleanup
    or dword ptr [rbx+FILE_MODE], FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE
    test r13, r13
    jne .Lopen
    mov rax, [rbx+FILE_OP]
    mov r13, [rax+FOPS_OPEN]
    test r13, r13
    je .Lopened
.Lopen:
    mov rdi, r12
    mov rsi, rbx
    call r13
    mov r14d, eax
    test eax, eax
    jne .Lcleanup
.Lopened:
    mov eax, [rbx+FILE_MODE]
    or eax, FMODE_OPENED
    mov rcx, [rbx+FILE_OP]
    mov rdx, [rcx+FOPS_READ]
    or rdx, [rcx+FOPS_READ_ITER]
    je .Lnoread
    mov edx, eax
    and edx, FMODE_READ
    shl edx, 17                         # FMODE_CAN_READ
    or eax, edx
.Lnoread:
    mov rdx, [rcx+FOPS_WRITE]
    or rdx, [rcx+FOPS_WRITE_ITER]
    je .Lnowrite
    mov edx, eax
    and edx, FMODE_WRITE
    shl edx, 17                         # FMODE_CAN_WRITE
    or eax, edx
.Lnowrite:
    cmp qword ptr [rcx+FOPS_LLSEEK], 0
    jne .Lseekable
    and eax, ~FMODE_LSEEK
.Lseekable:
    mov [rbx+FILE_MODE], eax
    and dword ptr [rbx+FILE_FLAGS], ~(O_CREAT | O_EXCL | O_TRUNC)
    xor eax, eax
    LEAVE4
.Lcleanup:
    test dword ptr [rbx+FILE_MODE], FMODE_WRITER
    je .Lfailed
    lock dec dword ptr [r12+INODE_WRITECOUNT]
    mov rdi, [rbx+FILE_MNT]
    call __mnt_drop_write
    and dword ptr [rbx+FILE_MODE], ~FMODE_WRITER
.Lfailed:
    lea rdi, [rbx+FILE_PATH]
    call path_put
    mov qword ptr [rbx+FILE_MNT], 0
    mov qword ptr [rbx+FILE_DENTRY], 0
    mov qword ptr [rbx+FILE_INODE], 0
    mov eax, r14d
    LEAVE4
ENDFUNC do_dentry_open

FUNC generic_file_open                  # rdi inode, rsi file; eax 0
    PROLOGUE
    xor eax, eax
    test dword ptr [rsi+FILE_FLAGS], O_LARGEFILE
    jne .Lout
    bt qword ptr [rdi+INODE_SIZE], 31
    jae .Lout
    mov eax, -EOVERFLOW
.Lout:
    EPILOGUE
ENDFUNC generic_file_open

FUNC nonseekable_open                   # rdi inode, rsi file; eax 0
    PROLOGUE
    and dword ptr [rsi+FILE_MODE], ~(FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE)
    xor eax, eax
    EPILOGUE
ENDFUNC nonseekable_open

FUNC stream_open                        # rdi inode, rsi file; eax 0: no position at all
    PROLOGUE
    and dword ptr [rsi+FILE_MODE], ~(FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE | FMODE_ATOMIC_POS)
    or dword ptr [rsi+FILE_MODE], FMODE_STREAM
    xor eax, eax
    EPILOGUE
ENDFUNC stream_open

FUNC filp_close                         # rdi file, rsi files; eax what its flush says
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    xor r13d, r13d
    mov rax, [rdi+FILE_OP]
    mov rax, [rax+FOPS_FLUSH]
    test rax, rax
    je .Lflushed
    call rax
    mov r13d, eax
.Lflushed:
    mov rdi, rbx
    mov rsi, r12
    call dnotify_flush
    mov rdi, rbx
    mov rsi, r12
    call locks_remove_posix
    mov rdi, rbx
    call fput
    mov eax, r13d
    LEAVE4
ENDFUNC filp_close

FUNC dnotify_flush                      # rdi file, rsi files: its owner watches no longer
    PROLOGUE
    mov rax, [rdi+FILE_INODE]
    mov eax, [rax+INODE_MODE]
    and eax, S_IFMT
    cmp eax, S_IFDIR
    sete al
    movzx eax, al
    EPILOGUE
ENDFUNC dnotify_flush

# --- truncating -----------------------------------------------------------------------------------

FUNC do_truncate                        # rdi ns, rsi dentry, rdx length, ecx more times, r8 file or 0
    ENTER3
    sub rsp, IATTR_BYTES + 8
    mov rbx, rsi
    mov eax, -EINVAL
    test rdx, rdx
    js .Lout
    or ecx, ATTR_SIZE_BIT
    test r8, r8
    je .Lvalid
    or ecx, ATTR_FILE_BIT
    mov [rsp+IATTR_FILE], r8
.Lvalid:
    mov [rsp+IATTR_VALID], ecx
    mov [rsp+IATTR_SIZE], rdx
    mov r12, [rbx+DENTRY_INODE]
    lea rdi, [r12+INODE_RWSEM]
    call down_write
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov rdx, rsp
    xor ecx, ecx
    call notify_change
    mov r13d, eax
    lea rdi, [r12+INODE_RWSEM]
    call up_write
    mov eax, r13d
.Lout:
    LEAVE3
ENDFUNC do_truncate

FUNC do_sys_ftruncate                   # edi fd, rsi length, edx small; eax 0 or error
    ENTER3
    push 0
    mov r12, rsi
    mov eax, -EINVAL
    test rsi, rsi
    js .Lout
    call __fdget
    mov rbx, rax
    mov rdi, rax
    mov eax, -EBADF
    and rdi, -4
    je .Lout
    mov r13d, -EINVAL
    mov rcx, [rdi+FILE_INODE]
    mov eax, [rcx+INODE_MODE]
    and eax, S_IFMT
    cmp eax, S_IFREG
    jne .Lput
    test dword ptr [rdi+FILE_MODE], FMODE_WRITE
    je .Lput
    mov r8, rdi
    mov rsi, [rdi+FILE_DENTRY]
    mov rdi, offset init_user_ns
    mov rdx, r12
    mov ecx, ATTR_MTIME_BIT | ATTR_CTIME_BIT
    call do_truncate
    mov r13d, eax
.Lput:
    FDPUT rbx
    mov eax, r13d
.Lout:
    LEAVE3
ENDFUNC do_sys_ftruncate

FUNC __x64_sys_ftruncate                # rdi pt_regs: (fd, length)
    PROLOGUE
    mov rax, rdi
    mov edi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    mov edx, 1
    call do_sys_ftruncate
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_ftruncate

FUNC vfs_truncate                       # rdi path, rsi length; eax 0 or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov rcx, [rdi+PATH_DENTRY]
    mov rsi, [rcx+DENTRY_INODE]
    mov eax, [rsi+INODE_MODE]
    and eax, S_IFMT
    cmp eax, S_IFDIR
    mov ecx, -EISDIR
    je .Lrefuse
    cmp eax, S_IFREG
    mov ecx, -EINVAL
    jne .Lrefuse
    mov rdi, [rbx+PATH_MNT]
    mov r13, rsi
    call mnt_want_write
    test eax, eax
    jne .Lout
    mov rdi, offset init_user_ns
    mov rsi, r13
    mov edx, MAY_WRITE
    call inode_permission
    test eax, eax
    jne .Ldrop
    mov rdi, offset init_user_ns
    mov rsi, [rbx+PATH_DENTRY]
    mov rdx, r12
    mov ecx, ATTR_MTIME_BIT | ATTR_CTIME_BIT
    xor r8d, r8d
    call do_truncate
.Ldrop:
    mov r13d, eax
    mov rdi, [rbx+PATH_MNT]
    call mnt_drop_write
    mov eax, r13d
.Lout:
    LEAVE3
.Lrefuse:
    mov eax, ecx
    LEAVE3
ENDFUNC vfs_truncate

FUNC do_sys_truncate                    # rdi user path, rsi length; eax 0 or error
    ENTER2
    sub rsp, 16
    mov r12, rsi
    mov rsi, rdi
    mov eax, -EINVAL
    test r12, r12
    js .Lout
    mov edi, AT_FDCWD
    mov edx, LOOKUP_FOLLOW
    mov rcx, rsp
    call user_path_at_empty
    test eax, eax
    jne .Lout
    mov rdi, rsp
    mov rsi, r12
    call vfs_truncate
    mov ebx, eax
    mov rdi, rsp
    call path_put
    mov eax, ebx
.Lout:
    LEAVE2
ENDFUNC do_sys_truncate

FUNC __x64_sys_truncate                 # rdi pt_regs: (path, length)
    PROLOGUE
    mov rax, rdi
    mov rdi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    call do_sys_truncate
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_truncate

.data
.balign 8
OBJECT empty_fops
    .zero FOPS_BYTES
ENDOBJECT empty_fops
open_acc_modes:                         # by the access mode of the flags
    .byte MAY_READ, MAY_WRITE, MAY_READ | MAY_WRITE, MAY_READ | MAY_WRITE
