# Names and thread groups for the pids in a trace (kernel/trace/trace_sched_switch.c). While somebody
# wants them these probes leave what they see of tasks in a ring for each CPU, which the host reads
# after every slice.
#
#     ring      u64 count of all entries so far, and from TASKINFO_FIRST on the last TASKINFO_ENTRIES
#     entry     u32 pid, u32 tgid, comm

.text

# r8 = the ring of this CPU; uses rax.
.macro TASKINFO_RING
    mov eax, gs:[CPU_NUMBER]
    imul eax, eax, TASKINFO_RING_BYTES
    lea r8, [rip + taskinfo_rings]
    add r8, rax
.endm

# Uses rax and r9.
.macro RECORD_TASKINFO task
    mov r9, [r8]
    inc qword ptr [r8]
    and r9d, TASKINFO_ENTRIES - 1
    imul r9d, r9d, TASKINFO_BYTES
    mov eax, [\task + TASK_PID]
    mov [r8 + r9 + TASKINFO_FIRST], eax
    mov eax, [\task + TASK_TGID]
    mov [r8 + r9 + TASKINFO_FIRST + 4], eax
    mov rax, [\task + TASK_COMM]
    mov [r8 + r9 + TASKINFO_FIRST + 8], rax
    mov rax, [\task + TASK_COMM + 8]
    mov [r8 + r9 + TASKINFO_FIRST + 16], rax
.endm

# void probe_sched_switch(void *ignore, bool preempt, prev, next, unsigned int prev_state)
FUNC_NOTRACE probe_sched_switch
    TASKINFO_RING
    RECORD_TASKINFO rdx
    RECORD_TASKINFO rcx
    ret
ENDFUNC probe_sched_switch

# void probe_sched_wakeup(void *ignore, struct task_struct *wakee): who wakes it is recorded
FUNC_NOTRACE probe_sched_wakeup
    mov rdx, gs:[CURRENT_TASK]
    TASKINFO_RING
    RECORD_TASKINFO rdx
    ret
ENDFUNC probe_sched_wakeup

.data
.balign 64
OBJECT taskinfo_rings
    .zero TASKINFO_RING_BYTES * 8
ENDOBJECT taskinfo_rings
