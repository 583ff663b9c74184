# fs/readdir.c: directories for user space.

.text

# struct getdents_callback64: a dir_context, and where the next entry goes
GD_CURRENT = 16
GD_PREV = 24                            # u32 length of the last entry
GD_COUNT = 28                           # u32 room left
GD_ERROR = 32
GD_BYTES = 48
DIRENT64_NAME = 19                      # struct linux_dirent64 {ino, off, u16 reclen, u8 type, name}
DIRENT_NAME = 18                        # struct linux_dirent {ino, off, u16 reclen, name, …, u8 type}

FUNC iterate_dir                        # rdi file, rsi ctx; eax 0 or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov rax, [rdi+FILE_OP]
    cmp qword ptr [rax+FOPS_ITERATE], 0
    mov eax, -ENOTDIR
    je .Lout
    mov esi, MAY_READ
    call security_file_permission
    test eax, eax
    jne .Lout
    mov r13, [rbx+FILE_INODE]
    lea rdi, [r13+INODE_RWSEM]
    call down_read
    mov r14d, -ENOENT
    cmp dword ptr [r13+INODE_NLINK], 0
    je .Lunlock
    mov rax, [rbx+FILE_POS]
    mov [r12+CTX_POS], rax
    mov rdi, rbx
    mov rsi, r12
    mov rax, [rbx+FILE_OP]
    call [rax+FOPS_ITERATE]
    mov r14d, eax
    mov rax, [r12+CTX_POS]
    mov [rbx+FILE_POS], rax
    mov rdi, [rbx+FILE_DENTRY]
    mov esi, FS_ACCESS
    mov rdx, r13
    call __fsnotify_parent
    lea rdi, [rbx+FILE_PATH]
    call touch_atime
.Lunlock:
    lea rdi, [r13+INODE_RWSEM]
    call up_read
    mov eax, r14d
.Lout:
    LEAVE4
ENDFUNC iterate_dir

FUNC verify_dirent_name                 # rdi name, esi length; eax 0, or -EIO for one no file can have
    PROLOGUE
    mov eax, -EIO
    test esi, esi
    jle .Lout
.Lnext:
    dec esi
    cmp byte ptr [rdi+rsi], 0x2f
    je .Lout
    test esi, esi
    jne .Lnext
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC verify_dirent_name

# What both kinds of entry begin with: rdi ctx, rsi name, edx its length, rcx offset, r8 inode number,
# r9d type. Builds the entry's head at rsp, checks the room, patches the offset of the entry before and
# copies head and name. r12 is then the entry, r14d its length.
.macro FILLDIR name_offset, extra
    ENTER5
    sub rsp, 56
    mov rbx, rdi
    mov [rsp], r8
    mov qword ptr [rsp+8], 0
    mov [rsp+24], rsi
    mov [rsp+32], rcx
    mov r13d, edx
    mov [rsp+40], r9d
    mov rdi, rsi
    mov esi, edx
    call verify_dirent_name
    mov [rbx+GD_ERROR], eax
    test eax, eax
    jne .Lstop
    lea r14d, [r13 + \name_offset + \extra + 7]
    and r14d, -8
    mov dword ptr [rbx+GD_ERROR], -EINVAL
    cmp r14d, [rbx+GD_COUNT]
    ja .Lstop
    mov [rsp+16], r14w
    mov r12, [rbx+GD_CURRENT]
    mov eax, [rbx+GD_PREV]
    test eax, eax
    je .Lhead
    mov rdi, gs:[CURRENT_TASK]
    cmp dword ptr [rdi+TASK_SIGPENDING], 0
    jne .Linterrupted
    lea rdi, [r12+8]
    sub rdi, rax
    lea rsi, [rsp+32]
    mov edx, 8
    call _copy_to_user
    test rax, rax
    jne .Lfault
.Lhead:
    mov al, [rsp+40]
    mov [rsp+18], al
    mov rdi, r12
    mov rsi, rsp
    mov edx, \name_offset
    call _copy_to_user
    test rax, rax
    jne .Lfault
    lea rdi, [r12 + \name_offset]
    mov rsi, [rsp+24]
    mov edx, r13d
    call _copy_to_user
    test rax, rax
    jne .Lfault
    lea rdi, [r12+r13+\name_offset]
    lea rsi, [rsp+8]                    # a zero
    mov edx, 1
    call _copy_to_user
    test rax, rax
    jne .Lfault
.endm

# How both end.
.macro FILLDIR_END
    mov [rbx+GD_PREV], r14d
    sub [rbx+GD_COUNT], r14d
    mov eax, r14d
    add [rbx+GD_CURRENT], rax
    mov dword ptr [rbx+GD_ERROR], 0
    mov eax, 1
    LEAVE5
.Linterrupted:
    mov dword ptr [rbx+GD_ERROR], -EINTR
    jmp .Lstop
.Lfault:
    mov dword ptr [rbx+GD_ERROR], -EFAULT
.Lstop:
    xor eax, eax
    LEAVE5
.endm

FUNC filldir64                          # rdi ctx, rsi name, edx length, rcx offset, r8 ino, r9d type; al
    FILLDIR DIRENT64_NAME, 1
    FILLDIR_END
ENDFUNC filldir64

FUNC filldir                            # rdi ctx, rsi name, edx length, rcx offset, r8 ino, r9d type; al
    FILLDIR DIRENT_NAME, 2
    lea rdi, [r12+r14-1]                # the type is the last byte
    lea rsi, [rsp+40]
    mov edx, 1
    call _copy_to_user
    test rax, rax
    jne .Lfault
    FILLDIR_END
ENDFUNC filldir

# rdi pt_regs: (fd, buffer, size).
.macro GETDENTS actor
    ENTER4
    sub rsp, GD_BYTES
    mov r13, rdi
    mov edi, [rdi+PT_RDI]
    call __fdget_pos
    mov rbx, rax
    mov rdi, rax
    mov rax, -EBADF
    and rdi, -4
    je .Lout
    mov rax, offset \actor
    mov [rsp+CTX_ACTOR], rax
    mov rax, [r13+PT_RSI]
    mov [rsp+GD_CURRENT], rax
    mov eax, [r13+PT_RDX]
    mov [rsp+GD_COUNT], eax
    mov r12d, eax
    mov dword ptr [rsp+GD_PREV], 0
    mov dword ptr [rsp+GD_ERROR], 0
    mov rsi, rsp
    call iterate_dir
    test eax, eax
    jl .Lresult
    mov eax, [rsp+GD_ERROR]
    mov ecx, [rsp+GD_PREV]
    test ecx, ecx
    je .Lresult
    mov rdi, [rsp+GD_CURRENT]
    sub rdi, rcx
    add rdi, 8
    lea rsi, [rsp+CTX_POS]
    mov edx, 8
    call _copy_to_user
    test rax, rax
    mov eax, -EFAULT
    jne .Lresult
    mov eax, r12d
    sub eax, [rsp+GD_COUNT]
.Lresult:
    movsxd r14, eax
    FDPUT_POS rbx
    mov rax, r14
.Lout:
    LEAVE4
.endm

FUNC __x64_sys_getdents64
    GETDENTS filldir64
ENDFUNC __x64_sys_getdents64

FUNC __x64_sys_getdents
    GETDENTS filldir
ENDFUNC __x64_sys_getdents
