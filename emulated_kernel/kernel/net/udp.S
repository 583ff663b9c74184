# net/ipv4/udp.c: datagrams. Left out: multicast, corking, encapsulation, checksum offload.

.text

FUNC udp_init_sock                      # rdi sock; 0
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC udp_init_sock

FUNC udp_destroy_sock                   # rdi sock
    PROLOGUE
    or dword ptr [rdi + SK_SHUTDOWN], SHUTDOWN_MASK
    EPILOGUE
ENDFUNC udp_destroy_sock

FUNC_NOTRACE udp_lib_close              # rdi sock, rsi timeout
    jmp sk_common_release
ENDFUNC udp_lib_close

FUNC udp_v4_get_port                    # rdi sock, esi port (host) or 0; eax 0 when it is ours
    PROLOGUE
    call udp_lib_get_port
    EPILOGUE
ENDFUNC udp_v4_get_port

FUNC udp_lib_get_port
    ENTER5
    push rax
    mov rbx, rdi
    mov r12d, esi
    mov r15d, esi
    mov rdi, offset udp_table_lock
    call _raw_spin_lock_bh
    mov r13d, 28232
    test r12d, r12d
    jne .Lcheck
    call get_random_u32
    xor edx, edx
    div r13d
    lea r12d, [rdx + 32768]
.Lcheck:
    mov eax, r12d
    and eax, INET_HASH_SIZE - 1
    mov rcx, [rax*8 + udp_table]
.Lnext:
    test rcx, rcx
    je .Lfree
    cmp [rcx + SK_NUM], r12w
    jne .Lother
    mov edx, [rcx + SK_RCV_SADDR]
    test edx, edx
    je .Lconflict
    cmp dword ptr [rbx + SK_RCV_SADDR], 0
    je .Lconflict
    cmp edx, [rbx + SK_RCV_SADDR]
    je .Lconflict
.Lother:
    mov rcx, [rcx + SK_NEXT]
    jmp .Lnext
.Lconflict:
    test r15d, r15d
    jne .Ltaken
    inc r12d
    cmp r12d, 61000
    jb 1f
    mov r12d, 32768
1:
    dec r13d
    jne .Lcheck
.Ltaken:
    mov r13d, 1
    jmp .Lout
.Lfree:
    mov [rbx + SK_NUM], r12w
    mov eax, r12d
    xchg al, ah
    mov [rbx + SK_SPORT], ax
    mov eax, r12d
    and eax, INET_HASH_SIZE - 1
    lea rdi, [rax*8 + udp_table]
    mov rsi, rbx
    CHAIN_ADD SK_NEXT
    SOCK_HOLD rbx
    xor r13d, r13d
.Lout:
    mov rdi, offset udp_table_lock
    call _raw_spin_unlock_bh
    mov eax, r13d
    LEAVE5
ENDFUNC udp_lib_get_port

FUNC udp_lib_unhash                     # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    cmp qword ptr [rdi + SK_PPREV], 0
    je .Lout
    mov rdi, offset udp_table_lock
    call _raw_spin_lock_bh
    mov rdi, rbx
    CHAIN_DEL SK_NEXT
    mov word ptr [rbx + SK_NUM], 0
    mov rdi, offset udp_table_lock
    call _raw_spin_unlock_bh
    SOCK_PUT rbx
.Lout:
    LEAVE1
ENDFUNC udp_lib_unhash

# edi source, esi its port as in the packet, edx destination, ecx its port (host); rax sock or 0,
# without a reference: the caller holds the RCU read lock.
FUNC __udp4_lib_lookup
    PROLOGUE
    mov eax, ecx
    and eax, INET_HASH_SIZE - 1
    mov r8, [rax*8 + udp_table]
    call udp4_lib_lookup2
    EPILOGUE
ENDFUNC __udp4_lib_lookup

FUNC udp4_lib_lookup2                   # and r8 first of the chain
    PROLOGUE
    xor eax, eax
    xor r9d, r9d
.Lnext:
    test r8, r8
    je .Lout
    cmp [r8 + SK_NUM], cx
    jne .Lother
    mov r10d, 1                         # compute_score
    mov r11d, [r8 + SK_RCV_SADDR]
    test r11d, r11d
    je 1f
    cmp r11d, edx
    jne .Lother
    add r10d, 4
1:
    mov r11d, [r8 + SK_DADDR]
    test r11d, r11d
    je 2f
    cmp r11d, edi
    jne .Lother
    add r10d, 4
2:
    movzx r11d, word ptr [r8 + SK_DPORT]
    test r11d, r11d
    je 3f
    cmp r11w, si
    jne .Lother
    add r10d, 4
3:
    cmp r10d, r9d
    jbe .Lother
    mov r9d, r10d
    mov rax, r8
.Lother:
    mov r8, [r8 + SK_NEXT]
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC udp4_lib_lookup2

# --- receiving ------------------------------------------------------------------------------------

FUNC udp_rcv                            # rdi skb at the UDP header; 0
    PROLOGUE
    call __udp4_lib_rcv
    EPILOGUE
ENDFUNC udp_rcv

FUNC __udp4_lib_rcv
    ENTER4
    mov rbx, rdi
    mov eax, [rbx + SKB_LEN]
    cmp eax, UDPHDR_SIZE
    jb .Ldrop
    mov r12, [rbx + SKB_DATA]
    SKB_HEADER r13, rbx, SKB_NETWORK_HEADER
    movzx ecx, word ptr [r12 + UDPHDR_LEN]
    xchg cl, ch
    cmp ecx, UDPHDR_SIZE
    jb .Ldrop
    cmp ecx, eax
    ja .Ldrop
    mov esi, ecx
    mov r14d, ecx
    call ___pskb_trim
    cmp word ptr [r12 + UDPHDR_CHECK], 0
    je .Lsummed
    mov edi, [r13 + IPHDR_SADDR]
    mov esi, [r13 + IPHDR_DADDR]
    mov edx, r14d
    mov ecx, IPPROTO_UDP
    xor r8d, r8d
    call csum_tcpudp_nofold
    mov [rbx + SKB_CSUM], eax
    mov rdi, rbx
    call __skb_checksum_complete
    test eax, eax
    jne .Ldrop
.Lsummed:
    mov edi, [r13 + IPHDR_SADDR]
    movzx esi, word ptr [r12 + UDPHDR_SOURCE]
    mov edx, [r13 + IPHDR_DADDR]
    movzx ecx, word ptr [r12 + UDPHDR_DEST]
    xchg cl, ch
    call __udp4_lib_lookup
    test rax, rax
    je .Lnobody
    mov rdi, rax
    mov rsi, rbx
    call udp_unicast_rcv_skb
    xor eax, eax
    LEAVE4
.Lnobody:
    mov rdi, rbx
    mov esi, ICMP_DEST_UNREACH
    mov edx, ICMP_PORT_UNREACH
    xor ecx, ecx
    call __icmp_send
.Ldrop:
    mov rdi, rbx
    mov esi, 17
    call kfree_skb_reason
    xor eax, eax
    LEAVE4
ENDFUNC __udp4_lib_rcv

FUNC udp_unicast_rcv_skb                # rdi sock, rsi skb
    PROLOGUE
    call udp_queue_rcv_skb
    EPILOGUE
ENDFUNC udp_unicast_rcv_skb

FUNC udp_queue_rcv_skb
    PROLOGUE
    call udp_queue_rcv_one_skb
    EPILOGUE
ENDFUNC udp_queue_rcv_skb

FUNC udp_queue_rcv_one_skb
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov edx, UDPHDR_SIZE
    call sk_filter_trim_cap
    test eax, eax
    jne .Ldrop
    mov rdi, rbx
    mov rsi, r12
    call __udp_enqueue_schedule_skb
    test eax, eax
    jne .Ldrop
    inc qword ptr gs:[UDP_IN_DATAGRAMS]
    LEAVE2
.Ldrop:
    mov rdi, r12
    mov esi, 18
    call kfree_skb_reason
    mov eax, -1
    LEAVE2
ENDFUNC udp_queue_rcv_one_skb

FUNC __udp_enqueue_schedule_skb         # rdi sock, rsi skb; 0 or -ENOMEM
    PROLOGUE
    test dword ptr [rdi + SK_SHUTDOWN], RCV_SHUTDOWN
    jne .Lshut
    call __sock_queue_rcv_skb
    EPILOGUE
.Lshut:
    mov eax, -ENOMEM
    EPILOGUE
ENDFUNC __udp_enqueue_schedule_skb

# rdi sock, esi flags, rdx offset *, rcx where an error goes; rax skb or 0
FUNC __skb_recv_udp
    PROLOGUE
    mov rdx, rcx
    call skb_recv_datagram
    EPILOGUE
ENDFUNC __skb_recv_udp

FUNC skb_consume_udp                    # rdi sock, rsi skb, edx length
    PROLOGUE
    mov rdi, rsi
    call consume_skb
    EPILOGUE
ENDFUNC skb_consume_udp

# rdi sock, rsi msg, rdx size, ecx flags, r8 address length *; rax bytes
FUNC udp_recvmsg
    ENTER5
    push rax
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, r8
    mov esi, ecx
    xor edx, edx
    lea rcx, [rbp - 48]
    call __skb_recv_udp
    test rax, rax
    je .Lerror
    mov r15, rax
    mov ecx, [r15 + SKB_LEN]
    sub ecx, UDPHDR_SIZE
    cmp rcx, r13
    cmova rcx, r13
    mov r13, rcx
    mov rdi, r15
    mov esi, UDPHDR_SIZE
    lea rdx, [r12 + MSG_ITER]
    call skb_copy_datagram_iter
    test eax, eax
    jne .Lfault
    mov rdi, [r12 + MSG_NAME]
    test rdi, rdi
    je .Lgot
    mov qword ptr [rdi + 8], 0
    mov word ptr [rdi + SIN_FAMILY], AF_INET
    mov rcx, [r15 + SKB_DATA]
    mov ax, [rcx + UDPHDR_SOURCE]
    mov [rdi + SIN_PORT], ax
    SKB_HEADER rcx, r15, SKB_NETWORK_HEADER
    mov eax, [rcx + IPHDR_SADDR]
    mov [rdi + SIN_ADDR], eax
    mov dword ptr [r14], SOCKADDR_IN_SIZE
.Lgot:
    mov rdi, rbx
    mov rsi, r15
    mov edx, r13d
    call skb_consume_udp
    mov rax, r13
    LEAVE5
.Lfault:
    movsxd r13, eax
    jmp .Lgot
.Lerror:
    movsxd rax, dword ptr [rbp - 48]
    LEAVE5
ENDFUNC udp_recvmsg

# rdi skb, rsi IP header of a packet of ours that nobody took
FUNC udp_err
    ENTER1
    push rax
    movzx ecx, byte ptr [rsi + IPHDR_VIHL]
    and ecx, 15
    lea rcx, [rsi + rcx*4]
    mov edi, [rsi + IPHDR_DADDR]
    mov edx, [rsi + IPHDR_SADDR]
    movzx esi, word ptr [rcx + UDPHDR_DEST]
    movzx eax, word ptr [rcx + UDPHDR_SOURCE]
    xchg al, ah
    mov ecx, eax
    call __udp4_lib_lookup
    test rax, rax
    je .Lout
    cmp word ptr [rax + SK_DPORT], 0    # only a connected socket is told
    je .Lout
    mov dword ptr [rax + SK_ERR], ECONNREFUSED
    mov rdi, rax
    call [rax + SK_DATA_READY]
.Lout:
    xor eax, eax
    LEAVE1
ENDFUNC udp_err

# --- sending --------------------------------------------------------------------------------------

FUNC udp_sendmsg                        # rdi sock, rsi msg, rdx size; rax bytes or an error
    ENTER5
    sub rsp, FL4_SIZE + 16
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov rax, -EMSGSIZE
    cmp rdx, 65507
    ja .Lout
    lea r14, [rbp - 64]                 # flowi4
    mov byte ptr [r14 + FL4_PROTO], IPPROTO_UDP
    mov byte ptr [r14 + FL4_TOS], 0
    mov rcx, [r12 + MSG_NAME]
    test rcx, rcx
    je .Lconnected
    mov rax, -EINVAL
    cmp dword ptr [r12 + MSG_NAMELEN], SOCKADDR_IN_SIZE
    jb .Lout
    mov rax, -EAFNOSUPPORT
    cmp word ptr [rcx + SIN_FAMILY], AF_INET
    jne .Lout
    mov ax, [rcx + SIN_PORT]
    test ax, ax
    mov edx, [rcx + SIN_ADDR]
    jne .Laddress
    mov rax, -EINVAL
    jmp .Lout
.Lconnected:
    mov ax, [rbx + SK_DPORT]
    mov edx, [rbx + SK_DADDR]
    test ax, ax
    jne .Laddress
    mov rax, -EDESTADDRREQ
    jmp .Lout
.Laddress:
    mov [r14 + FL4_DPORT], ax
    mov [r14 + FL4_DADDR], edx
    mov eax, [rbx + SK_RCV_SADDR]
    mov [r14 + FL4_SADDR], eax
    mov ax, [rbx + SK_SPORT]
    mov [r14 + FL4_SPORT], ax
    xor edi, edi
    mov rsi, r14
    mov rdx, rbx
    call ip_route_output_flow
    cmp rax, -4095
    jae .Lout
    mov r15, rax
    sub rsp, 8
    push r15                            # the seventh argument
    mov rdi, rbx
    mov rsi, r14
    mov rdx, offset ip_generic_getfrag
    lea rcx, [r12 + MSG_ITER]
    lea r8d, [r13 + UDPHDR_SIZE]
    mov r9d, UDPHDR_SIZE
    call ip_make_skb
    add rsp, 16
    cmp rax, -4095
    jae .Lout
    mov rdi, rax
    mov rsi, r14
    call udp_send_skb
    cdqe
    test eax, eax
    js .Lout
    mov rax, r13
.Lout:
    LEAVE5
ENDFUNC udp_sendmsg

FUNC udp_send_skb                       # rdi skb with its IP header, rsi flowi4; 0 or an error
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    SKB_HEADER r13, rdi, SKB_TRANSPORT_HEADER
    mov ax, [rsi + FL4_SPORT]
    mov [r13 + UDPHDR_SOURCE], ax
    mov ax, [rsi + FL4_DPORT]
    mov [r13 + UDPHDR_DEST], ax
    mov eax, [rdi + SKB_LEN]
    sub eax, IPHDR_SIZE
    mov edx, eax
    xchg al, ah
    mov [r13 + UDPHDR_LEN], ax
    mov word ptr [r13 + UDPHDR_CHECK], 0
    call udp_set_csum
    inc qword ptr gs:[UDP_OUT_DATAGRAMS]
    xor edi, edi
    mov rsi, rbx
    call ip_send_skb
    LEAVE3
ENDFUNC udp_send_skb

FUNC udp_set_csum                       # rdi skb, rsi flowi4, edx length from the UDP header on
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    SKB_HEADER rdi, rbx, SKB_TRANSPORT_HEADER
    mov esi, edx
    xor edx, edx
    call csum_partial
    mov edi, [r12 + FL4_SADDR]
    mov esi, [r12 + FL4_DADDR]
    mov edx, r13d
    mov ecx, IPPROTO_UDP
    mov r8d, eax
    call csum_tcpudp_magic
    test eax, eax
    jne 1f
    mov eax, 0xffff                     # zero would say that there is none
1:
    SKB_HEADER rdi, rbx, SKB_TRANSPORT_HEADER
    mov [rdi + UDPHDR_CHECK], ax
    LEAVE3
ENDFUNC udp_set_csum

FUNC ip4_datagram_connect               # rdi sock, rsi sockaddr, edx length; 0 or an error
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    LOCK_SOCK rbx
    mov rdi, rbx
    mov rsi, r12
    call __ip4_datagram_connect
    mov r12d, eax
    mov rdi, rbx
    call release_sock
    mov eax, r12d
    LEAVE2
ENDFUNC ip4_datagram_connect

FUNC __ip4_datagram_connect             # the sock is locked
    ENTER2
    sub rsp, FL4_SIZE + 8
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
    mov eax, [rsp + FL4_SADDR]
    mov [rbx + SK_RCV_SADDR], eax
    mov eax, [rsp + FL4_DADDR]
    mov [rbx + SK_DADDR], eax
    mov ax, [r12 + SIN_PORT]
    mov [rbx + SK_DPORT], ax
    mov byte ptr [rbx + SK_STATE], TCP_ESTABLISHED
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC __ip4_datagram_connect

FUNC udp_disconnect                     # rdi sock, esi flags; 0
    PROLOGUE
    mov dword ptr [rdi + SK_DADDR], 0
    mov word ptr [rdi + SK_DPORT], 0
    mov byte ptr [rdi + SK_STATE], TCP_CLOSE
    xor eax, eax
    EPILOGUE
ENDFUNC udp_disconnect

FUNC datagram_poll                      # rdi file, rsi socket, rdx poll_table or 0; eax events
    ENTER3
    mov rbx, rdi
    mov r12, [rsi + SOCKET_SK]
    mov r13, rdx
    SOCK_POLL_WAIT
    xor eax, eax
    cmp dword ptr [r12 + SK_ERR], 0
    je 1f
    or eax, EPOLLERR
1:
    test dword ptr [r12 + SK_SHUTDOWN], RCV_SHUTDOWN
    jne 2f
    cmp dword ptr [r12 + SK_RECEIVE_QUEUE + SKB_LIST_QLEN], 0
    je 3f
2:
    or eax, EPOLLIN | EPOLLRDNORM
3:
    mov ecx, [r12 + SK_WMEM_ALLOC]
    add ecx, ecx
    cmp ecx, [r12 + SK_SNDBUF]
    ja 4f
    or eax, EPOLLOUT | EPOLLWRNORM
4:
    LEAVE3
ENDFUNC datagram_poll

.data
.balign 64
OBJECT udp_table
    .zero INET_HASH_SIZE * 8
ENDOBJECT udp_table
udp_table_lock:
    .long 0
udp_name:
    .asciz "UDP"
.balign 8
OBJECT udp_prot
    .quad udp_name, udp_lib_close, ip4_datagram_connect, udp_disconnect, 0, udp_init_sock
    .quad udp_destroy_sock, 0, udp_sendmsg, udp_recvmsg, 0, 0, udp_lib_unhash, udp_v4_get_port, 0
ENDOBJECT udp_prot
.text
