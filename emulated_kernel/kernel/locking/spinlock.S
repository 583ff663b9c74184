# Spin locks and reader/writer spin locks: kernel/locking/spinlock.c, qspinlock.c, qrwlock.c. A
# lock word is 0 or 1. Left out: the queue of waiters and its fairness; a vCPU is only ever left
# at a safepoint, and none lies under a spin lock, so contention means a deadlock that the
# watchdog ends.

.text

FUNC native_queued_spin_lock_slowpath
    PROLOGUE
.Lspin:
    pause
    cmp dword ptr [rdi], 0
    jne .Lspin
    xor eax, eax
    mov edx, 1
    lock cmpxchg [rdi], edx
    jne .Lspin
    EPILOGUE
ENDFUNC native_queued_spin_lock_slowpath

# The lock at rdi is taken (queued_spin_lock).
.macro QUEUED_SPIN_LOCK
    xor eax, eax
    mov edx, 1
    lock cmpxchg [rdi], edx
    je 1f
    mov esi, eax
    call native_queued_spin_lock_slowpath
1:
.endm

FUNC _raw_spin_lock
    PROLOGUE
    PREEMPT_DISABLE
    QUEUED_SPIN_LOCK
    EPILOGUE
ENDFUNC _raw_spin_lock

FUNC _raw_spin_unlock
    PROLOGUE
    mov dword ptr [rdi], 0
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC _raw_spin_unlock

# rdi lock; 1 when it was taken, 0 when it was not.
FUNC _raw_spin_trylock
    PROLOGUE
    PREEMPT_DISABLE
    xor eax, eax
    mov edx, 1
    lock cmpxchg [rdi], edx
    jne .Lbusy
    mov eax, 1
    EPILOGUE
.Lbusy:
    PREEMPT_ENABLE
    xor eax, eax
    EPILOGUE
ENDFUNC _raw_spin_trylock

FUNC _raw_spin_lock_irq
    PROLOGUE
    LOCAL_IRQ_DISABLE
    PREEMPT_DISABLE
    QUEUED_SPIN_LOCK
    EPILOGUE
ENDFUNC _raw_spin_lock_irq

FUNC _raw_spin_unlock_irq
    PROLOGUE
    mov dword ptr [rdi], 0
    LOCAL_IRQ_ENABLE
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC _raw_spin_unlock_irq

# Returns what _raw_spin_unlock_irqrestore wants back.
FUNC _raw_spin_lock_irqsave
    PROLOGUE
    push rbx
    push rax
    LOCAL_IRQ_SAVE ebx
    PREEMPT_DISABLE
    QUEUED_SPIN_LOCK
    mov eax, ebx
    mov rbx, [rbp-8]
    leave
    ret
ENDFUNC _raw_spin_lock_irqsave

# rdi lock, esi flags.
FUNC _raw_spin_unlock_irqrestore
    PROLOGUE
    mov dword ptr [rdi], 0
    LOCAL_IRQ_RESTORE esi
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC _raw_spin_unlock_irqrestore

FUNC _raw_spin_lock_bh
    PROLOGUE
    LOCAL_BH_DISABLE
    PREEMPT_DISABLE
    QUEUED_SPIN_LOCK
    EPILOGUE
ENDFUNC _raw_spin_lock_bh

FUNC _raw_spin_unlock_bh
    PROLOGUE
    mov dword ptr [rdi], 0
    PREEMPT_ENABLE_NO_RESCHED
    mov rdi, [rbp+8]
    mov esi, SOFTIRQ_DISABLE_OFFSET
    call __local_bh_enable_ip
    EPILOGUE
ENDFUNC _raw_spin_unlock_bh

FUNC _raw_spin_trylock_bh
    PROLOGUE
    LOCAL_BH_DISABLE
    PREEMPT_DISABLE
    xor eax, eax
    mov edx, 1
    lock cmpxchg [rdi], edx
    jne .Lbusy
    mov eax, 1
    EPILOGUE
.Lbusy:
    PREEMPT_ENABLE_NO_RESCHED
    mov rdi, [rbp+8]
    mov esi, SOFTIRQ_DISABLE_OFFSET
    call __local_bh_enable_ip
    xor eax, eax
    EPILOGUE
ENDFUNC _raw_spin_trylock_bh

# --- reader/writer locks --------------------------------------------------------------------------

# Called with a reader's share already added, while a writer holds the lock.
FUNC queued_read_lock_slowpath
    PROLOGUE
.Lwait:
    pause
    test dword ptr [rdi], RWLOCK_WRITER_MASK
    jne .Lwait
    EPILOGUE
ENDFUNC queued_read_lock_slowpath

FUNC queued_write_lock_slowpath
    PROLOGUE
.Lwait:
    pause
    cmp dword ptr [rdi], 0
    jne .Lwait
    xor eax, eax
    mov edx, RWLOCK_WRITER
    lock cmpxchg [rdi], edx
    jne .Lwait
    EPILOGUE
ENDFUNC queued_write_lock_slowpath

.macro READ_LOCK
    mov eax, RWLOCK_READER_BIAS
    lock xadd [rdi], eax
    test eax, RWLOCK_WRITER_MASK
    je 1f
    call queued_read_lock_slowpath
1:
.endm

.macro WRITE_LOCK
    xor eax, eax
    mov edx, RWLOCK_WRITER
    lock cmpxchg [rdi], edx
    je 1f
    call queued_write_lock_slowpath
1:
.endm

FUNC _raw_read_lock
    PROLOGUE
    PREEMPT_DISABLE
    READ_LOCK
    EPILOGUE
ENDFUNC _raw_read_lock

FUNC _raw_read_unlock
    PROLOGUE
    lock sub dword ptr [rdi], RWLOCK_READER_BIAS
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC _raw_read_unlock

FUNC _raw_read_trylock
    PROLOGUE
    PREEMPT_DISABLE
    mov eax, [rdi]
    test eax, RWLOCK_WRITER_MASK
    jne .Lbusy
    lea edx, [rax+RWLOCK_READER_BIAS]
    lock cmpxchg [rdi], edx
    jne .Lbusy
    mov eax, 1
    EPILOGUE
.Lbusy:
    PREEMPT_ENABLE
    xor eax, eax
    EPILOGUE
ENDFUNC _raw_read_trylock

FUNC _raw_read_lock_irq
    PROLOGUE
    LOCAL_IRQ_DISABLE
    PREEMPT_DISABLE
    READ_LOCK
    EPILOGUE
ENDFUNC _raw_read_lock_irq

FUNC _raw_read_unlock_irq
    PROLOGUE
    lock sub dword ptr [rdi], RWLOCK_READER_BIAS
    LOCAL_IRQ_ENABLE
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC _raw_read_unlock_irq

FUNC _raw_read_lock_irqsave
    PROLOGUE
    push rbx
    push rax
    LOCAL_IRQ_SAVE ebx
    PREEMPT_DISABLE
    READ_LOCK
    mov eax, ebx
    mov rbx, [rbp-8]
    leave
    ret
ENDFUNC _raw_read_lock_irqsave

FUNC _raw_read_unlock_irqrestore
    PROLOGUE
    lock sub dword ptr [rdi], RWLOCK_READER_BIAS
    LOCAL_IRQ_RESTORE esi
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC _raw_read_unlock_irqrestore

FUNC _raw_read_lock_bh
    PROLOGUE
    LOCAL_BH_DISABLE
    PREEMPT_DISABLE
    READ_LOCK
    EPILOGUE
ENDFUNC _raw_read_lock_bh

FUNC _raw_read_unlock_bh
    PROLOGUE
    lock sub dword ptr [rdi], RWLOCK_READER_BIAS
    PREEMPT_ENABLE_NO_RESCHED
    mov rdi, [rbp+8]
    mov esi, SOFTIRQ_DISABLE_OFFSET
    call __local_bh_enable_ip
    EPILOGUE
ENDFUNC _raw_read_unlock_bh

FUNC _raw_write_lock
    PROLOGUE
    PREEMPT_DISABLE
    WRITE_LOCK
    EPILOGUE
ENDFUNC _raw_write_lock

FUNC _raw_write_unlock
    PROLOGUE
    mov byte ptr [rdi], 0
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC _raw_write_unlock

FUNC _raw_write_trylock
    PROLOGUE
    PREEMPT_DISABLE
    xor eax, eax
    mov edx, RWLOCK_WRITER
    lock cmpxchg [rdi], edx
    jne .Lbusy
    mov eax, 1
    EPILOGUE
.Lbusy:
    PREEMPT_ENABLE
    xor eax, eax
    EPILOGUE
ENDFUNC _raw_write_trylock

FUNC _raw_write_lock_irq
    PROLOGUE
    LOCAL_IRQ_DISABLE
    PREEMPT_DISABLE
    WRITE_LOCK
    EPILOGUE
ENDFUNC _raw_write_lock_irq

FUNC _raw_write_unlock_irq
    PROLOGUE
    mov byte ptr [rdi], 0
    LOCAL_IRQ_ENABLE
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC _raw_write_unlock_irq

FUNC _raw_write_lock_irqsave
    PROLOGUE
    push rbx
    push rax
    LOCAL_IRQ_SAVE ebx
    PREEMPT_DISABLE
    WRITE_LOCK
    mov eax, ebx
    mov rbx, [rbp-8]
    leave
    ret
ENDFUNC _raw_write_lock_irqsave

FUNC _raw_write_unlock_irqrestore
    PROLOGUE
    mov byte ptr [rdi], 0
    LOCAL_IRQ_RESTORE esi
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC _raw_write_unlock_irqrestore

FUNC _raw_write_lock_bh
    PROLOGUE
    LOCAL_BH_DISABLE
    PREEMPT_DISABLE
    WRITE_LOCK
    EPILOGUE
ENDFUNC _raw_write_lock_bh

FUNC _raw_write_unlock_bh
    PROLOGUE
    mov byte ptr [rdi], 0
    PREEMPT_ENABLE_NO_RESCHED
    mov rdi, [rbp+8]
    mov esi, SOFTIRQ_DISABLE_OFFSET
    call __local_bh_enable_ip
    EPILOGUE
ENDFUNC _raw_write_unlock_bh
