# net/ipv4/ip_output.c: packets that leave. Left out: options, fragmentation, netfilter, corking
# more than one piece.

.text

FUNC ip_send_check                      # rdi IP header: its checksum
    ENTER1
    push rax
    mov rbx, rdi
    mov word ptr [rdi + IPHDR_CHECK], 0
    movzx esi, byte ptr [rdi + IPHDR_VIHL]
    and esi, 15
    call ip_fast_csum
    mov [rbx + IPHDR_CHECK], ax
    LEAVE1
ENDFUNC ip_send_check

# An IP header in front of the data of \skb, r12 its address. Clobbers like a call; addresses,
# protocol and tos are those of the flow at \flow.
.macro IP_PUSH_HEADER skb, flow
    mov rdi, \skb
    mov esi, IPHDR_SIZE
    call skb_push
    mov r12, rax
    SKB_RESET_HEADER \skb, SKB_NETWORK_HEADER
    mov byte ptr [r12 + IPHDR_VIHL], 0x45
    mov al, [\flow + FL4_TOS]
    mov [r12 + IPHDR_TOS], al
    mov ax, [rip + ip_ident]
    inc word ptr [rip + ip_ident]
    xchg al, ah
    mov [r12 + IPHDR_ID], ax
    mov word ptr [r12 + IPHDR_FRAG], IP_DF
    mov byte ptr [r12 + IPHDR_TTL], 64
    mov al, [\flow + FL4_PROTO]
    mov [r12 + IPHDR_PROTOCOL], al
    mov eax, [\flow + FL4_SADDR]
    mov [r12 + IPHDR_SADDR], eax
    mov eax, [\flow + FL4_DADDR]
    mov [r12 + IPHDR_DADDR], eax
.endm

FUNC ip_queue_xmit                      # rdi sock, rsi skb, rdx flowi4; 0 or error
    PROLOGUE
    xor ecx, ecx
    call __ip_queue_xmit
    EPILOGUE
ENDFUNC ip_queue_xmit

FUNC __ip_queue_xmit                    # and ecx tos
    ENTER5
    sub rsp, FL4_SIZE
    mov rbx, rsi
    mov r13, rdi
    call __rcu_read_lock
    mov r14, rsp
    mov eax, [r13 + SK_DADDR]
    mov [r14 + FL4_DADDR], eax
    mov eax, [r13 + SK_RCV_SADDR]
    mov [r14 + FL4_SADDR], eax
    movzx eax, word ptr [r13 + SK_PROTOCOL]
    mov [r14 + FL4_PROTO], al
    mov byte ptr [r14 + FL4_TOS], 0
    mov rax, [rbx + SKB_DST]
    test rax, rax
    jne .Lrouted
    mov rax, [r13 + SK_DST]
    test rax, rax
    jne .Lcached
    xor edi, edi
    mov rsi, r14
    mov rdx, r13
    call ip_route_output_flow
    cmp rax, -4095
    jae .Lno_route
    mov [r13 + SK_DST], rax
.Lcached:
    mov [rbx + SKB_DST], rax
.Lrouted:
    IP_PUSH_HEADER rbx, r14
    xor edi, edi
    mov rsi, r13
    mov rdx, rbx
    call ip_local_out
    mov r14d, eax
    call __rcu_read_unlock
    mov eax, r14d
    LEAVE5
.Lno_route:
    mov r14d, eax
    call __rcu_read_unlock
    mov rdi, rbx
    mov esi, 10
    call kfree_skb_reason
    mov eax, r14d
    LEAVE5
ENDFUNC __ip_queue_xmit

# A packet that no socket's own data is in: rdi skb with SKB_DST, rsi flowi4, rdx sock or 0.
FUNC ip_build_and_send_pkt
    ENTER4
    mov rbx, rdi
    mov r13, rsi
    mov r14, rdx
    IP_PUSH_HEADER rbx, r13
    xor edi, edi
    mov rsi, r14
    mov rdx, rbx
    call ip_local_out
    LEAVE4
ENDFUNC ip_build_and_send_pkt

FUNC ip_local_out                       # rdi net, rsi sock, rdx skb; 0 or error
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    call __ip_local_out
    cmp eax, 1
    jne .Lout
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov rax, [rdx + SKB_DST]
    call [rax + DST_OUTPUT]
.Lout:
    LEAVE3
ENDFUNC ip_local_out

FUNC __ip_local_out                     # eax 1: go on
    ENTER1
    push rax
    mov rbx, rdx
    SKB_HEADER rdi, rdx, SKB_NETWORK_HEADER
    mov eax, [rdx + SKB_LEN]
    xchg al, ah
    mov [rdi + IPHDR_TOT_LEN], ax
    call ip_send_check
    mov word ptr [rbx + SKB_PROTOCOL], ETH_P_IP
    mov eax, 1
    LEAVE1
ENDFUNC __ip_local_out

FUNC ip_output                          # rdi net, rsi sock, rdx skb
    PROLOGUE
    inc qword ptr gs:[IP_OUT_REQUESTS]
    mov rax, [rdx + SKB_DST]
    mov rax, [rax + DST_DEV]
    mov [rdx + SKB_DEV], rax
    call ip_finish_output
    EPILOGUE
ENDFUNC ip_output

FUNC ip_finish_output
    PROLOGUE
    call __ip_finish_output
    EPILOGUE
ENDFUNC ip_finish_output

FUNC __ip_finish_output                 # as before; -EMSGSIZE when it does not fit the device
    ENTER1
    push rax
    mov rbx, rdx
    mov rdi, [rdx + SKB_DST]
    call ipv4_mtu
    cmp [rbx + SKB_LEN], eax
    ja .Ltoo_big
    mov rdx, rbx
    xor edi, edi
    xor esi, esi
    call ip_finish_output2
    LEAVE1
.Ltoo_big:
    mov rdi, rbx
    mov esi, 11
    call kfree_skb_reason
    mov eax, -EMSGSIZE
    LEAVE1
ENDFUNC __ip_finish_output

# find the next hop's link address and hand over to the device
FUNC ip_finish_output2
    ENTER3
    mov rbx, rdx
    mov r12, [rdx + SKB_DEV]
    mov eax, [rbx + SKB_DATA]           # room for the link header
    sub eax, [rbx + SKB_HEAD]
    cmp eax, ETH_HLEN
    jae .Lroom
    mov rdi, rbx
    mov esi, MAX_HEADER
    xor edx, edx
    mov ecx, GFP_ATOMIC
    call pskb_expand_head
    test eax, eax
    jne .Ldrop
.Lroom:
    test dword ptr [r12 + DEV_FLAGS], IFF_LOOPBACK
    jne .Lloopback
    mov rax, [rbx + SKB_DST]
    mov r13d, [rax + DST_GATEWAY]
    test r13d, r13d
    jne .Lneighbour
    SKB_HEADER rax, rbx, SKB_NETWORK_HEADER
    mov r13d, [rax + IPHDR_DADDR]
.Lneighbour:
    mov rdi, offset arp_tbl
    mov esi, r13d
    mov rdx, r12
    call neigh_lookup
    test rax, rax
    jne .Lknown
    mov rdi, offset arp_tbl
    mov esi, r13d
    mov rdx, r12
    call __neigh_create
    test rax, rax
    je .Ldrop
.Lknown:
    mov rdi, rax
    mov rsi, rbx
    call neigh_resolve_output
    LEAVE3
.Lloopback:
    mov rdi, rbx
    mov rsi, r12
    mov edx, ETH_P_IP
    xor ecx, ecx
    xor r8d, r8d
    call eth_header
    mov rdi, rbx
    xor esi, esi
    call __dev_queue_xmit
    LEAVE3
.Ldrop:
    mov rdi, rbx
    mov esi, 12
    call kfree_skb_reason
    mov eax, -ENOMEM
    LEAVE3
ENDFUNC ip_finish_output2

# --- datagrams put together from the caller's data ------------------------------------------------

# rdi sock, rsi flowi4, rdx getfrag(from, to, offset, length), rcx from, r8d length with the
# transport header, r9d length of the transport header: an skb on the sock's write queue. 0 or
# error.
FUNC ip_append_data
    PROLOGUE
    call __ip_append_data
    EPILOGUE
ENDFUNC ip_append_data

FUNC __ip_append_data
    ENTER5
    sub rsp, 24
    mov rbx, rdi
    mov [rbp - 48], rdx
    mov r13, rcx
    mov r14d, r8d
    mov r15d, r9d
    mov eax, -EMSGSIZE
    cmp r14d, 65535 - IPHDR_SIZE
    ja .Lout
    lea edi, [r14 + MAX_HEADER]
    mov esi, GFP_KERNEL
    xor edx, edx
    mov ecx, -1
    call __alloc_skb
    mov r12, rax
    mov eax, -ENOBUFS
    test r12, r12
    je .Lout
    SKB_RESERVE r12, MAX_HEADER
    mov rdi, r12
    mov esi, r14d
    call skb_put
    SKB_RESET_HEADER r12, SKB_TRANSPORT_HEADER
    mov rdi, r13
    mov eax, r15d
    mov rsi, [r12 + SKB_DATA]
    add rsi, rax
    xor edx, edx
    mov ecx, r14d
    sub ecx, r15d
    call [rbp - 48]
    test eax, eax
    jne .Lfault
    lea rdi, [rbx + SK_WRITE_QUEUE]
    mov rsi, r12
    call skb_queue_tail
    xor eax, eax
.Lout:
    LEAVE5
.Lfault:
    mov rdi, r12
    mov esi, 13
    call kfree_skb_reason
    mov eax, -EFAULT
    LEAVE5
ENDFUNC __ip_append_data

FUNC ip_generic_getfrag                 # rdi iov_iter, rsi to, edx offset, ecx length; 0 or -EFAULT
    ENTER1
    push rax
    mov ebx, ecx
    mov rdx, rdi
    mov rdi, rsi
    mov esi, ecx
    call _copy_from_iter
    cmp rax, rbx
    mov eax, 0
    je 1f
    mov eax, -EFAULT
1:
    LEAVE1
ENDFUNC ip_generic_getfrag

# rdi sock, rsi flowi4, rdx dst_entry; rax skb with IP header, or 0
FUNC __ip_make_skb
    ENTER4
    mov r13, rsi
    mov r14, rdx
    add rdi, SK_WRITE_QUEUE
    call skb_dequeue
    mov rbx, rax
    test rax, rax
    je .Lout
    mov [rbx + SKB_DST], r14
    IP_PUSH_HEADER rbx, r13
    mov word ptr [r12 + IPHDR_FRAG], 0
.Lout:
    mov rax, rbx
    LEAVE4
ENDFUNC __ip_make_skb

FUNC ip_push_pending_frames             # rdi sock, rsi flowi4, rdx dst_entry; 0 or error
    PROLOGUE
    call __ip_make_skb
    test rax, rax
    je 1f
    xor edi, edi
    mov rsi, rax
    call ip_send_skb
1:
    EPILOGUE
ENDFUNC ip_push_pending_frames

FUNC ip_flush_pending_frames            # rdi sock
    PROLOGUE
    add rdi, SK_WRITE_QUEUE
    call skb_queue_purge
    EPILOGUE
ENDFUNC ip_flush_pending_frames

# As ip_append_data, but the result is returned and not queued: rdi sock, rsi flowi4, rdx getfrag,
# rcx from, r8d length, r9d transport header, and the dst_entry on the stack. rax skb or error.
FUNC ip_make_skb
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    call __ip_append_data
    test eax, eax
    jne .Lerror
    mov rdi, rbx
    mov rsi, r12
    mov rdx, [rbp + 16]
    call __ip_make_skb
    LEAVE3
.Lerror:
    cdqe
    LEAVE3
ENDFUNC ip_make_skb

FUNC ip_send_skb                        # rdi net, rsi skb; 0 or error
    PROLOGUE
    mov rdx, rsi
    mov rsi, [rdx + SKB_SK]
    call ip_local_out
    EPILOGUE
ENDFUNC ip_send_skb

.data
ip_ident:
    .word 1
.text
