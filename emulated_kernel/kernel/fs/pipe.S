# fs/pipe.c: a ring of pages between a writer and a reader. Left out: splice, packets, resizing, waiting
# for a partner when a FIFO is opened.

.text

FUNC alloc_pipe_info                    # rax pipe or 0
    ENTER1
    push 0
    KMALLOC KMALLOC_128, PIPE_BYTES, GFP_KERNEL | GFP_ZERO
    mov rbx, rax
    test rax, rax
    je .Lout
    mov edi, PIPE_RING * PIPE_BUF_BYTES
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    test rax, rax
    je .Lnobufs
    mov [rbx+PIPE_BUFS], rax
    lea rdi, [rbx+PIPE_RD_WAIT]
    call __init_waitqueue_head
    lea rdi, [rbx+PIPE_WR_WAIT]
    call __init_waitqueue_head
    lea rdi, [rbx+PIPE_MUTEX]
    call __mutex_init
    jmp .Lout
.Lnobufs:
    mov rdi, rbx
    call kfree
    xor ebx, ebx
.Lout:
    mov rax, rbx
    LEAVE1
ENDFUNC alloc_pipe_info

FUNC free_pipe_info                     # rdi pipe nobody has open
    ENTER2
    mov rbx, rdi
    mov r12d, [rdi+PIPE_TAIL]
.Lnext:
    cmp r12d, [rbx+PIPE_HEAD]
    je .Lempty
    mov eax, r12d
    PIPE_SLOT rax, eax, rbx
    mov rdi, [rax+PIPE_BUF_PAGE]
    call folio_put
    inc r12d
    jmp .Lnext
.Lempty:
    mov rdi, [rbx+PIPE_TMP_PAGE]
    test rdi, rdi
    je .Lfree
    xor esi, esi
    call __free_pages
.Lfree:
    mov rdi, [rbx+PIPE_BUFS]
    call kfree
    mov rdi, rbx
    call kfree
    LEAVE2
ENDFUNC free_pipe_info

FUNC anon_pipe_buf_release              # rdi pipe, rsi buffer that was emptied
    PROLOGUE
    mov rax, rdi
    mov rdi, [rsi+PIPE_BUF_PAGE]
    mov qword ptr [rsi+PIPE_BUF_PAGE], 0
    cmp qword ptr [rax+PIPE_TMP_PAGE], 0
    jne .Lput
    cmp dword ptr [rdi+PAGE_REFCOUNT], 1
    jne .Lput
    mov [rax+PIPE_TMP_PAGE], rdi
    EPILOGUE
.Lput:
    call folio_put
    EPILOGUE
ENDFUNC anon_pipe_buf_release

# Wake one that sleeps on \wait of the pipe in rbx; \events tells pollers what happened.
.macro PIPE_WAKE wait, events
    lea rdi, [rbx+\wait]
    mov esi, TASK_INTERRUPTIBLE
    mov edx, 1
    mov ecx, \events
    call __wake_up
.endm

# Sleep until something may be read: rdi pipe, unlocked; eax 0 or -ERESTARTSYS.
FUNC pipe_wait_readable
    ENTER2
    sub rsp, WAIT_SIZE + 8
    mov rbx, rdi
    mov rdi, rsp
    mov esi, WQ_FLAG_EXCLUSIVE
    call init_wait_entry
.Lagain:
    lea rdi, [rbx+PIPE_RD_WAIT]
    mov rsi, rsp
    mov edx, TASK_INTERRUPTIBLE
    call prepare_to_wait_event
    mov r12d, eax
    mov ecx, [rbx+PIPE_HEAD]
    cmp ecx, [rbx+PIPE_TAIL]
    jne .Lready
    cmp dword ptr [rbx+PIPE_WRITERS], 0
    je .Lready
    test r12d, r12d
    jne .Lout
    call schedule
    jmp .Lagain
.Lready:
    xor r12d, r12d
.Lout:
    lea rdi, [rbx+PIPE_RD_WAIT]
    mov rsi, rsp
    call finish_wait
    mov eax, r12d
    LEAVE2
ENDFUNC pipe_wait_readable

FUNC pipe_wait_writable                 # rdi pipe, unlocked; eax 0 or -ERESTARTSYS
    ENTER2
    sub rsp, WAIT_SIZE + 8
    mov rbx, rdi
    mov rdi, rsp
    mov esi, WQ_FLAG_EXCLUSIVE
    call init_wait_entry
.Lagain:
    lea rdi, [rbx+PIPE_WR_WAIT]
    mov rsi, rsp
    mov edx, TASK_INTERRUPTIBLE
    call prepare_to_wait_event
    mov r12d, eax
    mov ecx, [rbx+PIPE_HEAD]
    sub ecx, [rbx+PIPE_TAIL]
    cmp ecx, PIPE_RING
    jb .Lready
    cmp dword ptr [rbx+PIPE_READERS], 0
    je .Lready
    test r12d, r12d
    jne .Lout
    call schedule
    jmp .Lagain
.Lready:
    xor r12d, r12d
.Lout:
    lea rdi, [rbx+PIPE_WR_WAIT]
    mov rsi, rsp
    call finish_wait
    mov eax, r12d
    LEAVE2
ENDFUNC pipe_wait_writable

FUNC pipe_read                          # rdi kiocb, rsi iter; rax bytes or error
    ENTER5
    push rdi
    mov r12, rsi
    xor r13d, r13d                      # bytes so far
    cmp qword ptr [rsi+ITER_COUNT], 0
    je .Lout
    mov rax, [rdi+KI_FILP]
    mov rbx, [rax+FILE_PRIVATE]
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_lock
    mov r15d, [rbx+PIPE_HEAD]
    sub r15d, [rbx+PIPE_TAIL]           # was it full
.Lnext:
    mov eax, [rbx+PIPE_TAIL]
    cmp eax, [rbx+PIPE_HEAD]
    je .Lempty
    PIPE_SLOT rax, eax, rbx
    mov r14, rax
    mov rdi, [r14+PIPE_BUF_PAGE]
    mov esi, [r14+PIPE_BUF_OFFSET]
    mov edx, [r14+PIPE_BUF_LEN]
    cmp rdx, [r12+ITER_COUNT]
    cmova rdx, [r12+ITER_COUNT]
    push rdx
    push rdx
    mov rcx, r12
    call copy_page_to_iter
    pop rdx
    pop rdx
    add r13, rax
    add [r14+PIPE_BUF_OFFSET], eax
    sub [r14+PIPE_BUF_LEN], eax
    cmp rax, rdx
    jb .Lfault
    cmp dword ptr [r14+PIPE_BUF_LEN], 0
    jne .Ldone
    mov rdi, rbx
    mov rsi, r14
    call anon_pipe_buf_release
    lea rdi, [rbx+PIPE_RD_WAIT]
    call _raw_spin_lock_irq
    inc dword ptr [rbx+PIPE_TAIL]
    lea rdi, [rbx+PIPE_RD_WAIT]
    call _raw_spin_unlock_irq
    cmp qword ptr [r12+ITER_COUNT], 0
    jne .Lnext
    jmp .Ldone
.Lfault:
    test r13, r13
    jne .Ldone
    mov r13, -EFAULT
    jmp .Ldone
.Lempty:
    cmp dword ptr [rbx+PIPE_WRITERS], 0
    je .Ldone
    test r13, r13
    jne .Ldone
    mov rax, [rbp-48]
    test dword ptr [rax+KI_FLAGS], IOCB_NOWAIT
    jne .Lagain
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_unlock
    cmp r15d, PIPE_RING
    jb .Lsleep
    PIPE_WAKE PIPE_WR_WAIT, EPOLLOUT | EPOLLWRNORM
.Lsleep:
    mov rdi, rbx
    call pipe_wait_readable
    movsxd r13, eax
    test eax, eax
    jne .Lout
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_lock
    mov r15d, [rbx+PIPE_HEAD]
    sub r15d, [rbx+PIPE_TAIL]
    jmp .Lnext
.Lagain:
    mov r13, -EAGAIN
.Ldone:
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_unlock
    cmp r15d, PIPE_RING
    jb .Lnextreader
    PIPE_WAKE PIPE_WR_WAIT, EPOLLOUT | EPOLLWRNORM
.Lnextreader:
    mov eax, [rbx+PIPE_HEAD]
    cmp eax, [rbx+PIPE_TAIL]
    je .Laccessed
    PIPE_WAKE PIPE_RD_WAIT, EPOLLIN | EPOLLRDNORM
.Laccessed:
    test r13, r13
    jle .Lout
    mov rax, [rbp-48]
    mov rdi, [rax+KI_FILP]
    add rdi, FILE_PATH
    call touch_atime
.Lout:
    mov rax, r13
    LEAVE5
ENDFUNC pipe_read

FUNC pipe_write                         # rdi kiocb, rsi iter; rax bytes or error
    ENTER5
    push rdi
    mov r12, rsi
    xor r13d, r13d                      # bytes so far
    cmp qword ptr [rsi+ITER_COUNT], 0
    je .Lout
    mov rax, [rdi+KI_FILP]
    mov rbx, [rax+FILE_PRIVATE]
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_lock
    cmp dword ptr [rbx+PIPE_READERS], 0
    je .Lbroken
    mov eax, [rbx+PIPE_HEAD]
    mov r15d, eax
    sub r15d, [rbx+PIPE_TAIL]           # was it empty
    je .Lnext
    dec eax                             # append to the last page if all of the rest fits
    PIPE_SLOT rax, eax, rbx
    mov r14, rax
    mov ecx, [r12+ITER_COUNT]
    and ecx, PAGE_BYTES - 1
    je .Lnext
    mov esi, [r14+PIPE_BUF_OFFSET]
    add esi, [r14+PIPE_BUF_LEN]
    lea eax, [rsi+rcx]
    cmp eax, PAGE_BYTES
    ja .Lnext
    mov edx, ecx
    push rdx
    push rdx
    mov rdi, [r14+PIPE_BUF_PAGE]
    mov rcx, r12
    call copy_page_from_iter_atomic
    pop rdx
    pop rdx
    add [r14+PIPE_BUF_LEN], eax
    add r13, rax
    cmp rax, rdx
    jb .Lfault
    cmp qword ptr [r12+ITER_COUNT], 0
    je .Ldone
.Lnext:
    cmp dword ptr [rbx+PIPE_READERS], 0
    je .Lbroken
    mov eax, [rbx+PIPE_HEAD]
    sub eax, [rbx+PIPE_TAIL]
    cmp eax, PIPE_RING
    jae .Lfull
    mov r14, [rbx+PIPE_TMP_PAGE]
    test r14, r14
    jne .Lpage
    mov edi, GFP_USER
    xor esi, esi
    call alloc_pages
    mov r14, rax
    test rax, rax
    je .Lnomem
.Lpage:
    mov qword ptr [rbx+PIPE_TMP_PAGE], 0
    lea rdi, [rbx+PIPE_RD_WAIT]
    call _raw_spin_lock_irq
    mov eax, [rbx+PIPE_HEAD]
    inc dword ptr [rbx+PIPE_HEAD]
    PIPE_SLOT rax, eax, rbx
    mov [rax+PIPE_BUF_PAGE], r14
    mov qword ptr [rax+PIPE_BUF_OFFSET], 0
    mov r14, rax
    lea rdi, [rbx+PIPE_RD_WAIT]
    call _raw_spin_unlock_irq
    mov rdi, [r14+PIPE_BUF_PAGE]
    xor esi, esi
    mov edx, PAGE_BYTES
    mov rcx, r12
    call copy_page_from_iter_atomic
    mov [r14+PIPE_BUF_LEN], eax
    add r13, rax
    cmp qword ptr [r12+ITER_COUNT], 0
    je .Ldone
    cmp rax, PAGE_BYTES
    je .Lnext
.Lfault:
    test r13, r13
    jne .Ldone
    mov r13, -EFAULT
    jmp .Ldone
.Lnomem:
    test r13, r13
    jne .Ldone
    mov r13, -ENOMEM
    jmp .Ldone
.Lfull:
    mov rax, [rbp-48]
    test dword ptr [rax+KI_FLAGS], IOCB_NOWAIT
    jne .Lagain
    mov rax, gs:[CURRENT_TASK]
    cmp dword ptr [rax+TASK_SIGPENDING], 0
    jne .Lsignal
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_unlock
    test r15d, r15d
    jne .Lsleep
    PIPE_WAKE PIPE_RD_WAIT, EPOLLIN | EPOLLRDNORM
.Lsleep:
    mov rdi, rbx
    call pipe_wait_writable
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_lock
    mov r15d, [rbx+PIPE_HEAD]
    sub r15d, [rbx+PIPE_TAIL]
    jmp .Lnext
.Lsignal:
    test r13, r13
    jne .Ldone
    mov r13, -ERESTARTSYS
    jmp .Ldone
.Lagain:
    test r13, r13
    jne .Ldone
    mov r13, -EAGAIN
    jmp .Ldone
.Lbroken:
    mov r15d, 1
    mov edi, SIGPIPE
    mov rsi, gs:[CURRENT_TASK]
    call do_send_sig_info
    test r13, r13
    jne .Ldone
    mov r13, -EPIPE
.Ldone:
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_unlock
    test r15d, r15d
    jne .Lnextwriter
    PIPE_WAKE PIPE_RD_WAIT, EPOLLIN | EPOLLRDNORM
.Lnextwriter:
    mov eax, [rbx+PIPE_HEAD]
    sub eax, [rbx+PIPE_TAIL]
    cmp eax, PIPE_RING
    jae .Ltime
    PIPE_WAKE PIPE_WR_WAIT, EPOLLOUT | EPOLLWRNORM
.Ltime:
    test r13, r13
    jle .Lout
    mov rax, [rbp-48]
    mov rdi, [rax+KI_FILP]
    call file_update_time
.Lout:
    mov rax, r13
    LEAVE5
ENDFUNC pipe_write

FUNC pipe_poll                          # rdi file, rsi poll_table or 0; eax events
    ENTER4
    mov rbx, [rdi+FILE_PRIVATE]
    mov r12d, [rdi+FILE_MODE]
    mov r13, rdi
    mov r14, rsi
    test r12d, FMODE_READ
    je .Lwriter
    mov rdi, r13
    lea rsi, [rbx+PIPE_RD_WAIT]
    mov rdx, r14
    call poll_wait
.Lwriter:
    test r12d, FMODE_WRITE
    je .Lmask
    mov rdi, r13
    lea rsi, [rbx+PIPE_WR_WAIT]
    mov rdx, r14
    call poll_wait
.Lmask:
    xor eax, eax
    mov ecx, [rbx+PIPE_HEAD]
    sub ecx, [rbx+PIPE_TAIL]
    test r12d, FMODE_READ
    je .Lwritemask
    test ecx, ecx
    je .Lwriters
    or eax, EPOLLIN | EPOLLRDNORM
.Lwriters:
    cmp dword ptr [rbx+PIPE_WRITERS], 0
    jne .Lwritemask
    or eax, EPOLLHUP
.Lwritemask:
    test r12d, FMODE_WRITE
    je .Lout
    cmp ecx, PIPE_RING
    jae .Lreaders
    or eax, EPOLLOUT | EPOLLWRNORM
.Lreaders:
    cmp dword ptr [rbx+PIPE_READERS], 0
    jne .Lout
    or eax, EPOLLERR
.Lout:
    LEAVE4
ENDFUNC pipe_poll

FUNC pipe_ioctl                         # rdi file, esi command, rdx user int *; rax 0 or error
    ENTER3
    sub rsp, 24
    mov rbx, [rdi+FILE_PRIVATE]
    mov r12, rdx
    mov rax, -ENOIOCTLCMD
    cmp esi, FIONREAD
    jne .Lout
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_lock
    xor edx, edx
    mov ecx, [rbx+PIPE_TAIL]
.Lnext:
    cmp ecx, [rbx+PIPE_HEAD]
    je .Lcounted
    mov eax, ecx
    PIPE_SLOT rax, eax, rbx
    add edx, [rax+PIPE_BUF_LEN]
    inc ecx
    jmp .Lnext
.Lcounted:
    mov [rsp], edx
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_unlock
    mov rdi, r12
    mov rsi, rsp
    mov edx, 4
    call _copy_to_user
    test rax, rax
    je .Lout
    mov rax, -EFAULT
.Lout:
    LEAVE3
ENDFUNC pipe_ioctl

FUNC pipe_release                       # rdi inode, rsi file; eax 0
    ENTER2
    mov rbx, [rsi+FILE_PRIVATE]
    mov r12, rdi
    push rsi
    push rsi
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_lock
    pop rsi
    pop rsi
    mov eax, [rsi+FILE_MODE]
    test eax, FMODE_READ
    je .Lwriter
    dec dword ptr [rbx+PIPE_READERS]
.Lwriter:
    test eax, FMODE_WRITE
    je .Lcount
    dec dword ptr [rbx+PIPE_WRITERS]
.Lcount:
    mov eax, [rbx+PIPE_READERS]
    mov ecx, [rbx+PIPE_WRITERS]
    test eax, eax
    sete al
    test ecx, ecx
    sete cl
    cmp al, cl
    je .Lunlock                         # both still there, or neither
    lea rdi, [rbx+PIPE_RD_WAIT]
    mov esi, TASK_INTERRUPTIBLE
    xor edx, edx
    mov ecx, EPOLLIN | EPOLLRDNORM | EPOLLERR | EPOLLHUP
    call __wake_up
    lea rdi, [rbx+PIPE_WR_WAIT]
    mov esi, TASK_INTERRUPTIBLE
    xor edx, edx
    mov ecx, EPOLLOUT | EPOLLWRNORM | EPOLLERR | EPOLLHUP
    call __wake_up
.Lunlock:
    lea rdi, [rbx+PIPE_MUTEX]
    call mutex_unlock
    lea rdi, [r12+INODE_LOCK]           # put_pipe_info
    call _raw_spin_lock
    dec dword ptr [rbx+PIPE_FILES]
    jne .Lshared
    mov qword ptr [r12+INODE_PIPE], 0
    lea rdi, [r12+INODE_LOCK]
    call _raw_spin_unlock
    mov rdi, rbx
    call free_pipe_info
    xor eax, eax
    LEAVE2
.Lshared:
    lea rdi, [r12+INODE_LOCK]
    call _raw_spin_unlock
    xor eax, eax
    LEAVE2
ENDFUNC pipe_release

.data
.balign 8
OBJECT pipefifo_fops
    .quad 0
    .quad 0
    .quad 0
    .quad pipe_read
    .quad pipe_write
    .quad 0
    .quad pipe_poll
    .quad pipe_ioctl
    .quad 0
    .quad fifo_open
    .quad 0
    .quad pipe_release
    .quad 0
ENDOBJECT pipefifo_fops
