# net/ipv4/af_inet.c: the socket operations of AF_INET. Left out: raw sockets, options.

.text

FUNC_NOTRACE inet_init
    PROLOGUE
    mov rdi, offset ip_packet_type
    call dev_add_pack
    mov rdi, offset arp_packet_type
    call dev_add_pack
    mov rdi, offset icmp_sk
    lea rax, [rdi + SK_WRITE_QUEUE]
    LIST_INIT rax
    call sock_init
    EPILOGUE
ENDFUNC inet_init

FUNC inet_create                        # rdi net, rsi socket, edx protocol, ecx kern; 0 or an error
    ENTER3
    mov rbx, rsi
    mov r12d, edx
    mov eax, [rsi + SOCKET_TYPE]
    cmp eax, SOCK_STREAM
    je .Lstream
    cmp eax, SOCK_DGRAM
    mov eax, -ESOCKTNOSUPPORT
    jne .Lout
    mov rdx, offset udp_prot
    mov rcx, offset inet_dgram_ops
    mov r13d, IPPROTO_UDP
    jmp .Lprotocol
.Lstream:
    mov rdx, offset tcp_prot
    mov rcx, offset inet_stream_ops
    mov r13d, IPPROTO_TCP
.Lprotocol:
    test r12d, r12d
    je 1f
    cmp r12d, r13d
    mov eax, -EPROTONOSUPPORT
    jne .Lout
1:
    mov [rbx + SOCKET_OPS], rcx
    mov edi, AF_INET
    mov esi, GFP_KERNEL
    call sk_alloc
    mov r12, rax
    mov eax, -ENOBUFS
    test r12, r12
    je .Lout
    mov [r12 + SK_PROTOCOL], r13w
    mov rdi, rbx
    mov rsi, r12
    call sock_init_data
    mov rax, offset inet_sock_destruct
    mov [r12 + SK_DESTRUCT], rax
    mov rdi, r12
    mov rcx, [r12 + SK_PROT]
    call [rcx + PROTO_INIT]
.Lout:
    LEAVE3
ENDFUNC inet_create

FUNC inet_sock_destruct                 # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    lea rdi, [rbx + SK_RECEIVE_QUEUE]
    call skb_queue_purge
    lea rdi, [rbx + SK_WRITE_QUEUE]
    call skb_queue_purge
    LEAVE1
ENDFUNC inet_sock_destruct

FUNC inet_release                       # rdi socket; 0
    ENTER1
    push rax
    mov rbx, rdi
    mov rdi, [rdi + SOCKET_SK]
    test rdi, rdi
    je 1f
    mov qword ptr [rbx + SOCKET_SK], 0
    xor esi, esi
    mov rcx, [rdi + SK_PROT]
    call [rcx + PROTO_CLOSE]
1:
    xor eax, eax
    LEAVE1
ENDFUNC inet_release

FUNC inet_bind                          # rdi socket, rsi sockaddr, edx length; 0 or an error
    PROLOGUE
    mov eax, -EINVAL
    cmp edx, SOCKADDR_IN_SIZE
    jb .Lout
    mov rdi, [rdi + SOCKET_SK]
    call __inet_bind
.Lout:
    EPILOGUE
ENDFUNC inet_bind

FUNC __inet_bind                        # rdi sock, rsi sockaddr, edx length
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov eax, -EAFNOSUPPORT
    cmp word ptr [rsi + SIN_FAMILY], AF_INET
    jne .Lout
    xor edi, edi
    mov esi, [rsi + SIN_ADDR]
    test esi, esi
    je .Laddress_ok
    call inet_addr_type
    cmp eax, 2
    mov eax, -EADDRNOTAVAIL
    jne .Lout
.Laddress_ok:
    mov ax, [r12 + SIN_PORT]
    xchg al, ah
    movzx r13d, ax
    test r13d, r13d
    je .Lprivileged
    cmp r13d, 1024
    jae .Lprivileged
    mov edi, CAP_NET_BIND_SERVICE
    call capable
    test eax, eax
    mov eax, -EACCES
    je .Lout
.Lprivileged:
    LOCK_SOCK rbx
    mov eax, -EINVAL
    cmp byte ptr [rbx + SK_STATE], TCP_CLOSE
    jne .Lrelease
    cmp word ptr [rbx + SK_NUM], 0
    jne .Lrelease
    mov eax, [r12 + SIN_ADDR]
    mov [rbx + SK_RCV_SADDR], eax
    mov rdi, rbx
    mov esi, r13d
    mov rcx, [rbx + SK_PROT]
    call [rcx + PROTO_GET_PORT]
    test eax, eax
    je .Lrelease
    mov dword ptr [rbx + SK_RCV_SADDR], 0
    mov eax, -EADDRINUSE
.Lrelease:
    mov r12d, eax
    mov rdi, rbx
    call release_sock
    mov eax, r12d
.Lout:
    LEAVE3
ENDFUNC __inet_bind

FUNC inet_autobind                      # rdi sock; 0 or -EAGAIN
    ENTER2
    mov rbx, rdi
    LOCK_SOCK rbx
    xor r12d, r12d
    cmp word ptr [rbx + SK_NUM], 0
    jne .Lout
    mov rdi, rbx
    xor esi, esi
    mov rcx, [rbx + SK_PROT]
    call [rcx + PROTO_GET_PORT]
    test eax, eax
    je .Lout
    mov r12d, -EAGAIN
.Lout:
    mov rdi, rbx
    call release_sock
    mov eax, r12d
    LEAVE2
ENDFUNC inet_autobind

FUNC inet_send_prepare                  # rdi sock; 0 or an error
    PROLOGUE
    xor eax, eax
    cmp word ptr [rdi + SK_NUM], 0
    jne 1f
    call inet_autobind
1:
    EPILOGUE
ENDFUNC inet_send_prepare

FUNC inet_sendmsg                       # rdi socket, rsi msg, rdx size; rax bytes or an error
    ENTER3
    mov rbx, [rdi + SOCKET_SK]
    mov r12, rsi
    mov r13, rdx
    mov rdi, rbx
    call inet_send_prepare
    test eax, eax
    jne .Lerror
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov rcx, [rbx + SK_PROT]
    call [rcx + PROTO_SENDMSG]
    LEAVE3
.Lerror:
    cdqe
    LEAVE3
ENDFUNC inet_sendmsg

# rdi socket, rsi msg, rdx size, ecx flags; rax bytes or an error
FUNC inet_recvmsg
    ENTER2
    push 0
    push 0
    mov r12, rsi
    mov rdi, [rdi + SOCKET_SK]
    mov r8, rsp
    mov rax, [rdi + SK_PROT]
    call [rax + PROTO_RECVMSG]
    test rax, rax
    js 1f
    mov ecx, [rsp]
    mov [r12 + MSG_NAMELEN], ecx
1:
    LEAVE2
ENDFUNC inet_recvmsg

FUNC inet_shutdown                      # rdi socket, esi how; 0 or an error
    ENTER4
    mov r12, rdi
    mov rbx, [rdi + SOCKET_SK]
    mov eax, -EINVAL
    cmp esi, 2
    ja .Lout
    lea r13d, [rsi + 1]                 # SHUT_… to …_SHUTDOWN
    LOCK_SOCK rbx
    movzx eax, byte ptr [rbx + SK_STATE]
    mov r14d, -ENOTCONN
    cmp eax, TCP_CLOSE
    je .Lrelease
    xor r14d, r14d
    or [rbx + SK_SHUTDOWN], r13d
    mov rcx, [rbx + SK_PROT]
    mov rax, [rcx + PROTO_SHUTDOWN]
    test rax, rax
    je .Lwake
    mov rdi, rbx
    mov esi, r13d
    call rax
.Lwake:
    mov rdi, rbx
    call [rbx + SK_STATE_CHANGE]
.Lrelease:
    mov rdi, rbx
    call release_sock
    mov eax, r14d
.Lout:
    LEAVE4
ENDFUNC inet_shutdown

FUNC inet_getname                       # rdi socket, rsi sockaddr, edx peer; eax length or an error
    PROLOGUE
    mov rcx, [rdi + SOCKET_SK]
    xor eax, eax
    mov [rsi], rax
    mov [rsi + 8], rax
    mov word ptr [rsi + SIN_FAMILY], AF_INET
    test edx, edx
    jne .Lpeer
    mov eax, [rcx + SK_RCV_SADDR]
    mov [rsi + SIN_ADDR], eax
    mov ax, [rcx + SK_SPORT]
    mov [rsi + SIN_PORT], ax
    mov eax, SOCKADDR_IN_SIZE
    EPILOGUE
.Lpeer:
    mov eax, -ENOTCONN
    cmp word ptr [rcx + SK_DPORT], 0
    je .Lout
    mov eax, [rcx + SK_DADDR]
    mov [rsi + SIN_ADDR], eax
    mov ax, [rcx + SK_DPORT]
    mov [rsi + SIN_PORT], ax
    mov eax, SOCKADDR_IN_SIZE
.Lout:
    EPILOGUE
ENDFUNC inet_getname

# --- streams --------------------------------------------------------------------------------------

FUNC inet_listen                        # rdi socket, esi backlog; 0 or an error
    ENTER3
    mov r12d, esi
    mov r13, rdi
    mov rbx, [rdi + SOCKET_SK]
    LOCK_SOCK rbx
    mov eax, -EINVAL
    cmp dword ptr [r13 + SOCKET_STATE], SS_UNCONNECTED
    jne .Lout
    mov [rbx + ICSK_MAX_ACK_BACKLOG], r12d
    movzx ecx, byte ptr [rbx + SK_STATE]
    cmp ecx, TCP_LISTEN
    mov edx, 0
    je .Llistening
    cmp ecx, TCP_CLOSE
    jne .Lout
    mov rdi, rbx
    mov esi, r12d
    call inet_csk_listen_start
    jmp .Lout
.Llistening:
    xor eax, eax
.Lout:
    mov r12d, eax
    mov rdi, rbx
    call release_sock
    mov eax, r12d
    LEAVE3
ENDFUNC inet_listen

# rdi socket, rsi sockaddr, edx length, ecx flags; 0 or an error
FUNC inet_stream_connect
    ENTER5
    push rax
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov r14d, ecx
    mov r15, [rdi + SOCKET_SK]
    LOCK_SOCK r15
    mov rdi, rbx
    mov rsi, r12
    mov edx, r13d
    mov ecx, r14d
    call __inet_stream_connect
    mov r12d, eax
    mov rdi, r15
    call release_sock
    mov eax, r12d
    LEAVE5
ENDFUNC inet_stream_connect

FUNC __inet_stream_connect              # the sock is locked
    ENTER4
    push 0
    push 0
    mov rbx, rdi
    mov r12, [rdi + SOCKET_SK]
    mov rax, MAX_SCHEDULE_TIMEOUT
    test ecx, O_NONBLOCK
    je 1f
    xor eax, eax
1:
    mov [rsp], rax
    cmp edx, SOCKADDR_IN_SIZE
    mov eax, -EINVAL
    jb .Lout
    mov ecx, [rbx + SOCKET_STATE]
    mov eax, -EISCONN
    cmp ecx, SS_CONNECTED
    je .Lout
    cmp ecx, SS_CONNECTING
    je .Lconnecting
    cmp byte ptr [r12 + SK_STATE], TCP_CLOSE
    jne .Lout
    mov rdi, r12
    mov rcx, [r12 + SK_PROT]
    call [rcx + PROTO_CONNECT]
    test eax, eax
    js .Lout
    mov dword ptr [rbx + SOCKET_STATE], SS_CONNECTING
    mov r13d, -EINPROGRESS
    jmp .Lwait
.Lconnecting:
    mov r13d, -EALREADY
.Lwait:
    movzx eax, byte ptr [r12 + SK_STATE]
    cmp eax, TCP_SYN_SENT
    je .Lpending
    cmp eax, TCP_SYN_RECV
    jne .Lsettled
.Lpending:
    cmp qword ptr [rsp], 0
    mov eax, r13d
    je .Lout
    mov rdi, r12
    mov rsi, rsp
    call sk_stream_wait_connect
    cmp eax, -ERESTARTSYS
    je .Lout
.Lsettled:
    mov dword ptr [rbx + SOCKET_STATE], SS_CONNECTED
    xor eax, eax
    cmp byte ptr [r12 + SK_STATE], TCP_CLOSE
    jne .Lout
    mov dword ptr [rbx + SOCKET_STATE], SS_UNCONNECTED
    xchg eax, [r12 + SK_ERR]
    neg eax
    jne .Lout
    mov eax, -ECONNABORTED
.Lout:
    LEAVE4
ENDFUNC __inet_stream_connect

# rdi socket, rsi new socket, edx flags, ecx kern; 0 or an error
FUNC inet_accept
    ENTER2
    push -EINVAL
    push rax
    mov rbx, rsi
    mov rdi, [rdi + SOCKET_SK]
    mov esi, edx
    lea rdx, [rsp + 8]
    xor ecx, ecx
    mov rax, [rdi + SK_PROT]
    call [rax + PROTO_ACCEPT]
    mov r12, rax
    mov eax, [rsp + 8]
    test r12, r12
    je .Lout
    LOCK_SOCK r12
    mov rdi, r12
    mov rsi, rbx
    call security_sock_graft
    mov [r12 + SK_SOCKET], rbx
    mov [rbx + SOCKET_SK], r12
    mov dword ptr [rbx + SOCKET_STATE], SS_CONNECTED
    mov rdi, r12
    call release_sock
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC inet_accept

# --- datagrams ------------------------------------------------------------------------------------

# rdi socket, rsi sockaddr, edx length, ecx flags; 0 or an error
FUNC inet_dgram_connect
    ENTER2
    mov rbx, [rdi + SOCKET_SK]
    mov r12, rsi
    cmp edx, SOCKADDR_IN_SIZE
    mov eax, -EINVAL
    jb .Lout
    cmp word ptr [rbx + SK_NUM], 0
    jne 1f
    mov rdi, rbx
    call inet_autobind
    test eax, eax
    jne .Lout
1:
    mov rdi, rbx
    mov rsi, r12
    mov edx, SOCKADDR_IN_SIZE
    mov rcx, [rbx + SK_PROT]
    call [rcx + PROTO_CONNECT]
.Lout:
    LEAVE2
ENDFUNC inet_dgram_connect

# A kind of socket that does not listen or accept.
FUNC sock_no_listen
    PROLOGUE
    mov eax, -EOPNOTSUPP
    EPILOGUE
ENDFUNC sock_no_listen

FUNC sock_no_accept
    PROLOGUE
    mov eax, -EOPNOTSUPP
    EPILOGUE
ENDFUNC sock_no_accept

.data
.balign 8
OBJECT inet_stream_ops
    .quad inet_release, inet_bind, inet_stream_connect, inet_accept, inet_getname, tcp_poll
    .quad inet_listen, inet_shutdown, inet_sendmsg, inet_recvmsg
ENDOBJECT inet_stream_ops
OBJECT inet_dgram_ops
    .quad inet_release, inet_bind, inet_dgram_connect, sock_no_accept, inet_getname, datagram_poll
    .quad sock_no_listen, inet_shutdown, inet_sendmsg, inet_recvmsg
ENDOBJECT inet_dgram_ops
.text
