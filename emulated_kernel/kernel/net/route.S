# net/ipv4/route.c, fib_frontend.c: which way a packet goes. The table is sorted by falling prefix
# length, so the first match is the longest. Left out: caches of routes, policies, forwarding.

.text

# struct fib_alias, as far as it goes: {prefix, mask, dst_entry}
FIB_PREFIX = 0
FIB_MASK = 4
FIB_DST = 8
FIB_SIZE = 16

FUNC fib_table_lookup                   # rdi table, esi address; rax its dst_entry or 0
    PROLOGUE
.Lnext:
    mov rax, [rdi + FIB_DST]
    test rax, rax
    je .Lout
    mov ecx, esi
    and ecx, [rdi + FIB_MASK]
    cmp ecx, [rdi + FIB_PREFIX]
    je .Lout
    add rdi, FIB_SIZE
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC fib_table_lookup

# rdi net, esi address; eax 2 local, 3 broadcast, 5 multicast, 1 other
FUNC inet_addr_type
    PROLOGUE
    mov eax, 3
    cmp esi, -1
    je .Lout
    cmp esi, 0xff02000a                 # 10.0.2.255
    je .Lout
    mov eax, 5
    mov ecx, esi
    and ecx, 0xf0
    cmp ecx, 0xe0
    je .Lout
    mov rdi, offset fib_main
    call fib_table_lookup
    mov rcx, rax
    mov eax, 1
    mov rdx, offset local_dst
    cmp rcx, rdx
    jne .Lout
    mov eax, 2
.Lout:
    EPILOGUE
ENDFUNC inet_addr_type

FUNC __ip_dev_find                      # rdi net, esi address, edx 0; rax the dev that has it, or 0
    PROLOGUE
    mov rax, [rip + dev_base_head]
.Lnext:
    test rax, rax
    je .Lout
    cmp [rax + DEV_IN_ADDR], esi
    je .Lout
    mov rax, [rax + DEV_NEXT]
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC __ip_dev_find

FUNC ip_route_output_flow               # rdi net, rsi flowi4, rdx sock; rax dst_entry or an error
    PROLOGUE
    xor edx, edx
    call ip_route_output_key_hash
    EPILOGUE
ENDFUNC ip_route_output_flow

FUNC ip_route_output_key_hash           # rdi net, rsi flowi4, rdx skb
    ENTER2
    mov rbx, rsi
    call __rcu_read_lock
    mov rdi, rbx
    call ip_route_output_key_hash_rcu
    mov r12, rax
    call __rcu_read_unlock
    mov rax, r12
    LEAVE2
ENDFUNC ip_route_output_key_hash

FUNC ip_route_output_key_hash_rcu       # rdi flowi4, whose source is filled in
    ENTER1
    push rax
    mov rbx, rdi
    mov esi, [rdi + FL4_DADDR]
    test esi, esi
    jne 1f
    mov esi, 0x0100007f                 # nowhere is here
    mov [rbx + FL4_DADDR], esi
1:
    mov rdi, offset fib_main
    call fib_table_lookup
    test rax, rax
    je .Lunreachable
    lock inc qword ptr [rax + DST_USES]
    cmp dword ptr [rbx + FL4_SADDR], 0
    jne .Lout
    mov ecx, [rax + DST_SADDR]
    test ecx, ecx
    jne 2f
    mov ecx, [rbx + FL4_DADDR]          # to ourselves: from the same address
2:
    mov [rbx + FL4_SADDR], ecx
.Lout:
    LEAVE1
.Lunreachable:
    mov rax, -ENETUNREACH
    LEAVE1
ENDFUNC ip_route_output_key_hash_rcu

# rdi skb, esi destination, edx source, ecx tos, r8 dev; 0 or error
FUNC ip_route_input_noref
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    call __rcu_read_lock
    mov rdi, rbx
    mov esi, r12d
    call ip_route_input_slow
    mov ebx, eax
    call __rcu_read_unlock
    mov eax, ebx
    LEAVE2
ENDFUNC ip_route_input_noref

FUNC ip_route_input_slow
    ENTER1
    push rax
    mov rbx, rdi
    call inet_addr_type
    cmp eax, 2
    je .Llocal
    cmp eax, 3
    je .Llocal
    mov rax, offset error_dst           # not for us, and we do not forward
    jmp .Lset
.Llocal:
    mov rax, offset local_dst
.Lset:
    mov [rbx + SKB_DST], rax
    lock inc qword ptr [rax + DST_USES]
    xor eax, eax
    LEAVE1
ENDFUNC ip_route_input_slow

FUNC ipv4_mtu                           # rdi dst_entry; eax
    PROLOGUE
    mov rax, [rdi + DST_DEV]
    mov eax, [rax + DEV_MTU]
    mov ecx, 65535
    cmp eax, ecx
    cmova eax, ecx
    EPILOGUE
ENDFUNC ipv4_mtu

FUNC ipv4_default_advmss                # rdi dst_entry; eax
    PROLOGUE
    call ipv4_mtu
    sub eax, IPHDR_SIZE + TCPHDR_SIZE
    EPILOGUE
ENDFUNC ipv4_default_advmss

.data
.balign 64
OBJECT fib_main
    .long 0x0f02000a, 0xffffffff        # 10.0.2.15
    .quad local_dst
    .long 0x0002000a, 0x00ffffff        # 10.0.2.0/24
    .quad link_dst
    .long 0x0000007f, 0x000000ff        # 127.0.0.0/8
    .quad local_dst
    .long 0, 0                          # everything else
    .quad gateway_dst
    .quad 0, 0
ENDOBJECT fib_main
OBJECT local_dst
    .quad loopback_dev, ip_local_deliver, ip_output
    .long 0, 0
    .quad 0, 0
ENDOBJECT local_dst
OBJECT link_dst
    .quad e1000_netdev, ip_error, ip_output
    .long 0, 0x0f02000a
    .quad 0, 0
ENDOBJECT link_dst
OBJECT gateway_dst
    .quad e1000_netdev, ip_error, ip_output
    .long 0x0202000a, 0x0f02000a        # by way of 10.0.2.2
    .quad 0, 0
ENDOBJECT gateway_dst
OBJECT error_dst
    .quad loopback_dev, ip_error, ip_output
    .long 0, 0
    .quad ENETUNREACH, 0
ENDOBJECT error_dst
.text
