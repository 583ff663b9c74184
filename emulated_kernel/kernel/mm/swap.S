# mm/swap.c: pages come to the LRU lists in batches of a CPU, and go when their last reference does.

.text

FUNC lru_add_fn                         # rdi lruvec (locked), rsi folio
    PROLOGUE
    or dword ptr [rsi+PAGE_FLAGS], PG_LRU
    lea rax, [rsi+PAGE_LRU]
    test dword ptr [rsi+PAGE_FLAGS], PG_ACTIVE
    jne .Lactive
    inc qword ptr [rdi+LRUVEC_NR_INACTIVE]
    lea rdx, [rdi+LRUVEC_INACTIVE]
    jmp .Ladd
.Lactive:
    inc qword ptr [rdi+LRUVEC_NR_ACTIVE]
    lea rdx, [rdi+LRUVEC_ACTIVE]
.Ladd:
    LIST_ADD rax, rdx, rcx
    EPILOGUE
ENDFUNC lru_add_fn

# Take a folio off its list: rdi lruvec (locked), rsi folio. Inlined wherever Linux does it.
FUNC_NOTRACE lruvec_del_folio
    and dword ptr [rsi+PAGE_FLAGS], ~PG_LRU
    test dword ptr [rsi+PAGE_FLAGS], PG_ACTIVE
    jne .Lactive
    dec qword ptr [rdi+LRUVEC_NR_INACTIVE]
    jmp .Ldel
.Lactive:
    dec qword ptr [rdi+LRUVEC_NR_ACTIVE]
.Ldel:
    add rsi, PAGE_LRU
    LIST_DEL rsi, rax, rcx
    ret
ENDFUNC lruvec_del_folio

FUNC folio_batch_move_lru               # rdi u32 count and behind it, at +8, the folios; rsi what to do
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    xor r13d, r13d
    mov rdi, offset node_lruvec
    call _raw_spin_lock_irqsave
    mov r14, rax
.Lnext:
    cmp r13d, [rbx]
    jae .Lmoved
    mov rdi, offset node_lruvec
    mov rsi, [rbx+r13*8+8]
    call r12
    inc r13d
    jmp .Lnext
.Lmoved:
    mov rdi, offset node_lruvec
    mov rsi, r14
    call _raw_spin_unlock_irqrestore
    lea rdi, [rbx+8]
    mov esi, [rbx]
    mov dword ptr [rbx], 0
    call release_pages
    LEAVE4
ENDFUNC folio_batch_move_lru

FUNC folio_add_lru                      # rdi folio
    PROLOGUE
    GET_PAGE rdi
    PREEMPT_DISABLE
    mov eax, gs:[LRU_ADD_NR]
    mov rdx, gs:[PERCPU_SELF]
    mov [rdx+rax*8+LRU_ADD_PAGES], rdi
    inc eax
    mov gs:[LRU_ADD_NR], eax
    cmp eax, PAGEVEC_SIZE
    jb .Lout
    lea rdi, [rdx+LRU_ADD_NR]
    mov rsi, offset lru_add_fn
    call folio_batch_move_lru
.Lout:
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC folio_add_lru

FUNC lru_add_drain_cpu                  # edi CPU
    PROLOGUE
    mov eax, edi
    mov rdi, [percpu_table + rax*8]
    add rdi, LRU_ADD_NR
    cmp dword ptr [rdi], 0
    je .Lout
    mov rsi, offset lru_add_fn
    call folio_batch_move_lru
.Lout:
    EPILOGUE
ENDFUNC lru_add_drain_cpu

FUNC lru_add_drain
    PROLOGUE
    PREEMPT_DISABLE
    mov edi, gs:[CPU_NUMBER]
    call lru_add_drain_cpu
    PREEMPT_ENABLE
    EPILOGUE
ENDFUNC lru_add_drain

FUNC folio_activate                     # rdi folio
    ENTER2
    mov rbx, rdi
    mov rdi, offset node_lruvec
    call _raw_spin_lock_irqsave
    mov r12, rax
    test dword ptr [rbx+PAGE_FLAGS], PG_LRU
    je .Lunlock
    test dword ptr [rbx+PAGE_FLAGS], PG_ACTIVE
    jne .Lunlock
    mov rdi, offset node_lruvec
    mov rsi, rbx
    call lruvec_del_folio
    or dword ptr [rbx+PAGE_FLAGS], PG_ACTIVE
    mov rdi, offset node_lruvec
    mov rsi, rbx
    call lru_add_fn
.Lunlock:
    mov rdi, offset node_lruvec
    mov rsi, r12
    call _raw_spin_unlock_irqrestore
    LEAVE2
ENDFUNC folio_activate

# First use marks it referenced, the second moves it to the active list.
FUNC folio_mark_accessed                # rdi folio
    ENTER1
    push 0
    mov rbx, rdi
    mov eax, [rdi+PAGE_FLAGS]
    test eax, PG_REFERENCED
    jne .Lagain
    or dword ptr [rdi+PAGE_FLAGS], PG_REFERENCED
    LEAVE1
.Lagain:
    test eax, PG_ACTIVE
    jne .Lout
    test eax, PG_LRU
    jne .Lactivate
    or dword ptr [rdi+PAGE_FLAGS], PG_ACTIVE    # still in a batch: it will come to the active list
    jmp .Lcleared
.Lactivate:
    call folio_activate
.Lcleared:
    and dword ptr [rbx+PAGE_FLAGS], ~PG_REFERENCED
.Lout:
    LEAVE1
ENDFUNC folio_mark_accessed

FUNC mark_page_accessed                 # rdi page
    PROLOGUE
    mov rax, [rdi+PAGE_COMPOUND_HEAD]
    test rax, rax
    cmovne rdi, rax
    call folio_mark_accessed
    EPILOGUE
ENDFUNC mark_page_accessed

FUNC __folio_put                        # rdi folio whose last reference is gone
    ENTER2
    mov rbx, rdi
    test dword ptr [rdi+PAGE_FLAGS], PG_LRU
    je .Lfree
    mov rdi, offset node_lruvec
    call _raw_spin_lock_irqsave
    mov r12, rax
    mov rdi, offset node_lruvec
    mov rsi, rbx
    call lruvec_del_folio
    mov rdi, offset node_lruvec
    mov rsi, r12
    call _raw_spin_unlock_irqrestore
.Lfree:
    mov rdi, rbx
    movzx esi, byte ptr [rbx+PAGE_ORDER]
    test esi, esi
    jne .Lblock
    call free_unref_page
    LEAVE2
.Lblock:
    call __free_pages_ok
    LEAVE2
ENDFUNC __folio_put

FUNC release_pages                      # rdi page **, esi count: drop a reference of each
    ENTER2
    mov rbx, rdi
    mov r12d, esi
.Lnext:
    test r12d, r12d
    je .Lout
    mov rdi, [rbx]
    add rbx, 8
    dec r12d
    lock dec dword ptr [rdi+PAGE_REFCOUNT]
    jne .Lnext
    call __folio_put
    jmp .Lnext
.Lout:
    LEAVE2
ENDFUNC release_pages

FUNC __pagevec_release                  # rdi folio_batch
    ENTER1
    push 0
    mov rbx, rdi
    call lru_add_drain                  # or the batch's references would keep the pages
    lea rdi, [rbx+FBATCH_PAGES]
    mov rsi, [rbx+FBATCH_NR]
    call release_pages
    mov qword ptr [rbx+FBATCH_NR], 0
    LEAVE1
ENDFUNC __pagevec_release

.data
.balign 64
OBJECT node_lruvec
    .zero LRUVEC_BYTES
ENDOBJECT node_lruvec
