# net/core/sock.c, stream.c: what all sockets have: memory, locks, waiting. Also wait_woken of
# kernel/sched/wait.c, which they wait with. Left out: memory accounting across sockets, filters,
# options.

.text

FUNC sk_alloc                           # edi family, esi gfp, rdx proto; rax sock or 0
    ENTER2
    mov rbx, rdx
    mov r12d, edi
    mov rdi, rdx
    call sk_prot_alloc
    test rax, rax
    je .Lout
    mov [rax + SK_FAMILY], r12w
    mov [rax + SK_PROT], rbx
    mov rbx, rax
    mov rdi, rax
    mov esi, r12d
    mov edx, GFP_KERNEL
    call security_sk_alloc
    mov rax, rbx
.Lout:
    LEAVE2
ENDFUNC sk_alloc

FUNC sk_prot_alloc                      # rdi proto, esi gfp; rax zeroed sock or 0
    PROLOGUE
    mov edi, SOCK_SIZE
    or esi, GFP_ZERO
    call __kmalloc
    EPILOGUE
ENDFUNC sk_prot_alloc

FUNC sock_init_data                     # rdi socket or 0, rsi sock
    PROLOGUE
    mov dword ptr [rsi + SK_REFCNT], 1
    mov dword ptr [rsi + SK_RCVBUF], SOCK_RCVBUF_DEFAULT
    mov dword ptr [rsi + SK_SNDBUF], SOCK_SNDBUF_DEFAULT
    mov byte ptr [rsi + SK_STATE], TCP_CLOSE
    mov rax, offset sock_def_readable
    mov [rsi + SK_DATA_READY], rax
    mov rax, offset sock_def_wakeup
    mov [rsi + SK_STATE_CHANGE], rax
    mov rax, offset sock_def_write_space
    mov [rsi + SK_WRITE_SPACE], rax
    lea rax, [rsi + SK_RECEIVE_QUEUE]
    LIST_INIT rax
    lea rax, [rsi + SK_WRITE_QUEUE]
    LIST_INIT rax
    lea rax, [rsi + SK_WQ + WQ_HEAD]
    LIST_INIT rax
    lea rax, [rsi + SK_LOCK_WQ + WQ_HEAD]
    LIST_INIT rax
    mov [rsi + SK_SOCKET], rdi
    test rdi, rdi
    je .Lout
    mov [rdi + SOCKET_SK], rsi
    movzx eax, word ptr [rdi + SOCKET_TYPE]
    mov [rsi + SK_TYPE], ax
.Lout:
    EPILOGUE
ENDFUNC sock_init_data

FUNC sk_free                            # rdi sock without references
    PROLOGUE
    call __sk_free
    EPILOGUE
ENDFUNC sk_free

FUNC __sk_free
    PROLOGUE
    call sk_destruct
    EPILOGUE
ENDFUNC __sk_free

FUNC sk_destruct
    PROLOGUE
    call __sk_destruct
    EPILOGUE
ENDFUNC sk_destruct

FUNC __sk_destruct
    ENTER1
    push rax
    mov rbx, rdi
    mov rax, [rdi + SK_DESTRUCT]
    test rax, rax
    je 1f
    call rax
1:
    mov rdi, rbx
    call security_sk_free
    mov rdi, rbx
    call kfree
    LEAVE1
ENDFUNC __sk_destruct

FUNC sk_clone_lock                      # rdi sock, esi gfp; rax a copy of it, locked, or 0
    ENTER2
    mov r12, rdi
    mov rdi, [rdi + SK_PROT]
    call sk_prot_alloc
    test rax, rax
    je .Lout
    mov rbx, rax
    mov rdi, rax
    mov rsi, r12
    mov edx, SOCK_SIZE
    call memcpy
    xor edi, edi
    mov rsi, rbx
    xor eax, eax
    mov [rbx + SK_NEXT], rax
    mov [rbx + SK_PPREV], rax
    mov [rbx + SK_BIND_NEXT], rax
    mov [rbx + SK_BIND_PPREV], rax
    mov [rbx + SK_LOCK_SLOCK], rax
    mov [rbx + SK_BACKLOG_HEAD], rax
    mov [rbx + SK_BACKLOG_TAIL], rax
    mov [rbx + SK_BACKLOG_LEN], rax
    mov [rbx + SK_RMEM_ALLOC], rax
    mov [rbx + SK_ERR], rax
    mov [rbx + SK_DST], rax
    mov [rbx + SK_RECEIVE_QUEUE + SKB_LIST_QLEN], rax
    mov [rbx + SK_WRITE_QUEUE + SKB_LIST_QLEN], rax
    mov [rbx + SK_WQ], rax
    mov [rbx + SK_LOCK_WQ], rax
    mov [rbx + SK_DEFERRED], ax
    call sock_init_data
    mov eax, [r12 + SK_RCVBUF]
    mov [rbx + SK_RCVBUF], eax
    mov eax, [r12 + SK_SNDBUF]
    mov [rbx + SK_SNDBUF], eax
    BH_LOCK_SOCK rbx
    mov rax, rbx
.Lout:
    LEAVE2
ENDFUNC sk_clone_lock

FUNC sk_common_release                  # rdi sock whose file goes: out of the hashes, then let go
    ENTER1
    push rax
    mov rbx, rdi
    mov rcx, [rdi + SK_PROT]
    mov rax, [rcx + PROTO_DESTROY]
    test rax, rax
    je 1f
    call rax
1:
    mov rdi, rbx
    mov rcx, [rbx + SK_PROT]
    call [rcx + PROTO_UNHASH]
    or dword ptr [rbx + SK_FLAGS], SOCK_DEAD
    mov qword ptr [rbx + SK_SOCKET], 0
    SOCK_PUT rbx
    LEAVE1
ENDFUNC sk_common_release

# --- the lock -------------------------------------------------------------------------------------
# A task owns a socket for long; softirqs that find it owned leave their packets on its backlog.

FUNC lock_sock_nested                   # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    call __cond_resched
    lea rdi, [rbx + SK_LOCK_SLOCK]
    call _raw_spin_lock_bh
    cmp dword ptr [rbx + SK_LOCK_OWNED], 0
    je 1f
    mov rdi, rbx
    call __lock_sock
1:
    mov dword ptr [rbx + SK_LOCK_OWNED], 1
    lea rdi, [rbx + SK_LOCK_SLOCK]
    call _raw_spin_unlock_bh
    LEAVE1
ENDFUNC lock_sock_nested

FUNC __lock_sock                        # rdi sock, its spin lock held: wait until nobody owns it
    ENTER2
    sub rsp, 48
    mov rbx, rdi
    mov r12, rsp
    mov rdi, r12
    xor esi, esi
    call init_wait_entry
.Lagain:
    lea rdi, [rbx + SK_LOCK_WQ]
    mov rsi, r12
    mov edx, TASK_UNINTERRUPTIBLE
    call prepare_to_wait
    lea rdi, [rbx + SK_LOCK_SLOCK]
    call _raw_spin_unlock_bh
    call schedule
    lea rdi, [rbx + SK_LOCK_SLOCK]
    call _raw_spin_lock_bh
    cmp dword ptr [rbx + SK_LOCK_OWNED], 0
    jne .Lagain
    lea rdi, [rbx + SK_LOCK_WQ]
    mov rsi, r12
    call finish_wait
    LEAVE2
ENDFUNC __lock_sock

FUNC release_sock                       # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    lea rdi, [rdi + SK_LOCK_SLOCK]
    call _raw_spin_lock_bh
    cmp qword ptr [rbx + SK_BACKLOG_TAIL], 0
    je 1f
    mov rdi, rbx
    call __release_sock
1:
    mov rcx, [rbx + SK_PROT]
    mov rax, [rcx + PROTO_RELEASE_CB]
    test rax, rax
    je 2f
    mov rdi, rbx
    call rax
2:
    mov dword ptr [rbx + SK_LOCK_OWNED], 0
    lea rdi, [rbx + SK_LOCK_WQ]
    lea rax, [rdi + WQ_HEAD]
    cmp [rax], rax
    je 3f
    mov esi, TASK_NORMAL
    mov edx, 1
    xor ecx, ecx
    call __wake_up
3:
    lea rdi, [rbx + SK_LOCK_SLOCK]
    call _raw_spin_unlock_bh
    LEAVE1
ENDFUNC release_sock

FUNC __release_sock                     # rdi sock, its spin lock held: deal with the backlog
    ENTER3
    mov rbx, rdi
.Lagain:
    mov r12, [rbx + SK_BACKLOG_HEAD]
    test r12, r12
    je .Lout
    xor eax, eax
    mov [rbx + SK_BACKLOG_HEAD], rax
    mov [rbx + SK_BACKLOG_TAIL], rax
    lea rdi, [rbx + SK_LOCK_SLOCK]
    call _raw_spin_unlock_bh
.Lnext:
    mov r13, [r12 + SKB_NEXT]
    mov qword ptr [r12 + SKB_NEXT], 0
    mov rdi, rbx
    mov rsi, r12
    mov rcx, [rbx + SK_PROT]
    call [rcx + PROTO_BACKLOG_RCV]
    call __cond_resched
    mov r12, r13
    test r12, r12
    jne .Lnext
    lea rdi, [rbx + SK_LOCK_SLOCK]
    call _raw_spin_lock_bh
    jmp .Lagain
.Lout:
    mov dword ptr [rbx + SK_BACKLOG_LEN], 0
    LEAVE3
ENDFUNC __release_sock

FUNC __sk_flush_backlog                 # rdi sock we own
    ENTER1
    push rax
    mov rbx, rdi
    lea rdi, [rdi + SK_LOCK_SLOCK]
    call _raw_spin_lock_bh
    mov rdi, rbx
    call __release_sock
    lea rdi, [rbx + SK_LOCK_SLOCK]
    call _raw_spin_unlock_bh
    LEAVE1
ENDFUNC __sk_flush_backlog

# --- memory ---------------------------------------------------------------------------------------

FUNC sock_wfree                         # rdi skb: what a sock sent is gone
    ENTER1
    push rax
    mov rbx, [rdi + SKB_SK]
    mov eax, [rdi + SKB_TRUESIZE]
    lock sub [rbx + SK_WMEM_ALLOC], eax
    mov qword ptr [rdi + SKB_SK], 0
    test dword ptr [rbx + SK_FLAGS], SOCK_DEAD
    jne 1f
    mov rdi, rbx
    call [rbx + SK_WRITE_SPACE]
1:
    LEAVE1
ENDFUNC sock_wfree

FUNC sock_rfree                         # rdi skb that was received
    PROLOGUE
    mov rax, [rdi + SKB_SK]
    mov ecx, [rdi + SKB_TRUESIZE]
    lock sub [rax + SK_RMEM_ALLOC], ecx
    mov qword ptr [rdi + SKB_SK], 0
    EPILOGUE
ENDFUNC sock_rfree

# rdi sock, esi bytes, edx 0 to send, 1 to receive; eax whether there is room
FUNC __sk_mem_schedule
    PROLOGUE
    test edx, edx
    jne .Lreceive
    mov eax, [rdi + SK_WMEM_ALLOC]
    add eax, esi
    cmp eax, [rdi + SK_SNDBUF]
    jmp .Lanswer
.Lreceive:
    mov eax, [rdi + SK_RMEM_ALLOC]
    add eax, esi
    cmp eax, [rdi + SK_RCVBUF]
.Lanswer:
    setbe al
    movzx eax, al
    EPILOGUE
ENDFUNC __sk_mem_schedule

FUNC sock_queue_rcv_skb_reason          # rdi sock, rsi skb; 0 or -ENOMEM
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call sk_filter_trim_cap
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov rsi, r12
    call __sock_queue_rcv_skb
.Lout:
    LEAVE2
ENDFUNC sock_queue_rcv_skb_reason

FUNC __sock_queue_rcv_skb
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov esi, [rsi + SKB_TRUESIZE]
    mov edx, 1
    call __sk_mem_schedule
    test eax, eax
    je .Lfull
    SKB_SET_OWNER_R r12, rbx
    lea rdi, [rbx + SK_RECEIVE_QUEUE]
    mov rsi, r12
    call skb_queue_tail
    test dword ptr [rbx + SK_FLAGS], SOCK_DEAD
    jne 1f
    mov rdi, rbx
    call [rbx + SK_DATA_READY]
1:
    xor eax, eax
    LEAVE2
.Lfull:
    mov eax, -ENOMEM
    LEAVE2
ENDFUNC __sock_queue_rcv_skb

# rdi sock, rsi skb, edx least to be left; 0 when it may pass
FUNC sk_filter_trim_cap
    PROLOGUE
    call security_sock_rcv_skb
    EPILOGUE
ENDFUNC sk_filter_trim_cap

# --- events ---------------------------------------------------------------------------------------

# Wake those who wait on sock rdi; clobbers like a call.
.macro SOCK_WAKE events
    lea rax, [rdi + SK_WQ + WQ_HEAD]
    cmp [rax], rax
    je 1f
    add rdi, SK_WQ
    mov esi, TASK_INTERRUPTIBLE
    mov edx, 1
    mov ecx, \events
    call __wake_up
1:
.endm

FUNC sock_def_readable                  # rdi sock
    PROLOGUE
    SOCK_WAKE EPOLLIN | EPOLLRDNORM
    EPILOGUE
ENDFUNC sock_def_readable

FUNC sock_def_wakeup                    # rdi sock
    PROLOGUE
    lea rax, [rdi + SK_WQ + WQ_HEAD]
    cmp [rax], rax
    je 1f
    add rdi, SK_WQ
    mov esi, TASK_INTERRUPTIBLE
    xor edx, edx
    xor ecx, ecx
    call __wake_up
1:
    EPILOGUE
ENDFUNC sock_def_wakeup

FUNC sock_def_write_space               # rdi sock: half of its buffer is free again
    PROLOGUE
    mov eax, [rdi + SK_WMEM_ALLOC]
    add eax, eax
    cmp eax, [rdi + SK_SNDBUF]
    ja 2f
    SOCK_WAKE EPOLLOUT | EPOLLWRNORM
2:
    EPILOGUE
ENDFUNC sock_def_write_space

FUNC sk_stream_write_space
    PROLOGUE
    call sock_def_write_space
    EPILOGUE
ENDFUNC sk_stream_write_space

# --- waiting --------------------------------------------------------------------------------------

WQ_FLAG_WOKEN = 2

FUNC woken_wake_function                # rdi entry, …
    PROLOGUE
    or dword ptr [rdi + WAIT_FLAGS], WQ_FLAG_WOKEN
    call default_wake_function
    EPILOGUE
ENDFUNC woken_wake_function

FUNC wait_woken                         # rdi entry on a queue, esi state, rdx ticks; rax ticks left
    ENTER2
    mov rbx, rdi
    mov rax, gs:[CURRENT_TASK]
    mov [rax + TASK_STATE], esi
    test dword ptr [rdi + WAIT_FLAGS], WQ_FLAG_WOKEN
    mov rax, rdx
    jne 1f
    mov rdi, rdx
    call schedule_timeout
1:
    mov rcx, gs:[CURRENT_TASK]
    mov dword ptr [rcx + TASK_STATE], TASK_RUNNING
    and dword ptr [rbx + WAIT_FLAGS], ~WQ_FLAG_WOKEN
    LEAVE2
ENDFUNC wait_woken

# DEFINE_WAIT_FUNC: an entry at \entry (an address register) for wait_woken. rax is clobbered.
.macro WOKEN_ENTRY entry
    mov qword ptr [\entry + WAIT_FLAGS], 0
    mov rax, gs:[CURRENT_TASK]
    mov [\entry + WAIT_PRIVATE], rax
    mov rax, offset woken_wake_function
    mov [\entry + WAIT_FUNC], rax
    lea rax, [\entry + WAIT_ENTRY]
    mov [rax], rax
    mov [rax + 8], rax
.endm

# rdi sock we own, rsi address of the ticks to wait, rdx last skb seen (0: none): eax whether
# there is more.
FUNC sk_wait_data
    ENTER5
    sub rsp, 56
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rsp
    WOKEN_ENTRY r14
    lea rdi, [rbx + SK_WQ]
    mov rsi, r14
    call add_wait_queue
    mov rdi, rbx
    call release_sock
    call .Lnews
    jne .Lwoken
    mov rdi, r14
    mov esi, TASK_INTERRUPTIBLE
    mov rdx, [r12]
    call wait_woken
    mov [r12], rax
.Lwoken:
    LOCK_SOCK rbx
    call .Lnews
    setne r15b
    lea rdi, [rbx + SK_WQ]
    mov rsi, r14
    call remove_wait_queue
    movzx eax, r15b
    LEAVE5
# ZF clear when the tail of the receive queue is another one than r13.
.Lnews:
    lea rcx, [rbx + SK_RECEIVE_QUEUE]
    mov rax, [rcx + 8]
    cmp rax, rcx
    jne 1f
    xor eax, eax
1:
    cmp rax, r13
    ret
ENDFUNC sk_wait_data

FUNC sk_stream_wait_connect             # rdi sock, rsi address of the ticks; 0 or an error
    ENTER4
    sub rsp, 48
    mov rbx, rdi
    mov r12, rsi
    mov r13, rsp
.Lagain:
    mov eax, [rbx + SK_ERR]
    neg eax
    jne .Lout
    mov ecx, 1
    movzx eax, byte ptr [rbx + SK_STATE]
    cmp eax, TCP_ESTABLISHED
    je .Lconnected
    cmp eax, TCP_CLOSE_WAIT
    je .Lconnected
    cmp eax, TCP_SYN_SENT
    je .Lwait
    cmp eax, TCP_SYN_RECV
    mov eax, -EPIPE
    jne .Lout
.Lwait:
    cmp qword ptr [r12], 0
    mov eax, -EAGAIN
    je .Lout
    mov rcx, gs:[CURRENT_TASK]
    cmp dword ptr [rcx + TASK_SIGPENDING], 0
    mov eax, -ERESTARTSYS
    jne .Lout
    WOKEN_ENTRY r13
    lea rdi, [rbx + SK_WQ]
    mov rsi, r13
    call add_wait_queue
    mov rdi, rbx
    call release_sock
    movzx eax, byte ptr [rbx + SK_STATE]
    cmp eax, TCP_ESTABLISHED
    je .Lwoken
    cmp dword ptr [rbx + SK_ERR], 0
    jne .Lwoken
    mov rdi, r13
    mov esi, TASK_INTERRUPTIBLE
    mov rdx, [r12]
    call wait_woken
    mov [r12], rax
.Lwoken:
    LOCK_SOCK rbx
    lea rdi, [rbx + SK_WQ]
    mov rsi, r13
    call remove_wait_queue
    jmp .Lagain
.Lconnected:
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC sk_stream_wait_connect

# rdi sock whose send buffer is full, rsi address of the ticks; 0 or error
FUNC sk_stream_wait_memory
    ENTER4
    sub rsp, 48
    mov rbx, rdi
    mov r12, rsi
    mov r13, rsp
.Lagain:
    mov eax, -EPIPE
    cmp dword ptr [rbx + SK_ERR], 0
    jne .Lout
    test dword ptr [rbx + SK_SHUTDOWN], SEND_SHUTDOWN
    jne .Lout
    mov ecx, [rbx + SK_WMEM_ALLOC]
    xor eax, eax
    cmp ecx, [rbx + SK_SNDBUF]
    jb .Lout
    cmp qword ptr [r12], 0
    mov eax, -EAGAIN
    je .Lout
    mov rcx, gs:[CURRENT_TASK]
    cmp dword ptr [rcx + TASK_SIGPENDING], 0
    mov eax, -ERESTARTSYS
    jne .Lout
    WOKEN_ENTRY r13
    lea rdi, [rbx + SK_WQ]
    mov rsi, r13
    call add_wait_queue
    mov rdi, rbx
    call release_sock
    mov ecx, [rbx + SK_WMEM_ALLOC]
    cmp ecx, [rbx + SK_SNDBUF]
    jb .Lwoken
    mov rdi, r13
    mov esi, TASK_INTERRUPTIBLE
    mov rdx, [r12]
    call wait_woken
    mov [r12], rax
.Lwoken:
    LOCK_SOCK rbx
    lea rdi, [rbx + SK_WQ]
    mov rsi, r13
    call remove_wait_queue
    jmp .Lagain
.Lout:
    LEAVE4
ENDFUNC sk_stream_wait_memory

# rdi sock, esi flags, edx error; eax error, after -EPIPE the sock's own
FUNC sk_stream_error
    ENTER1
    push rax
    mov ebx, edx
    cmp edx, -EPIPE
    jne .Lout
    xor ecx, ecx
    xchg ecx, [rdi + SK_ERR]
    test ecx, ecx
    je .Lpipe
    mov ebx, ecx
    neg ebx
.Lpipe:
    cmp ebx, -EPIPE
    jne .Lout
    test esi, MSG_NOSIGNAL
    jne .Lout
    mov edi, SIGPIPE
    mov rsi, gs:[CURRENT_TASK]
    call do_send_sig_info
.Lout:
    mov eax, ebx
    LEAVE1
ENDFUNC sk_stream_error

FUNC sk_stream_kill_queues              # rdi sock nobody has any more
    ENTER1
    push rax
    mov rbx, rdi
    lea rdi, [rbx + SK_RECEIVE_QUEUE]
    call skb_queue_purge
    lea rdi, [rbx + SK_WRITE_QUEUE]
    call skb_queue_purge
    LEAVE1
ENDFUNC sk_stream_kill_queues

# --- timers of a sock, which hold a reference -----------------------------------------------------

FUNC sk_reset_timer                     # rdi sock, rsi timer, rdx expiry
    ENTER1
    push rax
    mov rbx, rdi
    mov rdi, rsi
    mov rsi, rdx
    call mod_timer
    test eax, eax
    jne 1f
    SOCK_HOLD rbx
1:
    LEAVE1
ENDFUNC sk_reset_timer

FUNC sk_stop_timer                      # rdi sock, rsi timer
    ENTER1
    push rax
    mov rbx, rdi
    mov rdi, rsi
    call timer_delete
    test eax, eax
    je 2f
    SOCK_PUT rbx
2:
    LEAVE1
ENDFUNC sk_stop_timer
