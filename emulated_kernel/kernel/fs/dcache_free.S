# fs/dcache.c: references to dentries, and their end.

.text

FUNC dput                               # rdi dentry or 0
    ENTER2
    mov rbx, rdi
.Lnext:
    test rbx, rbx
    je .Lout
    call __rcu_read_lock
    cmp dword ptr [rbx+DENTRY_COUNT], 1
    jbe .Llast
    lock dec dword ptr [rbx+DENTRY_COUNT]
    call __rcu_read_unlock
    jmp .Lout
.Llast:
    call __rcu_read_unlock
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_lock
    mov eax, [rbx+DENTRY_FLAGS]         # retain_dentry
    cmp qword ptr [rbx+DENTRY_HASH_PPREV], 0
    je .Lkill
    test eax, DCACHE_OP_DELETE
    je .Lretain
    mov rdi, rbx
    mov rcx, [rbx+DENTRY_OP]
    call [rcx+DOP_DELETE]
    test eax, eax
    jne .Lkill
.Lretain:
    dec dword ptr [rbx+DENTRY_COUNT]
    mov r12d, [rbx+DENTRY_FLAGS]
    test r12d, DCACHE_LRU_LIST
    jne .Lreferenced
    mov rdi, rbx
    call d_lru_add
    jmp .Lunlock
.Lreferenced:
    or dword ptr [rbx+DENTRY_FLAGS], DCACHE_REFERENCED
.Lunlock:
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_unlock
    test r12d, DCACHE_LRU_LIST
    jne .Lout
    mov rdi, [rbx+DENTRY_SB]
    cmp dword ptr [rdi+SB_NR_UNUSED], D_UNUSED_MAX
    jbe .Lout
    mov esi, D_UNUSED_MAX / 4           # instead of a shrinker that memory pressure calls
    call prune_dcache_sb
    jmp .Lout
.Lkill:
    mov r12, [rbx+DENTRY_PARENT]
    cmp r12, rbx
    jne .Lparent
    xor r12d, r12d
.Lparent:
    mov rdi, rbx
    call __dentry_kill
    mov rbx, r12
    jmp .Lnext
.Lout:
    LEAVE2
ENDFUNC dput

FUNC __dentry_kill                      # rdi dentry, locked; its parent keeps the reference it had
    ENTER3
    push 0
    mov rbx, rdi
    mov dword ptr [rbx+DENTRY_COUNT], 0
    test dword ptr [rbx+DENTRY_FLAGS], DCACHE_LRU_LIST
    je .Ldrop
    call d_lru_del
.Ldrop:
    mov rdi, rbx
    call __d_drop
    mov r12, [rbx+DENTRY_PARENT]
    cmp r12, rbx
    je .Lunlisted
    lea rdi, [r12+DENTRY_LOCK]
    call _raw_spin_lock
    lea rsi, [rbx+DENTRY_CHILD]
    LIST_DEL rsi, rax, rcx
    LIST_INIT rsi
    lea rdi, [r12+DENTRY_LOCK]
    call _raw_spin_unlock
.Lunlisted:
    mov rdi, rbx
    cmp qword ptr [rbx+DENTRY_INODE], 0
    je .Lnegative
    call dentry_unlink_inode
    jmp .Lrelease
.Lnegative:
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_unlock
.Lrelease:
    mov rax, [rbx+DENTRY_OP]
    test rax, rax
    je .Lfree
    mov rax, [rax+DOP_RELEASE]
    test rax, rax
    je .Lfree
    mov rdi, rbx
    call rax
.Lfree:
    mov rdi, rbx
    call dentry_free
    LEAVE3
ENDFUNC __dentry_kill

FUNC dentry_unlink_inode                # rdi dentry, locked; unlocks it and lets its inode go
    ENTER2
    mov rbx, rdi
    mov r12, [rdi+DENTRY_INODE]
    mov qword ptr [rdi+DENTRY_INODE], 0
    and dword ptr [rdi+DENTRY_FLAGS], ~DCACHE_ENTRY_TYPE
    lea rdi, [rdi+DENTRY_LOCK]
    call _raw_spin_unlock
    mov rdi, r12
    call iput
    LEAVE2
ENDFUNC dentry_unlink_inode

FUNC dentry_free                        # rdi dentry
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rdi+DENTRY_NAME+QSTR_NAME]
    lea rax, [rbx+DENTRY_INAME]
    cmp rdi, rax
    je .Linline
    call kfree
.Linline:
    mov rdi, rbx
    call __d_free
    LEAVE1
ENDFUNC dentry_free

FUNC __d_free                           # rdi dentry
    PROLOGUE
    dec qword ptr [rip + nr_dentry]
    mov rsi, rdi
    mov rdi, [rip + dentry_cache]
    call kmem_cache_free
    EPILOGUE
ENDFUNC __d_free

FUNC d_lru_add                          # rdi dentry, locked
    ENTER2
    mov rbx, rdi
    or dword ptr [rdi+DENTRY_FLAGS], DCACHE_LRU_LIST
    mov r12, [rdi+DENTRY_SB]
    lea rdi, [r12+SB_LRU_LOCK]
    call _raw_spin_lock
    lea rsi, [rbx+DENTRY_LRU]
    lea rdi, [r12+SB_LRU]
    LIST_ADD_TAIL rsi, rdi, rax
    inc dword ptr [r12+SB_NR_UNUSED]
    lea rdi, [r12+SB_LRU_LOCK]
    call _raw_spin_unlock
    LEAVE2
ENDFUNC d_lru_add

FUNC d_lru_del                          # rdi dentry, locked
    ENTER2
    mov rbx, rdi
    and dword ptr [rdi+DENTRY_FLAGS], ~(DCACHE_LRU_LIST | DCACHE_REFERENCED)
    mov r12, [rdi+DENTRY_SB]
    lea rdi, [r12+SB_LRU_LOCK]
    call _raw_spin_lock
    lea rsi, [rbx+DENTRY_LRU]
    LIST_DEL rsi, rax, rcx
    LIST_INIT rsi
    dec dword ptr [r12+SB_NR_UNUSED]
    lea rdi, [r12+SB_LRU_LOCK]
    call _raw_spin_unlock
    LEAVE2
ENDFUNC d_lru_del

# Free the dentries that were unused for longest: rdi super block, esi how many to look at.
FUNC prune_dcache_sb
    ENTER4
    sub rsp, 16
    mov rbx, rdi
    mov r12d, esi
    lea r13, [rbp-48]
    LIST_INIT r13
    lea rdi, [rbx+SB_LRU_LOCK]
    call _raw_spin_lock
.Lnext:
    test r12d, r12d
    je .Lisolated
    dec r12d
    mov rsi, [rbx+SB_LRU]
    lea rdi, [rbx+SB_LRU]
    cmp rsi, rdi
    je .Lisolated
    LIST_DEL rsi, rax, rcx
    btr dword ptr [rsi-DENTRY_LRU+DENTRY_FLAGS], 6      # used since: another round
    jb .Lrotate
    cmp dword ptr [rsi-DENTRY_LRU+DENTRY_COUNT], 0
    jne .Lbusy
    LIST_ADD_TAIL rsi, r13, rax
    jmp .Lnext
.Lrotate:
    LIST_ADD_TAIL rsi, rdi, rax
    jmp .Lnext
.Lbusy:                                 # in use again: no longer unused
    LIST_INIT rsi
    and dword ptr [rsi-DENTRY_LRU+DENTRY_FLAGS], ~DCACHE_LRU_LIST
    dec dword ptr [rbx+SB_NR_UNUSED]
    jmp .Lnext
.Lisolated:
    lea rdi, [rbx+SB_LRU_LOCK]
    call _raw_spin_unlock
    mov rdi, r13
    call shrink_dentry_list
    LEAVE4
ENDFUNC prune_dcache_sb

FUNC shrink_dentry_list                 # rdi list of unused dentries
    ENTER3
    push 0
    mov rbx, rdi
.Lnext:
    mov r12, [rbx]
    cmp r12, rbx
    je .Lout
    sub r12, DENTRY_LRU
    mov r13, [r12+DENTRY_PARENT]
    lea rdi, [r12+DENTRY_LOCK]
    call _raw_spin_lock
    mov rdi, r12
    cmp dword ptr [r12+DENTRY_COUNT], 0
    jne .Lbusy
    call __dentry_kill                  # takes it off the list
    cmp r13, r12
    je .Lnext
    mov rdi, r13
    call dput
    jmp .Lnext
.Lbusy:                                 # found by somebody while we slept
    call d_lru_del
    lea rdi, [r12+DENTRY_LOCK]
    call _raw_spin_unlock
    jmp .Lnext
.Lout:
    LEAVE3
ENDFUNC shrink_dentry_list

FUNC dget_parent                        # rdi dentry; rax its parent with a reference
    PROLOGUE
    mov rax, [rdi+DENTRY_PARENT]
    DGET rax
    EPILOGUE
ENDFUNC dget_parent

FUNC d_delete                           # rdi dentry whose file was removed
    ENTER1
    push 0
    mov rbx, rdi
    lea rdi, [rdi+DENTRY_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    cmp dword ptr [rbx+DENTRY_COUNT], 1
    jne .Lbusy
    call dentry_unlink_inode            # nobody else: it becomes a negative dentry
    LEAVE1
.Lbusy:
    call __d_drop
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_unlock
    LEAVE1
ENDFUNC d_delete

FUNC always_delete_dentry               # rdi dentry; eax: not worth keeping
    PROLOGUE
    mov eax, 1
    EPILOGUE
ENDFUNC always_delete_dentry

# rdi dentry takes the place of rsi: its name and its parent. The rename lock is held.
FUNC d_move
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rdi, offset rename_lock
    call _raw_spin_lock
    mov rdi, rbx
    mov rsi, r12
    xor edx, edx
    call __d_move
    mov rdi, offset rename_lock
    call _raw_spin_unlock
    LEAVE2
ENDFUNC d_move

# The two swap names and places, so that whatever rsi's name held is freed with it.
FUNC __d_move                           # rdi dentry, rsi target, edx exchange
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    call __d_drop
    mov rdi, r12
    call __d_drop
    lea rsi, [rbx+DENTRY_CHILD]
    LIST_DEL rsi, rax, rcx
    lea rsi, [r12+DENTRY_CHILD]
    LIST_DEL rsi, rax, rcx
    mov rax, [rbx+DENTRY_PARENT]
    xchg rax, [r12+DENTRY_PARENT]
    mov [rbx+DENTRY_PARENT], rax
    lea rdi, [rax+DENTRY_SUBDIRS]
    lea rsi, [rbx+DENTRY_CHILD]
    LIST_ADD rsi, rdi, rcx
    mov rdi, [r12+DENTRY_PARENT]
    add rdi, DENTRY_SUBDIRS
    lea rsi, [r12+DENTRY_CHILD]
    LIST_ADD rsi, rdi, rcx
    mov rax, [rbx+DENTRY_NAME+QSTR_HASH]
    xchg rax, [r12+DENTRY_NAME+QSTR_HASH]
    mov [rbx+DENTRY_NAME+QSTR_HASH], rax
    mov r13, [rbx+DENTRY_NAME+QSTR_NAME]
    mov r14, [r12+DENTRY_NAME+QSTR_NAME]
    xor ecx, ecx
.Lswap:                                 # the inline names, whether used or not
    mov rax, [rbx+rcx+DENTRY_INAME]
    xchg rax, [r12+rcx+DENTRY_INAME]
    mov [rbx+rcx+DENTRY_INAME], rax
    add ecx, 8
    cmp ecx, DNAME_INLINE_LEN
    jb .Lswap
    lea rax, [rbx+DENTRY_INAME]
    lea rcx, [r12+DENTRY_INAME]
    cmp r14, rcx
    cmove r14, rax
    cmp r13, rax
    cmove r13, rcx
    mov [rbx+DENTRY_NAME+QSTR_NAME], r14
    mov [r12+DENTRY_NAME+QSTR_NAME], r13
    mov rdi, rbx
    call __d_rehash
    LEAVE4
ENDFUNC __d_move

# The path of a dentry, written backwards: rdi path, rsi root path, rdx end of the buffer, ecx room;
# rax where it begins, or -ENAMETOOLONG. Mount points are crossed.
FUNC prepend_path
    ENTER5
    push 0
    mov rbx, [rdi+PATH_DENTRY]
    mov r12, [rdi+PATH_MNT]
    mov r13, rsi
    mov r14, rdx
    mov r15d, ecx
    dec r14
    dec r15d
    mov byte ptr [r14], 0
    mov [rbp-48], r14
.Lnext:
    cmp rbx, [r13+PATH_DENTRY]
    jne .Lbelow
    cmp r12, [r13+PATH_MNT]
    je .Ldone
.Lbelow:
    cmp rbx, [r12+MNT_ROOT]
    jne .Lname
    mov rax, [r12+MNT_PARENT]
    cmp rax, r12
    je .Ldone
    mov rbx, [r12+MNT_MOUNTPOINT]
    mov r12, rax
    jmp .Lnext
.Lname:
    mov edx, [rbx+DENTRY_NAME+QSTR_LEN]
    lea eax, [rdx+1]
    sub r15d, eax
    jl .Ltoolong
    sub r14, rax
    mov byte ptr [r14], 0x2f
    lea rdi, [r14+1]
    mov rsi, [rbx+DENTRY_NAME+QSTR_NAME]
    call memcpy
    mov rax, [rbx+DENTRY_PARENT]
    cmp rax, rbx
    je .Ldone                           # belongs to no tree
    mov rbx, rax
    jmp .Lnext
.Ldone:
    cmp r14, [rbp-48]
    jne .Lout
    dec r14
    mov byte ptr [r14], 0x2f
.Lout:
    mov rax, r14
    LEAVE5
.Ltoolong:
    mov rax, -ENAMETOOLONG
    LEAVE5
ENDFUNC prepend_path

FUNC d_path                             # rdi path, rsi buffer, edx its size; rax the text in it, or error
    PROLOGUE
    mov ecx, edx
    lea rdx, [rsi+rcx]
    mov rsi, gs:[CURRENT_TASK]
    mov rsi, [rsi+TASK_FS]
    add rsi, FS_ROOT
    call prepend_path
    EPILOGUE
ENDFUNC d_path

.data
.balign 8
OBJECT simple_dentry_operations
    .quad 0
    .quad always_delete_dentry
    .quad 0
ENDOBJECT simple_dentry_operations
OBJECT rename_lock
    .long 0
ENDOBJECT rename_lock
