# net/ipv4/tcp_minisocks.c: connections on their way in and out of being.

.text

# rdi listener, rsi skb, rdx request: the new connection, locked; the listener, to send a reset;
# or 0.
FUNC tcp_check_req
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    movzx r14d, byte ptr [rsi + TCP_CB_FLAGS]
    mov eax, [r12 + TCP_CB_SEQ]
    mov ecx, r14d
    and ecx, TCPHDR_SYN | TCPHDR_ACK | TCPHDR_RST
    cmp ecx, TCPHDR_SYN
    jne .Lnot_again
    cmp eax, [r13 + RSK_RCV_ISN]
    jne .Lnot_again
    mov rsi, r13                        # its SYN again: our answer got lost
    call tcp_rtx_synack
    xor eax, eax
    LEAVE4
.Lnot_again:
    test r14d, TCPHDR_RST | TCPHDR_SYN
    jne .Lembryonic_reset
    test r14d, TCPHDR_ACK
    je .Lnothing
    mov ecx, [r12 + TCP_CB_ACK_SEQ]
    dec ecx
    cmp ecx, [r13 + RSK_SND_ISN]
    jne .Llistener
    sub eax, [r13 + RSK_RCV_ISN]
    dec eax
    js .Lnothing
    cmp eax, TCP_WINDOW_MAX
    ja .Lnothing
    mov rdx, r13
    call tcp_v4_syn_recv_sock
    test rax, rax
    je .Lout
    mov rdi, rbx
    mov rsi, rax
    mov rdx, r13
    call inet_csk_complete_hashdance
.Lout:
    LEAVE4
.Lembryonic_reset:
    mov rsi, r13
    call inet_csk_reqsk_queue_drop
.Lnothing:
    xor eax, eax
    LEAVE4
.Llistener:
    mov rax, rbx
    LEAVE4
ENDFUNC tcp_check_req

# rdi listener, rsi skb, rdx request; rax connection, locked, or 0
FUNC tcp_v4_syn_recv_sock
    ENTER3
    sub rsp, FL4_SIZE
    mov rbx, rdi
    mov r13, rdx
    mov eax, [rbx + ICSK_ACK_BACKLOG]
    cmp eax, [rbx + ICSK_MAX_ACK_BACKLOG]
    ja .Lfull
    mov rcx, rsi
    mov rsi, rdx
    mov rdx, rcx
    call tcp_create_openreq_child
    mov r12, rax
    test rax, rax
    je .Lout
    mov rdi, rbx
    mov rsi, rsp
    mov rdx, r13
    call inet_csk_route_req
    mov [r12 + SK_DST], rax
    mov rdi, rax
    call ipv4_mtu
    mov rdi, r12
    mov esi, eax
    call tcp_sync_mss
    mov rdi, [r12 + SK_DST]
    call ipv4_default_advmss
    mov [r12 + TP_ADVMSS], eax
    mov rdi, rbx
    mov rsi, r12
    call __inet_inherit_port
    mov rdi, r12
    mov rsi, r13
    call inet_ehash_nolisten
    mov rax, r12
.Lout:
    LEAVE3
.Lfull:
    xor eax, eax
    LEAVE3
ENDFUNC tcp_v4_syn_recv_sock

# rdi listener, rsi request, rdx skb; rax connection, locked, or 0
FUNC tcp_create_openreq_child
    ENTER3
    mov r12, rsi
    mov r13, rdx
    mov edx, GFP_ATOMIC
    call inet_csk_clone_lock
    test rax, rax
    je .Lout
    mov rbx, rax
    mov rdi, rax
    call tcp_init_xmit_timers
    lea rdi, [rbx + TP_RTX_QUEUE]
    xor eax, eax
    mov ecx, (SOCK_SIZE - TP_RTX_QUEUE) / 8
    rep stosq
    mov eax, [r12 + RSK_RCV_ISN]
    mov [rbx + TP_SND_WL1], eax
    inc eax
    mov [rbx + TP_RCV_NXT], eax
    mov [rbx + TP_RCV_WUP], eax
    mov [rbx + TP_COPIED_SEQ], eax
    mov eax, [r12 + RSK_SND_ISN]
    inc eax
    mov [rbx + TP_SND_UNA], eax
    mov [rbx + TP_SND_NXT], eax
    mov [rbx + TP_WRITE_SEQ], eax
    mov [rbx + TP_PUSHED_SEQ], eax
    mov dword ptr [rbx + TP_RCV_WND], TCP_WINDOW_MAX
    mov dword ptr [rbx + TP_RCV_SSTHRESH], TCP_WINDOW_MAX
    mov eax, [r12 + RSK_SND_WND]
    mov [rbx + TP_SND_WND], eax
    mov eax, [r12 + RSK_MSS]
    mov [rbx + TP_MSS], eax
    mov dword ptr [rbx + ICSK_RTO], TCP_TIMEOUT_INIT
    mov dword ptr [rbx + TP_SND_CWND], TCP_INIT_CWND
    mov dword ptr [rbx + TP_SND_SSTHRESH], TCP_INFINITE_SSTHRESH
    mov rax, rbx
.Lout:
    LEAVE3
ENDFUNC tcp_create_openreq_child

# rdi listener, rsi connection, locked, rdx skb; 0, or 1 to send a reset
FUNC tcp_child_process
    ENTER4
    mov r12, rdi
    mov rbx, rsi
    xor r13d, r13d
    cmp dword ptr [rbx + SK_LOCK_OWNED], 0
    jne .Lowned
    movzx r14d, byte ptr [rbx + SK_STATE]
    mov rdi, rbx
    mov rsi, rdx
    call tcp_rcv_state_process
    mov r13d, eax
    cmp r14d, TCP_SYN_RECV
    jne .Lunlock
    cmp [rbx + SK_STATE], r14b
    je .Lunlock
    mov rdi, r12
    call [r12 + SK_DATA_READY]
    jmp .Lunlock
.Lowned:
    mov rdi, rbx
    mov rsi, rdx
    call tcp_add_backlog
.Lunlock:
    BH_UNLOCK_SOCK rbx
    SOCK_PUT rbx
    mov eax, r13d
    LEAVE4
ENDFUNC tcp_child_process

FUNC tcp_timewait_state_process         # rdi sock in TIME_WAIT, rsi skb
    PROLOGUE
    test byte ptr [rsi + TCP_CB_FLAGS], TCPHDR_RST
    jne .Lout
    test byte ptr [rsi + TCP_CB_FLAGS], TCPHDR_FIN
    je .Lout
    call tcp_send_ack                   # our last acknowledgment got lost
.Lout:
    EPILOGUE
ENDFUNC tcp_timewait_state_process

FUNC tcp_time_wait                      # rdi sock, esi state, edx ticks or 0
    ENTER2
    mov rbx, rdi
    mov r12d, edx
    call tcp_set_state
    mov rdi, rbx
    call inet_csk_clear_xmit_timers
    test dword ptr [rbx + SK_FLAGS], SOCK_DEAD
    je 2f
    mov rdi, rbx                        # nobody will read or send any more
    call sk_stream_kill_queues
2:
    test r12d, r12d
    jne 1f
    mov r12d, TCP_TIMEWAIT_LEN
1:
    mov rdi, rbx
    lea rsi, [rbx + SK_TIMER]
    mov edx, r12d
    add rdx, [rip + jiffies_64]
    call sk_reset_timer
    LEAVE2
ENDFUNC tcp_time_wait
