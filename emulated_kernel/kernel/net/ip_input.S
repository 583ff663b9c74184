# net/ipv4/ip_input.c: packets that came in. Left out: options, fragments, netfilter.

.text

# rdi skb, rsi dev, rdx packet_type, rcx original dev; NET_RX_…
FUNC ip_rcv
    PROLOGUE
    xor esi, esi
    call ip_rcv_core
    test rax, rax
    je .Ldropped
    mov rdx, rax
    xor edi, edi
    xor esi, esi
    call ip_rcv_finish
    EPILOGUE
.Ldropped:
    mov eax, NET_RX_DROP
    EPILOGUE
ENDFUNC ip_rcv

FUNC ip_rcv_core                        # rdi skb; rax skb, or 0 when it was no good
    ENTER3
    mov rbx, rdi
    cmp byte ptr [rbx + SKB_PKT_TYPE], PACKET_OTHERHOST
    je .Ldrop
    inc qword ptr gs:[IP_IN_RECEIVES]
    mov r13d, [rbx + SKB_LEN]
    cmp r13d, IPHDR_SIZE
    jb .Ldrop
    SKB_HEADER r12, rbx, SKB_NETWORK_HEADER
    movzx eax, byte ptr [r12 + IPHDR_VIHL]
    mov ecx, eax
    shr ecx, 4
    cmp ecx, 4
    jne .Ldrop
    and eax, 15
    cmp eax, 5
    jb .Ldrop
    lea ecx, [rax*4]
    cmp r13d, ecx
    jb .Ldrop
    push rax
    push rcx
    mov rdi, r12
    mov esi, eax
    call ip_fast_csum
    pop rcx
    pop rdx
    test eax, eax
    jne .Ldrop
    movzx eax, word ptr [r12 + IPHDR_TOT_LEN]
    xchg al, ah
    cmp r13d, eax
    jb .Ldrop
    cmp eax, ecx
    jb .Ldrop
    movzx edx, word ptr [rbx + SKB_NETWORK_HEADER]
    add edx, ecx
    mov [rbx + SKB_TRANSPORT_HEADER], dx
    mov rdi, rbx                        # Ethernet pads short frames
    mov esi, eax
    call ___pskb_trim
    mov rax, rbx
    LEAVE3
.Ldrop:
    mov rdi, rbx
    mov esi, 5
    call kfree_skb_reason
    xor eax, eax
    LEAVE3
ENDFUNC ip_rcv_core

FUNC ip_rcv_finish                      # rdi net, rsi sock, rdx skb; NET_RX_…
    ENTER1
    push rax
    mov rbx, rdx
    call ip_rcv_finish_core.constprop.0
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov rax, [rbx + SKB_DST]
    call [rax + DST_INPUT]
.Lout:
    LEAVE1
ENDFUNC ip_rcv_finish

FUNC_STATIC ip_rcv_finish_core.constprop.0    # rdx skb; 0, or NET_RX_DROP with the skb gone
    ENTER2
    mov rbx, rdx
    SKB_HEADER r12, rbx, SKB_NETWORK_HEADER
    cmp qword ptr [rbx + SKB_SK], 0
    jne .Lroute
    cmp byte ptr [r12 + IPHDR_PROTOCOL], IPPROTO_TCP
    jne .Lroute
    mov rdi, rbx
    call tcp_v4_early_demux
.Lroute:
    mov rdi, rbx
    mov esi, [r12 + IPHDR_DADDR]
    mov edx, [r12 + IPHDR_SADDR]
    movzx ecx, byte ptr [r12 + IPHDR_TOS]
    mov r8, [rbx + SKB_DEV]
    call ip_route_input_noref
    test eax, eax
    jne .Ldrop
    xor eax, eax
    LEAVE2
.Ldrop:
    mov rdi, rbx
    mov esi, 6
    call kfree_skb_reason
    mov eax, NET_RX_DROP
    LEAVE2
ENDFUNC ip_rcv_finish_core.constprop.0

FUNC ip_error                           # rdi skb that is not for us
    PROLOGUE
    mov esi, 7
    call kfree_skb_reason
    mov eax, NET_RX_DROP
    EPILOGUE
ENDFUNC ip_error

FUNC ip_local_deliver                   # rdi skb
    ENTER1
    push rax
    mov rbx, rdi
    SKB_HEADER rax, rdi, SKB_NETWORK_HEADER
    test word ptr [rax + IPHDR_FRAG], 0xff3f    # part of a datagram
    jne .Lfragment
    mov rdx, rdi
    xor edi, edi
    xor esi, esi
    call ip_local_deliver_finish
    LEAVE1
.Lfragment:
    mov esi, 8
    call kfree_skb_reason
    mov eax, NET_RX_DROP
    LEAVE1
ENDFUNC ip_local_deliver

FUNC ip_local_deliver_finish            # rdi net, rsi sock, rdx skb; 0
    ENTER2
    mov rbx, rdx
    SKB_HEADER r12, rbx, SKB_NETWORK_HEADER
    movzx esi, word ptr [rbx + SKB_TRANSPORT_HEADER]
    movzx eax, word ptr [rbx + SKB_NETWORK_HEADER]
    sub esi, eax
    mov rdi, rbx
    call skb_pull
    call __rcu_read_lock
    xor edi, edi
    mov rsi, rbx
    movzx edx, byte ptr [r12 + IPHDR_PROTOCOL]
    call ip_protocol_deliver_rcu
    call __rcu_read_unlock
    xor eax, eax
    LEAVE2
ENDFUNC ip_local_deliver_finish

FUNC ip_protocol_deliver_rcu            # rdi net, rsi skb, edx protocol
    ENTER3
    mov rbx, rsi
    mov r12d, edx
    mov rdi, rsi
    mov esi, edx
    call raw_local_deliver
    mov r13d, eax
    mov rax, [r12*8 + inet_protos]
    test rax, rax
    je .Lunknown
    inc qword ptr gs:[IP_IN_DELIVERS]
    mov rdi, rbx
    call rax
    LEAVE3
.Lunknown:
    test r13d, r13d
    jne .Lraw
    mov rdi, rbx
    mov esi, ICMP_DEST_UNREACH
    mov edx, ICMP_PROT_UNREACH
    xor ecx, ecx
    call __icmp_send
.Lraw:
    mov rdi, rbx
    mov esi, 9
    call kfree_skb_reason
    LEAVE3
ENDFUNC ip_protocol_deliver_rcu

# Nobody has a raw socket. rdi skb, esi protocol; eax whether one took a copy.
FUNC raw_local_deliver
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC raw_local_deliver

.data
.balign 64
OBJECT inet_protos
    .quad 0, icmp_rcv, 0, 0, 0, 0, tcp_v4_rcv, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, udp_rcv
    .zero 8 * 238
ENDOBJECT inet_protos
OBJECT ip_packet_type
    .quad ETH_P_IP, 0, ip_rcv, 0, 0
ENDOBJECT ip_packet_type
.text
