# security/security.c: the hooks the kernel asks before it acts. One module is stacked behind them
# in earnest, capabilities; apparmor runs unconfined and looks at its label; every hook keeps
# count.

.text

LABEL_USES = 0
LABEL_DENY = 8
LABEL_DENY_CAPS = 16

# The hook's counter goes up and every module agrees.
.macro SECURITY_HOOK name, index
FUNC \name
    PROLOGUE
    lock inc qword ptr [rip + security_hook_calls + \index * 8]
    xor eax, eax
    EPILOGUE
ENDFUNC \name
.endm

SECURITY_HOOK security_task_alloc, 0
SECURITY_HOOK security_task_free, 1
SECURITY_HOOK security_task_kill, 2
SECURITY_HOOK security_cred_free, 3
SECURITY_HOOK security_prepare_creds, 4
SECURITY_HOOK security_file_alloc, 5
SECURITY_HOOK security_file_free, 6
SECURITY_HOOK security_file_open, 7
SECURITY_HOOK security_file_ioctl, 8
SECURITY_HOOK security_file_fcntl, 9
SECURITY_HOOK security_mmap_file, 10
SECURITY_HOOK security_mmap_addr, 11
SECURITY_HOOK security_inode_alloc, 12
SECURITY_HOOK security_inode_free, 13
SECURITY_HOOK security_inode_permission, 14
SECURITY_HOOK security_inode_getattr, 15
SECURITY_HOOK security_inode_setattr, 16
SECURITY_HOOK security_inode_create, 17
SECURITY_HOOK security_inode_unlink, 18
SECURITY_HOOK security_inode_mkdir, 19
SECURITY_HOOK security_inode_rmdir, 20
SECURITY_HOOK security_inode_symlink, 21
SECURITY_HOOK security_inode_rename, 22
SECURITY_HOOK security_inode_readlink, 23
SECURITY_HOOK security_inode_follow_link, 24
SECURITY_HOOK security_d_instantiate, 25
SECURITY_HOOK security_path_mkdir, 26
SECURITY_HOOK security_path_unlink, 27
SECURITY_HOOK security_path_symlink, 28
SECURITY_HOOK security_path_rename, 29
SECURITY_HOOK security_path_truncate, 30
SECURITY_HOOK security_bprm_check, 31
SECURITY_HOOK security_bprm_creds_for_exec, 32
SECURITY_HOOK security_bprm_creds_from_file, 33
SECURITY_HOOK security_bprm_committing_creds, 34
SECURITY_HOOK security_bprm_committed_creds, 35
SECURITY_HOOK security_socket_create, 36
SECURITY_HOOK security_socket_post_create, 37
SECURITY_HOOK security_socket_bind, 38
SECURITY_HOOK security_socket_listen, 39
SECURITY_HOOK security_socket_connect, 40
SECURITY_HOOK security_socket_accept, 41
SECURITY_HOOK security_socket_shutdown, 42
SECURITY_HOOK security_socket_getsockname, 43
SECURITY_HOOK security_sock_rcv_skb, 44
SECURITY_HOOK security_sk_alloc, 45
SECURITY_HOOK security_sk_free, 46
SECURITY_HOOK security_sock_graft, 47
SECURITY_HOOK security_inet_conn_request, 48
SECURITY_HOOK security_inet_conn_established, 49

FUNC security_file_permission           # rdi file, esi mask; 0 or an error
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    lock inc qword ptr [rip + security_hook_calls + 50 * 8]
    call apparmor_file_permission
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov esi, r12d
    call bpf_lsm_file_permission
.Lout:
    LEAVE2
ENDFUNC security_file_permission

# rdi credentials, rsi name space, edx capability, ecx options
FUNC security_capable
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    lock inc qword ptr [rip + security_hook_calls + 51 * 8]
    call cap_capable
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov rsi, r12
    mov edx, r13d
    call apparmor_capable
.Lout:
    LEAVE3
ENDFUNC security_capable

FUNC security_socket_sendmsg            # rdi socket, rsi message, edx size
    ENTER2
    mov rbx, rdi
    lock inc qword ptr [rip + security_hook_calls + 52 * 8]
    call apparmor_socket_sendmsg
    LEAVE2
ENDFUNC security_socket_sendmsg

FUNC security_socket_recvmsg            # rdi socket, rsi message, edx size, ecx flags
    ENTER2
    mov rbx, rdi
    lock inc qword ptr [rip + security_hook_calls + 53 * 8]
    call apparmor_socket_recvmsg
    LEAVE2
ENDFUNC security_socket_recvmsg

# --- capabilities (security/commoncap.c) ----------------------------------------------------------

# rdi credentials, rsi name space, edx capability; 0 or -EPERM
FUNC cap_capable
    PROLOGUE
    mov eax, -EPERM
    cmp edx, 63
    ja 1f
    bt qword ptr [rdi + CRED_CAP_EFFECTIVE], rdx
    jae 1f
    xor eax, eax
1:
    EPILOGUE
ENDFUNC cap_capable

# --- apparmor (security/apparmor/lsm.c, file.c) ---------------------------------------------------
# A label with no profile in it confines nothing.

FUNC apparmor_file_permission           # rdi file, esi mask
    PROLOGUE
    mov rdx, rdi
    mov ecx, esi
    mov rdi, offset unconfined_label
    mov esi, 1
    call aa_file_perm
    EPILOGUE
ENDFUNC apparmor_file_permission

FUNC aa_file_perm                       # rdi label, esi operation, rdx file, ecx mask; 0 or -EACCES
    ENTER2
    mov rbx, rdi
    mov r12d, ecx
    call __rcu_read_lock
    mov ecx, [rbx + LABEL_DENY]
    and ecx, r12d
    mov r12d, ecx
    lock inc qword ptr [rbx + LABEL_USES]
    call __rcu_read_unlock
    xor eax, eax
    test r12d, r12d
    je 1f
    mov eax, -EACCES
1:
    LEAVE2
ENDFUNC aa_file_perm

FUNC apparmor_capable                   # rdi credentials, rsi name space, edx capability
    PROLOGUE
    mov rax, offset unconfined_label
    mov ecx, edx
    mov rdx, [rax + LABEL_DENY_CAPS]
    bt rdx, rcx
    mov eax, 0
    jae 1f
    mov eax, -EPERM
1:
    EPILOGUE
ENDFUNC apparmor_capable

# A socket the label may not use is one of a denied family; unconfined denies none.
.macro APPARMOR_SOCKET name
FUNC \name
    PROLOGUE
    mov rax, offset unconfined_label
    lock inc qword ptr [rax + LABEL_USES]
    mov eax, [rax + LABEL_DENY]
    and eax, MAY_WRITE
    EPILOGUE
ENDFUNC \name
.endm

APPARMOR_SOCKET apparmor_socket_sendmsg
APPARMOR_SOCKET apparmor_socket_recvmsg

FUNC bpf_lsm_file_permission            # no program is attached
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC bpf_lsm_file_permission

.data
.balign 64
OBJECT security_hook_calls
    .zero 54 * 8
ENDOBJECT security_hook_calls
OBJECT unconfined_label
    .quad 0
    .quad 0
    .quad 0
ENDOBJECT unconfined_label
.text
