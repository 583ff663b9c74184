# kernel/notifier.c, and who is called when the machine goes down (kernel/reboot.c).

.text

# struct notifier_block
NOTIFIER_CALL = 0                       # (block, action, data): eax, bit 15 ends the chain
NOTIFIER_NEXT = 8
NOTIFIER_PRIORITY = 16
NOTIFY_STOP_MASK = 0x8000
# struct blocking_notifier_head {rw_semaphore, first}
NOTIFIER_HEAD = 40
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

# rdi head, rsi block: in order of falling priority; 0 or -EEXIST
FUNC blocking_notifier_chain_register
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    call down_write
    lea rcx, [rbx + NOTIFIER_HEAD]
    mov r13d, -EEXIST
.Lfind:
    mov rax, [rcx]
    test rax, rax
    je .Linsert
    cmp rax, r12
    je .Lunlock
    mov edx, [r12 + NOTIFIER_PRIORITY]
    cmp edx, [rax + NOTIFIER_PRIORITY]
    jg .Linsert
    lea rcx, [rax + NOTIFIER_NEXT]
    jmp .Lfind
.Linsert:
    mov [r12 + NOTIFIER_NEXT], rax
    mov [rcx], r12
    xor r13d, r13d
.Lunlock:
    mov rdi, rbx
    call up_write
    mov eax, r13d
    LEAVE3
ENDFUNC blocking_notifier_chain_register

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
OBJECT reboot_notifier_list
    .zero RWSEM_SIZE + 8
ENDOBJECT reboot_notifier_list
.text
