# fs/read_write.c: seeking.

.text

FUNC vfs_setpos                         # rdi file, rsi offset, rdx largest; rax offset or -EINVAL
    PROLOGUE
    mov rax, -EINVAL
    test rsi, rsi
    js .Lout
    cmp rsi, rdx
    jg .Lout
    mov rax, rsi
    cmp [rdi+FILE_POS], rsi
    je .Lout
    mov [rdi+FILE_POS], rsi
.Lout:
    EPILOGUE
ENDFUNC vfs_setpos

FUNC generic_file_llseek_size           # rdi file, rsi offset, edx whence, rcx largest, r8 end of file
    ENTER2
    mov rbx, rdi
    mov r12, rcx
    cmp edx, SEEK_END
    je .Lend
    cmp edx, SEEK_CUR
    je .Lcurrent
    cmp edx, SEEK_SET
    je .Lset
    mov rax, -EINVAL
    LEAVE2
.Lend:
    add rsi, r8
.Lset:
    mov rdx, rcx
    call vfs_setpos
    LEAVE2
.Lcurrent:
    mov rax, [rdi+FILE_POS]
    test rsi, rsi
    je .Lout                            # only asking
    add rsi, rax
    push rsi
    push rsi
    lea rdi, [rdi+FILE_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    pop rsi
    mov rdx, r12
    call vfs_setpos
    mov r12, rax
    lea rdi, [rbx+FILE_LOCK]
    call _raw_spin_unlock
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC generic_file_llseek_size

FUNC generic_file_llseek                # rdi file, rsi offset, edx whence; rax position or error
    PROLOGUE
    mov rax, [rdi+FILE_MAPPING]
    mov rax, [rax+MAPPING_HOST]
    mov r8, [rax+INODE_SIZE]
    mov rcx, MAX_LFS_FILESIZE
    call generic_file_llseek_size
    EPILOGUE
ENDFUNC generic_file_llseek

FUNC fixed_size_llseek                  # rdi file, rsi offset, edx whence, rcx size
    PROLOGUE
    mov r8, rcx
    call generic_file_llseek_size
    EPILOGUE
ENDFUNC fixed_size_llseek

FUNC noop_llseek                        # rdi file, rsi offset, edx whence
    PROLOGUE
    mov rax, [rdi+FILE_POS]
    EPILOGUE
ENDFUNC noop_llseek

FUNC default_llseek                     # rdi file, rsi offset, edx whence
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov r14, [rdi+FILE_INODE]
    lea rdi, [r14+INODE_RWSEM]
    call down_write
    mov rdi, rbx
    mov rsi, r12
    mov edx, r13d
    mov rcx, MAX_LFS_FILESIZE
    mov r8, [r14+INODE_SIZE]
    call generic_file_llseek_size
    mov rbx, rax
    lea rdi, [r14+INODE_RWSEM]
    call up_write
    mov rax, rbx
    LEAVE4
ENDFUNC default_llseek

FUNC vfs_llseek                         # rdi file, rsi offset, edx whence; rax position or error
    PROLOGUE
    mov rax, -ESPIPE
    test dword ptr [rdi+FILE_MODE], FMODE_LSEEK
    je .Lout
    mov rcx, [rdi+FILE_OP]
    mov rcx, [rcx+FOPS_LLSEEK]
    test rcx, rcx
    je .Lout
    call rcx
.Lout:
    EPILOGUE
ENDFUNC vfs_llseek

FUNC ksys_lseek                         # edi fd, rsi offset, edx whence; rax position or error
    ENTER4
    mov r12, rsi
    mov r13d, edx
    call __fdget_pos
    mov rbx, rax
    mov rdi, rax
    mov rax, -EBADF
    and rdi, -4
    je .Lout
    mov rax, -EINVAL
    cmp r13d, 4                         # SEEK_MAX
    ja .Lput
    mov rsi, r12
    mov edx, r13d
    call vfs_llseek
.Lput:
    mov r14, rax
    FDPUT_POS rbx
    mov rax, r14
.Lout:
    LEAVE4
ENDFUNC ksys_lseek

FUNC __x64_sys_lseek                    # rdi pt_regs: (fd, offset, whence)
    PROLOGUE
    mov rax, rdi
    mov edi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    mov edx, [rax+PT_RDX]
    pop rbp
    jmp ksys_lseek
ENDFUNC __x64_sys_lseek
