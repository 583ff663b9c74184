# kernel/sched/idle.c: what a CPU does with nothing to do.

.text

PWR_EVENT_EXIT = 0xffffffff

FUNC cpu_startup_entry
    PROLOGUE
1:  call do_idle
    jmp 1b
ENDFUNC cpu_startup_entry

FUNC do_idle
    PROLOGUE
    call tick_nohz_idle_enter
1:  cmp dword ptr gs:[NEED_RESCHED], 0
    jne 2f
    call default_idle_call
    jmp 1b
2:  call tick_nohz_idle_exit
    call flush_smp_call_function_queue
    call schedule_idle
    EPILOGUE
ENDFUNC do_idle

FUNC_NOTRACE default_idle_call
    push rbp
    mov rbp, rsp
    TRACE cpu_idle, .Ltrace_enter
.Lenter:
    call arch_cpu_idle
    TRACE cpu_idle, .Ltrace_exit
.Lexit:
    pop rbp
    ret
.Ltrace_enter:
    LOCAL_IRQ_DISABLE
    mov esi, 1                          # the only state there is
    mov edx, gs:[CPU_NUMBER]
    DO_TRACE cpu_idle
    LOCAL_IRQ_ENABLE
    jmp .Lenter
.Ltrace_exit:
    mov esi, PWR_EVENT_EXIT
    mov edx, gs:[CPU_NUMBER]
    DO_TRACE cpu_idle
    jmp .Lexit
ENDFUNC default_idle_call

DEFINE_TRACE cpu_idle                   # esi state, edx CPU

FUNC arch_cpu_idle
    PROLOGUE
    call default_idle
    EPILOGUE
ENDFUNC arch_cpu_idle

FUNC default_idle
    PROLOGUE
    STATIC_CALL_COND stop_critical_timings
    call idle_halt_safepoint
    STATIC_CALL_COND start_critical_timings
    EPILOGUE
ENDFUNC default_idle

# Preemption stays off in the idle task; the depth is the idle task's own, so it is not shown to an
# interrupt that arrives here. Interrupts are on.
FUNC_NOTRACE idle_halt_safepoint
    push rbp
    mov rbp, rsp
    sti
    hlt
idle_halt:
    pop rbp
    ret
ENDFUNC idle_halt_safepoint

FUNC tick_nohz_idle_enter
    PROLOGUE
    mov rax, gs:[TICKS]
    mov gs:[PERCPU_TIME + 0xf0], rax    # tick at which this idle period began
    EPILOGUE
ENDFUNC tick_nohz_idle_enter

FUNC tick_nohz_idle_exit
    PROLOGUE
    mov rax, gs:[TICKS]
    sub rax, gs:[PERCPU_TIME + 0xf0]
    add gs:[PERCPU_TIME + 0xf8], rax    # ticks spent idle
    EPILOGUE
ENDFUNC tick_nohz_idle_exit
