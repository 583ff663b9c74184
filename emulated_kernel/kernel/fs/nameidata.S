# fs/namei.c: the state of a path walk. A walk begins under RCU: it takes no reference and must not sleep;
# when it has to, try_to_unlazy takes the references and the walk goes on with them.

.text

FUNC __legitimize_mnt                   # rdi mount; eax 0
    PROLOGUE
    lock inc dword ptr [rdi+MNT_COUNT]
    xor eax, eax
    EPILOGUE
ENDFUNC __legitimize_mnt

FUNC __legitimize_path                  # rdi path; al whether it still was one
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rdi+PATH_MNT]
    call __legitimize_mnt
    mov rax, [rbx+PATH_DENTRY]
    DGET rax
    mov eax, 1
    LEAVE1
ENDFUNC __legitimize_path

FUNC legitimize_links                   # rdi nameidata; al
    PROLOGUE
    xor ecx, ecx
.Lnext:
    cmp ecx, [rdi+ND_DEPTH]
    jae .Lout
    mov edx, ecx
    shl edx, 4
    mov rax, [rdi+rdx+ND_STACK]
    DGET rax
    inc ecx
    jmp .Lnext
.Lout:
    mov eax, 1
    EPILOGUE
ENDFUNC legitimize_links

FUNC try_to_unlazy                      # rdi nameidata; al whether the walk can go on
    ENTER1
    push 0
    mov rbx, rdi
    and dword ptr [rdi+ND_FLAGS], ~LOOKUP_RCU
    call legitimize_links
    lea rdi, [rbx+ND_PATH]
    call __legitimize_path
    call __rcu_read_unlock
    mov eax, 1
    LEAVE1
ENDFUNC try_to_unlazy

FUNC complete_walk                      # rdi nameidata; eax 0, or -ECHILD: again without RCU
    PROLOGUE
    test dword ptr [rdi+ND_FLAGS], LOOKUP_RCU
    je .Ldone
    call try_to_unlazy
    test al, al
    jne .Ldone
    mov eax, -ECHILD
    EPILOGUE
.Ldone:
    xor eax, eax
    EPILOGUE
ENDFUNC complete_walk

FUNC terminate_walk                     # rdi nameidata
    ENTER2
    mov rbx, rdi
    test dword ptr [rdi+ND_FLAGS], LOOKUP_RCU
    jne .Lrcu
    lea rdi, [rdi+ND_PATH]
    call path_put
    xor r12d, r12d
.Llink:
    cmp r12d, [rbx+ND_DEPTH]
    jae .Lout
    mov eax, r12d
    shl eax, 4
    mov rdi, [rbx+rax+ND_STACK]
    call dput
    inc r12d
    jmp .Llink
.Lrcu:
    and dword ptr [rbx+ND_FLAGS], ~LOOKUP_RCU
    call __rcu_read_unlock
.Lout:
    mov dword ptr [rbx+ND_DEPTH], 0
    mov qword ptr [rbx+ND_MNT], 0
    mov qword ptr [rbx+ND_DENTRY], 0
    LEAVE2
ENDFUNC terminate_walk

# --- the start of a walk --------------------------------------------------------------------------

FUNC set_root                           # rdi nameidata
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov rax, [rax+TASK_FS]
    mov rcx, [rax+FS_ROOT+PATH_MNT]
    mov [rdi+ND_ROOT+PATH_MNT], rcx
    mov rcx, [rax+FS_ROOT+PATH_DENTRY]
    mov [rdi+ND_ROOT+PATH_DENTRY], rcx
    EPILOGUE
ENDFUNC set_root

FUNC nd_jump_root                       # rdi nameidata; eax 0
    ENTER1
    push 0
    mov rbx, rdi
    cmp qword ptr [rdi+ND_ROOT+PATH_MNT], 0
    jne .Lroot
    call set_root
.Lroot:
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    jne .Lset
    lea rdi, [rbx+ND_PATH]
    cmp qword ptr [rdi], 0
    je .Lhold
    call path_put
.Lhold:
    lea rdi, [rbx+ND_ROOT]
    call path_get
.Lset:
    mov rax, [rbx+ND_ROOT+PATH_MNT]
    mov [rbx+ND_MNT], rax
    mov rax, [rbx+ND_ROOT+PATH_DENTRY]
    mov [rbx+ND_DENTRY], rax
    mov rax, [rax+DENTRY_INODE]
    mov [rbx+ND_INODE], rax
    xor eax, eax
    LEAVE1
ENDFUNC nd_jump_root

# rdi nameidata (with dfd and path name), esi LOOKUP_* flags; rax name to walk, or error.
FUNC path_init
    ENTER3
    push 0
    mov rbx, rdi
    xor eax, eax
    mov [rdi+ND_FLAGS], esi
    mov [rdi+ND_DEPTH], eax
    mov [rdi+ND_TOTAL_LINKS], eax
    mov [rdi+ND_MNT], rax
    mov [rdi+ND_DENTRY], rax
    mov [rdi+ND_ROOT+PATH_MNT], rax
    mov dword ptr [rdi+ND_LAST_TYPE], LAST_ROOT
    test esi, LOOKUP_RCU
    je .Lname
    call __rcu_read_lock
.Lname:
    mov rax, [rbx+ND_PATHNAME]
    cmp byte ptr [rax], 0x2f
    jne .Lrelative
    mov rdi, rbx
    call nd_jump_root
    jmp .Lout
.Lrelative:
    cmp dword ptr [rbx+ND_DFD], AT_FDCWD
    jne .Lfd
    mov rax, gs:[CURRENT_TASK]
    mov rdx, [rax+TASK_FS]
    add rdx, FS_PWD
    jmp .Lstart
.Lfd:
    mov edi, [rbx+ND_DFD]
    call __fdget
    mov r12, rax
    mov rdx, rax
    and rdx, -4
    mov r13, -EBADF
    je .Lerror
    mov rcx, [rdx+FILE_INODE]
    mov eax, [rcx+INODE_MODE]
    and eax, S_IFMT
    mov r13, -ENOTDIR
    cmp eax, S_IFDIR
    jne .Lputerror
    mov rcx, [rdx+PATH_MNT]
    mov [rbx+ND_MNT], rcx
    mov rcx, [rdx+PATH_DENTRY]
    mov [rbx+ND_DENTRY], rcx
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    jne .Lputfd
    lea rdi, [rbx+ND_PATH]
    call path_get
.Lputfd:
    FDPUT r12
    jmp .Linode
.Lputerror:
    FDPUT r12
.Lerror:
    mov rax, r13
    LEAVE3
.Lstart:
    mov rax, [rdx+PATH_MNT]
    mov [rbx+ND_MNT], rax
    mov rax, [rdx+PATH_DENTRY]
    mov [rbx+ND_DENTRY], rax
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    jne .Linode
    lea rdi, [rbx+ND_PATH]
    call path_get
.Linode:
    mov rax, [rbx+ND_DENTRY]
    mov rax, [rax+DENTRY_INODE]
    mov [rbx+ND_INODE], rax
.Lout:
    mov rax, [rbx+ND_PATHNAME]
    LEAVE3
ENDFUNC path_init
