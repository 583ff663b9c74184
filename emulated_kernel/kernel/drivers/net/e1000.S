# drivers/net/ethernet/intel/e1000: a network adapter by its descriptor rings; see
# include/e1000.inc for the host's side. Left out: registers, link state, checksum offload, more
# than one queue.

.text

FUNC_NOTRACE e1000_init_module
    push rbp
    mov rbp, rsp
    mov rdi, offset e1000_netdev
    call e1000_probe
    pop rbp
    ret
ENDFUNC e1000_init_module

FUNC e1000_probe                        # rdi dev; 0 or an error
    ENTER1
    push rax
    mov rbx, rdi
    mov dword ptr [rbx + DEV_MTU], 1500
    mov dword ptr [rbx + DEV_FLAGS], IFF_BROADCAST
    mov dword ptr [rbx + DEV_TYPE], 1
    mov rax, offset e1000_xmit_frame
    mov [rbx + DEV_START_XMIT], rax
    mov dword ptr [rbx + DEV_IN_ADDR], 0x0f02000a
    mov dword ptr [rbx + DEV_IN_MASK], 0x00ffffff
    mov rax, offset e1000_qdisc
    mov [rbx + DEV_QDISC], rax
    mov [rax + QDISC_DEV], rbx
    lea rdi, [rbx + DEV_NAPI]
    mov rsi, rbx
    mov rdx, offset e1000_clean
    mov ecx, NAPI_POLL_WEIGHT
    call netif_napi_add_weight
    mov rdi, rbx
    call register_netdevice
    mov rdi, rbx
    call e1000_open
    LEAVE1
ENDFUNC e1000_probe

FUNC e1000_open                         # rdi dev; 0 or an error
    ENTER1
    push rax
    mov rbx, rdi
    mov rdi, offset e1000_rx_ring
    call e1000_alloc_ring_buffers
    test eax, eax
    jne .Lout
    mov rdi, offset e1000_tx_ring
    call e1000_alloc_ring_buffers
    test eax, eax
    jne .Lout
    mov edi, E1000_IRQ
    mov rsi, offset e1000_intr
    xor edx, edx
    xor ecx, ecx
    lea r8, [rbx + DEV_NAME]
    mov r9, rbx
    call request_threaded_irq
.Lout:
    LEAVE1
ENDFUNC e1000_open

FUNC e1000_alloc_ring_buffers           # rdi ring; 0 or -ENOMEM
    ENTER2
    mov rbx, rdi
    lea r12, [rdi + E1000_RING_SIZE * E1000_DESC_SIZE]
.Lnext:
    mov edi, ETH_FRAME_MAX
    mov esi, GFP_KERNEL
    call __kmalloc
    test rax, rax
    je .Lnomem
    mov [rbx + E1000_DESC_BUFFER], rax
    add rbx, E1000_DESC_SIZE
    cmp rbx, r12
    jb .Lnext
    xor eax, eax
    LEAVE2
.Lnomem:
    mov eax, -ENOMEM
    LEAVE2
ENDFUNC e1000_alloc_ring_buffers

FUNC e1000_intr                         # edi interrupt, rsi dev; IRQ_…
    ENTER1
    push rax
    mov rbx, rsi
    inc qword ptr [rip + e1000_adapter + E1000_INTERRUPTS]
    lea rdi, [rbx + DEV_NAPI]
    call napi_schedule_prep
    test eax, eax
    je .Lhandled
    lea rdi, [rbx + DEV_NAPI]
    call __napi_schedule
.Lhandled:
    mov eax, IRQ_HANDLED
    LEAVE1
ENDFUNC e1000_intr

FUNC e1000_clean                        # rdi napi, esi budget; eax packets received
    ENTER3
    mov rbx, rdi
    mov r12d, esi
    call e1000_clean_rx_irq
    mov r13d, eax
    cmp eax, r12d
    jae .Lout
    mov rdi, rbx
    mov esi, eax
    call napi_complete_done
.Lout:
    mov eax, r13d
    LEAVE3
ENDFUNC e1000_clean

FUNC e1000_clean_rx_irq                 # rdi napi, esi budget; eax packets received
    ENTER5
    push rax
    mov rbx, rdi
    mov r12d, esi
    xor r13d, r13d
.Lnext:
    cmp r13d, r12d
    jae .Lout
    mov r14d, [rip + e1000_adapter + E1000_RX_NEXT_TO_CLEAN]
    shl r14d, 4
    add r14, offset e1000_rx_ring
    test byte ptr [r14 + E1000_DESC_STATUS], E1000_RXD_STAT_DD
    je .Lout
    movzx r15d, word ptr [r14 + E1000_DESC_LENGTH]
    cmp r15d, ETH_HLEN
    jb .Lrecycle
    cmp r15d, ETH_FRAME_MAX
    ja .Lrecycle
    mov rdi, rbx
    mov esi, r15d
    call e1000_copybreak
    test rax, rax
    je .Lno_buffer
    push rax
    push rax
    mov rdi, rax
    mov esi, r15d
    call skb_put
    mov rdi, rax
    mov rsi, [r14 + E1000_DESC_BUFFER]
    mov edx, r15d
    call memcpy
    mov rdi, [rsp]
    mov rsi, [rbx + NAPI_DEV]
    call eth_type_trans
    mov rsi, [rsp]
    mov [rsi + SKB_PROTOCOL], ax
    mov rdi, rbx
    call napi_gro_receive
    add rsp, 16
    inc r13d
    jmp .Lrecycle
.Lno_buffer:
    inc qword ptr [rip + e1000_adapter + E1000_RX_NO_BUFFER]
.Lrecycle:
    mov byte ptr [r14 + E1000_DESC_STATUS], 0
    mov eax, [rip + e1000_adapter + E1000_RX_NEXT_TO_CLEAN]
    inc eax
    and eax, E1000_RING_SIZE - 1
    mov [rip + e1000_adapter + E1000_RX_NEXT_TO_CLEAN], eax
    jmp .Lnext
.Lout:
    mov eax, r13d
    LEAVE5
ENDFUNC e1000_clean_rx_irq

# The frame is copied, so that its buffer can go back into the ring. rdi napi, esi bytes; rax skb
# or 0.
FUNC e1000_copybreak
    PROLOGUE
    mov edx, GFP_ATOMIC
    call __napi_alloc_skb
    EPILOGUE
ENDFUNC e1000_copybreak

FUNC e1000_xmit_frame                   # rdi skb, rsi dev; NETDEV_TX_OK
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13d, [rip + e1000_adapter + E1000_TX_TAIL]
    mov r14d, r13d
    shl r14d, 4
    add r14, offset e1000_tx_ring
    xor esi, esi
    mov rdx, [r14 + E1000_DESC_BUFFER]
    mov ecx, [rbx + SKB_LEN]
    call skb_copy_bits
    mov eax, [rbx + SKB_LEN]
    mov [r14 + E1000_DESC_LENGTH], ax
    mov byte ptr [r14 + E1000_DESC_STATUS], E1000_TXD_STAT_DD
    inc r13d
    and r13d, E1000_RING_SIZE - 1
    mov [rip + e1000_adapter + E1000_TX_TAIL], r13d
    inc qword ptr [r12 + DEV_TX_PACKETS]
    add [r12 + DEV_TX_BYTES], rax
    mov rdi, rbx
    call consume_skb
    mov eax, NETDEV_TX_OK
    LEAVE4
ENDFUNC e1000_xmit_frame

.data
.balign 64
OBJECT e1000_netdev
    .asciz "eth0"
    .zero DEV_ADDR - 5
    .byte 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0, 0
    .byte 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0
    .zero DEV_SIZE - DEV_BROADCAST - 8
ENDOBJECT e1000_netdev
OBJECT e1000_qdisc
    .zero QDISC_SIZE
ENDOBJECT e1000_qdisc
OBJECT e1000_adapter
    .zero E1000_ADAPTER_SIZE
ENDOBJECT e1000_adapter
OBJECT e1000_rx_ring
    .zero E1000_RING_SIZE * E1000_DESC_SIZE
ENDOBJECT e1000_rx_ring
OBJECT e1000_tx_ring
    .zero E1000_RING_SIZE * E1000_DESC_SIZE
ENDOBJECT e1000_tx_ring
.text
