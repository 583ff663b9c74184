# net/ipv4/tcp_ipv4.c, tcp_minisocks.c: TCP over IPv4, and connections on their way in and out of
# being.

.text

FUNC tcp_v4_init_sock                   # rdi sock; 0
    PROLOGUE
    call tcp_init_sock
    xor eax, eax
    EPILOGUE
ENDFUNC tcp_v4_init_sock

FUNC tcp_v4_destroy_sock                # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    call inet_csk_clear_xmit_timers
    mov rdi, rbx
    call tcp_write_queue_purge
    lea rdi, [rbx + TP_OFO_QUEUE]
    call skb_queue_purge
    mov rdi, rbx
    call inet_put_port
    LEAVE1
ENDFUNC tcp_v4_destroy_sock

# A first sequence number nobody can guess who does not know the secret: rdi sock or request; eax.
FUNC_NOTRACE secure_tcp_seq
    push rbp
    mov rbp, rsp
    push rbx
    push rax
    mov rax, rdi
    mov edi, [rax + SK_RCV_SADDR]
    mov esi, [rax + SK_DADDR]
    movzx edx, word ptr [rax + SK_NUM]
    shl edx, 16
    mov dx, [rax + SK_DPORT]
    mov ecx, 0x5ec2e7
    call jhash_3words
    mov ebx, eax
    call ktime_get
    shr rax, 6
    add eax, ebx
    mov rbx, [rbp - 8]
    leave
    ret
ENDFUNC secure_tcp_seq

FUNC tcp_v4_connect                     # rdi sock, rsi sockaddr, edx length; 0 or an error
    ENTER3
    sub rsp, FL4_SIZE
    mov rbx, rdi
    mov r12, rsi
    mov eax, -EAFNOSUPPORT
    cmp word ptr [rsi + SIN_FAMILY], AF_INET
    jne .Lout
    mov eax, [rsi + SIN_ADDR]
    mov [rsp + FL4_DADDR], eax
    mov eax, [rdi + SK_RCV_SADDR]
    mov [rsp + FL4_SADDR], eax
    xor edi, edi
    mov rsi, rsp
    mov rdx, rbx
    call ip_route_output_flow
    cmp rax, -4095
    jae .Lout
    mov [rbx + SK_DST], rax
    mov eax, [rsp + FL4_SADDR]
    mov [rbx + SK_RCV_SADDR], eax
    mov eax, [rsp + FL4_DADDR]
    mov [rbx + SK_DADDR], eax
    mov ax, [r12 + SIN_PORT]
    mov [rbx + SK_DPORT], ax
    mov rdi, rbx
    mov esi, TCP_SYN_SENT
    call tcp_set_state
    xor edi, edi
    mov rsi, rbx
    call inet_hash_connect
    test eax, eax
    jne .Lfailed
    mov rdi, rbx
    call secure_tcp_seq
    mov [rbx + TP_WRITE_SEQ], eax
    mov rdi, rbx
    call tcp_connect
    test eax, eax
    je .Lout
.Lfailed:
    mov r13d, eax
    mov rdi, rbx
    mov esi, TCP_CLOSE
    call tcp_set_state
    mov word ptr [rbx + SK_DPORT], 0
    mov eax, r13d
.Lout:
    LEAVE3
ENDFUNC tcp_v4_connect

# --- receiving ------------------------------------------------------------------------------------

FUNC tcp_v4_early_demux                 # rdi skb at its IP header: its connection, if there is one
    ENTER2
    mov rbx, rdi
    SKB_HEADER r8, rdi, SKB_NETWORK_HEADER
    SKB_HEADER rax, rdi, SKB_TRANSPORT_HEADER
    movzx ecx, word ptr [rdi + SKB_TRANSPORT_HEADER]
    movzx edx, word ptr [rdi + SKB_NETWORK_HEADER]
    sub ecx, edx
    add ecx, TCPHDR_SIZE
    cmp [rdi + SKB_LEN], ecx
    jb .Lout
    mov edi, [r8 + IPHDR_SADDR]
    movzx esi, word ptr [rax + TCPHDR_SOURCE]
    mov edx, [r8 + IPHDR_DADDR]
    movzx ecx, word ptr [rax + TCPHDR_DEST]
    xchg cl, ch
    call __inet_lookup_established
    test rax, rax
    je .Lout
    cmp byte ptr [rax + SK_STATE], TCP_NEW_SYN_RECV
    je .Lput
    mov [rbx + SKB_SK], rax
    mov rcx, offset sock_edemux
    mov [rbx + SKB_DESTRUCTOR], rcx
.Lout:
    LEAVE2
.Lput:
    mov rdi, rax
    call sock_gen_put
    LEAVE2
ENDFUNC tcp_v4_early_demux

FUNC sock_edemux                        # rdi skb that nobody took to the socket found for it
    PROLOGUE
    mov rax, [rdi + SKB_SK]
    mov qword ptr [rdi + SKB_SK], 0
    mov rdi, rax
    call sock_gen_put
    EPILOGUE
ENDFUNC sock_edemux

FUNC tcp_v4_fill_cb                     # rdi skb, rsi IP header, rdx TCP header
    PROLOGUE
    mov eax, [rdx + TCPHDR_SEQ]
    bswap eax
    mov [rdi + TCP_CB_SEQ], eax
    add eax, [rdi + SKB_LEN]
    movzx ecx, byte ptr [rdx + TCPHDR_DOFF]
    shr ecx, 4
    shl ecx, 2
    sub eax, ecx
    movzx ecx, byte ptr [rdx + TCPHDR_FLAGS]
    mov [rdi + TCP_CB_FLAGS], cl
    test ecx, TCPHDR_SYN
    je 1f
    inc eax
1:
    test ecx, TCPHDR_FIN
    je 2f
    inc eax
2:
    mov [rdi + TCP_CB_END_SEQ], eax
    mov eax, [rdx + TCPHDR_ACK_SEQ]
    bswap eax
    mov [rdi + TCP_CB_ACK_SEQ], eax
    mov ax, [rdx + TCPHDR_WINDOW]
    xchg al, ah
    mov [rdi + TCP_CB_WINDOW], ax
    mov byte ptr [rdi + TCP_CB_SACKED], 0
    mov word ptr [rdi + TCP_CB_MSS], 0
    EPILOGUE
ENDFUNC tcp_v4_fill_cb

FUNC tcp_filter                         # rdi sock, rsi skb; eax whether it is to be dropped
    PROLOGUE
    mov edx, TCPHDR_SIZE
    call sk_filter_trim_cap
    EPILOGUE
ENDFUNC tcp_filter

FUNC tcp_v4_rcv                         # rdi skb at its TCP header; 0
    ENTER5
    push rax
    mov rbx, rdi
    inc qword ptr gs:[TCP_IN_SEGS]
    cmp byte ptr [rbx + SKB_PKT_TYPE], PACKET_HOST
    jne .Ldrop
    mov eax, [rbx + SKB_LEN]
    cmp eax, TCPHDR_SIZE
    jb .Ldrop
    mov r12, [rbx + SKB_DATA]
    SKB_HEADER r13, rbx, SKB_NETWORK_HEADER
    movzx ecx, byte ptr [r12 + TCPHDR_DOFF]
    shr ecx, 4
    cmp ecx, 5
    jb .Ldrop
    shl ecx, 2
    cmp ecx, eax
    ja .Ldrop
    mov edi, [r13 + IPHDR_SADDR]
    mov esi, [r13 + IPHDR_DADDR]
    mov edx, eax
    mov ecx, IPPROTO_TCP
    xor r8d, r8d
    call csum_tcpudp_nofold
    mov [rbx + SKB_CSUM], eax
    mov rdi, rbx
    call __skb_checksum_complete
    test eax, eax
    jne .Ldrop
    mov rdi, rbx
    mov rsi, r13
    mov rdx, r12
    call tcp_v4_fill_cb
    mov r14, [rbx + SKB_SK]             # skb_steal_sock
    test r14, r14
    je .Llookup
    mov qword ptr [rbx + SKB_SK], 0
    mov qword ptr [rbx + SKB_DESTRUCTOR], 0
    jmp .Lfound
.Llookup:
    mov edi, [r13 + IPHDR_SADDR]
    movzx esi, word ptr [r12 + TCPHDR_SOURCE]
    mov edx, [r13 + IPHDR_DADDR]
    movzx ecx, word ptr [r12 + TCPHDR_DEST]
    xchg cl, ch
    call __inet_lookup_established
    mov r14, rax
    test rax, rax
    jne .Lfound
    mov edi, [r13 + IPHDR_SADDR]
    movzx esi, word ptr [r12 + TCPHDR_SOURCE]
    mov edx, [r13 + IPHDR_DADDR]
    movzx ecx, word ptr [r12 + TCPHDR_DEST]
    xchg cl, ch
    call __inet_lookup_listener
    mov r14, rax
    test rax, rax
    jne .Lfound
    xor edi, edi
    mov rsi, rbx
    call tcp_v4_send_reset
.Ldrop:
    mov rdi, rbx
    mov esi, 26
    call kfree_skb_reason
    xor eax, eax
    LEAVE5

.Lfound:
    movzx eax, byte ptr [r14 + SK_STATE]
    cmp eax, TCP_TIME_WAIT
    je .Ltime_wait
    cmp eax, TCP_NEW_SYN_RECV
    je .Lrequest
.Lprocess:
    mov rdi, r14
    mov rsi, rbx
    call tcp_filter
    test eax, eax
    jne .Ldrop_put
    cmp byte ptr [r14 + SK_STATE], TCP_LISTEN
    jne .Lconnection
    mov rdi, r14
    mov rsi, rbx
    call tcp_v4_do_rcv
    jmp .Lput
.Lconnection:
    BH_LOCK_SOCK r14
    cmp dword ptr [r14 + SK_LOCK_OWNED], 0
    jne .Lowned
    mov rdi, r14
    mov rsi, rbx
    call tcp_v4_do_rcv
    jmp .Lunlock
.Lowned:
    mov rdi, r14
    mov rsi, rbx
    call tcp_add_backlog
.Lunlock:
    BH_UNLOCK_SOCK r14
.Lput:
    SOCK_PUT r14
    xor eax, eax
    LEAVE5
.Ldrop_put:
    SOCK_PUT r14
    jmp .Ldrop

.Ltime_wait:
    mov rdi, r14
    mov rsi, rbx
    call tcp_timewait_state_process
    SOCK_PUT r14
    jmp .Ldrop

# The last step of a handshake, for a request that waits in the hash.
.Lrequest:
    mov r15, [r14 + RSK_LISTENER]
    cmp byte ptr [r15 + SK_STATE], TCP_LISTEN
    je .Llistening
    mov rdi, r15
    mov rsi, r14
    call inet_csk_reqsk_queue_drop
    mov rdi, r14
    call sock_gen_put
    jmp .Llookup
.Llistening:
    SOCK_HOLD r15
    mov rdi, r15
    mov rsi, rbx
    mov rdx, r14
    call tcp_check_req
    push rax
    push rax
    mov rdi, r14
    call sock_gen_put
    pop rax
    add rsp, 8
    test rax, rax
    je .Lrequest_drop
    cmp rax, r15
    je .Lrequest_reset
    mov rdi, r15
    mov rsi, rax
    mov rdx, rbx
    call tcp_child_process
    test eax, eax
    je .Lrequest_done
.Lrequest_reset:
    mov rdi, r15
    mov rsi, rbx
    call tcp_v4_send_reset
.Lrequest_drop:
    mov rdi, rbx
    mov esi, 27
    call kfree_skb_reason
.Lrequest_done:
    SOCK_PUT r15
    xor eax, eax
    LEAVE5
ENDFUNC tcp_v4_rcv

# rdi sock owned by a task, rsi skb; eax whether it was dropped
FUNC tcp_add_backlog
    PROLOGUE
    mov eax, [rdi + SK_RCVBUF]
    add eax, [rdi + SK_SNDBUF]
    cmp [rdi + SK_BACKLOG_LEN], eax
    ja .Ldrop
    mov qword ptr [rsi + SKB_NEXT], 0
    mov rax, [rdi + SK_BACKLOG_TAIL]
    mov [rdi + SK_BACKLOG_TAIL], rsi
    test rax, rax
    je 1f
    mov [rax + SKB_NEXT], rsi
    jmp 2f
1:
    mov [rdi + SK_BACKLOG_HEAD], rsi
2:
    mov eax, [rsi + SKB_TRUESIZE]
    add [rdi + SK_BACKLOG_LEN], eax
    xor eax, eax
    EPILOGUE
.Ldrop:
    mov rdi, rsi
    mov esi, 28
    call kfree_skb_reason
    mov eax, 1
    EPILOGUE
ENDFUNC tcp_add_backlog

FUNC tcp_v4_do_rcv                      # rdi sock, rsi skb, consumed; 0
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    cmp byte ptr [rdi + SK_STATE], TCP_ESTABLISHED
    jne .Lstate
    call tcp_rcv_established
    xor eax, eax
    LEAVE2
.Lstate:
    call tcp_rcv_state_process
    test eax, eax
    je .Lout
    mov rdi, rbx
    mov rsi, r12
    call tcp_v4_send_reset
    mov rdi, r12
    mov esi, 29
    call kfree_skb_reason
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC tcp_v4_do_rcv

# --- answering without a connection ---------------------------------------------------------------

FUNC tcp_v4_send_reset                  # rdi sock or 0, rsi skb that nobody wants
    ENTER4
    sub rsp, FL4_SIZE + 8
    mov r12, rsi
    test byte ptr [r12 + TCP_CB_FLAGS], TCPHDR_RST
    jne .Lout
    xor edi, edi
    xor esi, esi
    mov edx, GFP_ATOMIC
    call tcp_stream_alloc_skb
    mov rbx, rax
    test rax, rax
    je .Lout
    mov rdi, rax
    mov esi, TCPHDR_SIZE
    call skb_push
    mov r14, rax
    SKB_RESET_HEADER rbx, SKB_TRANSPORT_HEADER
    SKB_HEADER rcx, r12, SKB_TRANSPORT_HEADER
    mov ax, [rcx + TCPHDR_DEST]
    mov [r14 + TCPHDR_SOURCE], ax
    mov ax, [rcx + TCPHDR_SOURCE]
    mov [r14 + TCPHDR_DEST], ax
    xor eax, eax
    mov [r14 + TCPHDR_SEQ], rax
    mov [r14 + TCPHDR_WINDOW], rax      # with checksum and urgent pointer
    mov byte ptr [r14 + TCPHDR_DOFF], 0x50
    test byte ptr [r12 + TCP_CB_FLAGS], TCPHDR_ACK
    je .Lno_ack
    mov eax, [rcx + TCPHDR_ACK_SEQ]
    mov [r14 + TCPHDR_SEQ], eax
    mov byte ptr [r14 + TCPHDR_FLAGS], TCPHDR_RST
    jmp .Lsend
.Lno_ack:
    mov eax, [r12 + TCP_CB_END_SEQ]
    bswap eax
    mov [r14 + TCPHDR_ACK_SEQ], eax
    mov byte ptr [r14 + TCPHDR_FLAGS], TCPHDR_RST | TCPHDR_ACK
.Lsend:
    mov r13, rsp
    SKB_HEADER rcx, r12, SKB_NETWORK_HEADER
    mov eax, [rcx + IPHDR_SADDR]
    mov [r13 + FL4_DADDR], eax
    mov eax, [rcx + IPHDR_DADDR]
    mov [r13 + FL4_SADDR], eax
    mov byte ptr [r13 + FL4_PROTO], IPPROTO_TCP
    mov byte ptr [r13 + FL4_TOS], 0
    mov rdi, rbx
    mov esi, [r13 + FL4_SADDR]
    mov edx, [r13 + FL4_DADDR]
    call __tcp_v4_send_check
    inc qword ptr gs:[TCP_OUT_SEGS]
    mov rdi, rbx
    mov rsi, r13
    call ip_send_unicast_reply
.Lout:
    LEAVE4
ENDFUNC tcp_v4_send_reset

FUNC ip_send_unicast_reply              # rdi skb, rsi flowi4: back to where a packet came from
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    xor edi, edi
    xor edx, edx
    call ip_route_output_flow
    cmp rax, -4095
    jae .Ldrop
    mov [rbx + SKB_DST], rax
    mov rdi, rbx
    mov rsi, r12
    xor edx, edx
    call ip_build_and_send_pkt
    LEAVE2
.Ldrop:
    mov rdi, rbx
    mov esi, 30
    call kfree_skb_reason
    LEAVE2
ENDFUNC ip_send_unicast_reply

FUNC tcp_v4_conn_request                # rdi listener, rsi skb with a SYN; 0
    PROLOGUE
    cmp byte ptr [rsi + SKB_PKT_TYPE], PACKET_HOST
    jne 1f
    call tcp_conn_request
1:
    xor eax, eax
    EPILOGUE
ENDFUNC tcp_v4_conn_request

# rdi listener, rsi dst_entry, rdx flowi4, rcx request; 0 or an error
FUNC tcp_v4_send_synack
    ENTER3
    mov rbx, rdi
    mov r12, rdx
    mov r13, rcx
    mov rdx, rcx
    call tcp_make_synack
    test rax, rax
    je .Lout
    mov rbx, rax
    mov rdi, rax
    mov esi, [r13 + SK_RCV_SADDR]
    mov edx, [r13 + SK_DADDR]
    call __tcp_v4_send_check
    inc qword ptr gs:[TCP_OUT_SEGS]
    mov rdi, rbx
    mov rsi, r12
    xor edx, edx
    call ip_build_and_send_pkt
    LEAVE3
.Lout:
    mov eax, -ENOBUFS
    LEAVE3
ENDFUNC tcp_v4_send_synack

FUNC tcp_rtx_synack                     # rdi listener, rsi request: once more
    ENTER2
    sub rsp, FL4_SIZE + 8
    mov rbx, rdi
    mov r12, rsi
    mov rdx, rsi
    mov rsi, rsp
    call inet_csk_route_req
    test rax, rax
    je 1f
    mov rdi, rbx
    mov rsi, rax
    mov rdx, rsp
    mov rcx, r12
    call tcp_v4_send_synack
1:
    LEAVE2
ENDFUNC tcp_rtx_synack
