# lib/xarray.c: the pages of an address space by their index, six bits of it a level. Without call
# sites, as in Linux. Writers hold MAPPING_LOCK.

.text

FUNC_NOTRACE radix_tree_init
    push rbp
    mov rbp, rsp
    mov rdi, offset radix_tree_node_name
    mov esi, NODE_BYTES
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + radix_tree_node_cachep], rax
    pop rbp
    ret
ENDFUNC radix_tree_init

FUNC_NOTRACE xas_load                   # rdi mapping, rsi index; rax entry or 0
    mov rax, [rdi+MAPPING_ROOT]
    test rax, rax
    je .Lout
    mov ecx, [rax+NODE_SHIFT]
    mov rdx, rsi
    shr rdx, cl
    cmp rdx, 64
    jae .Lnone
.Ldown:
    mov rdx, rsi
    shr rdx, cl
    and edx, 63
    mov rax, [rax+rdx*8+NODE_SLOTS]
    test rax, rax
    je .Lout
    sub ecx, 6
    jae .Ldown
.Lout:
    ret
.Lnone:
    xor eax, eax
    ret
ENDFUNC xas_load

# The first entry with rsi <= index <= rdx in mapping rdi: rax entry or 0, rdx its index.
FUNC_NOTRACE xas_find
    mov r9, rdx
.Lrestart:
    cmp rsi, r9
    ja .Lnone
    mov rax, [rdi+MAPPING_ROOT]
    test rax, rax
    je .Lnone
    mov ecx, [rax+NODE_SHIFT]
    mov rdx, rsi
    shr rdx, cl
    cmp rdx, 64
    jae .Lnone
.Ldown:
    mov rdx, rsi
    shr rdx, cl
    mov r8, rdx
    and edx, 63
    mov rax, [rax+rdx*8+NODE_SLOTS]
    test rax, rax
    je .Lhole
    sub ecx, 6
    jae .Ldown
    mov rdx, rsi
    ret
.Lhole:                                 # nothing under this slot: on to the next one
    inc r8
    shl r8, cl
    mov rsi, r8
    test rsi, rsi
    jne .Lrestart
.Lnone:
    xor eax, eax
    ret
ENDFUNC xas_find

# A node for level ecx (shift) under parent rdx at slot r8d; rax node or 0.
FUNC_NOTRACE xas_alloc
    ENTER3
    push 0
    mov ebx, ecx
    mov r12, rdx
    mov r13d, r8d
    mov rdi, [rip + radix_tree_node_cachep]
    mov esi, GFP_ATOMIC | GFP_ZERO
    call kmem_cache_alloc
    test rax, rax
    je .Lout
    mov [rax+NODE_SHIFT], ebx
    mov [rax+NODE_PARENT], r12
    mov [rax+NODE_OFFSET], r13
.Lout:
    LEAVE3
ENDFUNC xas_alloc

# rdi mapping, rsi index, rdx entry (0: take out); rax the entry that was there, or -ENOMEM.
FUNC_NOTRACE xas_store
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, [rdi+MAPPING_ROOT]
    test r14, r14
    jne .Lgrow
    xor eax, eax
    test r13, r13
    je .Lout
    xor ecx, ecx
    xor edx, edx
    xor r8d, r8d
    call xas_alloc
    test rax, rax
    je .Lnomem
    mov r14, rax
    mov [rbx+MAPPING_ROOT], rax
.Lgrow:
    mov ecx, [r14+NODE_SHIFT]
    mov rax, r12
    shr rax, cl
    cmp rax, 64
    jb .Ldown
    xor eax, eax
    test r13, r13
    je .Lout
    add ecx, 6
    cmp dword ptr [r14+NODE_COUNT], 0
    jne .Ltop
    mov [r14+NODE_SHIFT], ecx           # an empty root grows by itself
    jmp .Lgrow
.Ltop:
    xor edx, edx
    xor r8d, r8d
    call xas_alloc
    test rax, rax
    je .Lnomem
    mov [rax+NODE_SLOTS], r14
    mov dword ptr [rax+NODE_COUNT], 1
    mov [r14+NODE_PARENT], rax
    mov r14, rax
    mov [rbx+MAPPING_ROOT], rax
    jmp .Lgrow
.Ldown:                                 # r14 node
    mov ecx, [r14+NODE_SHIFT]
    mov r15, r12
    shr r15, cl
    and r15d, 63
    test ecx, ecx
    je .Lleaf
    mov rax, [r14+r15*8+NODE_SLOTS]
    test rax, rax
    jne .Lenter
    test r13, r13
    je .Lout
    sub ecx, 6
    mov rdx, r14
    mov r8d, r15d
    call xas_alloc
    test rax, rax
    je .Lnomem
    mov [r14+r15*8+NODE_SLOTS], rax
    inc dword ptr [r14+NODE_COUNT]
.Lenter:
    mov r14, rax
    jmp .Ldown
.Lleaf:
    mov r12, [r14+r15*8+NODE_SLOTS]     # the former entry
    mov [r14+r15*8+NODE_SLOTS], r13
    test r12, r12
    je .Lcount
    dec dword ptr [r14+NODE_COUNT]
.Lcount:
    test r13, r13
    je .Lempty
    inc dword ptr [r14+NODE_COUNT]
.Lempty:
    cmp dword ptr [r14+NODE_COUNT], 0
    jne .Lstored
    mov r15, [r14+NODE_PARENT]
    mov rax, [r14+NODE_OFFSET]
    test r15, r15
    je .Lroot
    mov qword ptr [r15+rax*8+NODE_SLOTS], 0
    dec dword ptr [r15+NODE_COUNT]
    jmp .Lfree
.Lroot:
    mov qword ptr [rbx+MAPPING_ROOT], 0
.Lfree:
    mov rdi, [rip + radix_tree_node_cachep]
    mov rsi, r14
    call kmem_cache_free
    mov r14, r15
    test r14, r14
    jne .Lempty
.Lstored:
    mov rax, r12
    jmp .Lout
.Lnomem:
    mov r12, -ENOMEM
    test r14, r14
    jne .Lempty
    mov rax, r12
.Lout:
    LEAVE5
ENDFUNC xas_store

.data
.balign 8
OBJECT radix_tree_node_cachep
    .quad 0
ENDOBJECT radix_tree_node_cachep
radix_tree_node_name:
    .asciz "radix_tree_node"
