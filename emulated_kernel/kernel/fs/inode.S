# fs/inode.c, fs-writeback.c (marking): inodes from birth to eviction, and their times.

.text

S_ATIME = 1
S_MTIME = 2
S_CTIME = 4
S_VERSION = 8
RELATIME_MAX = 24 * 60 * 60

FUNC_NOTRACE inode_init
    PROLOGUE
    mov rdi, offset inode_cache_name
    mov esi, INODE_BYTES
    xor edx, edx
    xor ecx, ecx
    mov r8, offset init_once
    call kmem_cache_create
    mov [rip + inode_cachep], rax
    EPILOGUE
ENDFUNC inode_init

FUNC_STATIC init_once                   # rdi a new object of inode_cachep
    PROLOGUE
    call inode_init_once
    EPILOGUE
ENDFUNC init_once

# What stays as it is while the object goes round: rdi inode.
FUNC inode_init_once
    PROLOGUE
    mov rdx, rdi
    mov ecx, INODE_BYTES / 8
    xor eax, eax
    rep stosq
    lea rdi, [rdx+INODE_SB_LIST]
    LIST_INIT rdi
    lea rdi, [rdx+INODE_RWSEM]
    call __init_rwsem
    EPILOGUE
ENDFUNC inode_init_once

FUNC inode_init_always                  # rdi super block, rsi inode; eax 0 or error
    PROLOGUE
    xor eax, eax
    mov [rsi+INODE_SB], rdi
    mov dword ptr [rsi+INODE_COUNT], 1
    mov dword ptr [rsi+INODE_NLINK], 1
    mov rcx, offset empty_iops
    mov [rsi+INODE_OP], rcx
    mov rcx, offset no_open_fops
    mov [rsi+INODE_FOP], rcx
    mov [rsi+INODE_MODE], eax
    mov [rsi+INODE_UID], eax
    mov [rsi+INODE_GID], eax
    mov [rsi+INODE_FLAGS], eax
    mov [rsi+INODE_INO], rax
    mov [rsi+INODE_RDEV], eax
    mov [rsi+INODE_SIZE], rax
    mov [rsi+INODE_BLOCKS], rax
    mov [rsi+INODE_STATE], rax
    mov [rsi+INODE_WRITECOUNT], eax
    mov [rsi+INODE_LINK], rax
    mov [rsi+INODE_PRIVATE], rax
    mov [rsi+INODE_SECURITY], rax
    mov [rsi+INODE_FS_DATA], rax
    mov dword ptr [rsi+INODE_BLKBITS], PAGE_SHIFT
    lea rcx, [rsi+INODE_DATA]
    mov [rsi+INODE_MAPPING], rcx
    mov [rcx+MAPPING_HOST], rsi
    mov [rcx+MAPPING_ROOT], rax
    mov [rcx+MAPPING_NRPAGES], rax
    mov rdx, offset empty_aops
    mov [rcx+MAPPING_OPS], rdx
    mov qword ptr [rcx+MAPPING_GFP], GFP_USER
    inc qword ptr [rip + nr_inodes]
    EPILOGUE
ENDFUNC inode_init_always

FUNC alloc_inode                        # rdi super block; rax inode or 0
    ENTER2
    mov rbx, rdi
    mov rdi, [rip + inode_cachep]
    xor esi, esi
    mov edx, GFP_KERNEL
    call kmem_cache_alloc_lru
    mov r12, rax
    test rax, rax
    je .Lout
    mov rdi, rbx
    mov rsi, rax
    call inode_init_always
    mov rax, r12
.Lout:
    LEAVE2
ENDFUNC alloc_inode

FUNC new_inode_pseudo                   # rdi super block; rax inode on no list, or 0
    PROLOGUE
    call alloc_inode
    EPILOGUE
ENDFUNC new_inode_pseudo

FUNC new_inode                          # rdi super block; rax inode or 0
    ENTER1
    push 0
    call new_inode_pseudo
    mov rbx, rax
    test rax, rax
    je .Lout
    mov rdi, rax
    call inode_sb_list_add
    mov rax, rbx
.Lout:
    LEAVE1
ENDFUNC new_inode

FUNC inode_sb_list_add                  # rdi inode
    ENTER2
    mov rbx, rdi
    mov r12, [rdi+INODE_SB]
    lea rdi, [r12+SB_INODE_LOCK]
    call _raw_spin_lock
    lea rsi, [rbx+INODE_SB_LIST]
    lea rdi, [r12+SB_INODES]
    LIST_ADD rsi, rdi, rax
    lea rdi, [r12+SB_INODE_LOCK]
    call _raw_spin_unlock
    LEAVE2
ENDFUNC inode_sb_list_add

FUNC get_next_ino                       # eax a number for an inode of a file system without its own
    PROLOGUE
    mov eax, 1
    lock xadd [rip + last_ino], eax
    inc eax
    EPILOGUE
ENDFUNC get_next_ino

FUNC inode_init_owner                   # rdi ns, rsi inode, rdx directory or 0, ecx mode
    PROLOGUE
    mov [rsi+INODE_MODE], ecx
    mov dword ptr [rsi+INODE_UID], 0
    mov dword ptr [rsi+INODE_GID], 0
    test rdx, rdx
    je .Lout
    test dword ptr [rdx+INODE_MODE], S_ISGID
    je .Lout
    mov eax, [rdx+INODE_GID]
    mov [rsi+INODE_GID], eax
    mov eax, ecx
    and eax, S_IFMT
    cmp eax, S_IFDIR
    jne .Lout
    or dword ptr [rsi+INODE_MODE], S_ISGID
.Lout:
    EPILOGUE
ENDFUNC inode_init_owner

S_ISGID = 0x400
S_ISUID = 0x800

FUNC init_special_inode                 # rdi inode, esi mode, edx device
    PROLOGUE
    mov [rdi+INODE_MODE], esi
    and esi, S_IFMT
    mov rax, offset pipefifo_fops
    cmp esi, S_IFIFO
    je .Lfops
    mov [rdi+INODE_RDEV], edx
    mov rax, offset def_chr_fops
.Lfops:
    mov [rdi+INODE_FOP], rax
    EPILOGUE
ENDFUNC init_special_inode

# --- references -----------------------------------------------------------------------------------

FUNC ihold                              # rdi inode
    PROLOGUE
    lock inc dword ptr [rdi+INODE_COUNT]
    EPILOGUE
ENDFUNC ihold

FUNC iput                               # rdi inode or 0
    ENTER1
    push 0
    test rdi, rdi
    je .Lout
    mov rbx, rdi
    lock dec dword ptr [rdi+INODE_COUNT]
    jne .Lout
    lea rdi, [rdi+INODE_LOCK]           # iput_final: file systems in memory keep no unused inode
    call _raw_spin_lock
    mov rdi, rbx
    call generic_delete_inode
    or qword ptr [rbx+INODE_STATE], I_FREEING
    lea rdi, [rbx+INODE_LOCK]
    call _raw_spin_unlock
    mov rdi, rbx
    call evict
.Lout:
    LEAVE1
ENDFUNC iput

FUNC generic_delete_inode               # rdi inode; eax: it goes with its last user
    PROLOGUE
    mov eax, 1
    EPILOGUE
ENDFUNC generic_delete_inode

FUNC evict                              # rdi inode nobody uses
    ENTER2
    mov rbx, rdi
    lea rax, [rdi+INODE_SB_LIST]
    cmp [rax], rax
    je .Lunlisted
    mov r12, [rdi+INODE_SB]
    lea rdi, [r12+SB_INODE_LOCK]
    call _raw_spin_lock
    lea rsi, [rbx+INODE_SB_LIST]
    LIST_DEL rsi, rax, rcx
    LIST_INIT rsi
    lea rdi, [r12+SB_INODE_LOCK]
    call _raw_spin_unlock
.Lunlisted:
    mov rax, [rbx+INODE_SB]
    mov rax, [rax+SB_OP]
    test rax, rax
    je .Lgeneric
    mov rax, [rax+SOP_EVICT_INODE]
    test rax, rax
    je .Lgeneric
    mov rdi, rbx
    call rax
    jmp .Ldestroy
.Lgeneric:
    lea rdi, [rbx+INODE_DATA]
    call truncate_inode_pages_final
    mov rdi, rbx
    call clear_inode
.Ldestroy:
    mov rdi, rbx
    call destroy_inode
    LEAVE2
ENDFUNC evict

FUNC clear_inode                        # rdi inode without pages
    PROLOGUE
    cmp qword ptr [rdi+INODE_DATA+MAPPING_NRPAGES], 0
    je .Lclean
    ud2
.Lclean:
    mov qword ptr [rdi+INODE_STATE], I_FREEING | I_CLEAR
    EPILOGUE
ENDFUNC clear_inode

FUNC destroy_inode                      # rdi inode
    PROLOGUE
    dec qword ptr [rip + nr_inodes]
    call i_callback
    EPILOGUE
ENDFUNC destroy_inode

FUNC i_callback                         # rdi inode
    ENTER1
    push 0
    mov rbx, rdi
    mov eax, [rdi+INODE_MODE]
    and eax, S_IFMT
    cmp eax, S_IFLNK
    jne .Lfree
    mov rdi, [rdi+INODE_LINK]
    call kfree
.Lfree:
    mov rdi, rbx
    call free_inode_nonrcu
    LEAVE1
ENDFUNC i_callback

FUNC free_inode_nonrcu                  # rdi inode
    PROLOGUE
    mov rsi, rdi
    mov rdi, [rip + inode_cachep]
    call kmem_cache_free
    EPILOGUE
ENDFUNC free_inode_nonrcu

FUNC inc_nlink                          # rdi inode
    PROLOGUE
    inc dword ptr [rdi+INODE_NLINK]
    EPILOGUE
ENDFUNC inc_nlink

FUNC drop_nlink                         # rdi inode
    PROLOGUE
    dec dword ptr [rdi+INODE_NLINK]
    EPILOGUE
ENDFUNC drop_nlink

FUNC clear_nlink                        # rdi inode
    PROLOGUE
    mov dword ptr [rdi+INODE_NLINK], 0
    EPILOGUE
ENDFUNC clear_nlink

FUNC set_nlink                          # rdi inode, esi count
    PROLOGUE
    mov [rdi+INODE_NLINK], esi
    EPILOGUE
ENDFUNC set_nlink

# --- times ----------------------------------------------------------------------------------------

FUNC current_time                       # rdi inode; rax seconds, rdx nanoseconds
    PROLOGUE
    sub rsp, 16
    mov rdi, rsp
    call ktime_get_coarse_real_ts64
    mov rax, [rsp]
    mov rdx, [rsp+8]
    leave
    ret
ENDFUNC current_time

# Has the access time to be written (relatime)? rdi path, rsi inode; al, with the time in rdx and rcx.
FUNC atime_needs_update
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rax, [rdi+PATH_MNT]
    test dword ptr [rax+MNT_FLAGS], MNT_NOATIME | MNT_READONLY
    jne .Lno
    mov rdi, rsi
    call current_time
    mov rcx, rdx
    mov rdx, rax
    mov rax, [r12+INODE_ATIME]
    cmp [r12+INODE_MTIME], rax
    jge .Lyes
    cmp [r12+INODE_CTIME], rax
    jge .Lyes
    mov rdi, rdx
    sub rdi, rax
    cmp rdi, RELATIME_MAX
    jge .Lyes
.Lno:
    xor eax, eax
    LEAVE2
.Lyes:
    cmp rdx, rax
    jne .Lchange
    cmp rcx, [r12+INODE_ATIME+8]        # the same instant: nothing to write
    je .Lno
.Lchange:
    mov eax, 1
    LEAVE2
ENDFUNC atime_needs_update

FUNC touch_atime                        # rdi path
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, [rdi+PATH_DENTRY]
    mov r12, [r12+DENTRY_INODE]
    mov rsi, r12
    call atime_needs_update
    test al, al
    je .Lout
    mov rdi, [rbx+PATH_MNT]
    call __mnt_want_write
    test eax, eax
    jne .Lout
    mov rdi, r12
    call current_time
    mov [r12+INODE_ATIME], rax
    mov [r12+INODE_ATIME+8], rdx
    mov rdi, r12
    mov esi, I_DIRTY_SYNC
    call __mark_inode_dirty
    mov rdi, [rbx+PATH_MNT]
    call __mnt_drop_write
.Lout:
    LEAVE3
ENDFUNC touch_atime

FUNC file_update_time                   # rdi file about to be written; eax 0 or error
    ENTER4
    sub rsp, 16
    mov rbx, rdi
    mov r12, [rdi+FILE_INODE]
    mov rdi, r12
    call current_time
    mov [rbp-48], rax
    mov [rbp-40], rdx
    xor r13d, r13d
    cmp [r12+INODE_MTIME], rax
    jne .Lmtime
    cmp [r12+INODE_MTIME+8], rdx
    je .Lctime
.Lmtime:
    or r13d, S_MTIME
.Lctime:
    cmp [r12+INODE_CTIME], rax
    jne .Lstale
    cmp [r12+INODE_CTIME+8], rdx
    je .Lcheck
.Lstale:
    or r13d, S_CTIME
.Lcheck:
    xor eax, eax
    test r13d, r13d
    je .Lout
    mov rdi, rbx
    call __mnt_want_write_file
    test eax, eax
    jne .Lout
    mov rdi, r12
    lea rsi, [rbp-48]
    mov edx, r13d
    call inode_update_time
    mov r13d, eax
    mov rdi, [rbx+FILE_MNT]
    call __mnt_drop_write
    mov eax, r13d
.Lout:
    LEAVE4
ENDFUNC file_update_time

FUNC inode_update_time                  # rdi inode, rsi time, edx which (S_*); eax 0 or error
    PROLOGUE
    mov rax, [rdi+INODE_OP]
    mov rax, [rax+IOP_UPDATE_TIME]
    test rax, rax
    jne .Lown
    call generic_update_time
    EPILOGUE
.Lown:
    call rax
    EPILOGUE
ENDFUNC inode_update_time

FUNC generic_update_time                # rdi inode, rsi time, edx which; eax 0
    PROLOGUE
    mov rax, [rsi]
    mov rcx, [rsi+8]
    test edx, S_ATIME
    je .Lmtime
    mov [rdi+INODE_ATIME], rax
    mov [rdi+INODE_ATIME+8], rcx
.Lmtime:
    test edx, S_MTIME
    je .Lctime
    mov [rdi+INODE_MTIME], rax
    mov [rdi+INODE_MTIME+8], rcx
.Lctime:
    test edx, S_CTIME
    je .Ldirty
    mov [rdi+INODE_CTIME], rax
    mov [rdi+INODE_CTIME+8], rcx
.Ldirty:
    mov esi, I_DIRTY_SYNC
    call __mark_inode_dirty
    xor eax, eax
    EPILOGUE
ENDFUNC generic_update_time

FUNC file_remove_privs                  # rdi file about to be written; eax 0 or error
    PROLOGUE
    mov rdi, [rdi+FILE_INODE]
    mov eax, [rdi+INODE_MODE]
    and eax, S_IFMT
    cmp eax, S_IFREG
    jne .Lout
    and dword ptr [rdi+INODE_MODE], ~S_ISUID
.Lout:
    xor eax, eax
    EPILOGUE
ENDFUNC file_remove_privs

FUNC file_modified                      # rdi file; eax 0 or error
    ENTER1
    push 0
    mov rbx, rdi
    call file_remove_privs
    test eax, eax
    jne .Lout
    mov rdi, rbx
    call file_update_time
.Lout:
    LEAVE1
ENDFUNC file_modified

FUNC __mark_inode_dirty                 # rdi inode, esi I_DIRTY_*
    PROLOGUE
    mov rax, [rdi+INODE_STATE]
    mov ecx, esi
    and rax, rcx
    cmp rax, rcx
    je .Lout                            # nothing new
    mov rax, [rdi+INODE_SB]
    mov rax, [rax+SB_OP]
    test rax, rax
    je .Lmark
    mov rax, [rax+SOP_DIRTY_INODE]
    test rax, rax
    je .Lmark
    push rdi
    push rsi
    call rax
    pop rsi
    pop rdi
.Lmark:
    mov esi, esi
    lock or [rdi+INODE_STATE], rsi
.Lout:
    EPILOGUE
ENDFUNC __mark_inode_dirty

.data
.balign 8
OBJECT inode_cachep
    .quad 0
ENDOBJECT inode_cachep
OBJECT nr_inodes
    .quad 0
ENDOBJECT nr_inodes
OBJECT empty_iops
    .zero IOP_BYTES
ENDOBJECT empty_iops
OBJECT empty_aops
    .zero 40
ENDOBJECT empty_aops
OBJECT no_open_fops
    .zero FOPS_OPEN
    .quad no_open
    .zero FOPS_BYTES - FOPS_OPEN - 8
ENDOBJECT no_open_fops
OBJECT last_ino
    .long 1
ENDOBJECT last_ino
inode_cache_name:
    .asciz "inode_cache"

.text

FUNC_STATIC no_open                     # rdi inode, rsi file
    PROLOGUE
    mov eax, -ENXIO
    EPILOGUE
ENDFUNC no_open
