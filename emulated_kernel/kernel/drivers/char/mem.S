# drivers/char/mem.c, fs/char_dev.c: /dev/null and its kin, and how a device number finds its driver.

.text

MEM_MAJOR = 1
MINORBITS = 20

# A cdev: {file_operations, major, minors, next}
CDEV_OPS = 0
CDEV_DEV = 8
CDEV_COUNT = 12
CDEV_NEXT = 16

FUNC cdev_add                           # rdi cdev, esi first device number, edx how many; eax 0
    ENTER3
    push 0
    mov rbx, rdi
    mov [rdi+CDEV_DEV], esi
    mov [rdi+CDEV_COUNT], edx
    mov rdi, offset chrdevs_lock
    call mutex_lock
    mov rax, [rip + chrdevs]
    mov [rbx+CDEV_NEXT], rax
    mov [rip + chrdevs], rbx
    mov rdi, offset chrdevs_lock
    call mutex_unlock
    xor eax, eax
    LEAVE3
ENDFUNC cdev_add

FUNC kobj_lookup                        # edi device number; rax cdev or 0 (drivers/base/map.c)
    ENTER2
    mov r12d, edi
    mov rdi, offset chrdevs_lock
    call mutex_lock
    mov rbx, [rip + chrdevs]
.Lnext:
    test rbx, rbx
    je .Lout
    mov eax, r12d
    sub eax, [rbx+CDEV_DEV]
    cmp eax, [rbx+CDEV_COUNT]
    jb .Lout
    mov rbx, [rbx+CDEV_NEXT]
    jmp .Lnext
.Lout:
    mov rdi, offset chrdevs_lock
    call mutex_unlock
    mov rax, rbx
    LEAVE2
ENDFUNC kobj_lookup

FUNC chrdev_open                        # rdi inode, rsi file; eax 0 or error
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov edi, [rdi+INODE_RDEV]
    call kobj_lookup
    test rax, rax
    je .Lnone
    mov rax, [rax+CDEV_OPS]
    mov [r12+FILE_OP], rax
    mov rax, [rax+FOPS_OPEN]
    test rax, rax
    je .Lout
    mov rdi, rbx
    mov rsi, r12
    call rax
    LEAVE2
.Lnone:
    mov eax, -ENXIO
    LEAVE2
.Lout:
    xor eax, eax
    LEAVE2
ENDFUNC chrdev_open

FUNC memory_open                        # rdi inode, rsi file; eax 0 or error
    PROLOGUE
    mov eax, [rdi+INODE_RDEV]
    and eax, (1 << MINORBITS) - 1
    cmp eax, 8
    jae .Lnone
    mov rax, [mem_devlist + rax*8]
    test rax, rax
    je .Lnone
    mov [rsi+FILE_OP], rax
    xor eax, eax
    EPILOGUE
.Lnone:
    mov eax, -ENXIO
    EPILOGUE
ENDFUNC memory_open

FUNC null_lseek                         # rdi file, rsi offset, edx whence; rax 0
    PROLOGUE
    mov qword ptr [rdi+FILE_POS], 0
    xor eax, eax
    EPILOGUE
ENDFUNC null_lseek

FUNC read_null                          # rdi file, rsi user, rdx count, rcx pos *; rax 0
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC read_null

FUNC write_null                         # rdi file, rsi user, rdx count, rcx pos *; rax all of it
    PROLOGUE
    mov rax, rdx
    EPILOGUE
ENDFUNC write_null

FUNC read_iter_null                     # rdi kiocb, rsi iter; rax 0
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC read_iter_null

FUNC write_iter_null                    # rdi kiocb, rsi iter; rax all of it
    PROLOGUE
    mov rax, [rsi+ITER_COUNT]
    add [rsi+ITER_BASE], rax
    mov qword ptr [rsi+ITER_COUNT], 0
    EPILOGUE
ENDFUNC write_iter_null

FUNC read_zero                          # rdi file, rsi user, rdx count, rcx pos *; rax bytes or error
    ENTER3
    push 0
    mov rbx, rsi
    mov r12, rdx
    xor r13d, r13d
.Lnext:
    mov rsi, r12
    sub rsi, r13
    je .Lout
    mov eax, PAGE_BYTES
    cmp rsi, rax
    cmova rsi, rax
    lea rdi, [rbx+r13]
    add r13, rsi
    call clear_user
    test rax, rax
    jne .Lfault
    mov rax, gs:[CURRENT_TASK]
    cmp dword ptr [rax+TASK_SIGPENDING], 0
    jne .Lout
    call __cond_resched
    jmp .Lnext
.Lfault:
    sub r13, rax
    jne .Lout
    mov r13, -EFAULT
.Lout:
    mov rax, r13
    LEAVE3
ENDFUNC read_zero

FUNC write_full                         # rdi file, rsi user, rdx count, rcx pos *; rax -ENOSPC
    PROLOGUE
    mov rax, -ENOSPC
    EPILOGUE
ENDFUNC write_full

FUNC_NOTRACE chr_dev_init
    push rbp
    mov rbp, rsp
    mov rdi, offset mem_cdev
    mov esi, MEM_MAJOR << MINORBITS
    mov edx, 256
    call cdev_add
    pop rbp
    ret
ENDFUNC chr_dev_init

.data
.balign 8
OBJECT def_chr_fops
    .zero FOPS_OPEN
    .quad chrdev_open
    .zero FOPS_BYTES - FOPS_OPEN - 8
ENDOBJECT def_chr_fops
OBJECT memory_fops
    .quad noop_llseek
    .zero FOPS_OPEN - 8
    .quad memory_open
    .zero FOPS_BYTES - FOPS_OPEN - 8
ENDOBJECT memory_fops
OBJECT null_fops
    .quad null_lseek
    .quad read_null
    .quad write_null
    .quad read_iter_null
    .quad write_iter_null
    .zero FOPS_BYTES - 40
ENDOBJECT null_fops
OBJECT zero_fops
    .quad null_lseek
    .quad read_zero
    .quad write_null
    .quad 0
    .quad write_iter_null
    .zero FOPS_BYTES - 40
ENDOBJECT zero_fops
OBJECT full_fops
    .quad null_lseek
    .quad read_zero
    .quad write_full
    .zero FOPS_BYTES - 24
ENDOBJECT full_fops
mem_devlist:                            # by minor number
    .quad 0, 0, 0, null_fops, 0, zero_fops, 0, full_fops
OBJECT chrdevs_lock
    .zero 32
ENDOBJECT chrdevs_lock
OBJECT chrdevs
    .quad 0
ENDOBJECT chrdevs
mem_cdev:
    .quad memory_fops
    .quad 0
    .quad 0
