# mm/slub.c: object caches. Each CPU allocates from a slab of its own without a lock; slabs with free
# objects that no CPU holds wait on the partial list of their cache. Left out: nodes, debugging,
# merging of caches, per-CPU partial lists.

.text

# \reg: kmem_cache -> this CPU's {freelist, slab} of it
.macro CPU_SLAB reg, tmp32, tmp64
    mov \tmp32, gs:[CPU_NUMBER]
    shl \tmp32, 4
    lea \reg, [\reg+\tmp64+CACHE_CPU]
.endm

FUNC setup_object                       # rdi cache, rsi object; rax object
    ENTER1
    push 0
    mov rbx, rsi
    mov rax, [rdi+CACHE_CTOR]
    test rax, rax
    je .Lout
    mov rdi, rsi
    call rax
.Lout:
    mov rax, rbx
    LEAVE1
ENDFUNC setup_object

FUNC allocate_slab                      # rdi cache, esi gfp; rax slab page or 0
    ENTER5
    push 0
    mov rbx, rdi
    mov edi, esi
    and edi, ~GFP_ZERO
    or edi, GFP_COMP
    mov esi, [rbx+CACHE_ORDER]
    call alloc_pages
    mov r12, rax
    test rax, rax
    je .Lout
    or dword ptr [r12+PAGE_FLAGS], PG_SLAB
    mov [r12+SLAB_CACHE], rbx
    mov r13, rax
    PAGE_TO_VIRT r13
    mov [r12+SLAB_FREELIST], r13
    mov r14d, [rbx+CACHE_OBJECTS]
    mov dword ptr [r12+SLAB_INUSE], 0
.Lobject:
    mov rdi, rbx
    mov rsi, r13
    call setup_object
    mov ecx, [rbx+CACHE_OFFSET]
    lea r15, [r13+rcx]
    mov eax, [rbx+CACHE_SIZE]
    add r13, rax
    mov [r15], r13
    dec r14d
    jne .Lobject
    mov qword ptr [r15], 0
    lock inc qword ptr [rbx+CACHE_NR_SLABS]
    mov rax, r12
.Lout:
    LEAVE5
ENDFUNC allocate_slab

# The CPU's slab is used up: take what others freed into it, a partial slab, or a new one.
FUNC ___slab_alloc                      # rdi cache, esi gfp; rax object or 0
    ENTER5
    push 0
    mov rbx, rdi
    mov r12d, esi
.Lretry:
    LOCAL_IRQ_SAVE r15d
    mov r13, rbx
    CPU_SLAB r13, eax, rax
    cmp qword ptr [r13+CPU_SLAB_FREELIST], 0
    jne .Lload                          # an interrupt filled it meanwhile
    lea rdi, [rbx+CACHE_LOCK]
    call _raw_spin_lock
    mov r14, [r13+CPU_SLAB_PAGE]
    test r14, r14
    je .Lpartial
    cmp qword ptr [r14+SLAB_FREELIST], 0
    jne .Lfreeze
    and dword ptr [r14+PAGE_FLAGS], ~PG_FROZEN
    mov qword ptr [r13+CPU_SLAB_PAGE], 0
.Lpartial:
    cmp dword ptr [rbx+CACHE_NR_PARTIAL], 0
    je .Lnew
    mov rsi, [rbx+CACHE_PARTIAL]
    LIST_DEL rsi, rax, rcx
    dec dword ptr [rbx+CACHE_NR_PARTIAL]
    lea r14, [rsi-PAGE_LRU]
.Lfreeze:                               # all its free objects become this CPU's
    or dword ptr [r14+PAGE_FLAGS], PG_FROZEN
    mov eax, [rbx+CACHE_OBJECTS]
    mov [r14+SLAB_INUSE], eax
    xor eax, eax
    xchg rax, [r14+SLAB_FREELIST]
    mov [r13+CPU_SLAB_FREELIST], rax
    mov [r13+CPU_SLAB_PAGE], r14
    lea rdi, [rbx+CACHE_LOCK]
    call _raw_spin_unlock
.Lload:
    mov r14, [r13+CPU_SLAB_FREELIST]
    mov eax, [rbx+CACHE_OFFSET]
    mov rax, [r14+rax]
    mov [r13+CPU_SLAB_FREELIST], rax
    LOCAL_IRQ_RESTORE r15d
    mov rax, r14
    jmp .Lout
.Lnew:
    lea rdi, [rbx+CACHE_LOCK]
    call _raw_spin_unlock
    LOCAL_IRQ_RESTORE r15d
    mov rdi, rbx
    mov esi, r12d
    call allocate_slab
    mov r14, rax
    test rax, rax
    je .Lout
    lea rdi, [rbx+CACHE_LOCK]           # it may have run elsewhere meanwhile: hand over by the list
    call _raw_spin_lock_irqsave
    mov r15, rax
    lea rsi, [r14+PAGE_LRU]
    lea rdi, [rbx+CACHE_PARTIAL]
    LIST_ADD rsi, rdi, rax
    inc dword ptr [rbx+CACHE_NR_PARTIAL]
    lea rdi, [rbx+CACHE_LOCK]
    mov rsi, r15
    call _raw_spin_unlock_irqrestore
    jmp .Lretry
.Lout:
    LEAVE5
ENDFUNC ___slab_alloc

# The body that all allocating functions share: rdi cache, esi gfp; rax object or 0.
.macro SLAB_ALLOC
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    test esi, GFP_DIRECT_RECLAIM
    je .Lfast
    call __cond_resched
.Lfast:
    mov rdx, rbx
    CPU_SLAB rdx, eax, rax
    mov rax, [rdx+CPU_SLAB_FREELIST]
    test rax, rax
    je .Lslow
    mov ecx, [rbx+CACHE_OFFSET]
    mov rcx, [rax+rcx]
    mov [rdx+CPU_SLAB_FREELIST], rcx
    jmp .Lgot
.Lslow:
    mov rdi, rbx
    mov esi, r12d
    call ___slab_alloc
    test rax, rax
    je .Lout
.Lgot:
    lock inc qword ptr [rbx+CACHE_IN_USE]
    test r12d, GFP_ZERO
    je .Lout
    mov r12, rax
    mov rdi, rax
    mov ecx, [rbx+CACHE_OBJECT_SIZE]
    add ecx, 7
    shr ecx, 3
    xor eax, eax
    rep stosq
    mov rax, r12
.Lout:
    LEAVE2
.endm

FUNC kmem_cache_alloc                   # rdi cache, esi gfp; rax object or 0
    SLAB_ALLOC
ENDFUNC kmem_cache_alloc

FUNC kmem_cache_alloc_lru               # rdi cache, rsi lru, edx gfp; rax object or 0
    mov esi, edx
    SLAB_ALLOC
ENDFUNC kmem_cache_alloc_lru

FUNC __kmem_cache_alloc_node            # rdi cache, esi gfp, edx node, rcx size, r8 caller
    SLAB_ALLOC
ENDFUNC __kmem_cache_alloc_node

FUNC __slab_free                        # rdi cache, rsi slab, rdx object: not from this CPU's slab
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    lea rdi, [rdi+CACHE_LOCK]
    call _raw_spin_lock_irqsave
    mov r14, rax
    mov ecx, [rbx+CACHE_OFFSET]
    mov rax, [r12+SLAB_FREELIST]
    mov [r13+rcx], rax
    mov [r12+SLAB_FREELIST], r13
    dec dword ptr [r12+SLAB_INUSE]
    test dword ptr [r12+PAGE_FLAGS], PG_FROZEN
    jne .Lunlock                        # its CPU will find the object there
    lea rsi, [r12+PAGE_LRU]
    cmp dword ptr [r12+SLAB_INUSE], 0
    je .Lempty
    test rax, rax
    jne .Lunlock
    lea rdi, [rbx+CACHE_PARTIAL]        # it was full and on no list
    LIST_ADD_TAIL rsi, rdi, rax
    inc dword ptr [rbx+CACHE_NR_PARTIAL]
    jmp .Lunlock
.Lempty:
    test rax, rax
    jne .Llisted
    cmp dword ptr [rbx+CACHE_NR_PARTIAL], MIN_PARTIAL
    jae .Ldiscard
    lea rdi, [rbx+CACHE_PARTIAL]        # a slab of one object only
    LIST_ADD_TAIL rsi, rdi, rax
    inc dword ptr [rbx+CACHE_NR_PARTIAL]
    jmp .Lunlock
.Llisted:
    cmp dword ptr [rbx+CACHE_NR_PARTIAL], MIN_PARTIAL
    jbe .Lunlock
    LIST_DEL rsi, rax, rcx
    dec dword ptr [rbx+CACHE_NR_PARTIAL]
.Ldiscard:
    lea rdi, [rbx+CACHE_LOCK]
    mov rsi, r14
    call _raw_spin_unlock_irqrestore
    mov rdi, rbx
    mov rsi, r12
    call discard_slab
    jmp .Lout
.Lunlock:
    lea rdi, [rbx+CACHE_LOCK]
    mov rsi, r14
    call _raw_spin_unlock_irqrestore
.Lout:
    LEAVE4
ENDFUNC __slab_free

FUNC discard_slab                       # rdi cache, rsi slab
    PROLOGUE
    lock dec qword ptr [rdi+CACHE_NR_SLABS]
    call __free_slab
    EPILOGUE
ENDFUNC discard_slab

FUNC __free_slab                        # rdi cache, rsi slab
    PROLOGUE
    mov eax, [rdi+CACHE_ORDER]
    mov rdi, rsi
    mov esi, eax
    and dword ptr [rdi+PAGE_FLAGS], ~(PG_SLAB | PG_FROZEN)
    mov qword ptr [rdi+SLAB_CACHE], 0
    mov qword ptr [rdi+SLAB_FREELIST], 0
    mov dword ptr [rdi+PAGE_MAPCOUNT], 0
    call __free_pages
    EPILOGUE
ENDFUNC __free_slab

# rdi cache, rsi slab, rdx object: back to this CPU's slab if it comes from there.
.macro SLAB_FREE
    lock dec qword ptr [rdi+CACHE_IN_USE]
    mov rcx, rdi
    CPU_SLAB rcx, eax, rax
    cmp [rcx+CPU_SLAB_PAGE], rsi
    jne .Lslow
    mov eax, [rdi+CACHE_OFFSET]
    mov r8, [rcx+CPU_SLAB_FREELIST]
    mov [rdx+rax], r8
    mov [rcx+CPU_SLAB_FREELIST], rdx
    EPILOGUE
.Lslow:
    call __slab_free
    EPILOGUE
.endm

FUNC kmem_cache_free                    # rdi cache, rsi object
    PROLOGUE
    mov rdx, rsi
    VIRT_TO_HEAD_PAGE rsi, rax
    cmp [rsi+SLAB_CACHE], rdi
    jne .Lwrong
    SLAB_FREE
.Lwrong:                                # cache_from_obj: it stays allocated
    inc qword ptr [rip + slab_wrong_frees]
    EPILOGUE
ENDFUNC kmem_cache_free

FUNC __kmem_cache_free                  # rdi cache, rsi object, rdx caller
    PROLOGUE
    mov rdx, rsi
    VIRT_TO_HEAD_PAGE rsi, rax
    SLAB_FREE
ENDFUNC __kmem_cache_free

# rdi cache, rsi name, edx object size, rcx constructor or 0. Lays the cache out; no slab yet.
FUNC_NOTRACE kmem_cache_open
    mov [rdi+CACHE_NAME], rsi
    mov [rdi+CACHE_OBJECT_SIZE], edx
    mov [rdi+CACHE_CTOR], rcx
    mov dword ptr [rdi+CACHE_REFCOUNT], 1
    add edx, 7
    and edx, -8
    xor eax, eax
    mov [rdi+CACHE_OFFSET], eax
    mov [rdi+CACHE_LOCK], eax
    mov [rdi+CACHE_NR_PARTIAL], eax
    mov [rdi+CACHE_NR_SLABS], rax
    mov [rdi+CACHE_IN_USE], rax
    lea rsi, [rdi+CACHE_PARTIAL]
    LIST_INIT rsi
    test rcx, rcx
    je .Lsize
    mov [rdi+CACHE_OFFSET], edx         # a constructed object is left alone while it is free
    add edx, 8
.Lsize:
    mov [rdi+CACHE_SIZE], edx
    mov r8d, edx
    xor ecx, ecx
.Lorder:                                # a slab of at least eight objects, if eight pages hold them
    mov eax, PAGE_BYTES
    shl eax, cl
    xor edx, edx
    div r8d
    cmp eax, 8
    jae .Lfits
    cmp ecx, 3
    jae .Lfits
    inc ecx
    jmp .Lorder
.Lfits:
    mov [rdi+CACHE_ORDER], ecx
    mov [rdi+CACHE_OBJECTS], eax
    mov r8, rdi
    add rdi, CACHE_CPU
    mov ecx, 16
    xor eax, eax
    rep stosq
    mov rax, r8
    ret
ENDFUNC kmem_cache_open

.data
.balign 8
OBJECT slab_wrong_frees
    .quad 0
ENDOBJECT slab_wrong_frees
