# Read-copy update: kernel/rcu/tree.c, tree_plugin.h, rcu_segcblist.c, as one flat tree. gp_seq is
# even while no grace period runs; one that begins makes it odd, its end even again. A CPU is
# quiet when its tick or a task switch finds no reader, and an idle CPU always is. Readers that
# were preempted while reading hold no grace period up: their tasks are not followed.

.text

RCU_STATE_LOCK = 0
RCU_STATE_SEQ = 8
RCU_STATE_MASK = 16                     # CPUs the running grace period still waits for
RCU_STATE_WANTED = 24                   # the sequence number somebody needs
RCU_STATE_GPS = 32

# struct rcu_head
RCU_HEAD_NEXT = 0
RCU_HEAD_FUNC = 8
KVFREE_OFFSET_MAX = 4096                # a smaller "function" is the head's offset in what is freed

FUNC_NOTRACE rcu_init
    PROLOGUE
    mov edi, RCU_SOFTIRQ
    mov rsi, offset rcu_core_si
    call open_softirq
    EPILOGUE
ENDFUNC rcu_init

FUNC __rcu_read_lock
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    inc dword ptr [rax + TASK_RCU_NESTING]
    EPILOGUE
ENDFUNC __rcu_read_lock

FUNC __rcu_read_unlock
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    dec dword ptr [rax + TASK_RCU_NESTING]
    EPILOGUE
ENDFUNC __rcu_read_unlock

FUNC rcu_cblist_init                    # rdi {head, tail}
    PROLOGUE
    mov qword ptr [rdi], 0
    mov qword ptr [rdi + 8], 0
    EPILOGUE
ENDFUNC rcu_cblist_init

FUNC rcu_cblist_dequeue                 # rdi {head, tail}; rax first callback, taken off, or 0
    PROLOGUE
    mov rax, [rdi]
    test rax, rax
    je 1f
    mov rcx, [rax + RCU_HEAD_NEXT]
    mov [rdi], rcx
    test rcx, rcx
    jne 1f
    mov [rdi + 8], rcx
1:
    EPILOGUE
ENDFUNC rcu_cblist_dequeue

FUNC rcu_segcblist_enqueue              # rdi {head, tail}, rsi callback
    PROLOGUE
    mov qword ptr [rsi + RCU_HEAD_NEXT], 0
    mov rax, [rdi + 8]
    mov [rdi + 8], rsi
    test rax, rax
    je 1f
    mov [rax + RCU_HEAD_NEXT], rsi
    EPILOGUE
1:
    mov [rdi], rsi
    EPILOGUE
ENDFUNC rcu_segcblist_enqueue

FUNC rcu_segcblist_ready_cbs            # eax: whether this CPU has callbacks whose time has come
    PROLOGUE
    xor eax, eax
    cmp qword ptr gs:[RCU_WAIT_HEAD], 0
    je 1f
    mov rcx, [rip + rcu_state + RCU_STATE_SEQ]
    sub rcx, gs:[RCU_WAIT_SEQ]
    js 1f
    mov eax, 1
1:
    EPILOGUE
ENDFUNC rcu_segcblist_ready_cbs

# rdi rcu_head, rsi function: called with the head once all readers of now are done.
FUNC call_rcu
    ENTER3
    mov rbx, rdi
    mov [rdi + RCU_HEAD_FUNC], rsi
    LOCAL_IRQ_SAVE r12d
    mov rdi, gs:[PERCPU_SELF]
    add rdi, RCU_NEXT_HEAD
    mov rsi, rbx
    call rcu_segcblist_enqueue
    inc dword ptr gs:[RCU_NR_CBS]
    call note_gp_changes
    LOCAL_IRQ_RESTORE r12d
    LEAVE3
ENDFUNC call_rcu

# rdi rcu_head, rsi its offset in the object that is to be freed.
FUNC kvfree_call_rcu
    PROLOGUE
    call call_rcu
    EPILOGUE
ENDFUNC kvfree_call_rcu

# Interrupts are off: let callbacks that only just came ask for a grace period.
FUNC note_gp_changes
    ENTER2
    cmp qword ptr gs:[RCU_WAIT_HEAD], 0
    jne .Lout
    mov rax, gs:[RCU_NEXT_HEAD]
    test rax, rax
    je .Lout
    mov gs:[RCU_WAIT_HEAD], rax
    mov rax, gs:[RCU_NEXT_TAIL]
    mov gs:[RCU_WAIT_TAIL], rax
    mov qword ptr gs:[RCU_NEXT_HEAD], 0
    mov qword ptr gs:[RCU_NEXT_TAIL], 0
    mov rdi, offset rcu_state
    call _raw_spin_lock
    mov rdi, [rip + rcu_state + RCU_STATE_SEQ]
    add rdi, 3
    and rdi, -2
    mov gs:[RCU_WAIT_SEQ], rdi
    call rcu_start_this_gp
    mov rdi, offset rcu_state
    call _raw_spin_unlock
.Lout:
    LEAVE2
ENDFUNC note_gp_changes

# rdi sequence number that is needed; rcu_state is locked. eax: whether a grace period began.
FUNC rcu_start_this_gp
    PROLOGUE
    mov rax, rdi
    sub rax, [rip + rcu_state + RCU_STATE_WANTED]
    jle 1f
    mov [rip + rcu_state + RCU_STATE_WANTED], rdi
1:
    xor eax, eax
    test byte ptr [rip + rcu_state + RCU_STATE_SEQ], 1
    jne 2f
    call rcu_gp_init
    mov eax, 1
2:
    EPILOGUE
ENDFUNC rcu_start_this_gp

FUNC rcu_gp_init                        # rcu_state is locked
    PROLOGUE
    inc qword ptr [rip + rcu_state + RCU_STATE_SEQ]
    xor eax, eax
    xor ecx, ecx
.Lnext:
    mov rdx, [percpu_table + rcx*8]
    cmp dword ptr [rdx + CPU_ONLINE], 0
    je 1f
    bts rax, rcx
    mov dword ptr [rdx + RCU_QS_PASSED], 0
1:
    inc ecx
    cmp ecx, [rip + nr_cpu_ids]
    jb .Lnext
    mov [rip + rcu_state + RCU_STATE_MASK], rax
    EPILOGUE
ENDFUNC rcu_gp_init

FUNC rcu_gp_cleanup                     # rcu_state is locked: the grace period is over
    PROLOGUE
    inc qword ptr [rip + rcu_state + RCU_STATE_SEQ]
    inc qword ptr [rip + rcu_state + RCU_STATE_GPS]
    mov rax, [rip + rcu_state + RCU_STATE_WANTED]
    sub rax, [rip + rcu_state + RCU_STATE_SEQ]
    jle 1f
    call rcu_gp_init
1:
    EPILOGUE
ENDFUNC rcu_gp_cleanup

FUNC rcu_report_qs_rnp                  # rdi mask of CPUs that were quiet; rcu_state is locked
    PROLOGUE
    test byte ptr [rip + rcu_state + RCU_STATE_SEQ], 1
    je 1f
    not rdi
    and [rip + rcu_state + RCU_STATE_MASK], rdi
    jne 1f
    call rcu_gp_cleanup
1:
    EPILOGUE
ENDFUNC rcu_report_qs_rnp

# CPUs that idle do not tick, but read nothing either (rcu_gp_fqs). rcu_state is locked.
FUNC rcu_implicit_dynticks_qs
    PROLOGUE
    xor edi, edi
    xor ecx, ecx
.Lnext:
    bt qword ptr [rip + rcu_state + RCU_STATE_MASK], rcx
    jae 1f
    mov rdx, [percpu_table + rcx*8]
    mov rax, [rdx + RQ_CURR]
    cmp rax, [rdx + RQ_IDLE]
    jne 1f
    cmp dword ptr [rdx + IRQ_DEPTH], 0
    jne 1f
    bts rdi, rcx
1:
    inc ecx
    cmp ecx, [rip + nr_cpu_ids]
    jb .Lnext
    test rdi, rdi
    je 2f
    call rcu_report_qs_rnp
2:
    EPILOGUE
ENDFUNC rcu_implicit_dynticks_qs

# Each tick, in its interrupt; edi whether it came from user mode.
FUNC rcu_sched_clock_irq
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    cmp dword ptr [rax + TASK_RCU_NESTING], 0
    jne 1f
    cmp dword ptr gs:[SOFTIRQ_DEPTH], 0
    jne 1f
    mov dword ptr gs:[RCU_QS_PASSED], 1
1:
    cmp dword ptr gs:[RCU_NR_CBS], 0
    jne .Lcore
    mov eax, gs:[CPU_NUMBER]
    bt qword ptr [rip + rcu_state + RCU_STATE_MASK], rax
    jae .Lout
.Lcore:
    call invoke_rcu_core
.Lout:
    EPILOGUE
ENDFUNC rcu_sched_clock_irq

FUNC rcu_note_context_switch            # edi whether it is a preemption
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    cmp dword ptr [rax + TASK_RCU_NESTING], 0
    jne 1f
    mov dword ptr gs:[RCU_QS_PASSED], 1
1:
    EPILOGUE
ENDFUNC rcu_note_context_switch

FUNC invoke_rcu_core
    PROLOGUE
    mov edi, RCU_SOFTIRQ
    call raise_softirq
    EPILOGUE
ENDFUNC invoke_rcu_core

FUNC rcu_core_si
    PROLOGUE
    call rcu_core
    EPILOGUE
ENDFUNC rcu_core_si

FUNC rcu_core
    ENTER2
    LOCAL_IRQ_SAVE ebx
    test byte ptr [rip + rcu_state + RCU_STATE_SEQ], 1
    je .Lnone
    mov rdi, offset rcu_state
    call _raw_spin_lock
    cmp dword ptr gs:[RCU_QS_PASSED], 0
    je 1f
    mov ecx, gs:[CPU_NUMBER]
    xor edi, edi
    bts rdi, rcx
    call rcu_report_qs_rnp
1:
    call rcu_implicit_dynticks_qs
    mov rdi, offset rcu_state
    call _raw_spin_unlock
.Lnone:
    call note_gp_changes
    LOCAL_IRQ_RESTORE ebx
    call rcu_segcblist_ready_cbs
    test eax, eax
    je .Lout
    call rcu_do_batch
.Lout:
    LEAVE2
ENDFUNC rcu_core

FUNC rcu_do_batch
    ENTER3
    sub rsp, 24
    LOCAL_IRQ_SAVE ebx
    mov rax, gs:[RCU_WAIT_HEAD]
    mov [rsp], rax
    mov rax, gs:[RCU_WAIT_TAIL]
    mov [rsp + 8], rax
    mov qword ptr gs:[RCU_WAIT_HEAD], 0
    mov qword ptr gs:[RCU_WAIT_TAIL], 0
    call note_gp_changes
    LOCAL_IRQ_RESTORE ebx
    xor r12d, r12d
.Lnext:
    mov rdi, rsp
    call rcu_cblist_dequeue
    test rax, rax
    je .Lout
    inc r12d
    mov rdi, rax
    mov rcx, [rax + RCU_HEAD_FUNC]
    cmp rcx, KVFREE_OFFSET_MAX
    jb .Lfree
    call rcx
    jmp .Lnext
.Lfree:
    sub rdi, rcx
    call kfree
    jmp .Lnext
.Lout:
    sub gs:[RCU_NR_CBS], r12d
    mov eax, r12d
    LEAVE3
ENDFUNC rcu_do_batch

# --- waiting for readers --------------------------------------------------------------------------

RCU_SYNC_COMPLETION = 16                # struct rcu_synchronize {rcu_head, completion}

FUNC wakeme_after_rcu                   # rdi rcu_head
    PROLOGUE
    add rdi, RCU_SYNC_COMPLETION
    call complete
    EPILOGUE
ENDFUNC wakeme_after_rcu

FUNC __wait_rcu_gp
    ENTER1
    sub rsp, RCU_SYNC_COMPLETION + COMPLETION_SIZE
    mov rdi, rsp
    xor eax, eax
    mov [rsp + RCU_SYNC_COMPLETION], rax
    mov [rsp + RCU_SYNC_COMPLETION + 8], rax
    mov [rsp + RCU_SYNC_COMPLETION + 16], rax
    mov rsi, offset wakeme_after_rcu
    call call_rcu
    lea rdi, [rsp + RCU_SYNC_COMPLETION]
    call wait_for_completion
    LEAVE1
ENDFUNC __wait_rcu_gp

FUNC synchronize_rcu
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    test dword ptr [rax + TASK_FLAGS], PF_IDLE
    jne 1f                              # booting: nobody else runs
    call __wait_rcu_gp
1:
    EPILOGUE
ENDFUNC synchronize_rcu

.data
.balign 64
OBJECT rcu_state
    .quad 0
    .quad 0x7ffffffffffffed4            # RCU_SEQ starts near its end, as in Linux, but even
    .quad 0
    .quad 0x7ffffffffffffed4
    .quad 0
ENDOBJECT rcu_state
.text
