# kernel/time/hrtimer.c: timers of nanosecond resolution, one queue for each CPU, and the timer
# interrupt that runs them. Left out: clock bases other than the monotonic one, soft timers.
# The tick is a timer that is due at each interrupt: how often those come is up to the machine.

.text

HRTIMER_STATE_ENQUEUED = 1

FUNC_NOTRACE hrtimers_init
    ENTER2
    xor ebx, ebx
.Lnext:
    mov edi, ebx
    call hrtimers_prepare_cpu
    inc ebx
    cmp ebx, [rip + nr_cpu_ids]
    jb .Lnext
    LEAVE2
ENDFUNC hrtimers_init

# edi CPU: an empty queue with the tick on it.
FUNC hrtimers_prepare_cpu
    ENTER1
    push rbx
    mov eax, edi
    mov rbx, [percpu_table + rax*8]
    mov qword ptr [rbx + HRTIMER_QUEUE], 0
    mov qword ptr [rbx + HRTIMER_FIRST], 0
    mov qword ptr [rbx + HRTIMER_LOCK], 0
    lea rdi, [rbx + TICK_TIMER]
    mov esi, CLOCK_MONOTONIC
    xor edx, edx
    call hrtimer_init
    mov rax, offset tick_sched_timer
    mov [rbx + TICK_TIMER + HRTIMER_FUNCTION], rax
    mov [rbx + TICK_TIMER + HRTIMER_BASE], rbx
    lea rdi, [rbx + TICK_TIMER]
    mov rsi, rbx
    xor edx, edx
    call enqueue_hrtimer
    xor eax, eax
    LEAVE1
ENDFUNC hrtimers_prepare_cpu

# rdi timer, esi clock, edx mode.
FUNC hrtimer_init
    PROLOGUE
    call __hrtimer_init
    EPILOGUE
ENDFUNC hrtimer_init

FUNC __hrtimer_init
    PROLOGUE
    mov [rdi], rdi
    mov qword ptr [rdi + HRTIMER_EXPIRES], 0
    mov qword ptr [rdi + HRTIMER_SOFTEXPIRES], 0
    mov qword ptr [rdi + HRTIMER_FUNCTION], 0
    mov rax, gs:[PERCPU_SELF]
    mov [rdi + HRTIMER_BASE], rax
    mov qword ptr [rdi + HRTIMER_STATE], 0
    EPILOGUE
ENDFUNC __hrtimer_init

# rdi sleeper, esi clock, edx mode: a timer that wakes the caller.
FUNC hrtimer_init_sleeper
    ENTER1
    push rbx
    mov rbx, rdi
    call __hrtimer_init
    mov rax, offset hrtimer_wakeup
    mov [rbx + HRTIMER_FUNCTION], rax
    mov rax, gs:[CURRENT_TASK]
    mov [rbx + HRTIMER_TASK], rax
    LEAVE1
ENDFUNC hrtimer_init_sleeper

# rdi sleeper's timer, expired.
FUNC hrtimer_wakeup
    PROLOGUE
    mov rax, [rdi + HRTIMER_TASK]
    mov qword ptr [rdi + HRTIMER_TASK], 0
    test rax, rax
    je 1f
    mov rdi, rax
    call wake_up_process
1:
    mov eax, HRTIMER_NORESTART
    EPILOGUE
ENDFUNC hrtimer_wakeup

# rdi timer, rsi per-CPU page, edx mode: eax 1 when it is now the first to expire.
FUNC enqueue_hrtimer
    PROLOGUE
    mov dword ptr [rdi + HRTIMER_STATE], HRTIMER_STATE_ENQUEUED
    mov rax, rsi
    mov rsi, rdi
    lea rdi, [rax + HRTIMER_QUEUE]
    call timerqueue_add
    EPILOGUE
ENDFUNC enqueue_hrtimer

# rdi timer, rsi per-CPU page, edx new state, ecx whether the device is to learn of it.
FUNC __remove_hrtimer
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13d, ecx
    mov r14d, [rdi + HRTIMER_STATE]
    mov [rdi + HRTIMER_STATE], edx
    test r14d, HRTIMER_STATE_ENQUEUED
    je .Lout
    lea rdi, [r12 + HRTIMER_QUEUE]
    mov rsi, rbx
    call timerqueue_del
    test r13d, r13d
    je .Lout
    mov rdi, r12
    call hrtimer_update_next_event
.Lout:
    LEAVE4
ENDFUNC __remove_hrtimer

# rdi per-CPU page: the time of its next event, which is remembered.
FUNC hrtimer_update_next_event
    PROLOGUE
    mov rax, MAX_SCHEDULE_TIMEOUT
    mov rcx, [rdi + HRTIMER_FIRST]
    test rcx, rcx
    je 1f
    mov rax, [rcx + HRTIMER_EXPIRES]
1:
    mov [rdi + HRTIMER_EXPIRES_NEXT], rax
    EPILOGUE
ENDFUNC hrtimer_update_next_event

FUNC hrtimer_get_next_event
    ENTER1
    push rbx
    mov rdi, gs:[PERCPU_SELF]
    add rdi, HRTIMER_LOCK
    call _raw_spin_lock_irqsave
    mov ebx, eax
    mov rdi, gs:[PERCPU_SELF]
    call hrtimer_update_next_event
    push rax
    push rax
    mov rdi, gs:[PERCPU_SELF]
    add rdi, HRTIMER_LOCK
    mov esi, ebx
    call _raw_spin_unlock_irqrestore
    pop rax
    LEAVE1
ENDFUNC hrtimer_get_next_event

# rdi timer that became the first on its queue, esi whether the device is told.
FUNC hrtimer_reprogram
    PROLOGUE
    mov rcx, [rdi + HRTIMER_BASE]
    mov rax, [rdi + HRTIMER_EXPIRES]
    mov [rcx + HRTIMER_EXPIRES_NEXT], rax
    cmp rcx, gs:[PERCPU_SELF]
    jne 1f
    mov rdi, rax
    mov esi, 1
    call tick_program_event
1:
    EPILOGUE
ENDFUNC hrtimer_reprogram

# rdi when the clock event device of this CPU is to interrupt.
FUNC tick_program_event
    PROLOGUE
    call clockevents_program_event
    EPILOGUE
ENDFUNC tick_program_event

FUNC clockevents_program_event
    PROLOGUE
    mov gs:[TICK_DEVICE_NEXT], rdi
    call lapic_next_deadline
    xor eax, eax
    EPILOGUE
ENDFUNC clockevents_program_event

# The device itself belongs to the host, which looks at TICK_DEVICE_NEXT.
FUNC lapic_next_deadline
    PROLOGUE
    inc qword ptr [rip + lapic_events]
    xor eax, eax
    EPILOGUE
ENDFUNC lapic_next_deadline

# rdi timer, rsi time, rdx slack, ecx mode.
FUNC hrtimer_start_range_ns
    ENTER5
    push rdx
    mov rbx, rdi
    mov r12, rsi
    mov r13d, ecx
    mov rdi, [rbx + HRTIMER_BASE]
    add rdi, HRTIMER_LOCK
    call _raw_spin_lock_irqsave
    mov r14d, eax
    mov r15, gs:[PERCPU_SELF]
    mov rdi, rbx
    mov rsi, [rbx + HRTIMER_BASE]
    xor edx, edx
    xor ecx, ecx
    call __remove_hrtimer
    test r13d, HRTIMER_MODE_REL
    je .Labsolute
    call ktime_get
    add r12, rax
    jno .Labsolute
    mov r12, MAX_SCHEDULE_TIMEOUT
.Labsolute:
    mov [rbx + HRTIMER_SOFTEXPIRES], r12
    add r12, [rbp - 48]
    mov [rbx + HRTIMER_EXPIRES], r12
    mov rax, [rbx + HRTIMER_BASE]
    cmp rax, r15
    je .Lhere
    lea rdi, [rax + HRTIMER_LOCK]
    call _raw_spin_unlock
    mov [rbx + HRTIMER_BASE], r15
    lea rdi, [r15 + HRTIMER_LOCK]
    call _raw_spin_lock
.Lhere:
    mov rdi, rbx
    mov rsi, r15
    mov edx, r13d
    call enqueue_hrtimer
    test eax, eax
    je .Lunlock
    mov rdi, rbx
    mov esi, 1
    call hrtimer_reprogram
.Lunlock:
    lea rdi, [r15 + HRTIMER_LOCK]
    mov esi, r14d
    call _raw_spin_unlock_irqrestore
    LEAVE5
ENDFUNC hrtimer_start_range_ns

# rdi sleeper, esi mode.
FUNC hrtimer_sleeper_start_expires
    PROLOGUE
    mov ecx, esi
    mov rsi, [rdi + HRTIMER_SOFTEXPIRES]
    mov rdx, [rdi + HRTIMER_EXPIRES]
    sub rdx, rsi
    call hrtimer_start_range_ns
    EPILOGUE
ENDFUNC hrtimer_sleeper_start_expires

FUNC hrtimer_active
    PROLOGUE
    mov eax, [rdi + HRTIMER_STATE]
    and eax, HRTIMER_STATE_ENQUEUED
    mov rcx, [rdi + HRTIMER_BASE]
    cmp [rcx + HRTIMER_RUNNING], rdi
    jne 1f
    mov eax, 1
1:
    EPILOGUE
ENDFUNC hrtimer_active

# 1 it was waiting and no longer is, 0 it was not, -1 its function is running.
FUNC hrtimer_try_to_cancel
    ENTER3
    mov rbx, rdi
    call hrtimer_active
    test eax, eax
    je .Lout
    mov rdi, [rbx + HRTIMER_BASE]
    add rdi, HRTIMER_LOCK
    call _raw_spin_lock_irqsave
    mov r12d, eax
    mov r13d, -1
    mov rsi, [rbx + HRTIMER_BASE]
    cmp [rsi + HRTIMER_RUNNING], rbx
    je .Lunlock
    mov r13d, [rbx + HRTIMER_STATE]
    and r13d, HRTIMER_STATE_ENQUEUED
    mov rdi, rbx
    xor edx, edx
    mov ecx, 1
    call __remove_hrtimer
.Lunlock:
    mov rdi, [rbx + HRTIMER_BASE]
    add rdi, HRTIMER_LOCK
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    mov eax, r13d
.Lout:
    LEAVE3
ENDFUNC hrtimer_try_to_cancel

FUNC hrtimer_cancel
    ENTER1
    push rbx
    mov rbx, rdi
.Lagain:
    mov rdi, rbx
    call hrtimer_try_to_cancel
    test eax, eax
    jns .Lout
    pause
    jmp .Lagain
.Lout:
    LEAVE1
ENDFUNC hrtimer_cancel

# rdi timer, rsi now, rdx interval: how many intervals the expiry was moved to lie behind now.
FUNC hrtimer_forward
    PROLOGUE
    mov r8, rdx
    xor eax, eax
    mov rcx, rsi
    sub rcx, [rdi + HRTIMER_EXPIRES]
    js .Lout
    mov rax, rcx
    xor edx, edx
    div r8
    inc rax
    imul r8, rax
    add [rdi + HRTIMER_EXPIRES], r8
    add [rdi + HRTIMER_SOFTEXPIRES], r8
.Lout:
    EPILOGUE
ENDFUNC hrtimer_forward

# The timer interrupt of this CPU.
FUNC hrtimer_interrupt
    ENTER3
    sub rsp, 24
    mov rbx, gs:[PERCPU_SELF]
    inc dword ptr [rbx + HRTIMER_NR_EVENTS]
    lea rdi, [rbx + HRTIMER_LOCK]
    call _raw_spin_lock_irqsave
    mov r12d, eax
    lea rdi, [rbp - 40]
    lea rsi, [rbp - 48]
    call ktime_get_update_offsets_now
    mov rdi, rbx
    mov rsi, rax
    mov edx, r12d
    call __hrtimer_run_queues
    mov rdi, rbx
    call hrtimer_update_next_event
    mov r13, rax
    lea rdi, [rbx + HRTIMER_LOCK]
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    mov rdi, r13
    xor esi, esi
    call tick_program_event
    LEAVE3
ENDFUNC hrtimer_interrupt

# rdi per-CPU page, its lock held; rsi now, edx flags of the lock: run what has expired.
FUNC __hrtimer_run_queues
    ENTER5
    push rax
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
.Lnext:
    mov r14, [rbx + HRTIMER_FIRST]
    test r14, r14
    je .Lout
    cmp [r14 + HRTIMER_SOFTEXPIRES], r12
    jg .Lout
    mov [rbx + HRTIMER_RUNNING], r14
    mov rdi, r14
    mov rsi, rbx
    xor edx, edx
    xor ecx, ecx
    call __remove_hrtimer
    lea rdi, [rbx + HRTIMER_LOCK]
    mov esi, r13d
    call _raw_spin_unlock_irqrestore
    mov rdi, r14
    call [r14 + HRTIMER_FUNCTION]
    mov r15d, eax
    lea rdi, [rbx + HRTIMER_LOCK]
    call _raw_spin_lock_irq
    mov qword ptr [rbx + HRTIMER_RUNNING], 0
    lea rax, [rbx + TICK_TIMER]
    cmp rax, r14
    je .Ltick
    cmp r15d, HRTIMER_RESTART
    jne .Lnext
    test dword ptr [r14 + HRTIMER_STATE], HRTIMER_STATE_ENQUEUED
    jne .Lnext
    jmp .Lenqueue
.Ltick:
    mov rdi, r14
    mov rsi, r12
    mov edx, 1
    call hrtimer_forward
.Lenqueue:
    mov rdi, r14
    mov rsi, rbx
    xor edx, edx
    call enqueue_hrtimer
    jmp .Lnext
.Lout:
    LEAVE5
ENDFUNC __hrtimer_run_queues

# --- sleeping -------------------------------------------------------------------------------------

# rdi relative nanoseconds or absolute time, esi mode, edx clock: 0, or -ERESTART_RESTARTBLOCK
# when a signal came first.
FUNC hrtimer_nanosleep
    ENTER3
    sub rsp, HRTIMER_SLEEPER_SIZE
    mov rbx, rdi
    mov r12d, esi
    mov rdi, rsp
    mov esi, edx
    mov edx, r12d
    call hrtimer_init_sleeper
    mov rdi, rsp
    mov [rdi + HRTIMER_SOFTEXPIRES], rbx
    lea rax, [rbx + 50000]
    mov [rdi + HRTIMER_EXPIRES], rax
    mov esi, r12d
    call do_nanosleep
    LEAVE3
ENDFUNC hrtimer_nanosleep

# rdi sleeper, esi mode.
FUNC do_nanosleep
    ENTER2
    mov rbx, rdi
    mov r12d, esi
.Lagain:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_INTERRUPTIBLE
    mov rdi, rbx
    mov esi, r12d
    call hrtimer_sleeper_start_expires
    cmp qword ptr [rbx + HRTIMER_TASK], 0
    je .Lwoken
    call schedule
.Lwoken:
    mov rdi, rbx
    call hrtimer_cancel
    xor r12d, r12d
    cmp qword ptr [rbx + HRTIMER_TASK], 0
    je .Ldone
    mov rax, gs:[CURRENT_TASK]
    cmp dword ptr [rax + TASK_SIGPENDING], 0
    je .Lagain
    mov dword ptr [rax + TASK_STATE], TASK_RUNNING
    mov eax, -ERESTART_RESTARTBLOCK
    LEAVE2
.Ldone:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_RUNNING
    xor eax, eax
    LEAVE2
ENDFUNC do_nanosleep

# rdi address of the time (0: forever), rsi slack, edx mode, ecx clock: 0 when it passed, -EINTR
# when something else woke us.
FUNC schedule_hrtimeout_range_clock
    ENTER3
    sub rsp, HRTIMER_SLEEPER_SIZE
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    test rdi, rdi
    je .Lforever
    cmp qword ptr [rdi], 0
    je .Lnow
    mov rdi, rsp
    mov esi, ecx
    call hrtimer_init_sleeper
    mov rdi, rsp
    mov rax, [rbx]
    mov [rdi + HRTIMER_SOFTEXPIRES], rax
    add rax, r12
    mov [rdi + HRTIMER_EXPIRES], rax
    mov esi, r13d
    call hrtimer_sleeper_start_expires
    cmp qword ptr [rsp + HRTIMER_TASK], 0
    je 1f
    call schedule
1:
    mov rdi, rsp
    call hrtimer_cancel
    xor ebx, ebx
    cmp qword ptr [rsp + HRTIMER_TASK], 0
    je .Lout
.Lwoken:
    mov ebx, -EINTR
.Lout:
    mov rcx, gs:[CURRENT_TASK]
    mov dword ptr [rcx + TASK_STATE], TASK_RUNNING
    mov eax, ebx
    LEAVE3
.Lnow:
    xor ebx, ebx
    jmp .Lout
.Lforever:
    call schedule
    jmp .Lwoken
ENDFUNC schedule_hrtimeout_range_clock

FUNC schedule_hrtimeout_range
    PROLOGUE
    mov ecx, CLOCK_MONOTONIC
    call schedule_hrtimeout_range_clock
    EPILOGUE
ENDFUNC schedule_hrtimeout_range

# edi least and esi most microseconds, edx state to sleep in.
FUNC usleep_range_state
    ENTER2
    push rax
    push rax
    mov r12d, edx
    mov eax, edi
    mov ecx, esi
    sub rcx, rax
    imul rax, rax, 1000
    imul rbx, rcx, 1000
    mov [rsp], rax
    call ktime_get
    add [rsp], rax
.Lagain:
    mov rax, gs:[CURRENT_TASK]
    mov [rax + TASK_STATE], r12d
    mov rdi, rsp
    mov rsi, rbx
    mov edx, HRTIMER_MODE_ABS
    call schedule_hrtimeout_range
    test eax, eax
    jne .Lagain
    LEAVE2
ENDFUNC usleep_range_state

.data
OBJECT lapic_events
    .quad 0
ENDOBJECT lapic_events
.text
