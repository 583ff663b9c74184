# fs/dcache.c: names and the tree they form. A dentry nobody uses stays in the hash and on the LRU of its
# super block, unless its file system wants it gone. Left out: aliases, seqcounts (a walk under RCU never
# sleeps, and dentries are freed at once).

.text

DHASH_BITS = 10
D_UNUSED_MAX = 512                      # more unused dentries of a super block are pruned

FUNC_NOTRACE dcache_init
    PROLOGUE
    mov rdi, offset dentry_cache_name
    mov esi, DENTRY_BYTES
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + dentry_cache], rax
    EPILOGUE
ENDFUNC dcache_init

# rdi parent (salt), rsi name: eax hash and edx length of its first component, which ends at a / or NUL.
FUNC_NOTRACE hash_name
    mov eax, edi
    xor edx, edx
.Lnext:
    movzx ecx, byte ptr [rsi+rdx]
    test ecx, ecx
    je .Lout
    cmp ecx, 0x2f                       # /
    je .Lout
    xor eax, ecx
    imul eax, eax, 0x01000193
    inc rdx
    jmp .Lnext
.Lout:
    ret
ENDFUNC hash_name

FUNC full_name_hash                     # rdi parent (salt), rsi name, edx length; eax as hash_name has it
    PROLOGUE
    mov eax, edi
    xor r8d, r8d
.Lnext:
    cmp r8d, edx
    jae .Lout
    movzx ecx, byte ptr [rsi+r8]
    xor eax, ecx
    imul eax, eax, 0x01000193
    inc r8
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC full_name_hash

# esi hash: rax its bucket.
FUNC_NOTRACE d_hash
    imul esi, esi, 0x61c88647
    shr esi, 32 - DHASH_BITS
    mov eax, esi
    lea rax, [dentry_hashtable + rax*8]
    ret
ENDFUNC d_hash

# Is rdi the child of rsi called rdx (qstr)? ZF when it is. Clobbers rcx, r8-r11, rax.
FUNC_NOTRACE d_name_equal
    mov eax, [rdx+QSTR_HASH]
    cmp [rdi+DENTRY_NAME+QSTR_HASH], eax
    jne .Lout
    cmp [rdi+DENTRY_PARENT], rsi
    jne .Lout
    mov ecx, [rdx+QSTR_LEN]
    cmp [rdi+DENTRY_NAME+QSTR_LEN], ecx
    jne .Lout
    mov r8, [rdi+DENTRY_NAME+QSTR_NAME]
    mov r9, [rdx+QSTR_NAME]
.Lbyte:
    sub ecx, 1
    jb .Lequal
    mov al, [r8+rcx]
    cmp [r9+rcx], al
    je .Lbyte
.Lout:
    ret
.Lequal:
    xor eax, eax
    ret
ENDFUNC d_name_equal

FUNC __d_lookup_rcu                     # rdi parent, rsi qstr; rax dentry without a reference, or 0
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov esi, [rsi+QSTR_HASH]
    call d_hash
    mov rdi, rax
    jmp .Lfirst
.Lnext:
    mov rsi, rbx
    mov rdx, r12
    call d_name_equal
    je .Lfound
    add rdi, DENTRY_HASH_NEXT
.Lfirst:
    mov rdi, [rdi]
    test rdi, rdi
    jne .Lnext
.Lfound:
    mov rax, rdi
    LEAVE2
ENDFUNC __d_lookup_rcu

FUNC __d_lookup                         # rdi parent, rsi qstr; rax dentry with a reference, or 0
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    call __rcu_read_lock
    mov esi, [r12+QSTR_HASH]
    call d_hash
    mov r13, [rax]
.Lnext:
    test r13, r13
    je .Lout
    mov rdi, r13
    mov rsi, rbx
    mov rdx, r12
    call d_name_equal
    je .Lfound
    mov r13, [r13+DENTRY_HASH_NEXT]
    jmp .Lnext
.Lfound:
    lea rdi, [r13+DENTRY_LOCK]
    call _raw_spin_lock
    inc dword ptr [r13+DENTRY_COUNT]
    lea rdi, [r13+DENTRY_LOCK]
    call _raw_spin_unlock
.Lout:
    call __rcu_read_unlock
    mov rax, r13
    LEAVE3
ENDFUNC __d_lookup

FUNC d_lookup                           # rdi parent, rsi qstr; rax dentry with a reference, or 0
    PROLOGUE
    call __d_lookup
    EPILOGUE
ENDFUNC d_lookup

# --- making ---------------------------------------------------------------------------------------

FUNC __d_alloc                          # rdi super block, rsi qstr or 0 (a root); rax dentry or 0
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov rdi, [rip + dentry_cache]
    lea rsi, [rbx+SB_LRU]
    mov edx, GFP_KERNEL | GFP_ZERO
    call kmem_cache_alloc_lru
    mov r13, rax
    test rax, rax
    je .Lout
    lea r14, [r13+DENTRY_INAME]
    test r12, r12
    jne .Lnamed
    mov word ptr [r14], 0x2f
    mov dword ptr [r13+DENTRY_NAME+QSTR_LEN], 1
    jmp .Lname
.Lnamed:
    mov edi, [r12+QSTR_LEN]
    cmp edi, DNAME_INLINE_LEN
    jb .Lcopy
    inc edi
    mov esi, GFP_KERNEL
    call __kmalloc
    mov r14, rax
    test rax, rax
    je .Lnomem
.Lcopy:
    mov rdi, r14
    mov rsi, [r12+QSTR_NAME]
    mov edx, [r12+QSTR_LEN]
    call memcpy
    mov rax, [r12+QSTR_HASH]            # hash and length
    mov [r13+DENTRY_NAME+QSTR_HASH], rax
    shr rax, 32
    mov byte ptr [r14+rax], 0
.Lname:
    mov [r13+DENTRY_NAME+QSTR_NAME], r14
    mov dword ptr [r13+DENTRY_COUNT], 1
    mov [r13+DENTRY_PARENT], r13
    mov [r13+DENTRY_SB], rbx
    lea rax, [r13+DENTRY_LRU]
    LIST_INIT rax
    lea rax, [r13+DENTRY_CHILD]
    LIST_INIT rax
    lea rax, [r13+DENTRY_SUBDIRS]
    LIST_INIT rax
    mov rdi, r13
    mov rsi, [rbx+SB_D_OP]
    call d_set_d_op
    inc qword ptr [rip + nr_dentry]
    mov rax, r13
    LEAVE4
.Lnomem:
    mov rdi, [rip + dentry_cache]
    mov rsi, r13
    call kmem_cache_free
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC __d_alloc

FUNC d_set_d_op                         # rdi dentry, rsi dentry_operations or 0
    PROLOGUE
    mov [rdi+DENTRY_OP], rsi
    test rsi, rsi
    je .Lout
    cmp qword ptr [rsi+DOP_REVALIDATE], 0
    je .Ldelete
    or dword ptr [rdi+DENTRY_FLAGS], DCACHE_OP_REVALIDATE
.Ldelete:
    cmp qword ptr [rsi+DOP_DELETE], 0
    je .Lout
    or dword ptr [rdi+DENTRY_FLAGS], DCACHE_OP_DELETE
.Lout:
    EPILOGUE
ENDFUNC d_set_d_op

FUNC d_alloc                            # rdi parent, rsi qstr; rax dentry or 0
    ENTER2
    mov rbx, rdi
    mov rdi, [rdi+DENTRY_SB]
    call __d_alloc
    test rax, rax
    je .Lout
    mov r12, rax
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_lock
    inc dword ptr [rbx+DENTRY_COUNT]
    mov [r12+DENTRY_PARENT], rbx
    lea rsi, [r12+DENTRY_CHILD]
    lea rdi, [rbx+DENTRY_SUBDIRS]
    LIST_ADD rsi, rdi, rax
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_unlock
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC d_alloc

FUNC d_alloc_pseudo                     # rdi super block, rsi qstr; rax dentry of no directory, or 0
    PROLOGUE
    call __d_alloc
    EPILOGUE
ENDFUNC d_alloc_pseudo

FUNC d_make_root                        # rdi inode or 0; rax dentry or 0
    ENTER2
    mov rbx, rdi
    xor eax, eax
    test rdi, rdi
    je .Lout
    mov rdi, [rdi+INODE_SB]
    xor esi, esi
    call __d_alloc
    mov r12, rax
    test rax, rax
    je .Lnomem
    mov rdi, rax
    mov rsi, rbx
    call d_instantiate
    mov rax, r12
    LEAVE2
.Lnomem:
    mov rdi, rbx
    call iput
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC d_make_root

FUNC __d_instantiate                    # rdi dentry, rsi inode
    PROLOGUE
    mov eax, [rsi+INODE_MODE]
    and eax, S_IFMT
    mov ecx, DCACHE_DIRECTORY_TYPE
    cmp eax, S_IFDIR
    je .Ltype
    mov ecx, DCACHE_REGULAR_TYPE
    cmp eax, S_IFREG
    je .Ltype
    mov ecx, DCACHE_SYMLINK_TYPE
    cmp eax, S_IFLNK
    je .Ltype
    mov ecx, DCACHE_SPECIAL_TYPE
.Ltype:
    mov eax, [rdi+DENTRY_FLAGS]
    and eax, ~DCACHE_ENTRY_TYPE
    or eax, ecx
    mov [rdi+DENTRY_INODE], rsi
    mov [rdi+DENTRY_FLAGS], eax
    EPILOGUE
ENDFUNC __d_instantiate

FUNC d_instantiate                      # rdi dentry, rsi inode or 0, whose reference it takes
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call security_d_instantiate
    test r12, r12
    je .Lout
    lea rdi, [r12+INODE_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    mov rsi, r12
    call __d_instantiate
    lea rdi, [r12+INODE_LOCK]
    call _raw_spin_unlock
.Lout:
    LEAVE2
ENDFUNC d_instantiate

FUNC __d_rehash                         # rdi dentry
    PROLOGUE
    mov esi, [rdi+DENTRY_NAME+QSTR_HASH]
    call d_hash
    mov rcx, [rax]
    mov [rdi+DENTRY_HASH_NEXT], rcx
    mov [rdi+DENTRY_HASH_PPREV], rax
    mov [rax], rdi
    test rcx, rcx
    je .Lout
    add rdi, DENTRY_HASH_NEXT
    mov [rcx+DENTRY_HASH_PPREV], rdi
.Lout:
    EPILOGUE
ENDFUNC __d_rehash

FUNC d_rehash                           # rdi dentry
    ENTER1
    push 0
    mov rbx, rdi
    lea rdi, [rdi+DENTRY_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    call __d_rehash
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_unlock
    LEAVE1
ENDFUNC d_rehash

FUNC d_add                              # rdi dentry, rsi inode or 0: into the hash, with or without a file
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call d_instantiate
    mov rdi, rbx
    call d_rehash
    LEAVE2
ENDFUNC d_add

FUNC d_splice_alias                     # rdi inode, 0 or error, rsi dentry; rax 0 or error
    PROLOGUE
    mov rax, rdi
    cmp rdi, ERR_MIN
    jae .Lout
    xchg rdi, rsi
    call d_add
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC d_splice_alias

FUNC __d_drop                           # rdi dentry: out of the hash; its lock is held
    PROLOGUE
    xor eax, eax
    xchg rax, [rdi+DENTRY_HASH_PPREV]
    test rax, rax
    je .Lout
    mov rcx, [rdi+DENTRY_HASH_NEXT]
    mov [rax], rcx
    test rcx, rcx
    je .Lout
    mov [rcx+DENTRY_HASH_PPREV], rax
.Lout:
    EPILOGUE
ENDFUNC __d_drop

FUNC d_drop                             # rdi dentry
    ENTER1
    push 0
    mov rbx, rdi
    lea rdi, [rdi+DENTRY_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    call __d_drop
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_unlock
    LEAVE1
ENDFUNC d_drop

.data
.balign 64
OBJECT dentry_hashtable
    .zero 8 * 1024
ENDOBJECT dentry_hashtable
OBJECT dentry_cache
    .quad 0
ENDOBJECT dentry_cache
OBJECT nr_dentry
    .quad 0
ENDOBJECT nr_dentry
dentry_cache_name:
    .asciz "dentry"
