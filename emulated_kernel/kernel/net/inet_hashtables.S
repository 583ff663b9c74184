# net/ipv4/inet_hashtables.c: from the addresses and ports of a packet to its socket. One hash for
# connections (and requests for them), one for listeners, one of the ports in use. A lock each.

.text

# edi our address, esi our port (host), edx theirs, ecx their port; eax hash
FUNC inet_ehashfn
    PROLOGUE
    shl esi, 16
    movzx ecx, cx
    or esi, ecx
    mov eax, edx
    mov edx, esi
    mov esi, eax
    mov ecx, [rip + inet_ehash_secret]
    call jhash_3words
    EPILOGUE
ENDFUNC inet_ehashfn

# rax = head of the chain of sock rdi in the hash of connections. Clobbers like a call.
.macro SK_EHASH_CHAIN sk
    movzx esi, word ptr [\sk + SK_NUM]
    movzx ecx, word ptr [\sk + SK_DPORT]
    mov edx, [\sk + SK_DADDR]
    mov edi, [\sk + SK_RCV_SADDR]
    call inet_ehashfn
    and eax, INET_HASH_SIZE - 1
    lea rax, [rax*8 + tcp_ehash]
.endm

FUNC inet_ehash_insert                  # rdi sock, rsi the request it comes from or 0; eax 1
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    SK_EHASH_CHAIN rbx
    mov r13, rax
    mov rdi, offset inet_ehash_lock
    call _raw_spin_lock_bh
    test r12, r12
    je .Linsert
    mov rdi, r12
    CHAIN_DEL SK_NEXT
.Linsert:
    mov rdi, r13
    mov rsi, rbx
    CHAIN_ADD SK_NEXT
    SOCK_HOLD rbx
    mov rdi, offset inet_ehash_lock
    call _raw_spin_unlock_bh
    mov eax, 1
    LEAVE3
ENDFUNC inet_ehash_insert

FUNC inet_ehash_nolisten                # rdi sock, rsi request or 0
    PROLOGUE
    call inet_ehash_insert
    EPILOGUE
ENDFUNC inet_ehash_nolisten

FUNC inet_hash                          # rdi sock; 0
    PROLOGUE
    cmp byte ptr [rdi + SK_STATE], TCP_CLOSE
    je 1f
    xor esi, esi
    call __inet_hash
1:
    xor eax, eax
    EPILOGUE
ENDFUNC inet_hash

FUNC __inet_hash                        # rdi sock, rsi request or 0
    ENTER1
    push rax
    mov rbx, rdi
    cmp byte ptr [rdi + SK_STATE], TCP_LISTEN
    je .Llisten
    call inet_ehash_nolisten
    LEAVE1
.Llisten:
    mov rdi, offset inet_listen_lock
    call _raw_spin_lock_bh
    movzx eax, word ptr [rbx + SK_NUM]
    and eax, INET_HASH_SIZE - 1
    lea rdi, [rax*8 + tcp_lhash]
    mov rsi, rbx
    CHAIN_ADD SK_NEXT
    SOCK_HOLD rbx
    mov rdi, offset inet_listen_lock
    call _raw_spin_unlock_bh
    LEAVE1
ENDFUNC __inet_hash

FUNC inet_unhash                        # rdi sock
    ENTER2
    mov rbx, rdi
    cmp qword ptr [rdi + SK_PPREV], 0
    je .Lout
    mov r12, offset inet_ehash_lock
    cmp byte ptr [rdi + SK_STATE], TCP_LISTEN
    jne 3f
    mov r12, offset inet_listen_lock
3:
    mov rdi, r12
    call _raw_spin_lock_bh
    mov rdi, rbx
    CHAIN_DEL SK_NEXT
    mov rdi, r12
    call _raw_spin_unlock_bh
    SOCK_PUT rbx
.Lout:
    LEAVE2
ENDFUNC inet_unhash

# edi source and esi its port as the packet has them, edx destination and ecx its port (host): rax
# sock or request with a reference, or 0.
FUNC __inet_lookup_established
    ENTER5
    push rax
    mov r12d, edi
    mov r13d, esi
    mov r14d, edx
    mov r15d, ecx
    mov edi, edx
    mov esi, ecx
    mov edx, r12d
    mov ecx, r13d
    call inet_ehashfn
    and eax, INET_HASH_SIZE - 1
    mov rbx, [rax*8 + tcp_ehash]
.Lnext:
    test rbx, rbx
    je .Lout
    cmp [rbx + SK_DADDR], r12d
    jne .Lother
    cmp [rbx + SK_RCV_SADDR], r14d
    jne .Lother
    cmp [rbx + SK_DPORT], r13w
    jne .Lother
    cmp [rbx + SK_NUM], r15w
    je .Lfound
.Lother:
    mov rbx, [rbx + SK_NEXT]
    jmp .Lnext
.Lfound:
    SOCK_HOLD rbx
.Lout:
    mov rax, rbx
    LEAVE5
ENDFUNC __inet_lookup_established

# As above, for a listener: rax with a reference, or 0.
FUNC __inet_lookup_listener
    ENTER2
    mov eax, ecx
    and eax, INET_HASH_SIZE - 1
    mov rdi, [rax*8 + tcp_lhash]
    mov esi, edx
    mov edx, ecx
    call inet_lhash2_lookup
    test rax, rax
    je 1f
    SOCK_HOLD rax
1:
    LEAVE2
ENDFUNC __inet_lookup_listener

# rdi first of the chain, esi destination, edx its port; rax best match or 0
FUNC inet_lhash2_lookup
    PROLOGUE
    xor eax, eax
    xor r8d, r8d
.Lnext:
    test rdi, rdi
    je .Lout
    cmp [rdi + SK_NUM], dx
    jne .Lother
    mov r9d, 1                          # compute_score
    mov ecx, [rdi + SK_RCV_SADDR]
    test ecx, ecx
    je .Lscore
    cmp ecx, esi
    jne .Lother
    inc r9d
.Lscore:
    cmp r9d, r8d
    jbe .Lother
    mov r8d, r9d
    mov rax, rdi
.Lother:
    mov rdi, [rdi + SK_NEXT]
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC inet_lhash2_lookup

# --- ports ----------------------------------------------------------------------------------------

FUNC inet_bind_hash                     # rdi sock, esi port
    ENTER1
    push rax
    mov rbx, rdi
    mov [rbx + SK_NUM], si
    mov eax, esi
    xchg al, ah
    mov [rbx + SK_SPORT], ax
    mov eax, esi
    and eax, INET_HASH_SIZE - 1
    lea rdi, [rax*8 + tcp_bhash]
    mov rsi, rbx
    CHAIN_ADD SK_BIND_NEXT
    LEAVE1
ENDFUNC inet_bind_hash

FUNC inet_put_port                      # rdi sock
    ENTER1
    push rax
    mov rbx, rdi
    mov rdi, offset inet_bind_lock
    call _raw_spin_lock_bh
    mov rdi, rbx
    CHAIN_DEL SK_BIND_NEXT
    mov word ptr [rbx + SK_NUM], 0
    mov rdi, offset inet_bind_lock
    call _raw_spin_unlock_bh
    LEAVE1
ENDFUNC inet_put_port

# Does another sock stand in the way of rdi on port esi? The bind lock is held. eax
FUNC inet_csk_bind_conflict
    PROLOGUE
    mov eax, esi
    and eax, INET_HASH_SIZE - 1
    mov rcx, [rax*8 + tcp_bhash]
.Lnext:
    xor eax, eax
    test rcx, rcx
    je .Lout
    cmp rcx, rdi
    je .Lother
    cmp [rcx + SK_NUM], si
    jne .Lother
    mov edx, [rcx + SK_RCV_SADDR]
    test edx, edx
    je .Laddress
    cmp dword ptr [rdi + SK_RCV_SADDR], 0
    je .Laddress
    cmp edx, [rdi + SK_RCV_SADDR]
    jne .Lother
.Laddress:
    cmp byte ptr [rcx + SK_REUSE], 0
    je .Lconflict
    cmp byte ptr [rdi + SK_REUSE], 0
    je .Lconflict
    cmp byte ptr [rcx + SK_STATE], TCP_LISTEN
    je .Lconflict
.Lother:
    mov rcx, [rcx + SK_BIND_NEXT]
    jmp .Lnext
.Lconflict:
    mov eax, 1
.Lout:
    EPILOGUE
ENDFUNC inet_csk_bind_conflict

FUNC inet_csk_get_port                  # rdi sock, esi port (host), 0: any; eax 0 when it is ours
    ENTER5
    push rax
    mov rbx, rdi
    mov r12d, esi
    mov r15d, esi
    mov rdi, offset inet_bind_lock
    call _raw_spin_lock_bh
    mov r13d, 28232                     # 32768 to 60999
    xor r14d, r14d
    test r12d, r12d
    jne .Lcheck
    call get_random_u32
    xor edx, edx
    div r13d
    mov r14d, edx
.Ltry:
    lea r12d, [r14 + 32768]
.Lcheck:
    mov rdi, rbx
    mov esi, r12d
    call inet_csk_bind_conflict
    test eax, eax
    je .Lfree
    test r15d, r15d
    jne .Ltaken
    dec r13d
    je .Ltaken
    inc r14d
    cmp r14d, 28232
    jb .Ltry
    xor r14d, r14d
    jmp .Ltry
.Lfree:
    mov rdi, rbx
    mov esi, r12d
    call inet_bind_hash
    xor r13d, r13d
    jmp .Lout
.Ltaken:
    mov r13d, 1
.Lout:
    mov rdi, offset inet_bind_lock
    call _raw_spin_unlock_bh
    mov eax, r13d
    LEAVE5
ENDFUNC inet_csk_get_port

FUNC inet_hash_connect                  # rdi death row, rsi sock about to connect; 0 or an error
    PROLOGUE
    mov rdi, rsi
    call __inet_hash_connect
    EPILOGUE
ENDFUNC inet_hash_connect

FUNC __inet_hash_connect                # rdi sock: a port if it has none, and into the hash
    ENTER1
    push rax
    mov rbx, rdi
    cmp word ptr [rdi + SK_NUM], 0
    jne .Lbound
    xor esi, esi
    call inet_csk_get_port
    test eax, eax
    mov eax, -EADDRNOTAVAIL
    jne .Lout
.Lbound:
    mov rdi, rbx
    call __inet_check_established
    test eax, eax
    jne .Lout
    mov rdi, rbx
    xor esi, esi
    call inet_ehash_nolisten
    xor eax, eax
.Lout:
    LEAVE1
ENDFUNC __inet_hash_connect

# rdi sock; 0, or -EADDRNOTAVAIL when there is such a connection
FUNC __inet_check_established
    ENTER1
    push rax
    mov rbx, rdi
    mov edi, [rbx + SK_DADDR]
    movzx esi, word ptr [rbx + SK_DPORT]
    mov edx, [rbx + SK_RCV_SADDR]
    movzx ecx, word ptr [rbx + SK_NUM]
    call __inet_lookup_established
    test rax, rax
    je .Lout
    mov rdi, rax
    call sock_gen_put
    mov eax, -EADDRNOTAVAIL
.Lout:
    LEAVE1
ENDFUNC __inet_check_established

FUNC sock_gen_put                       # rdi sock or request
    PROLOGUE
    lock dec dword ptr [rdi + SK_REFCNT]
    jne 1f
    cmp byte ptr [rdi + SK_STATE], TCP_NEW_SYN_RECV
    je 2f
    call sk_free
    jmp 1f
2:
    call reqsk_free
1:
    EPILOGUE
ENDFUNC sock_gen_put

FUNC_NOTRACE reqsk_free                 # rdi request
    push rbp
    mov rbp, rsp
    push rbx
    push rax
    mov rbx, rdi
    mov rdi, [rdi + RSK_LISTENER]
    test rdi, rdi
    je 1f
    lock dec dword ptr [rdi + SK_REFCNT]
    jne 1f
    call sk_free
1:
    mov rdi, rbx
    call kfree
    mov rbx, [rbp - 8]
    leave
    ret
ENDFUNC reqsk_free

.data
.balign 64
OBJECT tcp_ehash
    .zero INET_HASH_SIZE * 8
ENDOBJECT tcp_ehash
OBJECT tcp_lhash
    .zero INET_HASH_SIZE * 8
ENDOBJECT tcp_lhash
OBJECT tcp_bhash
    .zero INET_HASH_SIZE * 8
ENDOBJECT tcp_bhash
inet_ehash_lock:
    .long 0
inet_listen_lock:
    .long 0
inet_bind_lock:
    .long 0
inet_ehash_secret:
    .long 0x2f71a0d3
.text
