# Records of how a traced function was called (__ftrace_trace_stack of kernel/trace/trace.c).

FTRACE_KSTACK_ENTRIES = 1024
BUF_MAX_DATA_SIZE = 4072
# struct stack_entry: common fields, size, four bytes of nothing, caller[size]. From four bytes
# before the payload, as ring_buffer_lock_reserve answers.
STACK_ENTRY_BYTES = 16
STACK_SIZE = 12
STACK_CALLER = 20

# From what functions are collected, at r12 and up to r13, till they are recorded.
.macro STACK_ENTER
    push rdx
    push rbx
    push rbp
    push r12
    push r13
    push r14
    mov r10d, gs:[CPU_NUMBER]
    shl r10d, 13
    lea r14, [rip + ftrace_stacks]
    add r14, r10
    lea r13, [r14 + FTRACE_KSTACK_ENTRIES * 8]
    mov r12, r14
.endm

.macro STACK_LEAVE
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop rdx
    ret
.endm

# From a callback: where the traced function was called from. In: rdi call site, rcx fregs, r9
# buffer, r8 where the return address of the callback stands, eax how many of the functions nearest
# to it are left out (0 or 1). Keeps rdi rsi rdx rcx r9 and what a function keeps.
FUNC_NOTRACE __ftrace_trace_stack
    STACK_ENTER
    lea r10, [rcx - 8]
    cmp r8, r10
    je .Ltrampoline
    test eax, eax
    mov eax, 0
    jne .Ltrampoline_wanted
    mov r11, [r8]
    mov [r12], r11
    add r12, 8
.Ltrampoline:
    test eax, eax
    jne .Lfunction
.Ltrampoline_wanted:
    mov r11, [r10]
    mov [r12], r11
    add r12, 8
.Lfunction:
    call arch_stack_walk
    call record_stack
    STACK_LEAVE
ENDFUNC __ftrace_trace_stack

# Behind the record of an event: with the option stacktrace the probe, which has a frame, and who
# called it; with userstacktrace where user mode was left. In: r9 buffer. Keeps the same.
FUNC_NOTRACE ftrace_trace_stacks
    test byte ptr [r9 + RB_STACKTRACE], RB_STACKTRACE_KERNEL
    je ftrace_trace_userstack
    STACK_ENTER
    lea rbx, [rsp + 6 * 8]
    call stack_trace_consume
    call stack_walk_frames
    call record_stack
    test byte ptr [r9 + RB_STACKTRACE], RB_STACKTRACE_USER
    je .Lout
    call ftrace_trace_userstack
.Lout:
    STACK_LEAVE
ENDFUNC ftrace_trace_stacks

# struct userstack_entry: common fields, tgid, four bytes of nothing, caller[8].
USERSTACK_ENTRY_BYTES = 80
USERSTACK_TGID = 12
USERSTACK_CALLER = 20

# One record with the address at which the current task left user mode, none for kernel threads. User
# mode's own stack is not looked at. In: r9 buffer. Uses rax r8 r10 r11.
FUNC_NOTRACE ftrace_trace_userstack
    push rdx
    mov edx, USERSTACK_ENTRY_BYTES
    call ring_buffer_lock_reserve
    jb .Lout
    RB_COMMON TRACE_USER_STACK
    mov r11, gs:[CURRENT_TASK]
    mov eax, [r11 + TASK_TGID]
    mov [r10 + USERSTACK_TGID], rax
    USER_MODE_IP
    mov [r10 + USERSTACK_CALLER], rax
    xor eax, eax
    mov [r10 + USERSTACK_CALLER + 8], rax
    mov [r10 + USERSTACK_CALLER + 16], rax
    mov [r10 + USERSTACK_CALLER + 24], rax
    mov [r10 + USERSTACK_CALLER + 32], rax
    mov [r10 + USERSTACK_CALLER + 40], rax
    mov [r10 + USERSTACK_CALLER + 48], rax
    mov [r10 + USERSTACK_CALLER + 56], rax
.Lout:
    pop rdx
    ret
ENDFUNC ftrace_trace_userstack

# How the kernel came to where it is. In: rax an address in a function, r8 its frame, r9 buffer. Keeps
# the same.
FUNC_NOTRACE __trace_stack
    STACK_ENTER
    mov [r12], rax
    add r12, 8
    mov rbp, r8
    call stack_walk_frames
    call record_stack
    STACK_LEAVE
ENDFUNC __trace_stack

# The same from code that the kernel has called, as a probe: whoever called it, and so on. In: r8 its
# frame, r9 buffer, eax how many of the functions nearest to it are left out. Keeps the same.
FUNC_NOTRACE trace_stack_of_caller
    STACK_ENTER
    push rdi
    push rcx
    mov ebx, eax
    mov rbp, [r8]
    add r8, 8
    push r8                                 # as the stack pointer of a pt_regs
    lea rcx, [rsp - PT_RSP]
    xor edi, edi                            # and a call site that is none
    push rbx
    call arch_stack_walk
    pop rax
    lea r14, [r14 + rax*8 + 8]
    cmp r14, r12
    jae .Lout
    call record_stack
.Lout:
    pop r8
    pop rcx
    pop rdi
    STACK_LEAVE
ENDFUNC trace_stack_of_caller

# r9 buffer, r12 end of what was collected on this CPU, r14 its start. Uses rax rdx r8 r10 r11 r14.
FUNC_NOTRACE record_stack
    mov rdx, r12
    sub rdx, r14
    add edx, STACK_ENTRY_BYTES
    cmp edx, BUF_MAX_DATA_SIZE
    ja .Lout
    call ring_buffer_lock_reserve
    jb .Lout
    RB_COMMON TRACE_STACK
    mov rax, r12
    sub rax, r14
    shr eax, 3
    mov [r10 + STACK_SIZE], rax
    add r10, STACK_CALLER
.Lcopy:
    mov rax, [r14]
    mov [r10], rax
    add r14, 8
    add r10, 8
    cmp r14, r12
    jb .Lcopy
.Lout:
    ret
ENDFUNC record_stack

.data
.balign 64
OBJECT ftrace_stacks                        # what is being collected, 8 KiB a CPU
    .zero FTRACE_KSTACK_ENTRIES * 8 * 8
ENDOBJECT ftrace_stacks
