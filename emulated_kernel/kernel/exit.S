# kernel/exit.c: the end of a task, and waiting for it.

.text

FUNC __x64_sys_exit_group               # rdi pt_regs
    PROLOGUE
    mov edi, [rdi + PT_RDI]
    and edi, 0xff
    shl edi, 8
    call do_group_exit
    EPILOGUE
ENDFUNC __x64_sys_exit_group

FUNC __x64_sys_exit                     # rdi pt_regs
    PROLOGUE
    mov edi, [rdi + PT_RDI]
    and edi, 0xff
    shl edi, 8
    call do_exit
    EPILOGUE
ENDFUNC __x64_sys_exit

FUNC do_group_exit                      # edi code
    PROLOGUE
    call do_exit
    EPILOGUE
ENDFUNC do_group_exit

FUNC make_task_dead                     # edi signal
    PROLOGUE
    push rdi
    mov rax, gs:[CURRENT_TASK]
    and dword ptr [rax + TASK_FLAGS], 0xfffffffb    # may have died inside do_exit: PF_EXITING
    pop rdi
    call do_exit
    EPILOGUE
ENDFUNC make_task_dead

FUNC do_exit                            # edi code; does not return
    PROLOGUE
    push rbx
    push r12
    mov rbx, gs:[CURRENT_TASK]
    mov r12d, edi
    or dword ptr [rbx + TASK_FLAGS], PF_EXITING
    mov rdi, rbx
    call exit_signals
    mov [rbx + TASK_EXIT_CODE], r12d
    mov rdi, rbx
    call exit_mm
    TRACE sched_process_exit, .Ltrace
.Ltraced:
    mov rdi, rbx
    call exit_files
    mov rdi, rbx
    call exit_fs
    mov rdi, rbx
    call exit_notify
    call do_task_dead
    ud2
.Ltrace:
    mov rsi, rbx
    DO_TRACE sched_process_exit
    jmp .Ltraced
ENDFUNC do_exit

FUNC exit_signals                       # rdi task
    PROLOGUE
    mov dword ptr [rdi + TASK_SIGPENDING], 0
    mov qword ptr [rdi + TASK_SIGSET], 0
    EPILOGUE
ENDFUNC exit_signals

FUNC_NOTRACE exit_mm                    # rdi task
    push rbp
    mov rbp, rsp
    mov rax, rdi
    xor edi, edi
    xchg rdi, [rax + TASK_MM]
    test rdi, rdi
    je .Lout
    call mmput
.Lout:
    pop rbp
    ret
ENDFUNC exit_mm

FUNC exit_files                         # rdi task
    PROLOGUE
    mov rax, rdi
    xor edi, edi
    xchg rdi, [rax + TASK_FILES]
    test rdi, rdi
    je .Lout
    call put_files_struct
.Lout:
    EPILOGUE
ENDFUNC exit_files

# Children go to init; the parent learns of the end, or the task is its own undertaker.
FUNC_NOTRACE exit_notify                # rdi task
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    push r13
    push r14
    mov rbx, rdi
    mov rdi, offset tasklist_lock
    call _raw_write_lock_irq
    mov r12, [rip + init_process]
    lea r13, [rbx + TASK_CHILDREN]
    mov r14, [r13]
.Lchild:
    cmp r14, r13
    je .Ladopted
    mov rsi, r14
    mov r14, [r14]
    mov [rsi + TASK_PARENT - TASK_SIBLING], r12
    LIST_DEL rsi, rax, rcx
    lea rdi, [r12 + TASK_CHILDREN]
    LIST_ADD_TAIL rsi, rdi, rax
    jmp .Lchild
.Ladopted:
    LIST_INIT r13
    mov dword ptr [rbx + TASK_EXIT_STATE], EXIT_ZOMBIE
    mov rdi, offset tasklist_lock
    call _raw_write_unlock_irq
    mov rdi, rbx
    call do_notify_parent
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC exit_notify

FUNC do_notify_parent                   # rdi task
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, [rdi + TASK_PARENT]
    mov edi, SIGCHLD
    mov rsi, r12
    call __send_signal_locked
    mov rdi, offset wait_chldexit
    mov esi, TASK_INTERRUPTIBLE
    mov edx, 1
    mov rcx, rbx
    call __wake_up
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC do_notify_parent

FUNC do_task_dead                       # does not return
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_DEAD
    PREEMPT_DISABLE
    xor edi, edi                        # SM_NONE
    call __schedule
    ud2
ENDFUNC do_task_dead

FUNC release_task                       # rdi task: a zombie leaves for good
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov rdi, offset tasklist_lock
    call _raw_write_lock_irq
    mov dword ptr [rbx + TASK_EXIT_STATE], EXIT_DEAD
    lea rsi, [rbx + TASK_SIBLING]
    LIST_DEL rsi, rax, rcx
    lea rsi, [rbx + TASK_ALL_NEXT]
    LIST_DEL rsi, rax, rcx
    dec dword ptr [rip + nr_threads]
    mov rdi, offset tasklist_lock
    call _raw_write_unlock_irq
    mov rdi, rbx
    call free_pid
    mov rdi, rbx
    call delayed_put_task_struct
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC release_task

FUNC free_pid                           # rdi task
    PROLOGUE
    mov rdi, offset pidmap_lock
    call _raw_spin_lock_irqsave
    dec dword ptr [rip + pid_allocated]
    mov rdi, offset pidmap_lock
    mov esi, eax
    call _raw_spin_unlock_irqrestore
    EPILOGUE
ENDFUNC free_pid

FUNC delayed_put_task_struct            # rdi task
    PROLOGUE
    push rbx
    mov rbx, rdi
    TRACE sched_process_free, .Ltrace
.Ltraced:
    mov dword ptr [rbx + TASK_PID], 0xffffffff      # tells the host that the task is gone
    dec dword ptr [rbx + TASK_USAGE]
    jne .Lout
    mov rdi, rbx
    call exit_creds
    mov rdi, rbx
    call put_task_stack
    mov rdi, rbx
    call free_task
.Lout:
    pop rbx
    EPILOGUE
.Ltrace:
    mov rsi, rbx
    DO_TRACE sched_process_free
    jmp .Ltraced
ENDFUNC delayed_put_task_struct

FUNC __x64_sys_wait4                    # rdi pt_regs: (pid, status *, options, rusage *)
    PROLOGUE
    mov rax, rdi
    mov rdi, [rax + PT_RDI]
    mov rsi, [rax + PT_RSI]
    mov rdx, [rax + PT_RDX]
    call kernel_wait4
    EPILOGUE
ENDFUNC __x64_sys_wait4

FUNC kernel_wait4                       # edi pid (-1 any), rsi status *, edx options
    PROLOGUE
    push rbx
    push r12
    push r13
    sub rsp, 8
    movsxd rbx, edi
    mov r12, rsi
    mov r13d, edx
    mov rdi, rbx
    mov rsi, rsp
    mov edx, r13d
    call do_wait
    mov rbx, rax
    test r12, r12
    je .Lout
    cmp rax, 0
    jle .Lout
    mov rdi, r12
    mov rsi, rsp
    mov edx, 4
    call _copy_to_user
.Lout:
    mov rax, rbx
    add rsp, 8
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC kernel_wait4

WNOHANG = 1

FUNC do_wait                            # rdi pid or -1, rsi where the exit code goes, edx options; rax pid or error
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    push r15
    sub rsp, 40
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    TRACE sched_process_wait, .Ltrace
.Ltraced:
    mov rdi, rsp
    xor esi, esi
    call init_wait_entry
    mov rax, offset child_wait_callback
    mov [rsp + WAIT_FUNC], rax
    mov rdi, offset wait_chldexit
    mov rsi, rsp
    call add_wait_queue
.Lagain:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_INTERRUPTIBLE
    mov r15, -ECHILD
    lea r14, [rax + TASK_CHILDREN]
    mov rdi, [r14]
.Lchild:
    cmp rdi, r14
    je .Lnone
    mov rcx, [rdi]
    push rcx
    push rcx
    sub rdi, TASK_SIBLING
    mov rsi, rbx
    mov rdx, r12
    call wait_consider_task
    pop rdi
    pop rcx
    test rax, rax
    je .Lchild
    cmp rax, -1
    jne .Lfound
    xor r15d, r15d                      # there is one, still alive
    jmp .Lchild
.Lfound:
    mov r15, rax
    jmp .Lout
.Lnone:
    test r15, r15
    jne .Lout
    test r13d, WNOHANG
    jne .Lout
    mov rax, gs:[CURRENT_TASK]
    mov r15, -ERESTARTSYS
    cmp dword ptr [rax + TASK_SIGPENDING], 0
    jne .Lout
    call schedule
    jmp .Lagain
.Lout:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_RUNNING
    mov rdi, offset wait_chldexit
    mov rsi, rsp
    call remove_wait_queue
    mov rax, r15
    add rsp, 40
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
.Ltrace:
    xor esi, esi
    cmp rbx, -1
    cmovne esi, ebx
    DO_TRACE sched_process_wait
    jmp .Ltraced
ENDFUNC do_wait

FUNC_ENDBR child_wait_callback                # rdi entry, esi mode, edx flags, rcx the task that ended
    PROLOGUE
    mov rax, [rcx + TASK_PARENT]
    cmp rax, [rdi + WAIT_PRIVATE]
    jne .Lnot
    call default_wake_function
    jmp .Lout
.Lnot:
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC child_wait_callback

# rax: 0 not the one asked for, -1 still alive, else the pid of the zombie that was reaped
FUNC wait_consider_task                 # rdi child, rsi pid or -1, rdx where the exit code goes
    PROLOGUE
    push rbx
    cmp rsi, -1
    je .Lmine
    cmp [rdi + TASK_PID], esi
    je .Lmine
    xor eax, eax
    jmp .Lout
.Lmine:
    cmp dword ptr [rdi + TASK_EXIT_STATE], EXIT_ZOMBIE
    mov rax, -1
    jne .Lout
    cmp dword ptr [rdi + TASK_STATE], TASK_DEAD
    jne .Lout
    mov eax, [rdi + TASK_EXIT_CODE]
    mov [rdx], eax
    mov ebx, [rdi + TASK_PID]
    call release_task
    mov eax, ebx
.Lout:
    pop rbx
    EPILOGUE
ENDFUNC wait_consider_task

.data
.balign 8
OBJECT wait_chldexit
    .long 0
    .long 0
    .quad wait_chldexit + 8
    .quad wait_chldexit + 8
ENDOBJECT wait_chldexit
OBJECT init_process
    .quad init_task
ENDOBJECT init_process
