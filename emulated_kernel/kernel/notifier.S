# kernel/notifier.c, and who is called when the machine goes down (kernel/reboot.c) or a task dies.

.text

# struct notifier_block
NOTIFIER_CALL = 0                       # (block, action, data): eax, bit 15 ends the chain
NOTIFIER_NEXT = 8
NOTIFIER_PRIORITY = 16
NOTIFY_STOP_MASK = 0x8000
# struct blocking_notifier_head {rw_semaphore, first}
NOTIFIER_HEAD = 40
# struct atomic_notifier_head {spinlock, first}
ATOMIC_NOTIFIER_HEAD = 8
SYS_OFF_CALLBACK = 24                   # struct sys_off_handler {notifier_block, callback, data}

# rdi address of the first, rsi action, rdx data; eax the last answer
FUNC notifier_call_chain
    ENTER5
    push rax
    mov rbx, [rdi]
    mov r12, rsi
    mov r13, rdx
    xor eax, eax
.Lnext:
    test rbx, rbx
    je .Lout
    mov r14, [rbx + NOTIFIER_NEXT]
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call [rbx + NOTIFIER_CALL]
    mov rbx, r14
    test eax, NOTIFY_STOP_MASK
    je .Lnext
.Lout:
    LEAVE5
ENDFUNC notifier_call_chain

FUNC raw_notifier_call_chain            # rdi address of the first, …
    PROLOGUE
    call notifier_call_chain
    EPILOGUE
ENDFUNC raw_notifier_call_chain

FUNC blocking_notifier_call_chain       # rdi head, rsi action, rdx data
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    call down_read
    lea rdi, [rbx + NOTIFIER_HEAD]
    mov rsi, r12
    mov rdx, r13
    call notifier_call_chain
    mov r14d, eax
    mov rdi, rbx
    call up_read
    mov eax, r14d
    LEAVE4
ENDFUNC blocking_notifier_call_chain

# rdi address of the first, rsi block: in order of falling priority; 0 or -EEXIST
FUNC notifier_chain_register
    PROLOGUE
.Lfind:
    mov rcx, [rdi]
    test rcx, rcx
    je .Linsert
    cmp rcx, rsi
    je .Lexists
    mov edx, [rsi + NOTIFIER_PRIORITY]
    cmp edx, [rcx + NOTIFIER_PRIORITY]
    jg .Linsert
    lea rdi, [rcx + NOTIFIER_NEXT]
    jmp .Lfind
.Linsert:
    mov [rsi + NOTIFIER_NEXT], rcx
    mov [rdi], rsi
    xor eax, eax
    EPILOGUE
.Lexists:
    mov eax, -EEXIST
    EPILOGUE
ENDFUNC notifier_chain_register

FUNC blocking_notifier_chain_register   # rdi head, rsi block: 0 or -EEXIST
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    call down_write
    lea rdi, [rbx + NOTIFIER_HEAD]
    mov rsi, r12
    call notifier_chain_register
    mov r13d, eax
    mov rdi, rbx
    call up_write
    mov eax, r13d
    LEAVE3
ENDFUNC blocking_notifier_chain_register

FUNC atomic_notifier_call_chain         # rdi head, rsi action, rdx data
    PROLOGUE
    add rdi, ATOMIC_NOTIFIER_HEAD
    call notifier_call_chain
    EPILOGUE
ENDFUNC atomic_notifier_call_chain

FUNC atomic_notifier_chain_register     # rdi head, rsi block: 0 or -EEXIST
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    call _raw_spin_lock_irqsave
    mov r13, rax
    lea rdi, [rbx + ATOMIC_NOTIFIER_HEAD]
    mov rsi, r12
    call notifier_chain_register
    mov r14d, eax
    mov rdi, rbx
    mov rsi, r13
    call _raw_spin_unlock_irqrestore
    mov eax, r14d
    LEAVE4
ENDFUNC atomic_notifier_chain_register

FUNC register_die_notifier              # rdi block
    PROLOGUE
    mov rsi, rdi
    mov rdi, offset die_chain
    call atomic_notifier_chain_register
    EPILOGUE
ENDFUNC register_die_notifier

# edi action, rsi text, rdx pt_regs, rcx error code, r8d trap, r9d signal; eax the last answer
FUNC_NOTRACE notify_die
    PROLOGUE
    sub rsp, 32
    mov [rsp], rdx                      # struct die_args
    mov [rsp + 8], rsi
    mov [rsp + 16], rcx
    mov [rsp + 24], r8d
    mov [rsp + 28], r9d
    mov esi, edi
    mov rdx, rsp
    mov rdi, offset die_chain
    call atomic_notifier_call_chain
    leave
    ret
ENDFUNC notify_die

FUNC register_reboot_notifier           # rdi block
    PROLOGUE
    mov rsi, rdi
    mov rdi, offset reboot_notifier_list
    call blocking_notifier_chain_register
    EPILOGUE
ENDFUNC register_reboot_notifier

FUNC sys_off_notify                     # rdi block of a sys_off_handler, rsi mode, rdx command
    PROLOGUE
    mov rax, [rdi + SYS_OFF_CALLBACK]
    test rax, rax
    je 1f
    call rax
1:
    EPILOGUE
ENDFUNC sys_off_notify

.data
.balign 8
OBJECT die_chain
    .zero 16
ENDOBJECT die_chain
OBJECT reboot_notifier_list
    .zero RWSEM_SIZE + 8
ENDOBJECT reboot_notifier_list
.text
