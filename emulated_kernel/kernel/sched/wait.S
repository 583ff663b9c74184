# kernel/sched/wait.c: wait queues. Head 24 bytes {lock, list}, entry 40 {flags, task, func, list}.

.text

FUNC __init_waitqueue_head              # rdi head
    PROLOGUE
    mov dword ptr [rdi + WQ_LOCK], 0
    add rdi, WQ_HEAD
    LIST_INIT rdi
    EPILOGUE
ENDFUNC __init_waitqueue_head

FUNC add_wait_queue                     # rdi head, rsi entry
    PROLOGUE
    push rbx
    push r12
    push r13
    mov rbx, rdi
    mov r12, rsi
    call _raw_spin_lock_irqsave
    mov r13, rax
    lea rsi, [r12 + WAIT_ENTRY]
    lea rdi, [rbx + WQ_HEAD]
    LIST_ADD_TAIL rsi, rdi, rax
    mov rdi, rbx
    mov rsi, r13
    call _raw_spin_unlock_irqrestore
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC add_wait_queue

FUNC remove_wait_queue                  # rdi head, rsi entry
    PROLOGUE
    push rbx
    push r12
    push r13
    mov rbx, rdi
    mov r12, rsi
    call _raw_spin_lock_irqsave
    mov r13, rax
    lea rsi, [r12 + WAIT_ENTRY]
    LIST_DEL rsi, rax, rcx
    LIST_INIT rsi
    mov rdi, rbx
    mov rsi, r13
    call _raw_spin_unlock_irqrestore
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC remove_wait_queue

FUNC init_wait_entry                    # rdi entry, esi flags
    PROLOGUE
    mov [rdi + WAIT_FLAGS], esi
    mov rax, gs:[CURRENT_TASK]
    mov [rdi + WAIT_PRIVATE], rax
    mov rax, offset autoremove_wake_function
    mov [rdi + WAIT_FUNC], rax
    add rdi, WAIT_ENTRY
    LIST_INIT rdi
    EPILOGUE
ENDFUNC init_wait_entry

FUNC prepare_to_wait                    # rdi head, rsi entry, edx state
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    mov rbx, rdi
    mov r12, rsi
    mov r14d, edx
    call _raw_spin_lock_irqsave
    mov r13, rax
    lea rsi, [r12 + WAIT_ENTRY]
    cmp [rsi], rsi
    jne .Lqueued
    lea rdi, [rbx + WQ_HEAD]
    LIST_ADD_TAIL rsi, rdi, rax
.Lqueued:
    mov rax, gs:[CURRENT_TASK]
    mov [rax + TASK_STATE], r14d
    mov rdi, rbx
    mov rsi, r13
    call _raw_spin_unlock_irqrestore
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC prepare_to_wait

FUNC prepare_to_wait_event              # rdi head, rsi entry, edx state; rax 0 or -ERESTARTSYS
    PROLOGUE
    push rbx
    mov rax, gs:[CURRENT_TASK]
    cmp edx, TASK_INTERRUPTIBLE
    jne .Lwait
    cmp dword ptr [rax + TASK_SIGPENDING], 0
    je .Lwait
    mov rax, -ERESTARTSYS
    jmp .Lout
.Lwait:
    call prepare_to_wait
    xor eax, eax
.Lout:
    pop rbx
    EPILOGUE
ENDFUNC prepare_to_wait_event

FUNC finish_wait                        # rdi head, rsi entry
    PROLOGUE
    push rbx
    push r12
    push r13
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_RUNNING
    lea rax, [rsi + WAIT_ENTRY]
    cmp [rax], rax
    je .Lout
    mov rbx, rdi
    mov r12, rax
    call _raw_spin_lock_irqsave
    mov r13, rax
    LIST_DEL r12, rax, rcx
    LIST_INIT r12
    mov rdi, rbx
    mov rsi, r13
    call _raw_spin_unlock_irqrestore
.Lout:
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC finish_wait

FUNC_ENDBR default_wake_function              # rdi entry, esi mode, edx flags, rcx key
    PROLOGUE
    mov rdi, [rdi + WAIT_PRIVATE]
    call try_to_wake_up
    EPILOGUE
ENDFUNC default_wake_function

FUNC_ENDBR autoremove_wake_function           # rdi entry, esi mode, edx flags, rcx key
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    call default_wake_function
    mov r12d, eax
    test eax, eax
    je .Lout
    lea rsi, [rbx + WAIT_ENTRY]
    LIST_DEL rsi, rax, rcx
    LIST_INIT rsi
.Lout:
    mov eax, r12d
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC autoremove_wake_function

FUNC __wake_up_common                   # rdi head, esi mode, edx how many exclusive (0 all), rcx key
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    push r15
    sub rsp, 8
    lea rbx, [rdi + WQ_HEAD]
    mov r13d, esi
    mov r14d, edx
    mov r15, rcx
    mov r12, [rbx]
.Lnext:
    cmp r12, rbx
    je .Lout
    lea rdi, [r12 - WAIT_ENTRY]
    mov r12, [r12]                      # the function may take the entry out
    mov eax, [rdi + WAIT_FLAGS]
    mov [rsp], eax
    mov esi, r13d
    xor edx, edx
    mov rcx, r15
    call [rdi + WAIT_FUNC]
    test eax, eax
    je .Lnext
    test dword ptr [rsp], WQ_FLAG_EXCLUSIVE
    je .Lnext
    dec r14d
    jne .Lnext
.Lout:
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC __wake_up_common

FUNC __wake_up                          # rdi head, esi mode, edx how many exclusive, rcx key
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    push r15
    sub rsp, 8
    mov rbx, rdi
    mov r12d, esi
    mov r13d, edx
    mov r14, rcx
    call _raw_spin_lock_irqsave
    mov r15, rax
    mov rdi, rbx
    mov esi, r12d
    mov edx, r13d
    mov rcx, r14
    call __wake_up_common
    mov rdi, rbx
    mov rsi, r15
    call _raw_spin_unlock_irqrestore
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC __wake_up
