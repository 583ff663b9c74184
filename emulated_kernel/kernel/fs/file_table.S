# fs/file_table.c: struct file from allocation to the last fput.

.text

NR_FILE_MAX = 8192

FUNC_NOTRACE files_init
    PROLOGUE
    mov rdi, offset filp_name
    mov esi, FILE_BYTES
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + filp_cachep], rax
    mov rdi, offset files_cache_name
    mov esi, FILES_BYTES
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + files_cachep], rax
    mov rdi, offset fs_cache_name
    mov esi, FS_BYTES
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + fs_cachep], rax
    EPILOGUE
ENDFUNC files_init

FUNC __alloc_file                       # edi O_* flags, rsi cred; rax file or error
    ENTER3
    push 0
    mov ebx, edi
    mov r12, rsi
    mov rdi, [rip + filp_cachep]
    mov esi, GFP_KERNEL | GFP_ZERO
    call kmem_cache_alloc
    mov r13, rax
    test rax, rax
    je .Lnomem
    mov [r13+FILE_CRED], r12
    mov rdi, r13
    call security_file_alloc
    test eax, eax
    jne .Lrefused
    mov qword ptr [r13+FILE_COUNT], 1
    mov [r13+FILE_FLAGS], ebx
    lea eax, [rbx+1]                    # OPEN_FMODE
    and eax, O_ACCMODE
    mov [r13+FILE_MODE], eax
    mov rax, r13
    LEAVE3
.Lrefused:
    movsxd rbx, eax
    mov rdi, [rip + filp_cachep]
    mov rsi, r13
    call kmem_cache_free
    mov rax, rbx
    LEAVE3
.Lnomem:
    mov rax, -ENOMEM
    LEAVE3
ENDFUNC __alloc_file

FUNC alloc_empty_file                   # edi O_* flags, rsi cred; rax file or error
    PROLOGUE
    cmp qword ptr [rip + nr_files], NR_FILE_MAX
    jae .Lfull
    call __alloc_file
    cmp rax, ERR_MIN
    jae .Lout
    lock inc qword ptr [rip + nr_files]
.Lout:
    EPILOGUE
.Lfull:
    mov rax, -ENFILE
    EPILOGUE
ENDFUNC alloc_empty_file

FUNC alloc_file                         # rdi path, whose references it takes, esi flags, rdx fops
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rdx
    mov edi, esi
    xor esi, esi
    call alloc_empty_file
    cmp rax, ERR_MIN
    jae .Lout
    mov rcx, [rbx+PATH_MNT]
    mov [rax+FILE_MNT], rcx
    mov rcx, [rbx+PATH_DENTRY]
    mov [rax+FILE_DENTRY], rcx
    mov rcx, [rcx+DENTRY_INODE]
    mov [rax+FILE_INODE], rcx
    mov rcx, [rcx+INODE_MAPPING]
    mov [rax+FILE_MAPPING], rcx
    mov [rax+FILE_OP], r12
    mov ecx, [rax+FILE_MODE]
    mov edx, ecx
    shl edx, 17                         # FMODE_READ, FMODE_WRITE -> FMODE_CAN_READ, FMODE_CAN_WRITE
    or ecx, edx
    or ecx, FMODE_OPENED
    mov [rax+FILE_MODE], ecx
.Lout:
    LEAVE3
ENDFUNC alloc_file

# A file that no directory has: rdi inode, rsi mount, rdx name, ecx flags, r8 fops; rax file or error.
# It takes the inode's reference when it succeeds.
FUNC alloc_file_pseudo
    ENTER5
    sub rsp, 40
    mov rbx, rdi
    mov r12, rsi
    mov r13d, ecx
    mov r14, r8
    mov [rbp-80+QSTR_NAME], rdx
    mov rdi, rdx
    call strlen
    shl rax, 32
    mov [rbp-80+QSTR_HASH], rax
    mov rdi, [r12+MNT_SB]
    lea rsi, [rbp-80]
    call d_alloc_pseudo
    test rax, rax
    je .Lnomem
    mov [rbp-64+PATH_DENTRY], rax
    mov rdi, r12
    call mntget
    mov [rbp-64+PATH_MNT], rax
    mov rdi, [rbp-64+PATH_DENTRY]
    mov rsi, rbx
    call d_instantiate
    lea rdi, [rbp-64]
    mov esi, r13d
    mov rdx, r14
    call alloc_file
    cmp rax, ERR_MIN
    jb .Lout
    mov r15, rax
    mov rdi, rbx                        # the caller keeps its reference
    call ihold
    lea rdi, [rbp-64]
    call path_put
    mov rax, r15
.Lout:
    LEAVE5
.Lnomem:
    mov rax, -ENOMEM
    LEAVE5
ENDFUNC alloc_file_pseudo

# One more reference (inlined in Linux): rdi file; rax the same.
FUNC_NOTRACE get_file
    mov rax, rdi
    lock inc qword ptr [rdi+FILE_COUNT]
    ret
ENDFUNC get_file

FUNC fput                               # rdi file
    PROLOGUE
    lock dec qword ptr [rdi+FILE_COUNT]
    jne .Lout
    call ____fput
.Lout:
    EPILOGUE
ENDFUNC fput

FUNC ____fput                           # rdi file without a reference left
    PROLOGUE
    call __fput
    EPILOGUE
ENDFUNC ____fput

FUNC __fput                             # rdi file without a reference left
    ENTER4
    mov rbx, rdi
    test dword ptr [rbx+FILE_MODE], FMODE_OPENED
    je .Lfree
    call __cond_resched
    mov r12, [rbx+FILE_DENTRY]
    mov r13, [rbx+FILE_MNT]
    mov r14, [rbx+FILE_INODE]
    mov rdi, r12
    mov esi, FS_CLOSE_NOWRITE
    test dword ptr [rbx+FILE_MODE], FMODE_WRITE
    je .Lnotify
    mov esi, FS_CLOSE_WRITE
.Lnotify:
    mov rdx, r14
    call __fsnotify_parent
    mov rdi, rbx
    call locks_remove_file
    mov rax, [rbx+FILE_OP]
    mov rax, [rax+FOPS_RELEASE]
    test rax, rax
    je .Lreleased
    mov rdi, r14
    mov rsi, rbx
    call rax
.Lreleased:
    mov eax, [rbx+FILE_MODE]
    test eax, FMODE_WRITER
    je .Lput
    lock dec dword ptr [r14+INODE_WRITECOUNT]
    mov rdi, r13
    call __mnt_drop_write
.Lput:
    mov rdi, r12
    call dput
    mov rdi, r13
    call mntput
.Lfree:
    mov rdi, rbx
    call security_file_free
    lock dec qword ptr [rip + nr_files]
    mov rdi, rbx
    call file_free_rcu
    LEAVE4
ENDFUNC __fput

FUNC file_free_rcu                      # rdi file
    PROLOGUE
    mov rsi, rdi
    mov rdi, [rip + filp_cachep]
    call kmem_cache_free
    EPILOGUE
ENDFUNC file_free_rcu

FUNC locks_remove_file                  # rdi file: no locks on it survive it
    PROLOGUE
    mov rax, [rdi+FILE_INODE]
    mov eax, [rax+INODE_FLAGS]
    and eax, S_HAS_LOCKS
    EPILOGUE
ENDFUNC locks_remove_file

S_HAS_LOCKS = 0x10000

FUNC locks_remove_posix                 # rdi file, rsi owner
    PROLOGUE
    mov rax, [rdi+FILE_INODE]
    mov eax, [rax+INODE_FLAGS]
    and eax, S_HAS_LOCKS
    EPILOGUE
ENDFUNC locks_remove_posix

.data
.balign 8
OBJECT filp_cachep
    .quad 0
ENDOBJECT filp_cachep
OBJECT files_cachep
    .quad 0
ENDOBJECT files_cachep
OBJECT fs_cachep
    .quad 0
ENDOBJECT fs_cachep
OBJECT nr_files
    .quad 0
ENDOBJECT nr_files
filp_name:
    .asciz "filp"
files_cache_name:
    .asciz "files_cache"
fs_cache_name:
    .asciz "fs_cache"
