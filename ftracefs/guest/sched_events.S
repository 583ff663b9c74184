# The probes of the scheduler's events (include/trace/events/sched.h): what stands in TP_STRUCT__entry
# and TP_fast_assign there. rdi is the trace_event_file, the tracepoint's arguments follow.

SCHED_SWITCH_PREV_COMM = 8
SCHED_SWITCH_PREV_PID = 24
SCHED_SWITCH_PREV_PRIO = 28
SCHED_SWITCH_PREV_STATE = 32
SCHED_SWITCH_NEXT_COMM = 40
SCHED_SWITCH_NEXT_PID = 56
SCHED_SWITCH_NEXT_PRIO = 60
SCHED_SWITCH_BYTES = 64

TASK_REPORT = 0x7f                      # the states that are told from each other
TASK_REPORT_IDLE = 0x80
TASK_REPORT_MAX = 0x100                 # was preempted

# void trace_event_raw_event_sched_switch(file, bool preempt, prev, next, unsigned int prev_state)
FUNC_NOTRACE trace_event_raw_event_sched_switch
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    push r13
    push r14
    mov ebx, esi
    mov r12, rdx
    mov r13, rcx
    mov r14d, r8d
    EVENT_RESERVE SCHED_SWITCH_BYTES, .Lout
    ASSIGN_COMM SCHED_SWITCH_PREV_COMM, r12
    ASSIGN32 SCHED_SWITCH_PREV_PID, [r12 + TASK_PID]
    ASSIGN32 SCHED_SWITCH_PREV_PRIO, [r12 + TASK_PRIO]
    ASSIGN_COMM SCHED_SWITCH_NEXT_COMM, r13
    ASSIGN32 SCHED_SWITCH_NEXT_PID, [r13 + TASK_PID]
    ASSIGN32 SCHED_SWITCH_NEXT_PRIO, [r13 + TASK_PRIO]

    mov eax, TASK_REPORT_MAX            # __trace_sched_switch_state
    test ebx, ebx
    jne .Lstate
    mov eax, TASK_REPORT_IDLE
    cmp r14d, TASK_IDLE
    je .Lstate
    or r14d, [r12 + TASK_EXIT_STATE]
    xor eax, eax
    and r14d, TASK_REPORT
    je .Lstate
    bsr ecx, r14d                       # the highest of them
    inc eax
    shl eax, cl
.Lstate:
    mov [r10 + ENTRY + SCHED_SWITCH_PREV_STATE], rax
    EVENT_COMMIT
.Lout:
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC trace_event_raw_event_sched_switch

SCHED_WAKEUP_COMM = 8
SCHED_WAKEUP_PID = 24
SCHED_WAKEUP_PRIO = 28
SCHED_WAKEUP_TARGET_CPU = 32
SCHED_WAKEUP_BYTES = 36

# void trace_event_raw_event_sched_wakeup_template(file, task)
FUNC_NOTRACE trace_event_raw_event_sched_wakeup_template
    push rbp
    mov rbp, rsp
    EVENT_RESERVE SCHED_WAKEUP_BYTES, .Lout
    ASSIGN_COMM SCHED_WAKEUP_COMM, rsi
    ASSIGN32 SCHED_WAKEUP_PID, [rsi + TASK_PID]
    ASSIGN32 SCHED_WAKEUP_PRIO, [rsi + TASK_PRIO]
    ASSIGN32 SCHED_WAKEUP_TARGET_CPU, [rsi + TASK_CPU]
    EVENT_COMMIT
.Lout:
    pop rbp
    ret
ENDFUNC trace_event_raw_event_sched_wakeup_template

SCHED_MIGRATE_COMM = 8
SCHED_MIGRATE_PID = 24
SCHED_MIGRATE_PRIO = 28
SCHED_MIGRATE_ORIG_CPU = 32
SCHED_MIGRATE_DEST_CPU = 36
SCHED_MIGRATE_BYTES = 40

# void trace_event_raw_event_sched_migrate_task(file, task, int dest_cpu)
FUNC_NOTRACE trace_event_raw_event_sched_migrate_task
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov ebx, edx
    EVENT_RESERVE SCHED_MIGRATE_BYTES, .Lout
    ASSIGN_COMM SCHED_MIGRATE_COMM, rsi
    ASSIGN32 SCHED_MIGRATE_PID, [rsi + TASK_PID]
    ASSIGN32 SCHED_MIGRATE_PRIO, [rsi + TASK_PRIO]
    ASSIGN32 SCHED_MIGRATE_ORIG_CPU, [rsi + TASK_CPU]
    mov [r10 + ENTRY + SCHED_MIGRATE_DEST_CPU], ebx
    EVENT_COMMIT
.Lout:
    pop rbx
    pop rbx
    pop rbp
    ret
ENDFUNC trace_event_raw_event_sched_migrate_task

SCHED_PROCESS_COMM = 8
SCHED_PROCESS_PID = 24
SCHED_PROCESS_PRIO = 28
SCHED_PROCESS_BYTES = 32

# void trace_event_raw_event_sched_process_template(file, task)
FUNC_NOTRACE trace_event_raw_event_sched_process_template
    push rbp
    mov rbp, rsp
    EVENT_RESERVE SCHED_PROCESS_BYTES, .Lout
    ASSIGN_COMM SCHED_PROCESS_COMM, rsi
    ASSIGN32 SCHED_PROCESS_PID, [rsi + TASK_PID]
    ASSIGN32 SCHED_PROCESS_PRIO, [rsi + TASK_PRIO]
    EVENT_COMMIT
.Lout:
    pop rbp
    ret
ENDFUNC trace_event_raw_event_sched_process_template

# void trace_event_raw_event_sched_process_wait(file, pid_t pid): the task is the one that waits
FUNC_NOTRACE trace_event_raw_event_sched_process_wait
    push rbp
    mov rbp, rsp
    EVENT_RESERVE SCHED_PROCESS_BYTES, .Lout
    mov rdx, gs:[CURRENT_TASK]
    ASSIGN_COMM SCHED_PROCESS_COMM, rdx
    mov [r10 + ENTRY + SCHED_PROCESS_PID], esi
    ASSIGN32 SCHED_PROCESS_PRIO, [rdx + TASK_PRIO]
    EVENT_COMMIT
.Lout:
    pop rbp
    ret
ENDFUNC trace_event_raw_event_sched_process_wait

SCHED_PROCESS_FORK_PARENT_COMM = 8
SCHED_PROCESS_FORK_PARENT_PID = 24
SCHED_PROCESS_FORK_CHILD_COMM = 28
SCHED_PROCESS_FORK_CHILD_PID = 44
SCHED_PROCESS_FORK_BYTES = 48

# void trace_event_raw_event_sched_process_fork(file, parent, child)
FUNC_NOTRACE trace_event_raw_event_sched_process_fork
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov rbx, rdx
    EVENT_RESERVE SCHED_PROCESS_FORK_BYTES, .Lout
    ASSIGN_COMM SCHED_PROCESS_FORK_PARENT_COMM, rsi
    ASSIGN32 SCHED_PROCESS_FORK_PARENT_PID, [rsi + TASK_PID]
    ASSIGN_COMM SCHED_PROCESS_FORK_CHILD_COMM, rbx
    ASSIGN32 SCHED_PROCESS_FORK_CHILD_PID, [rbx + TASK_PID]
    EVENT_COMMIT
.Lout:
    pop rbx
    pop rbx
    pop rbp
    ret
ENDFUNC trace_event_raw_event_sched_process_fork

SCHED_PROCESS_EXEC_FILENAME = 8         # __data_loc: length << 16 | offset
SCHED_PROCESS_EXEC_PID = 12
SCHED_PROCESS_EXEC_OLD_PID = 16
SCHED_PROCESS_EXEC_BYTES = 20           # and the name behind it

# void trace_event_raw_event_sched_process_exec(file, task, pid_t old_pid, bprm)
FUNC_NOTRACE trace_event_raw_event_sched_process_exec
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    push r13
    push r13
    mov ebx, edx
    mov r13, rsi
    mov rsi, [rcx + BPRM_FILENAME]
    EVENT_STRING SCHED_PROCESS_EXEC_BYTES, .Lout
    ASSIGN32 SCHED_PROCESS_EXEC_PID, [r13 + TASK_PID]
    mov [r10 + ENTRY + SCHED_PROCESS_EXEC_OLD_PID], ebx
    ASSIGN_STR SCHED_PROCESS_EXEC_FILENAME, SCHED_PROCESS_EXEC_BYTES
    EVENT_COMMIT
.Lout:
    pop r13
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC trace_event_raw_event_sched_process_exec
