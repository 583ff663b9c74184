# Completions: kernel/sched/completion.c, over the simple wait queue of kernel/sched/swait.c.

.text

FUNC complete
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    lea rdi, [rbx+COMPLETION_LOCK]
    call _raw_spin_lock_irqsave
    mov r12d, eax
    inc dword ptr [rbx+COMPLETION_DONE]
    lea rdi, [rbx+COMPLETION_WAIT_LIST]
    call swake_up_locked
    lea rdi, [rbx+COMPLETION_LOCK]
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC complete

# rdi the list of sleepers, its lock held: wake the first and take it off.
FUNC swake_up_locked
    PROLOGUE
    LIST_READY rdi
    mov rax, [rdi]
    cmp rax, rdi
    je 1f
    LIST_DEL rax, rcx, rdx
    mov [rax], rax
    mov [rax+8], rax
    mov rdi, [rax+WAITER_TASK]
    call wake_up_process
1:
    EPILOGUE
ENDFUNC swake_up_locked

FUNC complete_all
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    lea rdi, [rbx+COMPLETION_LOCK]
    call _raw_spin_lock_irqsave
    mov r12d, eax
    mov dword ptr [rbx+COMPLETION_DONE], 0x7fffffff
.Lnext:
    lea rdi, [rbx+COMPLETION_WAIT_LIST]
    cmp qword ptr [rdi], 0
    je .Lout
    cmp [rdi], rdi
    je .Lout
    call swake_up_locked
    jmp .Lnext
.Lout:
    lea rdi, [rbx+COMPLETION_LOCK]
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC complete_all

FUNC wait_for_completion
    PROLOGUE
    push rbx
    push r12
    push r13
    push r14
    sub rsp, WAITER_SIZE
    mov rbx, rdi
    mov r12, rsp
    MIGHT_SLEEP
    mov rax, gs:[CURRENT_TASK]
    mov [r12], r12
    mov [r12+8], r12
    mov [r12+WAITER_TASK], rax
    lea rdi, [rbx+COMPLETION_LOCK]
    call _raw_spin_lock_irq
.Lwait:
    cmp dword ptr [rbx+COMPLETION_DONE], 0
    jne .Ldone
    cmp [r12], r12
    jne .Lsleep
    lea r13, [rbx+COMPLETION_WAIT_LIST]
    LIST_READY r13
    LIST_ADD_TAIL r12, r13, rcx
.Lsleep:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax+TASK_STATE], TASK_UNINTERRUPTIBLE
    lea rdi, [rbx+COMPLETION_LOCK]
    call _raw_spin_unlock_irq
    call schedule
    lea rdi, [rbx+COMPLETION_LOCK]
    call _raw_spin_lock_irq
    jmp .Lwait
.Ldone:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax+TASK_STATE], TASK_RUNNING
    LIST_DEL r12, rcx, rdx
    cmp dword ptr [rbx+COMPLETION_DONE], 0x7fffffff
    je 1f
    dec dword ptr [rbx+COMPLETION_DONE]
1:
    lea rdi, [rbx+COMPLETION_LOCK]
    call _raw_spin_unlock_irq
    add rsp, WAITER_SIZE
    pop r14
    pop r13
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC wait_for_completion
