# fs/kernfs: a tree of nodes that knows no dentries; those are made when somebody looks.

.text

FUNC kernfs_get                         # rdi node or 0
    PROLOGUE
    test rdi, rdi
    je .Lout
    lock inc dword ptr [rdi+KN_COUNT]
.Lout:
    EPILOGUE
ENDFUNC kernfs_get

FUNC kernfs_put                         # rdi node or 0
    ENTER2
    mov rbx, rdi
.Lnext:
    test rbx, rbx
    je .Lout
    lock dec dword ptr [rbx+KN_COUNT]
    jne .Lout
    mov r12, [rbx+KN_PARENT]
    mov rdi, [rbx+KN_NAME]
    call kfree
    mov rdi, rbx
    call kfree
    mov rbx, r12
    jmp .Lnext
.Lout:
    LEAVE2
ENDFUNC kernfs_put

FUNC kernfs_get_active                  # rdi node; rax the same, or 0 when it is being removed
    PROLOGUE
    xor eax, eax
    cmp dword ptr [rdi+KN_ACTIVE], 0
    jl .Lout
    lock inc dword ptr [rdi+KN_ACTIVE]
    mov rax, rdi
.Lout:
    EPILOGUE
ENDFUNC kernfs_get_active

FUNC kernfs_put_active                  # rdi node
    PROLOGUE
    lock dec dword ptr [rdi+KN_ACTIVE]
    EPILOGUE
ENDFUNC kernfs_put_active

FUNC kernfs_name_hash                   # rdi name, esi length; eax
    PROLOGUE
    mov edx, esi
    mov rsi, rdi
    xor edi, edi
    call full_name_hash
    and eax, 0x7fffffff
    EPILOGUE
ENDFUNC kernfs_name_hash

FUNC __kernfs_new_node                  # rdi name, esi mode; rax node or 0
    ENTER3
    push 0
    mov rbx, rdi
    mov r12d, esi
    mov esi, GFP_KERNEL
    call kstrdup
    mov r13, rax
    test rax, rax
    je .Lout
    KMALLOC KMALLOC_96, KN_BYTES, GFP_KERNEL | GFP_ZERO
    test rax, rax
    je .Lnomem
    mov [rax+KN_NAME], r13
    mov [rax+KN_MODE], r12d
    mov dword ptr [rax+KN_COUNT], 1
    mov rbx, rax
    call get_next_ino
    mov [rbx+KN_INO], rax
    mov rdi, r13
    call strlen
    mov rdi, r13
    mov esi, eax
    call kernfs_name_hash
    mov [rbx+KN_HASH], eax
    mov rax, rbx
    LEAVE3
.Lnomem:
    mov rdi, r13
    call kfree
    xor eax, eax
.Lout:
    LEAVE3
ENDFUNC __kernfs_new_node

FUNC kernfs_new_node                    # rdi parent, rsi name, edx mode; rax node or 0
    ENTER2
    mov rbx, rdi
    mov rdi, rsi
    mov esi, edx
    call __kernfs_new_node
    mov r12, rax
    test rax, rax
    je .Lout
    mov rdi, rbx
    call kernfs_get
    mov [r12+KN_PARENT], rbx
.Lout:
    mov rax, r12
    LEAVE2
ENDFUNC kernfs_new_node

FUNC kernfs_link_sibling                # rdi node: among its parent's children; eax 0 or -EEXIST
    ENTER2
    mov rbx, rdi
    mov rax, [rdi+KN_PARENT]
    lea r12, [rax+KN_CHILDREN]
.Lnext:
    mov rax, [r12]
    test rax, rax
    je .Lhere
    mov ecx, [rbx+KN_HASH]
    cmp [rax+KN_HASH], ecx
    ja .Lhere
    jb .Lon
    mov rdi, [rax+KN_NAME]
    mov rsi, [rbx+KN_NAME]
    call strcmp
    test eax, eax
    je .Lexists
.Lon:
    mov rax, [r12]
    lea r12, [rax+KN_NEXT]
    jmp .Lnext
.Lhere:
    mov rax, [r12]
    mov [rbx+KN_NEXT], rax
    mov [r12], rbx
    xor eax, eax
    LEAVE2
.Lexists:
    mov eax, -EEXIST
    LEAVE2
ENDFUNC kernfs_link_sibling

FUNC kernfs_add_one                     # rdi node; eax 0 or error
    ENTER2
    mov rbx, rdi
    mov rdi, offset kernfs_rwsem
    call down_write
    mov rdi, rbx
    call kernfs_link_sibling
    mov r12d, eax
    mov rdi, offset kernfs_rwsem
    call up_write
    mov eax, r12d
    LEAVE2
ENDFUNC kernfs_add_one

FUNC kernfs_create_dir_ns               # rdi parent, rsi name, edx mode, rcx object; rax node or error
    ENTER3
    push 0
    mov r12, rcx
    or edx, S_IFDIR
    call kernfs_new_node
    mov rbx, rax
    test rax, rax
    je .Lnomem
    mov [rax+KN_PRIV], r12
    mov rdi, rax
    call kernfs_add_one
    movsxd r12, eax
    test eax, eax
    mov rax, rbx
    je .Lout
    mov rdi, rbx
    call kernfs_put
    mov rax, r12
.Lout:
    LEAVE3
.Lnomem:
    mov rax, -ENOMEM
    LEAVE3
ENDFUNC kernfs_create_dir_ns

# rdi parent, rsi name, edx mode, rcx attribute, r8 show and r9 store of its kind; rax node or error.
FUNC __kernfs_create_file
    ENTER5
    push 0
    mov r12, rcx
    mov r13, r8
    mov r14, r9
    or edx, S_IFREG
    call kernfs_new_node
    mov rbx, rax
    test rax, rax
    je .Lnomem
    mov [rax+KN_PRIV], r12
    mov [rax+KN_SHOW], r13
    mov [rax+KN_STORE], r14
    mov rdi, rax
    call kernfs_add_one
    movsxd r12, eax
    test eax, eax
    mov rax, rbx
    je .Lout
    mov rdi, rbx
    call kernfs_put
    mov rax, r12
.Lout:
    LEAVE5
.Lnomem:
    mov rax, -ENOMEM
    LEAVE5
ENDFUNC __kernfs_create_file

FUNC kernfs_find_ns                     # rdi parent, rsi name, edx length; rax node or 0
    ENTER4
    mov rbx, [rdi+KN_CHILDREN]
    mov r12, rsi
    mov r13d, edx
    mov rdi, rsi
    mov esi, edx
    call kernfs_name_hash
    mov r14d, eax
.Lnext:
    test rbx, rbx
    je .Lout
    cmp [rbx+KN_HASH], r14d
    ja .Lnone
    jb .Lon
    mov rdi, [rbx+KN_NAME]
    mov rsi, r12
    call strcmp
    test eax, eax
    je .Lout
.Lon:
    mov rbx, [rbx+KN_NEXT]
    jmp .Lnext
.Lnone:
    xor ebx, ebx
.Lout:
    mov rax, rbx
    LEAVE4
ENDFUNC kernfs_find_ns

# --- as a file system -----------------------------------------------------------------------------

FUNC kernfs_refresh_inode               # rdi node, rsi inode
    PROLOGUE
    mov eax, [rdi+KN_MODE]
    mov [rsi+INODE_MODE], eax
    and eax, S_IFMT
    cmp eax, S_IFDIR
    jne .Lout
    mov ecx, 2
    mov rax, [rdi+KN_CHILDREN]
.Lnext:
    test rax, rax
    je .Ldirs
    mov edx, [rax+KN_MODE]
    and edx, S_IFMT
    cmp edx, S_IFDIR
    jne .Lfile
    inc ecx
.Lfile:
    mov rax, [rax+KN_NEXT]
    jmp .Lnext
.Ldirs:
    mov rdi, rsi
    mov esi, ecx
    call set_nlink
.Lout:
    EPILOGUE
ENDFUNC kernfs_refresh_inode

FUNC kernfs_get_inode                   # rdi super block, rsi node; rax inode or 0
    ENTER2
    mov rbx, rsi
    call new_inode
    mov r12, rax
    test rax, rax
    je .Lout
    mov rdi, rbx
    call kernfs_get
    mov [r12+INODE_PRIVATE], rbx
    mov rax, [rbx+KN_INO]
    mov [r12+INODE_INO], rax
    mov rax, offset kernfs_iops
    mov [r12+INODE_OP], rax
    mov rdi, r12
    call current_time
    mov [r12+INODE_ATIME], rax
    mov [r12+INODE_ATIME+8], rdx
    mov [r12+INODE_MTIME], rax
    mov [r12+INODE_MTIME+8], rdx
    mov [r12+INODE_CTIME], rax
    mov [r12+INODE_CTIME+8], rdx
    mov rdi, rbx
    mov rsi, r12
    call kernfs_refresh_inode
    mov eax, [rbx+KN_MODE]
    and eax, S_IFMT
    mov rcx, offset kernfs_dir_fops
    cmp eax, S_IFDIR
    je .Lops
    mov qword ptr [r12+INODE_SIZE], PAGE_BYTES
    mov rcx, offset kernfs_file_fops
.Lops:
    mov [r12+INODE_FOP], rcx
.Lout:
    mov rax, r12
    LEAVE2
ENDFUNC kernfs_get_inode

FUNC kernfs_evict_inode                 # rdi inode
    ENTER1
    push 0
    mov rbx, rdi
    lea rdi, [rdi+INODE_DATA]
    call truncate_inode_pages_final
    mov rdi, rbx
    call clear_inode
    mov rdi, [rbx+INODE_PRIVATE]
    call kernfs_put
    LEAVE1
ENDFUNC kernfs_evict_inode

FUNC kernfs_iop_permission              # rdi ns, rsi inode, edx mask; eax 0 or error
    ENTER3
    push 0
    mov rbx, rsi
    mov r12d, edx
    test edx, MAY_NOT_BLOCK             # under RCU, where the lock must not be waited for
    jne .Lcheck
    mov rdi, offset kernfs_rwsem
    call down_read
    mov rdi, [rbx+INODE_PRIVATE]
    mov rsi, rbx
    call kernfs_refresh_inode
    mov rdi, offset kernfs_rwsem
    call up_read
.Lcheck:
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov edx, r12d
    call generic_permission
    LEAVE3
ENDFUNC kernfs_iop_permission

FUNC kernfs_iop_lookup                  # rdi directory, rsi dentry, edx flags; rax 0 or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    xor r13d, r13d
    mov rdi, offset kernfs_rwsem
    call down_read
    mov rdi, [rbx+INODE_PRIVATE]
    mov rsi, [r12+DENTRY_NAME+QSTR_NAME]
    mov edx, [r12+DENTRY_NAME+QSTR_LEN]
    call kernfs_find_ns
    test rax, rax
    je .Lunlock
    mov rdi, [rbx+INODE_SB]
    mov rsi, rax
    call kernfs_get_inode
    mov r13, rax
    test rax, rax
    jne .Lunlock
    mov r13, -ENOMEM
.Lunlock:
    mov rdi, offset kernfs_rwsem
    call up_read
    mov rdi, r13
    mov rsi, r12
    call d_splice_alias
    LEAVE3
ENDFUNC kernfs_iop_lookup

# A dentry without a node holds until something is created; all others until their node goes.
FUNC kernfs_dop_revalidate              # rdi dentry, esi flags; eax 1 it holds, 0 look again
    PROLOGUE
    mov rcx, [rdi+DENTRY_INODE]
    test rcx, rcx
    je .Lnegative
    mov rcx, [rcx+INODE_PRIVATE]
    mov eax, [rcx+KN_ACTIVE]
    not eax
    shr eax, 31
    EPILOGUE
.Lnegative:
    mov rcx, [rdi+DENTRY_PARENT]
    mov rcx, [rcx+DENTRY_INODE]
    mov rcx, [rcx+INODE_PRIVATE]
    mov rsi, [rdi+DENTRY_NAME+QSTR_NAME]
    mov edx, [rdi+DENTRY_NAME+QSTR_LEN]
    mov rdi, rcx
    call kernfs_find_ns
    test rax, rax
    sete al
    movzx eax, al
    EPILOGUE
ENDFUNC kernfs_dop_revalidate

FUNC kernfs_dir_pos                     # rdi directory node, rsi position; rax child there, or 0
    PROLOGUE
    mov rax, [rdi+KN_CHILDREN]
    sub rsi, 2
.Lnext:
    test rax, rax
    je .Lout
    test rsi, rsi
    je .Lout
    dec rsi
    mov rax, [rax+KN_NEXT]
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC kernfs_dir_pos

FUNC kernfs_fop_readdir                 # rdi file, rsi ctx; eax 0
    ENTER3
    push 0
    mov r12, rsi
    mov rax, [rdi+FILE_INODE]
    mov r13, [rax+INODE_PRIVATE]
    call dir_emit_dots
    test al, al
    je .Lout
    mov rdi, offset kernfs_rwsem
    call down_read
    mov rdi, r13
    mov rsi, [r12+CTX_POS]
    call kernfs_dir_pos
    mov rbx, rax
.Lnext:
    test rbx, rbx
    je .Lunlock
    mov rdi, [rbx+KN_NAME]
    call strlen
    mov edx, eax
    mov r9d, [rbx+KN_MODE]
    and r9d, S_IFMT
    shr r9d, 12
    mov rdi, r12
    mov rsi, [rbx+KN_NAME]
    mov rcx, [r12+CTX_POS]
    mov r8, [rbx+KN_INO]
    call [r12+CTX_ACTOR]
    test al, al
    je .Lunlock
    inc qword ptr [r12+CTX_POS]
    mov rbx, [rbx+KN_NEXT]
    jmp .Lnext
.Lunlock:
    mov rdi, offset kernfs_rwsem
    call up_read
.Lout:
    xor eax, eax
    LEAVE3
ENDFUNC kernfs_fop_readdir

.data
.balign 8
OBJECT kernfs_rwsem
    .zero 40
ENDOBJECT kernfs_rwsem
OBJECT kernfs_iops
    .quad kernfs_iop_lookup
    .quad 0
    .quad kernfs_iop_permission
    .zero IOP_BYTES - 24
ENDOBJECT kernfs_iops
OBJECT kernfs_dops
    .quad kernfs_dop_revalidate
    .quad 0
    .quad 0
ENDOBJECT kernfs_dops
OBJECT kernfs_sops
    .quad kernfs_evict_inode
    .quad 0
    .quad 0
ENDOBJECT kernfs_sops
OBJECT kernfs_dir_fops
    .quad default_llseek
    .quad generic_read_dir
    .zero FOPS_ITERATE - 16
    .quad kernfs_fop_readdir
    .zero FOPS_BYTES - FOPS_ITERATE - 8
ENDOBJECT kernfs_dir_fops
