# net/ipv4/tcp.c: the socket's side of TCP. Left out: corking, zero copy, urgent data, options.

.text

FUNC tcp_init_sock                      # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    call tcp_init_xmit_timers
    mov dword ptr [rbx + ICSK_RTO], TCP_TIMEOUT_INIT
    mov dword ptr [rbx + TP_SND_CWND], TCP_INIT_CWND
    mov dword ptr [rbx + TP_SND_SSTHRESH], TCP_INFINITE_SSTHRESH
    mov dword ptr [rbx + TP_MSS], 536
    mov rax, offset sk_stream_write_space
    mov [rbx + SK_WRITE_SPACE], rax
    LEAVE1
ENDFUNC tcp_init_sock

FUNC tcp_set_state                      # rdi sock, esi state
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    cmp esi, TCP_CLOSE
    jne .Lset
    mov rcx, [rdi + SK_PROT]
    call [rcx + PROTO_UNHASH]
    mov rdi, rbx
    call inet_put_port
.Lset:
    mov rdi, rbx
    mov esi, r12d
    call inet_sk_set_state
    LEAVE2
ENDFUNC tcp_set_state

FUNC tcp_done                           # rdi sock whose connection is over
    ENTER1
    push rax
    mov rbx, rdi
    mov esi, TCP_CLOSE
    call tcp_set_state
    mov rdi, rbx
    call inet_csk_clear_xmit_timers
    mov dword ptr [rbx + SK_SHUTDOWN], SHUTDOWN_MASK
    test dword ptr [rbx + SK_FLAGS], SOCK_DEAD
    jne .Lorphan
    mov rdi, rbx
    call [rbx + SK_STATE_CHANGE]
    LEAVE1
.Lorphan:
    mov rdi, rbx
    call inet_csk_destroy_sock
    LEAVE1
ENDFUNC tcp_done

FUNC tcp_write_queue_purge              # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    lea rdi, [rbx + SK_WRITE_QUEUE]
    call skb_queue_purge
    lea rdi, [rbx + TP_RTX_QUEUE]
    call skb_queue_purge
    mov dword ptr [rbx + TP_PACKETS_OUT], 0
    LEAVE1
ENDFUNC tcp_write_queue_purge

# --- sending --------------------------------------------------------------------------------------

# rdi sock, rsi where the largest piece goes, edx flags; eax segment size
FUNC tcp_send_mss
    ENTER2
    mov rbx, rsi
    call tcp_current_mss
    mov [rbx], eax
    LEAVE2
ENDFUNC tcp_send_mss

FUNC tcp_skb_entail                     # rdi sock, rsi new skb: to the end of what is to be sent
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov eax, [rdi + TP_WRITE_SEQ]
    mov [rsi + TCP_CB_SEQ], eax
    mov [rsi + TCP_CB_END_SEQ], eax
    mov byte ptr [rsi + TCP_CB_FLAGS], TCPHDR_ACK
    mov byte ptr [rsi + TCP_CB_SACKED], 0
    SKB_SET_OWNER_W r12, rbx
    lea rdi, [rbx + SK_WRITE_QUEUE]
    call __skb_queue_tail
    LEAVE2
ENDFUNC tcp_skb_entail

FUNC tcp_wmem_schedule                  # rdi sock, esi bytes; eax how many may be added
    PROLOGUE
    mov eax, esi
    EPILOGUE
ENDFUNC tcp_wmem_schedule

FUNC tcp_push                           # rdi sock, esi flags, edx segment size, ecx nonagle
    PROLOGUE
    lea r8, [rdi + SK_WRITE_QUEUE]
    mov rax, [r8 + 8]
    cmp rax, r8
    je 1f
    or byte ptr [rax + TCP_CB_FLAGS], TCPHDR_PSH
    mov esi, edx
    mov edx, ecx
    call __tcp_push_pending_frames
1:
    EPILOGUE
ENDFUNC tcp_push

FUNC tcp_sendmsg                        # rdi sock, rsi msg, rdx size; rax bytes or an error
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    LOCK_SOCK rbx
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    call tcp_sendmsg_locked
    mov r12, rax
    mov rdi, rbx
    call release_sock
    mov rax, r12
    LEAVE3
ENDFUNC tcp_sendmsg

# Locals of tcp_sendmsg_locked: [rbp - 48] ticks to wait, [rbp - 56] flags, [rbp - 60] segment size.
FUNC tcp_sendmsg_locked
    ENTER5
    sub rsp, 40
    mov rbx, rdi
    lea r12, [rsi + MSG_ITER]
    mov eax, [rsi + MSG_FLAGS]
    mov [rbp - 56], eax
    xor r14d, r14d                      # copied
    mov rcx, MAX_SCHEDULE_TIMEOUT
    test eax, MSG_DONTWAIT
    je 1f
    xor ecx, ecx
1:
    mov [rbp - 48], rcx
    movzx eax, byte ptr [rbx + SK_STATE]
    cmp eax, TCP_ESTABLISHED
    je .Lconnected
    cmp eax, TCP_CLOSE_WAIT
    je .Lconnected
    lea rsi, [rbp - 48]
    call sk_stream_wait_connect
    test eax, eax
    jne .Lerror
.Lconnected:
    mov eax, -EPIPE
    cmp dword ptr [rbx + SK_ERR], 0
    jne .Lerror
    test dword ptr [rbx + SK_SHUTDOWN], SEND_SHUTDOWN
    jne .Lerror
    mov rdi, rbx
    lea rsi, [rbp - 64]
    mov edx, [rbp - 56]
    call tcp_send_mss
    mov [rbp - 60], eax
.Lnext:
    cmp qword ptr [r12 + ITER_COUNT], 0
    je .Lpush
    lea rcx, [rbx + SK_WRITE_QUEUE]
    mov r13, [rcx + 8]
    cmp r13, rcx
    je .Lnew
    mov r15d, [rbp - 60]
    sub r15d, [r13 + SKB_LEN]
    jle .Lnew
    mov eax, [r13 + SKB_END]
    sub eax, [r13 + SKB_TAIL]
    cmp r15d, eax
    cmova r15d, eax
    test r15d, r15d
    jne .Lcopy
.Lnew:
    mov eax, [rbx + SK_WMEM_ALLOC]
    cmp eax, [rbx + SK_SNDBUF]
    jae .Lwait
    mov esi, 512
    mov rax, [r12 + ITER_COUNT]
    cmp rsi, rax
    cmovb rsi, rax
    mov eax, [rbp - 60]
    cmp rsi, rax
    cmova rsi, rax
    mov r15d, esi
    mov rdi, rbx
    mov edx, GFP_KERNEL
    call tcp_stream_alloc_skb
    mov r13, rax
    test rax, rax
    je .Lwait
    mov rdi, rbx
    mov rsi, rax
    call tcp_skb_entail
.Lcopy:
    mov rax, [r12 + ITER_COUNT]
    mov ecx, r15d
    cmp rcx, rax
    cmova rcx, rax
    mov r15d, ecx
    mov rdi, rbx
    mov esi, ecx
    call tcp_wmem_schedule
    mov r15d, eax
    mov rdi, r13
    mov esi, eax
    call skb_put
    mov rdi, rax
    mov esi, r15d
    mov rdx, r12
    call _copy_from_iter
    cmp eax, r15d
    jne .Lfault
    add [rbx + TP_WRITE_SEQ], r15d
    add [r13 + TCP_CB_END_SEQ], r15d
    add r14, r15
    mov eax, [r13 + SKB_LEN]
    cmp eax, [rbp - 60]
    jb .Lnext
    cmp qword ptr [r12 + ITER_COUNT], 0
    je .Lpush
    mov rdi, rbx                        # a whole segment can go already
    mov esi, [rbp - 60]
    mov edx, 1
    call __tcp_push_pending_frames
    jmp .Lnext
.Lwait:
    mov rdi, rbx
    mov esi, [rbp - 60]
    mov edx, 1
    call __tcp_push_pending_frames
    mov rdi, rbx
    lea rsi, [rbp - 48]
    call sk_stream_wait_memory
    test eax, eax
    jne .Lerror
    mov rdi, rbx
    lea rsi, [rbp - 64]
    mov edx, [rbp - 56]
    call tcp_send_mss
    mov [rbp - 60], eax
    jmp .Lnext
.Lfault:
    mov esi, [r13 + SKB_LEN]
    sub esi, r15d
    mov rdi, r13
    call skb_trim
    cmp dword ptr [r13 + SKB_LEN], 0
    jne 2f
    mov rdi, r13                        # tcp_remove_empty_skb
    lea rsi, [rbx + SK_WRITE_QUEUE]
    call __skb_unlink
    mov rdi, r13
    call __kfree_skb
2:
    mov eax, -EFAULT
.Lerror:
    test r14, r14
    jne .Lpush
    mov rdi, rbx
    mov esi, [rbp - 56]
    mov edx, eax
    call sk_stream_error
    cdqe
    LEAVE5
.Lpush:
    test r14, r14
    je .Lout
    mov rdi, rbx
    mov esi, [rbp - 56]
    mov edx, [rbp - 60]
    xor ecx, ecx
    call tcp_push
.Lout:
    mov rax, r14
    LEAVE5
ENDFUNC tcp_sendmsg_locked

# --- receiving ------------------------------------------------------------------------------------

# rdi sock, esi sequence number, rdx where the offset goes: the skb with that byte, or with a FIN
# there; or 0.
FUNC tcp_recv_skb
    PROLOGUE
    lea rcx, [rdi + SK_RECEIVE_QUEUE]
    mov rax, [rcx]
.Lnext:
    cmp rax, rcx
    je .Lnone
    mov r8d, esi
    sub r8d, [rax + TCP_CB_SEQ]
    cmp r8d, [rax + SKB_LEN]
    jb .Lfound
    test byte ptr [rax + TCP_CB_FLAGS], TCPHDR_FIN
    jne .Lfound
    mov rax, [rax]
    jmp .Lnext
.Lfound:
    mov [rdx], r8d
    EPILOGUE
.Lnone:
    xor eax, eax
    EPILOGUE
ENDFUNC tcp_recv_skb

# rdi sock, rsi msg, rdx size, ecx flags, r8 address length *; rax bytes
FUNC tcp_recvmsg
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14d, ecx
    LOCK_SOCK rbx
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov ecx, r14d
    call tcp_recvmsg_locked
    mov r12, rax
    mov rdi, rbx
    call release_sock
    mov rax, r12
    LEAVE4
ENDFUNC tcp_recvmsg

# Locals: [rbp - 48] ticks to wait, [rbp - 52] flags, [rbp - 56] offset in the skb, [rbp - 60]
# where a peek is.
FUNC tcp_recvmsg_locked
    ENTER5
    sub rsp, 40
    mov rbx, rdi
    lea r12, [rsi + MSG_ITER]
    mov r13, rdx                        # left to be copied
    mov [rbp - 52], ecx
    xor r14d, r14d                      # copied
    mov rax, MAX_SCHEDULE_TIMEOUT
    test ecx, MSG_DONTWAIT
    je 1f
    xor eax, eax
1:
    mov [rbp - 48], rax
    mov rax, -ENOTCONN
    cmp byte ptr [rbx + SK_STATE], TCP_LISTEN
    je .Lout
    mov eax, [rbx + TP_COPIED_SEQ]
    mov [rbp - 60], eax
.Lnext:
    mov esi, [rbx + TP_COPIED_SEQ]
    test dword ptr [rbp - 52], MSG_PEEK
    je 1f
    mov esi, [rbp - 60]
1:
    mov rdi, rbx
    lea rdx, [rbp - 56]
    call tcp_recv_skb
    test rax, rax
    je .Lnothing
    mov r15, rax
    mov ecx, [r15 + SKB_LEN]
    sub ecx, [rbp - 56]
    jbe .Lfin
    mov eax, ecx
    cmp rax, r13
    cmova rax, r13
    mov ecx, eax
    push rcx
    push rcx
    mov rdi, r15
    mov esi, [rbp - 56]
    mov rdx, r12
    call skb_copy_datagram_iter
    pop rcx
    add rsp, 8
    test eax, eax
    jne .Lfault
    mov ecx, ecx
    add r14, rcx
    sub r13, rcx
    add [rbp - 60], ecx
    add [rbp - 56], ecx
    test dword ptr [rbp - 52], MSG_PEEK
    jne .Lmore
    add [rbx + TP_COPIED_SEQ], ecx
    mov rdi, rbx
    call tcp_rcv_space_adjust
    mov eax, [rbp - 56]
    cmp eax, [r15 + SKB_LEN]
    jb .Lmore
    test byte ptr [r15 + TCP_CB_FLAGS], TCPHDR_FIN
    jne .Lfin
    call .Leat
.Lmore:
    test r13, r13
    jne .Lnext
    jmp .Ldone
.Lfin:
    test dword ptr [rbp - 52], MSG_PEEK
    jne .Ldone
    inc dword ptr [rbx + TP_COPIED_SEQ]
    call .Leat
    jmp .Ldone

.Lnothing:
    test r14, r14
    jne .Ldone
    xor eax, eax
    test dword ptr [rbx + SK_FLAGS], SOCK_DONE
    jne .Lout
    xor ecx, ecx
    xchg ecx, [rbx + SK_ERR]
    neg ecx
    movsxd rax, ecx
    jne .Lout
    xor eax, eax
    test dword ptr [rbx + SK_SHUTDOWN], RCV_SHUTDOWN
    jne .Lout
    mov rax, -ENOTCONN
    cmp byte ptr [rbx + SK_STATE], TCP_CLOSE
    je .Lout
    mov rax, -EAGAIN
    cmp qword ptr [rbp - 48], 0
    je .Lout
    mov rcx, gs:[CURRENT_TASK]
    cmp dword ptr [rcx + TASK_SIGPENDING], 0
    mov rax, -ERESTARTSYS
    jne .Lout
    mov rdi, rbx
    xor esi, esi
    call tcp_cleanup_rbuf
    mov rdi, rbx
    lea rsi, [rbp - 48]
    lea rcx, [rbx + SK_RECEIVE_QUEUE]
    mov rdx, [rcx + 8]
    cmp rdx, rcx
    jne 2f
    xor edx, edx
2:
    call sk_wait_data
    jmp .Lnext
.Lfault:
    test r14, r14
    jne .Ldone
    movsxd rax, eax
    jmp .Lout
.Ldone:
    mov rdi, rbx
    mov esi, r14d
    call tcp_cleanup_rbuf
    mov rax, r14
.Lout:
    LEAVE5
# tcp_eat_recv_skb: r15 is read to its end.
.Leat:
    mov rdi, r15
    lea rsi, [rbx + SK_RECEIVE_QUEUE]
    call __skb_unlink
    mov rdi, r15
    jmp __kfree_skb
ENDFUNC tcp_recvmsg_locked

FUNC tcp_rcv_space_adjust               # rdi sock: a reader that keeps up is worth a larger buffer
    PROLOGUE
    mov eax, [rdi + TP_RCV_SSTHRESH]
    shl eax, 2
    cmp eax, [rdi + SK_RCVBUF]
    jbe 1f
    cmp eax, 4 * TCP_WINDOW_MAX
    ja 1f
    mov [rdi + SK_RCVBUF], eax
1:
    EPILOGUE
ENDFUNC tcp_rcv_space_adjust

# rdi sock, esi bytes read: does the sender need to hear of it?
FUNC tcp_cleanup_rbuf
    ENTER3
    mov rbx, rdi
    mov r12d, esi
    cmp byte ptr [rbx + ICSK_ACK_PENDING], 0
    je .Lwindow
    mov eax, [rbx + TP_RCV_NXT]
    sub eax, [rbx + TP_RCV_WUP]
    cmp eax, [rbx + TP_RCV_MSS]
    ja .Lack
    test r12d, r12d
    je .Lwindow
    test byte ptr [rbx + ICSK_ACK_PENDING], ICSK_ACK_PUSHED
    je .Lwindow
    cmp dword ptr [rbx + SK_RMEM_ALLOC], 0
    je .Lack                            # the reader took all there is
.Lwindow:
    test r12d, r12d
    je .Lout
    test dword ptr [rbx + SK_SHUTDOWN], RCV_SHUTDOWN
    jne .Lout
    mov r13d, [rbx + TP_RCV_WUP]
    add r13d, [rbx + TP_RCV_WND]
    sub r13d, [rbx + TP_RCV_NXT]
    jns 1f
    xor r13d, r13d
1:
    add r13d, r13d
    cmp r13d, TCP_WINDOW_MAX
    ja .Lout
    mov rdi, rbx
    call __tcp_select_window
    test eax, eax
    je .Lout
    cmp eax, r13d
    jb .Lout
.Lack:
    mov rdi, rbx
    call tcp_send_ack
.Lout:
    LEAVE3
ENDFUNC tcp_cleanup_rbuf

FUNC tcp_poll                           # rdi file, rsi socket, rdx poll_table or 0; eax events
    ENTER3
    mov rbx, rdi
    mov r12, [rsi + SOCKET_SK]
    mov r13, rdx
    SOCK_POLL_WAIT
    movzx ecx, byte ptr [r12 + SK_STATE]
    xor eax, eax
    cmp ecx, TCP_LISTEN
    jne .Lconnection
    cmp qword ptr [r12 + ICSK_ACCEPT_HEAD], 0
    je .Lout
    mov eax, EPOLLIN | EPOLLRDNORM
    LEAVE3
.Lconnection:
    mov edx, [r12 + SK_SHUTDOWN]
    cmp edx, SHUTDOWN_MASK
    je .Lhangup
    cmp ecx, TCP_CLOSE
    jne 2f
.Lhangup:
    or eax, EPOLLHUP
2:
    test edx, RCV_SHUTDOWN
    je 3f
    or eax, EPOLLIN | EPOLLRDNORM
3:
    cmp dword ptr [r12 + SK_ERR], 0
    je 4f
    or eax, EPOLLERR
4:
    cmp ecx, TCP_SYN_SENT
    je .Lout
    cmp dword ptr [r12 + SK_RECEIVE_QUEUE + SKB_LIST_QLEN], 0
    je 5f
    or eax, EPOLLIN | EPOLLRDNORM
5:
    mov ecx, [r12 + SK_WMEM_ALLOC]
    add ecx, ecx
    cmp ecx, [r12 + SK_SNDBUF]
    ja .Lout
    or eax, EPOLLOUT | EPOLLWRNORM
.Lout:
    LEAVE3
ENDFUNC tcp_poll

.data
tcp_name:
    .asciz "TCP"
.balign 8
OBJECT tcp_prot
    .quad tcp_name, tcp_close, tcp_v4_connect, tcp_disconnect, inet_csk_accept, tcp_v4_init_sock
    .quad tcp_v4_destroy_sock, tcp_shutdown, tcp_sendmsg, tcp_recvmsg, tcp_v4_do_rcv, inet_hash
    .quad inet_unhash, inet_csk_get_port, tcp_release_cb
ENDOBJECT tcp_prot
.text
