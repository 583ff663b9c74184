# kernel/signal.c: sending a signal, and acting on it on the way to user mode. Every task has the
# default action: SIGCHLD and the like are ignored, the rest ends it.

.text

SIG_IGNORED = 0x18a10000                # SIGCHLD SIGCONT SIGURG SIGWINCH and the stop signals' peers

FUNC __x64_sys_kill                     # rdi pt_regs: (pid, signal)
    PROLOGUE
    mov rax, rdi
    mov edi, [rax + PT_RSI]
    mov esi, [rax + PT_RDI]
    call kill_something_info
    EPILOGUE
ENDFUNC __x64_sys_kill

FUNC kill_something_info                # edi signal, esi pid
    PROLOGUE
    push rbx
    mov ebx, edi
    cmp edi, 64
    ja .Linval
    mov edi, esi
    call find_task_by_vpid
    test rax, rax
    je .Lsrch
    mov rsi, rax
    mov edi, ebx
    call group_send_sig_info
    jmp .Lout
.Lsrch:
    mov rax, -ESRCH
    jmp .Lout
.Linval:
    mov rax, -EINVAL
.Lout:
    pop rbx
    EPILOGUE
ENDFUNC kill_something_info

FUNC group_send_sig_info                # edi signal, rsi task
    PROLOGUE
    test edi, edi
    je .Lout
    call do_send_sig_info
.Lout:
    xor eax, eax
    EPILOGUE
ENDFUNC group_send_sig_info

FUNC do_send_sig_info                   # edi signal, rsi task
    PROLOGUE
    push rbx
    push r12
    push r13
    mov r12d, edi
    mov r13, rsi
    mov rdi, offset siglock
    call _raw_spin_lock_irqsave
    mov rbx, rax
    mov edi, r12d
    mov rsi, r13
    call send_signal_locked
    mov rdi, offset siglock
    mov rsi, rbx
    call _raw_spin_unlock_irqrestore
    xor eax, eax
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC do_send_sig_info

FUNC send_signal_locked                 # edi signal, rsi task
    PROLOGUE
    call __send_signal_locked
    EPILOGUE
ENDFUNC send_signal_locked

FUNC __send_signal_locked               # edi signal, rsi task
    PROLOGUE
    test dword ptr [rsi + TASK_FLAGS], PF_KTHREAD
    jne .Lout
    mov eax, 1
    mov ecx, edi
    dec ecx
    shl rax, cl
    test rax, SIG_IGNORED
    jne .Lout
    or [rsi + TASK_SIGSET], rax
    call complete_signal
.Lout:
    xor eax, eax
    EPILOGUE
ENDFUNC __send_signal_locked

FUNC complete_signal                    # edi signal, rsi task
    PROLOGUE
    mov rax, rdi
    mov rdi, rsi
    mov esi, TASK_INTERRUPTIBLE
    cmp eax, SIGKILL
    jne .Lwake
    mov esi, TASK_NORMAL
.Lwake:
    call signal_wake_up_state
    EPILOGUE
ENDFUNC complete_signal

FUNC signal_wake_up_state               # rdi task, esi states
    PROLOGUE
    mov dword ptr [rdi + TASK_SIGPENDING], 1
    xor edx, edx
    call try_to_wake_up
    EPILOGUE
ENDFUNC signal_wake_up_state

FUNC recalc_sigpending
    PROLOGUE
    mov rcx, gs:[CURRENT_TASK]
    xor eax, eax
    cmp qword ptr [rcx + TASK_SIGSET], 0
    setne al
    mov [rcx + TASK_SIGPENDING], eax
    EPILOGUE
ENDFUNC recalc_sigpending

FUNC dequeue_signal                     # rdi task; eax signal or 0
    PROLOGUE
    push rbx
    bsf rax, [rdi + TASK_SIGSET]
    mov ebx, 0
    je .Lout
    btr qword ptr [rdi + TASK_SIGSET], rax
    lea ebx, [rax + 1]
.Lout:
    call recalc_sigpending
    mov eax, ebx
    pop rbx
    EPILOGUE
ENDFUNC dequeue_signal

FUNC get_signal                         # eax: signal to die of, or 0
    PROLOGUE
    push rbx
    mov rdi, offset siglock
    call _raw_spin_lock_irq
    mov rdi, gs:[CURRENT_TASK]
    call dequeue_signal
    mov ebx, eax
    mov rdi, offset siglock
    call _raw_spin_unlock_irq
    mov eax, ebx
    pop rbx
    EPILOGUE
ENDFUNC get_signal

FUNC arch_do_signal_or_restart          # rdi pt_regs
    PROLOGUE
    call get_signal
    test eax, eax
    je .Lout
    mov edi, eax
    call do_group_exit
.Lout:
    EPILOGUE
ENDFUNC arch_do_signal_or_restart

.data
.balign 8
OBJECT siglock
    .quad 0
ENDOBJECT siglock
