# net/socket.c: the system calls of sockets.

.text

FUNC __x64_sys_socket                   # rdi pt_regs: (family, type, protocol)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdx, [rdi + PT_RDX]
    mov rdi, [rdi + PT_RDI]
    call __sys_socket
    EPILOGUE
ENDFUNC __x64_sys_socket

FUNC __sys_socket                       # edi family, esi type, edx protocol; rax fd or an error
    ENTER3
    push rax
    mov r12d, esi
    mov rax, -EINVAL
    test esi, ~(15 | SOCK_CLOEXEC | SOCK_NONBLOCK)
    jne .Lout
    and esi, 15
    mov rcx, rsp
    call sock_create
    test eax, eax
    jne .Lerror
    mov edi, r12d
    and edi, SOCK_CLOEXEC
    call get_unused_fd_flags
    mov r13d, eax
    test eax, eax
    js .Lrelease
    mov rdi, [rsp]
    mov esi, r12d
    xor edx, edx
    call sock_alloc_file
    cmp rax, ERR_MIN
    jae .Lput_fd
    mov edi, r13d
    mov rsi, rax
    call fd_install
    mov eax, r13d
    LEAVE3
.Lput_fd:
    mov rbx, rax
    mov edi, r13d
    call put_unused_fd
    mov rax, rbx
    LEAVE3
.Lrelease:
    mov rdi, [rsp]
    call sock_release
    mov eax, r13d
.Lerror:
    cdqe
.Lout:
    LEAVE3
ENDFUNC __sys_socket

FUNC __x64_sys_bind                     # (fd, address, length)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdx, [rdi + PT_RDX]
    mov rdi, [rdi + PT_RDI]
    call __sys_bind
    EPILOGUE
ENDFUNC __x64_sys_bind

FUNC __sys_bind                         # edi fd, rsi user address, edx length; rax 0 or an error
    ENTER3
    sub rsp, 136
    mov r12, rsi
    mov r13d, edx
    call sockfd_lookup_light
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    mov rdi, r12
    mov esi, r13d
    mov rdx, rsp
    call move_addr_to_kernel
    test eax, eax
    jne .Lput
    mov rdi, rbx
    mov rsi, rsp
    mov edx, r13d
    call security_socket_bind
    test eax, eax
    jne .Lput
    mov rdi, rbx
    mov rsi, rsp
    mov edx, r13d
    mov rax, [rbx + SOCKET_OPS]
    call [rax + OPS_BIND]
.Lput:
    movsxd r12, eax
    mov rdi, [rbx + SOCKET_FILE]
    call fput
    mov rax, r12
.Lout:
    LEAVE3
ENDFUNC __sys_bind

FUNC __x64_sys_listen                   # (fd, backlog)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdi, [rdi + PT_RDI]
    call __sys_listen
    EPILOGUE
ENDFUNC __x64_sys_listen

FUNC __sys_listen
    ENTER2
    mov r12d, esi
    call sockfd_lookup_light
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    mov ecx, 4096                       # net.core.somaxconn
    cmp r12d, ecx
    cmova r12d, ecx
    mov rdi, rax
    mov esi, r12d
    call security_socket_listen
    test eax, eax
    jne .Lput
    mov rdi, rbx
    mov esi, r12d
    mov rax, [rbx + SOCKET_OPS]
    call [rax + OPS_LISTEN]
.Lput:
    movsxd r12, eax
    mov rdi, [rbx + SOCKET_FILE]
    call fput
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC __sys_listen

FUNC __x64_sys_connect                  # (fd, address, length)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdx, [rdi + PT_RDX]
    mov rdi, [rdi + PT_RDI]
    call __sys_connect
    EPILOGUE
ENDFUNC __x64_sys_connect

FUNC __sys_connect                      # edi fd, rsi user address, edx length; rax 0 or an error
    ENTER3
    sub rsp, 136
    mov r12, rsi
    mov r13d, edx
    call sockfd_lookup_light
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    mov rdi, r12
    mov esi, r13d
    mov rdx, rsp
    call move_addr_to_kernel
    test eax, eax
    jne .Lput
    mov rdi, [rbx + SOCKET_FILE]
    mov rsi, rsp
    mov edx, r13d
    xor ecx, ecx
    call __sys_connect_file
.Lput:
    movsxd r12, eax
    mov rdi, [rbx + SOCKET_FILE]
    call fput
    mov rax, r12
.Lout:
    LEAVE3
ENDFUNC __sys_connect

# rdi file, rsi address, edx length, ecx flags; eax 0 or an error
FUNC __sys_connect_file
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    call sock_from_file
    mov r14, rax
    mov eax, -ENOTSOCK
    test r14, r14
    je .Lout
    mov rdi, r14
    mov rsi, r12
    mov edx, r13d
    call security_socket_connect
    test eax, eax
    jne .Lout
    mov rdi, r14
    mov rsi, r12
    mov edx, r13d
    mov ecx, [rbx + FILE_FLAGS]
    mov rax, [r14 + SOCKET_OPS]
    call [rax + OPS_CONNECT]
.Lout:
    LEAVE4
ENDFUNC __sys_connect_file

FUNC __x64_sys_accept                   # (fd, address, length *)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdx, [rdi + PT_RDX]
    mov rdi, [rdi + PT_RDI]
    xor ecx, ecx
    call __sys_accept4
    EPILOGUE
ENDFUNC __x64_sys_accept

FUNC __x64_sys_accept4                  # (fd, address, length *, flags)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdx, [rdi + PT_RDX]
    mov rcx, [rdi + PT_R10]
    mov rdi, [rdi + PT_RDI]
    call __sys_accept4
    EPILOGUE
ENDFUNC __x64_sys_accept4

# edi fd, rsi user address, rdx its length, ecx flags; rax fd or an error
FUNC __sys_accept4
    ENTER5
    push rax
    mov r12, rsi
    mov r13, rdx
    mov r14d, ecx
    mov rax, -EINVAL
    test ecx, ~(SOCK_CLOEXEC | SOCK_NONBLOCK)
    jne .Lout
    call fget
    mov rbx, rax
    mov rax, -EBADF
    test rbx, rbx
    je .Lout
    mov edi, r14d
    and edi, SOCK_CLOEXEC
    call get_unused_fd_flags
    movsxd r15, eax
    test eax, eax
    js .Lput
    mov rdi, rbx
    mov esi, r14d
    mov rdx, r12
    mov rcx, r13
    call do_accept
    cmp rax, ERR_MIN
    jae .Lput_fd
    mov edi, r15d
    mov rsi, rax
    call fd_install
    jmp .Lput
.Lput_fd:
    mov r14, rax
    mov edi, r15d
    call put_unused_fd
    mov r15, r14
.Lput:
    mov rdi, rbx
    call fput
    mov rax, r15
.Lout:
    LEAVE5
ENDFUNC __sys_accept4

# rdi listening file, esi flags, rdx user address, rcx its length; rax file
FUNC do_accept
    ENTER5
    sub rsp, 40
    mov rbx, rdi
    mov [rbp - 48], esi
    mov r12, rdx
    mov r13, rcx
    call sock_from_file
    mov r14, rax
    mov rax, -ENOTSOCK
    test r14, r14
    je .Lout
    call sock_alloc
    mov r15, rax
    mov rax, -ENFILE
    test r15, r15
    je .Lout
    mov eax, [r14 + SOCKET_TYPE]
    mov [r15 + SOCKET_TYPE], eax
    mov rax, [r14 + SOCKET_OPS]
    mov [r15 + SOCKET_OPS], rax
    mov rdi, r15
    mov esi, [rbp - 48]
    xor edx, edx
    call sock_alloc_file
    cmp rax, ERR_MIN
    jae .Lout
    mov [rbp - 56], rax
    mov rdi, r14
    mov rsi, r15
    call security_socket_accept
    test eax, eax
    jne .Lfail
    mov rdi, r14
    mov rsi, r15
    mov edx, [rbx + FILE_FLAGS]
    xor ecx, ecx
    mov rax, [r14 + SOCKET_OPS]
    call [rax + OPS_ACCEPT]
    test eax, eax
    js .Lfail
    test r12, r12
    je .Laccepted
    mov rdi, r15
    lea rsi, [rbp - 80]
    mov edx, 2
    mov rax, [r15 + SOCKET_OPS]
    call [rax + OPS_GETNAME]
    test eax, eax
    js .Lfail
    lea rdi, [rbp - 80]
    mov esi, eax
    mov rdx, r12
    mov rcx, r13
    call move_addr_to_user
    test eax, eax
    js .Lfail
.Laccepted:
    mov rax, [rbp - 56]
.Lout:
    LEAVE5
.Lfail:
    movsxd rbx, eax
    mov rdi, [rbp - 56]
    call fput
    mov rax, rbx
    LEAVE5
ENDFUNC do_accept

FUNC __x64_sys_sendto                   # (fd, data, length, flags, address, length)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdx, [rdi + PT_RDX]
    mov rcx, [rdi + PT_R10]
    mov r8, [rdi + PT_R8]
    mov r9, [rdi + PT_R9]
    mov rdi, [rdi + PT_RDI]
    call __sys_sendto
    EPILOGUE
ENDFUNC __x64_sys_sendto

# A msghdr at rsp for rsi[rdx] of user space with flags ecx. rax is clobbered.
.macro MSG_FROM_USER
    mov dword ptr [rsp + MSG_ITER + ITER_KERNEL], 0
    mov [rsp + MSG_ITER + ITER_BASE], rsi
    mov [rsp + MSG_ITER + ITER_COUNT], rdx
    xor eax, eax
    mov [rsp + MSG_NAME], rax
    mov [rsp + MSG_NAMELEN], eax
    mov [rsp + MSG_FLAGS], ecx
.endm

FUNC __sys_sendto                       # as above, in registers; rax bytes or an error
    ENTER3
    sub rsp, MSG_SIZE + 136
    MSG_FROM_USER
    mov r12, r8
    mov r13d, r9d
    call sockfd_lookup_light
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    test r12, r12
    je .Lsend
    mov rdi, r12
    mov esi, r13d
    lea rdx, [rsp + MSG_SIZE]
    call move_addr_to_kernel
    test eax, eax
    jne .Lput
    lea rax, [rsp + MSG_SIZE]
    mov [rsp + MSG_NAME], rax
    mov [rsp + MSG_NAMELEN], r13d
.Lsend:
    mov rax, [rbx + SOCKET_FILE]
    test dword ptr [rax + FILE_FLAGS], O_NONBLOCK
    je 1f
    or dword ptr [rsp + MSG_FLAGS], MSG_DONTWAIT
1:
    mov rdi, rbx
    mov rsi, rsp
    call sock_sendmsg
    mov r12, rax
    jmp .Lfput
.Lput:
    movsxd r12, eax
.Lfput:
    mov rdi, [rbx + SOCKET_FILE]
    call fput
    mov rax, r12
.Lout:
    LEAVE3
ENDFUNC __sys_sendto

FUNC __x64_sys_recvfrom                 # (fd, data, length, flags, address, length *)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdx, [rdi + PT_RDX]
    mov rcx, [rdi + PT_R10]
    mov r8, [rdi + PT_R8]
    mov r9, [rdi + PT_R9]
    mov rdi, [rdi + PT_RDI]
    call __sys_recvfrom
    EPILOGUE
ENDFUNC __x64_sys_recvfrom

FUNC __sys_recvfrom
    ENTER4
    sub rsp, MSG_SIZE + 128
    MSG_FROM_USER
    mov r12, r8
    mov r13, r9
    call sockfd_lookup_light
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    lea rax, [rsp + MSG_SIZE]
    mov [rsp + MSG_NAME], rax
    mov rax, [rbx + SOCKET_FILE]
    test dword ptr [rax + FILE_FLAGS], O_NONBLOCK
    je 1f
    or dword ptr [rsp + MSG_FLAGS], MSG_DONTWAIT
1:
    mov rdi, rbx
    mov rsi, rsp
    mov edx, [rsp + MSG_FLAGS]
    call sock_recvmsg
    mov r14, rax
    test rax, rax
    js .Lput
    test r12, r12
    je .Lput
    lea rdi, [rsp + MSG_SIZE]
    mov esi, [rsp + MSG_NAMELEN]
    mov rdx, r12
    mov rcx, r13
    call move_addr_to_user
    test eax, eax
    jns .Lput
    movsxd r14, eax
.Lput:
    mov rdi, [rbx + SOCKET_FILE]
    call fput
    mov rax, r14
.Lout:
    LEAVE4
ENDFUNC __sys_recvfrom

FUNC __x64_sys_shutdown                 # (fd, how)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdi, [rdi + PT_RDI]
    call __sys_shutdown
    EPILOGUE
ENDFUNC __x64_sys_shutdown

FUNC __sys_shutdown
    ENTER2
    mov r12d, esi
    call sockfd_lookup_light
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    mov rdi, rax
    mov esi, r12d
    call security_socket_shutdown
    test eax, eax
    jne .Lput
    mov rdi, rbx
    mov esi, r12d
    mov rax, [rbx + SOCKET_OPS]
    call [rax + OPS_SHUTDOWN]
.Lput:
    movsxd r12, eax
    mov rdi, [rbx + SOCKET_FILE]
    call fput
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC __sys_shutdown

FUNC __x64_sys_getsockname              # (fd, address, length *)
    PROLOGUE
    mov rsi, [rdi + PT_RSI]
    mov rdx, [rdi + PT_RDX]
    mov rdi, [rdi + PT_RDI]
    call __sys_getsockname
    EPILOGUE
ENDFUNC __x64_sys_getsockname

FUNC __sys_getsockname
    ENTER3
    sub rsp, 24
    mov r12, rsi
    mov r13, rdx
    call sockfd_lookup_light
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    mov rdi, rax
    call security_socket_getsockname
    test eax, eax
    jne .Lput
    mov rdi, rbx
    mov rsi, rsp
    xor edx, edx
    mov rax, [rbx + SOCKET_OPS]
    call [rax + OPS_GETNAME]
    test eax, eax
    js .Lput
    mov rdi, rsp
    mov esi, eax
    mov rdx, r12
    mov rcx, r13
    call move_addr_to_user
.Lput:
    movsxd r12, eax
    mov rdi, [rbx + SOCKET_FILE]
    call fput
    mov rax, r12
.Lout:
    LEAVE3
ENDFUNC __sys_getsockname
