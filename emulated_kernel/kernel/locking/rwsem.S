# Reader/writer semaphores: kernel/locking/rwsem.c, percpu-rwsem.c. count: bit 0 a writer holds
# it, bit 1 somebody waits, and 256 for each reader. Waiters are served in order; a reader at the
# head is granted together with the readers right behind it.
# Left out: optimistic spinning, hand-off, the per-CPU reader counts of a percpu_rw_semaphore.

.text

WAITING_FOR_READ = 1
WAITING_FOR_WRITE = 2

FUNC __init_rwsem
    PROLOGUE
    mov qword ptr [rdi+RWSEM_COUNT], 0
    mov qword ptr [rdi+RWSEM_OWNER], 0
    mov qword ptr [rdi+RWSEM_WAIT_LOCK], 0
    lea rax, [rdi+RWSEM_WAIT_LIST]
    mov [rax], rax
    mov [rax+8], rax
    EPILOGUE
ENDFUNC __init_rwsem

FUNC down_read
    PROLOGUE
    push rdi
    push rbx
    MIGHT_SLEEP
    mov rdi, [rbp-8]
    mov eax, RWSEM_READER_BIAS
    lock xadd [rdi], rax
    test eax, RWSEM_WRITER_LOCKED | RWSEM_FLAG_WAITERS
    je 1f
    mov esi, TASK_UNINTERRUPTIBLE
    call rwsem_down_read_slowpath
1:
    pop rbx
    leave
    ret
ENDFUNC down_read

FUNC down_read_trylock
    PROLOGUE
    mov rax, [rdi]
.Lagain:
    test eax, RWSEM_WRITER_LOCKED | RWSEM_FLAG_WAITERS
    jne .Lbusy
    lea rdx, [rax+RWSEM_READER_BIAS]
    lock cmpxchg [rdi], rdx
    jne .Lagain
    mov eax, 1
    EPILOGUE
.Lbusy:
    xor eax, eax
    EPILOGUE
ENDFUNC down_read_trylock

FUNC up_read
    PROLOGUE
    mov rax, -RWSEM_READER_BIAS
    lock xadd [rdi], rax
    sub rax, RWSEM_READER_BIAS
    cmp rax, RWSEM_FLAG_WAITERS
    jne 1f
    call rwsem_wake.isra.0
1:
    EPILOGUE
ENDFUNC up_read

FUNC down_write
    PROLOGUE
    push rdi
    push rbx
    MIGHT_SLEEP
    mov rdi, [rbp-8]
    xor eax, eax
    mov edx, RWSEM_WRITER_LOCKED
    lock cmpxchg [rdi], rdx
    je 1f
    mov esi, TASK_UNINTERRUPTIBLE
    call rwsem_down_write_slowpath
    mov rdi, [rbp-8]
1:
    mov rax, gs:[CURRENT_TASK]
    mov [rdi+RWSEM_OWNER], rax
    pop rbx
    leave
    ret
ENDFUNC down_write

FUNC down_write_trylock
    PROLOGUE
    xor eax, eax
    mov edx, RWSEM_WRITER_LOCKED
    lock cmpxchg [rdi], rdx
    jne .Lbusy
    mov rax, gs:[CURRENT_TASK]
    mov [rdi+RWSEM_OWNER], rax
    mov eax, 1
    EPILOGUE
.Lbusy:
    xor eax, eax
    EPILOGUE
ENDFUNC down_write_trylock

FUNC up_write
    PROLOGUE
    mov qword ptr [rdi+RWSEM_OWNER], 0
    mov rax, -RWSEM_WRITER_LOCKED
    lock xadd [rdi], rax
    test eax, RWSEM_FLAG_WAITERS
    je 1f
    call rwsem_wake.isra.0
1:
    EPILOGUE
ENDFUNC up_write

# A writer becomes a reader without letting another writer in.
FUNC downgrade_write
    PROLOGUE
    mov qword ptr [rdi+RWSEM_OWNER], 0
    mov eax, RWSEM_READER_BIAS - RWSEM_WRITER_LOCKED
    lock xadd [rdi], rax
    test eax, RWSEM_FLAG_WAITERS
    je 1f
    call rwsem_downgrade_wake
1:
    EPILOGUE
ENDFUNC downgrade_write

# The share of a reader has been added already and is taken back while waiting.
FUNC rwsem_down_read_slowpath
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    sub rsp, WAITER_SIZE
    mov rbx, rdi
    mov r12d, esi
    mov r13, rsp
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    call _raw_spin_lock_irq
    lea r14, [rbx+RWSEM_WAIT_LIST]
    LIST_READY r14
    mov rax, [rbx]
    test eax, RWSEM_WRITER_LOCKED
    jne .Lqueue
    cmp [r14], r14
    jne .Lqueue
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    call _raw_spin_unlock_irq
    jmp .Lout
.Lqueue:
    mov rax, gs:[CURRENT_TASK]
    mov [r13+WAITER_TASK], rax
    mov qword ptr [r13+WAITER_KIND], WAITING_FOR_READ
    LIST_ADD_TAIL r13, r14, rcx
    lock or qword ptr [rbx], RWSEM_FLAG_WAITERS
    lock sub qword ptr [rbx], RWSEM_READER_BIAS
    test qword ptr [rbx], RWSEM_LOCKED_MASK
    jne .Lasleep
    mov rdi, rbx
    call rwsem_mark_wake
.Lasleep:
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    call _raw_spin_unlock_irq
.Lwait:
    mov rax, gs:[CURRENT_TASK]
    mov [rax+TASK_STATE], r12d
    cmp qword ptr [r13+WAITER_TASK], 0
    je .Lgranted
    call schedule
    jmp .Lwait
.Lgranted:
    mov dword ptr [rax+TASK_STATE], TASK_RUNNING
.Lout:
    mov rax, rbx
    add rsp, WAITER_SIZE
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC rwsem_down_read_slowpath

FUNC rwsem_down_write_slowpath
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    sub rsp, WAITER_SIZE
    mov rbx, rdi
    mov r12d, esi
    mov r13, rsp
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    call _raw_spin_lock_irq
    lea r14, [rbx+RWSEM_WAIT_LIST]
    LIST_READY r14
    mov rax, gs:[CURRENT_TASK]
    mov [r13+WAITER_TASK], rax
    mov qword ptr [r13+WAITER_KIND], WAITING_FOR_WRITE
    LIST_ADD_TAIL r13, r14, rcx
    lock or qword ptr [rbx], RWSEM_FLAG_WAITERS
.Lwait:
    cmp [r14], r13
    jne .Lsleep
    mov rax, [rbx]
    test rax, RWSEM_LOCKED_MASK
    jne .Lsleep
    mov rdx, rax
    or rdx, RWSEM_WRITER_LOCKED
    lock cmpxchg [rbx], rdx
    je .Lacquired
.Lsleep:
    mov rax, gs:[CURRENT_TASK]
    mov [rax+TASK_STATE], r12d
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    call _raw_spin_unlock_irq
    call schedule
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    call _raw_spin_lock_irq
    jmp .Lwait
.Lacquired:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax+TASK_STATE], TASK_RUNNING
    LIST_DEL r13, rcx, rdx
    cmp [r14], r14
    jne .Lunlock
    lock and qword ptr [rbx], ~RWSEM_FLAG_WAITERS
.Lunlock:
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    call _raw_spin_unlock_irq
    mov rax, rbx
    add rsp, WAITER_SIZE
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC rwsem_down_write_slowpath

FUNC_STATIC rwsem_wake.isra.0
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    call _raw_spin_lock_irqsave
    mov r12d, eax
    mov rdi, rbx
    call rwsem_mark_wake
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC rwsem_wake.isra.0

FUNC_NOTRACE rwsem_downgrade_wake
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    call _raw_spin_lock_irqsave
    mov r12d, eax
    mov rax, [rbx+RWSEM_WAIT_LIST]
    lea rcx, [rbx+RWSEM_WAIT_LIST]
    cmp rax, rcx
    je 1f
    cmp qword ptr [rax+WAITER_KIND], WAITING_FOR_READ
    jne 1f
    mov rdi, rbx
    call rwsem_mark_wake
1:
    lea rdi, [rbx+RWSEM_WAIT_LOCK]
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC rwsem_downgrade_wake

# rdi the semaphore, its wait lock held: wake the writer at the head, or grant the readers there.
FUNC_STATIC rwsem_mark_wake
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    mov rbx, rdi
    lea r12, [rbx+RWSEM_WAIT_LIST]
    mov r13, [r12]
    cmp r13, r12
    je .Lout
    cmp qword ptr [r13+WAITER_KIND], WAITING_FOR_WRITE
    jne .Lreader
    mov rdi, [r13+WAITER_TASK]
    call wake_up_process
    jmp .Lout
.Lreader:
    test qword ptr [rbx], RWSEM_WRITER_LOCKED
    jne .Lout
    lock add qword ptr [rbx], RWSEM_READER_BIAS
    mov r14, [r13+WAITER_NEXT]
    LIST_DEL r13, rcx, rdx
    mov rdi, [r13+WAITER_TASK]
    mov qword ptr [r13+WAITER_TASK], 0
    call wake_up_process
    mov r13, r14
    cmp r13, r12
    je .Lempty
    cmp qword ptr [r13+WAITER_KIND], WAITING_FOR_READ
    je .Lreader
    jmp .Lout
.Lempty:
    lock and qword ptr [rbx], ~RWSEM_FLAG_WAITERS
.Lout:
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC rwsem_mark_wake

# --- percpu_rw_semaphore --------------------------------------------------------------------------

FUNC __percpu_down_read
    PROLOGUE
    push rbx
    push rsi
    mov rbx, rdi
    test esi, esi
    jne .Ltry
    call down_read
    mov eax, 1
    jmp .Lout
.Ltry:
    call down_read_trylock
.Lout:
    pop rsi
    pop rbx
    EPILOGUE
ENDFUNC __percpu_down_read

FUNC percpu_down_write
    PROLOGUE
    push rbx
    push rbx
    mov rbx, rdi
    call down_write
    mov dword ptr [rbx+PERCPU_RWSEM_BLOCK], 1
    pop rbx
    pop rbx
    EPILOGUE
ENDFUNC percpu_down_write

FUNC percpu_up_write
    PROLOGUE
    mov dword ptr [rdi+PERCPU_RWSEM_BLOCK], 0
    call up_write
    EPILOGUE
ENDFUNC percpu_up_write

FUNC percpu_is_read_locked
    PROLOGUE
    mov rax, [rdi]
    shr rax, 8
    setne al
    movzx eax, al
    EPILOGUE
ENDFUNC percpu_is_read_locked

FUNC cpus_read_lock
    PROLOGUE
    mov rdi, offset cpu_hotplug_lock
    xor esi, esi
    call __percpu_down_read
    EPILOGUE
ENDFUNC cpus_read_lock

FUNC cpus_read_trylock
    PROLOGUE
    mov rdi, offset cpu_hotplug_lock
    mov esi, 1
    call __percpu_down_read
    EPILOGUE
ENDFUNC cpus_read_trylock

FUNC cpus_read_unlock
    PROLOGUE
    mov rdi, offset cpu_hotplug_lock
    call up_read
    EPILOGUE
ENDFUNC cpus_read_unlock

FUNC cpus_write_lock
    PROLOGUE
    mov rdi, offset cpu_hotplug_lock
    call percpu_down_write
    EPILOGUE
ENDFUNC cpus_write_lock

FUNC cpus_write_unlock
    PROLOGUE
    mov rdi, offset cpu_hotplug_lock
    call percpu_up_write
    EPILOGUE
ENDFUNC cpus_write_unlock

.data
.balign 64
OBJECT cpu_hotplug_lock
    .zero PERCPU_RWSEM_SIZE
ENDOBJECT cpu_hotplug_lock
.text
