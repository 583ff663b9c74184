# kernel/cred.c, kernel/capability.c: who a task is and what it may do. Credentials never change
# once they are committed; a task gets new ones, and the old go when the last reader is through.
# Left out: keyrings, user name spaces, the objective kind of credentials.

.text

FUNC prepare_creds                      # rax a copy of ours to be changed, or 0
    ENTER2
    mov edi, CRED_SIZE
    mov esi, GFP_KERNEL
    call __kmalloc
    test rax, rax
    je .Lout
    mov rbx, rax
    CURRENT_CRED rsi
    mov rdi, rbx
    mov edx, CRED_SIZE
    call memcpy
    mov dword ptr [rbx + CRED_USAGE], 1
    mov rdi, rbx
    CURRENT_CRED rsi
    mov edx, GFP_KERNEL
    call security_prepare_creds
    mov rax, rbx
.Lout:
    LEAVE2
ENDFUNC prepare_creds

FUNC prepare_exec_creds
    PROLOGUE
    call prepare_creds
    test rax, rax
    je 1f
    mov ecx, [rax + CRED_EUID]
    mov [rax + CRED_SUID], ecx
    mov [rax + CRED_FSUID], ecx
    mov ecx, [rax + CRED_EGID]
    mov [rax + CRED_SGID], ecx
    mov [rax + CRED_FSGID], ecx
1:
    EPILOGUE
ENDFUNC prepare_exec_creds

# Drop a reference to \cred, which must not be rdi's only copy; clobbers like a call.
.macro PUT_CRED cred
    mov rdi, \cred
    lock dec dword ptr [rdi + CRED_USAGE]
    jne 1f
    call __put_cred
1:
.endm

FUNC commit_creds                       # rdi new credentials, consumed; 0
    ENTER2
    mov rbx, rdi
    CURRENT_CRED r12
    mov rax, gs:[CURRENT_TASK]
    mov [rax + TASK_CRED], rbx
    PUT_CRED r12
    xor eax, eax
    LEAVE2
ENDFUNC commit_creds

FUNC abort_creds                        # rdi new credentials that were never committed
    PROLOGUE
    lock dec dword ptr [rdi + CRED_USAGE]
    jne 1f
    call __put_cred
1:
    EPILOGUE
ENDFUNC abort_creds

FUNC override_creds                     # rdi credentials to act with; rax ours, for revert_creds
    PROLOGUE
    lock inc dword ptr [rdi + CRED_USAGE]
    CURRENT_CRED rax
    mov rcx, gs:[CURRENT_TASK]
    mov [rcx + TASK_CRED], rdi
    EPILOGUE
ENDFUNC override_creds

FUNC revert_creds                       # rdi what override_creds returned
    ENTER2
    CURRENT_CRED r12
    mov rax, gs:[CURRENT_TASK]
    mov [rax + TASK_CRED], rdi
    PUT_CRED r12
    LEAVE2
ENDFUNC revert_creds

FUNC __put_cred                         # rdi credentials without references
    PROLOGUE
    mov rax, offset init_cred
    cmp rdi, rax
    je 1f
    add rdi, CRED_RCU
    mov rsi, offset put_cred_rcu
    call call_rcu
1:
    EPILOGUE
ENDFUNC __put_cred

FUNC put_cred_rcu                       # rdi their rcu_head
    ENTER1
    push rax
    lea rbx, [rdi - CRED_RCU]
    mov rdi, rbx
    call security_cred_free
    mov rdi, rbx
    call kfree
    LEAVE1
ENDFUNC put_cred_rcu

FUNC get_task_cred                      # rdi task; rax its credentials with a reference
    PROLOGUE
    mov rax, [rdi + TASK_CRED]
    test rax, rax
    jne 1f
    mov rax, offset init_cred
1:
    lock inc dword ptr [rax + CRED_USAGE]
    EPILOGUE
ENDFUNC get_task_cred

FUNC copy_creds                         # rdi new task, rsi clone flags; 0
    ENTER1
    push rax
    mov rbx, rdi
    call get_task_cred
    mov [rbx + TASK_CRED], rax
    xor eax, eax
    LEAVE1
ENDFUNC copy_creds

FUNC exit_creds                         # rdi dead task
    ENTER2
    mov r12, [rdi + TASK_CRED]
    mov qword ptr [rdi + TASK_CRED], 0
    test r12, r12
    je .Lout
    PUT_CRED r12
.Lout:
    LEAVE2
ENDFUNC exit_creds

# --- capabilities ---------------------------------------------------------------------------------

FUNC capable                            # edi capability; eax whether the current task has it
    PROLOGUE
    mov esi, edi
    mov rdi, offset init_user_ns
    call ns_capable
    EPILOGUE
ENDFUNC capable

FUNC ns_capable                         # rdi user name space, esi capability
    PROLOGUE
    mov edx, esi
    mov rsi, rdi
    CURRENT_CRED rdi
    xor ecx, ecx
    call security_capable
    test eax, eax
    sete al
    movzx eax, al
    EPILOGUE
ENDFUNC ns_capable

FUNC has_capability                     # rdi task, esi capability
    ENTER2
    mov r12d, esi
    call get_task_cred
    mov rbx, rax
    mov rdi, rax
    mov rsi, offset init_user_ns
    mov edx, r12d
    xor ecx, ecx
    call security_capable
    mov r12d, eax
    PUT_CRED rbx
    xor eax, eax
    test r12d, r12d
    sete al
    LEAVE2
ENDFUNC has_capability

.data
.balign 64
OBJECT init_cred
    .long 4
    .zero 32
    .long 0
    .quad 0
    .quad 0x1ffffffffff
    .quad 0x1ffffffffff
    .quad 0x1ffffffffff
    .quad 0
    .zero 24
ENDOBJECT init_cred
OBJECT init_user_ns
    .quad 0
ENDOBJECT init_user_ns
.text
