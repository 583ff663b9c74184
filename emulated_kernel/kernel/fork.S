# kernel/fork.c and pid.c: new tasks. Address space, open files and working directory are copied by
# their owners (mm/, fs/).

.text

CLONE_VM = 0x100
CLONE_FS = 0x200
CLONE_FILES = 0x400
CLONE_THREAD = 0x10000
ARGS_FLAGS = 0                          # struct kernel_clone_args, as far as it is needed here
ARGS_FN = 8
ARGS_FN_ARG = 16
ARGS_SET_TID = 24
ARGS_COMM = 32                          # kernel threads: their name
ARGS_BYTES = 40
PID_FIRST = 300                         # RESERVED_PIDS
PID_MAX = 4194304
STACK_ORDER = 2

# clone(flags, …): the host asks for a pid by a word in the per-CPU page, as clone3's set_tid does.
FUNC __x64_sys_clone                    # rdi pt_regs
    PROLOGUE
    push rbx
    sub rsp, ARGS_BYTES
    mov rax, [rdi + PT_RDI]
    mov [rsp + ARGS_FLAGS], rax
    xor eax, eax
    mov [rsp + ARGS_FN], rax
    mov [rsp + ARGS_FN_ARG], rax
    mov [rsp + ARGS_COMM], rax
    xchg rax, gs:[HOST_ARG]
    mov [rsp + ARGS_SET_TID], rax
    mov rdi, rsp
    call kernel_clone
    add rsp, ARGS_BYTES
    pop rbx
    EPILOGUE
ENDFUNC __x64_sys_clone

FUNC __x64_sys_fork                     # rdi pt_regs
    PROLOGUE
    push rbx
    sub rsp, ARGS_BYTES
    xor eax, eax
    mov [rsp + ARGS_FLAGS], rax
    mov [rsp + ARGS_FN], rax
    mov [rsp + ARGS_FN_ARG], rax
    mov [rsp + ARGS_COMM], rax
    xchg rax, gs:[HOST_ARG]
    mov [rsp + ARGS_SET_TID], rax
    mov rdi, rsp
    call kernel_clone
    add rsp, ARGS_BYTES
    pop rbx
    EPILOGUE
ENDFUNC __x64_sys_fork

FUNC kernel_clone                       # rdi kernel_clone_args; rax pid or error
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    call copy_process
    mov r12, rax
    cmp rax, -4095
    jae .Lout
    TRACE sched_process_fork, .Ltrace
.Ltraced:
    mov rdi, r12
    call wake_up_new_task
    mov eax, [r12 + TASK_PID]
    mov r12, rax
.Lout:
    mov rax, r12
    pop r12
    pop rbx
    EPILOGUE
.Ltrace:
    mov rsi, gs:[CURRENT_TASK]
    mov rdx, r12
    DO_TRACE sched_process_fork
    jmp .Ltraced
ENDFUNC kernel_clone

FUNC copy_process                       # rdi kernel_clone_args; rax task or error
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    mov rbx, rdi
    mov r13, gs:[CURRENT_TASK]
    mov rdi, r13
    call dup_task_struct
    mov r12, rax
    test rax, rax
    je .Lnomem
    mov rdi, [rbx + ARGS_FLAGS]
    mov rsi, r12
    call sched_fork
    mov rdi, r12
    mov rsi, [rbx + ARGS_FLAGS]
    call copy_creds
    mov rdi, r12
    mov rsi, [rbx + ARGS_FLAGS]
    call security_task_alloc
    mov rdi, [rbx + ARGS_FLAGS]
    mov rsi, r12
    call copy_files
    mov rdi, [rbx + ARGS_FLAGS]
    mov rsi, r12
    call copy_fs
    mov rdi, [rbx + ARGS_FLAGS]
    mov rsi, r12
    call copy_mm
    mov rdi, r12
    mov rsi, rbx
    call copy_thread
    mov rdi, [rbx + ARGS_SET_TID]
    call alloc_pid
    cmp rax, -4095
    jae .Lbadpid
    mov [r12 + TASK_PID], eax
    mov ecx, eax
    test dword ptr [rbx + ARGS_FLAGS], CLONE_THREAD
    je .Lleader
    mov ecx, [r13 + TASK_TGID]
.Lleader:
    mov [r12 + TASK_TGID], ecx
    call sched_clock
    mov [r12 + TASK_START_TIME], rax
    mov rdi, offset tasklist_lock
    call _raw_write_lock_irq
    mov [r12 + TASK_PARENT], r13
    lea rsi, [r12 + TASK_CHILDREN]
    LIST_INIT rsi
    lea rsi, [r12 + TASK_SIBLING]
    lea rdi, [r13 + TASK_CHILDREN]
    LIST_ADD_TAIL rsi, rdi, rax
    lea rsi, [r12 + TASK_ALL_NEXT]
    mov rdi, offset init_task
    add rdi, TASK_ALL_NEXT
    LIST_ADD_TAIL rsi, rdi, rax
    inc dword ptr [rip + nr_threads]
    mov rdi, offset tasklist_lock
    call _raw_write_unlock_irq
    mov rdi, r12
    call proc_fork_connector
    mov rax, r12
    jmp .Lout
.Lbadpid:
    mov r14, rax
    mov rdi, r12
    call exit_files
    mov rdi, r12
    call exit_fs
    mov rdi, r12
    call exit_mm
    mov rdi, r12
    call exit_creds
    mov rdi, r12
    call put_task_stack
    mov rdi, r12
    call free_task
    mov rax, r14
    jmp .Lout
.Lnomem:
    mov rax, -ENOMEM
.Lout:
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC copy_process

FUNC_NOTRACE dup_task_struct            # rdi task; rax a copy with a stack of its own, or 0
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    mov rbx, rdi
    mov edi, TASK_SIZE
    xor esi, esi
    call __kmalloc
    mov r12, rax
    test rax, rax
    je .Lout
    mov rdi, rax
    mov rsi, rbx
    mov edx, TASK_SIZE
    call memcpy
    mov rdi, r12
    call alloc_thread_stack_node
    test eax, eax
    jne .Lnostack
    xor eax, eax
    mov [r12 + TASK_PI_LOCK], eax
    mov [r12 + TASK_WAKE_CPU], eax
    mov [r12 + TASK_SIGPENDING], eax
    mov [r12 + TASK_EXIT_STATE], eax
    mov [r12 + TASK_EXIT_CODE], eax
    mov [r12 + TASK_FLAGS], eax
    mov [r12 + TASK_SIGSET], rax
    mov [r12 + TASK_RQ_NEXT], rax
    mov [r12 + TASK_RQ_PREV], rax
    mov [r12 + TASK_WAKE_NEXT], rax
    mov [r12 + TASK_RET_TOP], rax
    mov [r12 + TASK_RET_END], rax
    mov [r12 + TASK_RET_BASE], rax
    mov [r12 + TASK_WAIT_CHLDEXIT], rax
    mov [r12 + TASK_PRIVATE], rax
    mov dword ptr [r12 + TASK_USAGE], 1
    mov rax, r12
    jmp .Lout
.Lnostack:
    mov rdi, r12
    call kfree
    xor eax, eax
.Lout:
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC dup_task_struct

FUNC alloc_thread_stack_node            # rdi task; eax 0 or -ENOMEM
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    xor edi, edi
    mov esi, STACK_ORDER
    call __get_free_pages
    test rax, rax
    je .Lnomem
    mov [rbx + TASK_STACK], rax
    mov rcx, 0x57ac6e9d                 # STACK_END_MAGIC
    mov [rax], rcx
    xor eax, eax
    jmp .Lout
.Lnomem:
    mov eax, -ENOMEM
.Lout:
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC alloc_thread_stack_node

FUNC put_task_stack                     # rdi task
    PROLOGUE
    push rbx
    mov rbx, rdi
    mov rdi, [rdi + TASK_STACK]
    test rdi, rdi
    je .Lout
    mov esi, STACK_ORDER
    call free_pages
    mov qword ptr [rbx + TASK_STACK], 0
.Lout:
    pop rbx
    EPILOGUE
ENDFUNC put_task_stack

FUNC free_task                          # rdi task
    PROLOGUE
    call kfree
    EPILOGUE
ENDFUNC free_task

# The first frame of a new task: __switch_to_asm pops zeros and returns to ret_from_fork.
FUNC copy_thread                        # rdi task, rsi kernel_clone_args
    PROLOGUE
    mov rax, [rdi + TASK_STACK]
    add rax, STACK_BYTES - 64
    mov rcx, offset ret_from_fork
    mov [rax - 8], rcx
    xor ecx, ecx
    mov [rax - 16], rcx
    mov [rax - 24], rcx
    mov [rax - 32], rcx
    mov [rax - 40], rcx
    mov [rax - 48], rcx
    mov [rax - 56], rcx
    sub rax, 56
    mov [rdi + TASK_SP], rax
    mov rcx, [rsi + ARGS_FN]
    mov [rdi + TASK_FORK_FN], rcx
    mov rax, [rsi + ARGS_FN_ARG]
    mov [rdi + TASK_FORK_ARG], rax
    test rcx, rcx
    je .Lout
    or dword ptr [rdi + TASK_FLAGS], PF_KTHREAD
    mov rsi, [rsi + ARGS_COMM]
    call __set_task_comm
.Lout:
    xor eax, eax
    EPILOGUE
ENDFUNC copy_thread

FUNC_NOTRACE ret_from_fork              # rax previous task
    mov rdi, rax
    call schedule_tail
    mov rbx, gs:[CURRENT_TASK]
    mov rax, [rbx + TASK_FORK_FN]
    test rax, rax
    je .Luser
    mov rdi, [rbx + TASK_FORK_ARG]
    call rax
    test eax, eax
    je .Luser                           # a kernel thread that became a user task
    mov edi, eax
    call do_exit
.Luser:
    mov rbx, gs:[CURRENT_TASK]
    mov qword ptr [rbx + TASK_FORK_FN], 0
    mov qword ptr [rbx + TASK_RETVAL], 0
    LOCAL_IRQ_DISABLE
    xor edi, edi
    call exit_to_user_mode_prepare
    LOCAL_IRQ_ENABLE
    mov rbx, gs:[CURRENT_TASK]
    mov rsp, [rbx + TASK_STACK]
    add rsp, STACK_BYTES - 64
    jmp user_mode
ENDFUNC ret_from_fork

FUNC_NOTRACE copy_files                 # rdi flags, rsi task
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    mov rbx, rsi
    mov rdi, [rsi + TASK_FILES]
    test rdi, rdi
    je .Lout
    call dup_fd
    mov [rbx + TASK_FILES], rax
.Lout:
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC copy_files

FUNC_NOTRACE copy_fs                    # rdi flags, rsi task
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    mov rbx, rsi
    mov rdi, [rsi + TASK_FS]
    test rdi, rdi
    je .Lout
    call copy_fs_struct
    mov [rbx + TASK_FS], rax
.Lout:
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC copy_fs

FUNC_NOTRACE copy_mm                    # rdi flags, rsi task
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    mov rbx, rsi
    mov rsi, [rsi + TASK_MM]
    test rsi, rsi
    je .Lout
    mov rdi, rbx
    call dup_mm
    mov [rbx + TASK_MM], rax
    mov [rbx + TASK_ACTIVE_MM], rax
.Lout:
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC copy_mm

FUNC proc_fork_connector                # rdi task
    PROLOGUE
    inc qword ptr [rip + total_forks]
    EPILOGUE
ENDFUNC proc_fork_connector

FUNC alloc_pid                          # rdi wanted pid or 0; rax pid or error
    PROLOGUE
    push rbx
    push r12
    push r13
    mov rbx, rdi
    mov rdi, offset pidmap_lock
    call _raw_spin_lock_irqsave
    mov r13, rax
    test rbx, rbx
    je .Lnext
    cmp rbx, PID_MAX
    ja .Linval
    mov edi, ebx
    call find_task_by_vpid
    test rax, rax
    mov rax, -17                        # EEXIST
    jne .Lout
    mov rax, rbx
    jmp .Lfound
.Lnext:
    mov r12d, [rip + last_pid]
.Ltry:
    inc r12d
    cmp r12d, PID_MAX
    jb .Lcheck
    mov r12d, PID_FIRST
.Lcheck:
    mov edi, r12d
    call find_task_by_vpid
    test rax, rax
    jne .Ltry
    mov [rip + last_pid], r12d
    mov eax, r12d
.Lfound:
    inc dword ptr [rip + pid_allocated]
    jmp .Lout
.Linval:
    mov rax, -EINVAL
.Lout:
    mov r12, rax
    mov rdi, offset pidmap_lock
    mov rsi, r13
    call _raw_spin_unlock_irqrestore
    mov rax, r12
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC alloc_pid

FUNC find_task_by_vpid                  # edi pid; rax task or 0
    PROLOGUE
    mov rcx, offset init_task
    mov rax, rcx
1:  cmp [rax + TASK_PID], edi
    je 2f
    mov rax, [rax + TASK_ALL_NEXT]
    sub rax, TASK_ALL_NEXT
    cmp rax, rcx
    jne 1b
    xor eax, eax
2:  EPILOGUE
ENDFUNC find_task_by_vpid

FUNC kthread_create_on_node             # rdi function, rsi argument, rdx name; rax task or error
    PROLOGUE
    push rbx
    sub rsp, ARGS_BYTES
    mov qword ptr [rsp + ARGS_FLAGS], CLONE_VM
    mov [rsp + ARGS_FN], rdi
    mov [rsp + ARGS_FN_ARG], rsi
    mov [rsp + ARGS_COMM], rdx
    mov qword ptr [rsp + ARGS_SET_TID], 0
    mov rdi, rsp
    call copy_process
    add rsp, ARGS_BYTES
    pop rbx
    EPILOGUE
ENDFUNC kthread_create_on_node

FUNC __x64_sys_getpid
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov eax, [rax + TASK_TGID]
    EPILOGUE
ENDFUNC __x64_sys_getpid

FUNC __x64_sys_gettid
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov eax, [rax + TASK_PID]
    EPILOGUE
ENDFUNC __x64_sys_gettid

FUNC __x64_sys_getppid
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov rax, [rax + TASK_PARENT]
    mov eax, [rax + TASK_TGID]
    EPILOGUE
ENDFUNC __x64_sys_getppid

.data
.balign 8
OBJECT total_forks
    .quad 0
ENDOBJECT total_forks
OBJECT tasklist_lock
    .quad 0
ENDOBJECT tasklist_lock
OBJECT pidmap_lock
    .quad 0
ENDOBJECT pidmap_lock
OBJECT nr_threads
    .long 0
ENDOBJECT nr_threads
OBJECT pid_allocated
    .long 0
ENDOBJECT pid_allocated
OBJECT last_pid
    .long 0
ENDOBJECT last_pid
