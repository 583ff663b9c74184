# net/ipv4/tcp_input.c, tcp_cong.c: what an acknowledgment says, and when to send one. Reno is the
# one congestion control there is.

.text

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
# Jacobson: srtt += (m - srtt) / 8, mdev += (|m - srtt| - mdev) / 4
.Lsmooth:
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

# --- congestion control: Reno (tcp_cong.c) --------------------------------------------------------

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

# rdi sock, esi window, edx segments: one more per window of them
FUNC tcp_cong_avoid_ai
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

# rdi sock, esi acknowledged up to, rdx where a round trip in microseconds goes (-1: none to be
# had): how many segments are done with. Inlined in Linux.
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

# rdi sock, esi whether something came out of order: acknowledge now or later
FUNC __tcp_ack_snd_check
    PROLOGUE
    test esi, esi
    jne .Lnow
    cmp byte ptr [rdi + ICSK_ACK_QUICK], 0
    jne .Lnow
    mov eax, [rdi + TP_RCV_NXT]
    sub eax, [rdi + TP_RCV_WUP]
    cmp eax, [rdi + TP_RCV_MSS]
    ja .Lnow
    call tcp_send_delayed_ack
    EPILOGUE
.Lnow:
    call tcp_send_ack
    EPILOGUE
ENDFUNC __tcp_ack_snd_check
