# net/core/dev.c, net/sched/sch_generic.c: packets on their way out, through the queue of their
# device.

.text

FUNC __dev_queue_xmit                   # rdi skb with its link header, rsi 0; NET_XMIT_… or error
    ENTER4
    mov rbx, rdi
    SKB_RESET_HEADER rbx, SKB_MAC_HEADER
    LOCAL_BH_DISABLE
    mov r12, [rbx + SKB_DEV]
    mov rdi, r12
    mov rsi, rbx
    xor edx, edx
    call netdev_core_pick_tx
    mov r13, [r12 + DEV_QDISC]
    mov r14d, -ENETUNREACH
    test dword ptr [r12 + DEV_FLAGS], IFF_UP
    je .Ldown
    test r13, r13
    je .Lnoqueue
    mov rdi, rbx
    mov rsi, r13
    mov rdx, r12
    call __dev_xmit_skb
    mov r14d, eax
    jmp .Lout
.Lnoqueue:
    mov rdi, rbx
    mov rsi, r12
    xor edx, edx
    call validate_xmit_skb
    mov rdi, rax
    mov rsi, r12
    xor edx, edx
    xor ecx, ecx
    call dev_hard_start_xmit
    mov r14d, NET_XMIT_SUCCESS
    jmp .Lout
.Ldown:
    mov rdi, rbx
    mov esi, 3
    call kfree_skb_reason
.Lout:
    LOCAL_BH_ENABLE
    mov eax, r14d
    LEAVE4
ENDFUNC __dev_queue_xmit

FUNC netdev_core_pick_tx                # rdi dev, rsi skb; eax number of its transmit queue
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC netdev_core_pick_tx

FUNC validate_xmit_skb                  # rdi skb, rsi dev; rax skb, or 0 when it had to be dropped
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call netif_skb_features
    mov eax, [rbx + SKB_LEN]
    mov ecx, [r12 + DEV_MTU]
    add ecx, ETH_HLEN
    cmp eax, ecx
    ja .Ldrop
    mov rax, rbx
    LEAVE2
.Ldrop:
    inc qword ptr [r12 + DEV_TX_DROPPED]
    mov rdi, rbx
    mov esi, 4
    call kfree_skb_reason
    xor eax, eax
    LEAVE2
ENDFUNC validate_xmit_skb

FUNC netif_skb_features                 # rdi skb; rax what its device can do for it: nothing
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC netif_skb_features

# rdi skb, rsi queue, rdx dev (inlined in Linux). An idle queue is passed by.
FUNC_NOTRACE __dev_xmit_skb
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    cmp dword ptr [r12 + QDISC_RUNNING], 0
    jne .Lqueue
    cmp dword ptr [r12 + QDISC_QUEUE + SKB_LIST_QLEN], 0
    jne .Lqueue
    mov dword ptr [r12 + QDISC_RUNNING], 1
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call sch_direct_xmit
    mov dword ptr [r12 + QDISC_RUNNING], 0
    cmp dword ptr [r12 + QDISC_QUEUE + SKB_LIST_QLEN], 0
    je .Lsent
    mov rdi, r12
    call __qdisc_run
.Lsent:
    mov eax, NET_XMIT_SUCCESS
    LEAVE3
.Lqueue:
    mov rdi, rbx
    mov rsi, r12
    call pfifo_fast_enqueue
    mov ebx, eax
    mov rdi, r12
    call __qdisc_run
    mov eax, ebx
    LEAVE3
ENDFUNC __dev_xmit_skb

FUNC sch_direct_xmit                    # rdi skb, rsi queue, rdx dev; eax whether to go on
    ENTER2
    mov rbx, rdx
    mov r12, rsi
    mov rsi, rdx
    xor edx, edx
    call validate_xmit_skb
    test rax, rax
    je .Lout
    push rax
    push rax
    lea rdi, [rbx + DEV_TX_LOCK]
    call _raw_spin_lock
    pop rdi
    mov rsi, rbx
    xor edx, edx
    xor ecx, ecx
    call dev_hard_start_xmit
    lea rdi, [rbx + DEV_TX_LOCK]
    call _raw_spin_unlock
    inc qword ptr [r12 + QDISC_PACKETS]
.Lout:
    mov eax, 1
    LEAVE2
ENDFUNC sch_direct_xmit

FUNC pfifo_fast_enqueue                 # rdi skb, rsi queue; NET_XMIT_…
    PROLOGUE
    mov rax, rdi
    lea rdi, [rsi + QDISC_QUEUE]
    mov rsi, rax
    call skb_queue_tail
    mov eax, NET_XMIT_SUCCESS
    EPILOGUE
ENDFUNC pfifo_fast_enqueue

FUNC pfifo_fast_dequeue                 # rdi queue; rax skb or 0
    PROLOGUE
    lea rdi, [rdi + QDISC_QUEUE]
    call skb_dequeue
    EPILOGUE
ENDFUNC pfifo_fast_dequeue

FUNC __qdisc_run                        # rdi queue: send what it holds, unless somebody is at it
    ENTER2
    mov rbx, rdi
    mov eax, 1
    xchg eax, [rdi + QDISC_RUNNING]
    test eax, eax
    jne .Lout
.Lnext:
    mov rdi, rbx
    call pfifo_fast_dequeue
    test rax, rax
    je .Lempty
    mov rdi, rax
    mov rsi, rbx
    mov rdx, [rbx + QDISC_DEV]
    call sch_direct_xmit
    jmp .Lnext
.Lempty:
    mov dword ptr [rbx + QDISC_RUNNING], 0
.Lout:
    LEAVE2
ENDFUNC __qdisc_run

# rdi first of a chain, rsi dev, rdx queue; rax what was not sent
FUNC dev_hard_start_xmit
    ENTER3
    mov rbx, rdi
    mov r12, rsi
.Lnext:
    test rbx, rbx
    je .Lout
    mov r13, [rbx + SKB_NEXT]
    mov qword ptr [rbx + SKB_NEXT], 0
    mov rdi, rbx
    mov rsi, r12
    call [r12 + DEV_START_XMIT]
    mov rbx, r13
    test eax, eax
    je .Lnext
.Lout:
    mov rax, rbx
    LEAVE3
ENDFUNC dev_hard_start_xmit
