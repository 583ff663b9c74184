# fs/buffer.c, as far as a file system keeps blocks of its own: heads, and blocks becoming dirty.

.text

FUNC alloc_buffer_head                  # edi gfp; rax head or 0
    PROLOGUE
    or edi, GFP_ZERO
    mov esi, edi
    mov edi, BUFFER_HEAD_BYTES
    call __kmalloc
    test rax, rax
    je .Lout
    mov dword ptr [rax + BUFFER_COUNT], 1
    lock inc dword ptr [rip + nr_buffer_heads]
.Lout:
    EPILOGUE
ENDFUNC alloc_buffer_head

FUNC free_buffer_head                   # rdi head
    PROLOGUE
    lock dec dword ptr [rip + nr_buffer_heads]
    call kfree
    EPILOGUE
ENDFUNC free_buffer_head

FUNC set_bh_page                        # rdi head, rsi page, rdx offset in it
    PROLOGUE
    mov [rdi + BUFFER_PAGE], rsi
    PAGE_TO_VIRT rsi
    add rsi, rdx
    mov [rdi + BUFFER_DATA], rsi
    EPILOGUE
ENDFUNC set_bh_page

FUNC_ENDBR mark_buffer_dirty            # rdi head: its page has something to be written
    PROLOGUE
    lock bts qword ptr [rdi + BUFFER_STATE], BUFFER_DIRTY_BIT
    jb .Lout
    mov rdi, [rdi + BUFFER_PAGE]
    test rdi, rdi
    je .Lout
    call set_page_dirty
.Lout:
    EPILOGUE
ENDFUNC mark_buffer_dirty

FUNC __brelse                           # rdi head: one user less
    PROLOGUE
    cmp dword ptr [rdi + BUFFER_COUNT], 0
    je .Lout                            # somebody gave back too much
    lock dec dword ptr [rdi + BUFFER_COUNT]
.Lout:
    EPILOGUE
ENDFUNC __brelse

.data
.balign 8
OBJECT nr_buffer_heads
    .long 0
ENDOBJECT nr_buffer_heads
