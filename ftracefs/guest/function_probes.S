# What a command in set_ftrace_filter does in its functions: function_trace_probe_call of
# kernel/trace/ftrace.c, and the commands of kernel/trace/trace_functions.c.
#
# A probe is an op: OP_PROBE_FUNC is what it does, OP_PRIVATE the buffers of its trace array,
# OP_PROBE_DATA its counts by function (struct ftrace_func_mapper), if it counts. Nothing here leaves
# the guest unless there is something to do that only the host can.

# r8 = the count of the function at rdi; goes to \none when there is no such function. Uses rax r10 r11.
.macro FTRACE_FUNC_MAPPER_FIND_IP none
    mov r11, [rdx + OP_PROBE_DATA]
    mov r10, [r11 + MAPPER_TABLE]
    mov eax, edi
    shr eax, 4
1:  and eax, [r11 + MAPPER_MASK]
    mov r8, [r10 + rax*8]
    cmp r8, rdi
    je 2f
    inc eax
    test r8, r8
    jne 1b
    jmp \none
2:  mov r8, [r11 + MAPPER_COUNTS]
    lea r8, [r8 + rax*8]
.endm

# tracer_tracing_is_on of the trace array whose buffer is in r9: not zero says no.
.macro TEST_TRACING_OFF
    test byte ptr [r9 + RB_GUARD], RB_GUARD_OFF | RB_GUARD_DISABLED
.endm

# Linux keeps preemption off meanwhile; here nothing can preempt.
FUNC_NOTRACE function_trace_probe_call
    cmp dword ptr [rip + func_probes_quiet], 0
    jne .Lout
    jmp [rdx + OP_PROBE_FUNC]
.Lout:
    ret
ENDFUNC function_trace_probe_call

.data
OBJECT func_probes_quiet                    # not zero: what runs is the host's own business
    .long 0
ENDOBJECT func_probes_quiet
.text

# --- traceon, traceoff ----------------------------------------------------------------------------

FUNC_NOTRACE ftrace_traceon
    PER_CPU_BUFFER
    TEST_TRACING_OFF
    jne tracer_tracing_on
    ret
ENDFUNC ftrace_traceon

FUNC_NOTRACE ftrace_traceon_count
    FTRACE_FUNC_MAPPER_FIND_IP .Lout
    cmp qword ptr [r8], 0
    jle .Lout
    PER_CPU_BUFFER
    TEST_TRACING_OFF
    je .Lout
    dec qword ptr [r8]
    jmp tracer_tracing_on
.Lout:
    ret
ENDFUNC ftrace_traceon_count

FUNC_NOTRACE ftrace_traceoff
    PER_CPU_BUFFER
    TEST_TRACING_OFF
    je tracer_tracing_off
    ret
ENDFUNC ftrace_traceoff

FUNC_NOTRACE ftrace_traceoff_count
    FTRACE_FUNC_MAPPER_FIND_IP .Lout
    cmp qword ptr [r8], 0
    jle .Lout
    PER_CPU_BUFFER
    TEST_TRACING_OFF
    jne .Lout
    dec qword ptr [r8]
    jmp tracer_tracing_off
.Lout:
    ret
ENDFUNC ftrace_traceoff_count

# The state is that of the guards of all CPUs' buffers; the table of buffers ends with a 0. No other
# vCPU runs meanwhile. Keeps rdi rsi rdx rcx.
FUNC_NOTRACE tracer_tracing_on
    mov r10, [rdx + OP_PRIVATE]
.Lnext:
    mov r9, [r10]
    test r9, r9
    je .Lout
    and dword ptr [r9 + RB_GUARD], ~RB_GUARD_OFF
    add r10, 8
    jmp .Lnext
.Lout:
    ret
ENDFUNC tracer_tracing_on

FUNC_NOTRACE tracer_tracing_off
    mov r10, [rdx + OP_PRIVATE]
.Lnext:
    mov r9, [r10]
    test r9, r9
    je .Lout
    or dword ptr [r9 + RB_GUARD], RB_GUARD_OFF
    add r10, 8
    jmp .Lnext
.Lout:
    ret
ENDFUNC tracer_tracing_off

# --- stacktrace -----------------------------------------------------------------------------------

FUNC_NOTRACE ftrace_stacktrace
    PER_CPU_BUFFER
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lout
    mov eax, 1                              # Linux leaves one function out more than with a count
    mov r8, rsp
    jmp __ftrace_trace_stack
.Lout:
    ret
ENDFUNC ftrace_stacktrace

# Asks whether the top level is being traced, whatever trace array it belongs to, and counts down
# though the record may not be taken, both as Linux does.
FUNC_NOTRACE ftrace_stacktrace_count
    mov eax, gs:[CPU_NUMBER]
    mov r9, [rip + global_trace_buffers]
    mov r9, [r9 + rax*8]
    TEST_TRACING_OFF
    jne .Lout
    FTRACE_FUNC_MAPPER_FIND_IP .Lout
    cmp qword ptr [r8], 0
    je .Lout
    dec qword ptr [r8]
    PER_CPU_BUFFER
    cmp byte ptr [r9 + RB_GUARD], 0
    jne .Lout
    xor eax, eax
    mov r8, rsp
    jmp __ftrace_trace_stack
.Lout:
    ret
ENDFUNC ftrace_stacktrace_count

# --- what the host does ---------------------------------------------------------------------------

FUNC_NOTRACE ftrace_dump_probe
    FTRACE_FUNC_MAPPER_FIND_IP .Lout
    cmp qword ptr [r8], 0
    jle .Lout
    dec qword ptr [r8]
    mov eax, HC_PROBE
    int HYPERCALL
.Lout:
    ret
ENDFUNC ftrace_dump_probe

FUNC_NOTRACE ftrace_cpudump_probe
    mov eax, HC_PROBE
    int HYPERCALL
    ret
ENDFUNC ftrace_cpudump_probe

# --- snapshot -------------------------------------------------------------------------------------

FUNC_NOTRACE ftrace_count_snapshot
    FTRACE_FUNC_MAPPER_FIND_IP .Lout
    cmp qword ptr [r8], 0
    jle .Lout
    dec qword ptr [r8]
    jmp ftrace_snapshot
.Lout:
    ret
ENDFUNC ftrace_count_snapshot

FUNC_NOTRACE ftrace_snapshot
    push rdi
    push rsi
    push rdx
    push rcx
    mov rdi, [rdx + OP_PRIVATE]
    call tracing_snapshot_instance
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    ret
ENDFUNC ftrace_snapshot

# --- enable_event, disable_event ------------------------------------------------------------------

# The number of a function is the address of a struct event_probe_data, which all functions of a
# command share. update_event_probe of the one in r8; uses r9.
.macro UPDATE_EVENT_PROBE
    mov r9, [r8 + EVENT_PROBE_FILE]
    cmp dword ptr [r8 + EVENT_PROBE_ENABLE], 0
    je 3f
    and dword ptr [r9 + EVENT_FILE_FLAGS], ~EVENT_FILE_FL_SOFT_DISABLED
    ret
3:  or dword ptr [r9 + EVENT_FILE_FLAGS], EVENT_FILE_FL_SOFT_DISABLED
    ret
.endm

FUNC_NOTRACE event_enable_probe
    FTRACE_FUNC_MAPPER_FIND_IP .Lout
    mov r8, [r8]
    UPDATE_EVENT_PROBE
.Lout:
    ret
ENDFUNC event_enable_probe

FUNC_NOTRACE event_enable_count_probe
    FTRACE_FUNC_MAPPER_FIND_IP .Lout
    mov r8, [r8]
    cmp qword ptr [r8 + EVENT_PROBE_COUNT], 0
    je .Lout
    mov r9, [r8 + EVENT_PROBE_FILE]
    xor eax, eax
    test dword ptr [r9 + EVENT_FILE_FLAGS], EVENT_FILE_FL_SOFT_DISABLED
    sete al                                 # whether it records
    cmp eax, [r8 + EVENT_PROBE_ENABLE]
    je .Lout
    cmp qword ptr [r8 + EVENT_PROBE_COUNT], -1
    je .Lunlimited
    dec qword ptr [r8 + EVENT_PROBE_COUNT]
.Lunlimited:
    UPDATE_EVENT_PROBE
.Lout:
    ret
ENDFUNC event_enable_count_probe
