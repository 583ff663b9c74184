# arch/x86/kernel/apic and kernel/time: the timer interrupt of each CPU, down to the scheduler's tick.

.text

FUNC __sysvec_apic_timer_interrupt      # rdi pt_regs
    PROLOGUE
    call hrtimer_interrupt
    EPILOGUE
ENDFUNC __sysvec_apic_timer_interrupt

FUNC tick_sched_timer
    PROLOGUE
    cmp dword ptr gs:[CPU_NUMBER], 0    # the timekeeping CPU
    jne .Lnot
    call tick_do_update_jiffies64
.Lnot:
    call tick_sched_handle
    EPILOGUE
ENDFUNC tick_sched_timer

# Idle CPUs get fewer interrupts than HZ, so as many ticks are counted as time has passed.
FUNC tick_do_update_jiffies64
    PROLOGUE
    call sched_clock
    mov rcx, rax
    sub rax, [rip + last_jiffies_update]
    cmp rax, SCHED_TICK_NS
    jb .Lout
    xor edx, edx
    mov r8d, SCHED_TICK_NS
    div r8
    add [rip + jiffies_64], rax
    sub rcx, rdx
    mov [rip + last_jiffies_update], rcx
    call update_wall_time
.Lout:
    EPILOGUE
ENDFUNC tick_do_update_jiffies64

FUNC tick_sched_handle
    PROLOGUE
    call update_process_times
    EPILOGUE
ENDFUNC tick_sched_handle

FUNC update_process_times
    PROLOGUE
    call account_process_tick
    call run_local_timers
    call rcu_sched_clock_irq
    call scheduler_tick
    EPILOGUE
ENDFUNC update_process_times

FUNC account_process_tick
    PROLOGUE
    mov rax, gs:[PERCPU_SELF]
    mov rcx, [rax + RQ_CURR]
    cmp rcx, [rax + RQ_IDLE]
    je .Lidle
    inc qword ptr gs:[PERCPU_TIME + 0xe0]
    EPILOGUE
.Lidle:
    inc qword ptr gs:[PERCPU_TIME + 0xe8]
    EPILOGUE
ENDFUNC account_process_tick

.data
.balign 8
OBJECT jiffies_64
    .quad 0xfffedb08                    # INITIAL_JIFFIES: wraps five minutes after boot
ENDOBJECT jiffies_64
OBJECT last_jiffies_update              # sched_clock of the last tick that was counted
    .quad 0
ENDOBJECT last_jiffies_update
