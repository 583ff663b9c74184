# mm/slab_common.c, util.c: caches by name, and kmalloc over thirteen of them.

.text

FUNC_NOTRACE kmem_cache_init
    ENTER3
    push 0
    mov rax, offset slab_caches
    LIST_INIT rax
    mov rdi, offset kmem_cache_boot
    mov rsi, offset kmem_cache_name
    mov edx, CACHE_BYTES
    xor ecx, ecx
    call kmem_cache_open
    mov rdi, rax
    call slab_caches_add
    xor ebx, ebx
.Lnext:
    mov rdi, [kmalloc_names + rbx*8]
    mov esi, [kmalloc_sizes + rbx*4]
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [kmalloc_caches + rbx*8], rax
    inc ebx
    cmp ebx, NR_KMALLOC_CACHES
    jb .Lnext
    LEAVE3
ENDFUNC kmem_cache_init

NR_KMALLOC_CACHES = 13

FUNC_NOTRACE slab_caches_add            # rdi cache
    add rdi, CACHE_LIST
    mov rsi, offset slab_caches
    LIST_ADD_TAIL rdi, rsi, rax
    ret
ENDFUNC slab_caches_add

# rdi name, esi size, edx align, ecx flags, r8 constructor; rax cache or 0
FUNC kmem_cache_create
    PROLOGUE
    push r8
    push r8
    xor r8d, r8d
    xor r9d, r9d
    call kmem_cache_create_usercopy
    leave
    ret
ENDFUNC kmem_cache_create

# As kmem_cache_create, with r8 and r9 the part that may go to user space and the constructor on
# the stack.
FUNC kmem_cache_create_usercopy
    ENTER3
    push 0
    mov rbx, rdi
    mov r12d, esi
    mov r13, [rbp+16]
    mov rdi, offset slab_mutex
    call mutex_lock
    mov rdi, offset kmem_cache_boot
    mov esi, GFP_KERNEL
    call kmem_cache_alloc
    test rax, rax
    je .Lunlock
    mov rdi, rax
    mov rsi, rbx
    mov edx, r12d
    mov rcx, r13
    call kmem_cache_open
    mov rbx, rax
    mov rdi, rax
    call slab_caches_add
    mov rax, rbx
.Lunlock:
    mov rbx, rax
    mov rdi, offset slab_mutex
    call mutex_unlock
    mov rax, rbx
    LEAVE3
ENDFUNC kmem_cache_create_usercopy

FUNC kmalloc_slab                       # rdi size (not above KMALLOC_MAX_CACHE), esi gfp; rax cache
    PROLOGUE
    mov eax, edi
    cmp eax, 192
    ja .Llarge
    add eax, 7
    shr eax, 3
    movzx eax, byte ptr [kmalloc_size_index + rax]
    jmp .Lout
.Llarge:
    dec eax
    bsr eax, eax                        # 193..256 -> 7
.Lout:
    mov rax, [kmalloc_caches + rax*8]
    EPILOGUE
ENDFUNC kmalloc_slab

FUNC __kmalloc                          # rdi size, esi gfp; rax object or 0
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    cmp rdi, KMALLOC_MAX_CACHE
    ja .Llarge
    call kmalloc_slab
    mov rdi, rax
    mov esi, r12d
    mov edx, -1
    mov rcx, rbx
    mov r8, [rbp+8]
    call __kmem_cache_alloc_node
    LEAVE2
.Llarge:
    call kmalloc_large
    LEAVE2
ENDFUNC __kmalloc

FUNC kmalloc_trace                      # rdi cache, esi gfp, rdx size: a kmalloc of a constant size
    PROLOGUE
    mov rcx, rdx
    mov edx, -1
    mov r8, [rbp+8]
    call __kmem_cache_alloc_node
    EPILOGUE
ENDFUNC kmalloc_trace

FUNC kmalloc_large                      # rdi size, esi gfp; rax whole pages or 0
    PROLOGUE
    lea rax, [rdi-1]
    shr rax, PAGE_SHIFT
    xor edx, edx
    bsr rax, rax
    je .Lorder
    lea edx, [rax+1]
.Lorder:
    mov edi, esi
    or edi, GFP_COMP
    mov esi, edx
    call alloc_pages
    test rax, rax
    je .Lout
    PAGE_TO_VIRT rax
.Lout:
    EPILOGUE
ENDFUNC kmalloc_large

FUNC kfree                              # rdi object or 0
    PROLOGUE
    cmp rdi, 16                         # ZERO_SIZE_PTR
    jbe .Lout
    mov rsi, rdi
    VIRT_TO_HEAD_PAGE rdi, rax
    test dword ptr [rdi+PAGE_FLAGS], PG_SLAB
    je .Llarge
    mov rdi, [rdi+SLAB_CACHE]
    mov rdx, [rbp+8]
    call __kmem_cache_free
    EPILOGUE
.Llarge:
    movzx esi, byte ptr [rdi+PAGE_ORDER]
    call __free_pages
.Lout:
    EPILOGUE
ENDFUNC kfree

FUNC kvmalloc_node                      # rdi size, esi gfp, edx node; rax memory or 0
    PROLOGUE
    call __kmalloc
    EPILOGUE
ENDFUNC kvmalloc_node

FUNC kvfree                             # rdi what kvmalloc_node gave, or 0
    PROLOGUE
    call kfree
    EPILOGUE
ENDFUNC kvfree

FUNC kstrdup                            # rdi string or 0, esi gfp; rax copy or 0
    ENTER3
    push 0
    mov rbx, rdi
    mov r12d, esi
    xor eax, eax
    test rdi, rdi
    je .Lout
    call strlen
    lea r13, [rax+1]
    mov rdi, r13
    mov esi, r12d
    call __kmalloc
    test rax, rax
    je .Lout
    mov rdi, rax
    mov rsi, rbx
    mov rdx, r13
    call memcpy
.Lout:
    LEAVE3
ENDFUNC kstrdup

FUNC memdup_user                        # rdi user address, rsi size; rax copy or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov rdi, rsi
    mov esi, GFP_KERNEL
    call __kmalloc
    mov r13, rax
    test rax, rax
    je .Lnomem
    mov rdi, rax
    mov rsi, rbx
    mov rdx, r12
    call _copy_from_user
    test rax, rax
    jne .Lfault
    mov rax, r13
    LEAVE3
.Lfault:
    mov rdi, r13
    call kfree
    mov rax, -EFAULT
    LEAVE3
.Lnomem:
    mov rax, -ENOMEM
    LEAVE3
ENDFUNC memdup_user

.data
.balign 8
OBJECT kmem_cache_boot                  # the cache of all caches
    .zero CACHE_BYTES
ENDOBJECT kmem_cache_boot
OBJECT slab_caches
    .quad slab_caches
    .quad slab_caches
ENDOBJECT slab_caches
OBJECT slab_mutex
    .zero 32
ENDOBJECT slab_mutex
OBJECT kmalloc_caches
    .zero 13 * 8
ENDOBJECT kmalloc_caches
kmalloc_names:
    .quad kmalloc_8_name
    .quad kmalloc_16_name
    .quad kmalloc_32_name
    .quad kmalloc_64_name
    .quad kmalloc_96_name
    .quad kmalloc_128_name
    .quad kmalloc_192_name
    .quad kmalloc_256_name
    .quad kmalloc_512_name
    .quad kmalloc_1k_name
    .quad kmalloc_2k_name
    .quad kmalloc_4k_name
    .quad kmalloc_8k_name
kmalloc_sizes:
    .long 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192
kmalloc_size_index:                     # by eights of bytes, to 192
    .byte 0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6
kmem_cache_name:
    .asciz "kmem_cache"
kmalloc_8_name:
    .asciz "kmalloc-8"
kmalloc_16_name:
    .asciz "kmalloc-16"
kmalloc_32_name:
    .asciz "kmalloc-32"
kmalloc_64_name:
    .asciz "kmalloc-64"
kmalloc_96_name:
    .asciz "kmalloc-96"
kmalloc_128_name:
    .asciz "kmalloc-128"
kmalloc_192_name:
    .asciz "kmalloc-192"
kmalloc_256_name:
    .asciz "kmalloc-256"
kmalloc_512_name:
    .asciz "kmalloc-512"
kmalloc_1k_name:
    .asciz "kmalloc-1k"
kmalloc_2k_name:
    .asciz "kmalloc-2k"
kmalloc_4k_name:
    .asciz "kmalloc-4k"
kmalloc_8k_name:
    .asciz "kmalloc-8k"
