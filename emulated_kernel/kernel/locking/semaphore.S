# Counting semaphores: kernel/locking/semaphore.c. A waiter's WAITER_KIND is set when it is given
# one.

.text

FUNC down
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    MIGHT_SLEEP
    mov rdi, rbx
    call _raw_spin_lock_irqsave
    mov r12d, eax
    cmp dword ptr [rbx+SEM_COUNT], 0
    jle .Lwait
    dec dword ptr [rbx+SEM_COUNT]
    jmp .Lout
.Lwait:
    mov rdi, rbx
    mov esi, TASK_UNINTERRUPTIBLE
    call __down
.Lout:
    mov rdi, rbx
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC down

FUNC down_interruptible
    PROLOGUE
    push rbx
    push r12
    push r13
    push r13
    mov rbx, rdi
    MIGHT_SLEEP
    mov rdi, rbx
    call _raw_spin_lock_irqsave
    mov r12d, eax
    xor r13d, r13d
    cmp dword ptr [rbx+SEM_COUNT], 0
    jle .Lwait
    dec dword ptr [rbx+SEM_COUNT]
    jmp .Lout
.Lwait:
    mov rdi, rbx
    mov esi, TASK_INTERRUPTIBLE
    call __down
    mov r13d, eax
.Lout:
    mov rdi, rbx
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    mov eax, r13d
    pop r13
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC down_interruptible

# 0 when it was taken, 1 when it was not: the other way round from mutex_trylock.
FUNC down_trylock
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    call _raw_spin_lock_irqsave
    mov r12d, 1
    cmp dword ptr [rbx+SEM_COUNT], 0
    jle 1f
    dec dword ptr [rbx+SEM_COUNT]
    xor r12d, r12d
1:
    mov rdi, rbx
    mov esi, eax
    call _raw_spin_unlock_irqrestore
    mov eax, r12d
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC down_trylock

# rdi semaphore, locked with interrupts off and unlocked while asleep; esi state. 0 or -EINTR.
FUNC __down
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    sub rsp, WAITER_SIZE
    mov rbx, rdi
    mov r12d, esi
    mov r13, rsp
    lea r14, [rbx+SEM_WAIT_LIST]
    LIST_READY r14
    mov rax, gs:[CURRENT_TASK]
    mov [r13+WAITER_TASK], rax
    mov qword ptr [r13+WAITER_KIND], 0
    LIST_ADD_TAIL r13, r14, rcx
.Lwait:
    mov rax, gs:[CURRENT_TASK]
    test r12d, TASK_INTERRUPTIBLE
    je .Lsleep
    cmp dword ptr [rax+TASK_SIGPENDING], 0
    jne .Linterrupted
.Lsleep:
    mov [rax+TASK_STATE], r12d
    mov rdi, rbx
    call _raw_spin_unlock_irq
    call schedule
    mov rdi, rbx
    call _raw_spin_lock_irq
    cmp qword ptr [r13+WAITER_KIND], 0
    je .Lwait
    xor eax, eax
    jmp .Lout
.Linterrupted:
    LIST_DEL r13, rcx, rdx
    mov eax, -4
.Lout:
    add rsp, WAITER_SIZE
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC __down

FUNC up
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    call _raw_spin_lock_irqsave
    mov r12d, eax
    lea rax, [rbx+SEM_WAIT_LIST]
    LIST_READY rax
    cmp [rax], rax
    jne .Lwake
    inc dword ptr [rbx+SEM_COUNT]
    jmp .Lout
.Lwake:
    mov rdi, rbx
    call __up.isra.0
.Lout:
    mov rdi, rbx
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC up

# Hand the semaphore to the first waiter; its lock is held.
FUNC_STATIC __up.isra.0
    PROLOGUE
    mov rax, [rdi+SEM_WAIT_LIST]
    LIST_DEL rax, rcx, rdx
    mov rdi, [rax+WAITER_TASK]
    mov qword ptr [rax+WAITER_KIND], 1
    call wake_up_process
    EPILOGUE
ENDFUNC __up.isra.0
