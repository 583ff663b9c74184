# Which tasks the function tracers trace (kernel/trace/ftrace.c). While a trace array has a list of
# pids, a word for each CPU tells whom it traces there: a pid, nobody, or (without a list) everybody.
# The probe of sched_switch keeps it, so that a traced call asks nothing else.

.text

# Called by a trampoline in place of the op's callback while its trace array has a list of pids. A CPU
# whose next task has been chosen already is still the last one's: then the word is not current's pid.
.balign 128, 0xcc
FUNC_NOTRACE ftrace_pid_func
    mov r8, [rdx + OP_TRACE_ARRAY]
    test r8, r8
    je .Lcall
    mov eax, gs:[CPU_NUMBER]
    mov eax, [r8 + rax*4 + TR_FTRACE_IGNORE_PID]
    cmp eax, gs:[CURRENT_PID]
    jne .Lother
.Lcall:
    jmp [rdx + OP_SAVED_FUNC]
.Lother:
    cmp eax, FTRACE_PID_TRACE
    je .Lcall
    ret
ENDFUNC ftrace_pid_func

# void ftrace_filter_pid_sched_switch_probe(struct trace_array *tr, bool preempt, prev, next, prev_state)
FUNC_NOTRACE ftrace_filter_pid_sched_switch_probe
    push rdi
    mov rdx, rcx
    mov rsi, [rdi + TR_FUNCTION_NO_PIDS]
    mov rdi, [rdi + TR_FUNCTION_PIDS]
    call trace_ignore_this_task
    pop rdi
    mov ecx, FTRACE_PID_IGNORE
    test eax, eax
    jne 1f
    mov ecx, [rdx + TASK_PID]
1:  mov eax, gs:[CPU_NUMBER]
    mov [rdi + rax*4 + TR_FTRACE_IGNORE_PID], ecx
    ret
ENDFUNC ftrace_filter_pid_sched_switch_probe

# void ftrace_pid_follow_sched_process_fork(struct trace_array *tr, self, task)
FUNC_NOTRACE ftrace_pid_follow_sched_process_fork
    push rdi
    push rsi
    mov rdi, [rdi + TR_FUNCTION_PIDS]
    call trace_filter_add_remove_task
    pop rsi
    pop rdi
    mov rdi, [rdi + TR_FUNCTION_NO_PIDS]
    jmp trace_filter_add_remove_task
ENDFUNC ftrace_pid_follow_sched_process_fork

# void ftrace_pid_follow_sched_process_exit(struct trace_array *tr, task)
FUNC_NOTRACE ftrace_pid_follow_sched_process_exit
    mov rdx, rsi
    xor esi, esi
    jmp ftrace_pid_follow_sched_process_fork
ENDFUNC ftrace_pid_follow_sched_process_exit
