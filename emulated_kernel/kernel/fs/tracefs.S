# fs/tracefs/inode.c, and the operations of the files in it, which the host performs: each stops at
# host_fop. As kernel/trace, those have no call sites.

.text

TRACEFS_MAGIC = 0x74726163

FUNC tracefs_get_inode                  # rdi super block; rax inode or 0
    ENTER1
    push 0
    call new_inode
    mov rbx, rax
    test rax, rax
    je .Lout
    call get_next_ino
    mov [rbx+INODE_INO], rax
    mov rdi, rbx
    call current_time
    mov [rbx+INODE_ATIME], rax
    mov [rbx+INODE_ATIME+8], rdx
    mov [rbx+INODE_MTIME], rax
    mov [rbx+INODE_MTIME+8], rdx
    mov [rbx+INODE_CTIME], rax
    mov [rbx+INODE_CTIME+8], rdx
    mov rax, rbx
.Lout:
    LEAVE1
ENDFUNC tracefs_get_inode

# rdi name, rsi parent dentry or 0 for the root; rax a negative dentry with the parent locked, or error.
FUNC start_creating
    ENTER4
    mov r12, rdi
    mov rbx, rsi
    test rsi, rsi
    jne .Lparent
    mov rax, [rip + tracefs_mount]
    mov rbx, [rax+MNT_ROOT]
.Lparent:
    mov rdi, [rip + tracefs_mount]      # simple_pin_fs
    call mntget
    mov rdi, [rbx+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call down_write
    mov r13, -ENOENT
    mov rax, [rbx+DENTRY_INODE]
    cmp dword ptr [rax+INODE_NLINK], 0
    je .Lunlock
    mov rdi, r12
    call strlen
    mov rdi, r12
    mov rsi, rbx
    mov edx, eax
    call lookup_one_len
    mov r13, rax
    cmp rax, ERR_MIN
    jae .Lunlock
    cmp qword ptr [rax+DENTRY_INODE], 0
    je .Lout
    mov rdi, rax
    call dput
    mov r13, -EEXIST
.Lunlock:
    mov rdi, [rbx+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call up_write
    mov rdi, [rip + tracefs_mount]
    call mntput
.Lout:
    mov rax, r13
    LEAVE4
ENDFUNC start_creating

FUNC failed_creating                    # rdi dentry of start_creating; rax 0
    ENTER1
    push 0
    mov rax, [rdi+DENTRY_PARENT]
    mov rbx, [rax+DENTRY_INODE]
    call dput
    lea rdi, [rbx+INODE_RWSEM]
    call up_write
    mov rdi, [rip + tracefs_mount]
    call mntput
    xor eax, eax
    LEAVE1
ENDFUNC failed_creating

# The dentry has its file: the parent is unlocked (end_creating).
.macro END_CREATING dentry
    mov rdi, [\dentry+DENTRY_PARENT]
    mov rdi, [rdi+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call up_write
.endm

# rdi name, esi mode, rdx parent dentry or 0, rcx for the inode, r8 file_operations; rax dentry or 0.
FUNC tracefs_create_file
    ENTER5
    push 0
    mov r12d, esi
    mov r13, rcx
    mov r14, r8
    mov rsi, rdx
    call start_creating
    mov rbx, rax
    cmp rax, ERR_MIN
    jae .Lnone
    mov rdi, [rbx+DENTRY_SB]
    call tracefs_get_inode
    test rax, rax
    je .Lfailed
    mov r15, rax
    and r12d, 0xfff
    or r12d, S_IFREG
    mov [r15+INODE_MODE], r12d
    mov [r15+INODE_PRIVATE], r13
    mov rax, offset tracing_fops
    test r14, r14
    cmove r14, rax
    mov [r15+INODE_FOP], r14
    mov rdi, rbx
    mov rsi, r15
    call d_instantiate
    mov edi, FS_CREATE
    mov rsi, [rbx+DENTRY_PARENT]
    mov rsi, [rsi+DENTRY_INODE]
    mov rdx, rbx
    call fsnotify
    END_CREATING rbx
    mov rax, rbx
    LEAVE5
.Lfailed:
    mov rdi, rbx
    call failed_creating
.Lnone:
    xor eax, eax
    LEAVE5
ENDFUNC tracefs_create_file

FUNC __create_dir                       # rdi name, rsi parent dentry or 0, rdx inode_operations; rax
    ENTER3
    push 0
    mov r12, rdx
    call start_creating
    mov rbx, rax
    cmp rax, ERR_MIN
    jae .Lnone
    mov rdi, [rbx+DENTRY_SB]
    call tracefs_get_inode
    test rax, rax
    je .Lfailed
    mov r13, rax
    mov dword ptr [r13+INODE_MODE], S_IFDIR | 0x1e8     # 0750
    mov [r13+INODE_OP], r12
    mov rax, offset simple_dir_operations
    mov [r13+INODE_FOP], rax
    mov rdi, r13
    call inc_nlink
    mov rdi, rbx
    mov rsi, r13
    call d_instantiate
    mov rdi, [rbx+DENTRY_PARENT]
    mov rdi, [rdi+DENTRY_INODE]
    call inc_nlink
    mov edi, FS_CREATE
    mov rsi, [rbx+DENTRY_PARENT]
    mov rsi, [rsi+DENTRY_INODE]
    mov rdx, rbx
    call fsnotify
    END_CREATING rbx
    mov rax, rbx
    LEAVE3
.Lfailed:
    mov rdi, rbx
    call failed_creating
.Lnone:
    xor eax, eax
    LEAVE3
ENDFUNC __create_dir

FUNC tracefs_create_dir                 # rdi name, rsi parent dentry or 0; rax dentry or 0
    PROLOGUE
    mov rdx, offset simple_dir_inode_operations
    call __create_dir
    EPILOGUE
ENDFUNC tracefs_create_dir

# The directory whose subdirectories the host makes: rdi name, rsi parent dentry; rax dentry or 0.
FUNC_NOTRACE tracefs_create_instance_dir
    push rbp
    mov rbp, rsp
    mov rdx, offset tracefs_dir_inode_operations
    call __create_dir
    pop rbp
    ret
ENDFUNC tracefs_create_instance_dir

# mkdir and rmdir below it: the host does it, and creates or removes what belongs to it, for which the
# directory must not be locked.
FUNC tracefs_syscall_mkdir              # rdi ns, rsi directory, rdx dentry, ecx mode; eax 0 or error
    ENTER2
    mov rbx, rsi
    mov r12, rdx
    lea rdi, [rsi+INODE_RWSEM]
    call up_write
    mov rdi, rbx
    mov rsi, r12
    call instance_mkdir
    mov r12d, eax
    lea rdi, [rbx+INODE_RWSEM]
    call down_write
    mov eax, r12d
    LEAVE2
ENDFUNC tracefs_syscall_mkdir

FUNC tracefs_syscall_rmdir              # rdi directory, rsi dentry; eax 0 or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, [rsi+DENTRY_INODE]
    lea rdi, [rbx+INODE_RWSEM]
    call up_write
    lea rdi, [r13+INODE_RWSEM]
    call up_write
    mov rdi, rbx
    mov rsi, r12
    call instance_rmdir
    mov r12d, eax
    lea rdi, [rbx+INODE_RWSEM]
    call down_write
    lea rdi, [r13+INODE_RWSEM]
    call down_write
    mov eax, r12d
    LEAVE3
ENDFUNC tracefs_syscall_rmdir

.macro INSTANCE_FOP fop
    push rbp
    mov rbp, rsp
    mov rdx, [rsi+DENTRY_NAME+QSTR_NAME]
    mov ecx, [rsi+DENTRY_NAME+QSTR_LEN]
    mov rsi, rdi
    mov edi, \fop
    call host_fop
    pop rbp
    ret
.endm

FUNC_NOTRACE instance_mkdir             # rdi directory, rsi dentry; eax what the host answers
    INSTANCE_FOP HOST_FOP_MKDIR
ENDFUNC instance_mkdir

FUNC_NOTRACE instance_rmdir             # rdi directory, rsi dentry; eax what the host answers
    INSTANCE_FOP HOST_FOP_RMDIR
ENDFUNC instance_rmdir

FUNC tracefs_remove                     # rdi dentry, with all below it
    PROLOGUE
    cmp rdi, ERR_MIN
    jae .Lout
    test rdi, rdi
    je .Lout
    mov rsi, offset remove_one
    call simple_recursive_removal
.Lout:
    EPILOGUE
ENDFUNC tracefs_remove

FUNC_STATIC remove_one                  # rdi dentry that went (simple_release_fs)
    PROLOGUE
    mov rdi, [rip + tracefs_mount]
    call mntput
    EPILOGUE
ENDFUNC remove_one

# Take a whole tree away, bottom up: rdi dentry, rsi called with each that went, or 0 (fs/libfs.c).
FUNC simple_recursive_removal
    ENTER5
    push rsi
    mov rbx, rdi
    mov r12, rdi                        # where we are
    DGET rbx
.Ldescend:
    mov rdi, [r12+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call down_write
    lea rcx, [r12+DENTRY_SUBDIRS]
    mov r13, [rcx]
.Lchild:
    cmp r13, rcx
    je .Lempty
    cmp qword ptr [r13-DENTRY_CHILD+DENTRY_HASH_PPREV], 0
    je .Lnotthis                        # removed, but still open
    cmp qword ptr [r13-DENTRY_CHILD+DENTRY_INODE], 0
    jne .Lfound
.Lnotthis:
    mov r13, [r13]
    jmp .Lchild
.Lfound:
    sub r13, DENTRY_CHILD
    DGET r13
    mov rdi, [r12+DENTRY_INODE]
    add rdi, INODE_RWSEM
    call up_write
    mov r12, r13
    jmp .Ldescend
.Lempty:                                # nothing below: it goes itself
    mov r14, [r12+DENTRY_INODE]
    lea rdi, [r14+INODE_RWSEM]
    call up_write
    mov r13, [r12+DENTRY_PARENT]
    mov r15, [r13+DENTRY_INODE]
    lea rdi, [r15+INODE_RWSEM]
    call down_write
    cmp qword ptr [r12+DENTRY_HASH_PPREV], 0
    je .Lgone
    mov eax, [r14+INODE_MODE]
    and eax, S_IFMT
    cmp eax, S_IFDIR
    jne .Lfile
    mov rdi, r15
    call drop_nlink
    mov rdi, r14
    call clear_nlink
    jmp .Lunhash
.Lfile:
    mov rdi, r14
    call drop_nlink
.Lunhash:
    mov rdi, r12
    call d_drop
    mov edi, FS_DELETE
    mov rsi, r15
    mov rdx, r12
    call fsnotify
    cmp qword ptr [rbp-48], 0
    je .Lput
    mov rdi, r12
    call qword ptr [rbp-48]
.Lput:
    mov rdi, r12                        # the reference of its creation
    call dput
.Lgone:
    lea rdi, [r15+INODE_RWSEM]
    call up_write
    mov rdi, r12                        # ours
    call dput
    cmp r12, rbx
    mov r12, r13
    jne .Ldescend                       # back in the parent
    LEAVE5
ENDFUNC simple_recursive_removal

# --- operations of a file -------------------------------------------------------------------------

FUNC_NOTRACE tracing_open               # rdi inode, rsi file; eax 0 or error
    push rbp
    mov rbp, rsp
    and dword ptr [rsi+FILE_MODE], ~FMODE_ATOMIC_POS    # the host keeps the position
    mov edi, HOST_FOP_OPEN
    xor edx, edx
    xor ecx, ecx
    call host_fop
    xor ecx, ecx
    test rax, rax
    cmovns rax, rcx
    pop rbp
    ret
ENDFUNC tracing_open

# Ask the host, as often as it says to sleep and ask again: edi operation, rsi file, rdx user, rcx count;
# rax its answer, or -EINTR.
FUNC_NOTRACE tracing_wait_host
    ENTER4
    mov ebx, edi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
.Lask:
    mov edi, ebx
    mov rsi, r12
    mov rdx, r13
    mov rcx, r14
    call host_fop
    cmp rax, HOST_FOP_SLEEP
    jne .Lout
    mov rdx, gs:[CURRENT_TASK]
    mov dword ptr [rdx+TASK_STATE], TASK_INTERRUPTIBLE
    cmp dword ptr [rdx+TASK_SIGPENDING], 0
    jne .Linterrupted
    call schedule
    mov rdx, gs:[CURRENT_TASK]
    cmp dword ptr [rdx+TASK_SIGPENDING], 0
    je .Lask
.Linterrupted:
    mov dword ptr [rdx+TASK_STATE], TASK_RUNNING
    mov rax, -EINTR
.Lout:
    LEAVE4
ENDFUNC tracing_wait_host

FUNC_NOTRACE tracing_read               # rdi file, rsi user, rdx count, rcx pos *; rax bytes or error
    ENTER1
    push 0
    mov rbx, rcx
    mov rcx, rdx
    mov rdx, rsi
    mov rsi, rdi
    mov edi, HOST_FOP_READ
    call tracing_wait_host
    test rax, rax
    jle .Lout
    test rbx, rbx
    je .Lout
    add [rbx], rax
.Lout:
    LEAVE1
ENDFUNC tracing_read

FUNC_NOTRACE tracing_write              # rdi file, rsi user, rdx count, rcx pos *; rax bytes or error
    ENTER1
    push 0
    mov rbx, rcx
    mov rcx, rdx
    mov rdx, rsi
    mov rsi, rdi
    mov edi, HOST_FOP_WRITE
    call tracing_wait_host
    test rax, rax
    jle .Lout
    test rbx, rbx
    je .Lout
    add [rbx], rax
.Lout:
    LEAVE1
ENDFUNC tracing_write

FUNC_NOTRACE tracing_lseek              # rdi file, rsi offset, edx whence; rax position or error
    ENTER1
    push 0
    mov rbx, rdi
    mov ecx, edx
    mov rdx, rsi
    mov rsi, rdi
    mov edi, HOST_FOP_LLSEEK
    call host_fop
    test rax, rax
    js .Lout
    mov [rbx+FILE_POS], rax
.Lout:
    LEAVE1
ENDFUNC tracing_lseek

FUNC_NOTRACE tracing_poll               # rdi file, rsi poll_table; eax events
    push rbp
    mov rbp, rsp
    mov rdx, rsi
    mov rsi, rdi
    mov edi, HOST_FOP_POLL
    xor ecx, ecx
    call host_fop
    pop rbp
    ret
ENDFUNC tracing_poll

FUNC_NOTRACE tracing_release            # rdi inode, rsi file; eax 0
    push rbp
    mov rbp, rsp
    mov edi, HOST_FOP_RELEASE
    xor edx, edx
    xor ecx, ecx
    call host_fop
    xor eax, eax
    pop rbp
    ret
ENDFUNC tracing_release

.data
.balign 8
OBJECT tracefs_mount
    .quad 0
ENDOBJECT tracefs_mount
OBJECT tracing_fops
    .quad tracing_lseek
    .quad tracing_read
    .quad tracing_write
    .quad 0
    .quad 0
    .quad 0
    .quad tracing_poll
    .quad 0
    .quad 0
    .quad tracing_open
    .quad 0
    .quad tracing_release
    .quad 0
ENDOBJECT tracing_fops
OBJECT tracefs_dir_inode_operations
    .quad simple_lookup
    .zero IOP_MKDIR - 8
    .quad tracefs_syscall_mkdir
    .quad tracefs_syscall_rmdir
    .zero IOP_BYTES - IOP_RMDIR - 8
ENDOBJECT tracefs_dir_inode_operations
