# net/ipv4/tcp_output.c: segments that leave. Left out: segmentation offload, pacing, SACK, time
# stamps, window scaling, probes of a closed window.

.text

# rax = now, in nanoseconds; clobbers like a call.
.macro TCP_CLOCK
    call ktime_get
.endm

FUNC tcp_mtu_to_mss                     # rdi sock, esi MTU; eax
    PROLOGUE
    lea eax, [rsi - IPHDR_SIZE - TCPHDR_SIZE]
    EPILOGUE
ENDFUNC tcp_mtu_to_mss

FUNC tcp_sync_mss                       # rdi sock, esi MTU; eax the largest segment there is
    ENTER1
    push rax
    mov rbx, rdi
    call tcp_mtu_to_mss
    mov ecx, [rbx + TP_MSS]             # what the other side takes
    test ecx, ecx
    je 1f
    cmp eax, ecx
    cmova eax, ecx
1:
    mov [rbx + TP_MSS], eax
    LEAVE1
ENDFUNC tcp_sync_mss

FUNC tcp_current_mss                    # rdi sock; eax
    PROLOGUE
    mov eax, [rdi + TP_MSS]
    EPILOGUE
ENDFUNC tcp_current_mss

FUNC __tcp_select_window                # rdi sock; eax what may be offered
    PROLOGUE
    xor eax, eax
    mov ecx, [rdi + SK_RCVBUF]
    sub ecx, [rdi + SK_RMEM_ALLOC]
    jle .Lout
    shr ecx, 1                          # half of it is overhead
    mov eax, TCP_WINDOW_MAX
    cmp eax, ecx
    cmova eax, ecx
    mov ecx, [rdi + TP_ADVMSS]
    test ecx, ecx
    je .Lout
    cmp eax, ecx
    jb .Lless
    xor edx, edx                        # whole segments
    mov r8d, eax
    div ecx
    mov eax, r8d
    sub eax, edx
    EPILOGUE
.Lless:
    xor eax, eax                        # no silly windows
.Lout:
    EPILOGUE
ENDFUNC __tcp_select_window

# The window to be put into a segment, which is never less than what was offered
# (tcp_select_window). rbx sock; eax. Clobbers like a call.
.macro TCP_SELECT_WINDOW
    mov rdi, rbx
    call __tcp_select_window
    mov ecx, [rbx + TP_RCV_WUP]
    add ecx, [rbx + TP_RCV_WND]
    sub ecx, [rbx + TP_RCV_NXT]
    jns 1f
    xor ecx, ecx
1:
    cmp eax, ecx
    cmovb eax, ecx
    mov [rbx + TP_RCV_WND], eax
    mov ecx, [rbx + TP_RCV_NXT]
    mov [rbx + TP_RCV_WUP], ecx
.endm

FUNC tcp_options_write                  # rdi header, esi segment size to be announced
    PROLOGUE
    mov eax, esi
    xchg al, ah
    shl eax, 16
    or eax, 0x0402
    mov [rdi + TCPHDR_SIZE], eax
    EPILOGUE
ENDFUNC tcp_options_write

FUNC __tcp_v4_send_check                # rdi skb, esi source, edx destination
    ENTER3
    mov rbx, rdi
    mov r12d, esi
    mov r13d, edx
    SKB_HEADER rdi, rbx, SKB_TRANSPORT_HEADER
    mov word ptr [rdi + TCPHDR_CHECK], 0
    mov esi, [rbx + SKB_LEN]
    xor edx, edx
    call csum_partial
    mov edi, r12d
    mov esi, r13d
    mov edx, [rbx + SKB_LEN]
    mov ecx, IPPROTO_TCP
    mov r8d, eax
    call csum_tcpudp_magic
    SKB_HEADER rdi, rbx, SKB_TRANSPORT_HEADER
    mov [rdi + TCPHDR_CHECK], ax
    LEAVE3
ENDFUNC __tcp_v4_send_check

FUNC tcp_v4_send_check                  # rdi sock, rsi skb
    PROLOGUE
    mov rax, rdi
    mov rdi, rsi
    mov esi, [rax + SK_RCV_SADDR]
    mov edx, [rax + SK_DADDR]
    call __tcp_v4_send_check
    EPILOGUE
ENDFUNC tcp_v4_send_check

# rdi sock, rsi skb, edx whether the skb stays with us, ecx gfp, r8d what to acknowledge: 0 or an
# error.
FUNC __tcp_transmit_skb
    ENTER5
    push rax
    mov rbx, rdi
    mov r12, rsi
    mov r13d, r8d
    test edx, edx
    je .Lours
    TCP_CLOCK
    mov [r12 + TCP_CB_SENT], rax
    SKB_SHINFO rax, r12
    mov rdi, r12
    mov esi, GFP_ATOMIC
    cmp dword ptr [rax + SHINFO_DATAREF], 1
    jne .Lcopy                          # an earlier one is still under way
    call skb_clone
    jmp .Lcloned
.Lcopy:
    call skb_copy
.Lcloned:
    mov r12, rax
    mov eax, -ENOBUFS
    test r12, r12
    je .Lout
.Lours:
    mov r14d, TCPHDR_SIZE
    movzx r15d, byte ptr [r12 + TCP_CB_FLAGS]
    test r15d, TCPHDR_SYN
    je 1f
    mov r14d, TCPHDR_SIZE + 4
1:
    mov rdi, r12
    mov esi, r14d
    call skb_push
    SKB_RESET_HEADER r12, SKB_TRANSPORT_HEADER
    TCP_SELECT_WINDOW
    xchg al, ah
    mov rdi, [r12 + SKB_DATA]
    mov [rdi + TCPHDR_WINDOW], ax
    mov ax, [rbx + SK_SPORT]
    mov [rdi + TCPHDR_SOURCE], ax
    mov ax, [rbx + SK_DPORT]
    mov [rdi + TCPHDR_DEST], ax
    mov eax, [r12 + TCP_CB_SEQ]
    bswap eax
    mov [rdi + TCPHDR_SEQ], eax
    mov eax, r13d
    test r15d, TCPHDR_ACK
    jne 2f
    xor eax, eax
2:
    bswap eax
    mov [rdi + TCPHDR_ACK_SEQ], eax
    mov eax, r14d
    shl eax, 2
    mov [rdi + TCPHDR_DOFF], al
    mov [rdi + TCPHDR_FLAGS], r15b
    mov dword ptr [rdi + TCPHDR_CHECK], 0
    test r15d, TCPHDR_SYN
    je .Lno_options
    mov esi, [rbx + TP_ADVMSS]
    call tcp_options_write
.Lno_options:
    mov rdi, rbx
    mov rsi, r12
    call tcp_v4_send_check
    test r15d, TCPHDR_ACK
    je .Lsent
    mov byte ptr [rbx + ICSK_ACK_PENDING], 0
    cmp byte ptr [rbx + ICSK_ACK_QUICK], 0
    je 3f
    dec byte ptr [rbx + ICSK_ACK_QUICK]
3:
    mov rdi, rbx
    lea rsi, [rbx + ICSK_DELACK_TIMER]
    call sk_stop_timer
.Lsent:
    inc dword ptr [rbx + TP_SEGS_OUT]
    inc qword ptr gs:[TCP_OUT_SEGS]
    mov rdi, rbx
    mov rsi, r12
    xor edx, edx
    call ip_queue_xmit
.Lout:
    LEAVE5
ENDFUNC __tcp_transmit_skb

# --- the queues -----------------------------------------------------------------------------------

# rdi sock, rsi skb: from the write queue to those not acknowledged
FUNC tcp_event_new_data_sent
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13d, [rbx + TP_PACKETS_OUT]
    mov eax, [r12 + TCP_CB_END_SEQ]
    mov [rbx + TP_SND_NXT], eax
    mov rdi, r12
    lea rsi, [rbx + SK_WRITE_QUEUE]
    call __skb_unlink
    lea rdi, [rbx + TP_RTX_QUEUE]
    mov rsi, r12
    call tcp_rbtree_insert
    inc dword ptr [rbx + TP_PACKETS_OUT]
    test r13d, r13d
    jne 1f
    mov rdi, rbx
    call tcp_rearm_rto
1:
    LEAVE3
ENDFUNC tcp_event_new_data_sent

# rdi queue of sent segments, rsi skb. They are sent in order, so that it belongs at the end.
FUNC tcp_rbtree_insert
    PROLOGUE
    call __skb_queue_tail
    EPILOGUE
ENDFUNC tcp_rbtree_insert

FUNC __tcp_push_pending_frames          # rdi sock, esi segment size, edx nonagle
    PROLOGUE
    cmp byte ptr [rdi + SK_STATE], TCP_CLOSE
    je 1f
    xor ecx, ecx
    mov r8d, GFP_ATOMIC
    call tcp_write_xmit
1:
    EPILOGUE
ENDFUNC __tcp_push_pending_frames

FUNC tcp_push_one                       # rdi sock, esi segment size
    PROLOGUE
    mov edx, 1
    mov ecx, 1
    mov r8d, GFP_ATOMIC
    call tcp_write_xmit
    EPILOGUE
ENDFUNC tcp_push_one

# rdi sock, esi segment size, edx nonagle, ecx at most how many (0: all), r8d gfp: eax whether
# there is data that nothing under way will bring out.
FUNC tcp_write_xmit
    ENTER5
    push rcx
    mov rbx, rdi
    mov r13d, esi
    mov r14d, edx
    xor r15d, r15d
.Lnext:
    lea rcx, [rbx + SK_WRITE_QUEUE]
    mov r12, [rcx]
    cmp r12, rcx
    je .Ldone
    mov eax, [rbx + TP_PACKETS_OUT]     # tcp_cwnd_test
    cmp eax, [rbx + TP_SND_CWND]
    jae .Ldone
    mov eax, [rbx + TP_SND_UNA]         # tcp_snd_wnd_test
    add eax, [rbx + TP_SND_WND]
    sub eax, [r12 + TCP_CB_END_SEQ]
    js .Ldone
    test r14d, r14d                     # tcp_nagle_test
    jne .Lsend
    lea rcx, [rbx + SK_WRITE_QUEUE]
    cmp [r12], rcx
    jne .Lsend                          # not the last one
    cmp [r12 + SKB_LEN], r13d
    jae .Lsend
    test byte ptr [r12 + TCP_CB_FLAGS], TCPHDR_FIN
    jne .Lsend
    cmp dword ptr [rbx + TP_PACKETS_OUT], 0
    je .Lsend
    mov eax, [rbx + TP_SND_UNA]         # a small one is still on its way (Minshall)
    sub eax, [rbx + TP_PUSHED_SEQ]
    js .Ldone
.Lsend:
    mov rsi, r12
    mov edx, 1
    TCP_TRANSMIT_SKB
    test eax, eax
    jne .Ldone
    mov rdi, rbx
    mov rsi, r12
    call tcp_event_new_data_sent
    cmp [r12 + SKB_LEN], r13d
    jae 1f
    mov eax, [r12 + TCP_CB_END_SEQ]
    mov [rbx + TP_PUSHED_SEQ], eax
1:
    inc r15d
    dec dword ptr [rsp]
    jne .Lnext
.Ldone:
    test r15d, r15d
    je .Lidle
    mov rdi, rbx
    xor esi, esi
    call tcp_schedule_loss_probe
    xor eax, eax
    LEAVE5
.Lidle:
    xor eax, eax
    cmp dword ptr [rbx + TP_PACKETS_OUT], 0
    jne .Lout
    lea rcx, [rbx + SK_WRITE_QUEUE]
    cmp [rcx], rcx
    setne al
.Lout:
    LEAVE5
ENDFUNC tcp_write_xmit

# --- segments without data ------------------------------------------------------------------------

# rdi sock, esi bytes, edx gfp; rax skb with room for headers, or 0
FUNC tcp_stream_alloc_skb
    PROLOGUE
    lea edi, [rsi + MAX_HEADER]
    mov esi, edx
    xor edx, edx
    mov ecx, -1
    call __alloc_skb
    test rax, rax
    je 1f
    SKB_RESERVE rax, MAX_HEADER
1:
    EPILOGUE
ENDFUNC tcp_stream_alloc_skb

# rdi skb, esi sequence number, edx flags (tcp_init_nondata_skb). Clobbers eax.
FUNC_NOTRACE tcp_init_nondata_skb
    mov [rdi + TCP_CB_SEQ], esi
    mov [rdi + TCP_CB_FLAGS], dl
    mov byte ptr [rdi + TCP_CB_SACKED], 0
    mov eax, esi
    test edx, TCPHDR_SYN | TCPHDR_FIN
    je 1f
    inc eax
1:
    mov [rdi + TCP_CB_END_SEQ], eax
    ret
ENDFUNC tcp_init_nondata_skb

FUNC tcp_send_ack                       # rdi sock
    PROLOGUE
    mov esi, [rdi + TP_RCV_NXT]
    call __tcp_send_ack
    EPILOGUE
ENDFUNC tcp_send_ack

FUNC __tcp_send_ack                     # rdi sock, esi what to acknowledge
    PROLOGUE
    cmp byte ptr [rdi + SK_STATE], TCP_CLOSE
    je 1f
    call __tcp_send_ack.part.0
1:
    EPILOGUE
ENDFUNC __tcp_send_ack

FUNC_STATIC __tcp_send_ack.part.0
    ENTER3
    mov rbx, rdi
    mov r13d, esi
    xor esi, esi
    mov edx, GFP_ATOMIC
    call tcp_stream_alloc_skb
    mov r12, rax
    test rax, rax
    je .Llater
    mov rdi, rax
    mov esi, [rbx + TP_SND_NXT]
    mov edx, TCPHDR_ACK
    call tcp_init_nondata_skb
    mov rdi, rbx
    mov rsi, r12
    xor edx, edx
    mov ecx, GFP_ATOMIC
    mov r8d, r13d
    call __tcp_transmit_skb
    LEAVE3
.Llater:
    mov rdi, rbx
    call tcp_send_delayed_ack
    LEAVE3
ENDFUNC __tcp_send_ack.part.0

FUNC tcp_send_delayed_ack               # rdi sock
    PROLOGUE
    or byte ptr [rdi + ICSK_ACK_PENDING], ICSK_ACK_SCHED | ICSK_ACK_TIMER
    lea rsi, [rdi + ICSK_DELACK_TIMER]
    mov rdx, [rip + jiffies_64]
    add rdx, TCP_DELACK_MIN
    cmp qword ptr [rsi + TIMER_PPREV], 0
    jne 1f
    call sk_reset_timer
1:
    EPILOGUE
ENDFUNC tcp_send_delayed_ack

FUNC tcp_send_fin                       # rdi sock
    ENTER2
    mov rbx, rdi
    lea rcx, [rbx + SK_WRITE_QUEUE]
    mov r12, [rcx + 8]
    cmp r12, rcx
    je .Lnew
    or byte ptr [r12 + TCP_CB_FLAGS], TCPHDR_FIN
    inc dword ptr [r12 + TCP_CB_END_SEQ]
    inc dword ptr [rbx + TP_WRITE_SEQ]
    jmp .Lpush
.Lnew:
    xor esi, esi
    mov edx, GFP_KERNEL
    call tcp_stream_alloc_skb
    mov r12, rax
    test rax, rax
    je .Lout
    mov rdi, rax
    mov esi, [rbx + TP_WRITE_SEQ]
    mov edx, TCPHDR_ACK | TCPHDR_FIN
    call tcp_init_nondata_skb
    inc dword ptr [rbx + TP_WRITE_SEQ]
    lea rdi, [rbx + SK_WRITE_QUEUE]
    mov rsi, r12
    call __skb_queue_tail
.Lpush:
    mov rdi, rbx
    call tcp_current_mss
    mov rdi, rbx
    mov esi, eax
    mov edx, 1
    call __tcp_push_pending_frames
.Lout:
    LEAVE2
ENDFUNC tcp_send_fin

FUNC tcp_send_active_reset              # rdi sock, esi gfp
    ENTER2
    mov rbx, rdi
    mov edx, esi
    xor esi, esi
    call tcp_stream_alloc_skb
    mov r12, rax
    test rax, rax
    je .Lout
    mov rdi, rax
    mov esi, [rbx + TP_SND_NXT]
    mov edx, TCPHDR_ACK | TCPHDR_RST
    call tcp_init_nondata_skb
    mov rsi, r12
    xor edx, edx
    TCP_TRANSMIT_SKB
.Lout:
    LEAVE2
ENDFUNC tcp_send_active_reset

FUNC tcp_connect                        # rdi sock in SYN_SENT: the first segment; 0 or an error
    ENTER2
    mov rbx, rdi
    mov rdi, [rbx + SK_DST]
    call ipv4_default_advmss
    mov [rbx + TP_ADVMSS], eax
    mov rdi, rbx
    call tcp_select_initial_window
    mov eax, [rbx + TP_WRITE_SEQ]
    mov [rbx + TP_SND_UNA], eax
    mov [rbx + TP_PUSHED_SEQ], eax
    mov dword ptr [rbx + TP_RCV_NXT], 0
    mov dword ptr [rbx + TP_RCV_WUP], 0
    mov dword ptr [rbx + TP_COPIED_SEQ], 0
    mov dword ptr [rbx + ICSK_RTO], TCP_TIMEOUT_INIT
    mov rdi, rbx
    xor esi, esi
    mov edx, GFP_KERNEL
    call tcp_stream_alloc_skb
    mov r12, rax
    mov eax, -ENOBUFS
    test r12, r12
    je .Lout
    mov rdi, r12
    mov esi, [rbx + TP_WRITE_SEQ]
    mov edx, TCPHDR_SYN
    call tcp_init_nondata_skb
    inc dword ptr [rbx + TP_WRITE_SEQ]
    mov eax, [rbx + TP_WRITE_SEQ]
    mov [rbx + TP_SND_NXT], eax
    lea rdi, [rbx + TP_RTX_QUEUE]
    mov rsi, r12
    call tcp_rbtree_insert
    inc dword ptr [rbx + TP_PACKETS_OUT]
    mov rsi, r12
    mov edx, 1
    TCP_TRANSMIT_SKB
    mov rdi, rbx
    call tcp_rearm_rto
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC tcp_connect

FUNC tcp_select_initial_window          # rdi sock
    PROLOGUE
    mov dword ptr [rdi + TP_RCV_WND], TCP_WINDOW_MAX
    mov dword ptr [rdi + TP_RCV_SSTHRESH], TCP_WINDOW_MAX
    EPILOGUE
ENDFUNC tcp_select_initial_window

# The answer to a SYN. rdi listener, rsi dst_entry, rdx request; rax skb from the TCP header on,
# or 0.
FUNC tcp_make_synack
    ENTER4
    mov r13, rsi
    mov r12, rdx
    xor esi, esi
    mov edx, GFP_ATOMIC
    call tcp_stream_alloc_skb
    mov rbx, rax
    test rax, rax
    je .Lout
    mov [rbx + SKB_DST], r13
    mov rdi, rbx
    mov esi, TCPHDR_SIZE + 4
    call skb_push
    mov r14, rax
    SKB_RESET_HEADER rbx, SKB_TRANSPORT_HEADER
    movzx eax, word ptr [r12 + SK_NUM]
    xchg al, ah
    mov [r14 + TCPHDR_SOURCE], ax
    mov ax, [r12 + SK_DPORT]
    mov [r14 + TCPHDR_DEST], ax
    mov eax, [r12 + RSK_SND_ISN]
    bswap eax
    mov [r14 + TCPHDR_SEQ], eax
    mov eax, [r12 + RSK_RCV_ISN]
    inc eax
    bswap eax
    mov [r14 + TCPHDR_ACK_SEQ], eax
    mov byte ptr [r14 + TCPHDR_DOFF], 0x60
    mov byte ptr [r14 + TCPHDR_FLAGS], TCPHDR_SYN | TCPHDR_ACK
    mov word ptr [r14 + TCPHDR_WINDOW], 0xffff
    mov dword ptr [r14 + TCPHDR_CHECK], 0
    mov rdi, r13
    call ipv4_default_advmss
    mov rdi, r14
    mov esi, eax
    call tcp_options_write
    mov rax, rbx
.Lout:
    LEAVE4
ENDFUNC tcp_make_synack
