# fs/namei.c: walks to their end: looking a path up, and opening its last component.

.text

# The last component, for a lookup: rdi nameidata (lookup_last).
.macro LOOKUP_LAST nd
    cmp dword ptr [\nd+ND_LAST_TYPE], LAST_NORM
    jne 1f
    mov eax, [\nd+ND_LAST+QSTR_LEN]
    add rax, [\nd+ND_LAST+QSTR_NAME]
    cmp byte ptr [rax], 0
    je 1f
    or dword ptr [\nd+ND_FLAGS], LOOKUP_FOLLOW | LOOKUP_DIRECTORY
1:
    mov rdi, \nd
    mov esi, WALK_TRAILING
    call walk_component
.endm

FUNC path_lookupat                      # rdi nameidata, esi flags, rdx path to fill; eax 0 or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rdx
    call path_init
    cmp rax, ERR_MIN
    jae .Linit
.Lwalk:
    mov rdi, rax
    mov rsi, rbx
    call link_path_walk
    mov r13d, eax
    test eax, eax
    jne .Lend
    cmp dword ptr [rbx+ND_LAST_TYPE], LAST_ROOT
    je .Lcomplete
    LOOKUP_LAST rbx
    mov r13d, eax
    cmp rax, ERR_MIN
    jae .Lend
    test rax, rax
    jne .Lwalk
.Lcomplete:
    mov rdi, rbx
    call complete_walk
    mov r13d, eax
    test eax, eax
    jne .Lend
    test dword ptr [rbx+ND_FLAGS], LOOKUP_DIRECTORY
    je .Lfound
    mov rax, [rbx+ND_DENTRY]
    mov eax, [rax+DENTRY_FLAGS]
    and eax, DCACHE_ENTRY_TYPE
    mov r13d, -ENOTDIR
    cmp eax, DCACHE_DIRECTORY_TYPE
    jne .Lend
.Lfound:
    xor r13d, r13d
    mov rax, [rbx+ND_MNT]
    mov [r12+PATH_MNT], rax
    mov rax, [rbx+ND_DENTRY]
    mov [r12+PATH_DENTRY], rax
    lea rdi, [rbx+ND_PATH]              # the path's own references, terminate_walk drops the walk's
    call path_get
.Lend:
    mov rdi, rbx
    call terminate_walk
    mov eax, r13d
    LEAVE3
.Linit:
    mov r13d, eax
    jmp .Lend
ENDFUNC path_lookupat

FUNC filename_lookup                    # edi dfd, rsi filename, edx flags, rcx path to fill; eax 0 or error
    ENTER4
    sub rsp, ND_BYTES
    mov r12d, edx
    mov r13, rcx
    mov rbx, rsp
    mov [rbx+ND_DFD], edi
    mov [rbx+ND_FILENAME], rsi
    mov rax, [rsi+FILENAME_NAME]
    mov [rbx+ND_PATHNAME], rax
    mov rdi, rbx
    mov esi, edx
    or esi, LOOKUP_RCU
    mov rdx, rcx
    call path_lookupat
    cmp eax, -ECHILD
    jne .Lout
    mov rdi, rbx
    mov esi, r12d
    mov rdx, r13
    call path_lookupat
.Lout:
    LEAVE4
ENDFUNC filename_lookup

FUNC user_path_at_empty                 # edi dfd, rsi user path, edx flags, rcx path to fill; eax 0 or error
    ENTER4
    mov ebx, edi
    mov r12d, edx
    mov r13, rcx
    mov rdi, rsi
    mov esi, edx
    call getname_flags
    cmp rax, ERR_MIN
    jae .Lout
    mov r14, rax
    mov edi, ebx
    mov rsi, rax
    mov edx, r12d
    mov rcx, r13
    call filename_lookup
    mov ebx, eax
    mov rdi, r14
    call putname
    mov eax, ebx
.Lout:
    LEAVE4
ENDFUNC user_path_at_empty

FUNC kern_path                          # rdi path in kernel memory, esi flags, rdx path to fill; eax
    ENTER3
    push 0
    mov r12d, esi
    mov r13, rdx
    call getname_kernel
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
    mov edi, AT_FDCWD
    mov rsi, rax
    mov edx, r12d
    mov rcx, r13
    call filename_lookup
    mov r12d, eax
    mov rdi, rbx
    call putname
    mov eax, r12d
.Lout:
    LEAVE3
ENDFUNC kern_path

FUNC path_parentat                      # rdi nameidata, esi flags, rdx path to fill; eax 0 or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rdx
    call path_init
    mov r13d, eax
    cmp rax, ERR_MIN
    jae .Lend
    mov rdi, rax
    mov rsi, rbx
    call link_path_walk
    mov r13d, eax
    test eax, eax
    jne .Lend
    mov rdi, rbx
    call complete_walk
    mov r13d, eax
    test eax, eax
    jne .Lend
    mov rax, [rbx+ND_MNT]
    mov [r12+PATH_MNT], rax
    mov rax, [rbx+ND_DENTRY]
    mov [r12+PATH_DENTRY], rax
    lea rdi, [rbx+ND_PATH]
    call path_get
.Lend:
    mov rdi, rbx
    call terminate_walk
    mov eax, r13d
    LEAVE3
ENDFUNC path_parentat

# The directory of a path: edi dfd, rsi filename, edx flags, rcx path to fill, r8 qstr for the last
# component; eax its LAST_* type, or an error.
FUNC_NOTRACE filename_parentat
    ENTER5
    sub rsp, ND_BYTES + 8
    mov r12d, edx
    mov r13, rcx
    mov r14, r8
    mov rbx, rsp
    mov [rbx+ND_DFD], edi
    mov [rbx+ND_FILENAME], rsi
    mov rax, [rsi+FILENAME_NAME]
    mov [rbx+ND_PATHNAME], rax
    mov rdi, rbx
    mov esi, edx
    or esi, LOOKUP_RCU | LOOKUP_PARENT
    mov rdx, rcx
    call path_parentat
    cmp eax, -ECHILD
    jne .Ldone
    mov rdi, rbx
    mov esi, r12d
    or esi, LOOKUP_PARENT
    mov rdx, r13
    call path_parentat
.Ldone:
    test eax, eax
    js .Lout
    mov rax, [rbx+ND_LAST+QSTR_HASH]
    mov [r14+QSTR_HASH], rax
    mov rax, [rbx+ND_LAST+QSTR_NAME]
    mov [r14+QSTR_NAME], rax
    mov eax, [rbx+ND_LAST_TYPE]
.Lout:
    LEAVE5
ENDFUNC filename_parentat

# --- open -----------------------------------------------------------------------------------------

FUNC do_filp_open                       # edi dfd, rsi filename, rdx open_flags; rax file or error
    ENTER3
    sub rsp, ND_BYTES + 8
    mov r12, rdx
    mov rbx, rsp
    mov [rbx+ND_DFD], edi
    mov [rbx+ND_FILENAME], rsi
    mov rax, [rsi+FILENAME_NAME]
    mov [rbx+ND_PATHNAME], rax
    mov rdi, rbx
    mov rsi, rdx
    mov edx, [rdx+OPEN_LOOKUP_FLAGS]
    or edx, LOOKUP_RCU
    call path_openat
    cmp rax, -ECHILD
    jne .Lout
    mov rdi, rbx
    mov rsi, r12
    mov edx, [r12+OPEN_LOOKUP_FLAGS]
    call path_openat
.Lout:
    LEAVE3
ENDFUNC do_filp_open

FUNC may_open                           # rdi ns, rsi path, edx MAY_* wanted, ecx O_* flags; eax 0 or error
    PROLOGUE
    mov rax, [rsi+PATH_DENTRY]
    mov rsi, [rax+DENTRY_INODE]
    mov eax, -ENOENT
    test rsi, rsi
    je .Lout
    mov r8d, [rsi+INODE_MODE]
    and r8d, S_IFMT
    mov eax, -ELOOP
    cmp r8d, S_IFLNK
    je .Lout
    cmp r8d, S_IFDIR
    jne .Lpermission
    mov eax, -EISDIR
    test edx, MAY_WRITE
    jne .Lout
    mov eax, -EACCES
    test edx, MAY_EXEC
    jne .Lout
.Lpermission:
    or edx, MAY_OPEN
    call inode_permission
.Lout:
    EPILOGUE
ENDFUNC may_open

OPENAT_WRITE = 48                       # locals of path_openat, below rbp: mnt_want_write succeeded
OPENAT_TRUNCATE = 52
OPENAT_ACC = 56
OPENAT_ERROR = 64
OPENAT_INODE = 72                       # of the directory
OPENAT_LOOKED_UP = 80

FUNC path_openat                        # rdi nameidata, rsi open_flags, edx flags; rax file or error
    ENTER5
    sub rsp, 56
    mov rbx, rdi
    mov r12, rsi
    mov r14d, edx
    mov edi, [rsi+OPEN_FLAG]
    mov rsi, gs:[CURRENT_TASK]
    mov rsi, [rsi+TASK_CRED]
    call alloc_empty_file
    cmp rax, ERR_MIN
    jae .Lout
    mov r13, rax
    mov rdi, rbx
    mov esi, r14d
    call path_init
    cmp rax, ERR_MIN
    jae .Lfail
.Lwalk:
    mov rdi, rax
    mov rsi, rbx
    call link_path_walk
    movsxd rax, eax
    test rax, rax
    jne .Lfail

    # open_last_lookups
    mov eax, [r12+OPEN_INTENT]
    or [rbx+ND_FLAGS], eax
    mov esi, [rbx+ND_LAST_TYPE]
    cmp esi, LAST_NORM
    je .Lnormal
    cmp esi, LAST_ROOT
    je .Lopen
    cmp dword ptr [rbx+ND_DEPTH], 0
    je .Ldots
    PUT_LINK rbx
.Ldots:
    mov rdi, rbx
    mov esi, [rbx+ND_LAST_TYPE]
    call handle_dots
    test rax, rax
    jne .Lfail
    jmp .Lopen
.Lnormal:
    mov ecx, [rbx+ND_LAST+QSTR_LEN]
    add rcx, [rbx+ND_LAST+QSTR_NAME]
    test dword ptr [r12+OPEN_FLAG], O_CREAT
    jne .Lcreating
    cmp byte ptr [rcx], 0
    je .Lfast
    or dword ptr [rbx+ND_FLAGS], LOOKUP_FOLLOW | LOOKUP_DIRECTORY
.Lfast:
    mov rdi, rbx
    call lookup_fast
    cmp rax, ERR_MIN
    jae .Lfail
    test rax, rax
    je .Llookup
    mov r14, rax
    jmp .Lfinish
.Lcreating:
    cmp byte ptr [rcx], 0               # a slash at the end
    mov rax, -EISDIR
    jne .Lfail
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    je .Llookup
    mov rdi, rbx
    call try_to_unlazy
.Llookup:
    mov dword ptr [rbp-OPENAT_WRITE], 0
    test dword ptr [r12+OPEN_FLAG], O_CREAT | O_TRUNC | O_ACCMODE
    je .Llock
    mov rdi, [rbx+ND_MNT]
    call mnt_want_write
    test eax, eax
    jne .Llock                          # an existing file may still be opened for reading
    mov dword ptr [rbp-OPENAT_WRITE], 1
.Llock:
    mov rax, [rbx+ND_INODE]
    mov [rbp-OPENAT_INODE], rax
    lea rdi, [rax+INODE_RWSEM]
    test dword ptr [r12+OPEN_FLAG], O_CREAT
    je .Lshared
    call down_write
    jmp .Llocked
.Lshared:
    call down_read
.Llocked:

    # lookup_open
    mov r14, -ENOENT
    mov rax, [rbp-OPENAT_INODE]
    cmp dword ptr [rax+INODE_NLINK], 0  # removed while somebody stood in it
    je .Lunlock
    mov rdi, [rbx+ND_DENTRY]
    lea rsi, [rbx+ND_LAST]
    call d_lookup
    mov r14, rax
    mov dword ptr [rbp-OPENAT_LOOKED_UP], 0
    test rax, rax
    je .Lalloc
.Lcached:
    mov rdi, r14
    mov esi, [rbx+ND_FLAGS]
    call d_revalidate
    test eax, eax
    jg .Lhave
    mov rdi, r14
    call d_drop
    mov rdi, r14
    call dput
.Lalloc:
    mov rdi, [rbx+ND_DENTRY]
    lea rsi, [rbx+ND_LAST]
    call d_alloc_parallel
    mov r14, rax
    cmp rax, ERR_MIN
    jae .Lunlock
    test dword ptr [rax+DENTRY_FLAGS], DCACHE_PAR_LOOKUP
    je .Lcached
    mov rdi, [rbp-OPENAT_INODE]
    mov rsi, r14
    mov edx, [rbx+ND_FLAGS]
    mov rax, [rdi+INODE_OP]
    call [rax+IOP_LOOKUP]
    mov r15, rax
    mov rdi, r14
    call __d_lookup_unhash
    test r15, r15
    je .Lhave
    mov rdi, r14
    call dput
    mov r14, r15
    cmp r15, ERR_MIN
    jae .Lunlock
.Lhave:
    cmp qword ptr [r14+DENTRY_INODE], 0
    jne .Lunlock
    test dword ptr [r12+OPEN_FLAG], O_CREAT
    je .Lunlock
    mov r15, -EROFS
    cmp dword ptr [rbp-OPENAT_WRITE], 0
    je .Lnotcreated
    mov rdi, offset init_user_ns        # may_o_create
    mov rsi, [rbp-OPENAT_INODE]
    mov edx, MAY_WRITE | MAY_EXEC
    call inode_permission
    movsxd r15, eax
    test r15, r15
    jne .Lnotcreated
    mov rsi, [rbp-OPENAT_INODE]
    mov rax, [rsi+INODE_OP]
    mov rax, [rax+IOP_CREATE]
    mov r15, -EACCES
    test rax, rax
    je .Lnotcreated
    or dword ptr [r13+FILE_MODE], FMODE_CREATED
    mov rdi, offset init_user_ns
    mov rdx, r14
    mov r8, gs:[CURRENT_TASK]
    mov r8, [r8+TASK_FS]
    mov r8d, [r8+FS_UMASK]
    not r8d
    mov ecx, [r12+OPEN_MODE]
    and ecx, r8d
    mov r8d, [r12+OPEN_FLAG]
    and r8d, O_EXCL
    call rax
    movsxd r15, eax
    test r15, r15
    je .Lcreated
.Lnotcreated:
    mov rdi, r14
    call dput
    mov r14, r15
    jmp .Lunlock
.Lcreated:
    mov edi, FS_CREATE
    mov rsi, [rbp-OPENAT_INODE]
    mov rdx, r14
    call fsnotify
.Lunlock:
    mov rdi, [rbp-OPENAT_INODE]
    lea rdi, [rdi+INODE_RWSEM]
    test dword ptr [r12+OPEN_FLAG], O_CREAT
    je .Lunshare
    call up_write
    jmp .Lunlocked
.Lunshare:
    call up_read
.Lunlocked:
    cmp dword ptr [rbp-OPENAT_WRITE], 0
    je .Lentry
    mov rdi, [rbx+ND_MNT]
    call mnt_drop_write
.Lentry:
    mov rax, r14
    cmp rax, ERR_MIN
    jae .Lfail
.Lfinish:
    cmp dword ptr [rbx+ND_DEPTH], 0
    je .Lstep
    PUT_LINK rbx
.Lstep:
    mov rdi, rbx
    mov esi, WALK_TRAILING
    mov rdx, r14
    call step_into
    test rax, rax
    je .Lopen
    cmp rax, ERR_MIN
    jae .Lfail
    and dword ptr [rbx+ND_FLAGS], ~(LOOKUP_OPEN | LOOKUP_CREATE | LOOKUP_EXCL)
    jmp .Lwalk

    # do_open
.Lopen:
    mov rdi, rbx
    call complete_walk
    movsxd rax, eax
    test rax, rax
    jne .Lfail
    mov rcx, [rbx+ND_DENTRY]
    mov ecx, [rcx+DENTRY_FLAGS]
    and ecx, DCACHE_ENTRY_TYPE
    mov edx, [r12+OPEN_FLAG]
    test edx, O_CREAT
    je .Lexisting
    test edx, O_EXCL
    je .Lnotexcl
    mov rax, -EEXIST
    test dword ptr [r13+FILE_MODE], FMODE_CREATED
    je .Lfail
.Lnotexcl:
    mov rax, -EISDIR
    cmp ecx, DCACHE_DIRECTORY_TYPE
    je .Lfail
.Lexisting:
    test dword ptr [rbx+ND_FLAGS], LOOKUP_DIRECTORY
    je .Laccess
    mov rax, -ENOTDIR
    cmp ecx, DCACHE_DIRECTORY_TYPE
    jne .Lfail
.Laccess:
    mov dword ptr [rbp-OPENAT_TRUNCATE], 0
    mov eax, [r12+OPEN_ACC_MODE]
    mov [rbp-OPENAT_ACC], eax
    test dword ptr [r13+FILE_MODE], FMODE_CREATED
    je .Ltruncating
    mov dword ptr [rbp-OPENAT_ACC], 0
    jmp .Lmay
.Ltruncating:
    test edx, O_TRUNC
    je .Lmay
    cmp ecx, DCACHE_REGULAR_TYPE
    jne .Lmay
    mov rdi, [rbx+ND_MNT]
    call mnt_want_write
    movsxd rax, eax
    test rax, rax
    jne .Lfail
    mov dword ptr [rbp-OPENAT_TRUNCATE], 1
.Lmay:
    mov rdi, offset init_user_ns
    lea rsi, [rbx+ND_PATH]
    mov edx, [rbp-OPENAT_ACC]
    mov ecx, [r12+OPEN_FLAG]
    call may_open
    movsxd r15, eax
    test r15, r15
    jne .Ldropwrite
    lea rdi, [rbx+ND_PATH]
    mov rsi, r13
    call vfs_open
    movsxd r15, eax
    test r15, r15
    jne .Ldropwrite
    cmp dword ptr [rbp-OPENAT_TRUNCATE], 0
    je .Ldropwrite
    mov rdi, offset init_user_ns        # handle_truncate
    mov rsi, [r13+FILE_DENTRY]
    xor edx, edx
    mov ecx, ATTR_MTIME_BIT | ATTR_CTIME_BIT | ATTR_OPEN_BIT
    mov r8, r13
    call do_truncate
    movsxd r15, eax
.Ldropwrite:
    cmp dword ptr [rbp-OPENAT_TRUNCATE], 0
    je .Ldone
    mov rdi, [rbx+ND_MNT]
    call mnt_drop_write
.Ldone:
    mov rax, r15
    test rax, rax
    jne .Lfail
    mov rdi, rbx
    call terminate_walk
    mov rax, r13
    jmp .Lout
.Lfail:
    mov [rbp-OPENAT_ERROR], rax
    mov rdi, rbx
    call terminate_walk
    mov rdi, r13
    call fput
    mov rax, [rbp-OPENAT_ERROR]
.Lout:
    LEAVE5
ENDFUNC path_openat
