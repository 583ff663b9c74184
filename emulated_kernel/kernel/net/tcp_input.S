# net/ipv4/tcp_input.c: segments that came in. Left out: SACK, time stamps, urgent data, fast open, window
# scaling, simultaneous open.

.text

TCP_FLAG_DATA = 1                       # flags of tcp_ack
TCP_FLAG_SLOWPATH = 0x100

# --- acknowledgments -------------------------------------------------------------------------------

FUNC tcp_rearm_rto                      # rdi sock
    PROLOGUE
    cmp dword ptr [rdi + TP_PACKETS_OUT], 0
    jne .Larm
    mov byte ptr [rdi + ICSK_PENDING], 0
    lea rsi, [rdi + ICSK_RTX_TIMER]
    call sk_stop_timer
    EPILOGUE
.Larm:
    mov byte ptr [rdi + ICSK_PENDING], ICSK_TIME_RETRANS
    lea rsi, [rdi + ICSK_RTX_TIMER]
    mov edx, [rdi + ICSK_RTO]
    add rdx, [rip + jiffies_64]
    call sk_reset_timer
    EPILOGUE
ENDFUNC tcp_rearm_rto

FUNC tcp_ack_update_rtt                 # rdi sock, rsi microseconds of a round trip (below 0: none)
    PROLOGUE
    test rsi, rsi
    js .Lout
    mov eax, 0x3fffffff
    cmp rsi, rax
    cmova rsi, rax
    mov ecx, [rdi + TP_SRTT_US]
    test ecx, ecx
    jne .Lsmooth
    lea eax, [rsi*8 + 1]
    mov [rdi + TP_SRTT_US], eax
    lea eax, [rsi*2]
    mov [rdi + TP_MDEV_US], eax
    jmp .Lrto
.Lsmooth:                               # Jacobson: srtt += (m - srtt) / 8, mdev += (|m - srtt| - mdev) / 4
    mov eax, ecx
    shr eax, 3
    sub esi, eax
    add ecx, esi
    mov eax, 1
    cmp ecx, eax
    cmovl ecx, eax
    mov [rdi + TP_SRTT_US], ecx
    mov eax, esi
    neg eax
    cmovs eax, esi
    mov edx, [rdi + TP_MDEV_US]
    shr edx, 2
    sub eax, edx
    add [rdi + TP_MDEV_US], eax
.Lrto:
    mov eax, [rdi + TP_SRTT_US]
    shr eax, 3
    add eax, [rdi + TP_MDEV_US]
    add eax, 3999
    xor edx, edx
    mov ecx, 4000
    div ecx
    mov ecx, TCP_RTO_MIN
    cmp eax, ecx
    cmovb eax, ecx
    mov ecx, TCP_RTO_MAX
    cmp eax, ecx
    cmova eax, ecx
    mov [rdi + ICSK_RTO], eax
    mov byte ptr [rdi + ICSK_BACKOFF], 0
.Lout:
    EPILOGUE
ENDFUNC tcp_ack_update_rtt

# --- congestion control: Reno (tcp_cong.c) -----------------------------------------------------------

FUNC tcp_slow_start                     # rdi sock, esi segments acknowledged; eax those left over
    PROLOGUE
    mov eax, [rdi + TP_SND_CWND]
    add eax, esi
    cmp eax, [rdi + TP_SND_SSTHRESH]
    cmova eax, [rdi + TP_SND_SSTHRESH]
    mov ecx, eax
    sub ecx, [rdi + TP_SND_CWND]
    sub esi, ecx
    mov [rdi + TP_SND_CWND], eax
    mov eax, esi
    EPILOGUE
ENDFUNC tcp_slow_start

FUNC tcp_cong_avoid_ai                  # rdi sock, esi window, edx segments: one more per window of them
    PROLOGUE
    add [rdi + TP_SND_CWND_CNT], edx
    mov eax, [rdi + TP_SND_CWND_CNT]
    cmp eax, esi
    jb 1f
    xor edx, edx
    div esi
    mov [rdi + TP_SND_CWND_CNT], edx
    add [rdi + TP_SND_CWND], eax
1:
    EPILOGUE
ENDFUNC tcp_cong_avoid_ai

FUNC tcp_reno_cong_avoid                # rdi sock, esi acknowledged up to, edx segments
    ENTER1
    push rax
    mov rbx, rdi
    mov esi, edx
    mov eax, [rdi + TP_SND_CWND]
    cmp eax, [rdi + TP_SND_SSTHRESH]
    jae .Lavoid
    call tcp_slow_start
    mov esi, eax
    test eax, eax
    je .Lout
.Lavoid:
    mov rdi, rbx
    mov edx, esi
    mov esi, [rbx + TP_SND_CWND]
    call tcp_cong_avoid_ai
.Lout:
    LEAVE1
ENDFUNC tcp_reno_cong_avoid

FUNC tcp_fastretrans_alert              # rdi sock: the third duplicate says that a segment is lost
    ENTER1
    push rax
    mov rbx, rdi
    cmp dword ptr [rbx + TP_IN_RECOVERY], 0
    jne .Lout
    mov dword ptr [rbx + TP_IN_RECOVERY], 1
    mov eax, [rbx + TP_SND_NXT]
    mov [rbx + TP_HIGH_SEQ], eax
    mov eax, [rbx + TP_SND_CWND]
    shr eax, 1
    mov ecx, 2
    cmp eax, ecx
    cmovb eax, ecx
    mov [rbx + TP_SND_SSTHRESH], eax
    mov [rbx + TP_SND_CWND], eax
    mov rsi, [rbx + TP_RTX_QUEUE]
    mov edx, 1
    call tcp_retransmit_skb
.Lout:
    LEAVE1
ENDFUNC tcp_fastretrans_alert

# rdi sock, rsi skb, edx flags: 1, 0 for an old acknowledgment, -1 for one of what was never sent.
FUNC tcp_ack
    ENTER5
    sub rsp, 24
    mov rbx, rdi
    mov r12, rsi
    mov [rbp - 48], edx
    mov r13d, [rbx + TP_SND_UNA]        # as it was
    mov r14d, [r12 + TCP_CB_ACK_SEQ]
    mov eax, r14d
    sub eax, r13d
    js .Lold
    mov eax, [rbx + TP_SND_NXT]
    sub eax, r14d
    js .Linvalid
    mov r15d, [rbx + TP_SND_WND]
    movzx ecx, word ptr [r12 + TCP_CB_WINDOW]
    mov eax, [r12 + TCP_CB_SEQ]         # tcp_may_update_window
    sub eax, [rbx + TP_SND_WL1]
    js .Lno_window
    mov eax, [r12 + TCP_CB_SEQ]
    mov [rbx + TP_SND_WL1], eax
    mov [rbx + TP_SND_WND], ecx
.Lno_window:
    mov eax, r14d
    sub eax, r13d
    je .Lduplicate
    add [rbx + TP_BYTES_ACKED], rax
    mov [rbx + TP_SND_UNA], r14d
    mov byte ptr [rbx + ICSK_RETRANSMITS], 0
    mov dword ptr [rbx + TP_DUPACKS], 0
    cmp dword ptr [rbx + TP_IN_RECOVERY], 0
    je 1f
    mov eax, r14d
    sub eax, [rbx + TP_HIGH_SEQ]
    js 1f
    mov dword ptr [rbx + TP_IN_RECOVERY], 0
1:
    mov rdi, rbx
    mov esi, r14d
    lea rdx, [rbp - 56]
    call tcp_clean_rtx_queue
    mov r15d, eax
    test eax, eax
    je .Lout
    mov rdi, rbx
    mov rsi, [rbp - 56]
    call tcp_ack_update_rtt
    mov rdi, rbx
    mov esi, r14d
    mov edx, r15d
    call tcp_reno_cong_avoid
    mov rdi, rbx
    call tcp_rearm_rto
    jmp .Lout
.Lduplicate:
    test dword ptr [rbp - 48], TCP_FLAG_DATA
    jne .Lout
    cmp dword ptr [rbx + TP_PACKETS_OUT], 0
    je .Lout
    cmp [rbx + TP_SND_WND], r15d
    jne .Lout
    mov eax, [r12 + TCP_CB_END_SEQ]
    cmp eax, [r12 + TCP_CB_SEQ]
    jne .Lout
    inc dword ptr [rbx + TP_DUPACKS]
    cmp dword ptr [rbx + TP_DUPACKS], 3
    jne .Lout
    mov rdi, rbx
    call tcp_fastretrans_alert
.Lout:
    mov eax, 1
    LEAVE5
.Lold:
    xor eax, eax
    LEAVE5
.Linvalid:
    mov eax, -1
    LEAVE5
ENDFUNC tcp_ack

# rdi sock, esi acknowledged up to, rdx where a round trip in microseconds goes (-1: none to be had): how
# many segments are done with. Inlined in Linux.
FUNC_NOTRACE tcp_clean_rtx_queue
    ENTER5
    push rdx
    mov rbx, rdi
    mov r13d, esi
    xor r14d, r14d
    mov qword ptr [rdx], -1
    call ktime_get
    mov r15, rax
.Lnext:
    lea rcx, [rbx + TP_RTX_QUEUE]
    mov r12, [rcx]
    test r12, r12
    je .Lout
    cmp r12, rcx
    je .Lout
    mov eax, r13d
    sub eax, [r12 + TCP_CB_END_SEQ]
    js .Lpartly
    test byte ptr [r12 + TCP_CB_SACKED], 2
    jne .Lno_sample                     # Karn: which of the two was acknowledged?
    mov rax, r15
    sub rax, [r12 + TCP_CB_SENT]
    xor edx, edx
    mov ecx, 1000
    div rcx
    mov rcx, [rsp]
    mov [rcx], rax
.Lno_sample:
    mov rdi, r12
    lea rsi, [rbx + TP_RTX_QUEUE]
    call __skb_unlink
    dec dword ptr [rbx + TP_PACKETS_OUT]
    inc r14d
    mov rdi, r12
    call __kfree_skb
    jmp .Lnext
.Lpartly:
    mov edx, r13d
    sub edx, [r12 + TCP_CB_SEQ]
    jle .Lout
    mov rdi, rbx
    mov rsi, r12
    call tcp_trim_head
.Lout:
    mov eax, r14d
    LEAVE5
ENDFUNC tcp_clean_rtx_queue

FUNC tcp_check_space                    # rdi sock: writers may go on
    PROLOGUE
    cmp qword ptr [rdi + SK_SOCKET], 0
    je 1f
    call sk_stream_write_space
1:
    EPILOGUE
ENDFUNC tcp_check_space

# Send what the last segment made room for (inlined in Linux). rdi sock
FUNC_NOTRACE tcp_data_snd_check
    push rbp
    mov rbp, rsp
    push rbx
    push rax
    mov rbx, rdi
    lea rcx, [rdi + SK_WRITE_QUEUE]
    cmp [rcx], rcx
    je 1f
    call tcp_current_mss
    mov rdi, rbx
    mov esi, eax
    xor edx, edx
    call __tcp_push_pending_frames
1:
    mov rdi, rbx
    call tcp_check_space
    mov rbx, [rbp - 8]
    leave
    ret
ENDFUNC tcp_data_snd_check

FUNC __tcp_ack_snd_check                # rdi sock, esi whether something came out of order: acknowledge now or later
    PROLOGUE
    test esi, esi
    jne .Lnow
    cmp byte ptr [rdi + ICSK_ACK_QUICK], 0
    jne .Lnow
    mov eax, [rdi + TP_RCV_NXT]
    sub eax, [rdi + TP_RCV_WUP]
    cmp eax, [rdi + TP_ADVMSS]
    ja .Lnow
    call tcp_send_delayed_ack
    EPILOGUE
.Lnow:
    call tcp_send_ack
    EPILOGUE
ENDFUNC __tcp_ack_snd_check

# rdi sock (tcp_ack_snd_check)
.macro TCP_ACK_SND_CHECK
    cmp byte ptr [rdi + ICSK_ACK_PENDING], 0
    je 1f
    mov esi, [rdi + TP_OFO_QUEUE + SKB_LIST_QLEN]
    call __tcp_ack_snd_check
1:
.endm

# --- data ------------------------------------------------------------------------------------------

FUNC tcp_event_data_recv                # rdi sock, rsi skb with data
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    or byte ptr [rdi + ICSK_ACK_PENDING], 1
    mov eax, [rsi + SKB_LEN]
    cmp eax, 128
    jb 1f
    call tcp_grow_window
1:
    LEAVE2
ENDFUNC tcp_event_data_recv

FUNC tcp_grow_window                    # rdi sock, rsi skb
    PROLOGUE
    mov eax, [rdi + TP_RCV_SSTHRESH]
    add eax, [rsi + SKB_LEN]
    mov ecx, TCP_WINDOW_MAX
    cmp eax, ecx
    cmova eax, ecx
    mov [rdi + TP_RCV_SSTHRESH], eax
    EPILOGUE
ENDFUNC tcp_grow_window

FUNC tcp_queue_rcv                      # rdi sock, rsi skb that comes next; eax whether it could be merged: 0
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov eax, [rsi + TCP_CB_END_SEQ]
    mov ecx, eax
    sub ecx, [rdi + TP_RCV_NXT]
    mov ecx, ecx
    add [rdi + TP_BYTES_RECEIVED], rcx
    mov [rdi + TP_RCV_NXT], eax
    SKB_SET_OWNER_R r12, rbx
    lea rdi, [rbx + SK_RECEIVE_QUEUE]
    mov rsi, r12
    call __skb_queue_tail
    xor eax, eax
    LEAVE2
ENDFUNC tcp_queue_rcv

FUNC tcp_data_ready                     # rdi sock
    PROLOGUE
    call [rdi + SK_DATA_READY]
    EPILOGUE
ENDFUNC tcp_data_ready

FUNC tcp_data_queue                     # rdi sock, rsi skb from the TCP header on, consumed
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov eax, [rsi + TCP_CB_SEQ]
    cmp eax, [rsi + TCP_CB_END_SEQ]
    je .Ldrop
    SKB_HEADER rax, rsi, SKB_TRANSPORT_HEADER
    movzx esi, byte ptr [rax + TCPHDR_DOFF]
    shr esi, 4
    shl esi, 2
    mov rdi, r12
    call skb_pull
    mov eax, [r12 + TCP_CB_SEQ]
    cmp eax, [rbx + TP_RCV_NXT]
    jne .Lnot_next
.Lnext:
    cmp dword ptr [rbx + TP_RCV_WND], 0
    je .Lout_of_window
    movzx r13d, byte ptr [r12 + TCP_CB_FLAGS]
    mov rdi, rbx
    mov rsi, r12
    call tcp_queue_rcv
    cmp dword ptr [r12 + SKB_LEN], 0
    je 1f
    mov rdi, rbx
    mov rsi, r12
    call tcp_event_data_recv
1:
    test r13d, TCPHDR_FIN
    je 2f
    mov rdi, rbx
    call tcp_fin
2:
    mov rdi, rbx
    call tcp_ofo_queue
    test dword ptr [rbx + SK_FLAGS], SOCK_DEAD
    jne .Lout
    mov rdi, rbx
    call tcp_data_ready
.Lout:
    LEAVE3
.Lnot_next:
    mov eax, [r12 + TCP_CB_END_SEQ]
    sub eax, [rbx + TP_RCV_NXT]
    jle .Lagain
    mov eax, [rbx + TP_RCV_NXT]
    add eax, [rbx + TP_RCV_WND]
    sub eax, [r12 + TCP_CB_SEQ]
    jle .Lout_of_window
    mov edx, [rbx + TP_RCV_NXT]
    sub edx, [r12 + TCP_CB_SEQ]
    jg .Loverlap
    mov rdi, rbx
    mov rsi, r12
    call tcp_data_queue_ofo
    LEAVE3
.Loverlap:                              # its start is here already
    mov rdi, rbx
    mov rsi, r12
    call tcp_trim_head
    jmp .Lnext
.Lagain:                                # all of it is here already: say so at once
    or byte ptr [rbx + ICSK_ACK_PENDING], 1
.Lout_of_window:
    mov rdi, rbx
    mov byte ptr [rdi + ICSK_ACK_QUICK], 2
    or byte ptr [rbx + ICSK_ACK_PENDING], 1
.Ldrop:
    mov rdi, r12
    mov esi, 19
    call kfree_skb_reason
    LEAVE3
ENDFUNC tcp_data_queue

# Keep what came too early, in order. rdi sock, rsi skb. Inlined in Linux.
FUNC_NOTRACE tcp_data_queue_ofo
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    or byte ptr [rbx + ICSK_ACK_PENDING], 1
    lea rdi, [rbx + TP_OFO_QUEUE]
    SKB_LIST_READY rdi
    mov rcx, [rdi]
.Lfind:
    cmp rcx, rdi
    je .Linsert
    mov eax, [r12 + TCP_CB_SEQ]
    sub eax, [rcx + TCP_CB_SEQ]
    js .Linsert
    jne .Lafter
    mov eax, [r12 + TCP_CB_END_SEQ]
    sub eax, [rcx + TCP_CB_END_SEQ]
    jle .Lduplicate
.Lafter:
    mov rcx, [rcx]
    jmp .Lfind
.Linsert:
    LIST_ADD_TAIL r12, rcx, rax
    inc dword ptr [rdi + SKB_LIST_QLEN]
    SKB_SET_OWNER_R r12, rbx
    LEAVE2
.Lduplicate:
    mov rdi, r12
    mov esi, 20
    call kfree_skb_reason
    LEAVE2
ENDFUNC tcp_data_queue_ofo

# What waited and now comes next. rdi sock. Inlined in Linux.
FUNC_NOTRACE tcp_ofo_queue
    ENTER3
    mov rbx, rdi
.Lnext:
    cmp dword ptr [rbx + TP_OFO_QUEUE + SKB_LIST_QLEN], 0
    je .Lout
    mov r12, [rbx + TP_OFO_QUEUE]
    mov edx, [rbx + TP_RCV_NXT]
    sub edx, [r12 + TCP_CB_SEQ]
    js .Lout
    mov r13d, edx
    mov rdi, r12
    lea rsi, [rbx + TP_OFO_QUEUE]
    call __skb_unlink
    mov rdi, r12
    call sock_rfree
    mov qword ptr [r12 + SKB_DESTRUCTOR], 0
    mov eax, [r12 + TCP_CB_END_SEQ]
    sub eax, [rbx + TP_RCV_NXT]
    jle .Ldrop
    test r13d, r13d
    je 1f
    mov rdi, rbx
    mov rsi, r12
    mov edx, r13d
    call tcp_trim_head
1:
    movzx r13d, byte ptr [r12 + TCP_CB_FLAGS]
    mov rdi, rbx
    mov rsi, r12
    call tcp_queue_rcv
    test r13d, TCPHDR_FIN
    je .Lnext
    mov rdi, rbx
    call tcp_fin
    jmp .Lnext
.Ldrop:
    mov rdi, r12
    mov esi, 21
    call kfree_skb_reason
    jmp .Lnext
.Lout:
    LEAVE3
ENDFUNC tcp_ofo_queue

FUNC tcp_fin                            # rdi sock: the other side has no more to say
    ENTER1
    push rax
    mov rbx, rdi
    or byte ptr [rbx + ICSK_ACK_PENDING], 1
    mov byte ptr [rbx + ICSK_ACK_QUICK], 2
    or dword ptr [rbx + SK_SHUTDOWN], RCV_SHUTDOWN
    or dword ptr [rbx + SK_FLAGS], SOCK_DONE
    movzx eax, byte ptr [rbx + SK_STATE]
    cmp eax, TCP_SYN_RECV
    je .Lestablished
    cmp eax, TCP_ESTABLISHED
    je .Lestablished
    cmp eax, TCP_FIN_WAIT1
    je .Lboth
    cmp eax, TCP_FIN_WAIT2
    jne .Lstate
    mov rdi, rbx
    call tcp_send_ack
    mov rdi, rbx
    mov esi, TCP_TIME_WAIT
    xor edx, edx
    call tcp_time_wait
    jmp .Lstate
.Lestablished:
    mov rdi, rbx
    mov esi, TCP_CLOSE_WAIT
    call tcp_set_state
    jmp .Lstate
.Lboth:
    mov rdi, rbx
    call tcp_send_ack
    mov rdi, rbx
    mov esi, TCP_CLOSING
    call tcp_set_state
.Lstate:
    test dword ptr [rbx + SK_FLAGS], SOCK_DEAD
    jne .Lout
    mov rdi, rbx
    call [rbx + SK_STATE_CHANGE]
.Lout:
    LEAVE1
ENDFUNC tcp_fin

FUNC tcp_reset                          # rdi sock, rsi skb with RST
    ENTER1
    push rax
    mov rbx, rdi
    movzx eax, byte ptr [rdi + SK_STATE]
    mov ecx, ECONNREFUSED
    cmp eax, TCP_SYN_SENT
    je 1f
    mov ecx, EPIPE
    cmp eax, TCP_CLOSE_WAIT
    je 1f
    cmp eax, TCP_CLOSE
    je .Lout
    mov ecx, ECONNRESET
1:
    mov [rbx + SK_ERR], ecx
    call tcp_write_queue_purge
    mov rdi, rbx
    call tcp_done
.Lout:
    LEAVE1
ENDFUNC tcp_reset

# --- a segment -------------------------------------------------------------------------------------

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
    mov byte ptr [rdi + ICSK_ACK_QUICK], 16
    EPILOGUE
ENDFUNC tcp_init_transfer

FUNC tcp_finish_connect                 # rdi sock, rsi skb that answered our SYN
    ENTER1
    push rax
    mov rbx, rdi
    mov esi, TCP_ESTABLISHED
    call tcp_set_state
    mov rdi, rbx
    call tcp_init_transfer
    LEAVE1
ENDFUNC tcp_finish_connect

# rdi sock, rsi skb: -1 to go on, 0 when the skb is gone, 1 to answer with a reset. Inlined in Linux.
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

# rdi sock in any state but ESTABLISHED, rsi skb: 0 with the skb gone, 1 when it is to be answered by a reset.
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

# --- connection requests ---------------------------------------------------------------------------

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
