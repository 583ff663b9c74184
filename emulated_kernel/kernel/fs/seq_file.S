# fs/seq_file.c: files whose text is made record by record.

.text

FUNC_NOTRACE seq_file_init
    PROLOGUE
    mov rdi, offset seq_file_name
    mov esi, SEQ_BYTES
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + seq_file_cache], rax
    EPILOGUE
ENDFUNC seq_file_init

FUNC seq_open                           # rdi file, rsi seq_operations; eax 0 or error
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rdi, [rip + seq_file_cache]
    mov esi, GFP_KERNEL | GFP_ZERO
    call kmem_cache_alloc
    test rax, rax
    je .Lnomem
    mov [rbx+FILE_PRIVATE], rax
    mov [rax+SEQ_OP], r12
    mov [rax+SEQ_FILE], rbx
    lea rdi, [rax+SEQ_LOCK]
    call __mutex_init
    and dword ptr [rbx+FILE_MODE], ~FMODE_PWRITE
    xor eax, eax
    LEAVE2
.Lnomem:
    mov eax, -ENOMEM
    LEAVE2
ENDFUNC seq_open

FUNC seq_release                        # rdi inode, rsi file; eax 0
    ENTER1
    push 0
    mov rbx, [rsi+FILE_PRIVATE]
    mov rdi, [rbx+SEQ_BUF]
    call kvfree
    mov rdi, [rip + seq_file_cache]
    mov rsi, rbx
    call kmem_cache_free
    xor eax, eax
    LEAVE1
ENDFUNC seq_release

# A buffer of twice the size, empty: rdi seq; eax 0 or error.
FUNC_NOTRACE seq_grow
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rbx+SEQ_BUF]
    call kvfree
    mov qword ptr [rbx+SEQ_COUNT], 0
    mov rdi, [rbx+SEQ_SIZE]
    add rdi, rdi
    jne .Lsize
    mov edi, PAGE_BYTES
.Lsize:
    mov [rbx+SEQ_SIZE], rdi
    mov esi, GFP_KERNEL
    mov edx, -1
    call kvmalloc_node
    mov [rbx+SEQ_BUF], rax
    test rax, rax
    mov eax, 0
    jne .Lout
    mov qword ptr [rbx+SEQ_SIZE], 0
    mov eax, -ENOMEM
.Lout:
    LEAVE1
ENDFUNC seq_grow

# Make the records again up to byte rsi of the text: rdi seq; eax 0 or error. Inlined in Linux.
FUNC_NOTRACE traverse
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    xor eax, eax
    mov [rbx+SEQ_INDEX], rax
    mov [rbx+SEQ_COUNT], rax
    mov [rbx+SEQ_FROM], rax
    test r12, r12
    je .Lout
.Lrestart:
    mov r13, [rbx+SEQ_SIZE]
    test r13, r13
    jne .Lstart
    mov rdi, rbx
    call seq_grow
    test eax, eax
    jne .Lout
.Lstart:
    xor r13d, r13d                      # bytes passed over
    mov qword ptr [rbx+SEQ_INDEX], 0
    mov rdi, rbx
    lea rsi, [rbx+SEQ_INDEX]
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_START]
    mov r14, rax
.Lrecord:
    mov r15d, r14d
    cmp r14, ERR_MIN
    jae .Lstop
    xor r15d, r15d
    test r14, r14
    je .Lstop
    mov rdi, rbx
    mov rsi, r14
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_SHOW]
    mov r15d, eax
    test eax, eax
    js .Lstop
    je .Lshown
    mov qword ptr [rbx+SEQ_COUNT], 0
.Lshown:
    mov r15d, 0
    mov rax, [rbx+SEQ_COUNT]
    cmp rax, [rbx+SEQ_SIZE]
    je .Loverflow
    add rax, r13
    cmp rax, r12
    ja .Lhere
    mov r13, rax
    mov qword ptr [rbx+SEQ_COUNT], 0
    mov rdi, rbx
    mov rsi, r14
    lea rdx, [rbx+SEQ_INDEX]
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_NEXT]
    mov r14, rax
    cmp r13, r12
    jne .Lrecord
    jmp .Lstop
.Lhere:                                 # the wanted byte is in this record
    mov rax, r12
    sub rax, r13
    mov [rbx+SEQ_FROM], rax
    sub [rbx+SEQ_COUNT], rax
    mov rdi, rbx
    mov rsi, r14
    lea rdx, [rbx+SEQ_INDEX]
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_NEXT]
    mov r14, rax
.Lstop:
    mov rdi, rbx
    mov rsi, r14
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_STOP]
    mov eax, r15d
    jmp .Lout
.Loverflow:
    mov rdi, rbx
    mov rsi, r14
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_STOP]
    mov rdi, rbx
    call seq_grow
    test eax, eax
    je .Lrestart
.Lout:
    LEAVE5
ENDFUNC traverse

SEQREAD_COPIED = 48                     # locals of seq_read_iter, below rbp
SEQREAD_ERROR = 56
SEQREAD_OFFSET = 64
SEQREAD_POS = 72

FUNC seq_read_iter                      # rdi kiocb, rsi iter; rax bytes or error
    ENTER5
    sub rsp, 40
    mov r12, rdi
    mov r13, rsi
    xor eax, eax
    mov [rbp-SEQREAD_COPIED], rax
    mov [rbp-SEQREAD_ERROR], rax
    cmp qword ptr [rsi+ITER_COUNT], 0
    je .Lout
    mov rax, [rdi+KI_FILP]
    mov rbx, [rax+FILE_PRIVATE]
    lea rdi, [rbx+SEQ_LOCK]
    call mutex_lock
    mov rsi, [r12+KI_POS]
    cmp rsi, [rbx+SEQ_READ_POS]
    je .Lbuffer
    mov rdi, rbx
    call traverse
    movsxd rax, eax
    mov [rbp-SEQREAD_ERROR], rax
    test rax, rax
    mov rax, [r12+KI_POS]
    mov [rbx+SEQ_READ_POS], rax
    je .Lbuffer
    xor eax, eax
    mov [rbx+SEQ_READ_POS], rax
    mov [rbx+SEQ_INDEX], rax
    mov [rbx+SEQ_COUNT], rax
    jmp .Ldone
.Lbuffer:
    cmp qword ptr [rbx+SEQ_BUF], 0
    jne .Lleft
    mov rdi, rbx
    call seq_grow
    movsxd rax, eax
    mov [rbp-SEQREAD_ERROR], rax
    test rax, rax
    jne .Ldone
.Lleft:                                 # something left from before
    cmp qword ptr [rbx+SEQ_COUNT], 0
    je .Lmake
    mov rdi, [rbx+SEQ_BUF]
    add rdi, [rbx+SEQ_FROM]
    mov rsi, [rbx+SEQ_COUNT]
    mov rdx, r13
    call _copy_to_iter
    sub [rbx+SEQ_COUNT], rax
    add [rbx+SEQ_FROM], rax
    add [rbp-SEQREAD_COPIED], rax
    cmp qword ptr [rbx+SEQ_COUNT], 0
    jne .Ldone
    cmp qword ptr [r13+ITER_COUNT], 0
    je .Ldone
.Lmake:                                 # a record that is not empty
    mov qword ptr [rbx+SEQ_FROM], 0
    mov rdi, rbx
    lea rsi, [rbx+SEQ_INDEX]
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_START]
    mov r14, rax
.Lrecord:
    test r14, r14
    je .Lnomore
    mov [rbp-SEQREAD_ERROR], r14
    cmp r14, ERR_MIN
    jae .Lstopped
    mov qword ptr [rbp-SEQREAD_ERROR], 0
    mov rdi, rbx
    mov rsi, r14
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_SHOW]
    movsxd rax, eax
    test rax, rax
    je .Lshown
    mov [rbp-SEQREAD_ERROR], rax
    js .Lstopped
    mov qword ptr [rbp-SEQREAD_ERROR], 0
    mov qword ptr [rbx+SEQ_COUNT], 0
.Lshown:
    mov rax, [rbx+SEQ_COUNT]
    test rax, rax
    je .Lempty
    cmp rax, [rbx+SEQ_SIZE]
    jb .Lfill
    mov rdi, rbx
    mov rsi, r14
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_STOP]
    mov rdi, rbx
    call seq_grow
    movsxd rax, eax
    mov [rbp-SEQREAD_ERROR], rax
    test rax, rax
    jne .Ldone
    jmp .Lmake
.Lempty:
    mov rdi, rbx
    mov rsi, r14
    lea rdx, [rbx+SEQ_INDEX]
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_NEXT]
    mov r14, rax
    jmp .Lrecord
.Lnomore:
    mov qword ptr [rbp-SEQREAD_ERROR], 0
.Lstopped:
    mov rdi, rbx
    mov rsi, r14
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_STOP]
    mov qword ptr [rbx+SEQ_COUNT], 0
    jmp .Ldone
.Lfill:                                 # more of them, as long as they fit
    mov rax, [rbx+SEQ_COUNT]
    mov [rbp-SEQREAD_OFFSET], rax
    mov rax, [rbx+SEQ_INDEX]
    mov [rbp-SEQREAD_POS], rax
    mov rdi, rbx
    mov rsi, r14
    lea rdx, [rbx+SEQ_INDEX]
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_NEXT]
    mov r14, rax
    mov rcx, [rbp-SEQREAD_POS]
    cmp rcx, [rbx+SEQ_INDEX]
    jne .Ladvanced
    inc qword ptr [rbx+SEQ_INDEX]
.Ladvanced:
    test r14, r14
    je .Lfilled
    cmp r14, ERR_MIN
    jae .Lfilled
    mov rax, [rbx+SEQ_COUNT]
    cmp rax, [r13+ITER_COUNT]
    jae .Lfilled
    mov rdi, rbx
    mov rsi, r14
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_SHOW]
    mov rcx, [rbp-SEQREAD_OFFSET]
    test eax, eax
    jg .Lskipped
    jne .Lcut
    mov rdx, [rbx+SEQ_COUNT]
    cmp rdx, [rbx+SEQ_SIZE]
    jb .Lfill
.Lcut:
    mov [rbx+SEQ_COUNT], rcx
    jmp .Lfilled
.Lskipped:
    mov [rbx+SEQ_COUNT], rcx
    jmp .Lfill
.Lfilled:
    mov rdi, rbx
    mov rsi, r14
    mov rax, [rbx+SEQ_OP]
    call [rax+SEQOP_STOP]
    mov rdi, [rbx+SEQ_BUF]
    mov rsi, [rbx+SEQ_COUNT]
    mov rdx, r13
    call _copy_to_iter
    add [rbp-SEQREAD_COPIED], rax
    sub [rbx+SEQ_COUNT], rax
    mov [rbx+SEQ_FROM], rax
.Ldone:
    mov rax, [rbp-SEQREAD_COPIED]
    test rax, rax
    jne .Lmoved
    mov rax, [rbp-SEQREAD_ERROR]
    cmp qword ptr [rbx+SEQ_COUNT], 0
    je .Lunlock
    mov rax, -EFAULT
    jmp .Lunlock
.Lmoved:
    add [r12+KI_POS], rax
    add [rbx+SEQ_READ_POS], rax
.Lunlock:
    mov [rbp-SEQREAD_COPIED], rax
    lea rdi, [rbx+SEQ_LOCK]
    call mutex_unlock
.Lout:
    mov rax, [rbp-SEQREAD_COPIED]
    LEAVE5
ENDFUNC seq_read_iter

FUNC seq_lseek                          # rdi file, rsi offset, edx whence; rax position or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov r14, [rdi+FILE_PRIVATE]
    lea rdi, [r14+SEQ_LOCK]
    call mutex_lock
    cmp r13d, SEEK_SET
    je .Lset
    cmp r13d, SEEK_CUR
    mov r13, -EINVAL
    jne .Lunlock
    add r12, [rbx+FILE_POS]
.Lset:
    mov r13, -EINVAL
    test r12, r12
    js .Lunlock
    mov r13, r12
    cmp r12, [r14+SEQ_READ_POS]
    je .Lmove
    mov rdi, r14
    mov rsi, r12
    call traverse
    test eax, eax
    je .Lthere
    movsxd r13, eax
    xor eax, eax
    mov [rbx+FILE_POS], rax
    mov [r14+SEQ_READ_POS], rax
    mov [r14+SEQ_INDEX], rax
    mov [r14+SEQ_COUNT], rax
    jmp .Lunlock
.Lthere:
    mov [r14+SEQ_READ_POS], r12
.Lmove:
    mov [rbx+FILE_POS], r12
.Lunlock:
    lea rdi, [r14+SEQ_LOCK]
    call mutex_unlock
    mov rax, r13
    LEAVE4
ENDFUNC seq_lseek

# --- one record -----------------------------------------------------------------------------------

FUNC single_start                       # rdi seq, rsi pos *; rax the only element, or 0
    PROLOGUE
    xor eax, eax
    cmp qword ptr [rsi], 0
    sete al
    EPILOGUE
ENDFUNC single_start

FUNC single_next                        # rdi seq, rsi element, rdx pos *; rax 0
    PROLOGUE
    inc qword ptr [rdx]
    xor eax, eax
    EPILOGUE
ENDFUNC single_next

FUNC single_stop                        # rdi seq, rsi element
    PROLOGUE
    EPILOGUE
ENDFUNC single_stop

FUNC single_open                        # rdi file, rsi show(seq, element), rdx for seq->private; eax
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    KMALLOC KMALLOC_32, SEQOP_BYTES, GFP_KERNEL
    mov r14, rax
    test rax, rax
    mov eax, -ENOMEM
    je .Lout
    mov rax, offset single_start
    mov [r14+SEQOP_START], rax
    mov rax, offset single_stop
    mov [r14+SEQOP_STOP], rax
    mov rax, offset single_next
    mov [r14+SEQOP_NEXT], rax
    mov [r14+SEQOP_SHOW], r12
    mov rdi, rbx
    mov rsi, r14
    call seq_open
    test eax, eax
    jne .Lfree
    mov rax, [rbx+FILE_PRIVATE]
    mov [rax+SEQ_PRIVATE], r13
    xor eax, eax
    LEAVE4
.Lfree:
    mov ebx, eax
    mov rdi, r14
    call kfree
    mov eax, ebx
.Lout:
    LEAVE4
ENDFUNC single_open

FUNC single_release                     # rdi inode, rsi file; eax 0
    ENTER1
    push 0
    mov rax, [rsi+FILE_PRIVATE]
    mov rbx, [rax+SEQ_OP]
    call seq_release
    mov rdi, rbx
    call kfree
    xor eax, eax
    LEAVE1
ENDFUNC single_release

# --- what show functions write with; what does not fit makes the buffer full ------------------------

FUNC seq_write                          # rdi seq, rsi data, rdx bytes; eax 0, or -1 when it did not fit
    ENTER2
    mov rbx, rdi
    mov rax, [rdi+SEQ_COUNT]
    mov r12, rdx
    lea rcx, [rax+rdx]
    cmp rcx, [rdi+SEQ_SIZE]
    jae .Lfull
    add rax, [rdi+SEQ_BUF]
    mov rdi, rax
    call memcpy
    add [rbx+SEQ_COUNT], r12
    xor eax, eax
    LEAVE2
.Lfull:
    mov rax, [rbx+SEQ_SIZE]
    mov [rbx+SEQ_COUNT], rax
    mov eax, -1
    LEAVE2
ENDFUNC seq_write

FUNC seq_puts                           # rdi seq, rsi string
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rdi, rsi
    call strlen
    mov rdi, rbx
    mov rsi, r12
    mov rdx, rax
    call seq_write
    LEAVE2
ENDFUNC seq_puts

FUNC seq_putc                           # rdi seq, sil character
    PROLOGUE
    mov rax, [rdi+SEQ_COUNT]
    cmp rax, [rdi+SEQ_SIZE]
    jae .Lout
    mov rcx, [rdi+SEQ_BUF]
    mov [rcx+rax], sil
    inc qword ptr [rdi+SEQ_COUNT]
.Lout:
    EPILOGUE
ENDFUNC seq_putc

FUNC seq_vprintf                        # rdi seq, rsi format, rdx va_list
    ENTER1
    push 0
    mov rbx, rdi
    mov rax, [rdi+SEQ_COUNT]
    mov rcx, rdx
    mov rdx, rsi
    mov rsi, [rdi+SEQ_SIZE]
    sub rsi, rax
    je .Lout
    mov rdi, [rdi+SEQ_BUF]
    add rdi, rax
    call vsnprintf
    add rax, [rbx+SEQ_COUNT]
    cmp rax, [rbx+SEQ_SIZE]
    jb .Lfits
    mov rax, [rbx+SEQ_SIZE]
.Lfits:
    mov [rbx+SEQ_COUNT], rax
.Lout:
    LEAVE1
ENDFUNC seq_vprintf

FUNC seq_printf                         # rdi seq, rsi format, …
    PROLOGUE
    VA_START 2
    lea rdx, [rbp-80]
    call seq_vprintf
    leave
    ret
ENDFUNC seq_printf

.data
.balign 8
OBJECT seq_file_cache
    .quad 0
ENDOBJECT seq_file_cache
seq_file_name:
    .asciz "seq_file"
