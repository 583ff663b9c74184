# net/ipv4/tcp_timer.c: what a connection does when nothing comes.

.text

FUNC tcp_init_xmit_timers               # rdi sock
    PROLOGUE
    mov rsi, offset tcp_write_timer
    mov rdx, offset tcp_delack_timer
    mov rcx, offset tcp_keepalive_timer
    call inet_csk_init_xmit_timers
    EPILOGUE
ENDFUNC tcp_init_xmit_timers

# A timer's function: rdi the timer, at \field of its sock. \handler does the work, or \deferred
# is left for the owner of the sock.
.macro TCP_TIMER field, handler, deferred
    ENTER1
    push rax
    lea rbx, [rdi - \field]
    BH_LOCK_SOCK rbx
    cmp dword ptr [rbx + SK_LOCK_OWNED], 0
    jne 2f
    mov rdi, rbx
    call \handler
    jmp 3f
2:
    test word ptr [rbx + SK_DEFERRED], \deferred
    jne 3f
    or word ptr [rbx + SK_DEFERRED], \deferred
    SOCK_HOLD rbx
3:
    BH_UNLOCK_SOCK rbx
    SOCK_PUT rbx
    LEAVE1
.endm

FUNC tcp_write_timer                    # rdi timer
    TCP_TIMER ICSK_RTX_TIMER, tcp_write_timer_handler, TCP_WRITE_TIMER_DEFERRED
ENDFUNC tcp_write_timer

FUNC tcp_delack_timer                   # rdi timer
    TCP_TIMER ICSK_DELACK_TIMER, tcp_delack_timer_handler, TCP_DELACK_TIMER_DEFERRED
ENDFUNC tcp_delack_timer

FUNC tcp_write_timer_handler            # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    movzx eax, byte ptr [rdi + SK_STATE]
    cmp eax, TCP_CLOSE
    je .Lout
    cmp eax, TCP_LISTEN
    je .Lout
    movzx eax, byte ptr [rdi + ICSK_PENDING]
    cmp eax, ICSK_TIME_LOSS_PROBE
    je .Lprobe
    cmp eax, ICSK_TIME_RETRANS
    jne .Lout
    mov byte ptr [rdi + ICSK_PENDING], 0
    call tcp_retransmit_timer
    LEAVE1
.Lprobe:
    call tcp_send_loss_probe
.Lout:
    LEAVE1
ENDFUNC tcp_write_timer_handler

FUNC tcp_enter_loss                     # rdi sock: start again from one segment
    PROLOGUE
    mov eax, [rdi + TP_SND_CWND]
    shr eax, 1
    mov ecx, 2
    cmp eax, ecx
    cmovb eax, ecx
    mov [rdi + TP_SND_SSTHRESH], eax
    mov dword ptr [rdi + TP_SND_CWND], 1
    mov dword ptr [rdi + TP_SND_CWND_CNT], 0
    mov dword ptr [rdi + TP_DUPACKS], 0
    mov dword ptr [rdi + TP_IN_RECOVERY], 0
    EPILOGUE
ENDFUNC tcp_enter_loss

FUNC tcp_retransmit_timer               # rdi sock: nothing was acknowledged for too long
    ENTER1
    push rax
    mov rbx, rdi
    cmp dword ptr [rbx + TP_PACKETS_OUT], 0
    je .Lout
    cmp byte ptr [rbx + ICSK_RETRANSMITS], TCP_RETRIES
    jae .Lgive_up
    call tcp_enter_loss
    mov rdi, rbx
    mov rsi, [rbx + TP_RTX_QUEUE]
    mov edx, 1
    call tcp_retransmit_skb
    inc byte ptr [rbx + ICSK_RETRANSMITS]
    inc byte ptr [rbx + ICSK_BACKOFF]
    mov eax, [rbx + ICSK_RTO]
    add eax, eax
    mov ecx, TCP_RTO_MAX
    cmp eax, ecx
    cmova eax, ecx
    mov [rbx + ICSK_RTO], eax
    mov rdi, rbx
    call tcp_rearm_rto
.Lout:
    LEAVE1
.Lgive_up:                              # tcp_write_err
    mov dword ptr [rbx + SK_ERR], ETIMEDOUT
    call tcp_write_queue_purge
    mov rdi, rbx
    call tcp_done
    LEAVE1
ENDFUNC tcp_retransmit_timer

FUNC tcp_delack_timer_handler           # rdi sock
    PROLOGUE
    movzx eax, byte ptr [rdi + SK_STATE]
    cmp eax, TCP_CLOSE
    je 1f
    cmp byte ptr [rdi + ICSK_ACK_PENDING], 0
    je 1f
    call tcp_send_ack
1:
    EPILOGUE
ENDFUNC tcp_delack_timer_handler

# The end of TIME_WAIT, and of a FIN_WAIT2 nobody waits in. rdi timer
FUNC tcp_keepalive_timer
    ENTER1
    push rax
    lea rbx, [rdi - SK_TIMER]
    BH_LOCK_SOCK rbx
    movzx eax, byte ptr [rbx + SK_STATE]
    cmp eax, TCP_CLOSE
    je 1f
    mov rdi, rbx
    call tcp_done
1:
    BH_UNLOCK_SOCK rbx
    SOCK_PUT rbx
    LEAVE1
ENDFUNC tcp_keepalive_timer
