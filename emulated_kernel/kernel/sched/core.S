# kernel/sched/core.c: choosing and switching tasks, waking them, the tick, the idle loop.
# A CPU's run queue is in its per-CPU page (RQ_*); `rbx` holds the per-CPU page of the run queue in
# question wherever that may be another CPU's.

.text

FUNC update_rq_clock                    # rdi per-CPU page
    PROLOGUE
    push rbx
    mov rbx, rdi
    call sched_clock
    mov [rbx + RQ_CLOCK], rax
    pop rbx
    EPILOGUE
ENDFUNC update_rq_clock

FUNC_NOTRACE sched_clock                # nanoseconds; see machine/clock.py
    rdtsc
    shl rdx, 32
    or rax, rdx
    mul qword ptr gs:[CLOCK_MULT]
    shrd rax, rdx, 32
    mov rcx, gs:[CLOCK_PTR]
    mov rdx, [rcx]
    add rdx, gs:[CLOCK_STEP]
    mov [rcx], rdx
    add rax, rdx
    add rax, gs:[CLOCK_OFFSET]
    ret
ENDFUNC sched_clock

FUNC resched_curr                       # rdi per-CPU page
    PROLOGUE
    mov dword ptr [rdi + NEED_RESCHED], 1
    or byte ptr [rdi + IRQ_FLAGS], TRACE_FLAG_NEED_RESCHED
    cmp rdi, gs:[PERCPU_SELF]
    jne .Lother
    or byte ptr [rdi + IRQ_FLAGS], TRACE_FLAG_PREEMPT_RESCHED
    EPILOGUE
.Lother:
    mov edi, [rdi + CPU_NUMBER]
    call native_smp_send_reschedule
    EPILOGUE
ENDFUNC resched_curr

FUNC native_smp_send_reschedule         # edi CPU; the host sees the word and lets the IPI arrive
    PROLOGUE
    mov eax, edi
    mov rax, [percpu_table + rax*8]
    mov dword ptr [rax + NEED_RESCHED], 1
    EPILOGUE
ENDFUNC native_smp_send_reschedule

FUNC activate_task                      # rdi per-CPU page, rsi task
    PROLOGUE
    push rbx
    mov rbx, rsi
    mov dword ptr [rsi + TASK_ON_RQ], 1
    inc dword ptr [rdi + RQ_NR_RUNNING]
    call enqueue_task_fair
    pop rbx
    EPILOGUE
ENDFUNC activate_task

FUNC deactivate_task                    # rdi per-CPU page, rsi task
    PROLOGUE
    mov dword ptr [rsi + TASK_ON_RQ], 0
    dec dword ptr [rdi + RQ_NR_RUNNING]
    call dequeue_task_fair
    EPILOGUE
ENDFUNC deactivate_task

FUNC check_preempt_curr                 # rdi per-CPU page, rsi task
    PROLOGUE
    mov rax, [rdi + RQ_CURR]
    cmp rax, [rdi + RQ_IDLE]
    jne .Lfair
    call resched_curr
    EPILOGUE
.Lfair:
    call check_preempt_wakeup
    EPILOGUE
ENDFUNC check_preempt_curr

FUNC ttwu_do_wakeup                     # rdi per-CPU page, rsi task
    PROLOGUE
    push rbx
    mov rbx, rsi
    call check_preempt_curr
    mov dword ptr [rbx + TASK_STATE], TASK_RUNNING
    TRACE sched_wakeup, .Ltrace
.Ltraced:
    pop rbx
    EPILOGUE
.Ltrace:
    mov rsi, rbx
    DO_TRACE sched_wakeup
    jmp .Ltraced
ENDFUNC ttwu_do_wakeup

FUNC ttwu_do_activate                   # rdi per-CPU page, rsi task; run queue locked
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rsi
    call update_rq_clock
    mov rdi, rbx
    mov rsi, r12
    call activate_task
    mov rdi, rbx
    mov rsi, r12
    call ttwu_do_wakeup
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC ttwu_do_activate

FUNC set_task_cpu                       # rdi task, esi CPU
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12d, esi
    TRACE sched_migrate_task, .Ltrace
.Ltraced:
    mov [rbx + TASK_CPU], r12d
    pop r12
    pop rbx
    EPILOGUE
.Ltrace:
    mov edx, esi
    mov rsi, rdi
    DO_TRACE sched_migrate_task
    jmp .Ltraced
ENDFUNC set_task_cpu

FUNC ttwu_queue_wakelist                # rdi task, esi CPU
    PROLOGUE
    mov eax, esi
    mov rax, [percpu_table + rax*8]
    mov dword ptr [rdi + TASK_STATE], TASK_RUNNING
    mov rcx, [rax + WAKE_LIST]
    mov [rdi + TASK_WAKE_NEXT], rcx
    mov [rax + WAKE_LIST], rdi
    mov edi, esi
    call send_call_function_single_ipi
    mov eax, 1
    EPILOGUE
ENDFUNC ttwu_queue_wakelist

FUNC send_call_function_single_ipi      # edi CPU
    PROLOGUE
    call native_smp_send_reschedule
    EPILOGUE
ENDFUNC send_call_function_single_ipi

FUNC sched_ttwu_pending                 # wake what the WAKE_LIST of this CPU holds
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    mov rbx, gs:[PERCPU_SELF]
    xor r12d, r12d
    xchg r12, gs:[WAKE_LIST]
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_lock
.Lnext:
    test r12, r12
    je .Lout
    mov r13, r12
    mov r12, [r13 + TASK_WAKE_NEXT]
    mov qword ptr [r13 + TASK_WAKE_NEXT], 0
    cmp dword ptr [r13 + TASK_ON_RQ], 0
    jne .Lnext
    mov esi, gs:[CPU_NUMBER]
    cmp [r13 + TASK_CPU], esi
    je .Lhere
    mov rdi, r13
    call set_task_cpu
.Lhere:
    mov rdi, rbx
    mov rsi, r13
    call ttwu_do_activate
    jmp .Lnext
.Lout:
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_unlock
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC sched_ttwu_pending

# A task that is on a run queue was about to sleep and is told not to: 1. Else 0.
FUNC_NOTRACE ttwu_runnable              # rdi task
    ENTER2
    mov r12, rdi
    mov eax, [rdi + TASK_CPU]
    mov rbx, [percpu_table + rax*8]
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_lock
    xor eax, eax
    cmp [r12 + TASK_ON_RQ], eax
    je .Lunlock
    mov rdi, rbx
    call update_rq_clock
    mov rdi, rbx
    mov rsi, r12
    call ttwu_do_wakeup
    mov eax, 1
.Lunlock:
    mov r12d, eax
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_unlock
    mov eax, r12d
    LEAVE2
ENDFUNC ttwu_runnable

FUNC_NOTRACE ttwu_queue                 # rdi task, esi CPU
    ENTER2
    mov r12, rdi
    cmp esi, gs:[CPU_NUMBER]
    je .Lhere
    call ttwu_queue_wakelist
    LEAVE2
.Lhere:
    mov rbx, gs:[PERCPU_SELF]
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    mov rsi, r12
    call ttwu_do_activate
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_unlock
    LEAVE2
ENDFUNC ttwu_queue

FUNC try_to_wake_up                     # rdi task, esi states, edx flags; eax: whether it was asleep
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    mov r12, rdi
    mov r14d, esi
    xor ebx, ebx
    PREEMPT_DISABLE
    cmp rdi, gs:[CURRENT_TASK]
    je .Lcurrent
    add rdi, TASK_PI_LOCK
    call _raw_spin_lock_irqsave
    mov r13d, eax
    test [r12 + TASK_STATE], r14d
    je .Lunlock
    mov ebx, 1
    TRACE sched_waking, .Ltrace_waking
.Lwaking:
    cmp dword ptr [r12 + TASK_ON_RQ], 0
    je .Lasleep
    mov rdi, r12
    call ttwu_runnable
    test eax, eax
    jne .Lunlock
.Lasleep:
    mov rdi, r12
    call select_task_rq_fair
    mov r14d, eax
    cmp [r12 + TASK_CPU], eax
    je .Lqueue
    mov rdi, r12
    mov esi, eax
    call set_task_cpu
.Lqueue:
    mov rdi, r12
    mov esi, r14d
    call ttwu_queue
.Lunlock:
    lea rdi, [r12 + TASK_PI_LOCK]
    mov esi, r13d
    call _raw_spin_unlock_irqrestore
.Lout:
    mov eax, ebx
    PREEMPT_ENABLE
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE

.Lcurrent:
    test [r12 + TASK_STATE], r14d
    je .Lout
    mov ebx, 1
    TRACE sched_waking, .Ltrace_waking_current
.Lwaking_current:
    mov dword ptr [r12 + TASK_STATE], TASK_RUNNING
    TRACE sched_wakeup, .Ltrace_wakeup
    jmp .Lout
.Ltrace_waking:
    mov rsi, r12
    DO_TRACE sched_waking
    jmp .Lwaking
.Ltrace_waking_current:
    mov rsi, r12
    DO_TRACE sched_waking
    jmp .Lwaking_current
.Ltrace_wakeup:
    mov rsi, r12
    DO_TRACE sched_wakeup
    jmp .Lout
ENDFUNC try_to_wake_up

FUNC wake_up_process                    # rdi task
    PROLOGUE
    mov esi, TASK_NORMAL
    xor edx, edx
    call try_to_wake_up
    EPILOGUE
ENDFUNC wake_up_process

FUNC wake_up_new_task                   # rdi task
    PROLOGUE
    push rbx
    push r12
    push r13
    mov r12, rdi
    add rdi, TASK_PI_LOCK
    call _raw_spin_lock_irqsave
    mov r13, rax
    mov dword ptr [r12 + TASK_STATE], TASK_RUNNING
    mov rbx, gs:[PERCPU_SELF]
    mov eax, gs:[CPU_NUMBER]
    mov [r12 + TASK_CPU], eax
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    call update_rq_clock
    mov rdi, rbx
    mov rsi, r12
    call activate_task
    TRACE sched_wakeup_new, .Ltrace
.Ltraced:
    mov rdi, rbx
    mov rsi, r12
    call check_preempt_curr
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_unlock
    lea rdi, [r12 + TASK_PI_LOCK]
    mov rsi, r13
    call _raw_spin_unlock_irqrestore
    pop r13
    pop r12
    pop rbx
    EPILOGUE
.Ltrace:
    mov rsi, r12
    DO_TRACE sched_wakeup_new
    jmp .Ltraced
ENDFUNC wake_up_new_task

FUNC_NOTRACE __switch_to_asm            # rdi previous, rsi next; rax previous
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    mov [rdi + TASK_SP], rsp
    mov rsp, [rsi + TASK_SP]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    jmp __switch_to
ENDFUNC __switch_to_asm

FUNC_NOTRACE __switch_to                # rdi previous, rsi next
    mov gs:[CURRENT_TASK], rsi
    mov eax, [rsi + TASK_PID]
    mov gs:[CURRENT_PID], eax
    mov rax, rdi
    ret
ENDFUNC __switch_to

FUNC finish_task_switch.isra.0          # rdi previous
    PROLOGUE
    push rbx
    mov rbx, rdi
    mov rdi, gs:[PERCPU_SELF]
    add rdi, RQ_LOCK
    call _raw_spin_unlock_irq
    cmp dword ptr [rbx + TASK_STATE], TASK_DEAD
    jne .Lout
    mov rdi, rbx
    call put_task_stack
.Lout:
    pop rbx
    EPILOGUE
ENDFUNC finish_task_switch.isra.0

FUNC_NOTRACE __schedule                 # edi SM_NONE or SM_PREEMPT; preemption off
    ENTER5
    sub rsp, 8
    mov r14d, edi
    mov rbx, gs:[PERCPU_SELF]
    mov r12, [rbx + RQ_CURR]
    call rcu_note_context_switch
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_lock_irq
    mov rdi, rbx
    call update_rq_clock
    mov r15d, [r12 + TASK_STATE]
    test r14d, r14d
    jne .Lpick                          # who is preempted goes on later, whatever his state
    test r15d, r15d
    je .Lpick
    test r15d, TASK_INTERRUPTIBLE
    je .Lsleep
    cmp dword ptr [r12 + TASK_SIGPENDING], 0
    je .Lsleep
    mov dword ptr [r12 + TASK_STATE], TASK_RUNNING
    jmp .Lpick
.Lsleep:
    mov rdi, rbx
    mov rsi, r12
    call deactivate_task
.Lpick:
    mov rdi, rbx
    mov rsi, r12
    call pick_next_task_fair
    mov r13, rax
    test rax, rax
    jne .Lpicked
    mov rdi, rbx
    call pick_next_task_idle
    mov r13, rax
.Lpicked:
    mov dword ptr gs:[NEED_RESCHED], 0
    and byte ptr gs:[IRQ_FLAGS], 255 - TRACE_FLAG_NEED_RESCHED - TRACE_FLAG_PREEMPT_RESCHED
    cmp r13, r12
    je .Lsame
    mov [rbx + RQ_CURR], r13
    inc qword ptr [rbx + RQ_NR_SWITCHES]
    lea rax, [r12 + TASK_NIVCSW]
    test r14d, r14d
    jne .Lcount
    test r15d, r15d
    je .Lcount
    lea rax, [r12 + TASK_NVCSW]
.Lcount:
    inc qword ptr [rax]
    TRACE sched_switch, .Ltrace
.Ltraced:
    mov rdi, r12
    mov rsi, r13
    call __switch_to_asm
    mov rdi, rax
    call finish_task_switch.isra.0
    jmp .Lout
.Lsame:
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_unlock_irq
.Lout:
    LEAVE5
.Ltrace:
    mov esi, r14d
    mov rdx, r12
    mov rcx, r13
    mov r8d, r15d
    DO_TRACE sched_switch
    jmp .Ltraced
ENDFUNC __schedule

FUNC schedule
    PROLOGUE
1:  PREEMPT_DISABLE
    xor edi, edi                        # SM_NONE
    call __schedule
    PREEMPT_ENABLE_NO_RESCHED
    cmp dword ptr gs:[NEED_RESCHED], 0
    jne 1b
    EPILOGUE
ENDFUNC schedule

FUNC schedule_idle
    PROLOGUE
1:  xor edi, edi                        # SM_NONE
    call __schedule
    cmp dword ptr gs:[NEED_RESCHED], 0
    jne 1b
    EPILOGUE
ENDFUNC schedule_idle

FUNC_NOTRACE preempt_schedule_common
    ENTER1
1:  PREEMPT_DISABLE
    mov edi, SM_PREEMPT
    call __schedule
    PREEMPT_ENABLE_NO_RESCHED
    cmp dword ptr gs:[NEED_RESCHED], 0
    jne 1b
    LEAVE1
ENDFUNC preempt_schedule_common

FUNC __cond_resched                     # eax: whether it rescheduled
    PROLOGUE
    xor eax, eax
    cmp dword ptr gs:[NEED_RESCHED], 0
    je .Lout
    cmp byte ptr gs:[PREEMPT_DEPTH], 0
    jne .Lout
    call preempt_schedule_common
    mov eax, 1
.Lout:
    EPILOGUE
ENDFUNC __cond_resched

FUNC yield
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_RUNNING
    mov rdi, gs:[PERCPU_SELF]
    mov rcx, [rdi + RQ_CURR]
    add qword ptr [rcx + TASK_VRUNTIME], SCHED_MIN_GRANULARITY_NS
    call schedule
    EPILOGUE
ENDFUNC yield

FUNC schedule_tail                      # rdi previous task: the first thing a new task does
    PROLOGUE
    call finish_task_switch.isra.0
    PREEMPT_ENABLE_NO_RESCHED
    EPILOGUE
ENDFUNC schedule_tail

FUNC sched_fork                         # rdi clone flags, rsi task
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov ecx, [rax + TASK_PRIO]
    mov [rsi + TASK_PRIO], ecx
    mov rcx, gs:[RQ_MIN_VRUNTIME]
    mov [rsi + TASK_VRUNTIME], rcx
    xor ecx, ecx
    mov [rsi + TASK_ON_RQ], ecx
    mov [rsi + TASK_SUM_EXEC], rcx
    mov [rsi + TASK_NVCSW], rcx
    mov [rsi + TASK_NIVCSW], rcx
    mov eax, gs:[CPU_NUMBER]
    mov [rsi + TASK_CPU], eax
    xor eax, eax
    EPILOGUE
ENDFUNC sched_fork

FUNC scheduler_tick
    PROLOGUE
    push rbx
    push r12
    mov rbx, gs:[PERCPU_SELF]
    inc qword ptr gs:[TICKS]
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    call update_rq_clock
    mov rdi, rbx
    mov rsi, [rbx + RQ_CURR]
    cmp rsi, [rbx + RQ_IDLE]
    jne .Lfair
    call task_tick_idle
    jmp .Lunlock
.Lfair:
    call task_tick_fair
.Lunlock:
    lea rdi, [rbx + RQ_LOCK]
    call _raw_spin_unlock
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC scheduler_tick

FUNC __sysvec_call_function_single      # rdi pt_regs: another CPU, or the host, has tasks to be woken here
    PROLOGUE
    xor edi, edi
    xchg rdi, gs:[HOST_WAKE]
    test rdi, rdi
    je .Lqueue
    call wake_up_process
.Lqueue:
    cmp qword ptr gs:[WAKE_LIST], 0
    je .Lout
    call sched_ttwu_pending
.Lout:
    EPILOGUE
ENDFUNC __sysvec_call_function_single

FUNC flush_smp_call_function_queue
    PROLOGUE
    cmp qword ptr gs:[WAKE_LIST], 0
    je .Lout
    call sched_ttwu_pending
.Lout:
    EPILOGUE
ENDFUNC flush_smp_call_function_queue
