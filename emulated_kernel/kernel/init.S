# init/main.c, kernel/sched's and smp's boot parts: from reset to the idle loop. The host has set up
# paging, a stack and the per-CPU page; it left RAM's limits and the CPUs in boot_params.

.text

FUNC_NOTRACE startup_64
    call start_kernel
    ud2
ENDFUNC startup_64

FUNC_NOTRACE secondary_startup_64
    call start_secondary
    ud2
ENDFUNC secondary_startup_64

FUNC_NOTRACE start_kernel               # Linux has it in .init.text, which tracing forgets after boot
    push rbp
    mov rbp, rsp
    push rbx
    mov rdi, gs:[CURRENT_TASK]
    mov rsi, rdi
    add rdi, TASK_CHILDREN
    LIST_INIT rdi
    mov rdi, [rip + boot_params]
    mov rsi, [rip + boot_params + 8]
    call mm_init
    call sched_init
    call timekeeping_init
    call softirq_init
    call rcu_init
    call vfs_caches_init
    call net_dev_init
    call workqueue_init
    call rest_init
    pop rbx
    pop rbp
    ret
ENDFUNC start_kernel

FUNC_NOTRACE start_secondary
    push rbp
    mov rbp, rsp
    call sched_init_cpu
    mov dword ptr gs:[CPU_ONLINE], 1
    call cpu_startup_entry
    ud2
ENDFUNC start_secondary

FUNC_NOTRACE sched_init
    push rbp
    mov rbp, rsp
    mov eax, [rip + boot_params + 16]
    mov [rip + nr_cpu_ids], eax
    call sched_init_cpu
    mov dword ptr gs:[CPU_ONLINE], 1
    pop rbp
    ret
ENDFUNC sched_init

# The idle task of this CPU is the one that runs now; preemption is off in it for good.
FUNC_NOTRACE sched_init_cpu
    mov rdi, gs:[PERCPU_SELF]
    mov rax, gs:[CURRENT_TASK]
    mov ecx, gs:[CPU_NUMBER]
    mov [rax + TASK_CPU], ecx
    mov dword ptr [rax + TASK_PRIO], DEFAULT_PRIO
    mov rdx, 0x2f72657070617773         # "swapper/", and the number of the CPU
    mov [rax + TASK_COMM], rdx
    add ecx, 0x30
    mov [rax + TASK_COMM + 8], rcx
    mov dword ptr [rax + TASK_FLAGS], PF_IDLE + PF_KTHREAD
    mov dword ptr [rax + TASK_USAGE], 2
    mov [rdi + RQ_CURR], rax
    mov [rdi + RQ_IDLE], rax
    mov dword ptr [rdi + RQ_LOCK], 0
    mov dword ptr [rdi + RQ_NR_RUNNING], 0
    mov byte ptr gs:[PREEMPT_DEPTH], 1
    mov dword ptr gs:[CURRENT_PID], 0
    add rdi, RQ_HEAD
    LIST_INIT rdi
    ret
ENDFUNC sched_init_cpu

# Start init and the kernel's own threads, then idle (init/main.c).
FUNC rest_init
    PROLOGUE
    push rbx
    mov rdi, offset kernel_init
    xor esi, esi
    mov rdx, offset init_comm
    call kthread_create_on_node
    mov rbx, rax
    mov [rip + init_process], rax
    mov rdi, rax
    call wake_up_new_task
    mov rdi, offset kthreadd
    xor esi, esi
    mov rdx, offset kthreadd_comm
    call kthread_create_on_node
    mov rdi, rax
    call wake_up_new_task
    call do_pre_smp_initcalls
    call schedule_preempt_disabled
    call cpu_startup_entry
    pop rbx
    EPILOGUE
ENDFUNC rest_init

FUNC schedule_preempt_disabled
    PROLOGUE
    PREEMPT_ENABLE_NO_RESCHED
    call schedule
    PREEMPT_DISABLE
    EPILOGUE
ENDFUNC schedule_preempt_disabled

# Becomes the user task `init`: 0 sends it to user mode.
FUNC_ENDBR kernel_init
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    and dword ptr [rax + TASK_FLAGS], 0xffdfffff    # PF_KTHREAD
    xor eax, eax
    EPILOGUE
ENDFUNC kernel_init

# kernel/kthread.c: sleeps until somebody wants a kernel thread.
FUNC_ENDBR kthreadd
    PROLOGUE
1:  mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax + TASK_STATE], TASK_INTERRUPTIBLE
    call schedule
    jmp 1b
ENDFUNC kthreadd

.data
.balign 64
boot_params:
    .quad 0                             # first free address
    .quad 0                             # end of memory
    .quad 0                             # number of CPUs
percpu_table:                           # __per_cpu_offset: the per-CPU page of each CPU
    .zero 64
OBJECT nr_cpu_ids
    .long 1
ENDOBJECT nr_cpu_ids
init_comm:
    .asciz "init"
kthreadd_comm:
    .asciz "kthreadd"
.balign 64
# The idle tasks; the first is init_task, head of the list of all tasks.
idle_threads:
OBJECT init_task
    .zero TASK_ALL_NEXT
    .quad init_task + TASK_ALL_NEXT
    .quad init_task + TASK_ALL_NEXT
    .quad init_task                     # parent
    .quad init_task + TASK_CHILDREN
    .quad init_task + TASK_CHILDREN
    .quad init_task + TASK_SIBLING
    .quad init_task + TASK_SIBLING
    .zero TASK_SIZE - TASK_SIBLING - 16
ENDOBJECT init_task
    .zero TASK_SIZE * 7
