# fs/ioctl.c

.text

FIOCLEX = 0x5451
FIONCLEX = 0x5450
FIONBIO = 0x5421

FUNC vfs_ioctl                          # rdi file, esi command, rdx argument; rax what the file answers
    PROLOGUE
    mov rax, [rdi+FILE_OP]
    mov rax, [rax+FOPS_IOCTL]
    test rax, rax
    je .Lnone
    call rax
    cmp rax, -ENOIOCTLCMD
    jne .Lout
.Lnone:
    mov rax, -ENOTTY
.Lout:
    EPILOGUE
ENDFUNC vfs_ioctl

# What every file can do: rdi file, esi fd, edx command, rcx argument; rax, -ENOIOCTLCMD: not here.
FUNC do_vfs_ioctl
    ENTER2
    sub rsp, 16
    mov rbx, rdi
    cmp edx, FIOCLEX
    je .Lset
    cmp edx, FIONCLEX
    je .Lclear
    cmp edx, FIONBIO
    je .Lnonblock
    cmp edx, FIONREAD
    je .Lread
    mov rax, -ENOIOCTLCMD
    LEAVE2
.Lset:
    mov edi, esi
    mov esi, 1
    call set_close_on_exec
    xor eax, eax
    LEAVE2
.Lclear:
    mov edi, esi
    xor esi, esi
    call set_close_on_exec
    xor eax, eax
    LEAVE2
.Lnonblock:
    mov rdi, rsp
    mov rsi, rcx
    mov edx, 4
    call _copy_from_user
    test rax, rax
    jne .Lfault
    lea rdi, [rbx+FILE_LOCK]
    call _raw_spin_lock
    and dword ptr [rbx+FILE_FLAGS], ~O_NONBLOCK
    cmp dword ptr [rsp], 0
    je .Lunlock
    or dword ptr [rbx+FILE_FLAGS], O_NONBLOCK
.Lunlock:
    lea rdi, [rbx+FILE_LOCK]
    call _raw_spin_unlock
    xor eax, eax
    LEAVE2
.Lread:
    mov rdx, [rdi+FILE_INODE]
    mov eax, [rdx+INODE_MODE]
    and eax, S_IFMT
    cmp eax, S_IFREG
    mov rax, -ENOIOCTLCMD
    jne .Lout
    mov rax, [rdx+INODE_SIZE]
    sub rax, [rdi+FILE_POS]
    mov [rsp], rax
    mov rdi, rcx
    mov rsi, rsp
    mov edx, 4
    call _copy_to_user
    test rax, rax
    je .Lout
.Lfault:
    mov rax, -EFAULT
.Lout:
    LEAVE2
ENDFUNC do_vfs_ioctl

FUNC __x64_sys_ioctl                    # rdi pt_regs: (fd, command, argument)
    ENTER4
    mov r12, rdi
    mov edi, [rdi+PT_RDI]
    call __fdget
    mov rbx, rax
    mov r13, rax
    mov r14, -EBADF
    and r13, -4
    je .Lout
    mov rdi, r13
    mov esi, [r12+PT_RSI]
    mov rdx, [r12+PT_RDX]
    call security_file_ioctl
    movsxd r14, eax
    test eax, eax
    jne .Lput
    mov rdi, r13
    mov esi, [r12+PT_RDI]
    mov edx, [r12+PT_RSI]
    mov rcx, [r12+PT_RDX]
    call do_vfs_ioctl
    mov r14, rax
    cmp rax, -ENOIOCTLCMD
    jne .Lput
    mov rdi, r13
    mov esi, [r12+PT_RSI]
    mov rdx, [r12+PT_RDX]
    call vfs_ioctl
    mov r14, rax
.Lput:
    FDPUT rbx
.Lout:
    mov rax, r14
    LEAVE4
ENDFUNC __x64_sys_ioctl
