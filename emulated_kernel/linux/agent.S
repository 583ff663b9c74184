# What a process does in user mode that the host has at its command (agent.py): it stops, and goes on
# with whatever is in its registers then.

SIGCHLD = 17
AGENT_WORDS = 14

.text
# Init's child: whoever it and its children have forked leaves nothing behind to be waited for.
FUNC_NOTRACE agent
    mov edi, SIGCHLD
    lea rsi, [rip + ignore]
    xor edx, edx
    mov r10d, 8
    SYSTEM_CALL SYS_RT_SIGACTION
    lea rdi, [rip + pid_max]
    mov esi, O_RDWR
    xor edx, edx
    SYSTEM_CALL SYS_OPEN
    mov r12d, eax
    mov edi, eax
    lea rsi, [rip + most_pids]
    mov edx, 7
    SYSTEM_CALL SYS_WRITE
    mov edi, r12d
    SYSTEM_CALL SYS_CLOSE
agent_begins:                               # also where the program is executed anew
    xor eax, eax
agent_loop:
    int HYPERCALL
agent_stopped:
    jmp agent_loop

agent_system_call:
    syscall
    jmp agent_loop

agent_poke:                                 # what a system call is to find in memory
    mov [rip + agent_words], rbx
    mov [rip + agent_words + 8], rcx
    mov [rip + agent_words + 16], rdx
    mov [rip + agent_words + 24], rsi
    mov [rip + agent_words + 32], rdi
    mov [rip + agent_words + 40], rbp
    mov [rip + agent_words + 48], r8
    mov [rip + agent_words + 56], r9
    mov [rip + agent_words + 64], r10
    mov [rip + agent_words + 72], r11
    mov [rip + agent_words + 80], r12
    mov [rip + agent_words + 88], r13
    mov [rip + agent_words + 96], r14
    mov [rip + agent_words + 104], r15
    jmp agent_loop
ENDFUNC agent

.balign 16
agent_words:
    .zero 8 * AGENT_WORDS
    .zero 16
agent_buffer:                               # for what a system call writes
    .zero 1024
ignore:                                     # struct kernel_sigaction with SIG_IGN
    .quad 1
    .quad 0
    .quad 0
    .quad 0
pid_max:
    .asciz "/proc/sys/kernel/pid_max"
most_pids:
    .asciz "4194304"
agent_device:
    .asciz "/dev/ftracefs"
agent_init:
    .asciz "/init"
agent_mark:
    .asciz "AGNT"
agent_programs:
    .asciz "/dev/ftracefs-programs"
agent_directory:
    .asciz "/dev/ftracefs-instances"
