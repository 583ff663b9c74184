# net/core/skbuff.c: socket buffers. A buffer is one piece of memory with room before and behind the
# data and, behind that, the count of the sk_buffs that share it. Left out: page fragments, headers
# shared by fast clones.

.text

FUNC_NOTRACE skb_init
    PROLOGUE
    mov rdi, offset skbuff_head_name
    mov esi, SKB_SIZE
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + skbuff_head_cache], rax
    EPILOGUE
ENDFUNC skb_init

FUNC __alloc_skb                        # edi bytes, esi gfp, edx flags, ecx node; rax skb or 0
    ENTER3
    lea r12d, [rdi + 7]
    and r12d, -8
    mov r13d, esi
    mov rdi, [rip + skbuff_head_cache]
    call kmem_cache_alloc
    test rax, rax
    je .Lout
    mov rbx, rax
    lea edi, [r12 + SHINFO_SIZE]
    mov esi, r13d
    call __kmalloc
    test rax, rax
    je .Lnodata
    mov rdi, rbx
    mov rsi, rax
    mov edx, r12d
    call __build_skb_around
    mov rax, rbx
.Lout:
    LEAVE3
.Lnodata:
    mov rdi, [rip + skbuff_head_cache]
    mov rsi, rbx
    call kmem_cache_free
    xor eax, eax
    LEAVE3
ENDFUNC __alloc_skb

# rdi sk_buff, rsi its buffer, edx bytes of it in front of the shared info.
FUNC __build_skb_around
    PROLOGUE
    mov r8, rdi
    xor eax, eax
    mov ecx, SKB_SIZE / 8
    rep stosq
    mov [r8 + SKB_HEAD], rsi
    mov [r8 + SKB_DATA], rsi
    mov [r8 + SKB_END], edx
    lea eax, [rdx + SHINFO_SIZE + SKB_SIZE]
    mov [r8 + SKB_TRUESIZE], eax
    mov dword ptr [r8 + SKB_USERS], 1
    mov word ptr [r8 + SKB_MAC_HEADER], 0xffff
    mov word ptr [r8 + SKB_TRANSPORT_HEADER], 0xffff
    mov edx, edx
    mov qword ptr [rsi + rdx], 1
    mov qword ptr [rsi + rdx + 8], 0
    EPILOGUE
ENDFUNC __build_skb_around

FUNC __build_skb                        # rdi memory from kmalloc, esi its size; rax skb or 0
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    mov rdi, [rip + skbuff_head_cache]
    mov esi, GFP_ATOMIC
    call kmem_cache_alloc
    test rax, rax
    je .Lout
    mov rdi, rax
    mov rsi, rbx
    lea edx, [r12 - SHINFO_SIZE]
    mov rbx, rax
    call __build_skb_around
    mov rax, rbx
.Lout:
    LEAVE2
ENDFUNC __build_skb

FUNC build_skb
    PROLOGUE
    call __build_skb
    EPILOGUE
ENDFUNC build_skb

FUNC __netdev_alloc_skb                 # rdi dev, esi bytes, edx gfp; rax skb with headroom, or 0
    ENTER1
    push rax
    mov rbx, rdi
    lea edi, [rsi + MAX_HEADER]
    mov esi, edx
    xor edx, edx
    mov ecx, -1
    call __alloc_skb
    test rax, rax
    je 1f
    SKB_RESERVE rax, MAX_HEADER
    mov [rax + SKB_DEV], rbx
1:
    LEAVE1
ENDFUNC __netdev_alloc_skb

FUNC __napi_alloc_skb                   # rdi napi, esi bytes, edx gfp
    PROLOGUE
    mov rdi, [rdi + NAPI_DEV]
    call __netdev_alloc_skb
    EPILOGUE
ENDFUNC __napi_alloc_skb

# --- letting go -----------------------------------------------------------------------------------

FUNC kfree_skb_reason                   # rdi skb or 0, esi why it is dropped
    PROLOGUE
    test rdi, rdi
    je 1f
    lock dec dword ptr [rdi + SKB_USERS]
    jne 1f
    inc qword ptr [rip + skb_drops]
    call __kfree_skb
1:
    EPILOGUE
ENDFUNC kfree_skb_reason

FUNC consume_skb                        # rdi skb or 0, which served its purpose
    PROLOGUE
    test rdi, rdi
    je 1f
    lock dec dword ptr [rdi + SKB_USERS]
    jne 1f
    call __kfree_skb
1:
    EPILOGUE
ENDFUNC consume_skb

FUNC napi_consume_skb                   # rdi skb, esi budget
    PROLOGUE
    call consume_skb
    EPILOGUE
ENDFUNC napi_consume_skb

FUNC kfree_skb_list_reason              # rdi first of a chain, esi why
    ENTER2
    mov r12d, esi
.Lnext:
    test rdi, rdi
    je .Lout
    mov rbx, [rdi + SKB_NEXT]
    mov esi, r12d
    call kfree_skb_reason
    mov rdi, rbx
    jmp .Lnext
.Lout:
    LEAVE2
ENDFUNC kfree_skb_list_reason

FUNC __kfree_skb                        # rdi skb without users
    ENTER1
    push rax
    mov rbx, rdi
    call skb_release_head_state
    mov rdi, rbx
    call skb_release_data
    mov rdi, rbx
    call kfree_skbmem
    LEAVE1
ENDFUNC __kfree_skb

FUNC skb_release_head_state
    PROLOGUE
    mov qword ptr [rdi + SKB_DST], 0
    mov rax, [rdi + SKB_DESTRUCTOR]
    test rax, rax
    je 1f
    mov qword ptr [rdi + SKB_DESTRUCTOR], 0
    call rax
1:
    EPILOGUE
ENDFUNC skb_release_head_state

FUNC skb_release_data
    PROLOGUE
    SKB_SHINFO rax, rdi
    lock dec dword ptr [rax + SHINFO_DATAREF]
    jne 1f
    call skb_free_head
1:
    EPILOGUE
ENDFUNC skb_release_data

FUNC skb_free_head
    PROLOGUE
    mov rdi, [rdi + SKB_HEAD]
    call kfree
    EPILOGUE
ENDFUNC skb_free_head

FUNC kfree_skbmem
    PROLOGUE
    mov rsi, rdi
    mov rdi, [rip + skbuff_head_cache]
    call kmem_cache_free
    EPILOGUE
ENDFUNC kfree_skbmem

# --- copies ---------------------------------------------------------------------------------------

# rdi skb, esi gfp; rax another sk_buff for the same bytes, or 0
FUNC skb_clone
    ENTER2
    mov rbx, rdi
    mov rdi, [rip + skbuff_head_cache]
    call kmem_cache_alloc
    test rax, rax
    je .Lout
    mov rdi, rax
    mov rsi, rbx
    call __skb_clone
.Lout:
    LEAVE2
ENDFUNC skb_clone

FUNC __skb_clone                        # rdi new, rsi skb; rax new
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call __copy_skb_header
    mov eax, [r12 + SKB_LEN]
    mov [rbx + SKB_LEN], eax
    mov eax, [r12 + SKB_TRUESIZE]
    mov [rbx + SKB_TRUESIZE], eax
    mov eax, [r12 + SKB_TAIL]
    mov [rbx + SKB_TAIL], eax
    mov eax, [r12 + SKB_END]
    mov [rbx + SKB_END], eax
    mov rax, [r12 + SKB_HEAD]
    mov [rbx + SKB_HEAD], rax
    mov rax, [r12 + SKB_DATA]
    mov [rbx + SKB_DATA], rax
    mov dword ptr [rbx + SKB_USERS], 1
    mov byte ptr [rbx + SKB_CLONED], 1
    mov byte ptr [r12 + SKB_CLONED], 1
    SKB_SHINFO rax, r12
    lock inc dword ptr [rax + SHINFO_DATAREF]
    mov rax, rbx
    LEAVE2
ENDFUNC __skb_clone

# All that is not about the buffer; neither owner nor lists. rdi new, rsi old.
FUNC __copy_skb_header
    PROLOGUE
    xor eax, eax
    mov [rdi + SKB_NEXT], rax
    mov [rdi + SKB_PREV], rax
    mov [rdi + SKB_SK], rax
    mov [rdi + SKB_DESTRUCTOR], rax
    mov rax, [rsi + SKB_DEV]
    mov [rdi + SKB_DEV], rax
    mov rax, [rsi + SKB_TSTAMP]
    mov [rdi + SKB_TSTAMP], rax
    mov rax, [rsi + SKB_DST]
    mov [rdi + SKB_DST], rax
    mov rax, [rsi + SKB_PROTOCOL]       # with the offsets of the headers
    mov [rdi + SKB_PROTOCOL], rax
    mov rax, [rsi + SKB_PKT_TYPE]       # with the checksum's state
    mov [rdi + SKB_PKT_TYPE], rax
    lea rdi, [rdi + SKB_CB]
    lea rsi, [rsi + SKB_CB]
    mov ecx, 6
    rep movsq
    EPILOGUE
ENDFUNC __copy_skb_header

FUNC skb_copy_header                    # rdi new, rsi old: headers too
    PROLOGUE
    call __copy_skb_header
    EPILOGUE
ENDFUNC skb_copy_header

FUNC skb_copy                           # rdi skb, esi gfp; rax one with a buffer of its own, or 0
    ENTER3
    mov rbx, rdi
    mov edi, [rbx + SKB_END]
    xor edx, edx
    mov ecx, -1
    call __alloc_skb
    test rax, rax
    je .Lout
    mov r12, rax
    mov rcx, [rbx + SKB_DATA]
    sub rcx, [rbx + SKB_HEAD]
    add [r12 + SKB_DATA], rcx
    mov ecx, [rbx + SKB_TAIL]
    mov [r12 + SKB_TAIL], ecx
    mov edx, ecx
    mov rdi, [r12 + SKB_HEAD]
    mov rsi, [rbx + SKB_HEAD]
    call memcpy
    mov eax, [rbx + SKB_LEN]
    mov [r12 + SKB_LEN], eax
    mov rdi, r12
    mov rsi, rbx
    call skb_copy_header
    mov byte ptr [r12 + SKB_CLONED], 0
    mov rax, r12
.Lout:
    LEAVE3
ENDFUNC skb_copy

# rdi skb, esi more room in front, edx more room behind, ecx gfp: 0 or -ENOMEM. The buffer is then
# its own.
FUNC pskb_expand_head
    ENTER5
    push rax
    mov rbx, rdi
    mov r12d, esi
    mov r13d, [rdi + SKB_END]
    add r13d, esi
    add r13d, edx
    add r13d, 7
    and r13d, -8
    lea edi, [r13 + SHINFO_SIZE]
    mov esi, ecx
    call __kmalloc
    test rax, rax
    je .Lnomem
    mov r14, rax
    lea rdi, [rax + r12]
    mov rsi, [rbx + SKB_HEAD]
    mov edx, [rbx + SKB_TAIL]
    call memcpy
    mov rdi, rbx
    call skb_release_data
    mov rax, [rbx + SKB_DATA]
    sub rax, [rbx + SKB_HEAD]
    add rax, r14
    add rax, r12
    mov [rbx + SKB_DATA], rax
    mov [rbx + SKB_HEAD], r14
    mov [rbx + SKB_END], r13d
    add [rbx + SKB_TAIL], r12d
    add [rbx + SKB_NETWORK_HEADER], r12w
    cmp word ptr [rbx + SKB_TRANSPORT_HEADER], 0xffff
    je 1f
    add [rbx + SKB_TRANSPORT_HEADER], r12w
1:
    cmp word ptr [rbx + SKB_MAC_HEADER], 0xffff
    je 2f
    add [rbx + SKB_MAC_HEADER], r12w
2:
    mov byte ptr [rbx + SKB_CLONED], 0
    lea rax, [r14 + r13]
    mov qword ptr [rax], 1
    mov qword ptr [rax + 8], 0
    xor eax, eax
    LEAVE5
.Lnomem:
    mov eax, -ENOMEM
    LEAVE5
ENDFUNC pskb_expand_head

FUNC skb_copy_bits                      # rdi skb, esi offset, rdx to, ecx bytes; 0 or -EFAULT
    PROLOGUE
    mov eax, -EFAULT
    test esi, esi
    js .Lout
    test ecx, ecx
    js .Lout
    mov r8d, [rdi + SKB_LEN]
    sub r8d, esi
    jb .Lout
    cmp ecx, r8d
    ja .Lout
    mov esi, esi
    add rsi, [rdi + SKB_DATA]
    mov rdi, rdx
    mov edx, ecx
    call memcpy
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC skb_copy_bits

# --- the data -------------------------------------------------------------------------------------
# Running out of room on either side is a bug of the caller's and ends in ud2, as skb_panic does.

FUNC skb_put                            # rdi skb, esi bytes more at the end; rax where they begin
    PROLOGUE
    mov eax, [rdi + SKB_TAIL]
    mov ecx, eax
    add rax, [rdi + SKB_HEAD]
    add ecx, esi
    cmp ecx, [rdi + SKB_END]
    ja .Lover
    mov [rdi + SKB_TAIL], ecx
    add [rdi + SKB_LEN], esi
    EPILOGUE
.Lover:
    ud2
ENDFUNC skb_put

FUNC skb_push                           # rdi skb, esi bytes more in front; rax the new start
    PROLOGUE
    mov esi, esi
    mov rax, [rdi + SKB_DATA]
    sub rax, rsi
    cmp rax, [rdi + SKB_HEAD]
    jb .Lunder
    mov [rdi + SKB_DATA], rax
    add [rdi + SKB_LEN], esi
    EPILOGUE
.Lunder:
    ud2
ENDFUNC skb_push

# rdi skb, esi bytes off the front; rax the new start, 0 if too many
FUNC skb_pull
    PROLOGUE
    xor eax, eax
    cmp esi, [rdi + SKB_LEN]
    ja .Lout
    sub [rdi + SKB_LEN], esi
    mov esi, esi
    add [rdi + SKB_DATA], rsi
    mov rax, [rdi + SKB_DATA]
.Lout:
    EPILOGUE
ENDFUNC skb_pull

FUNC skb_trim                           # rdi skb, esi bytes to be left
    PROLOGUE
    mov eax, [rdi + SKB_LEN]
    sub eax, esi
    jbe .Lout
    sub [rdi + SKB_TAIL], eax
    mov [rdi + SKB_LEN], esi
.Lout:
    EPILOGUE
ENDFUNC skb_trim

FUNC ___pskb_trim                       # rdi skb, esi bytes to be left; 0
    PROLOGUE
    call skb_trim
    xor eax, eax
    EPILOGUE
ENDFUNC ___pskb_trim

FUNC skb_checksum                       # rdi skb, esi offset, edx bytes, ecx sum so far; eax sum
    PROLOGUE
    call __skb_checksum
    EPILOGUE
ENDFUNC skb_checksum

FUNC __skb_checksum
    PROLOGUE
    mov esi, esi
    mov rax, [rdi + SKB_DATA]
    lea rdi, [rax + rsi]
    mov esi, edx
    mov edx, ecx
    call csum_partial
    EPILOGUE
ENDFUNC __skb_checksum

# rdi skb whose SKB_CSUM holds what the data is to be added to: 0 when all of it sums up right.
FUNC __skb_checksum_complete
    ENTER1
    push rax
    mov rbx, rdi
    xor esi, esi
    mov edx, [rdi + SKB_LEN]
    mov ecx, [rdi + SKB_CSUM]
    call skb_checksum
    mov edi, eax
    call csum_fold
    test eax, eax
    jne 1f
    mov byte ptr [rbx + SKB_IP_SUMMED], CHECKSUM_UNNECESSARY
1:
    LEAVE1
ENDFUNC __skb_checksum_complete

# --- lists ----------------------------------------------------------------------------------------

# Without the lock (inlined in Linux): rdi list, rsi skb. Clobbers rax.
FUNC_NOTRACE __skb_queue_tail
    SKB_LIST_READY rdi
    LIST_ADD_TAIL rsi, rdi, rax
    inc dword ptr [rdi + SKB_LIST_QLEN]
    ret
ENDFUNC __skb_queue_tail

# Without the lock: rdi list; rax its first skb, taken off, or 0. Clobbers rcx, rdx.
FUNC_NOTRACE __skb_dequeue
    SKB_LIST_READY rdi
    mov rax, [rdi]
    cmp rax, rdi
    je .Lempty
    dec dword ptr [rdi + SKB_LIST_QLEN]
    LIST_DEL rax, rcx, rdx
    mov qword ptr [rax], 0
    mov qword ptr [rax + 8], 0
    ret
.Lempty:
    xor eax, eax
    ret
ENDFUNC __skb_dequeue

# Without the lock: rdi skb, rsi its list. Clobbers rax, rcx.
FUNC_NOTRACE __skb_unlink
    dec dword ptr [rsi + SKB_LIST_QLEN]
    LIST_DEL rdi, rax, rcx
    mov qword ptr [rdi], 0
    mov qword ptr [rdi + 8], 0
    ret
ENDFUNC __skb_unlink

FUNC skb_queue_tail                     # rdi list, rsi skb
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    add rdi, SKB_LIST_LOCK
    call _raw_spin_lock_irqsave
    push rax
    push rax
    mov rdi, rbx
    mov rsi, r12
    call __skb_queue_tail
    pop rsi
    lea rdi, [rbx + SKB_LIST_LOCK]
    call _raw_spin_unlock_irqrestore
    LEAVE2
ENDFUNC skb_queue_tail

FUNC skb_queue_head                     # rdi list, rsi skb
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    add rdi, SKB_LIST_LOCK
    call _raw_spin_lock_irqsave
    SKB_LIST_READY rbx
    LIST_ADD r12, rbx, rcx
    inc dword ptr [rbx + SKB_LIST_QLEN]
    lea rdi, [rbx + SKB_LIST_LOCK]
    mov esi, eax
    call _raw_spin_unlock_irqrestore
    LEAVE2
ENDFUNC skb_queue_head

FUNC skb_dequeue                        # rdi list; rax skb or 0
    ENTER3
    mov rbx, rdi
    add rdi, SKB_LIST_LOCK
    call _raw_spin_lock_irqsave
    mov r12d, eax
    mov rdi, rbx
    call __skb_dequeue
    mov r13, rax
    lea rdi, [rbx + SKB_LIST_LOCK]
    mov esi, r12d
    call _raw_spin_unlock_irqrestore
    mov rax, r13
    LEAVE3
ENDFUNC skb_dequeue

FUNC skb_unlink                         # rdi skb, rsi list
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    lea rdi, [rsi + SKB_LIST_LOCK]
    call _raw_spin_lock_irqsave
    push rax
    push rax
    mov rdi, rbx
    mov rsi, r12
    call __skb_unlink
    pop rsi
    lea rdi, [r12 + SKB_LIST_LOCK]
    call _raw_spin_unlock_irqrestore
    LEAVE2
ENDFUNC skb_unlink

FUNC skb_queue_purge                    # rdi list
    ENTER1
    push rax
    mov rbx, rdi
.Lnext:
    mov rdi, rbx
    call skb_dequeue
    test rax, rax
    je .Lout
    mov rdi, rax
    xor esi, esi
    call kfree_skb_reason
    jmp .Lnext
.Lout:
    LEAVE1
ENDFUNC skb_queue_purge

.data
.balign 8
OBJECT skbuff_head_cache
    .quad 0
ENDOBJECT skbuff_head_cache
OBJECT skb_drops
    .quad 0
ENDOBJECT skb_drops
skbuff_head_name:
    .asciz "skbuff_head_cache"
.text
