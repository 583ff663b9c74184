# Mutexes: kernel/locking/mutex.c. Left out: optimistic spinning, hand-off, wait/wound.

.text

FUNC __mutex_init
    PROLOGUE
    mov qword ptr [rdi], 0
    mov qword ptr [rdi+MUTEX_WAIT_LOCK], 0
    lea rax, [rdi+MUTEX_WAIT_LIST]
    mov [rax], rax
    mov [rax+8], rax
    EPILOGUE
ENDFUNC __mutex_init

FUNC mutex_lock
    PROLOGUE
    push rdi
    push rbx
    MIGHT_SLEEP
    mov rdi, [rbp-8]
    mov rdx, gs:[CURRENT_TASK]
    xor eax, eax
    lock cmpxchg [rdi], rdx
    je 1f
    call __mutex_lock_slowpath
1:
    pop rbx
    leave
    ret
ENDFUNC mutex_lock

FUNC __mutex_lock_slowpath
    PROLOGUE
    mov esi, TASK_UNINTERRUPTIBLE
    call __mutex_lock.constprop.0
    EPILOGUE
ENDFUNC __mutex_lock_slowpath

FUNC mutex_lock_interruptible
    PROLOGUE
    push rdi
    push rbx
    MIGHT_SLEEP
    mov rdi, [rbp-8]
    mov rdx, gs:[CURRENT_TASK]
    xor eax, eax
    lock cmpxchg [rdi], rdx
    mov eax, 0
    je 1f
    mov esi, TASK_INTERRUPTIBLE
    call __mutex_lock.constprop.0
1:
    pop rbx
    leave
    ret
ENDFUNC mutex_lock_interruptible

# Take the mutex in rdi if nobody owns it; the flag bits stay. eax: 1 taken. Clobbers rax, rcx, rdx.
FUNC_NOTRACE __mutex_trylock
    PROLOGUE
    mov rax, [rdi]
.Lagain:
    test rax, -8
    jne .Lowned
    mov rdx, rax
    or rdx, gs:[CURRENT_TASK]
    lock cmpxchg [rdi], rdx
    jne .Lagain
    mov eax, 1
    EPILOGUE
.Lowned:
    xor eax, eax
    EPILOGUE
ENDFUNC __mutex_trylock

# rdi mutex, esi the state to sleep in; 0, or -EINTR when a signal came first.
FUNC_STATIC __mutex_lock.constprop.0
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    sub rsp, WAITER_SIZE
    mov rbx, rdi
    mov r12d, esi
    mov r13, rsp
    PREEMPT_DISABLE
    call __mutex_trylock
    test eax, eax
    jne .Lunqueued
    lea rdi, [rbx+MUTEX_WAIT_LOCK]
    call _raw_spin_lock
    lea r14, [rbx+MUTEX_WAIT_LIST]
    LIST_READY r14
    mov rax, gs:[CURRENT_TASK]
    mov [r13+WAITER_TASK], rax
    LIST_ADD_TAIL r13, r14, rcx
    lock or qword ptr [rbx], MUTEX_FLAG_WAITERS
.Lwait:
    mov rdi, rbx
    call __mutex_trylock
    test eax, eax
    jne .Lacquired
    mov rax, gs:[CURRENT_TASK]
    test r12d, TASK_INTERRUPTIBLE
    je .Lsleep
    cmp dword ptr [rax+TASK_SIGPENDING], 0
    jne .Linterrupted
.Lsleep:
    mov [rax+TASK_STATE], r12d
    lea rdi, [rbx+MUTEX_WAIT_LOCK]
    call _raw_spin_unlock
    call schedule_preempt_disabled
    lea rdi, [rbx+MUTEX_WAIT_LOCK]
    call _raw_spin_lock
    jmp .Lwait

.Lacquired:
    xor r12d, r12d
    jmp .Ldequeue
.Linterrupted:
    mov r12d, -4
.Ldequeue:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax+TASK_STATE], TASK_RUNNING
    LIST_DEL r13, rcx, rdx
    cmp [r14], r14
    jne .Lrelease
    lock and qword ptr [rbx], ~MUTEX_FLAG_WAITERS
.Lrelease:
    lea rdi, [rbx+MUTEX_WAIT_LOCK]
    call _raw_spin_unlock
    jmp .Lout
.Lunqueued:
    xor r12d, r12d
.Lout:
    PREEMPT_ENABLE
    mov eax, r12d
    add rsp, WAITER_SIZE
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC __mutex_lock.constprop.0

FUNC mutex_unlock
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    xor edx, edx
    lock cmpxchg [rdi], rdx
    je 1f
    call __mutex_unlock_slowpath.constprop.0
1:
    EPILOGUE
ENDFUNC mutex_unlock

FUNC_STATIC __mutex_unlock_slowpath.constprop.0
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov rax, [rbx]
.Lagain:
    mov rdx, rax
    and edx, 7
    lock cmpxchg [rbx], rdx
    jne .Lagain
    test eax, MUTEX_FLAG_WAITERS
    je .Lout
    lea rdi, [rbx+MUTEX_WAIT_LOCK]
    call _raw_spin_lock
    xor r12d, r12d
    lea rax, [rbx+MUTEX_WAIT_LIST]
    mov rcx, [rax]
    cmp rcx, rax
    je 1f
    mov r12, [rcx+WAITER_TASK]
1:
    lea rdi, [rbx+MUTEX_WAIT_LOCK]
    call _raw_spin_unlock
    test r12, r12
    je .Lout
    mov rdi, r12
    call wake_up_process
.Lout:
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC __mutex_unlock_slowpath.constprop.0

FUNC mutex_trylock
    PROLOGUE
    call __mutex_trylock
    EPILOGUE
ENDFUNC mutex_trylock

FUNC mutex_is_locked
    PROLOGUE
    xor eax, eax
    test qword ptr [rdi], -8
    setne al
    EPILOGUE
ENDFUNC mutex_is_locked

# rdi counter, rsi mutex; 1 with the mutex held when the counter fell to zero.
FUNC atomic_dec_and_mutex_lock
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rsi
    mov eax, [rbx]
.Lagain:
    cmp eax, 1
    je .Llast
    lea edx, [rax-1]
    lock cmpxchg [rbx], edx
    jne .Lagain
    xor eax, eax
    jmp .Lout
.Llast:
    mov rdi, r12
    call mutex_lock
    lock dec dword ptr [rbx]
    mov eax, 1
    je .Lout
    mov rdi, r12
    call mutex_unlock
    xor eax, eax
.Lout:
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC atomic_dec_and_mutex_lock
