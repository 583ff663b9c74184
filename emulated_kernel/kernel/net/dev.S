# net/core/dev.c: devices, and packets on their way from a driver to the protocols and back.
# Left out: GRO merging, packet taps, traffic control on receive, steering between CPUs.

.text

FUNC_NOTRACE net_dev_init
    ENTER2
    call skb_init
    xor ebx, ebx
.Lcpu:
    mov r12, [percpu_table + rbx*8]
    lea rax, [r12 + SD_POLL_LIST]
    LIST_INIT rax
    lea rax, [r12 + SD_INPUT_QUEUE]
    LIST_INIT rax
    lea rax, [r12 + SD_PROCESS_QUEUE]
    LIST_INIT rax
    lea rdi, [r12 + SD_BACKLOG]
    xor esi, esi
    mov rdx, offset process_backlog
    mov ecx, NAPI_POLL_WEIGHT
    call netif_napi_add_weight
    inc ebx
    cmp ebx, [rip + nr_cpu_ids]
    jb .Lcpu
    mov edi, NET_TX_SOFTIRQ
    mov rsi, offset net_tx_action
    call open_softirq
    mov edi, NET_RX_SOFTIRQ
    mov rsi, offset net_rx_action
    call open_softirq
    call loopback_net_init
    call inet_init
    call e1000_init_module
    LEAVE2
ENDFUNC net_dev_init

FUNC register_netdevice                 # rdi dev; 0
    PROLOGUE
    mov qword ptr [rdi + DEV_NEXT], 0
    mov rax, offset dev_base_head
.Lend:
    mov rcx, [rax]
    test rcx, rcx
    je .Lappend
    lea rax, [rcx + DEV_NEXT]
    jmp .Lend
.Lappend:
    mov [rax], rdi
    inc dword ptr [rip + last_ifindex]
    mov eax, [rip + last_ifindex]
    mov [rdi + DEV_IFINDEX], eax
    or dword ptr [rdi + DEV_FLAGS], IFF_UP
    xor eax, eax
    EPILOGUE
ENDFUNC register_netdevice

FUNC dev_get_by_index                   # rdi net, esi index; rax dev or 0
    PROLOGUE
    mov rax, [rip + dev_base_head]
.Lnext:
    test rax, rax
    je .Lout
    cmp [rax + DEV_IFINDEX], esi
    je .Lout
    mov rax, [rax + DEV_NEXT]
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC dev_get_by_index

FUNC __dev_get_by_name                  # rdi net, rsi name; rax dev or 0
    ENTER2
    mov r12, rsi
    mov rbx, [rip + dev_base_head]
.Lnext:
    test rbx, rbx
    je .Lout
    lea rdi, [rbx + DEV_NAME]
    mov rsi, r12
    call strcmp
    test eax, eax
    je .Lout
    mov rbx, [rbx + DEV_NEXT]
    jmp .Lnext
.Lout:
    mov rax, rbx
    LEAVE2
ENDFUNC __dev_get_by_name

FUNC dev_add_pack                       # rdi packet_type
    ENTER1
    push rax
    mov rbx, rdi
    mov rdi, offset ptype_lock
    call _raw_spin_lock
    movzx eax, word ptr [rbx + PTYPE_TYPE]
    xchg al, ah
    and eax, 15
    shl eax, 4
    add rax, offset ptype_base
    cmp qword ptr [rax], 0
    jne 1f
    LIST_INIT rax
1:
    lea rcx, [rbx + PTYPE_LIST]
    LIST_ADD_TAIL rcx, rax, rdx
    mov rdi, offset ptype_lock
    call _raw_spin_unlock
    LEAVE1
ENDFUNC dev_add_pack

# --- polling --------------------------------------------------------------------------------------

FUNC netif_napi_add_weight              # rdi napi, rsi dev, rdx poll function, ecx weight
    PROLOGUE
    LIST_INIT rdi
    mov qword ptr [rdi + NAPI_STATE], 0
    mov [rdi + NAPI_WEIGHT], ecx
    mov dword ptr [rdi + NAPI_RX_COUNT], 0
    mov [rdi + NAPI_POLL], rdx
    mov [rdi + NAPI_DEV], rsi
    EPILOGUE
ENDFUNC netif_napi_add_weight

FUNC napi_schedule_prep                 # rdi napi; eax whether the caller is to schedule it
    PROLOGUE
    xor eax, eax
    lock bts qword ptr [rdi + NAPI_STATE], 0
    setae al
    EPILOGUE
ENDFUNC napi_schedule_prep

# This CPU's poll list gets napi rdi. Interrupts are off.
FUNC_NOTRACE ____napi_schedule
    push rbp
    mov rbp, rsp
    mov rax, gs:[PERCPU_SELF]
    add rax, SD_POLL_LIST
    LIST_ADD_TAIL rdi, rax, rcx
    mov edi, NET_RX_SOFTIRQ
    call __raise_softirq_irqoff
    pop rbp
    ret
ENDFUNC ____napi_schedule

FUNC __napi_schedule                    # rdi napi
    ENTER1
    push rax
    LOCAL_IRQ_SAVE ebx
    call ____napi_schedule
    LOCAL_IRQ_RESTORE ebx
    LEAVE1
ENDFUNC __napi_schedule

FUNC napi_complete_done                 # rdi napi, esi packets done; eax 1
    ENTER2
    mov rbx, rdi
    mov dword ptr [rdi + NAPI_RX_COUNT], 0
    LOCAL_IRQ_SAVE r12d
    cmp [rbx], rbx
    je 1f
    LIST_DEL rbx, rax, rcx
    LIST_INIT rbx
1:
    lock btr qword ptr [rbx + NAPI_STATE], 0
    LOCAL_IRQ_RESTORE r12d
    mov eax, 1
    LEAVE2
ENDFUNC napi_complete_done

FUNC net_rx_action                      # the softirq
    ENTER5
    sub rsp, 24
    mov r12d, NETDEV_BUDGET
    lea rbx, [rbp - 56]                 # what is to be polled now
    LIST_INIT rbx
    LOCAL_IRQ_DISABLE
    mov r13, gs:[PERCPU_SELF]
    add r13, SD_POLL_LIST
    cmp [r13], r13
    je .Ltaken
    mov rax, [r13]                      # list_splice_init
    mov rcx, [r13 + 8]
    mov [rbx], rax
    mov [rbx + 8], rcx
    mov [rax + 8], rbx
    mov [rcx], rbx
    LIST_INIT r13
.Ltaken:
    LOCAL_IRQ_ENABLE
.Lnext:
    mov r14, [rbx]
    cmp r14, rbx
    je .Lout
    LIST_DEL r14, rax, rcx
    LIST_INIT r14
    mov dword ptr [rbp - 60], 0
    mov rdi, r14
    lea rsi, [rbp - 60]
    call __napi_poll
    sub r12d, eax
    cmp dword ptr [rbp - 60], 0
    je .Ldone
    LOCAL_IRQ_DISABLE
    LIST_ADD_TAIL r14, r13, rax
    LOCAL_IRQ_ENABLE
.Ldone:
    test r12d, r12d
    jg .Lnext
    inc qword ptr gs:[SD_TIME_SQUEEZE]
.Lout:
    LOCAL_IRQ_DISABLE
    mov r14, [rbx]
    cmp r14, rbx
    je .Lrepoll
    LIST_DEL r14, rax, rcx
    LIST_ADD_TAIL r14, r13, rax
    jmp .Lout
.Lrepoll:
    cmp [r13], r13
    je .Lempty
    mov edi, NET_RX_SOFTIRQ
    call __raise_softirq_irqoff
.Lempty:
    LOCAL_IRQ_ENABLE
    LEAVE5
ENDFUNC net_rx_action

# rdi napi, rsi where to say that it has more; eax packets done
FUNC __napi_poll
    ENTER3
    push rax
    mov rbx, rdi
    mov r12, rsi
    xor eax, eax
    test byte ptr [rdi + NAPI_STATE], 1
    je .Lout
    mov r13d, [rdi + NAPI_WEIGHT]
    mov esi, r13d
    call [rdi + NAPI_POLL]
    cmp eax, r13d
    jb .Lout
    mov dword ptr [r12], 1
.Lout:
    LEAVE3
ENDFUNC __napi_poll

FUNC net_tx_action                      # the softirq: free what was sent, send what had to wait
    ENTER3
    LOCAL_IRQ_DISABLE
    xor ebx, ebx
    xchg rbx, gs:[SD_COMPLETION_QUEUE]
    xor r12d, r12d
    xchg r12, gs:[SD_OUTPUT_QUEUE]
    LOCAL_IRQ_ENABLE
.Lfree:
    test rbx, rbx
    je .Lrun
    mov rdi, rbx
    mov rbx, [rbx + SKB_NEXT]
    call __kfree_skb
    jmp .Lfree
.Lrun:
    test r12, r12
    je .Lout
    mov rdi, r12
    mov r12, [r12 + QDISC_NEXT_SCHED]
    call __qdisc_run
    jmp .Lrun
.Lout:
    LEAVE3
ENDFUNC net_tx_action

# --- the backlog of a CPU -------------------------------------------------------------------------

FUNC netif_rx                           # rdi skb from a place that is not NAPI; NET_RX_…
    ENTER1
    push rax
    LOCAL_BH_DISABLE
    call netif_rx_internal
    mov ebx, eax
    LOCAL_BH_ENABLE
    mov eax, ebx
    LEAVE1
ENDFUNC netif_rx

FUNC __netif_rx                         # the same with bh off
    PROLOGUE
    call netif_rx_internal
    EPILOGUE
ENDFUNC __netif_rx

FUNC netif_rx_internal
    ENTER1
    push rax
    mov rbx, rdi
    call ktime_get_real_seconds
    mov [rbx + SKB_TSTAMP], rax
    mov rdi, rbx
    mov esi, gs:[CPU_NUMBER]
    call enqueue_to_backlog
    LEAVE1
ENDFUNC netif_rx_internal

FUNC enqueue_to_backlog                 # rdi skb, esi CPU (this one)
    ENTER3
    mov rbx, rdi
    LOCAL_IRQ_SAVE r12d
    mov r13, gs:[PERCPU_SELF]
    lea rdi, [r13 + SD_INPUT_QUEUE]
    cmp dword ptr [rdi + SKB_LIST_QLEN], NETDEV_MAX_BACKLOG
    ja .Ldrop
    mov rsi, rbx
    call __skb_queue_tail
    lea rdi, [r13 + SD_BACKLOG]
    lock bts qword ptr [rdi + NAPI_STATE], 0
    jb .Lqueued
    call ____napi_schedule
.Lqueued:
    LOCAL_IRQ_RESTORE r12d
    mov eax, NET_RX_SUCCESS
    LEAVE3
.Ldrop:
    inc qword ptr [r13 + SD_DROPPED]
    LOCAL_IRQ_RESTORE r12d
    mov rdi, rbx
    mov esi, 1
    call kfree_skb_reason
    mov eax, NET_RX_DROP
    LEAVE3
ENDFUNC enqueue_to_backlog

FUNC process_backlog                    # rdi the backlog's napi, esi quota; eax packets done
    ENTER4
    mov rbx, gs:[PERCPU_SELF]
    mov r12d, esi
    xor r13d, r13d
    mov r14, rdi
.Lnext:
    lea rdi, [rbx + SD_PROCESS_QUEUE]
    call __skb_dequeue
    test rax, rax
    je .Lrefill
    mov rdi, rax
    push rax
    push rax
    call __rcu_read_lock
    pop rdi
    call __netif_receive_skb
    call __rcu_read_unlock
    add rsp, 8
    inc qword ptr [rbx + SD_PROCESSED]
    inc r13d
    cmp r13d, r12d
    jb .Lnext
    jmp .Lout
.Lrefill:
    LOCAL_IRQ_DISABLE
    lea rsi, [rbx + SD_INPUT_QUEUE]
    cmp dword ptr [rsi + SKB_LIST_QLEN], 0
    je .Lidle
    lea rdi, [rbx + SD_PROCESS_QUEUE]
    mov rax, [rsi]                      # splice: the process queue is empty
    mov rcx, [rsi + 8]
    mov [rdi], rax
    mov [rdi + 8], rcx
    mov [rax + 8], rdi
    mov [rcx], rdi
    mov eax, [rsi + SKB_LIST_QLEN]
    mov [rdi + SKB_LIST_QLEN], eax
    LIST_INIT rsi
    mov dword ptr [rsi + SKB_LIST_QLEN], 0
    LOCAL_IRQ_ENABLE
    jmp .Lnext
.Lidle:
    mov qword ptr [r14 + NAPI_STATE], 0
    LOCAL_IRQ_ENABLE
.Lout:
    mov eax, r13d
    LEAVE4
ENDFUNC process_backlog

# --- receiving ------------------------------------------------------------------------------------

FUNC napi_gro_receive                   # rdi napi, rsi skb; GRO_…
    PROLOGUE
    call dev_gro_receive
    EPILOGUE
ENDFUNC napi_gro_receive

# Packets that could be merged would wait here; each goes on by itself (GRO_NORMAL).
FUNC dev_gro_receive                    # rdi napi, rsi skb; eax 3
    PROLOGUE
    inc dword ptr [rdi + NAPI_RX_COUNT]
    mov rdi, rsi
    call netif_receive_skb
    mov eax, 3
    EPILOGUE
ENDFUNC dev_gro_receive

FUNC netif_receive_skb                  # rdi skb; NET_RX_…
    PROLOGUE
    call netif_receive_skb_internal
    EPILOGUE
ENDFUNC netif_receive_skb

FUNC netif_receive_skb_internal
    ENTER2
    mov rbx, rdi
    call ktime_get_real_seconds
    mov [rbx + SKB_TSTAMP], rax
    call __rcu_read_lock
    mov rdi, rbx
    call __netif_receive_skb
    mov r12d, eax
    call __rcu_read_unlock
    mov eax, r12d
    LEAVE2
ENDFUNC netif_receive_skb_internal

FUNC __netif_receive_skb
    PROLOGUE
    call netif_receive_skb_core
    EPILOGUE
ENDFUNC __netif_receive_skb

FUNC netif_receive_skb_core
    PROLOGUE
    xor esi, esi
    call __netif_receive_skb_one_core
    EPILOGUE
ENDFUNC netif_receive_skb_core

FUNC __netif_receive_skb_one_core       # rdi skb, esi whether its memory came from the reserves
    ENTER2
    sub rsp, 16
    mov rbx, [rdi + SKB_DEV]
    mov [rsp], rdi
    mov qword ptr [rsp + 8], 0
    mov rdi, rsp
    lea rdx, [rsp + 8]
    call __netif_receive_skb_core
    mov rdx, [rsp + 8]
    test rdx, rdx
    je .Lout
    mov rdi, [rsp]
    mov rsi, [rdi + SKB_DEV]
    mov rcx, rbx
    call [rdx + PTYPE_FUNC]
.Lout:
    LEAVE2
ENDFUNC __netif_receive_skb_one_core

# rdi address of the skb, esi as above, rdx where the protocol that is to have it goes: NET_RX_…
FUNC __netif_receive_skb_core
    ENTER4
    mov rbx, [rdi]
    mov r12, rdx
    xor r13d, r13d
    SKB_RESET_HEADER rbx, SKB_NETWORK_HEADER
    SKB_RESET_HEADER rbx, SKB_TRANSPORT_HEADER
    mov rdi, [rbx + SKB_DEV]
    inc qword ptr [rdi + DEV_RX_PACKETS]
    mov eax, [rbx + SKB_LEN]
    add [rdi + DEV_RX_BYTES], rax
    movzx ecx, word ptr [rbx + SKB_PROTOCOL]
    mov eax, ecx
    xchg al, ah
    and eax, 15
    shl eax, 4
    add rax, offset ptype_base
    mov rdx, [rax]
    test rdx, rdx
    je .Ldeliver
.Lnext:
    cmp rdx, rax
    je .Ldeliver
    cmp [rdx - PTYPE_LIST + PTYPE_TYPE], cx
    jne .Lother
    mov r8, [rdx - PTYPE_LIST + PTYPE_DEV]
    test r8, r8
    je .Lmatch
    cmp r8, rdi
    jne .Lother
.Lmatch:
    test r13, r13
    je .Lfirst
    mov r14, rdx                        # the one before gets a reference of its own
    lock inc dword ptr [rbx + SKB_USERS]
    mov rsi, rdi
    mov rcx, rdi
    mov rdi, rbx
    mov rdx, r13
    call [r13 + PTYPE_FUNC]
    mov rdi, [rbx + SKB_DEV]
    mov rdx, r14
    movzx ecx, word ptr [rbx + SKB_PROTOCOL]
    mov eax, ecx
    xchg al, ah
    and eax, 15
    shl eax, 4
    add rax, offset ptype_base
.Lfirst:
    lea r13, [rdx - PTYPE_LIST]
.Lother:
    mov rdx, [rdx]
    jmp .Lnext
.Ldeliver:
    test r13, r13
    je .Ldrop
    mov [r12], r13
    mov eax, NET_RX_SUCCESS
    LEAVE4
.Ldrop:
    inc qword ptr [rdi + DEV_RX_DROPPED]
    mov rdi, rbx
    mov esi, 2
    call kfree_skb_reason
    mov eax, NET_RX_DROP
    LEAVE4
ENDFUNC __netif_receive_skb_core

.data
.balign 64
OBJECT dev_base_head
    .quad 0
ENDOBJECT dev_base_head
OBJECT ptype_base
    .zero 256
ENDOBJECT ptype_base
ptype_lock:
    .long 0
last_ifindex:
    .long 0
.text
