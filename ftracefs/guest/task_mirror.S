# Tasks of a Linux that knows nothing of the engine, mirrored: the engine's own task_struct for each
# (TASK_ offsets), with its shadow stack. Looked at when the task differs from the last traced call's,
# so that a switch between two traced calls is seen and one that nobody traces costs nothing.
#
#     task_mirrors      a table of {Linux's task_struct, mirror}, open addressing, never emptied
#     free_mirrors      mirrors the host has made ready, linked by TASK_ALL_NEXT
#     all_mirrors       those that are in use, linked by TASK_ALL_NEXT
#
# What was a task's struct becomes another's. A task is known by its stack_canary, which it is born
# with and keeps through everything; TASK_PRIVATE of a mirror holds it.

# rax = Linux's current task. Keeps everything but r10, r11 and the flags.
FUNC_NOTRACE linux_switch_mirror
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push rax
    mov r8, [rip + task_mirrors]
    mov ecx, eax
    shr ecx, 6
.Lprobe:
    and ecx, [rip + task_mirrors_mask]
    mov r9d, ecx
    shl r9, 4
    add r9, r8
    cmp rax, [r9]
    je .Lknown
    cmp qword ptr [r9], 0
    je .Lnew
    inc ecx
    jmp .Lprobe

.Lnew:
    mov rdx, [rip + free_mirrors]
    test rdx, rdx
    je .Lnone
    mov rcx, [rdx + TASK_ALL_NEXT]
    mov [rip + free_mirrors], rcx
    dec dword ptr [rip + free_mirrors_count]
    mov rcx, [rip + all_mirrors]
    mov [rdx + TASK_ALL_NEXT], rcx
    mov [rip + all_mirrors], rdx
    mov [r9], rax
    mov [r9 + 8], rdx
    jmp .Lborn
.Lknown:
    mov rdx, [r9 + 8]
    mov rcx, [rax + LINUX_STACK_CANARY]
    cmp rcx, [rdx + TASK_PRIVATE]
    je .Lfill
.Lborn:                                     # nothing that its predecessor called will return
    mov rcx, [rax + LINUX_STACK_CANARY]
    mov [rdx + TASK_PRIVATE], rcx
    mov rcx, [rdx + TASK_RET_BASE]
    test rcx, rcx
    je .Lfill
    mov [rdx + TASK_RET_TOP], rcx
    mov dword ptr [rcx + FGT_FLAGS], 0
    mov dword ptr [rcx + FGT_DEPTH], 0
    mov dword ptr [rcx + FGT_OVERRUN], 0
    mov qword ptr [rcx + FGT_TIMESTAMP], 0
    jmp .Lfill
.Lnone:                                     # one for all that find none; it has no room for frames
    lea rdx, [rip + spare_mirror]
.Lfill:
    mov ecx, [rax + LINUX_PID]
    mov [rdx + TASK_PID], ecx
    mov gs:[CURRENT_PID], ecx
    mov ecx, [rax + LINUX_TGID]
    mov [rdx + TASK_TGID], ecx
    mov ecx, [rax + LINUX_PRIO]
    mov [rdx + TASK_PRIO], ecx
    mov rcx, [rax + LINUX_COMM]
    mov [rdx + TASK_COMM], rcx
    mov rcx, [rax + LINUX_COMM + 8]
    mov [rdx + TASK_COMM + 8], rcx

    # Who goes may have another name than when it came.
    mov r10, gs:[MIRRORED_TASK]
    test r10, r10
    je .Lnamed
    mov r11, gs:[CURRENT_TASK]
    mov rcx, [r10 + LINUX_STACK_CANARY]
    cmp rcx, [r11 + TASK_PRIVATE]
    jne .Lnamed
    mov rcx, [r10 + LINUX_COMM]
    mov [r11 + TASK_COMM], rcx
    mov rcx, [r10 + LINUX_COMM + 8]
    mov [r11 + TASK_COMM + 8], rcx
.Lnamed:
    mov gs:[CURRENT_TASK], rdx
    pop rax
    mov gs:[MIRRORED_TASK], rax
    mov rdi, [rax + LINUX_STACK_CANARY]
    mov gs:[MIRRORED_CANARY], rdi
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    ret
ENDFUNC linux_switch_mirror

.data
.balign 64
OBJECT task_mirrors
    .quad 0
ENDOBJECT task_mirrors
OBJECT task_mirrors_mask
    .long 0
ENDOBJECT task_mirrors_mask
OBJECT free_mirrors_count
    .long 0
ENDOBJECT free_mirrors_count
OBJECT free_mirrors
    .quad 0
ENDOBJECT free_mirrors
OBJECT all_mirrors
    .quad 0
ENDOBJECT all_mirrors
.balign 64
OBJECT spare_mirror
    .zero TASK_RET_TOP
    .quad spare_stack + FGT_BYTES
    .quad 0                                 # RET_END
    .quad spare_stack + FGT_BYTES
    .zero TASK_SIZE - TASK_RET_BASE - 8
ENDOBJECT spare_mirror
.balign 64
OBJECT spare_stack                          # paused for good: what several tasks share holds no frames
    .zero FGT_BYTES + FGT_PAUSE
    .long 1
    .zero -FGT_PAUSE - 4
ENDOBJECT spare_stack
