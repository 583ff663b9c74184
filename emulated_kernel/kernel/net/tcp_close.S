# net/ipv4/tcp.c: the end of a connection.

.text

# rdi sock (tcp_close_state): its next state; eax whether a FIN is due. Inlined in Linux.
FUNC_NOTRACE tcp_close_state
    push rbp
    mov rbp, rsp
    movzx eax, byte ptr [rdi + SK_STATE]
    movzx esi, byte ptr [rax + tcp_new_state]
    push rsi
    push rsi
    and esi, 15
    call tcp_set_state
    pop rax
    shr eax, 4
    leave
    ret
ENDFUNC tcp_close_state

FUNC tcp_shutdown                       # rdi sock, esi how (…_SHUTDOWN)
    ENTER1
    push rax
    mov rbx, rdi
    test esi, SEND_SHUTDOWN
    je .Lout
    movzx eax, byte ptr [rdi + SK_STATE]
    mov ecx, TCPF_SENDING
    bt ecx, eax
    jae .Lout
    call tcp_close_state
    test eax, eax
    je .Lout
    mov rdi, rbx
    call tcp_send_fin
.Lout:
    LEAVE1
ENDFUNC tcp_shutdown

FUNC tcp_close                          # rdi sock, rsi timeout
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    SOCK_HOLD rbx
    LOCK_SOCK rbx
    mov rdi, rbx
    mov rsi, r12
    call __tcp_close
    mov rdi, rbx
    call release_sock
    SOCK_PUT rbx
    LEAVE2
ENDFUNC tcp_close

FUNC __tcp_close
    ENTER3
    mov rbx, rdi
    mov dword ptr [rbx + SK_SHUTDOWN], SHUTDOWN_MASK
    cmp byte ptr [rbx + SK_STATE], TCP_LISTEN
    jne .Lflush
    mov esi, TCP_CLOSE
    call tcp_set_state
    mov rdi, rbx
    call inet_csk_listen_stop
    jmp .Lorphan
.Lflush:
    xor r12d, r12d                      # bytes nobody read
.Lnext:
    lea rdi, [rbx + SK_RECEIVE_QUEUE]
    call __skb_dequeue
    test rax, rax
    je .Lflushed
    mov ecx, [rax + TCP_CB_END_SEQ]
    sub ecx, [rax + TCP_CB_SEQ]
    test byte ptr [rax + TCP_CB_FLAGS], TCPHDR_FIN
    je 1f
    dec ecx
1:
    mov edx, [rbx + TP_COPIED_SEQ]      # what of it was read
    sub edx, [rax + TCP_CB_SEQ]
    jle 2f
    sub ecx, edx
2:
    test ecx, ecx
    jle 3f
    add r12d, ecx
3:
    mov rdi, rax
    call __kfree_skb
    jmp .Lnext
.Lflushed:
    cmp byte ptr [rbx + SK_STATE], TCP_CLOSE
    je .Lorphan
    test r12d, r12d
    je .Lgracefully
    mov rdi, rbx                        # data was lost: the other side must know
    mov esi, GFP_KERNEL
    call tcp_send_active_reset
    mov rdi, rbx
    mov esi, TCP_CLOSE
    call tcp_set_state
    jmp .Lorphan
.Lgracefully:
    mov rdi, rbx
    call tcp_close_state
    test eax, eax
    je .Lorphan
    mov rdi, rbx
    call tcp_send_fin
.Lorphan:
    or dword ptr [rbx + SK_FLAGS], SOCK_DEAD    # sock_orphan
    mov qword ptr [rbx + SK_SOCKET], 0
    mov rdi, rbx
    call __sk_flush_backlog
    movzx eax, byte ptr [rbx + SK_STATE]
    cmp eax, TCP_FIN_WAIT2
    jne .Lclosed
    mov rdi, rbx
    lea rsi, [rbx + SK_TIMER]
    mov rdx, [rip + jiffies_64]
    add rdx, TCP_TIMEWAIT_LEN
    call sk_reset_timer
    LEAVE3
.Lclosed:
    cmp eax, TCP_CLOSE
    jne .Lout
    mov rdi, rbx
    call inet_csk_destroy_sock
.Lout:
    LEAVE3
ENDFUNC __tcp_close

FUNC tcp_disconnect                     # rdi sock, esi flags; 0
    ENTER2
    mov rbx, rdi
    movzx r12d, byte ptr [rdi + SK_STATE]
    cmp r12d, TCP_CLOSE
    je .Lclosed
    cmp r12d, TCP_SYN_SENT
    je .Lquiet
    mov esi, GFP_ATOMIC
    call tcp_send_active_reset
.Lquiet:
    mov rdi, rbx
    mov esi, TCP_CLOSE
    call tcp_set_state
.Lclosed:
    mov rdi, rbx
    call inet_csk_clear_xmit_timers
    lea rdi, [rbx + SK_RECEIVE_QUEUE]
    call skb_queue_purge
    mov rdi, rbx
    call tcp_write_queue_purge
    mov word ptr [rbx + SK_DPORT], 0
    mov dword ptr [rbx + SK_SHUTDOWN], 0
    xor eax, eax
    LEAVE2
ENDFUNC tcp_disconnect

.data
# By state: the one after close() or shutdown(), plus 16 when a FIN is sent.
tcp_new_state:
    .byte TCP_CLOSE, TCP_FIN_WAIT1 + 16, TCP_CLOSE, TCP_FIN_WAIT1 + 16, TCP_FIN_WAIT1, TCP_FIN_WAIT2
    .byte TCP_TIME_WAIT, TCP_CLOSE, TCP_LAST_ACK + 16, TCP_LAST_ACK, TCP_CLOSE, TCP_CLOSING
.text
