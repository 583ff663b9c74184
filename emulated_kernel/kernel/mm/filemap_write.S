# mm/filemap.c: writing a file through the page cache.

.text

WRITE_WRITTEN = 56                      # locals of generic_perform_write, below rbp
WRITE_PAGE = 64
WRITE_FSDATA = 72
WRITE_BYTES = 80
WRITE_MAPPING = 88

FUNC generic_perform_write              # rdi kiocb, rsi iter; rax bytes or error
    ENTER5
    sub rsp, WRITE_MAPPING + 8 - 40
    mov rbx, [rdi+KI_FILP]
    mov r12, rsi
    mov r13, [rdi+KI_POS]
    mov r14, [rbx+FILE_MAPPING]
    mov [rbp-WRITE_MAPPING], r14
    mov r14, [r14+MAPPING_OPS]
    mov qword ptr [rbp-WRITE_WRITTEN], 0
.Lpage:
    mov r15d, r13d
    and r15d, PAGE_BYTES - 1
    mov eax, PAGE_BYTES
    sub eax, r15d
    cmp rax, [r12+ITER_COUNT]
    cmova rax, [r12+ITER_COUNT]
    mov [rbp-WRITE_BYTES], rax
    mov rdi, r12
    mov rsi, rax
    call fault_in_iov_iter_readable
    cmp rax, [rbp-WRITE_BYTES]
    mov rax, -EFAULT
    je .Lerror
    mov rdi, gs:[CURRENT_TASK]
    mov rax, -EINTR
    test dword ptr [rdi+TASK_SIGSET], 1 << (SIGKILL - 1)
    jne .Lerror
    mov rdi, rbx
    mov rsi, [rbp-WRITE_MAPPING]
    mov rdx, r13
    mov ecx, [rbp-WRITE_BYTES]
    lea r8, [rbp-WRITE_PAGE]
    lea r9, [rbp-WRITE_FSDATA]
    call [r14+AOP_WRITE_BEGIN]
    movsxd rax, eax
    test rax, rax
    js .Lerror
    mov rdi, [rbp-WRITE_PAGE]
    mov esi, r15d
    mov rdx, [rbp-WRITE_BYTES]
    mov rcx, r12
    call copy_page_from_iter_atomic
    mov r15, rax
    push qword ptr [rbp-WRITE_FSDATA]
    push qword ptr [rbp-WRITE_FSDATA]
    mov rdi, rbx
    mov rsi, [rbp-WRITE_MAPPING]
    mov rdx, r13
    mov ecx, [rbp-WRITE_BYTES]
    mov r8d, r15d
    mov r9, [rbp-WRITE_PAGE]
    call [r14+AOP_WRITE_END]
    add rsp, 16
    movsxd rax, eax
    test rax, rax
    js .Lerror
    sub r15, rax                        # bytes that the file system did not take
    sub [r12+ITER_BASE], r15
    add [r12+ITER_COUNT], r15
    add r13, rax
    add [rbp-WRITE_WRITTEN], rax
    mov r15, rax
    call __cond_resched
    mov rax, -EFAULT
    test r15, r15
    je .Lerror
    mov rdi, [rbp-WRITE_MAPPING]
    call balance_dirty_pages_ratelimited
    cmp qword ptr [r12+ITER_COUNT], 0
    jne .Lpage
    xor eax, eax
.Lerror:
    mov rcx, [rbp-WRITE_WRITTEN]
    test rcx, rcx
    cmovne rax, rcx
    LEAVE5
ENDFUNC generic_perform_write

FUNC __generic_file_write_iter          # rdi kiocb, rsi iter; inode locked; rax bytes or error
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rdi, [rbx+KI_FILP]
    call file_remove_privs
    test eax, eax
    jne .Lerror
    mov rdi, [rbx+KI_FILP]
    call file_update_time
    test eax, eax
    jne .Lerror
    mov rdi, rbx
    mov rsi, r12
    call generic_perform_write
    test rax, rax
    jle .Lout
    add [rbx+KI_POS], rax
.Lout:
    LEAVE2
.Lerror:
    movsxd rax, eax
    LEAVE2
ENDFUNC __generic_file_write_iter

FUNC generic_file_write_iter            # rdi kiocb, rsi iter; rax bytes or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov rax, [rdi+KI_FILP]
    mov r13, [rax+FILE_MAPPING]
    mov r13, [r13+MAPPING_HOST]
    lea rdi, [r13+INODE_RWSEM]
    call down_write
    mov rdi, rbx
    mov rsi, r12
    call generic_write_checks
    test rax, rax
    jle .Lunlock
    mov rdi, rbx
    mov rsi, r12
    call __generic_file_write_iter
.Lunlock:
    mov r14, rax
    lea rdi, [r13+INODE_RWSEM]
    call up_write
    test r14, r14
    jle .Lout
    mov rdi, [rbx+KI_FILP]
    test dword ptr [rdi+FILE_FLAGS], O_DSYNC
    je .Lout
    mov rsi, [rbx+KI_POS]               # generic_write_sync
    lea rdx, [rsi-1]
    sub rsi, r14
    mov ecx, 1
    call vfs_fsync_range
    test eax, eax
    je .Lout
    movsxd r14, eax
.Lout:
    mov rax, r14
    LEAVE4
ENDFUNC generic_file_write_iter
