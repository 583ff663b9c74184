# What stands between the guest and whoever runs it: safepoints. A vCPU at one of these `hlt`s is at
# rest; the host looks at the address behind it, acts, and lets it go on.

.text

FUNC_NOTRACE host_return                # where a function run outside any task returns to
    hlt
host_return_halt:
    jmp host_return
ENDFUNC host_return

# User mode of every task: the host loads a system call into the registers and goes on at
# entry_SYSCALL_64, or lets an interrupt arrive.
FUNC_NOTRACE user_mode
    hlt
user_mode_halt:
    jmp user_mode
ENDFUNC user_mode

# Run a function as the current task: r12 function, r13 six arguments, r14 how often.
FUNC_NOTRACE host_call
    xor ebp, ebp                        # nobody calls it
1:  mov rdi, [r13]
    mov rsi, [r13 + 8]
    mov rdx, [r13 + 16]
    mov rcx, [r13 + 24]
    mov r8, [r13 + 32]
    mov r9, [r13 + 40]
    xor eax, eax
    call r12
    dec r14
    jne 1b
2:  hlt
host_call_halt:
    jmp 2b                              # until the host starts it again
ENDFUNC host_call

# A file operation that the host answers: rdi operation, rsi file, rdx buffer, rcx count; the answer
# comes back in rax.
FUNC_NOTRACE host_fop
    push rbp
    mov rbp, rsp
    hlt
host_fop_halt:
    pop rbp
    ret
ENDFUNC host_fop

# The current task is to die of signal rdi: where the host sends a task that cannot go on.
FUNC_NOTRACE host_kill_current
    mov byte ptr gs:[PREEMPT_DEPTH], 0
    mov dword ptr gs:[TRACE_RECURSION], 0   # Linux: of the task, which dies; it may be in a callback
    mov dword ptr gs:[IRQ_DEPTH], 0
    mov dword ptr gs:[SOFTIRQ_DEPTH], 0
    mov byte ptr gs:[IRQ_FLAGS], 0
    sti
    call make_task_dead
    ud2
ENDFUNC host_kill_current
