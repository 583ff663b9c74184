# Which tasks' events a trace array records (kernel/trace/trace_events.c). While it has a list of pids a
# byte for each CPU tells whether what runs there is to be ignored. Probes around those of the events
# keep it: before a switch or a wake-up it is set for both tasks, behind it for the one that runs.

.text

# eax = whether a task is to be ignored, by both lists of the trace array in rbx, by the list of those
# to trace, by the list of those not to trace. Keeps rcx.
.macro IGNORE_THIS_TASK task
    mov rdi, [rbx + TR_FILTERED_PIDS]
    mov rsi, [rbx + TR_FILTERED_NO_PIDS]
    mov rdx, \task
    call trace_ignore_this_task
.endm
.macro NOT_LISTED task
    mov rdi, [rbx + TR_FILTERED_PIDS]
    xor esi, esi
    mov rdx, \task
    call trace_ignore_this_task
.endm
.macro LISTED_AS_IGNORED task
    xor edi, edi
    mov rsi, [rbx + TR_FILTERED_NO_PIDS]
    mov rdx, \task
    call trace_ignore_this_task
.endm

.macro SET_IGNORE_PID
    mov ecx, gs:[CPU_NUMBER]
    mov [rbx + rcx + TR_IGNORE_PID], al
.endm

# void event_filter_pid_sched_switch_probe_pre(struct trace_array *tr, bool preempt, prev, next, …)
# A switch is of interest if either task is.
FUNC_NOTRACE event_filter_pid_sched_switch_probe_pre
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    push r13
    push r13
    mov rbx, rdi
    mov r12, rdx
    mov r13, rcx
    LISTED_AS_IGNORED r12
    test eax, eax
    je .Lpids
    LISTED_AS_IGNORED r13
    test eax, eax
    jne .Lset
.Lpids:
    NOT_LISTED r12
    test eax, eax
    je .Lset
    NOT_LISTED r13
.Lset:
    SET_IGNORE_PID
    pop r13
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC event_filter_pid_sched_switch_probe_pre

# void event_filter_pid_sched_switch_probe_post(struct trace_array *tr, bool preempt, prev, next, …)
FUNC_NOTRACE event_filter_pid_sched_switch_probe_post
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov rbx, rdi
    IGNORE_THIS_TASK rcx
    SET_IGNORE_PID
    pop rbx
    pop rbx
    pop rbp
    ret
ENDFUNC event_filter_pid_sched_switch_probe_post

# void event_filter_pid_sched_wakeup_probe_pre(struct trace_array *tr, struct task_struct *task)
# What an ignored task does to one that is not ignored is of interest.
FUNC_NOTRACE event_filter_pid_sched_wakeup_probe_pre
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov rbx, rdi
    mov ecx, gs:[CPU_NUMBER]
    cmp byte ptr [rbx + rcx + TR_IGNORE_PID], 0
    je .Lout
    mov rcx, rsi
    IGNORE_THIS_TASK rcx
    SET_IGNORE_PID
.Lout:
    pop rbx
    pop rbx
    pop rbp
    ret
ENDFUNC event_filter_pid_sched_wakeup_probe_pre

# void event_filter_pid_sched_wakeup_probe_post(struct trace_array *tr, struct task_struct *task)
FUNC_NOTRACE event_filter_pid_sched_wakeup_probe_post
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov rbx, rdi
    mov ecx, gs:[CPU_NUMBER]
    cmp byte ptr [rbx + rcx + TR_IGNORE_PID], 0
    jne .Lout
    IGNORE_THIS_TASK gs:[CURRENT_TASK]
    SET_IGNORE_PID
.Lout:
    pop rbx
    pop rbx
    pop rbp
    ret
ENDFUNC event_filter_pid_sched_wakeup_probe_post

# void event_filter_pid_sched_process_fork(struct trace_array *tr, self, task)
FUNC_NOTRACE event_filter_pid_sched_process_fork
    push rdi
    push rsi
    mov rdi, [rdi + TR_FILTERED_PIDS]
    call trace_filter_add_remove_task
    pop rsi
    pop rdi
    mov rdi, [rdi + TR_FILTERED_NO_PIDS]
    jmp trace_filter_add_remove_task
ENDFUNC event_filter_pid_sched_process_fork

# void event_filter_pid_sched_process_exit(struct trace_array *tr, task)
FUNC_NOTRACE event_filter_pid_sched_process_exit
    mov rdx, rsi
    xor esi, esi
    jmp event_filter_pid_sched_process_fork
ENDFUNC event_filter_pid_sched_process_exit
