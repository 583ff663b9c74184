# kernel/workqueue.c: work done by kernel threads, one worker for each CPU.
# Left out: more workers when one sleeps, unbound pools, priorities, limits on a queue's active
# work.

.text

FUNC_NOTRACE workqueue_init
    ENTER2
    xor ebx, ebx
.Lnext:
    mov edi, POOL_SIZE
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lout
    mov rdi, rax
    mov esi, ebx
    call init_worker_pool
    mov rcx, [percpu_table + rbx*8]
    mov [rcx + WORKER_POOL], rax
    inc ebx
    cmp ebx, [rip + nr_cpu_ids]
    jb .Lnext
.Lout:
    LEAVE2
ENDFUNC workqueue_init

FUNC init_worker_pool                   # rdi pool, esi CPU; rax pool
    PROLOGUE
    mov rax, rdi
    mov dword ptr [rax + POOL_LOCK], 0
    mov [rax + POOL_CPU], esi
    lea rdi, [rax + POOL_WORKLIST]
    LIST_INIT rdi
    mov qword ptr [rax + POOL_WORKER], 0
    mov qword ptr [rax + POOL_CURRENT_WORK], 0
    mov qword ptr [rax + POOL_CURRENT_FUNC], 0
    EPILOGUE
ENDFUNC init_worker_pool

# A kernel thread that stays on one CPU. rdi function, rsi argument, rdx name, ecx CPU; rax task.
FUNC kthread_create_on_cpu
    ENTER1
    push rax
    mov ebx, ecx
    call kthread_create_on_node
    cmp rax, -4095
    jae 1f
    mov [rax + TASK_CPU], ebx
    mov dword ptr [rax + TASK_STATE], TASK_UNINTERRUPTIBLE
1:
    LEAVE1
ENDFUNC kthread_create_on_cpu

FUNC create_worker                      # rdi pool; rax its worker's task or an error
    ENTER2
    sub rsp, 32
    mov rbx, rdi
    mov rdi, rsp
    mov esi, 16
    mov rdx, offset worker_name_format
    mov ecx, [rbx + POOL_CPU]
    xor r8d, r8d
    call snprintf
    mov rdi, offset worker_thread
    mov rsi, rbx
    mov rdx, rsp
    mov ecx, [rbx + POOL_CPU]
    call kthread_create_on_cpu
    cmp rax, -4095
    jae .Lout
    mov r12, rax
    mov [rbx + POOL_WORKER], rax
    mov rdi, rax
    call wake_up_process
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC create_worker

# The per-CPU kernel threads of softirqs and work queues, once threads can be made; each
# early_initcall.
FUNC_NOTRACE do_pre_smp_initcalls
    ENTER2
    sub rsp, 32
    xor ebx, ebx
.Lnext:
    mov rdi, rsp
    mov esi, 16
    mov rdx, offset ksoftirqd_name_format
    mov ecx, ebx
    call snprintf
    mov rdi, offset smpboot_thread_fn
    mov rsi, offset softirq_threads
    mov rdx, rsp
    mov ecx, ebx
    call kthread_create_on_cpu
    cmp rax, -4095
    jae .Lworker
    mov rcx, [percpu_table + rbx*8]
    mov [rcx + KSOFTIRQD], rax
    mov rdi, rax
    call wake_up_process
.Lworker:
    mov rcx, [percpu_table + rbx*8]
    mov rdi, [rcx + WORKER_POOL]
    test rdi, rdi
    je .Lout
    call create_worker
    inc ebx
    cmp ebx, [rip + nr_cpu_ids]
    jb .Lnext
    call start_shepherd_timer
.Lout:
    LEAVE2
ENDFUNC do_pre_smp_initcalls

# --- queueing -------------------------------------------------------------------------------------

# edi CPU, rsi queue, rdx work; eax: whether it was not queued
FUNC queue_work_on
    ENTER2
    LOCAL_IRQ_SAVE r12d
    xor ebx, ebx
    lock bts qword ptr [rdx + WORK_DATA], 0
    jb 1f
    call __queue_work
    mov ebx, 1
1:
    LOCAL_IRQ_RESTORE r12d
    mov eax, ebx
    LEAVE2
ENDFUNC queue_work_on

FUNC __queue_work                       # edi CPU, rsi queue, rdx work; interrupts off
    ENTER3
    mov r12, rdx
    mov r13, rsi
    cmp edi, [rip + nr_cpu_ids]
    jb 1f
    mov edi, gs:[CPU_NUMBER]
1:
    mov edi, edi
    mov rax, [percpu_table + rdi*8]
    mov rbx, [rax + WORKER_POOL]
    mov [r12 + WORK_WQ], r13
    test r13, r13
    je 2f
    lock inc qword ptr [r13 + WORKQUEUE_IN_FLIGHT]
2:
    mov rdi, rbx
    call _raw_spin_lock
    mov rdi, rbx
    mov rsi, r12
    lea rdx, [rbx + POOL_WORKLIST]
    call insert_work
    mov rdi, rbx
    call _raw_spin_unlock
    LEAVE3
ENDFUNC __queue_work

FUNC insert_work                        # rdi pool, locked, rsi work, rdx list entry to come before
    PROLOGUE
    mov rax, rdi
    or rax, WORK_STRUCT_PENDING
    mov [rsi + WORK_DATA], rax
    lea rcx, [rsi + WORK_ENTRY]
    LIST_ADD_TAIL rcx, rdx, rax
    cmp dword ptr [rdi + POOL_IDLE], 0
    je 1f
    mov rdi, [rdi + POOL_WORKER]
    test rdi, rdi
    je 1f
    call wake_up_process
1:
    EPILOGUE
ENDFUNC insert_work

FUNC delayed_work_timer_fn              # rdi the timer of a delayed work
    ENTER1
    push rax
    LOCAL_IRQ_SAVE ebx
    lea rdx, [rdi - DWORK_TIMER]
    mov rsi, [rdx + WORK_WQ]
    mov edi, [rdx + DWORK_CPU]
    call __queue_work
    LOCAL_IRQ_RESTORE ebx
    LEAVE1
ENDFUNC delayed_work_timer_fn

FUNC __queue_delayed_work               # edi CPU, rsi queue, rdx delayed work, rcx ticks
    ENTER2
    test rcx, rcx
    je .Lnow
    mov rbx, rdx
    mov [rdx + WORK_WQ], rsi
    mov [rdx + DWORK_CPU], edi
    mov r12d, edi
    lea rdi, [rdx + DWORK_TIMER]
    mov rax, [rip + jiffies_64]
    add rax, rcx
    mov [rdi + TIMER_EXPIRES], rax
    mov rax, offset delayed_work_timer_fn
    mov [rdi + TIMER_FUNCTION], rax
    cmp r12d, [rip + nr_cpu_ids]
    jae .Lanywhere
    mov esi, r12d
    call add_timer_on
    LEAVE2
.Lanywhere:
    mov eax, gs:[CPU_NUMBER]
    mov [rdi + TIMER_FLAGS], eax
    call add_timer
    LEAVE2
.Lnow:
    call __queue_work
    LEAVE2
ENDFUNC __queue_delayed_work

# edi CPU, rsi queue, rdx delayed work, rcx ticks; eax as above
FUNC queue_delayed_work_on
    ENTER2
    LOCAL_IRQ_SAVE r12d
    xor ebx, ebx
    lock bts qword ptr [rdx + WORK_DATA], 0
    jb 1f
    call __queue_delayed_work
    mov ebx, 1
1:
    LOCAL_IRQ_RESTORE r12d
    mov eax, ebx
    LEAVE2
ENDFUNC queue_delayed_work_on

# rdi work, esi whether it may be delayed: eax 1 with the work taken back, or 0 when it was idle.
# Either way its pending bit is ours.
FUNC try_to_grab_pending
    ENTER4
    mov rbx, rdi
    LOCAL_IRQ_SAVE r12d
    mov r14d, 1
    test esi, esi
    je .Lnot_delayed
    cmp qword ptr [rdi + DWORK_TIMER + TIMER_PPREV], 0
    je .Lnot_delayed
    lea rdi, [rbx + DWORK_TIMER]
    call timer_delete
    test eax, eax
    jne .Lout
.Lnot_delayed:
    xor r14d, r14d
    lock bts qword ptr [rbx + WORK_DATA], 0
    jae .Lout
    mov r13, [rbx + WORK_DATA]
    and r13, -2
    je .Lout
    mov rdi, r13
    call _raw_spin_lock
    lea rax, [rbx + WORK_ENTRY]
    cmp qword ptr [rax], 0
    je .Lunlock
    LIST_DEL rax, rcx, rdx
    mov qword ptr [rax], 0
    mov rdi, [rbx + WORK_WQ]
    call pwq_dec_nr_in_flight
    mov r14d, 1
.Lunlock:
    mov rdi, r13
    call _raw_spin_unlock
.Lout:
    LOCAL_IRQ_RESTORE r12d
    mov eax, r14d
    LEAVE4
ENDFUNC try_to_grab_pending

FUNC cancel_delayed_work                # rdi delayed work; eax: whether it was pending
    ENTER1
    push rax
    mov rbx, rdi
    mov esi, 1
    call try_to_grab_pending
    lock and qword ptr [rbx + WORK_DATA], ~WORK_STRUCT_PENDING
    LEAVE1
ENDFUNC cancel_delayed_work

FUNC mod_delayed_work_on                # edi CPU, rsi queue, rdx delayed work, rcx ticks
    ENTER5
    push rax
    mov ebx, edi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov rdi, rdx
    mov esi, 1
    call try_to_grab_pending
    mov r15d, eax
    mov edi, ebx
    mov rsi, r12
    mov rdx, r13
    mov rcx, r14
    LOCAL_IRQ_SAVE ebx
    call __queue_delayed_work
    LOCAL_IRQ_RESTORE ebx
    mov eax, r15d
    LEAVE5
ENDFUNC mod_delayed_work_on

FUNC __cancel_work_timer                # rdi work, esi whether it is delayed
    ENTER2
    mov rbx, rdi
    call try_to_grab_pending
    mov r12d, eax
    mov rdi, rbx
    call __flush_work
    lock and qword ptr [rbx + WORK_DATA], ~WORK_STRUCT_PENDING
    mov eax, r12d
    LEAVE2
ENDFUNC __cancel_work_timer

FUNC cancel_work_sync
    PROLOGUE
    xor esi, esi
    call __cancel_work_timer
    EPILOGUE
ENDFUNC cancel_work_sync

# --- waiting --------------------------------------------------------------------------------------

WQ_BARRIER_DONE = 40                    # struct wq_barrier {work, completion}

FUNC wq_barrier_func                    # rdi the barrier's work
    PROLOGUE
    add rdi, WQ_BARRIER_DONE
    call complete
    EPILOGUE
ENDFUNC wq_barrier_func

# rdi work: wait until it is neither queued nor running. eax: whether there was a need to.
FUNC __flush_work
    ENTER3
    sub rsp, WORK_SIZE + COMPLETION_SIZE
    mov rbx, rdi
    mov r12, [rdi + WORK_DATA]
    and r12, -2
    je .Lidle
    mov rdi, r12
    call _raw_spin_lock_irq
    lea rdx, [r12 + POOL_WORKLIST]
    mov rdx, [rdx]
    cmp [r12 + POOL_CURRENT_WORK], rbx
    je .Lbarrier
    mov rdx, [rbx + WORK_ENTRY]
    test rdx, rdx
    je .Lunlock
.Lbarrier:
    mov rsi, rsp
    mov rax, offset wq_barrier_func
    mov [rsi + WORK_FUNC], rax
    xor eax, eax
    mov [rsi + WORK_WQ], rax
    mov [rsi + WQ_BARRIER_DONE], rax
    mov [rsi + WQ_BARRIER_DONE + 8], rax
    mov [rsi + WQ_BARRIER_DONE + 16], rax
    mov rdi, r12
    call insert_work
    mov rdi, r12
    call _raw_spin_unlock_irq
    lea rdi, [rsp + WQ_BARRIER_DONE]
    call wait_for_completion
    mov eax, 1
    LEAVE3
.Lunlock:
    mov rdi, r12
    call _raw_spin_unlock_irq
.Lidle:
    xor eax, eax
    LEAVE3
ENDFUNC __flush_work

FUNC flush_work
    PROLOGUE
    call __flush_work
    EPILOGUE
ENDFUNC flush_work

FUNC __flush_workqueue                  # rdi queue: until none of its work is in flight
    ENTER1
    push rax
    mov rbx, rdi
.Lwait:
    cmp qword ptr [rbx + WORKQUEUE_IN_FLIGHT], 0
    je .Lout
    mov edi, 1
    call schedule_timeout_uninterruptible
    jmp .Lwait
.Lout:
    LEAVE1
ENDFUNC __flush_workqueue

FUNC alloc_workqueue                    # rdi name, esi flags, edx most active; rax queue or 0
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    mov edi, WORKQUEUE_SIZE
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    test rax, rax
    je 1f
    mov [rax + WORKQUEUE_NAME], rbx
    mov [rax + WORKQUEUE_FLAGS], r12
1:
    LEAVE2
ENDFUNC alloc_workqueue

FUNC destroy_workqueue
    ENTER1
    push rax
    mov rbx, rdi
    call __flush_workqueue
    mov rdi, rbx
    call kfree
    LEAVE1
ENDFUNC destroy_workqueue

# --- workers --------------------------------------------------------------------------------------

FUNC worker_enter_idle                  # rdi pool
    PROLOGUE
    mov dword ptr [rdi + POOL_IDLE], 1
    EPILOGUE
ENDFUNC worker_enter_idle

FUNC worker_thread                      # rdi pool; does not return
    ENTER2
    mov rbx, rdi
.Lwoken:
    mov rdi, rbx
    call _raw_spin_lock_irq
    mov dword ptr [rbx + POOL_IDLE], 0
.Lnext:
    mov rsi, [rbx + POOL_WORKLIST]
    lea rax, [rbx + POOL_WORKLIST]
    cmp rsi, rax
    je .Lsleep
    mov rdi, rbx
    sub rsi, WORK_ENTRY
    call process_one_work
    jmp .Lnext
.Lsleep:
    mov rdi, rbx
    call worker_enter_idle
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_IDLE
    mov rdi, rbx
    call _raw_spin_unlock_irq
    call schedule
    jmp .Lwoken
ENDFUNC worker_thread

FUNC pwq_dec_nr_in_flight               # rdi queue or 0: one of its works is done or taken back
    PROLOGUE
    test rdi, rdi
    je 1f
    lock dec qword ptr [rdi + WORKQUEUE_IN_FLIGHT]
1:
    EPILOGUE
ENDFUNC pwq_dec_nr_in_flight

FUNC process_one_work                   # rdi pool, locked with interrupts off, rsi work
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    lea rax, [r12 + WORK_ENTRY]
    LIST_DEL rax, rcx, rdx
    mov qword ptr [rax], 0
    mov [rbx + POOL_CURRENT_WORK], r12
    mov r13, [r12 + WORK_FUNC]
    mov [rbx + POOL_CURRENT_FUNC], r13
    mov r14, [r12 + WORK_WQ]            # the work may be freed by its own function
    lock and qword ptr [r12 + WORK_DATA], ~WORK_STRUCT_PENDING
    mov rdi, rbx
    call _raw_spin_unlock_irq
    mov rdi, r12
    call r13
    call __cond_resched
    mov rdi, rbx
    call _raw_spin_lock_irq
    mov qword ptr [rbx + POOL_CURRENT_WORK], 0
    mov qword ptr [rbx + POOL_CURRENT_FUNC], 0
    inc qword ptr [rbx + POOL_NR_DONE]
    mov rdi, r14
    call pwq_dec_nr_in_flight
    LEAVE4
ENDFUNC process_one_work

.data
.balign 8
OBJECT system_wq
    .quad system_wq_name, 0, 0, 0
ENDOBJECT system_wq
system_wq_name:
    .asciz "events"
worker_name_format:
    .asciz "kworker/%d:%d"
ksoftirqd_name_format:
    .asciz "ksoftirqd/%d"
.text
