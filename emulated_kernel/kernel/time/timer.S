# kernel/time/timer.c: the timer wheel, in ticks. Nine levels of 64 lists for each CPU; a timer
# goes to the finest level that reaches it and is never moved, so distant ones expire late, never
# early.
# Left out: deferrable timers, migration between CPUs.

.text

FUNC_NOTRACE init_timers
    ENTER2
    mov edi, TIMER_SOFTIRQ
    mov rsi, offset run_timer_softirq
    call open_softirq
    xor ebx, ebx
.Lnext:
    mov edi, TBASE_SIZE
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lout
    mov [rax + TBASE_CPU], ebx
    mov rcx, [rip + jiffies_64]
    mov [rax + TBASE_CLK], rcx
    add rcx, NEXT_TIMER_MAX_DELTA
    mov [rax + TBASE_NEXT_EXPIRY], rcx
    mov rcx, [percpu_table + rbx*8]
    mov [rcx + TIMER_BASE], rax
    inc ebx
    cmp ebx, [rip + nr_cpu_ids]
    jb .Lnext
.Lout:
    LEAVE2
ENDFUNC init_timers

# rdi timer, rsi function, edx flags.
FUNC init_timer_key
    PROLOGUE
    mov qword ptr [rdi + TIMER_NEXT], 0
    mov qword ptr [rdi + TIMER_PPREV], 0
    mov [rdi + TIMER_FUNCTION], rsi
    or edx, gs:[CPU_NUMBER]
    mov [rdi + TIMER_FLAGS], edx
    EPILOGUE
ENDFUNC init_timer_key

# rdi expiry, rsi the wheel's clock, rdx where the time of the list goes: its index.
FUNC calc_wheel_index
    PROLOGUE
    mov r8, rdi
    sub r8, rsi
    jns .Lfuture
    mov rdi, rsi
    xor ecx, ecx
    xor r9d, r9d
    jmp .Lindex
.Lfuture:
    xor ecx, ecx
    xor r9d, r9d
    mov eax, 63
.Llevel:
    cmp r8, rax
    jb .Lslot
    add ecx, 3
    inc r9d
    shl rax, 3
    cmp r9d, LVL_DEPTH - 1
    jb .Llevel
    cmp r8, rax
    jb .Lslot
    lea rdi, [rsi + rax - 0x1000000]
# Round up to the next slot, so that it does not expire early.
.Lslot:
    mov eax, 1
    shl rax, cl
    add rdi, rax
.Lindex:
    shr rdi, cl
    mov rax, rdi
    shl rdi, cl
    mov [rdx], rdi
    and eax, 63
    shl r9d, 6
    add eax, r9d
    EPILOGUE
ENDFUNC calc_wheel_index

# rdi base, rsi timer, edx index, rcx time of the list.
FUNC enqueue_timer
    PROLOGUE
    mov r8d, edx
    lea r9, [rdi + r8*8 + TBASE_VECTORS]
    mov rax, [r9]
    mov [rsi + TIMER_NEXT], rax
    test rax, rax
    je 1f
    mov [rax + TIMER_PPREV], rsi
1:
    mov [r9], rsi
    mov [rsi + TIMER_PPREV], r9
    bts qword ptr [rdi + TBASE_PENDING], r8
    mov eax, [rsi + TIMER_FLAGS]
    and eax, 0x3fffff
    shl edx, TIMER_ARRAYSHIFT
    or eax, edx
    mov [rsi + TIMER_FLAGS], eax
    mov rax, rcx
    sub rax, [rdi + TBASE_NEXT_EXPIRY]
    jns 2f
    mov [rdi + TBASE_NEXT_EXPIRY], rcx
2:
    EPILOGUE
ENDFUNC enqueue_timer

# rdi timer, rsi base, edx whether it is to be forgotten altogether: eax 1 when it was pending.
FUNC detach_if_pending
    PROLOGUE
    xor eax, eax
    mov rcx, [rdi + TIMER_PPREV]
    test rcx, rcx
    je .Lout
    mov r8, [rdi + TIMER_NEXT]
    mov [rcx], r8
    test r8, r8
    je 1f
    mov [r8 + TIMER_PPREV], rcx
1:
    mov r9d, [rdi + TIMER_FLAGS]
    shr r9d, TIMER_ARRAYSHIFT
    lea r8, [rsi + r9*8 + TBASE_VECTORS]
    cmp qword ptr [r8], 0
    jne 2f
    btr qword ptr [rsi + TBASE_PENDING], r9
2:
    mov eax, 1
    test edx, edx
    je .Lout
    mov qword ptr [rdi + TIMER_PPREV], 0
.Lout:
    EPILOGUE
ENDFUNC detach_if_pending

# rdi timer, rsi where the flags go: the base of its CPU, locked.
FUNC lock_timer_base
    ENTER3
    mov rbx, rdi
    mov r12, rsi
.Lagain:
    mov eax, [rbx + TIMER_FLAGS]
    and eax, TIMER_CPUMASK
    mov rax, [percpu_table + rax*8]
    mov r13, [rax + TIMER_BASE]
    mov rdi, r13
    call _raw_spin_lock_irqsave
    mov [r12], rax
    mov ecx, [rbx + TIMER_FLAGS]
    and ecx, TIMER_CPUMASK
    cmp ecx, [r13 + TBASE_CPU]
    je .Lout
    mov rdi, r13
    mov esi, eax
    call _raw_spin_unlock_irqrestore
    jmp .Lagain
.Lout:
    mov rax, r13
    LEAVE3
ENDFUNC lock_timer_base

# A wheel that had nothing to do for a while: bring its clock up to now. rdi base; clobbers rax,
# rcx.
.macro FORWARD_TIMER_BASE
    mov rax, [rip + jiffies_64]
    mov rcx, rax
    sub rcx, [rdi + TBASE_CLK]
    jle 2f
    mov rcx, [rdi + TBASE_NEXT_EXPIRY]
    sub rcx, rax
    jns 1f
    mov rax, [rdi + TBASE_NEXT_EXPIRY]
1:
    mov rcx, rax
    sub rcx, [rdi + TBASE_CLK]
    js 2f
    mov [rdi + TBASE_CLK], rax
2:
.endm

MOD_TIMER_PENDING_ONLY = 1
MOD_TIMER_REDUCE = 2

# rdi timer, rsi expiry, edx options: eax whether it was pending.
FUNC_NOTRACE __mod_timer
    ENTER5
    sub rsp, 24
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    lea rsi, [rbp - 48]
    call lock_timer_base
    mov r14, rax
    xor r15d, r15d
    test r13d, MOD_TIMER_REDUCE
    je .Ldetach
    cmp qword ptr [rbx + TIMER_PPREV], 0
    je .Ldetach
    mov rax, r12
    sub rax, [rbx + TIMER_EXPIRES]
    js .Ldetach
    mov r15d, 1
    jmp .Lunlock
.Ldetach:
    mov rdi, rbx
    mov rsi, r14
    xor edx, edx
    call detach_if_pending
    mov r15d, eax
    test eax, eax
    jne .Lmove
    test r13d, MOD_TIMER_PENDING_ONLY
    jne .Lunlock
.Lmove:
    mov rax, gs:[TIMER_BASE]
    cmp rax, r14
    je .Lenqueue
    test dword ptr [rbx + TIMER_FLAGS], TIMER_PINNED
    jne .Lenqueue
    cmp [r14 + TBASE_RUNNING], rbx
    je .Lenqueue
    mov rdi, r14
    mov r14, rax
    call _raw_spin_unlock
    mov eax, [rbx + TIMER_FLAGS]
    and eax, ~TIMER_CPUMASK
    or eax, [r14 + TBASE_CPU]
    mov [rbx + TIMER_FLAGS], eax
    mov rdi, r14
    call _raw_spin_lock
.Lenqueue:
    mov rdi, r14
    FORWARD_TIMER_BASE
    mov [rbx + TIMER_EXPIRES], r12
    mov rdi, r12
    mov rsi, [r14 + TBASE_CLK]
    lea rdx, [rbp - 56]
    call calc_wheel_index
    mov rdi, r14
    mov rsi, rbx
    mov edx, eax
    mov rcx, [rbp - 56]
    call enqueue_timer
.Lunlock:
    mov rdi, r14
    mov rsi, [rbp - 48]
    call _raw_spin_unlock_irqrestore
    mov eax, r15d
    LEAVE5
ENDFUNC __mod_timer

# rdi timer, rsi expiry in jiffies.
FUNC mod_timer
    PROLOGUE
    xor edx, edx
    call __mod_timer
    EPILOGUE
ENDFUNC mod_timer

FUNC mod_timer_pending
    PROLOGUE
    mov edx, MOD_TIMER_PENDING_ONLY
    call __mod_timer
    EPILOGUE
ENDFUNC mod_timer_pending

# Only ever makes it earlier.
FUNC timer_reduce
    PROLOGUE
    mov edx, MOD_TIMER_REDUCE
    call __mod_timer
    EPILOGUE
ENDFUNC timer_reduce

FUNC add_timer
    PROLOGUE
    mov rsi, [rdi + TIMER_EXPIRES]
    xor edx, edx
    call __mod_timer
    EPILOGUE
ENDFUNC add_timer

# rdi timer, not pending; esi CPU.
FUNC add_timer_on
    PROLOGUE
    mov eax, [rdi + TIMER_FLAGS]
    and eax, ~TIMER_CPUMASK
    or eax, TIMER_PINNED
    or eax, esi
    mov [rdi + TIMER_FLAGS], eax
    mov rsi, [rdi + TIMER_EXPIRES]
    xor edx, edx
    call __mod_timer
    EPILOGUE
ENDFUNC add_timer_on

# eax 1 when it was pending. Its function may still be running.
FUNC timer_delete
    ENTER3
    push rax
    mov rbx, rdi
    xor r12d, r12d
    cmp qword ptr [rdi + TIMER_PPREV], 0
    je .Lout
    lea rsi, [rbp - 32]
    call lock_timer_base
    mov r13, rax
    mov rdi, rbx
    mov rsi, rax
    mov edx, 1
    call detach_if_pending
    mov r12d, eax
    mov rdi, r13
    mov rsi, [rbp - 32]
    call _raw_spin_unlock_irqrestore
.Lout:
    mov eax, r12d
    LEAVE3
ENDFUNC timer_delete

# -1 when its function is running.
FUNC try_to_del_timer_sync
    ENTER3
    push rax
    mov rbx, rdi
    lea rsi, [rbp - 32]
    call lock_timer_base
    mov r13, rax
    mov r12d, -1
    cmp [rax + TBASE_RUNNING], rbx
    je 1f
    mov rdi, rbx
    mov rsi, rax
    mov edx, 1
    call detach_if_pending
    mov r12d, eax
1:
    mov rdi, r13
    mov rsi, [rbp - 32]
    call _raw_spin_unlock_irqrestore
    mov eax, r12d
    LEAVE3
ENDFUNC try_to_del_timer_sync

# Not from the timer's own function.
FUNC timer_delete_sync
    ENTER1
    push rbx
    mov rbx, rdi
.Lagain:
    mov rdi, rbx
    call try_to_del_timer_sync
    test eax, eax
    jns .Lout
    pause
    jmp .Lagain
.Lout:
    LEAVE1
ENDFUNC timer_delete_sync

# --- expiry ---------------------------------------------------------------------------------------

# Each tick, interrupts off.
FUNC_NOTRACE run_local_timers
    PROLOGUE
    call hrtimer_run_queues
    mov rcx, gs:[TIMER_BASE]
    test rcx, rcx
    je .Lout
    TIME_AFTER_JIFFIES [rcx + TBASE_NEXT_EXPIRY]
    js .Lout
    mov edi, TIMER_SOFTIRQ
    call raise_softirq
.Lout:
    EPILOGUE
ENDFUNC run_local_timers

# High-resolution mode has run them in its own interrupt.
FUNC hrtimer_run_queues
    PROLOGUE
    mov rax, gs:[HRTIMER_EXPIRES_NEXT]
    EPILOGUE
ENDFUNC hrtimer_run_queues

FUNC run_timer_softirq
    PROLOGUE
    mov rdi, gs:[TIMER_BASE]
    call __run_timers
    EPILOGUE
ENDFUNC run_timer_softirq

# rdi base.
FUNC_NOTRACE __run_timers
    ENTER3
    sub rsp, LVL_DEPTH * 8
    mov rbx, rdi
    call _raw_spin_lock_irq
.Lnext:
    TIME_AFTER_JIFFIES [rbx + TBASE_CLK]
    js .Lout
    TIME_AFTER_JIFFIES [rbx + TBASE_NEXT_EXPIRY]
    js .Lout
    mov rdi, rbx
    mov rsi, rsp
    call collect_expired_timers
    mov r12d, eax
    inc qword ptr [rbx + TBASE_CLK]
    mov rdi, rbx
    call __next_timer_interrupt
    mov [rbx + TBASE_NEXT_EXPIRY], rax
.Llevel:
    dec r12d
    js .Lnext
    mov rdi, rbx
    mov eax, r12d
    lea rsi, [rsp + rax*8]
    call expire_timers
    jmp .Llevel
.Lout:
    mov rdi, rbx
    call _raw_spin_unlock_irq
    LEAVE3
ENDFUNC __run_timers

# rdi base, rsi room for a list of each level: how many lists were due at the wheel's clock and
# moved.
FUNC_NOTRACE collect_expired_timers
    mov rdx, [rdi + TBASE_NEXT_EXPIRY]
    mov [rdi + TBASE_CLK], rdx
    xor eax, eax
    xor r8d, r8d
.Llevel:
    mov ecx, edx
    and ecx, 63
    add ecx, r8d
    btr qword ptr [rdi + TBASE_PENDING], rcx
    jae 1f
    mov r9, [rdi + rcx*8 + TBASE_VECTORS]
    mov qword ptr [rdi + rcx*8 + TBASE_VECTORS], 0
    lea r10, [rsi + rax*8]
    mov [r10], r9
    mov [r9 + TIMER_PPREV], r10
    inc eax
1:
    test edx, 7
    jne 2f
    shr rdx, 3
    add r8d, 64
    cmp r8d, WHEEL_SIZE
    jb .Llevel
2:
    ret
ENDFUNC collect_expired_timers

# rdi base, locked, rsi address of the first timer: run each with the lock dropped.
FUNC_NOTRACE expire_timers
    ENTER4
    mov rbx, rdi
    mov r12, rsi
.Lnext:
    mov r13, [r12]
    test r13, r13
    je .Lout
    mov [rbx + TBASE_RUNNING], r13
    mov rax, [r13 + TIMER_NEXT]
    mov [r12], rax
    test rax, rax
    je 1f
    mov [rax + TIMER_PPREV], r12
1:
    mov qword ptr [r13 + TIMER_PPREV], 0
    mov rdi, rbx
    call _raw_spin_unlock_irq
    mov rdi, r13
    mov rsi, [r13 + TIMER_FUNCTION]
    mov rdx, [rbx + TBASE_CLK]
    call call_timer_fn
    mov rdi, rbx
    call _raw_spin_lock_irq
    mov qword ptr [rbx + TBASE_RUNNING], 0
    jmp .Lnext
.Lout:
    LEAVE4
ENDFUNC expire_timers

# rdi timer, rsi function, rdx the wheel's clock. The preempt depth is what it was, whatever it
# does.
FUNC call_timer_fn
    ENTER1
    push rbx
    movzx ebx, byte ptr gs:[PREEMPT_DEPTH]
    call rsi
    cmp bl, gs:[PREEMPT_DEPTH]
    je 1f
    inc dword ptr [rip + timer_preempt_leaks]
    mov gs:[PREEMPT_DEPTH], bl
1:
    LEAVE1
ENDFUNC call_timer_fn

# rdi base: when the first timer of the wheel is due.
FUNC __next_timer_interrupt
    ENTER5
    push rax
    mov rbx, rdi
    mov r12, [rdi + TBASE_CLK]
    mov r13, r12
    add r13, NEXT_TIMER_MAX_DELTA
    xor r14d, r14d
    xor r15d, r15d
# r12 clock of the level, r14 its first list, r15 its shift. A level's lists are looked at from the
# clock on and round to it again.
.Llevel:
    mov eax, r12d
    and eax, 63
    lea rdx, [rax + r14]
    lea rsi, [r14 + 64]
    lea rdi, [rbx + TBASE_PENDING]
    call _find_next_bit
    lea rcx, [r14 + 64]
    cmp rax, rcx
    jb .Lfound
    mov eax, r12d
    and eax, 63
    lea rsi, [rax + r14]
    mov rdx, r14
    lea rdi, [rbx + TBASE_PENDING]
    call _find_next_bit
    mov ecx, r12d
    and ecx, 63
    add rcx, r14
    cmp rax, rcx
    jae .Lempty
    add rax, 64
.Lfound:
    mov ecx, r12d
    and ecx, 63
    add rcx, r14
    sub rax, rcx
    add rax, r12
    mov ecx, r15d
    shl rax, cl
    mov rcx, rax
    sub rcx, r13
    jns .Lempty
    mov r13, rax
.Lempty:
    mov eax, r12d
    shr r12, 3
    test eax, 7
    je 1f
    inc r12
1:
    add r14d, 64
    add r15d, 3
    cmp r14d, WHEEL_SIZE
    jb .Llevel
    mov rax, r13
    LEAVE5
ENDFUNC __next_timer_interrupt

# rdi jiffies now, rsi the time that goes with them: time of the next event of the wheel.
FUNC get_next_timer_interrupt
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13, gs:[TIMER_BASE]
    mov rdi, r13
    call _raw_spin_lock
    mov rdi, r13
    call __next_timer_interrupt
    sub rax, rbx
    jns 1f
    xor eax, eax
1:
    imul rax, rax, TICK_NSEC
    add r12, rax
    mov rdi, r13
    call _raw_spin_unlock
    mov rax, r12
    LEAVE3
ENDFUNC get_next_timer_interrupt

# --- sleeping -------------------------------------------------------------------------------------

PROCESS_TIMER_TASK = 40

# rdi ticks, or MAX_SCHEDULE_TIMEOUT: what was left of them. The caller has set its state.
FUNC schedule_timeout
    ENTER2
    sub rsp, 48
    mov rax, MAX_SCHEDULE_TIMEOUT
    cmp rdi, rax
    je .Lforever
    xor eax, eax
    test rdi, rdi
    js .Lnegative
    mov rbx, [rip + jiffies_64]
    add rbx, rdi
    mov rdi, rsp
    mov rsi, offset process_timeout
    xor edx, edx
    call init_timer_key
    mov rax, gs:[CURRENT_TASK]
    mov [rsp + PROCESS_TIMER_TASK], rax
    mov rdi, rsp
    mov rsi, rbx
    xor edx, edx
    call __mod_timer
    call schedule
    mov rdi, rsp
    call timer_delete_sync
    mov rax, rbx
    sub rax, [rip + jiffies_64]
    jns .Lout
    xor eax, eax
    jmp .Lout
.Lforever:
    mov rbx, rdi
    call schedule
    mov rax, rbx
    jmp .Lout
.Lnegative:
    mov rcx, gs:[CURRENT_TASK]
    mov dword ptr [rcx + TASK_STATE], TASK_RUNNING
.Lout:
    LEAVE2
ENDFUNC schedule_timeout

FUNC process_timeout
    PROLOGUE
    mov rdi, [rdi + PROCESS_TIMER_TASK]
    call wake_up_process
    EPILOGUE
ENDFUNC process_timeout

FUNC schedule_timeout_interruptible
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_INTERRUPTIBLE
    call schedule_timeout
    EPILOGUE
ENDFUNC schedule_timeout_interruptible

FUNC schedule_timeout_uninterruptible
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_UNINTERRUPTIBLE
    call schedule_timeout
    EPILOGUE
ENDFUNC schedule_timeout_uninterruptible

# edi milliseconds.
FUNC msleep
    PROLOGUE
    call __msecs_to_jiffies
    inc rax
.Lagain:
    mov rdi, rax
    call schedule_timeout_uninterruptible
    test rax, rax
    jne .Lagain
    EPILOGUE
ENDFUNC msleep

.data
OBJECT timer_preempt_leaks
    .long 0
ENDOBJECT timer_preempt_leaks
.text
