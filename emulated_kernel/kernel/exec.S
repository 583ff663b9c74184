# fs/exec.c: execve. A task gets a new name, new credentials and a new address space; what it would
# run in user mode is left to the host process that it stands for.

.text

FUNC __x64_sys_execve                   # rdi pt_regs: (path, argv, envp)
    ENTER2
    mov rbx, rdi
    mov rdi, [rdi + PT_RDI]
    call getname
    cmp rax, ERR_MIN
    jae .Lout
    mov rdi, rax
    mov rsi, [rbx + PT_RSI]
    mov rdx, [rbx + PT_RDX]
    call do_execveat_common.isra.0
.Lout:
    LEAVE2
ENDFUNC __x64_sys_execve

FUNC do_execveat_common.isra.0          # rdi filename, consumed, rsi argv, rdx envp; rax 0 or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    call alloc_bprm
    mov r14, rax
    cmp rax, ERR_MIN
    jae .Lname
    mov rdi, r12
    call count.constprop.0.isra.0
    test eax, eax
    js .Lbad
    mov [r14 + BPRM_ARGC], eax
    mov rdi, r13
    call count.constprop.0.isra.0
    test eax, eax
    js .Lbad
    mov [r14 + BPRM_ENVC], eax
    mov rdi, [r14 + BPRM_FILENAME]
    mov rsi, r14
    call copy_string_kernel
    test eax, eax
    jne .Lbad
    mov edi, [r14 + BPRM_ENVC]
    mov rsi, r13
    mov rdx, r14
    call copy_strings.isra.0
    test eax, eax
    jne .Lbad
    mov edi, [r14 + BPRM_ARGC]
    mov rsi, r12
    mov rdx, r14
    call copy_strings.isra.0
    test eax, eax
    jne .Lbad
    mov rdi, r14
    call bprm_execve
    mov r12, rax
    jmp .Lfree
.Lbad:
    movsxd r12, eax
.Lfree:
    mov rdi, r14
    call free_bprm
    mov r14, r12
.Lname:
    mov rdi, rbx
    call putname
    mov rax, r14
    LEAVE4
ENDFUNC do_execveat_common.isra.0

FUNC alloc_bprm                         # rdi filename; rax bprm or error
    ENTER2
    mov rbx, rdi
    mov edi, BPRM_BYTES
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lnomem
    mov rcx, [rbx + FILENAME_NAME]
    mov [rax + BPRM_FILENAME], rcx
    mov [rax + BPRM_INTERP], rcx
    mov r12, rax
    call mm_alloc
    test rax, rax
    je .Lnomm
    mov [r12 + BPRM_MM], rax
    mov rdi, r12
    call bprm_mm_init
    test eax, eax
    jne .Lnostack
    mov rax, r12
    jmp .Lout
.Lnostack:
    mov rdi, [r12 + BPRM_MM]
    call mmput
.Lnomm:
    mov rdi, r12
    call kfree
.Lnomem:
    mov rax, -ENOMEM
.Lout:
    LEAVE2
ENDFUNC alloc_bprm

FUNC free_bprm                          # rdi bprm
    ENTER1
    mov rbx, rdi
    mov rdi, [rbx + BPRM_MM]
    test rdi, rdi
    je 1f
    call mmput
1:  mov rdi, [rbx + BPRM_CRED]
    test rdi, rdi
    je 2f
    call abort_creds
2:  mov rdi, [rbx + BPRM_FILE]
    test rdi, rdi
    je 3f
    call fput
3:  mov rdi, rbx
    call kfree
    LEAVE1
ENDFUNC free_bprm

FUNC count.constprop.0.isra.0           # rdi user array of pointers, or 0; eax how many, or error
    ENTER2
    sub rsp, 16
    mov r12, rdi
    xor ebx, ebx
    test rdi, rdi
    je .Lout
.Lnext:
    mov rdi, rsp
    mov rsi, r12
    mov edx, 8
    call _copy_from_user
    test rax, rax
    jne .Lfault
    cmp qword ptr [rsp], 0
    je .Lout
    add r12, 8
    inc ebx
    cmp ebx, MAX_ARG_STRINGS
    jb .Lnext
    mov eax, -E2BIG
    LEAVE2
.Lfault:
    mov eax, -EFAULT
    LEAVE2
.Lout:
    mov eax, ebx
    LEAVE2
ENDFUNC count.constprop.0.isra.0

FUNC bprm_execve                        # rdi bprm; rax 0 or error
    ENTER2
    mov rbx, rdi
    call prepare_exec_creds
    test rax, rax
    je .Lnomem
    mov [rbx + BPRM_CRED], rax
    mov rdi, [rbx + BPRM_FILENAME]
    call do_open_execat
    cmp rax, ERR_MIN
    jae .Lout
    mov [rbx + BPRM_FILE], rax
    call sched_exec
    mov rax, gs:[CURRENT_TASK]
    mov r12d, [rax + TASK_PID]
    mov rdi, rbx
    call search_binary_handler
    test rax, rax
    js .Lout
    TRACE sched_process_exec, .Ltrace
.Lout:
    LEAVE2
.Ltrace:
    mov rsi, gs:[CURRENT_TASK]
    mov edx, r12d
    mov rcx, rbx
    mov rbx, rax
    DO_TRACE sched_process_exec
    mov rax, rbx
    jmp .Lout
.Lnomem:
    mov rax, -ENOMEM
    LEAVE2
ENDFUNC bprm_execve

FUNC do_open_execat                     # rdi path in kernel memory; rax file or error
    ENTER1
    xor esi, esi
    xor edx, edx
    call filp_open
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    mov rdi, [rax + FILE_INODE]
    movzx eax, word ptr [rdi + INODE_MODE]
    mov ecx, eax
    and ecx, S_IFMT
    cmp ecx, S_IFREG
    jne .Lacces
    test eax, 0x49                      # any of the three x bits
    je .Lacces
    mov rax, rbx
.Lout:
    LEAVE1
.Lacces:
    mov rdi, rbx
    call fput
    mov rax, -EACCES
    LEAVE1
ENDFUNC do_open_execat

FUNC sched_exec                         # a good moment to move to another CPU; here nobody is better
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov rdi, rax
    call select_task_rq_fair
    EPILOGUE
ENDFUNC sched_exec

# Whoever knows the file's format runs it.
FUNC_NOTRACE search_binary_handler      # rdi bprm; rax 0 or error
    ENTER2
    mov rbx, rdi
    sub rsp, 16
    mov qword ptr [rsp], 0
    mov rdi, [rbx + BPRM_FILE]
    lea rsi, [rbx + BPRM_BUF]
    mov edx, BINPRM_BUF_SIZE
    mov rcx, rsp
    call kernel_read
    test rax, rax
    js .Lout
    lea rdi, [rbx + rax + BPRM_BUF]     # what the file is too short for
    mov ecx, BINPRM_BUF_SIZE
    sub ecx, eax
    xor eax, eax
    rep stosb
    mov rdi, rbx
    call security_bprm_check
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rdi, rbx
    call load_script
    cmp rax, -ENOEXEC
    jne .Lout
    mov rdi, rbx
    call load_elf_binary
.Lout:
    LEAVE2
ENDFUNC search_binary_handler

# fs/binfmt_script.c: the interpreter named behind #! runs instead.
FUNC load_script                        # rdi bprm; rax 0 or error
    ENTER3
    mov rbx, rdi
    sub rsp, BINPRM_BUF_SIZE
    mov rax, -ENOEXEC
    cmp word ptr [rbx + BPRM_BUF], SCRIPT_MAGIC
    jne .Lout
    lea rsi, [rbx + BPRM_BUF + 2]
    lea r12, [rbx + BPRM_BUF + BINPRM_BUF_SIZE - 1]
.Lblank:
    cmp rsi, r12
    jae .Lout
    cmp byte ptr [rsi], 32
    jne .Lname
    inc rsi
    jmp .Lblank
.Lname:
    mov rdi, rsp
.Lcopy:
    cmp rsi, r12
    jae .Lout                           # cut off
    movzx ecx, byte ptr [rsi]
    cmp cl, 32
    jbe .Lend                           # a blank, the end of the line or of the file
    mov [rdi], cl
    inc rsi
    inc rdi
    jmp .Lcopy
.Lend:
    cmp rdi, rsp
    je .Lout
    mov byte ptr [rdi], 0
    inc dword ptr [rbx + BPRM_DEPTH]
    cmp dword ptr [rbx + BPRM_DEPTH], MAX_SCRIPT_DEPTH
    mov rax, -ELOOP
    ja .Lout
    mov rdi, rsp
    call open_exec
    cmp rax, ERR_MIN
    jae .Lout
    mov rdi, [rbx + BPRM_FILE]
    mov [rbx + BPRM_FILE], rax
    call fput
    mov rdi, rbx
    call search_binary_handler
.Lout:
    LEAVE3
ENDFUNC load_script

FUNC open_exec                          # rdi path in kernel memory; rax file or error
    PROLOGUE
    call do_open_execat
    EPILOGUE
ENDFUNC open_exec

# The point of no return: from here on the task is the new program.
FUNC begin_new_exec                     # rdi bprm; eax 0 or error
    ENTER3
    mov rbx, rdi
    mov r12, gs:[CURRENT_TASK]
    mov rsi, [rdi + BPRM_FILE]
    call would_dump
    xor edi, edi
    xchg rdi, [rbx + BPRM_MM]
    mov [r12 + TASK_ACTIVE_MM], rdi
    xchg rdi, [r12 + TASK_MM]
    test rdi, rdi
    je 1f
    call mmput
1:  and dword ptr [r12 + TASK_FLAGS], 0xffdfffff     # PF_KTHREAD
    mov rdi, [r12 + TASK_FILES]
    call do_close_on_exec
    mov rdi, [rbx + BPRM_FILENAME]
    mov r13, rdi
    mov esi, 0x2f                       # the name behind the last slash
    call strrchr
    lea rsi, [rax + 1]
    test rax, rax
    jne 2f
    mov rsi, r13
2:  mov rdi, r12
    mov edx, 1
    call __set_task_comm
    xor edi, edi
    xchg rdi, [rbx + BPRM_CRED]
    call commit_creds
    xor eax, eax
    LEAVE3
ENDFUNC begin_new_exec

FUNC would_dump                         # rdi bprm, rsi file: a file one may not read is not dumped
    PROLOGUE
    mov rax, [rsi + FILE_INODE]
    mov rsi, rax
    xor edi, edi
    mov edx, MAY_READ
    call inode_permission
    EPILOGUE
ENDFUNC would_dump

FUNC setup_new_exec                     # rdi bprm
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov rcx, [rax + TASK_MM]
    mov rdx, [rdi + BPRM_P]
    mov [rcx + MM_START_STACK], rdx
    mov qword ptr [rax + TASK_SIGSET], 0
    EPILOGUE
ENDFUNC setup_new_exec

# The heap begins a page behind the program.
FUNC finalize_exec                      # rdi bprm
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov rax, [rax + TASK_MM]
    mov rcx, [rax + MM_START_BRK]
    add rcx, PAGE_BYTES - 1
    and rcx, PAGE_MASK
    mov [rax + MM_START_BRK], rcx
    mov [rax + MM_BRK], rcx
    EPILOGUE
ENDFUNC finalize_exec

FUNC __set_task_comm                    # rdi task, rsi name, edx whether by exec
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rdi, offset comm_lock
    call _raw_spin_lock
    mov qword ptr [rbx + TASK_COMM], 0
    mov qword ptr [rbx + TASK_COMM + 8], 0
    lea rdi, [rbx + TASK_COMM]
    mov rsi, r12
    mov edx, 16
    call strscpy
    mov rdi, offset comm_lock
    call _raw_spin_unlock
    LEAVE2
ENDFUNC __set_task_comm

.data
.balign 8
OBJECT comm_lock                        # Linux: each task's own alloc_lock
    .quad 0
ENDOBJECT comm_lock
