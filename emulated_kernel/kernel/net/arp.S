# net/ipv4/arp.c, net/core/neighbour.c: link addresses of the neighbours. A packet for one whose
# address is not known waits with it until the answer comes. Left out: ageing, proxies, probes.

.text

# struct neighbour
NEIGH_NEXT = 0
NEIGH_KEY = 8
NEIGH_STATE = 12
NEIGH_HA = 16
NEIGH_DEV = 24
NEIGH_QUEUE = 32                        # sk_buff_head
NEIGH_PROBES = 56
NEIGH_SIZE = 64
NUD_INCOMPLETE = 0x1
NUD_REACHABLE = 0x2
NUD_PERMANENT = 0x80
NUD_VALID = 0x82
NEIGH_QUEUE_MAX = 16

# struct arphdr for Ethernet and IPv4
ARPHDR_OP = 6
ARPHDR_SHA = 8
ARPHDR_SIP = 14
ARPHDR_THA = 18
ARPHDR_TIP = 24
ARPHDR_SIZE = 28
ARPOP_REQUEST = 0x0100
ARPOP_REPLY = 0x0200

FUNC neigh_lookup                       # rdi table, esi address, rdx dev; rax neighbour or 0
    PROLOGUE
    mov rax, [rdi]
.Lnext:
    test rax, rax
    je .Lout
    cmp [rax + NEIGH_KEY], esi
    jne .Lother
    cmp [rax + NEIGH_DEV], rdx
    je .Lout
.Lother:
    mov rax, [rax + NEIGH_NEXT]
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC neigh_lookup

FUNC __neigh_create                     # rdi table, esi address, rdx dev; rax neighbour or 0
    ENTER3
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    mov edi, NEIGH_SIZE
    mov esi, GFP_ATOMIC | GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lout
    mov [rax + NEIGH_KEY], r12d
    mov [rax + NEIGH_DEV], r13
    mov rcx, [rbx]
    mov [rax + NEIGH_NEXT], rcx
    mov [rbx], rax
.Lout:
    LEAVE3
ENDFUNC __neigh_create

FUNC neigh_resolve_output               # rdi neighbour, rsi skb; 0 or error
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call __neigh_event_send
    test eax, eax
    jne .Lwaiting
    mov rdi, rbx
    mov rsi, r12
    call neigh_connected_output
    LEAVE2
.Lwaiting:
    xor eax, eax
    LEAVE2
ENDFUNC neigh_resolve_output

FUNC neigh_connected_output             # rdi neighbour with a valid address, rsi skb
    ENTER2
    mov r12, rsi
    mov rax, rdi
    mov rdi, rsi
    mov rsi, [rax + NEIGH_DEV]
    movzx edx, word ptr [r12 + SKB_PROTOCOL]
    lea rcx, [rax + NEIGH_HA]
    xor r8d, r8d
    call eth_header
    mov rdi, r12
    xor esi, esi
    call __dev_queue_xmit
    LEAVE2
ENDFUNC neigh_connected_output

# rdi neighbour, rsi skb; eax 1: the skb waits for its address
FUNC __neigh_event_send
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    xor eax, eax
    test dword ptr [rbx + NEIGH_STATE], NUD_VALID
    jne .Lout
    lea rdi, [rbx + NEIGH_QUEUE]
    cmp dword ptr [rdi + SKB_LIST_QLEN], NEIGH_QUEUE_MAX
    jb .Lqueue
    call skb_dequeue                    # the oldest gives way
    mov rdi, rax
    mov esi, 14
    call kfree_skb_reason
.Lqueue:
    lea rdi, [rbx + NEIGH_QUEUE]
    mov rsi, r12
    call skb_queue_tail
    or dword ptr [rbx + NEIGH_STATE], NUD_INCOMPLETE
    inc dword ptr [rbx + NEIGH_PROBES]
    mov rdi, rbx
    mov rsi, r12
    call arp_solicit
    mov eax, 1
.Lout:
    LEAVE2
ENDFUNC __neigh_event_send

FUNC neigh_update                       # rdi neighbour, rsi its address; send what waited
    ENTER2
    mov rbx, rdi
    test dword ptr [rbx + NEIGH_STATE], NUD_PERMANENT
    jne .Lout
    mov eax, [rsi]
    mov [rbx + NEIGH_HA], eax
    mov ax, [rsi + 4]
    mov [rbx + NEIGH_HA + 4], ax
    mov dword ptr [rbx + NEIGH_STATE], NUD_REACHABLE
.Lnext:
    lea rdi, [rbx + NEIGH_QUEUE]
    call skb_dequeue
    test rax, rax
    je .Lout
    mov rdi, rbx
    mov rsi, rax
    call neigh_connected_output
    jmp .Lnext
.Lout:
    LEAVE2
ENDFUNC neigh_update

# --- ARP ------------------------------------------------------------------------------------------

FUNC arp_solicit                        # rdi neighbour, rsi skb: who has it?
    PROLOGUE
    mov rax, rdi
    mov edi, ARPOP_REQUEST
    mov esi, [rax + NEIGH_KEY]
    mov rdx, [rax + NEIGH_DEV]
    mov ecx, [rdx + DEV_IN_ADDR]
    xor r8d, r8d
    call arp_send
    EPILOGUE
ENDFUNC arp_solicit

# edi operation, esi target, rdx dev, ecx our address, r8 its link address
FUNC arp_send
    PROLOGUE
    call arp_create
    test rax, rax
    je 1f
    mov rdi, rax
    call arp_xmit
1:
    EPILOGUE
ENDFUNC arp_send

FUNC arp_create                         # as arp_send; rax skb or 0
    ENTER5
    push rcx
    mov r12d, edi
    mov r13d, esi
    mov r14, rdx
    mov r15, r8
    mov rdi, rdx
    mov esi, ARPHDR_SIZE
    mov edx, GFP_ATOMIC
    call __netdev_alloc_skb
    mov rbx, rax
    test rax, rax
    je .Lout
    mov rdi, rbx
    mov esi, ARPHDR_SIZE
    call skb_put
    movabs rcx, 0x0004060008000100      # Ethernet, IPv4, lengths 6 and 4
    mov [rax], rcx
    mov [rax + ARPHDR_OP], r12w
    mov ecx, [r14 + DEV_ADDR]
    mov [rax + ARPHDR_SHA], ecx
    mov cx, [r14 + DEV_ADDR + 4]
    mov [rax + ARPHDR_SHA + 4], cx
    mov ecx, [rbp - 48]
    mov [rax + ARPHDR_SIP], ecx
    xor ecx, ecx
    xor edx, edx
    test r15, r15
    je 1f
    mov ecx, [r15]
    mov dx, [r15 + 4]
1:
    mov [rax + ARPHDR_THA], ecx
    mov [rax + ARPHDR_THA + 4], dx
    mov [rax + ARPHDR_TIP], r13d
    mov word ptr [rbx + SKB_PROTOCOL], ETH_P_ARP
    test r15, r15
    jne 2f
    lea r15, [r14 + DEV_BROADCAST]
2:
    mov rdi, rbx
    mov rsi, r14
    mov edx, ETH_P_ARP
    mov rcx, r15
    xor r8d, r8d
    call eth_header
    mov rax, rbx
.Lout:
    LEAVE5
ENDFUNC arp_create

FUNC arp_xmit                           # rdi skb
    PROLOGUE
    xor esi, esi
    call __dev_queue_xmit
    EPILOGUE
ENDFUNC arp_xmit

FUNC arp_rcv                            # rdi skb, rsi dev, …
    PROLOGUE
    cmp byte ptr [rdi + SKB_PKT_TYPE], PACKET_OTHERHOST
    je .Ldrop
    cmp dword ptr [rdi + SKB_LEN], ARPHDR_SIZE
    jb .Ldrop
    mov rdx, rdi
    xor edi, edi
    xor esi, esi
    call arp_process
    EPILOGUE
.Ldrop:
    mov esi, 15
    call kfree_skb_reason
    mov eax, NET_RX_DROP
    EPILOGUE
ENDFUNC arp_rcv

FUNC arp_process                        # rdi net, rsi sock, rdx skb
    ENTER4
    mov rbx, rdx
    mov r12, [rdx + SKB_DEV]
    mov r13, [rdx + SKB_DATA]
    mov rdi, offset arp_tbl
    mov esi, [r13 + ARPHDR_SIP]
    mov rdx, r12
    call neigh_lookup
    mov r14, rax
    mov eax, [r13 + ARPHDR_TIP]
    cmp eax, [r12 + DEV_IN_ADDR]
    jne .Lupdate
    test r14, r14
    jne .Lupdate
    mov rdi, offset arp_tbl             # who talks to us is worth knowing
    mov esi, [r13 + ARPHDR_SIP]
    mov rdx, r12
    call __neigh_create
    mov r14, rax
.Lupdate:
    test r14, r14
    je .Lanswer
    mov rdi, r14
    lea rsi, [r13 + ARPHDR_SHA]
    call neigh_update
.Lanswer:
    cmp word ptr [r13 + ARPHDR_OP], ARPOP_REQUEST
    jne .Lout
    mov eax, [r13 + ARPHDR_TIP]
    cmp eax, [r12 + DEV_IN_ADDR]
    jne .Lout
    mov edi, ARPOP_REPLY
    mov esi, [r13 + ARPHDR_SIP]
    mov rdx, r12
    mov ecx, eax
    lea r8, [r13 + ARPHDR_SHA]
    call arp_send
.Lout:
    mov rdi, rbx
    call consume_skb
    xor eax, eax
    LEAVE4
ENDFUNC arp_process

.data
.balign 64
OBJECT arp_tbl
    .quad arp_gateway
ENDOBJECT arp_tbl
arp_gateway:                            # 10.0.2.2, whose address is known from the start
    .quad 0
    .long 0x0202000a, NUD_PERMANENT
    .byte 0x52, 0x55, 0x0a, 0x00, 0x02, 0x02, 0, 0
    .quad e1000_netdev
    .zero NEIGH_SIZE - 32
OBJECT arp_packet_type
    .quad ETH_P_ARP, 0, arp_rcv, 0, 0
ENDOBJECT arp_packet_type
.text
