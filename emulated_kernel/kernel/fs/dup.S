# fs/file.c: duplicates of descriptors, and those that exec closes.

.text

FUNC __x64_sys_dup                      # rdi pt_regs: (fd)
    ENTER2
    mov edi, [rdi+PT_RDI]
    call fget
    mov rbx, rax
    mov rax, -EBADF
    test rbx, rbx
    je .Lout
    xor edi, edi
    call get_unused_fd_flags
    movsxd r12, eax
    test eax, eax
    js .Lfull
    mov edi, eax
    mov rsi, rbx
    call fd_install
    mov rax, r12
    LEAVE2
.Lfull:
    mov rdi, rbx
    call fput
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC __x64_sys_dup

FUNC __x64_sys_dup2                     # rdi pt_regs: (old fd, new fd)
    ENTER1
    push 0
    mov rax, rdi
    mov edi, [rax+PT_RDI]
    mov esi, [rax+PT_RSI]
    cmp edi, esi
    jne .Ldup
    mov ebx, edi                        # the same: it only has to be open
    call fget
    test rax, rax
    je .Lbad
    mov rdi, rax
    call fput
    mov eax, ebx
    LEAVE1
.Lbad:
    mov rax, -EBADF
    LEAVE1
.Ldup:
    xor edx, edx
    call ksys_dup3
    movsxd rax, eax
    LEAVE1
ENDFUNC __x64_sys_dup2

FUNC ksys_dup3                          # edi old fd, esi new fd, edx flags; eax new fd or error
    ENTER5
    push 0
    mov r12d, edi
    mov r13d, esi
    mov r14d, edx
    mov eax, -EINVAL
    cmp edi, esi
    je .Lout
    mov eax, -EBADF
    cmp esi, NR_OPEN_MAX
    jae .Lout
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_FILES]
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    mov esi, r13d
    call expand_files
    mov r15d, eax
    test eax, eax
    js .Lunlock
    mov r15d, -EBADF
    mov rcx, [rbx+FILES_FDT]
    cmp r12d, [rcx+FDT_MAX_FDS]
    jae .Lunlock
    mov rcx, [rcx+FDT_FD]
    mov rsi, [rcx+r12*8]
    test rsi, rsi
    je .Lunlock
    mov rdi, rbx
    mov edx, r13d
    mov ecx, r14d
    call do_dup2
    jmp .Lout
.Lunlock:
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    mov eax, r15d
.Lout:
    LEAVE5
ENDFUNC ksys_dup3

# rdi files (locked; unlocks), rsi file, edx fd to put it at, ecx flags; eax fd or error.
FUNC do_dup2
    ENTER4
    mov rbx, rdi
    mov r12d, edx
    mov r8, [rdi+FILES_FDT]
    mov r9, [r8+FDT_FD]
    mov r13, [r9+r12*8]
    test r13, r13
    jne .Lreplace
    mov rax, [r8+FDT_OPEN]
    bt qword ptr [rax], r12
    jb .Lbusy                           # reserved by an open under way
.Lreplace:
    lock inc qword ptr [rsi+FILE_COUNT]
    mov [r9+r12*8], rsi
    mov rax, [r8+FDT_OPEN]
    bts qword ptr [rax], r12
    mov rax, [r8+FDT_CLOEXEC]
    btr qword ptr [rax], r12
    test ecx, O_CLOEXEC
    je .Lunlock
    bts qword ptr [rax], r12
.Lunlock:
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    test r13, r13
    je .Ldone
    mov rdi, r13
    mov rsi, rbx
    call filp_close
.Ldone:
    mov eax, r12d
    LEAVE4
.Lbusy:
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    mov eax, -EBUSY
    LEAVE4
ENDFUNC do_dup2

FUNC set_close_on_exec                  # edi fd, esi on or off
    ENTER3
    push 0
    mov r12d, edi
    mov r13d, esi
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_FILES]
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_lock
    mov rax, [rbx+FILES_FDT]
    mov rax, [rax+FDT_CLOEXEC]
    btr qword ptr [rax], r12
    test r13d, r13d
    je .Lunlock
    bts qword ptr [rax], r12
.Lunlock:
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    LEAVE3
ENDFUNC set_close_on_exec

FUNC do_close_on_exec                   # rdi files
    ENTER4
    mov rbx, rdi
    xor r12d, r12d
    lea rdi, [rdi+FILES_LOCK]
    call _raw_spin_lock
.Lnext:
    mov rax, [rbx+FILES_FDT]
    mov esi, [rax+FDT_MAX_FDS]
    cmp r12d, esi
    jae .Lout
    mov rdi, [rax+FDT_CLOEXEC]
    mov edx, r12d
    call _find_next_bit
    mov r12d, eax
    mov rcx, [rbx+FILES_FDT]
    cmp eax, [rcx+FDT_MAX_FDS]
    jae .Lout
    mov rdi, rbx
    mov esi, r12d
    call pick_file
    inc r12d
    test rax, rax
    je .Lnext
    mov r13, rax
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    mov rdi, r13
    mov rsi, rbx
    call filp_close
    call __cond_resched
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_lock
    jmp .Lnext
.Lout:
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    LEAVE4
ENDFUNC do_close_on_exec
