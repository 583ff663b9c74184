# The host as a device of the guest: what it does there in kernel mode (agent.py). At an `int` the host
# looks who has stopped where, and says in registers how it goes on.

TASK_RUNNING = 0
TASK_INTERRUPTIBLE = 1
IRQ_HANDLED = 1
EINTR = 4
DEVICE_DONE = 0
DEVICE_SLEEPS = 1
FILE_OPERATIONS_BYTES = 512
AGENT_CALLS = 48

.text

# A process of the agent's, which the host has taken out of user mode as an interrupt would have: its
# registers are on its stack, gs is user mode's, interrupts are off. r12 = a function of the kernel's
# with its arguments where they belong, r14 = how often: it is counted on the stack, where the host may
# end that.
FUNC_NOTRACE agent_call
    swapgs
    push r14
    push r14
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
    dec qword ptr [rsp + AGENT_CALLS]
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

# The operations of the device's files, which the host performs. It is asked with the operation in r12d;
# edx = DEVICE_DONE: rax is what the operation returns; DEVICE_SLEEPS: its process sleeps till the host
# wakes it, or a signal; else others come first, and then it asks again.
.macro OPERATION name, number
FUNC_NOTRACE \name
    mov eax, \number
    jmp device_operation
ENDFUNC \name
.endm

OPERATION device_open, DEVICE_OPEN
OPERATION device_read, DEVICE_READ
OPERATION device_write, DEVICE_WRITE
OPERATION device_poll, DEVICE_POLL
OPERATION device_flush, DEVICE_FLUSH
OPERATION device_release, DEVICE_RELEASE

FUNC_NOTRACE device_operation
    push rbx
    push r12
    push r13
    mov r12d, eax
    mov rbx, gs:[LINUX_CURRENT]
.Lask:
    int HYPERCALL
device_asks:
    cmp edx, DEVICE_DONE
    je .Lout
    cmp edx, DEVICE_SLEEPS
    je .Lsleep
    mov edi, 1                              # a jiffy, or it would be asked for all the time
    call schedule_timeout_uninterruptible
    jmp .Lask
.Lsleep:
    mov dword ptr [rbx + LINUX_STATE], TASK_INTERRUPTIBLE
    int HYPERCALL                           # eax = whether it goes on
device_sleeps:
    test eax, eax
    jne .Lawake
    call schedule
    test dword ptr [rbx + LINUX_TI_FLAGS], LINUX_SIGNALS
    je .Lsleep
    mov dword ptr [rbx + LINUX_STATE], TASK_RUNNING
    mov rax, -EINTR
    jmp .Lout
.Lawake:
    mov dword ptr [rbx + LINUX_STATE], TASK_RUNNING
    jmp .Lask
.Lout:
    pop r13
    pop r12
    pop rbx
    ret
ENDFUNC device_operation

device_name:
    .asciz "ftracefs"
.balign 16
device_operations:                          # struct file_operations, filled in by the host
    .zero FILE_OPERATIONS_BYTES
