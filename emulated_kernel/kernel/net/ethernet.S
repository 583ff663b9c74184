# net/ethernet/eth.c and drivers/net/loopback.c.

.text

# rdi skb that begins with its Ethernet header, rsi dev: ax its protocol; the header is pulled off.
FUNC eth_type_trans
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov [rbx + SKB_DEV], rsi
    SKB_RESET_HEADER rbx, SKB_MAC_HEADER
    mov esi, ETH_HLEN
    call skb_pull
    test rax, rax
    je .Lshort
    sub rax, ETH_HLEN
    mov ecx, [rax]
    movzx edx, word ptr [rax + 4]
    mov r8d, PACKET_HOST
    cmp ecx, [r12 + DEV_ADDR]
    jne .Lnot_us
    cmp dx, [r12 + DEV_ADDR + 4]
    je .Ltype
.Lnot_us:
    mov r8d, PACKET_BROADCAST
    cmp ecx, [r12 + DEV_BROADCAST]
    jne .Lnot_all
    cmp dx, [r12 + DEV_BROADCAST + 4]
    je .Ltype
.Lnot_all:
    mov r8d, PACKET_MULTICAST
    test cl, 1
    jne .Ltype
    mov r8d, PACKET_OTHERHOST
.Ltype:
    mov [rbx + SKB_PKT_TYPE], r8b
    movzx eax, word ptr [rax + 12]
    LEAVE2
.Lshort:
    mov byte ptr [rbx + SKB_PKT_TYPE], PACKET_OTHERHOST
    xor eax, eax
    LEAVE2
ENDFUNC eth_type_trans

# rdi skb, rsi dev, edx protocol (network order), rcx destination or 0, r8 source or 0: length
# pushed.
FUNC eth_header
    ENTER5
    push rax
    mov rbx, rsi
    mov r12d, edx
    mov r13, rcx
    mov r14, r8
    mov esi, ETH_HLEN
    call skb_push
    mov [rax + 12], r12w
    test r14, r14
    jne 1f
    lea r14, [rbx + DEV_ADDR]
1:
    mov ecx, [r14]
    mov [rax + 6], ecx
    mov cx, [r14 + 4]
    mov [rax + 10], cx
    xor ecx, ecx
    xor edx, edx
    test r13, r13
    je 2f
    mov ecx, [r13]
    mov dx, [r13 + 4]
2:
    mov [rax], ecx
    mov [rax + 4], dx
    mov eax, ETH_HLEN
    LEAVE5
ENDFUNC eth_header

# --- the loopback device --------------------------------------------------------------------------

FUNC loopback_net_init
    PROLOGUE
    mov rdi, offset loopback_dev
    call loopback_setup
    mov rdi, offset loopback_dev
    call register_netdevice
    EPILOGUE
ENDFUNC loopback_net_init

FUNC loopback_setup                     # rdi dev
    PROLOGUE
    mov dword ptr [rdi + DEV_MTU], 65536
    mov dword ptr [rdi + DEV_FLAGS], IFF_LOOPBACK
    mov dword ptr [rdi + DEV_TYPE], 772
    mov rax, offset loopback_xmit
    mov [rdi + DEV_START_XMIT], rax
    mov dword ptr [rdi + DEV_IN_ADDR], 0x0100007f
    mov dword ptr [rdi + DEV_IN_MASK], 0x000000ff
    EPILOGUE
ENDFUNC loopback_setup

FUNC loopback_xmit                      # rdi skb, rsi dev; NETDEV_TX_OK
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov rax, [rbx + SKB_DESTRUCTOR]     # skb_orphan
    test rax, rax
    je 1f
    call rax
    mov qword ptr [rbx + SKB_DESTRUCTOR], 0
1:
    mov qword ptr [rbx + SKB_SK], 0
    mov qword ptr [rbx + SKB_TSTAMP], 0
    mov rdi, rbx
    mov rsi, r12
    call eth_type_trans
    mov [rbx + SKB_PROTOCOL], ax
    mov r13d, [rbx + SKB_LEN]
    mov rdi, rbx
    call __netif_rx
    test eax, eax
    jne .Ldropped
    inc qword ptr [r12 + DEV_TX_PACKETS]
    add [r12 + DEV_TX_BYTES], r13
    jmp .Lout
.Ldropped:
    inc qword ptr [r12 + DEV_TX_DROPPED]
.Lout:
    mov eax, NETDEV_TX_OK
    LEAVE3
ENDFUNC loopback_xmit

.data
.balign 64
OBJECT loopback_dev
    .asciz "lo"
    .zero DEV_SIZE - 3
ENDOBJECT loopback_dev
.text
