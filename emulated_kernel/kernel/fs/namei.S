# fs/namei.c: walking a path, component by component. See nameidata.S for the state of a walk.

.text

# Ask the file system whether dentry rdi still holds; eax > 0 yes, 0 no, < 0 error.
FUNC_NOTRACE d_revalidate
    PROLOGUE
    mov eax, 1
    test dword ptr [rdi+DENTRY_FLAGS], DCACHE_OP_REVALIDATE
    je .Lout
    mov rax, [rdi+DENTRY_OP]
    call [rax+DOP_REVALIDATE]
.Lout:
    EPILOGUE
ENDFUNC d_revalidate

# The last component in the cache: rdi nameidata; rax dentry (under RCU without a reference), 0, or
# error. After 0 the walk is no longer under RCU.
FUNC lookup_fast
    ENTER2
    mov rbx, rdi
    lea rsi, [rdi+ND_LAST]
    mov rdi, [rdi+ND_DENTRY]
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    je .Lref
    call __d_lookup_rcu
    mov r12, rax
    test rax, rax
    je .Lleave
    mov rdi, r12
    mov esi, [rbx+ND_FLAGS]
    call d_revalidate
    test eax, eax
    jg .Lfound
    DGET r12
    mov rdi, rbx
    call try_to_unlazy
    jmp .Linvalid
.Lleave:
    mov rdi, rbx
    call try_to_unlazy
    xor eax, eax
    LEAVE2
.Lref:
    call __d_lookup
    mov r12, rax
    test rax, rax
    je .Lfound
    mov rdi, r12
    mov esi, [rbx+ND_FLAGS]
    call d_revalidate
    test eax, eax
    jg .Lfound
.Linvalid:
    mov rdi, r12
    call d_drop
    mov rdi, r12
    call dput
    xor r12d, r12d
.Lfound:
    mov rax, r12
    LEAVE2
ENDFUNC lookup_fast

# A dentry for the file system to look up, unless one appears meanwhile or another task is just looking
# it up: rdi parent, rsi qstr; rax dentry (DCACHE_PAR_LOOKUP set: it is ours to do) or error.
FUNC d_alloc_parallel
    ENTER4
    sub rsp, WAIT_SIZE + 8
    mov rbx, rdi
    mov r12, rsi
    call d_alloc
    mov r13, rax
    test rax, rax
    je .Lnomem
.Lretry:
    mov rdi, rbx
    mov rsi, r12
    call __d_lookup
    mov r14, rax
    test rax, rax
    jne .Lfound
    mov rdi, offset in_lookup_lock
    call _raw_spin_lock
    mov rcx, offset in_lookup_list
    mov r14, [rcx]
.Lnext:
    cmp r14, rcx
    je .Lours
    lea rdi, [r14-DENTRY_LRU]
    mov r14, [r14]
    push rcx
    push rcx
    mov rsi, rbx
    mov rdx, r12
    call d_name_equal
    pop rcx
    pop rcx
    jne .Lnext
    mov r14, rdi
    DGET r14
    mov rdi, offset in_lookup_lock
    call _raw_spin_unlock
    mov rdi, rsp
    xor esi, esi
    call init_wait_entry
.Lwait:
    mov rdi, offset in_lookup_wait
    mov rsi, rsp
    mov edx, TASK_UNINTERRUPTIBLE
    call prepare_to_wait
    test dword ptr [r14+DENTRY_FLAGS], DCACHE_PAR_LOOKUP
    je .Lwaited
    call schedule
    jmp .Lwait
.Lwaited:
    mov rdi, offset in_lookup_wait
    mov rsi, rsp
    call finish_wait
    mov rdi, r14                        # if it was hashed, the next look finds it
    call dput
    jmp .Lretry
.Lours:
    or dword ptr [r13+DENTRY_FLAGS], DCACHE_PAR_LOOKUP
    lea rsi, [r13+DENTRY_LRU]
    LIST_ADD rsi, rcx, rax
    mov rdi, offset in_lookup_lock
    call _raw_spin_unlock
    mov rax, r13
    LEAVE4
.Lfound:
    mov rdi, r13
    call dput
    mov rax, r14
    LEAVE4
.Lnomem:
    mov rax, -ENOMEM
    LEAVE4
ENDFUNC d_alloc_parallel

FUNC __d_lookup_unhash                  # rdi dentry whose lookup is done
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, offset in_lookup_lock
    call _raw_spin_lock
    and dword ptr [rbx+DENTRY_FLAGS], ~DCACHE_PAR_LOOKUP
    lea rsi, [rbx+DENTRY_LRU]
    LIST_DEL rsi, rax, rcx
    LIST_INIT rsi
    mov rdi, offset in_lookup_lock
    call _raw_spin_unlock
    mov rdi, offset in_lookup_wait
    mov rax, [rip + in_lookup_wait + WQ_HEAD]
    lea rcx, [rdi+WQ_HEAD]
    cmp rax, rcx
    je .Lout
    mov esi, TASK_NORMAL
    xor edx, edx
    xor ecx, ecx
    call __wake_up
.Lout:
    LEAVE1
ENDFUNC __d_lookup_unhash

FUNC __lookup_slow                      # rdi qstr, rsi directory, edx flags; rax dentry or error
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13d, edx
    mov r14, -ENOENT
    mov rax, [rsi+DENTRY_INODE]
    cmp dword ptr [rax+INODE_NLINK], 0  # removed while somebody stood in it
    je .Lout
.Lagain:
    mov rdi, r12
    mov rsi, rbx
    call d_alloc_parallel
    mov r14, rax
    cmp rax, ERR_MIN
    jae .Lout
    test dword ptr [rax+DENTRY_FLAGS], DCACHE_PAR_LOOKUP
    jne .Lours
    mov rdi, r14
    mov esi, r13d
    call d_revalidate
    test eax, eax
    jg .Lout
    mov rdi, r14
    call d_drop
    mov rdi, r14
    call dput
    jmp .Lagain
.Lours:
    mov rdi, [r12+DENTRY_INODE]
    mov rsi, r14
    mov edx, r13d
    mov rax, [rdi+INODE_OP]
    call [rax+IOP_LOOKUP]
    mov r15, rax
    mov rdi, r14
    call __d_lookup_unhash
    test r15, r15
    je .Lout
    mov rdi, r14
    call dput
    mov r14, r15
.Lout:
    mov rax, r14
    LEAVE5
ENDFUNC __lookup_slow

FUNC walk_component                     # rdi nameidata, esi WALK_*; rax 0, a link to follow, or error
    ENTER4
    mov rbx, rdi
    mov r12d, esi
    mov esi, [rdi+ND_LAST_TYPE]
    cmp esi, LAST_NORM
    je .Lnormal
    test r12d, WALK_MORE
    jne .Ldots
    cmp dword ptr [rbx+ND_DEPTH], 0
    je .Ldots
    PUT_LINK rbx
.Ldots:
    mov rdi, rbx
    mov esi, [rbx+ND_LAST_TYPE]
    call handle_dots
    LEAVE4
.Lnormal:
    call lookup_fast
    mov r13, rax
    cmp rax, ERR_MIN
    jae .Lout
    test rax, rax
    jne .Lfound
    mov r14, [rbx+ND_INODE]             # lookup_slow
    lea rdi, [r14+INODE_RWSEM]
    call down_read
    lea rdi, [rbx+ND_LAST]
    mov rsi, [rbx+ND_DENTRY]
    mov edx, [rbx+ND_FLAGS]
    call __lookup_slow
    mov r13, rax
    lea rdi, [r14+INODE_RWSEM]
    call up_read
    cmp r13, ERR_MIN
    jae .Lout
.Lfound:
    test r12d, WALK_MORE
    jne .Lstep
    cmp dword ptr [rbx+ND_DEPTH], 0
    je .Lstep
    PUT_LINK rbx
.Lstep:
    mov rdi, rbx
    mov esi, r12d
    mov rdx, r13
    call step_into
    mov r13, rax
.Lout:
    mov rax, r13
    LEAVE4
ENDFUNC walk_component

FUNC handle_dots                        # rdi nameidata, esi LAST_DOT or LAST_DOTDOT; rax 0 or error
    ENTER2
    sub rsp, 16
    mov rbx, rdi
    cmp esi, LAST_DOTDOT
    jne .Lhere
    cmp qword ptr [rdi+ND_ROOT+PATH_MNT], 0
    jne .Lroot
    call set_root
.Lroot:
    mov rax, [rbx+ND_DENTRY]
    mov rcx, [rbx+ND_MNT]
    cmp rax, [rbx+ND_ROOT+PATH_DENTRY]
    jne .Lup
    cmp rcx, [rbx+ND_ROOT+PATH_MNT]
    je .Lhere
.Lup:
    cmp rax, [rcx+MNT_ROOT]
    jne .Lparent
    mov rax, [rcx+MNT_MOUNTPOINT]
    mov rdx, [rcx+MNT_PARENT]
    cmp rdx, rcx
    je .Lhere
    mov rcx, rdx
    jmp .Lup
.Lparent:
    mov rax, [rax+DENTRY_PARENT]
    mov [rsp+PATH_MNT], rcx
    mov [rsp+PATH_DENTRY], rax
    mov rdi, rsp
    call __traverse_mounts
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    jne .Lset
    mov rdi, rsp
    call path_get
    lea rdi, [rbx+ND_PATH]
    call path_put
.Lset:
    mov rax, [rsp+PATH_MNT]
    mov [rbx+ND_MNT], rax
    mov rax, [rsp+PATH_DENTRY]
    mov [rbx+ND_DENTRY], rax
    mov rax, [rax+DENTRY_INODE]
    mov [rbx+ND_INODE], rax
.Lhere:
    xor eax, eax
    LEAVE2
ENDFUNC handle_dots

# rdi nameidata, esi WALK_*, rdx dentry (whose reference it takes when not under RCU); rax 0: the path is
# there now, a symlink's target to walk on with, or an error.
FUNC step_into
    ENTER4
    sub rsp, 16
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    mov rax, [rdi+ND_MNT]
    mov [rsp+PATH_MNT], rax
    mov [rsp+PATH_DENTRY], rdx
    test dword ptr [rdx+DENTRY_FLAGS], DCACHE_MOUNTED
    je .Ltop
    mov rdi, rsp
    call __traverse_mounts
.Ltop:
    mov rcx, [rsp+PATH_DENTRY]
    mov r14, [rcx+DENTRY_INODE]
    test r14, r14
    je .Lnegative
    mov eax, [rcx+DENTRY_FLAGS]
    and eax, DCACHE_ENTRY_TYPE
    cmp eax, DCACHE_SYMLINK_TYPE
    jne .Lthere
    test r12d, WALK_NOFOLLOW
    jne .Lthere
    test r12d, WALK_TRAILING
    je .Llink
    test dword ptr [rbx+ND_FLAGS], LOOKUP_FOLLOW
    jne .Llink
.Lthere:
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    jne .Lset
    cmp rcx, r13
    je .Lsame
    DGET rcx                            # crossed into a mount
    mov rdi, r13
    call dput
.Lsame:
    mov rax, [rsp+PATH_MNT]
    cmp rax, [rbx+ND_MNT]
    je .Lput
    mov rdi, rax
    call mntget
    mov rdi, [rbx+ND_MNT]
    call mntput
.Lput:
    mov rdi, [rbx+ND_DENTRY]
    call dput
.Lset:
    mov rax, [rsp+PATH_MNT]
    mov [rbx+ND_MNT], rax
    mov rax, [rsp+PATH_DENTRY]
    mov [rbx+ND_DENTRY], rax
    mov [rbx+ND_INODE], r14
    xor eax, eax
    LEAVE4
.Llink:                                 # pick_link
    mov eax, [rbx+ND_TOTAL_LINKS]
    inc dword ptr [rbx+ND_TOTAL_LINKS]
    cmp eax, MAXSYMLINKS
    jae .Lloop
    mov ecx, [rbx+ND_DEPTH]
    cmp ecx, ND_MAX_DEPTH
    jae .Lloop
    inc dword ptr [rbx+ND_DEPTH]
    shl ecx, 4
    mov [rbx+rcx+ND_STACK], r13
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    jne .Ltarget
    mov rdi, rsp
    call touch_atime
.Ltarget:
    mov r12, [r14+INODE_LINK]
    test r12, r12
    jne .Lgot
    mov rdi, r13
    mov rsi, r14
    mov rax, [r14+INODE_OP]
    call [rax+IOP_GET_LINK]
    mov r12, rax
    cmp rax, ERR_MIN
    jae .Lfailed
.Lgot:
    cmp byte ptr [r12], 0x2f
    jne .Lwalk
    mov rdi, rbx
    call nd_jump_root
.Lslash:
    inc r12
    cmp byte ptr [r12], 0x2f
    je .Lslash
    cmp byte ptr [r12], 0
    jne .Lwalk
    PUT_LINK rbx                        # a link to the root itself
    xor eax, eax
    LEAVE4
.Lwalk:
    mov rax, r12
    LEAVE4
.Lloop:
    mov r12, -ELOOP
    jmp .Ldrop
.Lnegative:
    mov r12, -ENOENT
.Ldrop:
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    jne .Lfailed
    mov rdi, r13
    call dput
.Lfailed:
    mov rax, r12
    LEAVE4
ENDFUNC step_into

# --- all components but the last ------------------------------------------------------------------

# rdi name, rsi nameidata; eax 0 with the last component in ND_LAST, or an error.
FUNC_STATIC link_path_walk.part.0.constprop.0
    ENTER4
    mov r12, rdi
    mov rbx, rsi
    xor r14d, r14d                      # links whose rest waits on the stack
.Lcomponent:
    mov rdi, offset init_user_ns
    mov rsi, [rbx+ND_INODE]
    mov edx, MAY_EXEC
    test dword ptr [rbx+ND_FLAGS], LOOKUP_RCU
    je .Lmay
    or edx, MAY_NOT_BLOCK
.Lmay:
    call inode_permission
    test eax, eax
    jne .Lout
    mov rdi, [rbx+ND_DENTRY]
    mov rsi, r12
    call hash_name
    mov [rbx+ND_LAST+QSTR_HASH], eax
    mov [rbx+ND_LAST+QSTR_LEN], edx
    mov [rbx+ND_LAST+QSTR_NAME], r12
    mov eax, -ENAMETOOLONG
    cmp edx, NAME_MAX
    ja .Lout
    mov ecx, LAST_NORM
    cmp byte ptr [r12], 0x2e            # .
    jne .Ltype
    mov ecx, LAST_DOT
    cmp edx, 1
    je .Ltype
    mov ecx, LAST_NORM
    cmp edx, 2
    jne .Ltype
    cmp byte ptr [r12+1], 0x2e
    jne .Ltype
    mov ecx, LAST_DOTDOT
.Ltype:
    mov [rbx+ND_LAST_TYPE], ecx
    add r12, rdx
    cmp byte ptr [r12], 0
    je .Llast
.Lslash:
    inc r12
    cmp byte ptr [r12], 0x2f
    je .Lslash
    cmp byte ptr [r12], 0
    je .Llast
    mov rdi, rbx
    mov esi, WALK_MORE
    call walk_component
    jmp .Lwalked
.Llast:
    test r14d, r14d
    je .Ldone
    dec r14d                            # the last of a symlink, but not of the path
    mov eax, r14d
    shl eax, 4
    mov r12, [rbx+rax+ND_STACK+8]
    mov rdi, rbx
    xor esi, esi
    call walk_component
.Lwalked:
    test rax, rax
    je .Ldirectory
    cmp rax, ERR_MIN
    jae .Lout
    mov ecx, r14d
    shl ecx, 4
    mov [rbx+rcx+ND_STACK+8], r12
    inc r14d
    mov r12, rax
    jmp .Lcomponent
.Ldirectory:
    mov rax, [rbx+ND_DENTRY]
    mov eax, [rax+DENTRY_FLAGS]
    and eax, DCACHE_ENTRY_TYPE
    cmp eax, DCACHE_DIRECTORY_TYPE
    mov eax, -ENOTDIR
    je .Lcomponent
    jmp .Lout
.Ldone:
    and dword ptr [rbx+ND_FLAGS], ~LOOKUP_PARENT
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC link_path_walk.part.0.constprop.0

# rdi name, rsi nameidata; eax. A name of slashes only is the start itself.
FUNC_NOTRACE link_path_walk
    cmp byte ptr [rdi], 0x2f
    jne .Lname
    inc rdi
    jmp link_path_walk
.Lname:
    mov dword ptr [rsi+ND_LAST_TYPE], LAST_ROOT
    cmp byte ptr [rdi], 0
    jne link_path_walk.part.0.constprop.0
    xor eax, eax
    ret
ENDFUNC link_path_walk

.data
.balign 8
OBJECT in_lookup_list
    .quad in_lookup_list
    .quad in_lookup_list
ENDOBJECT in_lookup_list
OBJECT in_lookup_wait
    .quad 0
    .quad in_lookup_wait + 8
    .quad in_lookup_wait + 8
ENDOBJECT in_lookup_wait
OBJECT in_lookup_lock
    .quad 0
ENDOBJECT in_lookup_lock
