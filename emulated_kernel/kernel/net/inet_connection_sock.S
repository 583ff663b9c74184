# net/ipv4/inet_connection_sock.c: what connection-oriented protocols share: listening, accepting,
# the timers of a connection.

.text

# rdi sock, rsi retransmit handler, rdx delayed-ack handler, rcx keepalive
FUNC inet_csk_init_xmit_timers
    ENTER3
    mov rbx, rdi
    mov r12, rdx
    mov r13, rcx
    lea rdi, [rbx + ICSK_RTX_TIMER]
    xor edx, edx
    call init_timer_key
    lea rdi, [rbx + ICSK_DELACK_TIMER]
    mov rsi, r12
    xor edx, edx
    call init_timer_key
    lea rdi, [rbx + SK_TIMER]
    mov rsi, r13
    xor edx, edx
    call init_timer_key
    mov dword ptr [rbx + ICSK_PENDING], 0
    LEAVE3
ENDFUNC inet_csk_init_xmit_timers

FUNC inet_csk_clear_xmit_timers         # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    mov byte ptr [rbx + ICSK_PENDING], 0
    mov byte ptr [rbx + ICSK_ACK_PENDING], 0
    lea rsi, [rbx + ICSK_RTX_TIMER]
    call sk_stop_timer
    mov rdi, rbx
    lea rsi, [rbx + ICSK_DELACK_TIMER]
    call sk_stop_timer
    mov rdi, rbx
    lea rsi, [rbx + SK_TIMER]
    call sk_stop_timer
    LEAVE1
ENDFUNC inet_csk_clear_xmit_timers

FUNC reqsk_queue_alloc                  # rdi the accept queue of a sock
    PROLOGUE
    mov qword ptr [rdi], 0
    mov qword ptr [rdi + 8], 0
    EPILOGUE
ENDFUNC reqsk_queue_alloc

FUNC inet_csk_listen_start              # rdi sock; 0 or -EADDRINUSE
    ENTER1
    push rax
    mov rbx, rdi
    add rdi, ICSK_ACCEPT_HEAD
    call reqsk_queue_alloc
    mov dword ptr [rbx + ICSK_ACK_BACKLOG], 0
    mov rdi, rbx
    mov esi, TCP_LISTEN
    call inet_sk_set_state
    cmp word ptr [rbx + SK_NUM], 0
    jne .Lbound
    mov rdi, rbx
    xor esi, esi
    call inet_csk_get_port
    test eax, eax
    jne .Lin_use
.Lbound:
    mov rdi, rbx
    call inet_hash
    xor eax, eax
    LEAVE1
.Lin_use:
    mov rdi, rbx
    mov esi, TCP_CLOSE
    call inet_sk_set_state
    mov eax, -EADDRINUSE
    LEAVE1
ENDFUNC inet_csk_listen_start

FUNC inet_sk_set_state                  # rdi sock, esi state
    PROLOGUE
    mov [rdi + SK_STATE], sil
    EPILOGUE
ENDFUNC inet_sk_set_state

FUNC inet_csk_reqsk_queue_add           # rdi listener, rsi request, rdx connection; rax connection
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov [rsi + RSK_SK], rdx
    mov qword ptr [rsi + RSK_DL_NEXT], 0
    mov rax, [rbx + ICSK_ACCEPT_TAIL]
    mov [rbx + ICSK_ACCEPT_TAIL], rsi
    test rax, rax
    je 1f
    mov [rax + RSK_DL_NEXT], rsi
    jmp 2f
1:
    mov [rbx + ICSK_ACCEPT_HEAD], rsi
2:
    inc dword ptr [rbx + ICSK_ACK_BACKLOG]
    SOCK_HOLD r12
    mov rax, r13
    LEAVE3
ENDFUNC inet_csk_reqsk_queue_add

FUNC inet_csk_reqsk_queue_hash_add      # rdi listener, rsi request, edx ticks
    ENTER2
    mov rbx, rsi
    mov r12d, edx
    lea rdi, [rbx + RSK_TIMER]
    mov rsi, offset reqsk_timer_handler
    xor edx, edx
    call init_timer_key
    lea rdi, [rbx + RSK_TIMER]
    mov esi, r12d
    add rsi, [rip + jiffies_64]
    call mod_timer
    SOCK_HOLD rbx                       # the timer's
    mov rdi, rbx
    xor esi, esi
    call inet_ehash_insert
    LEAVE2
ENDFUNC inet_csk_reqsk_queue_hash_add

# The last step of the handshake did not come in time: our answer once more, or no more. rdi timer
FUNC reqsk_timer_handler
    ENTER2
    lea rbx, [rdi - RSK_TIMER]
    mov r12, [rbx + RSK_LISTENER]
    cmp byte ptr [r12 + SK_STATE], TCP_LISTEN
    jne .Ldrop
    cmp dword ptr [rbx + RSK_NUM_TIMEOUT], TCP_SYNACK_RETRIES
    jae .Ldrop
    cmp qword ptr [rbx + SK_PPREV], 0   # it has become a connection
    je .Lput
    mov rdi, r12
    mov rsi, rbx
    call tcp_rtx_synack
    inc dword ptr [rbx + RSK_NUM_TIMEOUT]
    mov ecx, [rbx + RSK_NUM_TIMEOUT]
    mov esi, TCP_TIMEOUT_INIT
    shl esi, cl
    add rsi, [rip + jiffies_64]
    lea rdi, [rbx + RSK_TIMER]
    call mod_timer
    LEAVE2
.Ldrop:
    mov rdi, r12
    mov rsi, rbx
    call inet_csk_reqsk_queue_drop
.Lput:
    mov rdi, rbx
    call sock_gen_put
    LEAVE2
ENDFUNC reqsk_timer_handler

# rdi request: its timer and the timer's reference. Clobbers like a call.
FUNC_NOTRACE reqsk_stop_timer
    ENTER1
    push rax
    mov rbx, rdi
    add rdi, RSK_TIMER
    call timer_delete
    test eax, eax
    je .Lout
    mov rdi, rbx
    call sock_gen_put
.Lout:
    LEAVE1
ENDFUNC reqsk_stop_timer

FUNC inet_csk_reqsk_queue_drop          # rdi listener, rsi request: nothing comes of it
    ENTER2
    mov rbx, rsi
    mov rdi, offset inet_ehash_lock
    call _raw_spin_lock_bh
    mov rdi, rbx
    mov r12, [rdi + SK_PPREV]
    CHAIN_DEL SK_NEXT
    mov rdi, offset inet_ehash_lock
    call _raw_spin_unlock_bh
    test r12, r12
    je .Lout
    mov rdi, rbx
    call reqsk_stop_timer
    mov rdi, rbx
    call sock_gen_put
.Lout:
    LEAVE2
ENDFUNC inet_csk_reqsk_queue_drop

FUNC inet_csk_complete_hashdance        # rdi listener, rsi connection, rdx request; rax connection
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov rsi, rdx
    mov rdx, r12
    call inet_csk_reqsk_queue_add
    mov rdi, r13
    call reqsk_stop_timer
    mov rdi, r13                        # the hash's reference: the connection took its place there
    call sock_gen_put
    mov rax, r12
    LEAVE3
ENDFUNC inet_csk_complete_hashdance

# rdi listener, esi flags, rdx where an error goes; rax connection or 0.
FUNC inet_csk_accept
    ENTER5
    sub rsp, 56
    mov rbx, rdi
    mov r12, rdx
    mov r13, MAX_SCHEDULE_TIMEOUT
    test esi, O_NONBLOCK
    je 1f
    xor r13d, r13d
1:
    LOCK_SOCK rbx
.Lagain:
    mov eax, -EINVAL
    cmp byte ptr [rbx + SK_STATE], TCP_LISTEN
    jne .Lerror
    mov r14, [rbx + ICSK_ACCEPT_HEAD]
    test r14, r14
    jne .Ltake
    mov eax, -EAGAIN
    test r13, r13
    je .Lerror
    mov rcx, gs:[CURRENT_TASK]
    cmp dword ptr [rcx + TASK_SIGPENDING], 0
    mov eax, -ERESTARTSYS
    jne .Lerror
    mov rdi, rsp                        # inet_csk_wait_for_connect
    mov esi, WQ_FLAG_EXCLUSIVE
    call init_wait_entry
    lea rdi, [rbx + SK_WQ]
    mov rsi, rsp
    mov edx, TASK_INTERRUPTIBLE
    call prepare_to_wait
    mov rdi, rbx
    call release_sock
    cmp qword ptr [rbx + ICSK_ACCEPT_HEAD], 0
    jne .Lwoken
    mov rdi, r13
    call schedule_timeout
    mov r13, rax
.Lwoken:
    LOCK_SOCK rbx
    lea rdi, [rbx + SK_WQ]
    mov rsi, rsp
    call finish_wait
    jmp .Lagain
.Ltake:
    mov rax, [r14 + RSK_DL_NEXT]
    mov [rbx + ICSK_ACCEPT_HEAD], rax
    test rax, rax
    jne 1f
    mov [rbx + ICSK_ACCEPT_TAIL], rax
1:
    dec dword ptr [rbx + ICSK_ACK_BACKLOG]
    mov r15, [r14 + RSK_SK]
    mov rdi, rbx
    call release_sock
    mov rdi, r14
    call sock_gen_put
    mov rax, r15
    LEAVE5
.Lerror:
    mov [r12], eax
    mov rdi, rbx
    call release_sock
    xor eax, eax
    LEAVE5
ENDFUNC inet_csk_accept

FUNC inet_csk_listen_stop               # rdi listener: connections nobody accepted are reset
    ENTER3
    mov rbx, rdi
.Lnext:
    mov r12, [rbx + ICSK_ACCEPT_HEAD]
    test r12, r12
    je .Lout
    mov rax, [r12 + RSK_DL_NEXT]
    mov [rbx + ICSK_ACCEPT_HEAD], rax
    mov r13, [r12 + RSK_SK]
    LOCAL_BH_DISABLE
    BH_LOCK_SOCK r13
    SOCK_HOLD r13
    or dword ptr [r13 + SK_FLAGS], SOCK_DEAD
    mov rdi, r13
    xor esi, esi
    call tcp_disconnect
    mov rdi, r13
    call inet_csk_destroy_sock
    BH_UNLOCK_SOCK r13
    LOCAL_BH_ENABLE
    SOCK_PUT r13
    mov rdi, r12
    call sock_gen_put
    jmp .Lnext
.Lout:
    mov qword ptr [rbx + ICSK_ACCEPT_TAIL], 0
    mov dword ptr [rbx + ICSK_ACK_BACKLOG], 0
    LEAVE3
ENDFUNC inet_csk_listen_stop

# rdi listener, rsi request, edx gfp; rax connection, locked, or 0
FUNC inet_csk_clone_lock
    ENTER2
    mov r12, rsi
    mov esi, edx
    call sk_clone_lock
    test rax, rax
    je .Lout
    mov rbx, rax
    mov dword ptr [rbx + SK_REFCNT], 2  # the accept queue's and the caller's
    mov rdi, rbx
    mov esi, TCP_SYN_RECV
    call inet_sk_set_state
    mov eax, [r12 + SK_DADDR]
    mov [rbx + SK_DADDR], eax
    mov eax, [r12 + SK_RCV_SADDR]
    mov [rbx + SK_RCV_SADDR], eax
    mov ax, [r12 + SK_DPORT]
    mov [rbx + SK_DPORT], ax
    xor eax, eax
    mov [rbx + ICSK_ACCEPT_HEAD], rax
    mov [rbx + ICSK_ACCEPT_TAIL], rax
    mov [rbx + ICSK_ACK_BACKLOG], rax
    mov [rbx + ICSK_PENDING], eax
    mov rax, rbx
.Lout:
    LEAVE2
ENDFUNC inet_csk_clone_lock

FUNC __inet_inherit_port                # rdi listener, rsi connection: the port is in use for both
    ENTER1
    push rax
    mov rbx, rsi
    mov rdi, offset inet_bind_lock
    call _raw_spin_lock_bh
    mov rdi, rbx
    movzx esi, word ptr [rbx + SK_NUM]
    call inet_bind_hash
    mov rdi, offset inet_bind_lock
    call _raw_spin_unlock_bh
    LEAVE1
ENDFUNC __inet_inherit_port

# rdi listener, rsi flowi4 to be filled, rdx request; rax dst_entry or 0
FUNC inet_csk_route_req
    PROLOGUE
    mov eax, [rdx + SK_DADDR]
    mov [rsi + FL4_DADDR], eax
    mov eax, [rdx + SK_RCV_SADDR]
    mov [rsi + FL4_SADDR], eax
    mov byte ptr [rsi + FL4_PROTO], IPPROTO_TCP
    mov byte ptr [rsi + FL4_TOS], 0
    xor edi, edi
    xor edx, edx
    call ip_route_output_flow
    cmp rax, -4095
    jb 1f
    xor eax, eax
1:
    EPILOGUE
ENDFUNC inet_csk_route_req

FUNC inet_csk_destroy_sock              # rdi sock that is closed and has no file
    ENTER1
    push rax
    mov rbx, rdi
    bts dword ptr [rdi + SK_FLAGS], SOCK_DESTROYED_BIT
    jb .Lout
    mov rcx, [rdi + SK_PROT]
    call [rcx + PROTO_DESTROY]
    mov rdi, rbx
    call sk_stream_kill_queues
    SOCK_PUT rbx
.Lout:
    LEAVE1
ENDFUNC inet_csk_destroy_sock

# rdi operations, rsi listener; rax request with a reference, or 0
FUNC inet_reqsk_alloc
    ENTER1
    push rax
    mov rbx, rsi
    mov edi, RSK_SIZE
    mov esi, GFP_ATOMIC | GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lout
    mov byte ptr [rax + SK_STATE], TCP_NEW_SYN_RECV
    mov word ptr [rax + SK_FAMILY], AF_INET
    mov dword ptr [rax + SK_REFCNT], 1
    mov [rax + RSK_LISTENER], rbx
    SOCK_HOLD rbx
.Lout:
    LEAVE1
ENDFUNC inet_reqsk_alloc
