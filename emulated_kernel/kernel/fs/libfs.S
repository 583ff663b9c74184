# fs/libfs.c: what file systems in memory have in common.

.text

FUNC simple_lookup                      # rdi directory, rsi dentry, edx flags; rax 0 or error
    ENTER1
    push 0
    mov rax, -ENAMETOOLONG
    cmp dword ptr [rsi+DENTRY_NAME+QSTR_LEN], NAME_MAX
    ja .Lout
    mov rbx, rsi
    cmp qword ptr [rsi+DENTRY_OP], 0
    jne .Ladd
    mov rdi, rsi
    mov rsi, offset simple_dentry_operations
    call d_set_d_op
.Ladd:
    mov rdi, rbx
    xor esi, esi
    call d_add
    xor eax, eax
.Lout:
    LEAVE1
ENDFUNC simple_lookup

FUNC simple_empty                       # rdi directory dentry; eax whether nothing is in it
    ENTER2
    mov rbx, rdi
    xor r12d, r12d
    lea rdi, [rdi+DENTRY_LOCK]
    call _raw_spin_lock
    lea rcx, [rbx+DENTRY_SUBDIRS]
    mov rax, [rcx]
.Lnext:
    cmp rax, rcx
    je .Lempty
    cmp qword ptr [rax-DENTRY_CHILD+DENTRY_HASH_PPREV], 0
    je .Lgone                           # removed, but still open
    cmp qword ptr [rax-DENTRY_CHILD+DENTRY_INODE], 0
    jne .Lunlock
.Lgone:
    mov rax, [rax]
    jmp .Lnext
.Lempty:
    mov r12d, 1
.Lunlock:
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_unlock
    mov eax, r12d
    LEAVE2
ENDFUNC simple_empty

FUNC simple_unlink                      # rdi directory, rsi dentry; eax 0
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call current_time
    mov [rbx+INODE_MTIME], rax
    mov [rbx+INODE_MTIME+8], rdx
    mov [rbx+INODE_CTIME], rax
    mov [rbx+INODE_CTIME+8], rdx
    mov rdi, [r12+DENTRY_INODE]
    mov [rdi+INODE_CTIME], rax
    mov [rdi+INODE_CTIME+8], rdx
    call drop_nlink
    mov rdi, r12                        # the reference that kept it while it had a file
    call dput
    xor eax, eax
    LEAVE2
ENDFUNC simple_unlink

FUNC simple_rmdir                       # rdi directory, rsi dentry; eax 0 or error
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    mov rdi, rsi
    call simple_empty
    test eax, eax
    mov eax, -ENOTEMPTY
    je .Lout
    mov rdi, [r12+DENTRY_INODE]
    call drop_nlink
    mov rdi, rbx
    mov rsi, r12
    call simple_unlink
    mov rdi, rbx
    call drop_nlink
    xor eax, eax
.Lout:
    LEAVE2
ENDFUNC simple_rmdir

# rdi ns, rsi old directory, rdx old dentry, rcx new directory, r8 new dentry, r9d flags; eax
FUNC simple_rename
    ENTER5
    push 0
    mov rbx, rsi
    mov r12, rdx
    mov r13, rcx
    mov r14, r8
    mov eax, [r12+DENTRY_FLAGS]
    and eax, DCACHE_ENTRY_TYPE
    xor r15d, r15d
    cmp eax, DCACHE_DIRECTORY_TYPE
    sete r15b
    mov rdi, r8
    call simple_empty
    test eax, eax
    mov eax, -ENOTEMPTY
    je .Lout
    cmp qword ptr [r14+DENTRY_INODE], 0
    je .Lfree
    mov rdi, r13
    mov rsi, r14
    call simple_unlink
    test r15d, r15d
    je .Ltimes
    mov rdi, [r14+DENTRY_INODE]
    call drop_nlink
    mov rdi, rbx
    call drop_nlink
    jmp .Ltimes
.Lfree:
    test r15d, r15d
    je .Ltimes
    mov rdi, rbx
    call drop_nlink
    mov rdi, r13
    call inc_nlink
.Ltimes:
    mov rdi, rbx
    call current_time
    mov [rbx+INODE_MTIME], rax
    mov [rbx+INODE_MTIME+8], rdx
    mov [r13+INODE_MTIME], rax
    mov [r13+INODE_MTIME+8], rdx
    mov rcx, [r12+DENTRY_INODE]
    mov [rcx+INODE_CTIME], rax
    mov [rcx+INODE_CTIME+8], rdx
    xor eax, eax
.Lout:
    LEAVE5
ENDFUNC simple_rename

FUNC noop_fsync                         # rdi file, rsi start, rdx end, ecx only data; eax 0
    PROLOGUE
    xor eax, eax
    EPILOGUE
ENDFUNC noop_fsync

# --- pages ----------------------------------------------------------------------------------------

FUNC simple_read_folio                  # rdi file, rsi folio: what was never written is zero; eax 0
    ENTER1
    push 0
    mov rbx, rsi
    mov rdi, rsi
    PAGE_TO_VIRT rdi
    call clear_page_rep
    lock or dword ptr [rbx+PAGE_FLAGS], PG_UPTODATE
    mov rdi, rbx
    call folio_unlock
    xor eax, eax
    LEAVE1
ENDFUNC simple_read_folio

# rdi file, rsi mapping, rdx position, ecx length, r8 page **, r9 fsdata **; eax 0 or error
FUNC simple_write_begin
    ENTER4
    mov r12, rdx
    mov r13d, ecx
    mov r14, r8
    mov rdi, rsi
    mov rsi, rdx
    shr rsi, PAGE_SHIFT
    call grab_cache_page_write_begin
    test rax, rax
    je .Lnomem
    mov [r14], rax
    test dword ptr [rax+PAGE_FLAGS], PG_UPTODATE
    jne .Lout
    cmp r13d, PAGE_BYTES
    je .Lout
    PAGE_TO_VIRT rax                    # zero what will not be written
    and r12d, PAGE_BYTES - 1
    mov rdx, rax
    mov rdi, rax
    mov ecx, r12d
    xor eax, eax
    rep stosb
    lea ecx, [r12+r13]
    lea rdi, [rdx+rcx]
    neg ecx
    add ecx, PAGE_BYTES
    rep stosb
.Lout:
    xor eax, eax
    LEAVE4
.Lnomem:
    mov eax, -ENOMEM
    LEAVE4
ENDFUNC simple_write_begin

# rdi file, rsi mapping, rdx position, ecx length, r8d copied, r9 page, fsdata; eax bytes taken
FUNC simple_write_end
    ENTER4
    mov r12, [r9+PAGE_MAPPING]
    mov r12, [r12+MAPPING_HOST]
    mov r13d, r8d
    mov rbx, r9
    mov r14, rdx
    test dword ptr [r9+PAGE_FLAGS], PG_UPTODATE
    jne .Lsize
    sub ecx, r8d
    jbe .Luptodate
    mov rdi, r9                         # a copy that was cut short
    PAGE_TO_VIRT rdi
    and edx, PAGE_BYTES - 1
    add rdi, rdx
    mov eax, r8d
    add rdi, rax
    xor eax, eax
    rep stosb
.Luptodate:
    lock or dword ptr [rbx+PAGE_FLAGS], PG_UPTODATE
.Lsize:
    mov eax, r13d
    add r14, rax
    cmp r14, [r12+INODE_SIZE]
    jle .Ldirty
    mov [r12+INODE_SIZE], r14
.Ldirty:
    mov rdi, rbx
    call set_page_dirty
    mov rdi, rbx
    call unlock_page
    mov rdi, rbx
    call folio_put
    mov eax, r13d
    LEAVE4
ENDFUNC simple_write_end

# --- directories that live in the dentry tree -----------------------------------------------------

FUNC d_alloc_cursor                     # rdi directory dentry; rax cursor or 0 (fs/dcache.c)
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rdi+DENTRY_SB]
    xor esi, esi
    call __d_alloc
    test rax, rax
    je .Lout
    or dword ptr [rax+DENTRY_FLAGS], DCACHE_DENTRY_CURSOR
    mov [rax+DENTRY_PARENT], rbx
    DGET rbx
.Lout:
    LEAVE1
ENDFUNC d_alloc_cursor

FUNC dcache_dir_open                    # rdi inode, rsi file; eax 0 or error
    ENTER1
    push 0
    mov rbx, rsi
    mov rdi, [rsi+FILE_DENTRY]
    call d_alloc_cursor
    mov [rbx+FILE_PRIVATE], rax
    test rax, rax
    mov eax, 0
    jne .Lout
    mov eax, -ENOMEM
.Lout:
    LEAVE1
ENDFUNC dcache_dir_open

FUNC dcache_dir_close                   # rdi inode, rsi file; eax 0
    PROLOGUE
    mov rdi, [rsi+FILE_PRIVATE]
    call dput
    xor eax, eax
    EPILOGUE
ENDFUNC dcache_dir_close

FUNC generic_read_dir                   # rdi file, rsi user, rdx count, rcx pos *
    PROLOGUE
    mov rax, -EISDIR
    EPILOGUE
ENDFUNC generic_read_dir

# The next child behind list entry rdx that has a file, rcx of them on: rdi directory, rsi cursor; rax
# dentry with a reference or 0.
FUNC scan_positives
    ENTER4
    mov rbx, rdi
    mov r12, rdx
    mov r13, rcx
    lea rdi, [rdi+DENTRY_LOCK]
    call _raw_spin_lock
    xor r14d, r14d
    lea rcx, [rbx+DENTRY_SUBDIRS]
.Lnext:
    mov r12, [r12]
    cmp r12, rcx
    je .Lunlock
    cmp qword ptr [r12-DENTRY_CHILD+DENTRY_HASH_PPREV], 0
    je .Lnext                           # removed, but still open
    cmp qword ptr [r12-DENTRY_CHILD+DENTRY_INODE], 0
    je .Lnext
    dec r13
    jne .Lnext
    lea r14, [r12-DENTRY_CHILD]
    DGET r14
.Lunlock:
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_unlock
    mov rax, r14
    LEAVE4
ENDFUNC scan_positives

# Put cursor rsi before list entry rdx of directory rdi, or take it out (rdx 0).
FUNC_NOTRACE move_cursor
    ENTER3
    push 0
    mov rbx, rdi
    lea r12, [rsi+DENTRY_CHILD]
    mov r13, rdx
    lea rdi, [rdi+DENTRY_LOCK]
    call _raw_spin_lock
    LIST_DEL r12, rax, rcx
    LIST_INIT r12
    test r13, r13
    je .Lunlock
    LIST_ADD_TAIL r12, r13, rax
.Lunlock:
    lea rdi, [rbx+DENTRY_LOCK]
    call _raw_spin_unlock
    LEAVE3
ENDFUNC move_cursor

FUNC dcache_dir_lseek                   # rdi file, rsi offset, edx whence; rax position or error
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    cmp edx, SEEK_SET
    je .Lset
    cmp edx, SEEK_CUR
    mov rax, -EINVAL
    jne .Lout
    add r12, [rdi+FILE_POS]
.Lset:
    mov rax, -EINVAL
    test r12, r12
    js .Lout
    cmp r12, [rbx+FILE_POS]
    je .Ldone
    mov rdi, [rbx+FILE_INODE]
    add rdi, INODE_RWSEM
    call down_read
    xor r13d, r13d
    mov rcx, r12
    sub rcx, 2
    jbe .Lmove
    mov rdi, [rbx+FILE_DENTRY]
    mov rsi, [rbx+FILE_PRIVATE]
    lea rdx, [rdi+DENTRY_SUBDIRS]
    inc rcx
    call scan_positives
    mov r13, rax
.Lmove:
    mov rdi, [rbx+FILE_DENTRY]
    mov rsi, [rbx+FILE_PRIVATE]
    xor edx, edx
    test r13, r13
    je .Lcursor
    lea rdx, [r13+DENTRY_CHILD]
.Lcursor:
    call move_cursor
    mov rdi, r13
    call dput
    mov [rbx+FILE_POS], r12
    mov rdi, [rbx+FILE_INODE]
    add rdi, INODE_RWSEM
    call up_read
.Ldone:
    mov rax, r12
.Lout:
    LEAVE3
ENDFUNC dcache_dir_lseek

# Tell ctx of "." and "..": rdi file, rsi ctx; al whether to go on. Inlined in Linux.
FUNC_NOTRACE dir_emit_dots
    ENTER2
    mov rbx, [rdi+FILE_DENTRY]
    mov r12, rsi
    cmp qword ptr [r12+CTX_POS], 0
    jne .Ldotdot
    mov rdi, r12
    mov rsi, offset dotdot_name
    mov edx, 1
    xor ecx, ecx
    mov rax, [rbx+DENTRY_INODE]
    mov r8, [rax+INODE_INO]
    mov r9d, DT_DIR
    call [r12+CTX_ACTOR]
    test al, al
    je .Lout
    mov qword ptr [r12+CTX_POS], 1
.Ldotdot:
    cmp qword ptr [r12+CTX_POS], 1
    jne .Lgo
    mov rdi, r12
    mov rsi, offset dotdot_name
    mov edx, 2
    mov ecx, 1
    mov rax, [rbx+DENTRY_PARENT]
    mov rax, [rax+DENTRY_INODE]
    mov r8, [rax+INODE_INO]
    mov r9d, DT_DIR
    call [r12+CTX_ACTOR]
    test al, al
    je .Lout
    mov qword ptr [r12+CTX_POS], 2
.Lgo:
    mov eax, 1
.Lout:
    LEAVE2
ENDFUNC dir_emit_dots

FUNC fs_umode_to_dtype                  # edi mode; eax DT_*
    PROLOGUE
    mov eax, edi
    and eax, S_IFMT
    shr eax, 12
    EPILOGUE
ENDFUNC fs_umode_to_dtype

FUNC dcache_readdir                     # rdi file, rsi ctx; eax 0
    ENTER5
    push 0
    mov rbx, rdi
    mov r12, rsi
    call dir_emit_dots
    test al, al
    je .Lout
    mov r13, [rbx+FILE_DENTRY]
    lea rdx, [r13+DENTRY_SUBDIRS]
    cmp qword ptr [r12+CTX_POS], 2
    je .Lstart
    mov rax, [rbx+FILE_PRIVATE]
    lea rdx, [rax+DENTRY_CHILD]
    cmp [rdx], rdx                      # nothing was behind it
    je .Lout
.Lstart:
    xor r14d, r14d
.Lnext:
    mov rdi, r13
    mov rsi, [rbx+FILE_PRIVATE]
    mov ecx, 1
    call scan_positives
    mov r15, rax
    mov rdi, r14
    call dput
    mov r14, r15
    test r14, r14
    je .Ldone
    mov rdi, [r14+DENTRY_INODE]
    mov edi, [rdi+INODE_MODE]
    call fs_umode_to_dtype
    mov r9d, eax
    mov rdi, r12
    mov rsi, [r14+DENTRY_NAME+QSTR_NAME]
    mov edx, [r14+DENTRY_NAME+QSTR_LEN]
    mov rcx, [r12+CTX_POS]
    mov rax, [r14+DENTRY_INODE]
    mov r8, [rax+INODE_INO]
    call [r12+CTX_ACTOR]
    test al, al
    je .Ldone
    inc qword ptr [r12+CTX_POS]
    lea rdx, [r14+DENTRY_CHILD]
    jmp .Lnext
.Ldone:
    mov rdi, r13
    mov rsi, [rbx+FILE_PRIVATE]
    xor edx, edx
    test r14, r14
    je .Lcursor
    lea rdx, [r14+DENTRY_CHILD]
.Lcursor:
    call move_cursor
    mov rdi, r14
    call dput
.Lout:
    xor eax, eax
    LEAVE5
ENDFUNC dcache_readdir

.data
.balign 8
OBJECT simple_dir_operations
    .quad dcache_dir_lseek
    .quad generic_read_dir
    .zero FOPS_ITERATE - 16
    .quad dcache_readdir
    .zero FOPS_OPEN - FOPS_ITERATE - 8
    .quad dcache_dir_open
    .quad 0
    .quad dcache_dir_close
    .quad noop_fsync
ENDOBJECT simple_dir_operations
OBJECT simple_dir_inode_operations
    .quad simple_lookup
    .zero IOP_BYTES - 8
ENDOBJECT simple_dir_inode_operations
dotdot_name:
    .asciz ".."
