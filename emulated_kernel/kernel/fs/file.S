# fs/file.c: descriptors. A files_struct begins with a table of 64 of its own and moves to larger ones.

.text

FUNC alloc_fdtable                      # edi descriptors it must hold; rax fdtable or 0
    ENTER3
    push 0
    mov ebx, 128
.Lsize:
    cmp ebx, edi
    jae .Lalloc
    add ebx, ebx
    jmp .Lsize
.Lalloc:
    KMALLOC KMALLOC_32, FDT_BYTES, GFP_KERNEL
    mov r12, rax
    test rax, rax
    je .Lout
    mov [rax+FDT_MAX_FDS], ebx
    mov edi, ebx
    shl edi, 3
    mov esi, GFP_KERNEL | GFP_ZERO
    mov edx, -1
    call kvmalloc_node
    mov [r12+FDT_FD], rax
    test rax, rax
    je .Lnofd
    mov edi, ebx
    shr edi, 2                          # two bitmaps
    mov esi, GFP_KERNEL | GFP_ZERO
    mov edx, -1
    call kvmalloc_node
    test rax, rax
    je .Lnobits
    mov [r12+FDT_OPEN], rax
    mov ecx, ebx
    shr ecx, 3
    add rax, rcx
    mov [r12+FDT_CLOEXEC], rax
    mov rax, r12
    jmp .Lout
.Lnobits:
    mov rdi, [r12+FDT_FD]
    call kvfree
.Lnofd:
    mov rdi, r12
    call kfree
    xor eax, eax
.Lout:
    LEAVE3
ENDFUNC alloc_fdtable

FUNC free_fdtable_rcu                   # rdi fdtable from alloc_fdtable
    ENTER1
    push 0
    mov rbx, rdi
    mov rdi, [rdi+FDT_FD]
    call kvfree
    mov rdi, [rbx+FDT_OPEN]
    call kvfree
    mov rdi, rbx
    call kfree
    LEAVE1
ENDFUNC free_fdtable_rcu

# Copy the first ecx descriptors of fdtable rsi to rdi; the rest is clear already.
FUNC_NOTRACE copy_fdtable
    mov rdx, rdi
    mov r8, rsi
    mov r9d, ecx
    mov rdi, [rdx+FDT_FD]
    mov rsi, [r8+FDT_FD]
    rep movsq
    mov ecx, r9d
    shr ecx, 6
    mov rdi, [rdx+FDT_OPEN]
    mov rsi, [r8+FDT_OPEN]
    rep movsq
    mov ecx, r9d
    shr ecx, 6
    mov rdi, [rdx+FDT_CLOEXEC]
    mov rsi, [r8+FDT_CLOEXEC]
    rep movsq
    ret
ENDFUNC copy_fdtable

# rdi files (locked), esi descriptor there must be room for; eax 0, 1 (the lock was dropped) or error
FUNC expand_files
    ENTER4
    mov rbx, rdi
    mov r12d, esi
    xor r13d, r13d
.Lagain:
    mov rcx, [rbx+FILES_FDT]
    cmp r12d, [rcx+FDT_MAX_FDS]
    jb .Lroom
    mov eax, -EMFILE
    cmp r12d, NR_OPEN_MAX
    jae .Lout
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    lea edi, [r12+1]
    call alloc_fdtable
    mov r14, rax
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_lock
    mov r13d, 1
    mov eax, -ENOMEM
    test r14, r14
    je .Lout
    mov rsi, [rbx+FILES_FDT]
    mov ecx, [rsi+FDT_MAX_FDS]
    cmp r12d, ecx
    jb .Llost                           # somebody else was first
    mov rdi, r14
    call copy_fdtable
    xchg r14, [rbx+FILES_FDT]
    lea rax, [rbx+FILES_FDTAB]
    cmp r14, rax
    je .Lroom
.Llost:
    mov rdi, r14
    call free_fdtable_rcu
.Lroom:
    mov eax, r13d
.Lout:
    LEAVE4
ENDFUNC expand_files

FUNC alloc_fd                           # edi lowest, esi limit, edx O_CLOEXEC or not; eax fd or error
    ENTER5
    push 0
    mov r12d, edi
    mov r13d, esi
    mov r14d, edx
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_FILES]
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_lock
.Lrepeat:
    mov r15d, r12d
    cmp r15d, [rbx+FILES_NEXT_FD]
    cmovb r15d, [rbx+FILES_NEXT_FD]
    mov rax, [rbx+FILES_FDT]
    mov rdi, [rax+FDT_OPEN]
    mov esi, [rax+FDT_MAX_FDS]
    cmp r15d, esi
    jae .Lroom
    mov edx, r15d
    call _find_next_zero_bit
    mov r15d, eax
.Lroom:
    mov eax, -EMFILE
    cmp r15d, r13d
    jae .Lout
    mov rdi, rbx
    mov esi, r15d
    call expand_files
    test eax, eax
    js .Lout
    jne .Lrepeat
    cmp r12d, [rbx+FILES_NEXT_FD]
    ja .Ltake
    lea eax, [r15+1]
    mov [rbx+FILES_NEXT_FD], eax
.Ltake:
    mov rax, [rbx+FILES_FDT]
    mov rcx, [rax+FDT_OPEN]
    bts qword ptr [rcx], r15
    mov rcx, [rax+FDT_CLOEXEC]
    btr qword ptr [rcx], r15
    test r14d, O_CLOEXEC
    je .Lopen
    bts qword ptr [rcx], r15
.Lopen:
    mov eax, r15d
.Lout:
    mov r15d, eax
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    mov eax, r15d
    LEAVE5
ENDFUNC alloc_fd

FUNC get_unused_fd_flags                # edi flags; eax fd or error
    PROLOGUE
    mov edx, edi
    xor edi, edi
    mov esi, NR_OPEN_MAX
    call alloc_fd
    EPILOGUE
ENDFUNC get_unused_fd_flags

# rdi files (locked), esi fd: free for others.
FUNC_NOTRACE __put_unused_fd
    mov rax, [rdi+FILES_FDT]
    mov rcx, [rax+FDT_OPEN]
    mov esi, esi
    btr qword ptr [rcx], rsi
    cmp esi, [rdi+FILES_NEXT_FD]
    jae .Lout
    mov [rdi+FILES_NEXT_FD], esi
.Lout:
    ret
ENDFUNC __put_unused_fd

FUNC put_unused_fd                      # edi fd that got no file
    ENTER2
    mov r12d, edi
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_FILES]
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    mov esi, r12d
    call __put_unused_fd
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    LEAVE2
ENDFUNC put_unused_fd

FUNC fd_install                         # edi fd, rsi file, whose reference it takes
    ENTER2
    mov ebx, edi
    mov r12, rsi
    call __rcu_read_lock
    mov rax, gs:[CURRENT_TASK]
    mov rax, [rax+TASK_FILES]
    mov rax, [rax+FILES_FDT]
    mov rax, [rax+FDT_FD]
    mov [rax+rbx*8], r12
    call __rcu_read_unlock
    LEAVE2
ENDFUNC fd_install

# --- from a descriptor to its file ----------------------------------------------------------------

FUNC fget                               # edi fd; rax file with a reference, or 0
    ENTER1
    push 0
    mov ebx, edi
    call __rcu_read_lock
    mov rdi, gs:[CURRENT_TASK]
    mov rdi, [rdi+TASK_FILES]
    xor eax, eax
    mov rcx, [rdi+FILES_FDT]
    cmp ebx, [rcx+FDT_MAX_FDS]
    jae .Lnone
    mov rcx, [rcx+FDT_FD]
    mov rax, [rcx+rbx*8]
    test rax, rax
    je .Lnone
    lock inc qword ptr [rax+FILE_COUNT]
.Lnone:
    mov rbx, rax
    call __rcu_read_unlock
    mov rax, rbx
    LEAVE1
ENDFUNC fget

# edi fd; rax file, | 1 when it has to be put, or 0. A task that shares its table with nobody takes no
# reference.
FUNC __fget_light
    PROLOGUE
    mov rax, gs:[CURRENT_TASK]
    mov rdx, [rax+TASK_FILES]
    cmp dword ptr [rdx+FILES_COUNT], 1
    jne .Lshared
    xor eax, eax
    mov rcx, [rdx+FILES_FDT]
    mov edi, edi
    cmp edi, [rcx+FDT_MAX_FDS]
    jae .Lout
    mov rcx, [rcx+FDT_FD]
    mov rax, [rcx+rdi*8]
.Lout:
    EPILOGUE
.Lshared:
    call fget
    test rax, rax
    je .Lout
    or rax, 1
    EPILOGUE
ENDFUNC __fget_light

FUNC __fdget                            # edi fd; rax as __fget_light
    PROLOGUE
    call __fget_light
    EPILOGUE
ENDFUNC __fdget

FUNC __fdget_pos                        # edi fd; rax as __fget_light, | 2 when its position is locked
    ENTER1
    push 0
    call __fdget
    mov rbx, rax
    mov rdi, rax
    and rdi, -4
    je .Lout
    test dword ptr [rdi+FILE_MODE], FMODE_ATOMIC_POS
    je .Lout
    cmp qword ptr [rdi+FILE_COUNT], 1
    jbe .Lout
    or rbx, 2
    add rdi, FILE_POS_LOCK
    call mutex_lock
.Lout:
    mov rax, rbx
    LEAVE1
ENDFUNC __fdget_pos

FUNC __f_unlock_pos                     # rdi file
    PROLOGUE
    add rdi, FILE_POS_LOCK
    call mutex_unlock
    EPILOGUE
ENDFUNC __f_unlock_pos

# --- closing --------------------------------------------------------------------------------------

FUNC pick_file                          # rdi files (locked), esi fd; rax its file, no longer there, or 0
    PROLOGUE
    mov esi, esi
    xor eax, eax
    mov rcx, [rdi+FILES_FDT]
    cmp esi, [rcx+FDT_MAX_FDS]
    jae .Lout
    mov rdx, [rcx+FDT_FD]
    xchg rax, [rdx+rsi*8]
    test rax, rax
    je .Lout
    mov rdx, [rcx+FDT_CLOEXEC]
    btr qword ptr [rdx], rsi
    mov rdx, rax
    call __put_unused_fd
    mov rax, rdx
.Lout:
    EPILOGUE
ENDFUNC pick_file

FUNC close_fd                           # edi fd; eax 0 or error
    ENTER2
    mov r12d, edi
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_FILES]
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_lock
    mov rdi, rbx
    mov esi, r12d
    call pick_file
    mov r12, rax
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    mov eax, -EBADF
    test r12, r12
    je .Lout
    mov rdi, r12
    mov rsi, rbx
    call filp_close
.Lout:
    LEAVE2
ENDFUNC close_fd

FUNC __x64_sys_close                    # rdi pt_regs: (fd)
    PROLOGUE
    mov edi, [rdi+PT_RDI]
    call close_fd
    movsxd rax, eax
    EPILOGUE
ENDFUNC __x64_sys_close

FUNC put_files_struct                   # rdi files: close all when nobody else has it
    ENTER4
    mov rbx, rdi
    lock dec dword ptr [rdi+FILES_COUNT]
    jne .Lout
    mov r12, [rbx+FILES_FDT]
    xor r13d, r13d
.Lword:
    mov eax, r13d
    shr eax, 6
    mov rcx, [r12+FDT_OPEN]
    mov r14, [rcx+rax*8]
.Lbit:
    bsf rax, r14
    je .Lnext
    lea rcx, [r14-1]
    and r14, rcx
    add rax, r13
    mov rcx, [r12+FDT_FD]
    xor edi, edi
    xchg rdi, [rcx+rax*8]
    test rdi, rdi
    je .Lbit
    mov rsi, rbx
    call filp_close
    call __cond_resched
    jmp .Lbit
.Lnext:
    add r13d, 64
    cmp r13d, [r12+FDT_MAX_FDS]
    jb .Lword
    lea rax, [rbx+FILES_FDTAB]
    cmp r12, rax
    je .Lfree
    mov rdi, r12
    call free_fdtable_rcu
.Lfree:
    mov rdi, [rip + files_cachep]
    mov rsi, rbx
    call kmem_cache_free
.Lout:
    LEAVE4
ENDFUNC put_files_struct

# rdi zeroed files_struct: its own table.
FUNC_NOTRACE files_struct_init
    mov dword ptr [rdi+FILES_COUNT], 1
    lea rax, [rdi+FILES_FDTAB]
    mov [rdi+FILES_FDT], rax
    mov dword ptr [rax+FDT_MAX_FDS], NR_OPEN_DEFAULT
    lea rcx, [rdi+FILES_FD_ARRAY]
    mov [rax+FDT_FD], rcx
    lea rcx, [rdi+FILES_OPEN_INIT]
    mov [rax+FDT_OPEN], rcx
    lea rcx, [rdi+FILES_CLOEXEC_INIT]
    mov [rax+FDT_CLOEXEC], rcx
    ret
ENDFUNC files_struct_init

FUNC dup_fd                             # rdi files; rax a copy that shares the files, or 0
    ENTER4
    mov rbx, rdi
    mov rdi, [rip + files_cachep]
    mov esi, GFP_KERNEL | GFP_ZERO
    call kmem_cache_alloc
    mov r12, rax
    test rax, rax
    je .Lout
    mov rdi, rax
    call files_struct_init
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_lock
.Lsize:
    mov rsi, [rbx+FILES_FDT]
    mov r13d, [rsi+FDT_MAX_FDS]
    mov rdi, [r12+FILES_FDT]
    cmp r13d, [rdi+FDT_MAX_FDS]
    jbe .Lcopy
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    mov edi, r13d
    call alloc_fdtable
    test rax, rax
    je .Lnomem
    mov rdi, rax
    xchg rdi, [r12+FILES_FDT]
    lea rax, [r12+FILES_FDTAB]
    cmp rdi, rax
    je .Lrelock
    call free_fdtable_rcu
.Lrelock:
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_lock
    jmp .Lsize
.Lcopy:
    mov ecx, r13d
    call copy_fdtable
    mov rdi, [r12+FILES_FDT]
    mov rsi, [rdi+FDT_FD]
    xor ecx, ecx
.Lref:
    mov rax, [rsi+rcx*8]
    test rax, rax
    je .Lreserved
    lock inc qword ptr [rax+FILE_COUNT]
    jmp .Lnext
.Lreserved:                             # a descriptor being opened is not for the copy
    mov rax, [rdi+FDT_OPEN]
    btr qword ptr [rax], rcx
.Lnext:
    inc ecx
    cmp ecx, r13d
    jb .Lref
    lea rdi, [rbx+FILES_LOCK]
    call _raw_spin_unlock
    mov rax, r12
    jmp .Lout
.Lnomem:
    mov rdi, [r12+FILES_FDT]
    lea rax, [r12+FILES_FDTAB]
    cmp rdi, rax
    je .Lfree
    call free_fdtable_rcu
.Lfree:
    mov rdi, [rip + files_cachep]
    mov rsi, r12
    call kmem_cache_free
    xor eax, eax
.Lout:
    LEAVE4
ENDFUNC dup_fd
