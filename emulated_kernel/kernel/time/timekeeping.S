# kernel/time/timekeeping.c: the clocks. Cycles are sched_clock's nanoseconds, so that the machine's
# choice of clock is everybody's. Left out: NTP, suspend, other clock sources.

.text

FUNC_NOTRACE timekeeping_init
    PROLOGUE
    call init_timers
    call hrtimers_init
    call sched_clock
    mov rdi, offset tk_core
    mov [rdi + TK_CYCLE_LAST], rax
    mov [rdi + TK_BASE], rax
    mov [rdi + TK_COARSE_MONO], rax
    mov rdi, rax
    call read_persistent_clock64
    mov rdi, offset tk_core
    mov rcx, rax
    sub rcx, [rdi + TK_BASE]
    mov [rdi + TK_OFFS_REAL], rcx
    xor edx, edx
    mov ecx, NSEC_PER_SEC
    div rcx
    mov [rdi + TK_XTIME_SEC], rax
    mov [rdi + TK_XTIME_NSEC], rdx
    EPILOGUE
ENDFUNC timekeeping_init

# The wall clock's nanoseconds at boot. The host may set the word; else it is the day 6.1 came out.
FUNC read_persistent_clock64
    PROLOGUE
    mov rax, [rip + persistent_clock]
    EPILOGUE
ENDFUNC read_persistent_clock64

# rax = monotonic nanoseconds now. Clobbers rcx, rdx, rdi, r8. Interrupts and ticks may come
# between.
.macro TIMEKEEPING_GET_NS
1:
    mov r8d, [rip + tk_core + TK_SEQ]
    test r8d, 1
    jne 1b
    call sched_clock
    sub rax, [rip + tk_core + TK_CYCLE_LAST]
    add rax, [rip + tk_core + TK_BASE]
    mov rdi, [rip + tk_core + TK_OFFS_REAL]
    cmp r8d, [rip + tk_core + TK_SEQ]
    jne 1b
.endm

FUNC ktime_get
    PROLOGUE
    TIMEKEEPING_GET_NS
    EPILOGUE
ENDFUNC ktime_get

FUNC ktime_get_raw
    PROLOGUE
    TIMEKEEPING_GET_NS
    EPILOGUE
ENDFUNC ktime_get_raw

FUNC ktime_get_seconds
    PROLOGUE
    mov rax, [rip + tk_core + TK_COARSE_MONO]
    xor edx, edx
    mov ecx, NSEC_PER_SEC
    div rcx
    EPILOGUE
ENDFUNC ktime_get_seconds

FUNC ktime_get_real_seconds
    PROLOGUE
    mov rax, [rip + tk_core + TK_XTIME_SEC]
    EPILOGUE
ENDFUNC ktime_get_real_seconds

# edi which offset (0: wall clock, 1: since boot).
FUNC ktime_get_with_offset
    ENTER1
    mov ebx, edi
    TIMEKEEPING_GET_NS
    test ebx, ebx
    jne 2f
    add rax, rdi
2:
    LEAVE1
ENDFUNC ktime_get_with_offset

# rdi struct timespec64.
FUNC ktime_get_real_ts64
    ENTER1
    mov rbx, rdi
    TIMEKEEPING_GET_NS
    add rax, rdi
    xor edx, edx
    mov ecx, NSEC_PER_SEC
    div rcx
    mov [rbx], rax
    mov [rbx + 8], rdx
    LEAVE1
ENDFUNC ktime_get_real_ts64

FUNC ktime_get_ts64
    ENTER1
    mov rbx, rdi
    TIMEKEEPING_GET_NS
    xor edx, edx
    mov ecx, NSEC_PER_SEC
    div rcx
    mov [rbx], rax
    mov [rbx + 8], rdx
    LEAVE1
ENDFUNC ktime_get_ts64

# rdi struct timespec64: the wall clock as of the last tick, which costs no reading of the clock.
FUNC ktime_get_coarse_real_ts64
    PROLOGUE
.Lagain:
    mov ecx, [rip + tk_core + TK_SEQ]
    test ecx, 1
    jne .Lagain
    mov rax, [rip + tk_core + TK_XTIME_SEC]
    mov rdx, [rip + tk_core + TK_XTIME_NSEC]
    cmp ecx, [rip + tk_core + TK_SEQ]
    jne .Lagain
    mov [rdi], rax
    mov [rdi + 8], rdx
    EPILOGUE
ENDFUNC ktime_get_coarse_real_ts64

FUNC ktime_get_coarse_ts64
    PROLOGUE
    mov rax, [rip + tk_core + TK_COARSE_MONO]
    xor edx, edx
    mov ecx, NSEC_PER_SEC
    div rcx
    mov [rdi], rax
    mov [rdi + 8], rdx
    EPILOGUE
ENDFUNC ktime_get_coarse_ts64

# rdi where the sequence number goes, rsi where the wall clock's offset goes: the time.
FUNC ktime_get_update_offsets_now
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    TIMEKEEPING_GET_NS
    mov [rbx], r8d
    mov [r12], rdi
    LEAVE2
ENDFUNC ktime_get_update_offsets_now

# Each tick: what the clock counted since the last one becomes part of the base.
FUNC update_wall_time
    PROLOGUE
    xor edi, edi
    call timekeeping_advance
    EPILOGUE
ENDFUNC update_wall_time

FUNC timekeeping_advance
    ENTER2
    mov rdi, offset tk_core + TK_LOCK
    call _raw_spin_lock_irqsave
    mov r12d, eax
    call sched_clock
    mov rbx, rax
    mov rdi, offset tk_core
    inc dword ptr [rdi + TK_SEQ]
    mov rcx, rbx
    sub rcx, [rdi + TK_CYCLE_LAST]
    mov [rdi + TK_CYCLE_LAST], rbx
    add [rdi + TK_BASE], rcx
    add rcx, [rdi + TK_XTIME_NSEC]
    mov rax, rcx
    xor edx, edx
    mov ecx, NSEC_PER_SEC
    div rcx
    add [rdi + TK_XTIME_SEC], rax
    mov [rdi + TK_XTIME_NSEC], rdx
    mov esi, 1
    call timekeeping_update
    inc dword ptr [rip + tk_core + TK_SEQ]
    mov rdi, offset tk_core + TK_LOCK
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    xor eax, eax
    LEAVE2
ENDFUNC timekeeping_advance

# rdi timekeeper: what is derived from its base.
FUNC timekeeping_update
    PROLOGUE
    mov rax, [rdi + TK_BASE]
    mov [rdi + TK_COARSE_MONO], rax
    EPILOGUE
ENDFUNC timekeeping_update

# rdi struct timespec64: set the wall clock. 0 or -EINVAL.
FUNC do_settimeofday64
    ENTER3
    mov rbx, [rdi]
    mov r12, [rdi + 8]
    mov eax, -EINVAL
    cmp r12, NSEC_PER_SEC
    jae .Lout
    test rbx, rbx
    js .Lout
    mov rdi, offset tk_core + TK_LOCK
    call _raw_spin_lock_irqsave
    mov r13d, eax
    inc dword ptr [rip + tk_core + TK_SEQ]
    call sched_clock
    mov rdi, offset tk_core
    sub rax, [rdi + TK_CYCLE_LAST]
    add rax, [rdi + TK_BASE]
    imul rcx, rbx, NSEC_PER_SEC
    add rcx, r12
    sub rcx, rax
    mov [rdi + TK_OFFS_REAL], rcx
    mov [rdi + TK_XTIME_SEC], rbx
    mov [rdi + TK_XTIME_NSEC], r12
    mov esi, 2
    call timekeeping_update
    inc dword ptr [rip + tk_core + TK_SEQ]
    mov rdi, offset tk_core + TK_LOCK
    mov esi, r13d
    call _raw_spin_unlock_irqrestore
    xor eax, eax
.Lout:
    LEAVE3
ENDFUNC do_settimeofday64

# edi ticks to add to jiffies.
FUNC do_timer
    PROLOGUE
    mov edi, edi
    add [rip + jiffies_64], rdi
    EPILOGUE
ENDFUNC do_timer

# --- conversions ----------------------------------------------------------------------------------

# edi milliseconds: ticks, rounded up; "forever" for a negative time.
FUNC __msecs_to_jiffies
    PROLOGUE
    mov rax, MAX_JIFFY_OFFSET
    test edi, edi
    js .Lout
    lea eax, [rdi + 3]
    shr eax, 2
.Lout:
    EPILOGUE
ENDFUNC __msecs_to_jiffies

# rdi ticks.
FUNC jiffies_to_msecs
    PROLOGUE
    lea rax, [rdi*4]
    EPILOGUE
ENDFUNC jiffies_to_msecs

FUNC jiffies_to_usecs
    PROLOGUE
    imul rax, rdi, 4000
    EPILOGUE
ENDFUNC jiffies_to_usecs

FUNC nsecs_to_jiffies
    PROLOGUE
    mov rax, rdi
    xor edx, edx
    mov ecx, TICK_NSEC
    div rcx
    EPILOGUE
ENDFUNC nsecs_to_jiffies

# rdi struct timespec64: ticks, rounded up.
FUNC timespec64_to_jiffies
    PROLOGUE
    imul rax, [rdi], NSEC_PER_SEC
    add rax, [rdi + 8]
    add rax, TICK_NSEC - 1
    xor edx, edx
    mov ecx, TICK_NSEC
    div rcx
    EPILOGUE
ENDFUNC timespec64_to_jiffies

# rdi nanoseconds: seconds in rax and the rest in rdx, which is never negative.
FUNC ns_to_timespec64
    PROLOGUE
    mov rax, rdi
    cqo
    mov ecx, NSEC_PER_SEC
    idiv rcx
    test rdx, rdx
    jns 1f
    add rdx, rcx
    dec rax
1:
    EPILOGUE
ENDFUNC ns_to_timespec64

# rdi ticks: the next whole second, or the last one when that is near; never the past.
FUNC round_jiffies
    PROLOGUE
    mov rax, rdi
    xor edx, edx
    mov ecx, HZ
    div rcx
    mov rax, rdi
    sub rax, rdx
    cmp edx, HZ / 4
    jb 1f
    add rax, HZ
1:
    cmp rax, [rip + jiffies_64]
    ja 2f
    mov rax, rdi
2:
    EPILOGUE
ENDFUNC round_jiffies

.data
.balign 64
OBJECT tk_core
    .zero TK_SIZE
ENDOBJECT tk_core
OBJECT persistent_clock
    .quad 1670799213000000000
ENDOBJECT persistent_clock
.text
