# net/ipv4/icmp.c: echo, and telling a sender that nobody is there. Left out: rate limits other
# than one bucket, redirects, time stamps.

.text

# struct icmp_bxm: what a message is made of
BXM_SKB = 0
BXM_OFFSET = 8
BXM_DATA_LEN = 12
BXM_ICMPH = 16                          # icmphdr
BXM_SADDR = 24
BXM_DADDR = 28
BXM_SIZE = 32

FUNC icmp_rcv                           # rdi skb at the ICMP header; 0
    ENTER2
    mov rbx, rdi
    inc qword ptr gs:[ICMP_IN_MSGS]
    cmp dword ptr [rdi + SKB_LEN], ICMPHDR_SIZE
    jb .Lerror
    mov dword ptr [rdi + SKB_CSUM], 0
    call __skb_checksum_complete
    test eax, eax
    jne .Lerror
    mov r12, [rbx + SKB_DATA]
    mov rdi, rbx
    mov esi, ICMPHDR_SIZE
    call skb_pull
    movzx eax, byte ptr [r12 + ICMPHDR_TYPE]
    cmp eax, NR_ICMP_TYPES
    ja .Lerror
    mov rdi, rbx
    call [rax*8 + icmp_pointers]
    mov rdi, rbx
    call consume_skb
    xor eax, eax
    LEAVE2
.Lerror:
    inc qword ptr [rip + icmp_in_errors]
    mov rdi, rbx
    mov esi, 16
    call kfree_skb_reason
    xor eax, eax
    LEAVE2
ENDFUNC icmp_rcv

FUNC icmp_echo                          # rdi skb; eax 0
    ENTER1
    sub rsp, BXM_SIZE + 8
    mov rbx, rsp
    SKB_HEADER rax, rdi, SKB_TRANSPORT_HEADER
    mov rcx, [rax]
    mov [rbx + BXM_ICMPH], rcx
    mov byte ptr [rbx + BXM_ICMPH + ICMPHDR_TYPE], ICMP_ECHOREPLY
    mov [rbx + BXM_SKB], rdi
    mov dword ptr [rbx + BXM_OFFSET], 0
    mov eax, [rdi + SKB_LEN]
    mov [rbx + BXM_DATA_LEN], eax
    mov rsi, rdi
    mov rdi, rbx
    call icmp_reply
    xor eax, eax
    LEAVE1
ENDFUNC icmp_echo

FUNC icmp_discard                       # rdi skb that wants no answer
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC icmp_discard

# An error about a packet of ours: the socket it was from learns of it. rdi skb behind the ICMP
# header.
FUNC icmp_unreach
    ENTER2
    mov rbx, rdi
    mov eax, [rbx + SKB_LEN]
    cmp eax, IPHDR_SIZE + 8
    jb .Lout
    mov r12, [rbx + SKB_DATA]
    cmp byte ptr [r12 + IPHDR_PROTOCOL], IPPROTO_UDP
    jne .Lout
    mov rdi, rbx
    mov rsi, r12
    call udp_err
.Lout:
    xor eax, eax
    LEAVE2
ENDFUNC icmp_unreach

FUNC ping_rcv                           # rdi skb with an echo reply: nobody pings from here
    PROLOGUE
    inc qword ptr [rip + icmp_in_echoreps]
    xor eax, eax
    EPILOGUE
ENDFUNC ping_rcv

FUNC icmp_global_allow                  # eax whether another message may be sent in this tick
    PROLOGUE
    mov rax, [rip + jiffies_64]
    cmp rax, [rip + icmp_stamp]
    je 1f
    mov [rip + icmp_stamp], rax
    mov dword ptr [rip + icmp_credit], 50
1:
    xor eax, eax
    cmp dword ptr [rip + icmp_credit], 0
    je 2f
    dec dword ptr [rip + icmp_credit]
    mov eax, 1
2:
    EPILOGUE
ENDFUNC icmp_global_allow

FUNC icmp_out_count                     # rdi net, esi type
    PROLOGUE
    inc qword ptr gs:[ICMP_OUT_MSGS]
    EPILOGUE
ENDFUNC icmp_out_count

FUNC icmp_reply                         # rdi icmp_bxm, rsi the skb that is answered
    ENTER4
    sub rsp, FL4_SIZE + 8
    mov rbx, rdi
    mov r12, rsi
    call icmp_global_allow
    test eax, eax
    je .Lout
    SKB_HEADER rax, r12, SKB_NETWORK_HEADER
    mov r13, rsp
    mov ecx, [rax + IPHDR_SADDR]
    mov [r13 + FL4_DADDR], ecx
    mov ecx, [rax + IPHDR_DADDR]
    mov [r13 + FL4_SADDR], ecx
    mov byte ptr [r13 + FL4_PROTO], IPPROTO_ICMP
    mov al, [rax + IPHDR_TOS]
    mov [r13 + FL4_TOS], al
    xor edi, edi
    mov rsi, r13
    xor edx, edx
    call ip_route_output_flow
    cmp rax, -4095
    jae .Lout
    mov rdi, rbx
    mov rsi, r13
    mov rdx, rax
    call icmp_push_reply
.Lout:
    LEAVE4
ENDFUNC icmp_reply

FUNC icmp_push_reply                    # rdi icmp_bxm, rsi flowi4, rdx dst_entry
    ENTER5
    push rax
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, offset icmp_sk
    lea rdi, [r14 + SK_LOCK_SLOCK]
    call _raw_spin_lock_bh
    mov rdi, r14
    mov rsi, r12
    mov rdx, offset icmp_glue_bits
    mov rcx, rbx
    mov r8d, [rbx + BXM_DATA_LEN]
    add r8d, ICMPHDR_SIZE
    mov r9d, ICMPHDR_SIZE
    call ip_append_data
    test eax, eax
    js .Lflush
    mov r15, [r14 + SK_WRITE_QUEUE]
    mov rax, [r15 + SKB_DATA]
    mov rcx, [rbx + BXM_ICMPH]
    mov [rax], rcx
    mov word ptr [rax + ICMPHDR_CHECKSUM], 0
    mov rdi, rax
    mov esi, [r15 + SKB_LEN]
    call ip_compute_csum
    mov rcx, [r15 + SKB_DATA]
    mov [rcx + ICMPHDR_CHECKSUM], ax
    xor edi, edi
    movzx esi, byte ptr [rcx + ICMPHDR_TYPE]
    call icmp_out_count
    mov rdi, r14
    mov rsi, r12
    mov rdx, r13
    call ip_push_pending_frames
    jmp .Lunlock
.Lflush:
    mov rdi, r14
    call ip_flush_pending_frames
.Lunlock:
    lea rdi, [r14 + SK_LOCK_SLOCK]
    call _raw_spin_unlock_bh
    LEAVE5
ENDFUNC icmp_push_reply

FUNC icmp_glue_bits                     # rdi icmp_bxm, rsi to, edx offset, ecx length; 0 or error
    PROLOGUE
    mov rax, rdi
    mov rdi, [rax + BXM_SKB]
    mov r8, rsi
    mov esi, [rax + BXM_OFFSET]
    add esi, edx
    mov rdx, r8
    call skb_copy_bits
    EPILOGUE
ENDFUNC icmp_glue_bits

# Tell the sender of rdi, whose data begins behind its IP header: esi type, edx code, ecx more.
FUNC __icmp_send
    ENTER2
    sub rsp, BXM_SIZE + 16
    mov rbx, rsp
    mov r12, rdi
    mov byte ptr [rbx + BXM_ICMPH + ICMPHDR_TYPE], sil
    mov byte ptr [rbx + BXM_ICMPH + ICMPHDR_CODE], dl
    mov word ptr [rbx + BXM_ICMPH + ICMPHDR_CHECKSUM], 0
    mov [rbx + BXM_ICMPH + ICMPHDR_ID], ecx
    cmp byte ptr [r12 + SKB_PKT_TYPE], PACKET_HOST
    jne .Lout                           # never about a broadcast
    mov [rbx + BXM_SKB], r12
    movzx eax, word ptr [r12 + SKB_NETWORK_HEADER]
    add rax, [r12 + SKB_HEAD]
    sub rax, [r12 + SKB_DATA]           # negative: the quote begins with the IP header
    mov ecx, eax
    mov edi, eax
    neg edi
    mov eax, [r12 + SKB_LEN]
    add eax, edi
    cmp eax, 548
    jbe 1f
    mov eax, 548
1:
    mov [rbx + BXM_DATA_LEN], eax
    push rcx
    push rcx
    mov esi, edi                        # put the header back while its bytes are copied
    mov rdi, r12
    call skb_push
    mov dword ptr [rbx + BXM_OFFSET], 0
    mov rdi, rbx
    mov rsi, r12
    call icmp_reply
    pop rsi
    neg esi
    mov rdi, r12
    call skb_pull
.Lout:
    LEAVE2
ENDFUNC __icmp_send

.data
.balign 64
icmp_pointers:
    .quad ping_rcv, icmp_discard, icmp_discard, icmp_unreach, icmp_unreach, icmp_discard
    .quad icmp_discard, icmp_discard, icmp_echo, icmp_discard, icmp_discard, icmp_unreach
    .quad icmp_unreach, icmp_discard, icmp_discard, icmp_discard, icmp_discard, icmp_discard
    .quad icmp_discard
OBJECT icmp_sk
    .zero SOCK_SIZE
ENDOBJECT icmp_sk
icmp_in_errors:
    .quad 0
icmp_in_echoreps:
    .quad 0
icmp_stamp:
    .quad 0
icmp_credit:
    .long 50
.text
