# The probes of the events of power management (include/trace/events/power.h).

CPU_STATE = 8
CPU_CPU_ID = 12
CPU_BYTES = 16

# void trace_event_raw_event_cpu(file, unsigned int state, unsigned int cpu_id)
FUNC_NOTRACE trace_event_raw_event_cpu
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov ebx, edx
    EVENT_RESERVE CPU_BYTES, .Lout
    mov [r10 + ENTRY + CPU_STATE], esi
    mov [r10 + ENTRY + CPU_CPU_ID], ebx
    EVENT_COMMIT
.Lout:
    pop rbx
    pop rbx
    pop rbp
    ret
ENDFUNC trace_event_raw_event_cpu
