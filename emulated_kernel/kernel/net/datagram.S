# net/core/datagram.c: taking received packets off a socket.

.text

FUNC skb_copy_datagram_iter             # rdi skb, esi offset, rdx iter, ecx bytes; 0 or -EFAULT
    ENTER1
    push rax
    mov ebx, ecx
    mov esi, esi
    mov rax, [rdi + SKB_DATA]
    lea rdi, [rax + rsi]
    mov esi, ecx
    call _copy_to_iter
    cmp rax, rbx
    mov eax, 0
    je 1f
    mov eax, -EFAULT
1:
    LEAVE1
ENDFUNC skb_copy_datagram_iter

FUNC skb_copy_datagram_from_iter        # rdi skb, esi offset, rdx iter, ecx bytes; 0 or -EFAULT
    ENTER1
    push rax
    mov ebx, ecx
    mov esi, esi
    mov rax, [rdi + SKB_DATA]
    lea rdi, [rax + rsi]
    mov esi, ecx
    call _copy_from_iter
    cmp rax, rbx
    mov eax, 0
    je 1f
    mov eax, -EFAULT
1:
    LEAVE1
ENDFUNC skb_copy_datagram_from_iter

FUNC skb_recv_datagram                  # rdi sock, esi flags, rdx where an error goes; rax skb or 0
    ENTER5
    push 0
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    mov rax, MAX_SCHEDULE_TIMEOUT
    test r12d, MSG_DONTWAIT
    je 1f
    xor eax, eax
1:
    mov [rsp], rax
.Lagain:
    mov rdi, rbx
    mov esi, r12d
    mov rdx, r13
    call __skb_try_recv_datagram
    test rax, rax
    jne .Lout
    cmp dword ptr [r13], -EAGAIN
    jne .Lnone
    cmp qword ptr [rsp], 0
    je .Lnone
    mov rdi, rbx
    mov rsi, r13
    mov rdx, rsp
    call __skb_wait_for_more_packets
    test eax, eax
    je .Lagain
.Lnone:
    xor eax, eax
.Lout:
    LEAVE5
ENDFUNC skb_recv_datagram

FUNC __skb_try_recv_datagram            # rdi sock, esi flags, rdx where an error goes; rax skb or 0
    ENTER3
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    xor eax, eax
    xchg eax, [rbx + SK_ERR]
    neg eax
    jne .Lerror
    lea rdi, [rbx + SK_RECEIVE_QUEUE]
    test r12d, MSG_PEEK
    jne .Lpeek
    call skb_dequeue
    test rax, rax
    jne .Lout
.Lempty:
    mov eax, -EAGAIN
.Lerror:
    mov [r13], eax
    xor eax, eax
.Lout:
    LEAVE3
.Lpeek:
    add rdi, SKB_LIST_LOCK
    call _raw_spin_lock_irqsave
    mov r12, [rbx + SK_RECEIVE_QUEUE]
    lea rcx, [rbx + SK_RECEIVE_QUEUE]
    cmp r12, rcx
    jne 1f
    xor r12d, r12d
    jmp 2f
1:
    lock inc dword ptr [r12 + SKB_USERS]
2:
    lea rdi, [rbx + SK_RECEIVE_QUEUE + SKB_LIST_LOCK]
    mov esi, eax
    call _raw_spin_unlock_irqrestore
    mov rax, r12
    test r12, r12
    je .Lempty
    LEAVE3
ENDFUNC __skb_try_recv_datagram

# rdi sock, rsi where an error goes, rdx address of the ticks; eax 0 or 1
FUNC __skb_wait_for_more_packets
    ENTER5
    sub rsp, 56
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rsp
    mov rdi, r14
    xor esi, esi
    call init_wait_entry
    lea rdi, [rbx + SK_WQ]
    mov rsi, r14
    mov edx, TASK_INTERRUPTIBLE
    call prepare_to_wait
    xor r15d, r15d
    mov eax, [rbx + SK_ERR]
    neg eax
    jne .Lerror
    lea rcx, [rbx + SK_RECEIVE_QUEUE]
    cmp [rcx], rcx
    jne .Lout
    test dword ptr [rbx + SK_SHUTDOWN], RCV_SHUTDOWN
    mov eax, 0
    jne .Lerror
    mov rcx, gs:[CURRENT_TASK]
    cmp dword ptr [rcx + TASK_SIGPENDING], 0
    mov eax, -ERESTARTSYS
    jne .Lerror
    mov rdi, [r13]
    call schedule_timeout
    mov [r13], rax
    jmp .Lout
.Lerror:
    mov [r12], eax
    mov r15d, 1
.Lout:
    lea rdi, [rbx + SK_WQ]
    mov rsi, r14
    call finish_wait
    mov eax, r15d
    LEAVE5
ENDFUNC __skb_wait_for_more_packets
