# mm/filemap.c: reading a file through the page cache.

.text

# Folios from index rsi on, as far as rdx, side by side: rdi mapping, rcx folio_batch to fill.
FUNC filemap_get_read_batch
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov qword ptr [rcx+FBATCH_NR], 0
    call __rcu_read_lock
.Lnext:
    cmp r12, r13
    ja .Lout
    mov rdi, rbx
    mov rsi, r12
    call xas_load
    test rax, rax
    je .Lout
    GET_PAGE rax
    mov rcx, [r14+FBATCH_NR]
    mov [r14+rcx*8+FBATCH_PAGES], rax
    inc rcx
    mov [r14+FBATCH_NR], rcx
    cmp ecx, PAGEVEC_SIZE
    jae .Lout
    test dword ptr [rax+PAGE_FLAGS], PG_UPTODATE
    je .Lout
    inc r12
    jmp .Lnext
.Lout:
    call __rcu_read_unlock
    LEAVE4
ENDFUNC filemap_get_read_batch

FUNC filemap_read_folio                 # rdi file, rsi read_folio, rdx folio (locked); eax 0 or error
    ENTER1
    push 0
    mov rbx, rdx
    mov rax, rsi
    mov rsi, rdx
    call rax
    test eax, eax
    jne .Lout
    test dword ptr [rbx+PAGE_FLAGS], PG_UPTODATE
    jne .Lout
    mov eax, -EIO
.Lout:
    LEAVE1
ENDFUNC filemap_read_folio

# rdi kiocb, rsi iter, rdx folio_batch; eax 0, or an error with an empty batch.
FUNC filemap_get_pages
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rdx
    mov rax, [rdi+KI_FILP]
    mov r13, [rax+FILE_MAPPING]
    mov r14, [rdi+KI_POS]
    mov rdx, [rsi+ITER_COUNT]
    lea rdx, [r14+rdx-1]
    shr rdx, PAGE_SHIFT
    shr r14, PAGE_SHIFT
    mov [rbp-48], rdx
.Lretry:
    mov rdi, r13
    mov rsi, r14
    mov rdx, [rbp-48]
    mov rcx, r12
    call filemap_get_read_batch
    mov rcx, [r12+FBATCH_NR]
    test rcx, rcx
    je .Lcreate
    mov r15, [r12+rcx*8+FBATCH_PAGES-8]
    xor eax, eax
    test dword ptr [r15+PAGE_FLAGS], PG_UPTODATE
    jne .Lout
    lock bts dword ptr [r15+PAGE_FLAGS], 0      # filemap_update_page
    jae .Llocked
    mov rdi, r15
    call __folio_lock
.Llocked:
    cmp [r15+PAGE_MAPPING], r13
    jne .Lvanished
    test dword ptr [r15+PAGE_FLAGS], PG_UPTODATE
    jne .Lunlock
    mov rdi, [rbx+KI_FILP]
    mov rax, [r13+MAPPING_OPS]
    mov rsi, [rax+AOP_READ_FOLIO]
    mov rdx, r15
    call filemap_read_folio
    test eax, eax
    je .Lout
    mov r14d, eax
    dec qword ptr [r12+FBATCH_NR]
    mov rdi, r15
    call folio_put
    mov eax, r14d
    cmp qword ptr [r12+FBATCH_NR], 0
    je .Lout
    xor eax, eax
    jmp .Lout
.Lunlock:
    mov rdi, r15
    call folio_unlock
    xor eax, eax
    jmp .Lout
.Lvanished:
    mov rdi, r15
    call folio_unlock
    dec qword ptr [r12+FBATCH_NR]
    mov rdi, r15
    call folio_put
    cmp qword ptr [r12+FBATCH_NR], 0
    je .Lretry
    xor eax, eax
    jmp .Lout
.Lcreate:                               # filemap_create_folio
    mov edi, [r13+MAPPING_GFP]
    xor esi, esi
    call filemap_alloc_folio
    test rax, rax
    je .Lnomem
    mov r15, rax
    mov rdi, r13
    mov rsi, rax
    mov rdx, r14
    mov ecx, [r13+MAPPING_GFP]
    call filemap_add_folio
    test eax, eax
    jne .Lrefused
    mov rdi, [rbx+KI_FILP]
    mov rax, [r13+MAPPING_OPS]
    mov rsi, [rax+AOP_READ_FOLIO]
    mov rdx, r15
    call filemap_read_folio
    test eax, eax
    jne .Lrefused
    mov qword ptr [r12+FBATCH_NR], 1
    mov [r12+FBATCH_PAGES], r15
    jmp .Lout
.Lrefused:
    mov [rbp-48], rax
    mov rdi, r15
    call folio_put
    mov eax, [rbp-48]
    cmp eax, -EEXIST
    jne .Lout
    mov qword ptr [rbp-48], r14         # somebody else brought it in
    jmp .Lretry
.Lnomem:
    mov eax, -ENOMEM
.Lout:
    LEAVE5
ENDFUNC filemap_get_pages

READ_FBATCH = 48 + FBATCH_BYTES         # locals of filemap_read, below rbp
READ_ERROR = READ_FBATCH + 8
READ_ALREADY = READ_FBATCH + 16

FUNC filemap_read                       # rdi kiocb, rsi iter, rdx bytes read before; rax bytes or error
    ENTER5
    sub rsp, READ_ALREADY - 40
    mov rbx, rdi
    mov r12, rsi
    mov [rbp-READ_ALREADY], rdx
    mov qword ptr [rbp-READ_ERROR], 0
    mov rax, [rdi+KI_FILP]
    mov r13, [rax+FILE_MAPPING]
    mov r13, [r13+MAPPING_HOST]
.Lmore:
    call __cond_resched
    mov rax, [rbx+KI_POS]
    cmp rax, [r13+INODE_SIZE]
    jge .Ldone
    mov rdi, rbx
    mov rsi, r12
    lea rdx, [rbp-READ_FBATCH]
    call filemap_get_pages
    movsxd rax, eax
    mov [rbp-READ_ERROR], rax
    test rax, rax
    js .Ldone
    xor r14d, r14d
.Lfolio:
    cmp r14, [rbp-READ_FBATCH+FBATCH_NR]
    jae .Lput
    mov rdi, [rbp+r14*8-READ_FBATCH+FBATCH_PAGES]
    mov r15, [r13+INODE_SIZE]
    sub r15, [rbx+KI_POS]
    jle .Lput
    cmp r15, [r12+ITER_COUNT]
    cmova r15, [r12+ITER_COUNT]
    test r15, r15
    je .Lput
    push rdi
    push rdi
    call folio_mark_accessed
    pop rdi
    add rsp, 8
    mov rsi, [rbx+KI_POS]
    and esi, PAGE_BYTES - 1
    mov eax, PAGE_BYTES
    sub eax, esi
    cmp r15, rax
    cmova r15, rax
    mov rdx, r15
    mov rcx, r12
    call copy_page_to_iter
    add [rbp-READ_ALREADY], rax
    add [rbx+KI_POS], rax
    inc r14
    cmp rax, r15
    je .Lfolio
    mov qword ptr [rbp-READ_ERROR], -EFAULT
.Lput:
    lea rdi, [rbp-READ_FBATCH+FBATCH_PAGES]
    mov rsi, [rbp-READ_FBATCH+FBATCH_NR]
    call release_pages
    cmp qword ptr [rbp-READ_ERROR], 0
    jne .Ldone
    cmp qword ptr [r12+ITER_COUNT], 0
    jne .Lmore
.Ldone:
    mov rdi, [rbx+KI_FILP]
    test dword ptr [rdi+FILE_FLAGS], O_NOATIME
    jne .Lresult
    add rdi, FILE_PATH
    call touch_atime
.Lresult:
    mov rax, [rbp-READ_ALREADY]
    test rax, rax
    cmove rax, [rbp-READ_ERROR]
    LEAVE5
ENDFUNC filemap_read

FUNC generic_file_read_iter             # rdi kiocb, rsi iter; rax bytes or error
    PROLOGUE
    xor eax, eax
    cmp qword ptr [rsi+ITER_COUNT], 0
    je .Lout
    xor edx, edx
    call filemap_read
.Lout:
    EPILOGUE
ENDFUNC generic_file_read_iter

# The page behind a fault in a mapped file: locked and up to date in vmf->page.
FUNC filemap_fault                      # rdi vm_fault; eax VM_FAULT_*
    ENTER4
    mov rbx, rdi
    mov rax, [rdi+VMF_VMA]
    mov r12, [rax+VMA_FILE]
    mov r13, [r12+FILE_MAPPING]
    mov rcx, [r13+MAPPING_HOST]
    mov rax, [rcx+INODE_SIZE]
    add rax, PAGE_BYTES - 1
    shr rax, PAGE_SHIFT
    cmp [rbx+VMF_PGOFF], rax
    jae .Lsigbus
    mov rdi, r13
    mov rsi, [rbx+VMF_PGOFF]
    mov edx, FGP_CREAT | FGP_LOCK
    mov ecx, [r13+MAPPING_GFP]
    call __filemap_get_folio
    mov r14, rax
    test rax, rax
    je .Loom
    test dword ptr [rax+PAGE_FLAGS], PG_UPTODATE
    jne .Lready
    mov rdi, r12
    mov rax, [r13+MAPPING_OPS]
    mov rsi, [rax+AOP_READ_FOLIO]
    mov rdx, r14
    call filemap_read_folio
    test eax, eax
    jne .Lputsigbus
    lock or dword ptr [r14+PAGE_FLAGS], PG_LOCKED       # read_folio unlocked it
.Lready:
    mov [rbx+VMF_PAGE], r14
    mov eax, VM_FAULT_LOCKED
    LEAVE4
.Lputsigbus:
    mov rdi, r14
    call folio_put
.Lsigbus:
    mov eax, VM_FAULT_SIGBUS
    LEAVE4
.Loom:
    mov eax, VM_FAULT_OOM
    LEAVE4
ENDFUNC filemap_fault

.data
.balign 8
OBJECT generic_file_vm_ops
    .quad filemap_fault
ENDOBJECT generic_file_vm_ops
