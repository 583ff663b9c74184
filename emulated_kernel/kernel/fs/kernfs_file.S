# fs/kernfs/file.c, fs/sysfs: attributes as files.

.text

FUNC kernfs_fop_open                    # rdi inode, rsi file; eax 0 or error
    ENTER4
    mov rbx, [rdi+INODE_PRIVATE]
    mov r12, rsi
    mov rdi, rbx
    call kernfs_get_active
    test rax, rax
    mov r13d, -ENODEV
    je .Lout
    mov r13d, -EACCES
    test dword ptr [r12+FILE_MODE], FMODE_WRITE
    je .Lalloc
    mov rax, [rbx+KN_PRIV]
    cmp qword ptr [rax+ATTR_STORE], 0   # nothing there to write with
    je .Lput
.Lalloc:
    KMALLOC KMALLOC_64, OF_BYTES, GFP_KERNEL | GFP_ZERO
    mov r14, rax
    test rax, rax
    mov r13d, -ENOMEM
    je .Lput
    mov [r14+OF_KN], rbx
    mov [r14+OF_FILE], r12
    mov rdi, r12
    mov rsi, offset kernfs_seq_ops
    call seq_open
    mov r13d, eax
    test eax, eax
    jne .Lfree
    mov rax, [r12+FILE_PRIVATE]
    mov [rax+SEQ_PRIVATE], r14
    mov [r14+OF_SEQ], rax
    jmp .Lput
.Lfree:
    mov rdi, r14
    call kfree
.Lput:
    mov rdi, rbx
    call kernfs_put_active
.Lout:
    mov eax, r13d
    LEAVE4
ENDFUNC kernfs_fop_open

FUNC kernfs_fop_release                 # rdi inode, rsi file; eax 0
    ENTER1
    push 0
    mov rax, [rsi+FILE_PRIVATE]
    mov rbx, [rax+SEQ_PRIVATE]
    call seq_release
    mov rdi, rbx
    call kfree
    xor eax, eax
    LEAVE1
ENDFUNC kernfs_fop_release

FUNC kernfs_fop_read_iter               # rdi kiocb, rsi iter; rax bytes or error
    PROLOGUE
    call seq_read_iter
    EPILOGUE
ENDFUNC kernfs_fop_read_iter

FUNC kernfs_seq_start                   # rdi seq, rsi pos *; rax the only record, 0 or error
    ENTER2
    mov rbx, [rdi+SEQ_PRIVATE]
    mov r12, rsi
    lea rdi, [rbx+OF_MUTEX]
    call mutex_lock
    mov rdi, [rbx+OF_KN]
    call kernfs_get_active
    test rax, rax
    mov rax, -ENODEV
    je .Lout
    mov rdi, rbx
    mov rsi, r12
    call single_start
.Lout:
    LEAVE2
ENDFUNC kernfs_seq_start

FUNC kernfs_seq_next                    # rdi seq, rsi element, rdx pos *; rax 0
    PROLOGUE
    call single_next
    EPILOGUE
ENDFUNC kernfs_seq_next

FUNC kernfs_seq_stop                    # rdi seq, rsi element
    ENTER1
    push 0
    mov rbx, [rdi+SEQ_PRIVATE]
    cmp rsi, -ENODEV
    je .Lunlock
    mov rdi, [rbx+OF_KN]
    call kernfs_put_active
.Lunlock:
    lea rdi, [rbx+OF_MUTEX]
    call mutex_unlock
    LEAVE1
ENDFUNC kernfs_seq_stop

FUNC kernfs_seq_show                    # rdi seq, rsi element; eax 0 or error
    PROLOGUE
    call sysfs_kf_seq_show
    EPILOGUE
ENDFUNC kernfs_seq_show

FUNC sysfs_kf_seq_show                  # rdi seq, rsi element; eax 0 or error
    ENTER2
    mov rbx, rdi
    mov rax, [rdi+SEQ_PRIVATE]
    mov r12, [rax+OF_KN]
    mov rdi, [rdi+SEQ_BUF]              # nothing before it: an attribute is one page
    mov ecx, PAGE_BYTES / 8
    xor eax, eax
    rep stosq
    mov rdi, [r12+KN_PARENT]
    mov rdi, [rdi+KN_PRIV]
    mov rsi, [r12+KN_PRIV]
    mov rdx, [rbx+SEQ_BUF]
    call [r12+KN_SHOW]
    test rax, rax
    js .Lout
    mov ecx, PAGE_BYTES - 1
    cmp rax, rcx
    cmova rax, rcx
    add [rbx+SEQ_COUNT], rax
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC sysfs_kf_seq_show

FUNC kernfs_fop_write_iter              # rdi kiocb, rsi iter; rax bytes or error
    ENTER5
    push 0
    mov r12, rdi
    mov r13, [rsi+ITER_COUNT]
    mov r14, rsi
    mov rax, [rdi+KI_FILP]
    mov rax, [rax+FILE_PRIVATE]
    mov rbx, [rax+SEQ_PRIVATE]
    mov eax, PAGE_BYTES
    cmp r13, rax
    cmova r13, rax
    lea rdi, [r13+1]
    mov esi, GFP_KERNEL
    call __kmalloc
    mov r15, rax
    test rax, rax
    mov r12, -ENOMEM
    je .Lout
    mov rdi, rax
    mov rsi, [r14+ITER_BASE]
    mov rdx, r13
    call _copy_from_user
    mov r12, -EFAULT
    test rax, rax
    jne .Lfree
    mov byte ptr [r15+r13], 0
    lea rdi, [rbx+OF_MUTEX]
    call mutex_lock
    mov rdi, [rbx+OF_KN]
    call kernfs_get_active
    mov r12, -ENODEV
    test rax, rax
    je .Lunlock
    mov rdi, rbx
    mov rsi, r15
    mov rdx, r13
    call sysfs_kf_write
    mov r12, rax
    mov rdi, [rbx+OF_KN]
    call kernfs_put_active
.Lunlock:
    lea rdi, [rbx+OF_MUTEX]
    call mutex_unlock
.Lfree:
    mov rdi, r15
    call kfree
.Lout:
    mov rax, r12
    LEAVE5
ENDFUNC kernfs_fop_write_iter

FUNC sysfs_kf_write                     # rdi kernfs_open_file, rsi text, rdx length; rax bytes or error
    PROLOGUE
    mov rax, rdx
    test rdx, rdx
    je .Lout
    mov rcx, rdx
    mov rdx, rsi
    mov r8, [rdi+OF_KN]
    mov rdi, [r8+KN_PARENT]
    mov rdi, [rdi+KN_PRIV]
    mov rsi, [r8+KN_PRIV]
    call [r8+KN_STORE]
.Lout:
    EPILOGUE
ENDFUNC sysfs_kf_write

# --- what the attributes of devices and of plain objects are shown through ----------------------------

FUNC dev_attr_show                      # rdi device, rsi attribute, rdx page; rax length or error
    PROLOGUE
    mov rax, [rsi+ATTR_SHOW]
    test rax, rax
    je .Lnone
    call rax
    EPILOGUE
.Lnone:
    mov rax, -EIO
    EPILOGUE
ENDFUNC dev_attr_show

FUNC dev_attr_store                     # rdi device, rsi attribute, rdx text, rcx length; rax
    PROLOGUE
    mov rax, [rsi+ATTR_STORE]
    test rax, rax
    je .Lnone
    call rax
    EPILOGUE
.Lnone:
    mov rax, -EIO
    EPILOGUE
ENDFUNC dev_attr_store

FUNC_NOTRACE kobj_attr_show             # rdi object, rsi attribute, rdx page; rax length or error
    mov rax, [rsi+ATTR_SHOW]
    test rax, rax
    je .Lnone
    jmp rax
.Lnone:
    mov rax, -EIO
    ret
ENDFUNC kobj_attr_show

FUNC_NOTRACE kobj_attr_store            # rdi object, rsi attribute, rdx text, rcx length; rax
    mov rax, [rsi+ATTR_STORE]
    test rax, rax
    je .Lnone
    jmp rax
.Lnone:
    mov rax, -EIO
    ret
ENDFUNC kobj_attr_store

FUNC sysfs_emit                         # rdi page, rsi format, …; eax length
    PROLOGUE
    VA_START 2
    xor eax, eax
    test edi, PAGE_BYTES - 1            # not a page
    jne .Lout
    mov rdx, rsi
    mov esi, PAGE_BYTES
    lea rcx, [rbp-80]
    call vscnprintf
.Lout:
    leave
    ret
ENDFUNC sysfs_emit

# --- making them ----------------------------------------------------------------------------------

# rdi parent, rsi attribute, edx mode, rcx show and r8 store of its kind; eax 0 or error
FUNC sysfs_add_file_mode_ns
    PROLOGUE
    mov r9, r8
    mov r8, rcx
    mov rcx, rsi
    mov rsi, [rcx+ATTR_NAME]
    call __kernfs_create_file
    cmp rax, ERR_MIN
    jae .Lout
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC sysfs_add_file_mode_ns

FUNC sysfs_create_file_ns               # rdi directory node of an object, rsi attribute; eax 0 or error
    PROLOGUE
    mov edx, [rsi+ATTR_MODE]
    mov rcx, offset kobj_attr_show
    mov r8, offset kobj_attr_store
    call sysfs_add_file_mode_ns
    EPILOGUE
ENDFUNC sysfs_create_file_ns

FUNC device_create_file                 # rdi device, rsi attribute; eax 0 or error
    PROLOGUE
    mov rdi, [rdi+DEVICE_KN]
    mov edx, [rsi+ATTR_MODE]
    mov rcx, offset dev_attr_show
    mov r8, offset dev_attr_store
    call sysfs_add_file_mode_ns
    EPILOGUE
ENDFUNC device_create_file

FUNC sysfs_create_dir_ns                # rdi parent, rsi name, rdx object; rax node or error
    PROLOGUE
    mov rcx, rdx
    mov edx, 0x1ed                      # 0755
    call kernfs_create_dir_ns
    EPILOGUE
ENDFUNC sysfs_create_dir_ns

# Path rsi of directories below node rdi, each made if it is missing: rax the last, or error.
FUNC_NOTRACE sysfs_make_path
    ENTER3
    sub rsp, 72
    mov rbx, rdi
    mov r12, rsi
.Lcomponent:
    xor ecx, ecx
.Lcopy:
    mov al, [r12+rcx]
    test al, al
    je .Lname
    cmp al, 0x2f
    je .Lname
    mov [rsp+rcx], al
    inc ecx
    jmp .Lcopy
.Lname:
    mov byte ptr [rsp+rcx], 0
    add r12, rcx
    mov rdi, rbx
    mov rsi, rsp
    mov edx, ecx
    call kernfs_find_ns
    test rax, rax
    jne .Lgot
    mov rdi, rbx
    mov rsi, rsp
    xor edx, edx
    call sysfs_create_dir_ns
    cmp rax, ERR_MIN
    jae .Lout
.Lgot:
    mov rbx, rax
    cmp byte ptr [r12], 0
    je .Lout
    inc r12
    jmp .Lcomponent
.Lout:
    LEAVE3
ENDFUNC sysfs_make_path

# A device with its directory at path rdi below /sys, attributes rsi (a list of addresses, ended by 0),
# rdx for DEVICE_DATA; rax device or 0.
FUNC_NOTRACE device_register_at
    ENTER4
    mov r12, rsi
    mov r13, rdx
    mov rsi, rdi
    mov r14, rdi
    mov rdi, [rip + sysfs_root_kn]
    call sysfs_make_path
    cmp rax, ERR_MIN
    jae .Lnone
    mov rbx, rax
    mov edi, DEVICE_BYTES
    mov esi, GFP_KERNEL
    call __kmalloc
    test rax, rax
    je .Lout
    mov [rbx+KN_PRIV], rax
    mov [rax+DEVICE_KN], rbx
    mov [rax+DEVICE_NAME], r14
    mov [rax+DEVICE_DATA], r13
    mov rbx, rax
.Lattribute:
    mov rsi, [r12]
    test rsi, rsi
    je .Ldone
    add r12, 8
    mov rdi, rbx
    call device_create_file
    jmp .Lattribute
.Ldone:
    mov rax, rbx
    LEAVE4
.Lnone:
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC device_register_at

.data
.balign 8
OBJECT sysfs_root_kn
    .quad 0
ENDOBJECT sysfs_root_kn
OBJECT kernfs_seq_ops
    .quad kernfs_seq_start
    .quad kernfs_seq_stop
    .quad kernfs_seq_next
    .quad kernfs_seq_show
ENDOBJECT kernfs_seq_ops
OBJECT kernfs_file_fops
    .quad generic_file_llseek
    .quad 0
    .quad 0
    .quad kernfs_fop_read_iter
    .quad kernfs_fop_write_iter
    .zero FOPS_OPEN - FOPS_ITERATE
    .quad kernfs_fop_open
    .quad 0
    .quad kernfs_fop_release
    .quad noop_fsync
ENDOBJECT kernfs_file_fops
