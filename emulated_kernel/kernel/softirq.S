# Softirqs, interrupt entry accounting and tasklets: kernel/softirq.c, kernel/smpboot.c.
# SOFTIRQ_DEPTH is the softirq part of Linux's preempt count; the flags of TRACE_CTX follow it.
# Left out: the time limit of __do_softirq, its own stack, nohz.

.text

# ZF set when neither a hard interrupt nor a softirq nor a bh-off section is on this CPU. eax is
# clobbered.
.macro TEST_IN_INTERRUPT
    mov eax, gs:[SOFTIRQ_DEPTH]
    or eax, gs:[IRQ_DEPTH]
.endm

FUNC_NOTRACE softirq_init
    PROLOGUE
    mov edi, TASKLET_SOFTIRQ
    mov rsi, offset tasklet_action
    call open_softirq
    mov edi, HI_SOFTIRQ
    mov rsi, offset tasklet_hi_action
    call open_softirq
    EPILOGUE
ENDFUNC softirq_init

# edi vector, rsi handler
FUNC open_softirq
    PROLOGUE
    mov edi, edi
    mov [rdi*8+softirq_vec], rsi
    EPILOGUE
ENDFUNC open_softirq

FUNC irq_enter_rcu
    PROLOGUE
    inc dword ptr gs:[IRQ_DEPTH]
    or byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_HARDIRQ
    EPILOGUE
ENDFUNC irq_enter_rcu

FUNC irq_enter
    PROLOGUE
    call irq_enter_rcu
    EPILOGUE
ENDFUNC irq_enter

# Interrupts are off. Runs the softirqs that the handler raised, unless one is running already.
FUNC irq_exit_rcu
    PROLOGUE
    dec dword ptr gs:[IRQ_DEPTH]
    jne .Lout
    and byte ptr gs:[IRQ_FLAGS], ~TRACE_FLAG_HARDIRQ
    cmp dword ptr gs:[SOFTIRQ_PENDING], 0
    je .Lout
    cmp dword ptr gs:[SOFTIRQ_DEPTH], 0
    jne .Lout
    call __do_softirq
.Lout:
    EPILOGUE
ENDFUNC irq_exit_rcu

FUNC irq_exit
    PROLOGUE
    call irq_exit_rcu
    EPILOGUE
ENDFUNC irq_exit

# Interrupts are off on entry and on return, on while handlers run.
FUNC __do_softirq
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    mov r13d, MAX_SOFTIRQ_RESTART
    add dword ptr gs:[SOFTIRQ_DEPTH], SOFTIRQ_OFFSET
    or byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_SOFTIRQ
    mov ebx, gs:[SOFTIRQ_PENDING]
.Lrestart:
    mov dword ptr gs:[SOFTIRQ_PENDING], 0
    LOCAL_IRQ_ENABLE
.Lnext:
    bsf r12d, ebx
    je .Lround
    lea eax, [rbx-1]
    and ebx, eax
    mov edi, r12d
    mov rax, [r12*8+softirq_vec]
    test rax, rax
    je .Lnext
    inc qword ptr [r12*8+kstat_softirqs]
    inc qword ptr gs:[SOFTIRQS_RUN]
    TRACE softirq_entry, .Ltrace_entry
.Lentry:
    call rax
    TRACE softirq_exit, .Ltrace_exit
    jmp .Lnext
.Lround:
    LOCAL_IRQ_DISABLE
    mov ebx, gs:[SOFTIRQ_PENDING]
    test ebx, ebx
    je .Lout
    dec r13d
    jne .Lrestart
    call wakeup_softirqd
.Lout:
    sub dword ptr gs:[SOFTIRQ_DEPTH], SOFTIRQ_OFFSET
    and byte ptr gs:[IRQ_FLAGS], ~TRACE_FLAG_SOFTIRQ
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
.Ltrace_entry:
    push rax
    push rdi
    mov esi, r12d
    DO_TRACE softirq_entry
    pop rdi
    pop rax
    jmp .Lentry
.Ltrace_exit:
    mov esi, r12d
    DO_TRACE softirq_exit
    jmp .Lnext
ENDFUNC __do_softirq

DEFINE_TRACE softirq_raise              # esi softirq
DEFINE_TRACE softirq_entry              # esi softirq
DEFINE_TRACE softirq_exit               # esi softirq

FUNC do_softirq
    PROLOGUE
    push rbx
    push rbx
    TEST_IN_INTERRUPT
    jne .Lout
    LOCAL_IRQ_SAVE ebx
    cmp dword ptr gs:[SOFTIRQ_PENDING], 0
    je 1f
    call __do_softirq
1:
    LOCAL_IRQ_RESTORE ebx
.Lout:
    pop rbx
    pop rbx
    EPILOGUE
ENDFUNC do_softirq

# rdi who asks, esi how much of the softirq count to give back.
FUNC __local_bh_enable_ip
    PROLOGUE
    push rsi
    push rbx
    lea eax, [rsi-1]
    sub gs:[SOFTIRQ_DEPTH], eax
    mov eax, gs:[SOFTIRQ_DEPTH]
    cmp eax, 1
    ja .Lkeep
    and byte ptr gs:[IRQ_FLAGS], 255 - TRACE_FLAG_BH_OFF
    dec dword ptr gs:[SOFTIRQ_DEPTH]
    TEST_IN_INTERRUPT
    jne .Lout
    cmp dword ptr gs:[SOFTIRQ_PENDING], 0
    je .Lout
    call do_softirq
    jmp .Lout
.Lkeep:
    dec dword ptr gs:[SOFTIRQ_DEPTH]
    cmp dword ptr gs:[SOFTIRQ_DEPTH], SOFTIRQ_DISABLE_OFFSET
    jae .Lout
    and byte ptr gs:[IRQ_FLAGS], 255 - TRACE_FLAG_BH_OFF
.Lout:
    pop rbx
    pop rsi
    EPILOGUE
ENDFUNC __local_bh_enable_ip

# Gives bh back without running what is pending.
FUNC _local_bh_enable
    PROLOGUE
    sub dword ptr gs:[SOFTIRQ_DEPTH], SOFTIRQ_DISABLE_OFFSET
    cmp dword ptr gs:[SOFTIRQ_DEPTH], SOFTIRQ_DISABLE_OFFSET
    jae 1f
    and byte ptr gs:[IRQ_FLAGS], 255 - TRACE_FLAG_BH_OFF
1:
    EPILOGUE
ENDFUNC _local_bh_enable

FUNC __raise_softirq_irqoff
    ENTER1
    mov ebx, edi
    TRACE softirq_raise, .Ltrace
.Ltraced:
    mov ecx, ebx
    mov eax, 1
    shl eax, cl
    or gs:[SOFTIRQ_PENDING], eax
    LEAVE1
.Ltrace:
    mov esi, ebx
    DO_TRACE softirq_raise
    jmp .Ltraced
ENDFUNC __raise_softirq_irqoff

# Interrupts are off. Outside of interrupts nobody would look at the pending bits: wake ksoftirqd.
FUNC_NOTRACE raise_softirq_irqoff
    PROLOGUE
    call __raise_softirq_irqoff
    TEST_IN_INTERRUPT
    jne 1f
    call wakeup_softirqd
1:
    EPILOGUE
ENDFUNC raise_softirq_irqoff

FUNC raise_softirq
    PROLOGUE
    push rbx
    push rbx
    LOCAL_IRQ_SAVE ebx
    call raise_softirq_irqoff
    LOCAL_IRQ_RESTORE ebx
    pop rbx
    pop rbx
    EPILOGUE
ENDFUNC raise_softirq

FUNC_NOTRACE wakeup_softirqd
    PROLOGUE
    mov rdi, gs:[KSOFTIRQD]
    test rdi, rdi
    je 1f
    call wake_up_process
1:
    EPILOGUE
ENDFUNC wakeup_softirqd

# --- ksoftirqd ------------------------------------------------------------------------------------

FUNC ksoftirqd_should_run
    PROLOGUE
    mov eax, gs:[SOFTIRQ_PENDING]
    EPILOGUE
ENDFUNC ksoftirqd_should_run

FUNC run_ksoftirqd
    PROLOGUE
    LOCAL_IRQ_DISABLE
    cmp dword ptr gs:[SOFTIRQ_PENDING], 0
    je .Lidle
    call __do_softirq
    LOCAL_IRQ_ENABLE
    call __cond_resched
    EPILOGUE
.Lidle:
    LOCAL_IRQ_ENABLE
    EPILOGUE
ENDFUNC run_ksoftirqd

# A per-CPU kernel thread: rdi its smp_hotplug_thread. Does not return.
FUNC smpboot_thread_fn
    PROLOGUE
    push rbx
    push rbx
    mov rbx, rdi
.Lloop:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax+TASK_STATE], TASK_INTERRUPTIBLE
    PREEMPT_DISABLE
    mov edi, gs:[CPU_NUMBER]
    call [rbx+SMPBOOT_SHOULD_RUN]
    test eax, eax
    jne .Lrun
    PREEMPT_ENABLE_NO_RESCHED
    call schedule
    jmp .Lloop
.Lrun:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax+TASK_STATE], TASK_RUNNING
    PREEMPT_ENABLE
    mov edi, gs:[CPU_NUMBER]
    call [rbx+SMPBOOT_FN]
    jmp .Lloop
ENDFUNC smpboot_thread_fn

# --- tasklets -------------------------------------------------------------------------------------

# rdi tasklet, rsi function, rdx its argument
FUNC tasklet_init
    PROLOGUE
    mov qword ptr [rdi+TASKLET_NEXT], 0
    mov qword ptr [rdi+TASKLET_STATE], 0
    mov qword ptr [rdi+TASKLET_COUNT], 0
    mov [rdi+TASKLET_FUNC], rsi
    mov [rdi+TASKLET_DATA], rdx
    EPILOGUE
ENDFUNC tasklet_init

# A tasklet whose callback is given the tasklet itself.
FUNC tasklet_setup
    PROLOGUE
    mov rdx, rdi
    call tasklet_init
    EPILOGUE
ENDFUNC tasklet_setup

# Append rdi to the list at gs:[\head]; rax is clobbered.
.macro TASKLET_APPEND head, tail
    mov qword ptr [rdi+TASKLET_NEXT], 0
    mov rax, gs:[\tail]
    test rax, rax
    je 1f
    mov [rax+TASKLET_NEXT], rdi
    jmp 2f
1:
    mov gs:[\head], rdi
2:
    mov gs:[\tail], rdi
.endm

# rdi tasklet, esi its vector; interrupts may be on.
FUNC __tasklet_schedule_common
    PROLOGUE
    push rbx
    push rbx
    LOCAL_IRQ_SAVE ebx
    cmp esi, HI_SOFTIRQ
    je .Lhigh
    TASKLET_APPEND TASKLET_HEAD, TASKLET_TAIL
    jmp .Lraise
.Lhigh:
    TASKLET_APPEND TASKLET_HI_HEAD, TASKLET_HI_TAIL
.Lraise:
    mov edi, esi
    call raise_softirq_irqoff
    LOCAL_IRQ_RESTORE ebx
    pop rbx
    pop rbx
    EPILOGUE
ENDFUNC __tasklet_schedule_common

FUNC __tasklet_schedule
    PROLOGUE
    mov esi, TASKLET_SOFTIRQ
    call __tasklet_schedule_common
    EPILOGUE
ENDFUNC __tasklet_schedule

FUNC __tasklet_hi_schedule
    PROLOGUE
    mov esi, HI_SOFTIRQ
    call __tasklet_schedule_common
    EPILOGUE
ENDFUNC __tasklet_hi_schedule

# Schedules the tasklet in rdi unless it is waiting to run already.
FUNC_NOTRACE tasklet_schedule
    PROLOGUE
    lock bts qword ptr [rdi+TASKLET_STATE], TASKLET_STATE_SCHED
    jb 1f
    call __tasklet_schedule
1:
    EPILOGUE
ENDFUNC tasklet_schedule

FUNC tasklet_action
    PROLOGUE
    LOCAL_IRQ_DISABLE
    mov rdi, gs:[TASKLET_HEAD]
    mov qword ptr gs:[TASKLET_HEAD], 0
    mov qword ptr gs:[TASKLET_TAIL], 0
    LOCAL_IRQ_ENABLE
    mov esi, TASKLET_SOFTIRQ
    call tasklet_action_common.constprop.0
    EPILOGUE
ENDFUNC tasklet_action

FUNC tasklet_hi_action
    PROLOGUE
    LOCAL_IRQ_DISABLE
    mov rdi, gs:[TASKLET_HI_HEAD]
    mov qword ptr gs:[TASKLET_HI_HEAD], 0
    mov qword ptr gs:[TASKLET_HI_TAIL], 0
    LOCAL_IRQ_ENABLE
    mov esi, HI_SOFTIRQ
    call tasklet_action_common.constprop.0
    EPILOGUE
ENDFUNC tasklet_hi_action

# rdi first tasklet of the list taken over, esi its vector. Disabled or running ones go back.
FUNC_STATIC tasklet_action_common.constprop.0
    PROLOGUE
    push rbx
    push r12
    push r13
    push r13
    mov rbx, rdi
    mov r13d, esi
.Lnext:
    test rbx, rbx
    je .Lout
    mov r12, rbx
    mov rbx, [rbx+TASKLET_NEXT]
    lock bts qword ptr [r12+TASKLET_STATE], TASKLET_STATE_RUN
    jb .Lagain
    cmp dword ptr [r12+TASKLET_COUNT], 0
    jne .Ldisabled
    lock btr qword ptr [r12+TASKLET_STATE], TASKLET_STATE_SCHED
    mov rdi, [r12+TASKLET_DATA]
    call [r12+TASKLET_FUNC]
    lock btr qword ptr [r12+TASKLET_STATE], TASKLET_STATE_RUN
    jmp .Lnext
.Ldisabled:
    lock btr qword ptr [r12+TASKLET_STATE], TASKLET_STATE_RUN
.Lagain:
    mov rdi, r12
    mov esi, r13d
    call __tasklet_schedule_common
    jmp .Lnext
.Lout:
    pop r13
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC tasklet_action_common.constprop.0

# Waits until the tasklet in rdi neither runs nor waits to run.
FUNC tasklet_kill
    PROLOGUE
    push rbx
    push rbx
    mov rbx, rdi
.Lwait:
    lock bts qword ptr [rbx+TASKLET_STATE], TASKLET_STATE_SCHED
    jae .Lmine
    call __cond_resched
    pause
    jmp .Lwait
.Lmine:
    lock btr qword ptr [rbx+TASKLET_STATE], TASKLET_STATE_SCHED
    pop rbx
    pop rbx
    EPILOGUE
ENDFUNC tasklet_kill

.data
.balign 64
OBJECT softirq_vec
    .zero 80
ENDOBJECT softirq_vec

OBJECT kstat_softirqs
    .zero 80
ENDOBJECT kstat_softirqs

OBJECT softirq_threads
    .quad ksoftirqd_should_run
    .quad run_ksoftirqd
ENDOBJECT softirq_threads

OBJECT softirq_to_name
    .quad softirq_name_hi, softirq_name_timer, softirq_name_net_tx, softirq_name_net_rx
    .quad softirq_name_block, softirq_name_irq_poll, softirq_name_tasklet, softirq_name_sched
    .quad softirq_name_hrtimer, softirq_name_rcu
ENDOBJECT softirq_to_name
softirq_name_hi:
    .asciz "HI"
softirq_name_timer:
    .asciz "TIMER"
softirq_name_net_tx:
    .asciz "NET_TX"
softirq_name_net_rx:
    .asciz "NET_RX"
softirq_name_block:
    .asciz "BLOCK"
softirq_name_irq_poll:
    .asciz "IRQ_POLL"
softirq_name_tasklet:
    .asciz "TASKLET"
softirq_name_sched:
    .asciz "SCHED"
softirq_name_hrtimer:
    .asciz "HRTIMER"
softirq_name_rcu:
    .asciz "RCU"
.text
