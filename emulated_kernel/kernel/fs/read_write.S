# fs/read_write.c: reading, writing and seeking by descriptor.

.text

MAX_RW_COUNT = 0x7ffff000
READ_OP = 0
WRITE_OP = 1
MAX_LFS_FILESIZE = 1 << 44

FUNC rw_verify_area                     # edi READ_OP or WRITE_OP, rsi file, rdx pos *, rcx count; eax
    PROLOGUE
    mov eax, -EINVAL
    test rcx, rcx
    js .Lout
    test rdx, rdx
    je .Lallowed
    mov rdx, [rdx]
    test rdx, rdx
    js .Lout
    add rdx, rcx
    mov eax, -EOVERFLOW
    js .Lout
.Lallowed:
    mov eax, edi
    mov rdi, rsi
    mov esi, MAY_READ
    test eax, eax
    je .Lcheck
    mov esi, MAY_WRITE
.Lcheck:
    call security_file_permission
.Lout:
    EPILOGUE
ENDFUNC rw_verify_area

FUNC __get_task_ioprio                  # rdi task; eax: best effort, the level by its priority
    PROLOGUE
    mov eax, [rdi+TASK_PRIO]
    sub eax, 100
    jae .Lfair
    mov eax, (1 << 13) | 4              # real time
    EPILOGUE
.Lfair:
    mov ecx, 5
    xor edx, edx
    div ecx
    or eax, 2 << 13
    EPILOGUE
ENDFUNC __get_task_ioprio

# A read or write without its own function goes through an iter (new_sync_read, new_sync_write): rbx
# file, r12 user, r13 count, r14 pos * or 0; \operation READ_OP or WRITE_OP. Result in rax.
.macro NEW_SYNC_RW operation, fop
    sub rsp, KI_BYTES + ITER_BYTES
    mov dword ptr [rsp+KI_BYTES+ITER_KERNEL], 0
    mov dword ptr [rsp+KI_BYTES+ITER_SOURCE], \operation
    mov [rsp+KI_BYTES+ITER_BASE], r12
    mov [rsp+KI_BYTES+ITER_COUNT], r13
    xor edx, edx
    test r14, r14
    je 1f
    mov rdx, [r14]
1:
    INIT_SYNC_KIOCB rsp, rbx, rdx
    mov rdi, rsp
    lea rsi, [rsp+KI_BYTES]
    mov rax, [rbx+FILE_OP]
    call [rax+\fop]
    test r14, r14
    je 1f
    mov rcx, [rsp+KI_POS]
    mov [r14], rcx
1:
    add rsp, KI_BYTES + ITER_BYTES
.endm

# vfs_read and vfs_write: \mode and \can allow it, \fop or \fop_iter does it, \calls and \bytes count
# it, \event tells of it.
.macro VFS_RW operation, mode, can, fop, fop_iter, calls, bytes, event
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov rax, -EBADF
    test dword ptr [rdi+FILE_MODE], \mode
    je .Lout
    mov rax, -EINVAL
    test dword ptr [rdi+FILE_MODE], \can
    je .Lout
    mov rax, -EFAULT
    ACCESS_OK rsi, rdx, rcx, .Lout
    mov edi, \operation
    mov rsi, rbx
    mov rdx, r14
    mov rcx, r13
    call rw_verify_area
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov eax, MAX_RW_COUNT
    cmp r13, rax
    cmova r13, rax
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov rcx, r14
    mov rax, [rbx+FILE_OP]
    mov rax, [rax+\fop]
    test rax, rax
    je .Liter
    call rax
    jmp .Ldone
.Liter:
    NEW_SYNC_RW \operation, \fop_iter
.Ldone:
    mov r12, rax
    lock inc qword ptr [rip + \calls]
    test rax, rax
    jle .Lresult
    lock add [rip + \bytes], rax
    test dword ptr [rbx+FILE_MODE], FMODE_NONOTIFY
    jne .Lresult
    mov rdi, [rbx+FILE_DENTRY]
    mov esi, \event
    mov rdx, [rbx+FILE_INODE]
    call __fsnotify_parent
.Lresult:
    mov rax, r12
.Lout:
    LEAVE4
.endm

FUNC vfs_read                           # rdi file, rsi user, rdx count, rcx pos * or 0; rax bytes or error
    VFS_RW READ_OP, FMODE_READ, FMODE_CAN_READ, FOPS_READ, FOPS_READ_ITER, syscr, rchar, FS_ACCESS
ENDFUNC vfs_read

FUNC vfs_write                          # rdi file, rsi user, rdx count, rcx pos * or 0; rax bytes or error
    VFS_RW WRITE_OP, FMODE_WRITE, FMODE_CAN_WRITE, FOPS_WRITE, FOPS_WRITE_ITER, syscw, wchar, FS_MODIFY
ENDFUNC vfs_write

# ksys_read and ksys_write differ in the function in \vfs only.
.macro KSYS_RW vfs
    ENTER4
    sub rsp, 16
    mov r12, rsi
    mov r13, rdx
    call __fdget_pos
    mov rbx, rax
    mov rdi, rax
    mov rax, -EBADF
    and rdi, -4
    je .Lout
    mov r14, rdi
    xor ecx, ecx
    test dword ptr [r14+FILE_MODE], FMODE_STREAM
    jne .Lgo
    mov rax, [r14+FILE_POS]
    mov [rbp-48], rax
    lea rcx, [rbp-48]
.Lgo:
    mov rsi, r12
    mov rdx, r13
    call \vfs
    mov r12, rax
    test rax, rax
    js .Lput
    test dword ptr [r14+FILE_MODE], FMODE_STREAM
    jne .Lput
    mov rax, [rbp-48]
    mov [r14+FILE_POS], rax
.Lput:
    FDPUT_POS rbx
    mov rax, r12
.Lout:
    LEAVE4
.endm

FUNC ksys_read                          # edi fd, rsi user, rdx count; rax bytes or error
    KSYS_RW vfs_read
ENDFUNC ksys_read

FUNC ksys_write                         # edi fd, rsi user, rdx count; rax bytes or error
    KSYS_RW vfs_write
ENDFUNC ksys_write

FUNC __x64_sys_read                     # rdi pt_regs: (fd, buffer, count)
    PROLOGUE
    mov rax, rdi
    mov edi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    mov rdx, [rax+PT_RDX]
    pop rbp
    jmp ksys_read
ENDFUNC __x64_sys_read

FUNC __x64_sys_write                    # rdi pt_regs: (fd, buffer, count)
    PROLOGUE
    mov rax, rdi
    mov edi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    mov rdx, [rax+PT_RDX]
    pop rbp
    jmp ksys_write
ENDFUNC __x64_sys_write

# At a position of its own, which the file does not remember.
.macro KSYS_PRW vfs, mode
    ENTER4
    sub rsp, 16
    mov r12, rsi
    mov r13, rdx
    mov [rbp-48], rcx
    mov rax, -EINVAL
    test rcx, rcx
    js .Lout
    call __fdget
    mov rbx, rax
    mov rdi, rax
    mov rax, -EBADF
    and rdi, -4
    je .Lout
    mov r14, -ESPIPE
    test dword ptr [rdi+FILE_MODE], \mode
    je .Lput
    mov rsi, r12
    mov rdx, r13
    lea rcx, [rbp-48]
    call \vfs
    mov r14, rax
.Lput:
    FDPUT rbx
    mov rax, r14
.Lout:
    LEAVE4
.endm

FUNC ksys_pread64                       # edi fd, rsi user, rdx count, rcx position; rax bytes or error
    KSYS_PRW vfs_read, FMODE_PREAD
ENDFUNC ksys_pread64

FUNC ksys_pwrite64                      # edi fd, rsi user, rdx count, rcx position; rax bytes or error
    KSYS_PRW vfs_write, FMODE_PWRITE
ENDFUNC ksys_pwrite64

FUNC __x64_sys_pread64                  # rdi pt_regs: (fd, buffer, count, position)
    PROLOGUE
    mov rax, rdi
    mov edi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    mov rdx, [rax+PT_RDX]
    mov rcx, [rax+PT_R10]
    pop rbp
    jmp ksys_pread64
ENDFUNC __x64_sys_pread64

FUNC __x64_sys_pwrite64                 # rdi pt_regs: (fd, buffer, count, position)
    PROLOGUE
    mov rax, rdi
    mov edi, [rax+PT_RDI]
    mov rsi, [rax+PT_RSI]
    mov rdx, [rax+PT_RDX]
    mov rcx, [rax+PT_R10]
    pop rbp
    jmp ksys_pwrite64
ENDFUNC __x64_sys_pwrite64

# --- kernel memory --------------------------------------------------------------------------------

FUNC __kernel_read                      # rdi file, rsi kernel buffer, rdx count, rcx pos *; rax bytes
    ENTER2
    sub rsp, KI_BYTES + ITER_BYTES
    mov rbx, rdi
    mov r12, rcx
    mov rax, [rdi+FILE_OP]
    cmp qword ptr [rax+FOPS_READ_ITER], 0
    mov rax, -EINVAL
    je .Lout
    lea rax, [rsp+KI_BYTES]
    mov dword ptr [rax+ITER_KERNEL], 1
    mov dword ptr [rax+ITER_SOURCE], 0
    mov [rax+ITER_BASE], rsi
    mov [rax+ITER_COUNT], rdx
    mov rdx, [rcx]
    INIT_SYNC_KIOCB rsp, rbx, rdx
    mov rdi, rsp
    lea rsi, [rsp+KI_BYTES]
    mov rax, [rbx+FILE_OP]
    call [rax+FOPS_READ_ITER]
    mov rcx, [rsp+KI_POS]
    mov [r12], rcx
.Lout:
    LEAVE2
ENDFUNC __kernel_read

FUNC kernel_read                        # rdi file, rsi kernel buffer, rdx count, rcx pos *; rax bytes
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    xor edi, edi
    mov rsi, rbx
    mov rdx, rcx
    mov rcx, r13
    call rw_verify_area
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov rcx, r14
    call __kernel_read
.Lout:
    LEAVE4
ENDFUNC kernel_read

FUNC __kernel_write                     # rdi file, rsi kernel text, rdx count, rcx pos *; rax bytes or error
    ENTER2
    sub rsp, KI_BYTES + ITER_BYTES
    mov rbx, rdi
    mov r12, rcx
    mov rax, [rdi+FILE_OP]
    cmp qword ptr [rax+FOPS_WRITE_ITER], 0
    mov rax, -EINVAL
    je .Lout
    lea rax, [rsp+KI_BYTES]
    mov dword ptr [rax+ITER_KERNEL], 1
    mov dword ptr [rax+ITER_SOURCE], 1
    mov [rax+ITER_BASE], rsi
    mov [rax+ITER_COUNT], rdx
    mov rdx, [rcx]
    INIT_SYNC_KIOCB rsp, rbx, rdx
    mov rdi, rsp
    lea rsi, [rsp+KI_BYTES]
    mov rax, [rbx+FILE_OP]
    call [rax+FOPS_WRITE_ITER]
    mov rcx, [rsp+KI_POS]
    mov [r12], rcx
.Lout:
    LEAVE2
ENDFUNC __kernel_write

FUNC kernel_write                       # rdi file, rsi kernel text, rdx count, rcx pos *; rax bytes or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov edi, WRITE_OP
    mov rsi, rbx
    mov rdx, rcx
    mov rcx, r13
    call rw_verify_area
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov rcx, r14
    call __kernel_write
.Lout:
    LEAVE4
ENDFUNC kernel_write

FUNC generic_write_checks               # rdi kiocb, rsi iter; rax bytes to write, 0 or error
    PROLOGUE
    sub rsp, 16
    mov rax, [rsi+ITER_COUNT]
    test rax, rax
    je .Lout
    mov [rsp], rsi
    mov [rsp+8], rax
    lea rsi, [rsp+8]
    call generic_write_checks_count
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rcx, [rsp]
    mov rax, [rsp+8]
    mov [rcx+ITER_COUNT], rax
.Lout:
    leave
    ret
ENDFUNC generic_write_checks

FUNC generic_write_checks_count         # rdi kiocb, rsi count *; eax 0 or error
    PROLOGUE
    test dword ptr [rdi+KI_FLAGS], IOCB_APPEND
    je .Llimit
    mov rax, [rdi+KI_FILP]
    mov rax, [rax+FILE_INODE]
    mov rax, [rax+INODE_SIZE]
    mov [rdi+KI_POS], rax
.Llimit:
    mov rcx, MAX_LFS_FILESIZE
    sub rcx, [rdi+KI_POS]
    jle .Ltoobig
    cmp [rsi], rcx
    jbe .Lfits
    mov [rsi], rcx
.Lfits:
    xor eax, eax
    EPILOGUE
.Ltoobig:
    mov eax, -EFBIG
    EPILOGUE
ENDFUNC generic_write_checks_count

.data
.balign 8
OBJECT rchar                            # task_io_accounting of all tasks together
    .quad 0
ENDOBJECT rchar
OBJECT wchar
    .quad 0
ENDOBJECT wchar
OBJECT syscr
    .quad 0
ENDOBJECT syscr
OBJECT syscw
    .quad 0
ENDOBJECT syscw
