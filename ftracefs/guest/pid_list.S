# Sets of pids (kernel/trace/pid_list.c), and what is asked of them when tasks are switched, made and
# gone (kernel/trace/trace.c).
#
#     PIDS_UPPER        a word for each value of the pid's highest 8 bits -> upper chunk
#     upper chunk       a word for each value of the next 8 bits          -> lower chunk
#     lower chunk       a bit for each value of the last 14 bits
#
# Chunks nobody needs are on two lists, linked by their first word; the host refills them between two
# slices. All of it is called with interrupts off, and no CPU runs while another one does.

.text

ENOMEM = 12
ENODEV = 19
EINVAL = 22

# \upper (64 bits) = where the pid in esi has its upper chunk's address; uses eax.
.macro PID_UPPER1 upper
    mov eax, esi
    shr eax, PID_UPPER1_SHIFT
    lea \upper, [rdi + rax*8 + PIDS_UPPER]
.endm

# \lower (64 bits) = where it has its lower chunk's address, \chunk being the upper chunk; uses eax.
.macro PID_UPPER2 lower, chunk
    mov eax, esi
    shr eax, PID_UPPER2_SHIFT
    and eax, PID_UPPER_MASK
    lea \lower, [\chunk + rax*8]
.endm

# Goes to \not when a word of the chunk is not zero; uses eax and rcx.
.macro CHUNK_EMPTY chunk, not
    xor ecx, ecx
2:  mov rax, [\chunk + rcx]
    test rax, rax
    jne \not
    add ecx, 8
    cmp ecx, PID_CHUNK_BYTES
    jne 2b
.endm

# bool trace_pid_list_is_set(struct trace_pid_list *pid_list, unsigned int pid)
# Keeps all but rax r8 r9.
FUNC_NOTRACE trace_pid_list_is_set
    test rdi, rdi
    je .Lno
    cmp esi, PID_LIMIT
    jae .Lno
    PID_UPPER1 r8
    mov r8, [r8]
    test r8, r8
    je .Lno
    PID_UPPER2 r9, r8
    mov r9, [r9]
    test r9, r9
    je .Lno
    mov r8d, esi
    and r8d, PID_LOWER_MASK
    xor eax, eax
    bt [r9], r8d
    setb al
    ret
.Lno:
    xor eax, eax
    ret
ENDFUNC trace_pid_list_is_set

# int trace_pid_list_set(struct trace_pid_list *pid_list, unsigned int pid)
# Keeps all but rax rcx r8 r9.
FUNC_NOTRACE trace_pid_list_set
    mov eax, -ENODEV
    test rdi, rdi
    je .Lout
    mov eax, -EINVAL
    cmp esi, PID_LIMIT
    jae .Lout
    PID_UPPER1 r9
    mov r8, [r9]
    test r8, r8
    jne .Lupper
    mov r8, [rdi + PIDS_UPPER_LIST]
    test r8, r8
    je .Lnomem
    mov rax, [r8]
    mov [rdi + PIDS_UPPER_LIST], rax
    dec dword ptr [rdi + PIDS_FREE_UPPER_CHUNKS]
    mov qword ptr [r8], 0
    mov [r9], r8
.Lupper:
    PID_UPPER2 r9, r8
    mov r8, [r9]
    test r8, r8
    jne .Llower
    mov r8, [rdi + PIDS_LOWER_LIST]
    test r8, r8
    je .Lnomem
    mov rax, [r8]
    mov [rdi + PIDS_LOWER_LIST], rax
    dec dword ptr [rdi + PIDS_FREE_LOWER_CHUNKS]
    mov qword ptr [r8], 0
    mov [r9], r8
.Llower:
    mov ecx, esi
    and ecx, PID_LOWER_MASK
    bts [r8], ecx
    xor eax, eax
.Lout:
    ret
.Lnomem:
    mov eax, -ENOMEM
    ret
ENDFUNC trace_pid_list_set

# int trace_pid_list_clear(struct trace_pid_list *pid_list, unsigned int pid)
# A chunk that is empty then goes back to its list. Keeps all but rax rcx r8 r9 r10 r11.
FUNC_NOTRACE trace_pid_list_clear
    mov eax, -ENODEV
    test rdi, rdi
    je .Lout
    mov eax, -EINVAL
    cmp esi, PID_LIMIT
    jae .Lout
    PID_UPPER1 r10
    mov r8, [r10]
    test r8, r8
    je .Lcleared
    PID_UPPER2 r11, r8
    mov r9, [r11]
    test r9, r9
    je .Lcleared
    mov ecx, esi
    and ecx, PID_LOWER_MASK
    btr [r9], ecx
    CHUNK_EMPTY r9, .Lcleared
    mov rax, [rdi + PIDS_LOWER_LIST]
    mov [r9], rax
    mov [rdi + PIDS_LOWER_LIST], r9
    inc dword ptr [rdi + PIDS_FREE_LOWER_CHUNKS]
    mov qword ptr [r11], 0
    CHUNK_EMPTY r8, .Lcleared
    mov rax, [rdi + PIDS_UPPER_LIST]
    mov [r8], rax
    mov [rdi + PIDS_UPPER_LIST], r8
    inc dword ptr [rdi + PIDS_FREE_UPPER_CHUNKS]
    mov qword ptr [r10], 0
.Lcleared:
    xor eax, eax
.Lout:
    ret
ENDFUNC trace_pid_list_clear

# bool trace_ignore_this_task(pids, no_pids, struct task_struct *task): whether the task is not in the
# first list, if there is one, or in the second. Keeps all but rax rdi rsi r8 r9.
FUNC_NOTRACE trace_ignore_this_task
    push rsi
    test rdi, rdi
    je .Lnot_listed
    mov esi, [rdx + TASK_PID]
    call trace_pid_list_is_set
    test eax, eax
    jne .Lnot_listed
    pop rsi
    mov eax, 1
    ret
.Lnot_listed:
    pop rdi
    mov esi, [rdx + TASK_PID]
    jmp trace_pid_list_is_set               # no list: no
ENDFUNC trace_ignore_this_task

# void trace_filter_add_remove_task(list, struct task_struct *self, struct task_struct *task)
# A child is listed if its parent is; with no `self` the task is taken out.
# Keeps all but rax rcx rsi r8 r9 r10 r11.
FUNC_NOTRACE trace_filter_add_remove_task
    test rdi, rdi
    je .Lout
    test rsi, rsi
    je .Lclear
    mov esi, [rsi + TASK_PID]
    call trace_pid_list_is_set
    test eax, eax
    je .Lout
    mov esi, [rdx + TASK_PID]
    jmp trace_pid_list_set
.Lclear:
    mov esi, [rdx + TASK_PID]
    jmp trace_pid_list_clear
.Lout:
    ret
ENDFUNC trace_filter_add_remove_task
