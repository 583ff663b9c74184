# net/ipv4/tcp_output.c: segments sent once more.

.text

# rdi sock, rsi skb, edx bytes at its start that are acknowledged; 0
FUNC tcp_trim_head
    ENTER2
    mov rbx, rsi
    mov r12d, edx
    mov rdi, rsi
    mov esi, edx
    call skb_pull
    add [rbx + TCP_CB_SEQ], r12d
    xor eax, eax
    LEAVE2
ENDFUNC tcp_trim_head

FUNC tcp_retransmit_skb                 # rdi sock, rsi skb, edx segments; 0 or an error
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call __tcp_retransmit_skb
    test eax, eax
    jne .Lout
    or byte ptr [r12 + TCP_CB_SACKED], 2
.Lout:
    LEAVE2
ENDFUNC tcp_retransmit_skb

FUNC __tcp_retransmit_skb
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov edx, [rbx + TP_SND_UNA]
    sub edx, [r12 + TCP_CB_SEQ]
    jle .Lwhole
    cmp edx, [r12 + SKB_LEN]
    ja .Lwhole
    call tcp_trim_head
.Lwhole:
    inc dword ptr [rbx + TP_TOTAL_RETRANS]
    inc qword ptr gs:[TCP_RETRANS_SEGS]
    mov rsi, r12
    mov edx, 1
    TCP_TRANSMIT_SKB
    LEAVE2
ENDFUNC __tcp_retransmit_skb

# rdi sock, esi whether the timeout is being set anew; eax whether it was
FUNC tcp_schedule_loss_probe
    ENTER1
    push rax
    mov rbx, rdi
    xor eax, eax
    cmp dword ptr [rbx + TP_PACKETS_OUT], 0
    je .Lout
    cmp dword ptr [rbx + TP_SRTT_US], 0
    je .Lout
    movzx ecx, byte ptr [rbx + SK_STATE]
    cmp ecx, TCP_ESTABLISHED
    jne .Lout
    mov eax, [rbx + TP_SRTT_US]         # twice the round trip
    shr eax, 2
    xor edx, edx
    mov ecx, 4000
    div ecx
    add eax, 2
    cmp dword ptr [rbx + TP_PACKETS_OUT], 1
    jne 1f
    add eax, TCP_RTO_MIN                # its acknowledgment may be delayed
1:
    cmp eax, [rbx + ICSK_RTO]
    jae .Lno
    mov byte ptr [rbx + ICSK_PENDING], ICSK_TIME_LOSS_PROBE
    mov edx, eax
    add rdx, [rip + jiffies_64]
    mov rdi, rbx
    lea rsi, [rbx + ICSK_RTX_TIMER]
    call sk_reset_timer
    mov eax, 1
    LEAVE1
.Lno:
    xor eax, eax
.Lout:
    LEAVE1
ENDFUNC tcp_schedule_loss_probe

# rdi sock: the last segment once more, to find out what was lost
FUNC tcp_send_loss_probe
    ENTER1
    push rax
    mov rbx, rdi
    lea rcx, [rbx + SK_WRITE_QUEUE]
    cmp [rcx], rcx
    je .Lold
    call tcp_current_mss                # better something new
    mov rdi, rbx
    mov esi, eax
    call tcp_push_one
    jmp .Lrearm
.Lold:
    lea rcx, [rbx + TP_RTX_QUEUE]
    mov rsi, [rcx + 8]
    test rsi, rsi
    je .Lrearm
    cmp rsi, rcx
    je .Lrearm
    mov rdi, rbx
    mov edx, 1
    call __tcp_retransmit_skb
    mov eax, [rbx + TP_SND_NXT]
    mov [rbx + TP_TLP_HIGH_SEQ], eax
.Lrearm:
    mov byte ptr [rbx + ICSK_PENDING], 0
    mov rdi, rbx
    call tcp_rearm_rto
    LEAVE1
ENDFUNC tcp_send_loss_probe

# What a softirq left to be done because the sock was owned. rdi sock, its spin lock held.
FUNC tcp_release_cb
    ENTER2
    mov rbx, rdi
    movzx r12d, word ptr [rdi + SK_DEFERRED]
    mov word ptr [rdi + SK_DEFERRED], 0
    test r12d, TCP_WRITE_TIMER_DEFERRED
    je .Ldelack
    call tcp_write_timer_handler
    SOCK_PUT rbx
.Ldelack:
    test r12d, TCP_DELACK_TIMER_DEFERRED
    je .Lout
    mov rdi, rbx
    call tcp_delack_timer_handler
    SOCK_PUT rbx
.Lout:
    LEAVE2
ENDFUNC tcp_release_cb
