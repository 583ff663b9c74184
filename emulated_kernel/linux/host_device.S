# The host as a device of the guest: what it does there in kernel mode (agent.py). At an `int` the host
# looks who has stopped where, and says in registers how it goes on.

TASK_RUNNING = 0
TASK_INTERRUPTIBLE = 1
IRQ_HANDLED = 1

.text

# A process of the agent's, which the host has taken out of user mode as an interrupt would have: its
# registers are on its stack, gs is user mode's, interrupts are off. r12 = a function of the kernel's
# with its arguments where they belong, r14 = how often.
FUNC_NOTRACE agent_call
    swapgs
    push r9
    push r8
    push rcx
    push rdx
    push rsi
    push rdi
    sti
.Lagain:
    mov rdi, [rsp]
    mov rsi, [rsp + 8]
    mov rdx, [rsp + 16]
    mov rcx, [rsp + 24]
    mov r8, [rsp + 32]
    mov r9, [rsp + 40]
    xor eax, eax
    call r12
    dec r14
    jne .Lagain
agent_leave:                                # also for a call that has been given up
    cli
    swapgs
    int HYPERCALL
agent_called:
    jmp agent_called
ENDFUNC agent_call

# The same process, which has nothing to do: it sleeps until it has, or until there is a signal.
FUNC_NOTRACE agent_rest
    swapgs
    mov rbx, gs:[LINUX_CURRENT]
    sti
.Lagain:
    mov dword ptr [rbx + LINUX_STATE], TASK_INTERRUPTIBLE
    int HYPERCALL                           # eax = whether there is something
agent_rests:
    test eax, eax
    jne .Lup
    call schedule
    test dword ptr [rbx + LINUX_TI_FLAGS], LINUX_SIGNALS
    je .Lagain
.Lup:
    mov dword ptr [rbx + LINUX_STATE], TASK_RUNNING
    cli
    swapgs
    int HYPERCALL
agent_rested:
    jmp agent_rested
ENDFUNC agent_rest

# irqreturn_t device_interrupt(int irq, void *dev): wakes whom the host names, in rax.
FUNC_NOTRACE device_interrupt
    push rbx
.Lnext:
    int HYPERCALL
device_wakes:
    test rax, rax
    je .Lout
    mov rdi, rax
    call wake_up_process
    jmp .Lnext
.Lout:
    mov eax, IRQ_HANDLED
    pop rbx
    ret
ENDFUNC device_interrupt

device_name:
    .asciz "ftracefs"
