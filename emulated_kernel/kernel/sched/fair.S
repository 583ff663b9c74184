# kernel/sched/fair.c and idle.c: the run queue in order of virtual run time, and the idle task.
# A running task is not in the list, as in Linux's tree.

.text

FUNC update_curr                        # rdi per-CPU page
    PROLOGUE
    mov rcx, [rdi + RQ_CURR]
    mov rax, [rdi + RQ_CLOCK]
    mov rdx, rax
    sub rdx, [rcx + TASK_EXEC_START]
    jbe .Lout
    mov [rcx + TASK_EXEC_START], rax
    add [rcx + TASK_SUM_EXEC], rdx
    add rdx, [rcx + TASK_VRUNTIME]
    mov [rcx + TASK_VRUNTIME], rdx
    cmp rdx, [rdi + RQ_MIN_VRUNTIME]
    jbe .Lout
    lea rax, [rdi + RQ_HEAD]
    cmp [rax], rax                      # nobody waits: the minimum follows the current task
    jne .Lout
    mov [rdi + RQ_MIN_VRUNTIME], rdx
.Lout:
    EPILOGUE
ENDFUNC update_curr

FUNC place_entity                       # rdi per-CPU page, rsi task: no task comes back from sleep far behind
    PROLOGUE
    mov rax, [rdi + RQ_MIN_VRUNTIME]
    sub rax, SCHED_MIN_GRANULARITY_NS
    jnc .Lmax
    xor eax, eax
.Lmax:
    cmp [rsi + TASK_VRUNTIME], rax
    jae .Lout
    mov [rsi + TASK_VRUNTIME], rax
.Lout:
    EPILOGUE
ENDFUNC place_entity

# Enter the list behind all with less virtual run time.
FUNC_NOTRACE __enqueue_entity           # rdi per-CPU page, rsi task
    mov rdx, [rsi + TASK_VRUNTIME]
    lea rax, [rdi + RQ_HEAD]
    mov rcx, [rax]
1:  cmp rcx, rax
    je 2f
    cmp [rcx + TASK_VRUNTIME - TASK_RQ_NEXT], rdx
    ja 2f
    mov rcx, [rcx]
    jmp 1b
2:  lea rsi, [rsi + TASK_RQ_NEXT]
    LIST_ADD_TAIL rsi, rcx, rax
    ret
ENDFUNC __enqueue_entity

FUNC_NOTRACE __dequeue_entity           # rsi task
    lea rsi, [rsi + TASK_RQ_NEXT]
    LIST_DEL rsi, rax, rcx
    mov qword ptr [rsi], 0
    mov qword ptr [rsi + 8], 0
    ret
ENDFUNC __dequeue_entity

FUNC enqueue_task_fair                  # rdi per-CPU page, rsi task
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rsi
    call update_curr
    mov rdi, rbx
    mov rsi, r12
    call place_entity
    mov rdi, rbx
    mov rsi, r12
    call __enqueue_entity
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC enqueue_task_fair

FUNC dequeue_task_fair                  # rdi per-CPU page, rsi task
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rsi
    call update_curr
    cmp qword ptr [r12 + TASK_RQ_NEXT], 0
    je .Lout                            # it is running, so not in the list
    mov rsi, r12
    call __dequeue_entity
.Lout:
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC dequeue_task_fair

FUNC set_next_entity                    # rdi per-CPU page, rsi task
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rsi
    call __dequeue_entity
    mov rax, [rbx + RQ_CLOCK]
    mov [r12 + TASK_EXEC_START], rax
    mov rax, [r12 + TASK_VRUNTIME]
    cmp rax, [rbx + RQ_MIN_VRUNTIME]
    jbe .Lout
    mov [rbx + RQ_MIN_VRUNTIME], rax
.Lout:
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC set_next_entity

FUNC put_prev_entity                    # rdi per-CPU page, rsi task
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rsi
    cmp dword ptr [rsi + TASK_ON_RQ], 0
    je .Lout
    call update_curr
    mov rdi, rbx
    mov rsi, r12
    call __enqueue_entity
.Lout:
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC put_prev_entity

FUNC put_prev_task_fair                 # rdi per-CPU page, rsi task
    PROLOGUE
    call put_prev_entity
    EPILOGUE
ENDFUNC put_prev_task_fair

FUNC pick_next_task_fair                # rdi per-CPU page, rsi previous; rax task or 0
    PROLOGUE
    push rbx
    push r12
    push r13
    mov rbx, rdi
    mov r12, rsi
    cmp rsi, [rdi + RQ_IDLE]
    je .Lpick
    call put_prev_task_fair
.Lpick:
    lea rax, [rbx + RQ_HEAD]
    mov r13, [rax]
    cmp r13, rax
    je .Lnone
    sub r13, TASK_RQ_NEXT
    mov rdi, rbx
    mov rsi, r13
    call set_next_entity
    mov rax, r13
    jmp .Lout
.Lnone:
    xor eax, eax
.Lout:
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC pick_next_task_fair

FUNC pick_next_task_idle                # rdi per-CPU page; rax the idle task
    PROLOGUE
    mov rax, [rdi + RQ_IDLE]
    mov rcx, [rdi + RQ_CLOCK]
    mov [rax + TASK_EXEC_START], rcx
    EPILOGUE
ENDFUNC pick_next_task_idle

FUNC select_task_rq_fair                # rdi task; eax CPU: where the host says, else where it ran last
    PROLOGUE
    xor eax, eax
    xchg eax, [rdi + TASK_WAKE_CPU]
    dec eax
    jns .Lout
    mov eax, [rdi + TASK_CPU]
    cmp eax, [rip + nr_cpu_ids]
    jb .Lout
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC select_task_rq_fair

FUNC check_preempt_wakeup               # rdi per-CPU page, rsi woken task
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rsi
    call update_curr
    mov rax, [rbx + RQ_CURR]
    mov rax, [rax + TASK_VRUNTIME]
    sub rax, [r12 + TASK_VRUNTIME]
    jbe .Lout
    cmp rax, 1000000                    # sysctl_sched_wakeup_granularity
    jbe .Lout
    mov rdi, rbx
    call resched_curr
.Lout:
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC check_preempt_wakeup

FUNC task_tick_fair                     # rdi per-CPU page, rsi task
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rsi
    mov rax, [rsi + TASK_VRUNTIME]
    push rax
    push rax
    call update_curr
    pop rax
    pop rax
    cmp dword ptr [rbx + RQ_NR_RUNNING], 1
    jbe .Lout
    lea rcx, [rbx + RQ_HEAD]
    mov rdx, [rcx]
    cmp rdx, rcx
    je .Lout
    mov rax, [r12 + TASK_VRUNTIME]
    sub rax, [rdx + TASK_VRUNTIME - TASK_RQ_NEXT]
    jbe .Lout
    mov rdi, rbx
    call resched_curr
.Lout:
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC task_tick_fair

FUNC task_tick_idle                     # rdi per-CPU page
    PROLOGUE
    mov rax, [rdi + RQ_CLOCK]
    mov rcx, [rdi + RQ_IDLE]
    mov [rcx + TASK_EXEC_START], rax
    EPILOGUE
ENDFUNC task_tick_idle
