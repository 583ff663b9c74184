# net/socket.c: sockets as files, and their system calls. Left out: families other than AF_INET,
# control messages, asynchronous notification.

.text

FUNC_NOTRACE sock_init
    PROLOGUE
    mov rdi, offset sockfs_name
    mov esi, 0x534f434b                 # SOCKFS_MAGIC
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call alloc_super
    mov [rip + sock_mnt + MNT_SB], rax
    EPILOGUE
ENDFUNC sock_init

# --- making and ending ----------------------------------------------------------------------------

FUNC sock_alloc                         # rax socket without a file or protocol, or 0
    ENTER2
    mov rdi, [rip + sock_mnt + MNT_SB]
    call new_inode_pseudo
    test rax, rax
    je .Lout
    mov rbx, rax
    mov dword ptr [rax + INODE_MODE], 0xc1ff     # S_IFSOCK, everybody's
    mov edi, SOCKET_SIZE
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lnomem
    mov [rax + SOCKET_INODE], rbx
    mov dword ptr [rax + SOCKET_STATE], SS_UNCONNECTED
    mov [rbx + INODE_PRIVATE], rax
.Lout:
    LEAVE2
.Lnomem:
    mov rdi, rbx
    call iput
    xor eax, eax
    LEAVE2
ENDFUNC sock_alloc

FUNC sock_alloc_file                    # rdi socket, esi flags, rdx name or 0; rax file or error
    ENTER1
    push rax
    mov rbx, rdi
    mov rdi, [rdi + SOCKET_INODE]
    mov ecx, esi
    and ecx, O_NONBLOCK
    or ecx, O_RDWR
    mov rsi, offset sock_mnt
    test rdx, rdx
    jne 1f
    mov rdx, offset socket_name
1:
    mov r8, offset socket_file_ops
    call alloc_file_pseudo
    cmp rax, ERR_MIN
    jae .Lerror
    mov [rbx + SOCKET_FILE], rax
    mov [rax + FILE_PRIVATE], rbx
    or dword ptr [rax + FILE_MODE], FMODE_STREAM
    LEAVE1
.Lerror:
    push rax
    push rax
    mov rdi, rbx
    call sock_release
    pop rax
    LEAVE1
ENDFUNC sock_alloc_file

# edi family, esi type, edx protocol, rcx where the socket goes
FUNC sock_create
    PROLOGUE
    mov r9d, edx
    mov r8, rcx
    mov ecx, edx
    mov edx, esi
    mov esi, edi
    xor edi, edi
    xor r9d, r9d
    call __sock_create
    EPILOGUE
ENDFUNC sock_create

# rdi net, esi family, edx type, ecx protocol, r8 where the socket goes, r9d kern: 0 or an error.
FUNC __sock_create
    ENTER5
    push rax
    mov r12d, esi
    mov r13d, edx
    mov r14d, ecx
    mov r15, r8
    mov eax, -EAFNOSUPPORT
    cmp esi, AF_INET
    jne .Lout
    mov eax, -EINVAL
    lea ecx, [r13 - 1]
    cmp ecx, 10
    jae .Lout
    mov edi, r12d
    mov esi, r13d
    mov edx, r14d
    mov ecx, r9d
    call security_socket_create
    test eax, eax
    jne .Lout
    call sock_alloc
    mov rbx, rax
    mov eax, -ENFILE
    test rbx, rbx
    je .Lout
    mov [rbx + SOCKET_TYPE], r13d
    xor edi, edi
    mov rsi, rbx
    mov edx, r14d
    xor ecx, ecx
    call inet_create
    test eax, eax
    jne .Lrelease
    mov rdi, rbx
    mov esi, r12d
    mov edx, r13d
    mov ecx, r14d
    call security_socket_post_create
    mov [r15], rbx
.Lout:
    LEAVE5
.Lrelease:
    mov r12d, eax
    mov rdi, rbx
    call sock_release
    mov eax, r12d
    LEAVE5
ENDFUNC __sock_create

FUNC sock_release                       # rdi socket
    ENTER1
    push rax
    mov rbx, [rdi + SOCKET_FILE]
    xor esi, esi
    call __sock_release
    LEAVE1
ENDFUNC sock_release

FUNC __sock_release                     # rdi socket, rsi inode, or 0 when it goes with the socket
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rax, [rdi + SOCKET_OPS]
    test rax, rax
    je 1f
    call [rax + OPS_RELEASE]
    mov qword ptr [rbx + SOCKET_OPS], 0
1:
    test r12, r12
    jne 2f
    mov rdi, [rbx + SOCKET_INODE]
    call iput
2:
    mov rdi, rbx
    call kfree
    LEAVE2
ENDFUNC __sock_release

FUNC sock_close                         # rdi inode, rsi file; 0
    PROLOGUE
    mov rax, rsi
    mov rsi, rdi
    mov rdi, [rax + FILE_PRIVATE]
    call __sock_release
    xor eax, eax
    EPILOGUE
ENDFUNC sock_close

# --- finding --------------------------------------------------------------------------------------

FUNC sock_from_file                     # rdi file; rax socket or 0
    PROLOGUE
    mov rcx, [rdi + FILE_OP]
    mov rdx, offset socket_file_ops
    xor eax, eax
    cmp rcx, rdx
    jne 1f
    mov rax, [rdi + FILE_PRIVATE]
1:
    EPILOGUE
ENDFUNC sock_from_file

# edi fd: rax socket, whose file has a reference more, or an error.
FUNC sockfd_lookup_light
    ENTER1
    push rax
    call fget
    test rax, rax
    je .Lbad
    mov rbx, rax
    mov rdi, rax
    call sock_from_file
    test rax, rax
    je .Lnot_socket
    LEAVE1
.Lnot_socket:
    mov rdi, rbx
    call fput
    mov rax, -ENOTSOCK
    LEAVE1
.Lbad:
    mov rax, -EBADF
    LEAVE1
ENDFUNC sockfd_lookup_light

FUNC move_addr_to_kernel                # rdi user address, esi length, rdx kernel; 0 or an error
    ENTER1
    push rax
    mov ebx, esi
    mov eax, -EINVAL
    cmp esi, 128
    ja .Lout
    mov eax, 0
    test esi, esi
    je .Lout
    mov rsi, rdi
    mov rdi, rdx
    mov edx, ebx
    call _copy_from_user
    test rax, rax
    je .Lout
    mov eax, -EFAULT
.Lout:
    LEAVE1
ENDFUNC move_addr_to_kernel

# rdi kernel address, esi length, rdx user, rcx user's length *
FUNC move_addr_to_user
    ENTER4
    push rax
    push rax
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    mov r14, rcx
    mov rdi, rsp
    mov rsi, rcx
    mov edx, 4
    call _copy_from_user
    test rax, rax
    jne .Lfault
    mov edx, [rsp]
    mov eax, -EINVAL
    test edx, edx
    js .Lout
    cmp edx, r12d
    cmova edx, r12d
    mov rdi, r13
    mov rsi, rbx
    call _copy_to_user
    test rax, rax
    jne .Lfault
    mov [rsp], r12d
    mov rdi, r14
    mov rsi, rsp
    mov edx, 4
    call _copy_to_user
    test rax, rax
    jne .Lfault
    xor eax, eax
    LEAVE4
.Lfault:
    mov eax, -EFAULT
.Lout:
    LEAVE4
ENDFUNC move_addr_to_user

# --- data -----------------------------------------------------------------------------------------

FUNC sock_sendmsg                       # rdi socket, rsi msghdr; rax bytes or an error
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rdx, [rsi + MSG_ITER + ITER_COUNT]
    call security_socket_sendmsg
    test eax, eax
    jne .Lrefused
    mov rdi, rbx
    mov rsi, r12
    mov rdx, [r12 + MSG_ITER + ITER_COUNT]
    mov rax, [rbx + SOCKET_OPS]
    call [rax + OPS_SENDMSG]
    LEAVE2
.Lrefused:
    cdqe
    LEAVE2
ENDFUNC sock_sendmsg

FUNC sock_recvmsg                       # rdi socket, rsi msghdr, edx flags; rax bytes or an error
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov ecx, edx
    mov rdx, [rsi + MSG_ITER + ITER_COUNT]
    call security_socket_recvmsg
    test eax, eax
    jne .Lrefused
    mov rdi, rbx
    mov rsi, r12
    mov rdx, [r12 + MSG_ITER + ITER_COUNT]
    mov ecx, r13d
    mov rax, [rbx + SOCKET_OPS]
    call [rax + OPS_RECVMSG]
    LEAVE3
.Lrefused:
    cdqe
    LEAVE3
ENDFUNC sock_recvmsg

# A msghdr at rsp for the iter in \iter, flags of file \file in MSG_FLAGS.
.macro MSG_FROM_ITER iter, file
    xor eax, eax
    mov [rsp + MSG_NAME], rax
    mov [rsp + MSG_NAMELEN], rax
    mov rax, [\iter]
    mov [rsp + MSG_ITER], rax
    mov rax, [\iter + ITER_BASE]
    mov [rsp + MSG_ITER + ITER_BASE], rax
    mov rax, [\iter + ITER_COUNT]
    mov [rsp + MSG_ITER + ITER_COUNT], rax
    test dword ptr [\file + FILE_FLAGS], O_NONBLOCK
    je 1f
    mov dword ptr [rsp + MSG_FLAGS], MSG_DONTWAIT
1:
.endm
.macro MSG_TO_ITER iter
    mov rcx, [rsp + MSG_ITER + ITER_BASE]
    mov [\iter + ITER_BASE], rcx
    mov rcx, [rsp + MSG_ITER + ITER_COUNT]
    mov [\iter + ITER_COUNT], rcx
.endm

FUNC sock_write_iter                    # rdi kiocb, rsi iter; rax bytes or an error
    ENTER3
    sub rsp, MSG_SIZE
    mov r12, rsi
    mov rbx, [rdi + KI_FILP]
    MSG_FROM_ITER r12, rbx
    mov rdi, [rbx + FILE_PRIVATE]
    mov rsi, rsp
    call sock_sendmsg
    MSG_TO_ITER r12
    LEAVE3
ENDFUNC sock_write_iter

FUNC sock_read_iter                     # rdi kiocb, rsi iter; rax bytes or an error
    ENTER3
    sub rsp, MSG_SIZE
    mov r12, rsi
    mov rbx, [rdi + KI_FILP]
    MSG_FROM_ITER r12, rbx
    mov rdi, [rbx + FILE_PRIVATE]
    mov rsi, rsp
    mov edx, [rsp + MSG_FLAGS]
    call sock_recvmsg
    MSG_TO_ITER r12
    LEAVE3
ENDFUNC sock_read_iter

FUNC sock_poll                          # rdi file, rsi poll_table or 0; eax events
    PROLOGUE
    mov rdx, rsi
    mov rsi, [rdi + FILE_PRIVATE]
    mov rax, [rsi + SOCKET_OPS]
    call [rax + OPS_POLL]
    EPILOGUE
ENDFUNC sock_poll

.data
.balign 64
OBJECT socket_file_ops
    .quad 0, 0, 0, sock_read_iter, sock_write_iter, 0, sock_poll, 0, 0, 0, 0, sock_close, 0
ENDOBJECT socket_file_ops
OBJECT sock_mnt
    .quad 0, 0
    .long 0, 0
    .quad 1, 0, 0, 0, sockfs_name
ENDOBJECT sock_mnt
sockfs_name:
    .asciz "sockfs"
socket_name:
    .asciz "socket"
.text
