# fs/attr.c: changing what an inode says about its file.

.text

FUNC notify_change                      # rdi ns, rsi dentry, rdx iattr, rcx delegated; eax 0 or error
    ENTER3
    push 0
    mov rbx, rsi
    mov r12, rdx
    mov r13, [rsi+DENTRY_INODE]
    mov rdi, r13
    call current_time
    mov [r12+IATTR_CTIME], rax
    mov [r12+IATTR_CTIME+8], rdx
    mov [r12+IATTR_ATIME], rax
    mov [r12+IATTR_ATIME+8], rdx
    mov [r12+IATTR_MTIME], rax
    mov [r12+IATTR_MTIME+8], rdx
    or dword ptr [r12+IATTR_VALID], ATTR_CTIME_BIT
    mov rdi, rbx
    mov rsi, r12
    call security_inode_setattr
    test eax, eax
    jne .Lout
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov rdx, r12
    mov rax, [r13+INODE_OP]
    mov rax, [rax+IOP_SETATTR]
    test rax, rax
    je .Lsimple
    call rax
    jmp .Lchanged
.Lsimple:
    call simple_setattr
.Lchanged:
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov esi, FS_ATTRIB
    mov rdx, r13
    call __fsnotify_parent
    xor eax, eax
.Lout:
    LEAVE3
ENDFUNC notify_change

FUNC setattr_prepare                    # rdi ns, rsi dentry, rdx iattr; eax whether it may be so
    PROLOGUE
    xor eax, eax
    test dword ptr [rdx+IATTR_VALID], ATTR_SIZE_BIT
    je .Lout
    mov rcx, [rdx+IATTR_SIZE]
    mov eax, -EINVAL
    test rcx, rcx
    js .Lout
    mov eax, -EFBIG
    shr rcx, 44
    jne .Lout
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC setattr_prepare

FUNC setattr_copy                       # rdi ns, rsi inode, rdx iattr
    PROLOGUE
    mov ecx, [rdx+IATTR_VALID]
    test ecx, ATTR_ATIME_BIT
    je .Lmtime
    mov rax, [rdx+IATTR_ATIME]
    mov [rsi+INODE_ATIME], rax
    mov rax, [rdx+IATTR_ATIME+8]
    mov [rsi+INODE_ATIME+8], rax
.Lmtime:
    test ecx, ATTR_MTIME_BIT
    je .Lctime
    mov rax, [rdx+IATTR_MTIME]
    mov [rsi+INODE_MTIME], rax
    mov rax, [rdx+IATTR_MTIME+8]
    mov [rsi+INODE_MTIME+8], rax
.Lctime:
    test ecx, ATTR_CTIME_BIT
    je .Lmode
    mov rax, [rdx+IATTR_CTIME]
    mov [rsi+INODE_CTIME], rax
    mov rax, [rdx+IATTR_CTIME+8]
    mov [rsi+INODE_CTIME+8], rax
.Lmode:
    test ecx, ATTR_MODE_BIT
    je .Lout
    mov eax, [rsi+INODE_MODE]
    and eax, S_IFMT
    mov ecx, [rdx+IATTR_MODE]
    and ecx, 0xfff
    or eax, ecx
    mov [rsi+INODE_MODE], eax
.Lout:
    EPILOGUE
ENDFUNC setattr_copy

FUNC simple_setattr                     # rdi ns, rsi dentry, rdx iattr; eax 0 or error (fs/libfs.c)
    ENTER2
    mov rbx, [rsi+DENTRY_INODE]
    mov r12, rdx
    call setattr_prepare
    test eax, eax
    jne .Lout
    test dword ptr [r12+IATTR_VALID], ATTR_SIZE_BIT
    je .Lcopy
    mov rdi, rbx
    mov rsi, [r12+IATTR_SIZE]
    call truncate_setsize
.Lcopy:
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov rdx, r12
    call setattr_copy
    mov rdi, rbx
    mov esi, I_DIRTY_SYNC | I_DIRTY_DATASYNC
    call __mark_inode_dirty
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC simple_setattr
