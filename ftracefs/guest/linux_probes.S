# The engine's probes in a Linux's own tracepoints. They take tasks as the engine describes them, so one
# of these stands before each: its word leads to {the probe, its own word}, and of each of Linux's tasks
# it makes what the probe can read: the task's mirror, if there is one, or a view with its numbers and
# its name.

.text

# rax = what stands for Linux's task at rax, \view if nothing else does. Uses r10 r11.
.macro VIEW task, view
    mov rax, \task
    lea r10, [rip + \view]
    call linux_view_task
    mov \task, r10
.endm

# rax a task of Linux's, r10 a view: r10 becomes the mirror if there is one. Uses r11.
FUNC_NOTRACE linux_view_task
    push rcx
    push r8
    push r9
    mov r8, [rip + task_mirrors]
    mov ecx, eax
    shr ecx, 6
.Lprobe:
    and ecx, [rip + task_mirrors_mask]
    mov r9d, ecx
    shl r9, 4
    add r9, r8
    inc ecx
    cmp qword ptr [r9], 0
    je .Lfill
    cmp rax, [r9]
    jne .Lprobe
    mov r9, [r9 + 8]
    mov r11, [rax + LINUX_STACK_CANARY]
    cmp r11, [r9 + TASK_PRIVATE]
    jne .Lfill
    mov r10, r9
.Lfill:
    mov r11d, [rax + LINUX_PID]
    mov [r10 + TASK_PID], r11d
    mov r11d, [rax + LINUX_TGID]
    mov [r10 + TASK_TGID], r11d
    mov r11d, [rax + LINUX_PRIO]
    mov [r10 + TASK_PRIO], r11d
    mov r11, [rax + LINUX_COMM]
    mov [r10 + TASK_COMM], r11
    mov r11, [rax + LINUX_COMM + 8]
    mov [r10 + TASK_COMM + 8], r11
    pop r9
    pop r8
    pop rcx
    ret
ENDFUNC linux_view_task

# On to the probe: rdi leads to it.
.macro TO_PROBE
    mov rax, [rdi]
    mov rdi, [rdi + 8]
    jmp rax
.endm

# (word, bool preempt, prev, next, …)
FUNC_NOTRACE linux_probe_switch
    TRACE_CONTEXT
    VIEW rdx, first_view
    VIEW rcx, second_view
    TO_PROBE
ENDFUNC linux_probe_switch

# (word, task)
FUNC_NOTRACE linux_probe_task
    TRACE_CONTEXT
    VIEW rsi, first_view
    TO_PROBE
ENDFUNC linux_probe_task

# (word, parent, child)
FUNC_NOTRACE linux_probe_fork
    TRACE_CONTEXT
    VIEW rsi, first_view
    VIEW rdx, second_view
    TO_PROBE
ENDFUNC linux_probe_fork

.data
.balign 64
OBJECT first_view
    .zero TASK_SIZE
ENDOBJECT first_view
OBJECT second_view
    .zero TASK_SIZE
ENDOBJECT second_view
