# net/ipv4/tcp_input.c: segments that came in. Left out: SACK, time stamps, urgent data, fast
# open, window scaling, simultaneous open.

.text

FUNC tcp_parse_options                  # rdi net, rsi skb: into its control block
    PROLOGUE
    mov word ptr [rsi + TCP_CB_MSS], 0
    SKB_HEADER rax, rsi, SKB_TRANSPORT_HEADER
    movzx ecx, byte ptr [rax + TCPHDR_DOFF]
    shr ecx, 4
    shl ecx, 2
    add rcx, rax                        # end of the header
    add rax, TCPHDR_SIZE
.Lnext:
    cmp rax, rcx
    jae .Lout
    movzx edx, byte ptr [rax]
    test edx, edx                       # end of list
    je .Lout
    inc rax
    cmp edx, 1                          # no operation
    je .Lnext
    cmp rax, rcx
    jae .Lout
    movzx edi, byte ptr [rax]
    cmp edi, 2
    jb .Lout
    lea r8, [rax + rdi - 1]
    cmp r8, rcx
    ja .Lout
    cmp edx, 2                          # segment size
    jne .Lskip
    cmp edi, 4
    jne .Lskip
    mov dx, [rax + 1]
    xchg dl, dh
    mov [rsi + TCP_CB_MSS], dx
.Lskip:
    mov rax, r8
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC tcp_parse_options

FUNC tcp_send_challenge_ack             # rdi sock
    PROLOGUE
    call tcp_send_ack
    EPILOGUE
ENDFUNC tcp_send_challenge_ack

FUNC tcp_send_dupack                    # rdi sock, rsi skb from outside the window
    PROLOGUE
    call tcp_send_ack
    EPILOGUE
ENDFUNC tcp_send_dupack

# rdi sock, rsi skb: 1 when it may be looked at further, 0 when it is gone.
FUNC tcp_validate_incoming
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    movzx r13d, byte ptr [rsi + TCP_CB_FLAGS]
    mov eax, [r12 + TCP_CB_END_SEQ]     # tcp_sequence
    sub eax, [rbx + TP_RCV_WUP]
    js .Loutside
    mov eax, [rbx + TP_RCV_NXT]
    add eax, [rbx + TP_RCV_WND]
    sub eax, [r12 + TCP_CB_SEQ]
    js .Loutside
    test r13d, TCPHDR_RST
    jne .Lreset
    test r13d, TCPHDR_SYN
    jne .Lchallenge
    mov eax, 1
    LEAVE3
.Loutside:
    test r13d, TCPHDR_RST
    jne .Ldrop
    mov rdi, rbx
    mov rsi, r12
    call tcp_send_dupack
    jmp .Ldrop
.Lreset:
    mov eax, [r12 + TCP_CB_SEQ]
    cmp eax, [rbx + TP_RCV_NXT]
    jne .Lchallenge
    mov rdi, rbx
    mov rsi, r12
    call tcp_reset
    jmp .Ldrop
.Lchallenge:
    mov rdi, rbx
    call tcp_send_challenge_ack
.Ldrop:
    mov rdi, r12
    mov esi, 22
    call kfree_skb_reason
    xor eax, eax
    LEAVE3
ENDFUNC tcp_validate_incoming

FUNC tcp_rcv_established                # rdi sock, rsi skb from the TCP header on, consumed
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    inc dword ptr [rbx + TP_SEGS_IN]
    SKB_HEADER rax, rsi, SKB_TRANSPORT_HEADER
    movzx r13d, byte ptr [rax + TCPHDR_DOFF]
    shr r13d, 4
    shl r13d, 2
    movzx eax, byte ptr [r12 + TCP_CB_FLAGS]    # header prediction
    and eax, 255 - TCPHDR_PSH
    cmp eax, TCPHDR_ACK
    jne .Lslow
    mov eax, [r12 + TCP_CB_SEQ]
    cmp eax, [rbx + TP_RCV_NXT]
    jne .Lslow
    mov eax, [rbx + TP_SND_NXT]
    sub eax, [r12 + TCP_CB_ACK_SEQ]
    js .Lslow
    cmp dword ptr [rbx + TP_OFO_QUEUE + SKB_LIST_QLEN], 0
    jne .Lslow
    cmp [r12 + SKB_LEN], r13d
    jbe .Lpure_ack
    mov eax, [r12 + SKB_TRUESIZE]
    add eax, [rbx + SK_RMEM_ALLOC]
    cmp eax, [rbx + SK_RCVBUF]
    ja .Lslow
    cmp dword ptr [rbx + TP_RCV_WND], 0
    je .Lslow
    mov rdi, r12
    mov esi, r13d
    call skb_pull
    mov rdi, rbx
    mov rsi, r12
    call tcp_queue_rcv
    mov rdi, rbx
    mov rsi, r12
    call tcp_event_data_recv
    mov eax, [r12 + TCP_CB_ACK_SEQ]
    cmp eax, [rbx + TP_SND_UNA]
    je .Lno_ack
    mov rdi, rbx
    mov rsi, r12
    mov edx, TCP_FLAG_DATA
    call tcp_ack
    mov rdi, rbx
    call tcp_data_snd_check
.Lno_ack:
    mov rdi, rbx
    TCP_ACK_SND_CHECK
    mov rdi, rbx
    call tcp_data_ready
    LEAVE4
.Lpure_ack:
    mov rdi, rbx
    mov rsi, r12
    xor edx, edx
    call tcp_ack
    mov rdi, r12
    call consume_skb
    mov rdi, rbx
    call tcp_data_snd_check
    LEAVE4
.Lslow:
    test byte ptr [r12 + TCP_CB_FLAGS], TCPHDR_ACK | TCPHDR_RST | TCPHDR_SYN
    je .Ldrop
    mov rdi, rbx
    mov rsi, r12
    call tcp_validate_incoming
    test eax, eax
    je .Lout
    mov rdi, rbx
    mov rsi, r12
    mov edx, TCP_FLAG_SLOWPATH
    mov eax, [r12 + SKB_LEN]
    cmp eax, r13d
    je 1f
    or edx, TCP_FLAG_DATA
1:
    call tcp_ack
    test eax, eax
    js .Ldrop
    mov rdi, rbx
    mov rsi, r12
    call tcp_data_queue
    mov rdi, rbx
    call tcp_data_snd_check
    mov rdi, rbx
    TCP_ACK_SND_CHECK
.Lout:
    LEAVE4
.Ldrop:
    mov rdi, r12
    mov esi, 23
    call kfree_skb_reason
    LEAVE4
ENDFUNC tcp_rcv_established

FUNC tcp_init_transfer                  # rdi sock whose connection is there
    PROLOGUE
    mov dword ptr [rdi + TP_SND_CWND], TCP_INIT_CWND
    mov dword ptr [rdi + TP_SND_SSTHRESH], TCP_INFINITE_SSTHRESH
    mov dword ptr [rdi + TP_RCV_MSS], 536
    mov byte ptr [rdi + ICSK_ACK_QUICK], 16
    EPILOGUE
ENDFUNC tcp_init_transfer

FUNC tcp_finish_connect                 # rdi sock, rsi skb that answered our SYN
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov esi, TCP_ESTABLISHED
    call tcp_set_state
    mov rdi, rbx
    mov rsi, r12
    call security_inet_conn_established
    mov rdi, rbx
    call tcp_init_transfer
    LEAVE2
ENDFUNC tcp_finish_connect

# rdi sock, rsi skb: -1 to go on, 0 when the skb is gone, 1 to answer with a reset. Inlined in
# Linux.
FUNC_NOTRACE tcp_rcv_synsent_state_process
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    movzx r13d, byte ptr [rsi + TCP_CB_FLAGS]
    test r13d, TCPHDR_ACK
    je .Ldrop
    mov eax, [r12 + TCP_CB_ACK_SEQ]
    mov ecx, eax
    sub ecx, [rbx + TP_SND_UNA]
    jle .Lreset_it
    mov ecx, [rbx + TP_SND_NXT]
    sub ecx, eax
    js .Lreset_it
    test r13d, TCPHDR_RST
    jne .Lrefused
    test r13d, TCPHDR_SYN
    je .Ldrop
    xor edi, edi
    mov rsi, r12
    call tcp_parse_options
    mov eax, [r12 + TCP_CB_SEQ]
    mov [rbx + TP_SND_WL1], eax
    inc eax
    mov [rbx + TP_RCV_NXT], eax
    mov [rbx + TP_RCV_WUP], eax
    mov [rbx + TP_COPIED_SEQ], eax
    mov rdi, rbx
    mov rsi, r12
    mov edx, TCP_FLAG_SLOWPATH
    call tcp_ack
    movzx eax, word ptr [r12 + TCP_CB_WINDOW]
    mov [rbx + TP_SND_WND], eax
    movzx eax, word ptr [r12 + TCP_CB_MSS]
    test eax, eax
    jne 1f
    mov eax, 536
1:
    mov [rbx + TP_MSS], eax
    mov rdi, [rbx + SK_DST]
    call ipv4_mtu
    mov rdi, rbx
    mov esi, eax
    call tcp_sync_mss
    mov rdi, rbx
    mov rsi, r12
    call tcp_finish_connect
    test dword ptr [rbx + SK_FLAGS], SOCK_DEAD
    jne 2f
    mov rdi, rbx
    call [rbx + SK_STATE_CHANGE]
2:
    mov rdi, rbx
    call tcp_send_ack
    mov eax, -1
    LEAVE3
.Lrefused:
    mov rdi, rbx
    mov rsi, r12
    call tcp_reset
.Ldrop:
    mov rdi, r12
    mov esi, 24
    call kfree_skb_reason
    xor eax, eax
    LEAVE3
.Lreset_it:
    test r13d, TCPHDR_RST
    jne .Ldrop
    mov eax, 1
    LEAVE3
ENDFUNC tcp_rcv_synsent_state_process

# rdi sock in any state but ESTABLISHED, rsi skb: 0 with the skb gone, 1 when it is to be answered
# by a reset.
FUNC tcp_rcv_state_process
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    movzx r13d, byte ptr [rsi + TCP_CB_FLAGS]
    movzx eax, byte ptr [rdi + SK_STATE]
    cmp eax, TCP_CLOSE
    je .Ldrop
    cmp eax, TCP_LISTEN
    je .Llisten
    cmp eax, TCP_SYN_SENT
    je .Lsyn_sent
    test r13d, TCPHDR_ACK | TCPHDR_RST | TCPHDR_SYN
    je .Ldrop
    call tcp_validate_incoming
    test eax, eax
    je .Lgone
    mov rdi, rbx
    mov rsi, r12
    mov edx, TCP_FLAG_SLOWPATH
    call tcp_ack
    test eax, eax
    jg .Lacceptable
    cmp byte ptr [rbx + SK_STATE], TCP_SYN_RECV
    jne .Ldrop
    mov eax, 1
    LEAVE4
.Lacceptable:
    movzx eax, byte ptr [rbx + SK_STATE]
    cmp eax, TCP_SYN_RECV
    je .Lsyn_recv
    cmp eax, TCP_FIN_WAIT1
    je .Lfin_wait1
    cmp eax, TCP_CLOSING
    je .Lclosing
    cmp eax, TCP_LAST_ACK
    je .Llast_ack
    jmp .Ldata

.Lsyn_recv:
    mov rdi, rbx
    call tcp_init_transfer
    mov eax, [rbx + TP_RCV_NXT]
    mov [rbx + TP_COPIED_SEQ], eax
    mov rdi, rbx
    mov esi, TCP_ESTABLISHED
    call tcp_set_state
    mov rdi, rbx
    call [rbx + SK_STATE_CHANGE]
    movzx eax, word ptr [r12 + TCP_CB_WINDOW]
    mov [rbx + TP_SND_WND], eax
    mov eax, [r12 + TCP_CB_SEQ]
    mov [rbx + TP_SND_WL1], eax
    jmp .Ldata
.Lfin_wait1:
    mov eax, [rbx + TP_SND_UNA]
    cmp eax, [rbx + TP_WRITE_SEQ]
    jne .Ldata
    mov rdi, rbx
    mov esi, TCP_FIN_WAIT2
    call tcp_set_state
    or dword ptr [rbx + SK_SHUTDOWN], SEND_SHUTDOWN
    test dword ptr [rbx + SK_FLAGS], SOCK_DEAD
    jne .Lorphan
    mov rdi, rbx
    call [rbx + SK_STATE_CHANGE]
    jmp .Ldata
.Lorphan:
    mov rdi, rbx
    lea rsi, [rbx + SK_TIMER]
    mov rdx, [rip + jiffies_64]
    add rdx, TCP_TIMEWAIT_LEN
    call sk_reset_timer
    jmp .Ldata
.Lclosing:
    mov eax, [rbx + TP_SND_UNA]
    cmp eax, [rbx + TP_WRITE_SEQ]
    jne .Ldata
    mov rdi, rbx
    mov esi, TCP_TIME_WAIT
    xor edx, edx
    call tcp_time_wait
    jmp .Ldrop
.Llast_ack:
    mov eax, [rbx + TP_SND_UNA]
    cmp eax, [rbx + TP_WRITE_SEQ]
    jne .Ldata
    mov rdi, rbx
    call tcp_done
    jmp .Ldrop

.Ldata:
    movzx eax, byte ptr [rbx + SK_STATE]
    cmp eax, TCP_ESTABLISHED
    je .Lqueue
    cmp eax, TCP_FIN_WAIT1
    je .Lhalf_closed
    cmp eax, TCP_FIN_WAIT2
    jne .Lno_queue
.Lhalf_closed:
    test dword ptr [rbx + SK_SHUTDOWN], RCV_SHUTDOWN
    je .Lqueue
    mov eax, [r12 + TCP_CB_END_SEQ]     # data for somebody who is gone
    mov ecx, r13d
    and ecx, TCPHDR_FIN
    sub eax, ecx
    sub eax, [rbx + TP_RCV_NXT]
    jle .Lqueue
    mov rdi, rbx
    mov rsi, r12
    call tcp_reset
    mov eax, 1
    LEAVE4
.Lqueue:
    mov rdi, rbx
    mov rsi, r12
    call tcp_data_queue
    xor r12d, r12d
.Lno_queue:
    cmp byte ptr [rbx + SK_STATE], TCP_CLOSE
    je .Ldone
    mov rdi, rbx
    call tcp_data_snd_check
    mov rdi, rbx
    TCP_ACK_SND_CHECK
.Ldone:
    test r12, r12
    jne .Ldrop
.Lgone:
    xor eax, eax
    LEAVE4

.Llisten:
    mov eax, 1
    test r13d, TCPHDR_ACK
    jne .Lanswer
    test r13d, TCPHDR_RST | TCPHDR_FIN
    jne .Ldrop
    test r13d, TCPHDR_SYN
    je .Ldrop
    call tcp_v4_conn_request
    mov rdi, r12
    call consume_skb
    xor eax, eax
.Lanswer:
    LEAVE4
.Lsyn_sent:
    call tcp_rcv_synsent_state_process
    test eax, eax
    jns .Lanswer
    mov rdi, rbx
    call tcp_data_snd_check
.Ldrop:
    mov rdi, r12
    mov esi, 25
    call kfree_skb_reason
    xor eax, eax
    LEAVE4
ENDFUNC tcp_rcv_state_process

# --- connection requests --------------------------------------------------------------------------

FUNC tcp_conn_request                   # rdi listener, rsi skb with a SYN; 0
    ENTER4
    sub rsp, FL4_SIZE + 8
    mov rbx, rdi
    mov r12, rsi
    mov eax, [rbx + ICSK_ACK_BACKLOG]
    cmp eax, [rbx + ICSK_MAX_ACK_BACKLOG]
    ja .Lout
    xor edi, edi
    mov rsi, rbx
    call inet_reqsk_alloc
    mov r13, rax
    test rax, rax
    je .Lout
    xor edi, edi
    mov rsi, r12
    call tcp_parse_options
    movzx eax, word ptr [r12 + TCP_CB_MSS]
    test eax, eax
    jne 1f
    mov eax, 536
1:
    mov [r13 + RSK_MSS], eax
    mov eax, [r12 + TCP_CB_SEQ]
    mov [r13 + RSK_RCV_ISN], eax
    movzx eax, word ptr [r12 + TCP_CB_WINDOW]
    mov [r13 + RSK_SND_WND], eax
    SKB_HEADER rax, r12, SKB_NETWORK_HEADER
    mov ecx, [rax + IPHDR_SADDR]
    mov [r13 + SK_DADDR], ecx
    mov ecx, [rax + IPHDR_DADDR]
    mov [r13 + SK_RCV_SADDR], ecx
    SKB_HEADER rax, r12, SKB_TRANSPORT_HEADER
    mov cx, [rax + TCPHDR_SOURCE]
    mov [r13 + SK_DPORT], cx
    mov cx, [rbx + SK_NUM]
    mov [r13 + SK_NUM], cx
    mov rdi, r13
    call secure_tcp_seq
    mov [r13 + RSK_SND_ISN], eax
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call security_inet_conn_request
    test eax, eax
    jne .Lfree
    mov rdi, rbx
    mov rsi, rsp
    mov rdx, r13
    call inet_csk_route_req
    mov r14, rax
    test rax, rax
    je .Lfree
    mov rdi, rbx
    mov rsi, r13
    mov edx, TCP_TIMEOUT_INIT
    call inet_csk_reqsk_queue_hash_add
    mov rdi, rbx
    mov rsi, r14
    mov rdx, rsp
    mov rcx, r13
    call tcp_v4_send_synack
.Lfree:
    mov rdi, r13
    call sock_gen_put
.Lout:
    xor eax, eax
    LEAVE4
ENDFUNC tcp_conn_request
