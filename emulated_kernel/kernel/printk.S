# kernel/printk/: the log and its console. A record goes into the ring first; whoever gets the
# console lock then hands every record not yet shown to the host, if the host wants them
# (console_enabled).
# Left out: dictionaries, continuation lines, other consoles.

.text

FUNC _printk                            # rdi format, …; eax length
    PROLOGUE
    VA_START 1
    lea rsi, [rbp - 80]
    call vprintk
    leave
    ret
ENDFUNC _printk

FUNC vprintk                            # rdi format, rsi va_list
    PROLOGUE
    call vprintk_default
    EPILOGUE
ENDFUNC vprintk

FUNC vprintk_default
    PROLOGUE
    mov rcx, rdi
    mov r8, rsi
    xor edi, edi
    mov esi, -1
    xor edx, edx
    call vprintk_emit
    EPILOGUE
ENDFUNC vprintk_default

# edi facility, esi level (-1: as the text says), rcx format, r8 va_list
FUNC vprintk_emit
    ENTER1
    push rax
    call vprintk_store
    mov ebx, eax
    PREEMPT_DISABLE
    call console_trylock
    test eax, eax
    je 1f
    call console_unlock
1:
    PREEMPT_ENABLE
    call wake_up_klogd
    mov eax, ebx
    LEAVE1
ENDFUNC vprintk_emit

FUNC vprintk_store                      # as vprintk_emit; eax length
    ENTER5
    sub rsp, PRINTK_LINE_MAX + 8
    mov r12d, esi
    mov rdi, rsp
    mov esi, PRINTK_LINE_MAX
    mov rdx, rcx
    mov rcx, r8
    call vscnprintf
    mov r13d, eax
    mov rdi, rsp
    call printk_parse_prefix
    mov r14, rdx
    cmp r12d, -1
    cmove r12d, eax
    lea rax, [rsp + r13]
    sub rax, r14
    mov r13, rax
    test r13, r13
    je 1f
    cmp byte ptr [r14 + r13 - 1], 10    # a record is a line without its newline
    jne 1f
    dec r13
1:
    mov eax, PRINTK_TEXT_MAX
    cmp r13, rax
    cmova r13, rax
    LOCAL_IRQ_SAVE r15d
    call prb_reserve
    mov rbx, rax
    call sched_clock
    mov [rbx + PRINTK_TIME], rax
    mov [rbx + PRINTK_LEVEL], r12d
    mov [rbx + PRINTK_LEN], r13d
    mov eax, gs:[CURRENT_PID]
    mov [rbx + PRINTK_CALLER], eax
    lea rdi, [rbx + PRINTK_TEXT]
    mov rsi, r14
    mov rdx, r13
    call memcpy
    mov rdi, rbx
    call prb_final_commit
    LOCAL_IRQ_RESTORE r15d
    mov eax, r13d
    LEAVE5
ENDFUNC vprintk_store

FUNC printk_parse_prefix                # rdi text; eax its level, rdx behind the prefix
    PROLOGUE
    mov eax, 4
    mov rdx, rdi
    cmp byte ptr [rdi], 1               # KERN_SOH
    jne 1f
    movzx ecx, byte ptr [rdi + 1]
    sub ecx, 48
    cmp ecx, 8
    jae 1f
    mov eax, ecx
    add rdx, 2
1:
    EPILOGUE
ENDFUNC printk_parse_prefix

# --- the ring -------------------------------------------------------------------------------------

FUNC prb_reserve                        # rax the slot for the next record
    PROLOGUE
    mov eax, 1
    lock xadd [rip + log_next_seq], rax
    mov rcx, rax
    and ecx, PRINTK_SLOTS - 1
    shl ecx, 8
    add rcx, offset log_buf
    mov qword ptr [rcx + PRINTK_STATE], 1
    mov [rcx + PRINTK_SEQ], rax
    mov rax, rcx
    EPILOGUE
ENDFUNC prb_reserve

FUNC prb_final_commit                   # rdi slot
    PROLOGUE
    call _prb_commit
    EPILOGUE
ENDFUNC prb_final_commit

FUNC _prb_commit
    PROLOGUE
    mov qword ptr [rdi + PRINTK_STATE], 2
    EPILOGUE
ENDFUNC _prb_commit

# rdi sequence number: rax the record with it, or the oldest one left behind it; 0 when there is
# none.
FUNC prb_read_valid
    PROLOGUE
    mov rcx, [rip + log_next_seq]
    lea rdx, [rcx - PRINTK_SLOTS]
    cmp rdi, rdx
    cmovl rdi, rdx
.Lnext:
    cmp rdi, rcx
    jge .Lnone
    mov eax, edi
    and eax, PRINTK_SLOTS - 1
    shl eax, 8
    add rax, offset log_buf
    cmp qword ptr [rax + PRINTK_STATE], 2
    jne .Lskip
    cmp [rax + PRINTK_SEQ], rdi
    je .Lout
.Lskip:
    inc rdi
    jmp .Lnext
.Lnone:
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC prb_read_valid

FUNC prb_next_seq
    PROLOGUE
    mov rax, [rip + log_next_seq]
    EPILOGUE
ENDFUNC prb_next_seq

# --- the console ----------------------------------------------------------------------------------

FUNC console_lock
    PROLOGUE
    mov rdi, offset console_sem
    call down
    mov dword ptr [rip + console_locked], 1
    EPILOGUE
ENDFUNC console_lock

FUNC console_trylock                    # eax: 1 with the lock
    PROLOGUE
    call __down_trylock_console_sem.constprop.0
    xor eax, 1
    je 1f
    mov dword ptr [rip + console_locked], 1
1:
    EPILOGUE
ENDFUNC console_trylock

FUNC_STATIC __down_trylock_console_sem.constprop.0
    PROLOGUE
    mov rdi, offset console_sem
    call down_trylock
    EPILOGUE
ENDFUNC __down_trylock_console_sem.constprop.0

FUNC is_console_locked
    PROLOGUE
    mov eax, [rip + console_locked]
    EPILOGUE
ENDFUNC is_console_locked

FUNC console_unlock                     # show what is new, then let go
    ENTER1
    push rax
.Lnext:
    mov rdi, [rip + console_seq]
    call prb_read_valid
    test rax, rax
    je .Lout
    mov rdi, rax
    call console_emit_next_record.constprop.0
    jmp .Lnext
.Lout:
    mov dword ptr [rip + console_locked], 0
    mov rdi, offset console_sem
    call up
    LEAVE1
ENDFUNC console_unlock

FUNC_STATIC console_emit_next_record.constprop.0    # rdi record
    ENTER1
    push rax
    mov rax, [rdi + PRINTK_SEQ]
    inc rax
    mov [rip + console_seq], rax
    cmp dword ptr [rip + console_enabled], 0
    je 1f
    mov esi, [rdi + PRINTK_LEN]
    add rdi, PRINTK_TEXT
    mov eax, HC_PRINTK
    int HYPERCALL
1:
    LEAVE1
ENDFUNC console_emit_next_record.constprop.0

FUNC wake_up_klogd
    PROLOGUE
    mov rax, offset log_wait + WQ_HEAD
    cmp [rax], rax
    je 1f
    call __wake_up_klogd.part.0
1:
    EPILOGUE
ENDFUNC wake_up_klogd

FUNC_STATIC __wake_up_klogd.part.0
    PROLOGUE
    mov rdi, offset log_wait
    mov esi, TASK_INTERRUPTIBLE
    mov edx, 1
    xor ecx, ecx
    call __wake_up
    EPILOGUE
ENDFUNC __wake_up_klogd.part.0

.data
.balign 64
OBJECT log_buf
    .zero PRINTK_SLOT * PRINTK_SLOTS
ENDOBJECT log_buf
OBJECT console_sem
    .long 0
    .long 1
    .quad console_sem + SEM_WAIT_LIST
    .quad console_sem + SEM_WAIT_LIST
ENDOBJECT console_sem
OBJECT log_wait
    .quad 0
    .quad log_wait + WQ_HEAD
    .quad log_wait + WQ_HEAD
ENDOBJECT log_wait
log_next_seq:
    .quad 0
console_seq:
    .quad 0
OBJECT console_locked
    .long 0
ENDOBJECT console_locked
OBJECT console_enabled
    .long 0
ENDOBJECT console_enabled
.text
