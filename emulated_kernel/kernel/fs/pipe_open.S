# fs/pipe.c: making pipes.

.text

PIPEFS_MAGIC = 0x50495045

FUNC_NOTRACE init_pipe_fs
    ENTER2
    mov rdi, offset pipefs_name
    mov esi, PIPEFS_MAGIC
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call alloc_super
    mov rbx, rax
    mov rdi, rax
    call new_inode
    mov dword ptr [rax+INODE_MODE], S_IFDIR | 0x180
    mov rdi, rax
    call d_make_root
    mov [rbx+SB_ROOT], rax
    mov rdi, rbx
    mov rsi, offset pipefs_name
    xor edx, edx
    call vfs_mount_sb
    mov [rip + pipe_mnt], rax
    LEAVE2
ENDFUNC init_pipe_fs

# The pipe of an inode gets one more file of mode ecx: rdi pipe. Inode or pipe locked.
.macro PIPE_OPENED pipe, mode
    inc dword ptr [\pipe+PIPE_FILES]
    test \mode, FMODE_READ
    je 1f
    inc dword ptr [\pipe+PIPE_READERS]
1:
    test \mode, FMODE_WRITE
    je 1f
    inc dword ptr [\pipe+PIPE_WRITERS]
1:
.endm

FUNC fifo_open                          # rdi inode, rsi file; eax 0 or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    cmp qword ptr [rdi+INODE_PIPE], 0
    jne .Lopen
    call alloc_pipe_info
    test rax, rax
    je .Lnomem
    cmp qword ptr [rbx+INODE_PIPE], 0   # another opener was first
    jne .Llost
    mov [rbx+INODE_PIPE], rax
    jmp .Lopen
.Llost:
    mov rdi, rax
    call free_pipe_info
.Lopen:
    mov r13, [rbx+INODE_PIPE]
    mov [r12+FILE_PRIVATE], r13
    and dword ptr [r12+FILE_MODE], ~(FMODE_PREAD | FMODE_PWRITE | FMODE_LSEEK)
    or dword ptr [r12+FILE_MODE], FMODE_STREAM
    lea rdi, [rbx+INODE_LOCK]
    call _raw_spin_lock
    mov ecx, [r12+FILE_MODE]
    PIPE_OPENED r13, ecx
    lea rdi, [rbx+INODE_LOCK]
    call _raw_spin_unlock
    xor eax, eax
    LEAVE3
.Lnomem:
    mov eax, -ENOMEM
    LEAVE3
ENDFUNC fifo_open

FUNC alloc_file_clone                   # rdi file, esi flags, rdx fops; rax another file of its path (fs/file_table.c)
    ENTER3
    push 0
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    add rdi, FILE_PATH
    call path_get
    lea rdi, [rbx+FILE_PATH]
    mov esi, r12d
    mov rdx, r13
    call alloc_file
    cmp rax, ERR_MIN
    jb .Lout
    mov r12, rax
    lea rdi, [rbx+FILE_PATH]
    call path_put
    mov rax, r12
.Lout:
    LEAVE3
ENDFUNC alloc_file_clone

FUNC create_pipe_files                  # rdi struct file *[2] to fill, esi flags; eax 0 or error
    ENTER4
    mov rbx, rdi
    mov r12d, esi
    and r12d, O_NONBLOCK
    mov rax, [rip + pipe_mnt]           # get_pipe_inode
    mov rdi, [rax+MNT_SB]
    call new_inode_pseudo
    mov r13, rax
    test rax, rax
    je .Lnfile
    call get_next_ino
    mov [r13+INODE_INO], rax
    mov dword ptr [r13+INODE_MODE], S_IFIFO | 0x180
    call alloc_pipe_info
    test rax, rax
    je .Lnopipe
    mov [r13+INODE_PIPE], rax
    mov dword ptr [rax+PIPE_READERS], 1
    mov dword ptr [rax+PIPE_WRITERS], 1
    mov dword ptr [rax+PIPE_FILES], 2
    mov rcx, offset pipefifo_fops
    mov [r13+INODE_FOP], rcx
    mov rdi, r13
    call current_time
    mov [r13+INODE_ATIME], rax
    mov [r13+INODE_ATIME+8], rdx
    mov [r13+INODE_MTIME], rax
    mov [r13+INODE_MTIME+8], rdx
    mov [r13+INODE_CTIME], rax
    mov [r13+INODE_CTIME+8], rdx
    mov rdi, r13
    mov rsi, [rip + pipe_mnt]
    mov rdx, offset pipe_name
    mov ecx, r12d
    or ecx, O_WRONLY
    mov r8, offset pipefifo_fops
    call alloc_file_pseudo
    mov r14, rax
    cmp rax, ERR_MIN
    jae .Lnowriter
    mov rax, [r13+INODE_PIPE]
    mov [r14+FILE_PRIVATE], rax
    mov rdi, r14
    mov esi, r12d
    mov rdx, offset pipefifo_fops
    call alloc_file_clone
    cmp rax, ERR_MIN
    jae .Lnoreader
    mov rcx, [r14+FILE_PRIVATE]
    mov [rax+FILE_PRIVATE], rcx
    mov [rbx], rax
    mov [rbx+8], r14
    mov rdi, r13
    mov rsi, rax
    call stream_open
    mov rdi, r13
    mov rsi, r14
    call stream_open
    xor eax, eax
    LEAVE4
.Lnoreader:
    mov r12, rax
    mov rax, [r13+INODE_PIPE]           # there will be no second file to close
    dec dword ptr [rax+PIPE_FILES]
    dec dword ptr [rax+PIPE_READERS]
    mov rdi, r14
    call fput
    mov rax, r12
    LEAVE4
.Lnowriter:
    mov rdi, [r13+INODE_PIPE]
    mov qword ptr [r13+INODE_PIPE], 0
    call free_pipe_info
    mov rdi, r13
    call iput
    mov rax, r14
    LEAVE4
.Lnopipe:
    mov rdi, r13
    call iput
.Lnfile:
    mov eax, -ENFILE
    LEAVE4
ENDFUNC create_pipe_files

FUNC do_pipe2                           # rdi user int[2], esi flags; eax 0 or error
    ENTER5
    sub rsp, 24
    mov rbx, rdi
    mov r12d, esi
    mov eax, -EINVAL
    test esi, ~(O_CLOEXEC | O_NONBLOCK)
    jne .Lout
    mov rdi, rsp
    call create_pipe_files
    test eax, eax
    jne .Lout
    mov edi, r12d
    call get_unused_fd_flags
    mov r13d, eax
    mov r15d, eax
    test eax, eax
    js .Lputfiles
    mov edi, r12d
    call get_unused_fd_flags
    mov r14d, eax
    mov r15d, eax
    test eax, eax
    js .Lputfirst
    mov [rsp+16], r13d
    mov [rsp+20], r14d
    mov rdi, rbx
    lea rsi, [rsp+16]
    mov edx, 8
    call _copy_to_user
    mov r15d, -EFAULT
    test rax, rax
    jne .Lputsecond
    mov edi, r13d
    mov rsi, [rsp]
    call fd_install
    mov edi, r14d
    mov rsi, [rsp+8]
    call fd_install
    xor eax, eax
    LEAVE5
.Lputsecond:
    mov edi, r14d
    call put_unused_fd
.Lputfirst:
    mov edi, r13d
    call put_unused_fd
.Lputfiles:
    mov rdi, [rsp]
    call fput
    mov rdi, [rsp+8]
    call fput
    mov eax, r15d
.Lout:
    LEAVE5
ENDFUNC do_pipe2

FUNC __x64_sys_pipe                     # rdi pt_regs: (int[2])
    PROLOGUE
    mov rdi, [rdi+PT_RDI]
    xor esi, esi
    call do_pipe2
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_pipe

FUNC __x64_sys_pipe2                    # rdi pt_regs: (int[2], flags)
    PROLOGUE
    mov esi, [rdi+PT_RSI]
    mov rdi, [rdi+PT_RDI]
    call do_pipe2
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_pipe2

.data
.balign 8
OBJECT pipe_mnt
    .quad 0
ENDOBJECT pipe_mnt
pipefs_name:
    .asciz "pipefs"
pipe_name:
    .asciz "pipe"
