# net/ipv4/tcp_input.c: data that came in, in and out of order, and its end.

.text

FUNC tcp_event_data_recv                # rdi sock, rsi skb with data
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    or byte ptr [rdi + ICSK_ACK_PENDING], ICSK_ACK_SCHED
    mov eax, [rsi + SKB_LEN]            # tcp_measure_rcv_mss
    cmp eax, [rdi + TP_RCV_MSS]
    jb .Lsmall
    mov ecx, [rdi + TP_ADVMSS]
    cmp eax, ecx
    cmova eax, ecx
    mov [rdi + TP_RCV_MSS], eax
    jmp .Lgrow
.Lsmall:
    or byte ptr [rdi + ICSK_ACK_PENDING], ICSK_ACK_PUSHED
.Lgrow:
    cmp dword ptr [rsi + SKB_LEN], 128
    jb .Lout
    call tcp_grow_window
.Lout:
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

# rdi sock, rsi skb that comes next; eax whether it could be merged: 0
FUNC tcp_queue_rcv
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
    or byte ptr [rbx + ICSK_ACK_PENDING], ICSK_ACK_SCHED
.Lout_of_window:
    mov rdi, rbx
    mov byte ptr [rdi + ICSK_ACK_QUICK], 2
    or byte ptr [rbx + ICSK_ACK_PENDING], ICSK_ACK_SCHED
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
    or byte ptr [rbx + ICSK_ACK_PENDING], ICSK_ACK_SCHED
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
    or byte ptr [rbx + ICSK_ACK_PENDING], ICSK_ACK_SCHED
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
