# fs/namei.c: names as they come from user space, and who may use the file behind one.

.text

FUNC_NOTRACE names_init
    PROLOGUE
    mov rdi, offset names_cache_name
    mov esi, PATH_MAX
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    call kmem_cache_create
    mov [rip + names_cachep], rax
    EPILOGUE
ENDFUNC names_init

FUNC getname                            # rdi user path; rax filename or error
    PROLOGUE
    xor esi, esi
    xor edx, edx
    call getname_flags
    EPILOGUE
ENDFUNC getname

FUNC getname_flags                      # rdi user path, esi LOOKUP_EMPTY or 0; rax filename or error
    ENTER3
    push 0
    mov r12, rdi
    mov r13d, esi
    mov rdi, [rip + names_cachep]
    mov esi, GFP_KERNEL
    call kmem_cache_alloc
    mov rbx, rax
    test rax, rax
    je .Lnomem
    lea rdi, [rax+FILENAME_INAME]
    mov [rax+FILENAME_NAME], rdi
    mov [rax+FILENAME_UPTR], r12
    mov qword ptr [rax+FILENAME_REFCNT], 1
    mov rsi, r12
    mov edx, EMBEDDED_NAME_MAX
    call strncpy_from_user
    test rax, rax
    js .Lerror
    mov rcx, rax
    mov rax, -ENAMETOOLONG
    cmp rcx, EMBEDDED_NAME_MAX
    jae .Lerror
    mov rax, -ENOENT
    test rcx, rcx
    jne .Lgood
    test r13d, LOOKUP_EMPTY
    je .Lerror
.Lgood:
    mov rax, rbx
    LEAVE3
.Lerror:
    mov r12, rax
    mov rdi, [rip + names_cachep]
    mov rsi, rbx
    call kmem_cache_free
    mov rax, r12
    LEAVE3
.Lnomem:
    mov rax, -ENOMEM
    LEAVE3
ENDFUNC getname_flags

FUNC getname_kernel                     # rdi path in kernel memory; rax filename or error
    ENTER2
    mov r12, rdi
    mov rdi, [rip + names_cachep]
    mov esi, GFP_KERNEL
    call kmem_cache_alloc
    mov rbx, rax
    test rax, rax
    je .Lnomem
    lea rdi, [rax+FILENAME_INAME]
    mov [rax+FILENAME_NAME], rdi
    mov qword ptr [rax+FILENAME_UPTR], 0
    mov qword ptr [rax+FILENAME_REFCNT], 1
    mov rsi, r12
    mov edx, EMBEDDED_NAME_MAX
    call strscpy
    test rax, rax
    js .Ltoolong
    mov rax, rbx
    LEAVE2
.Ltoolong:
    mov rdi, [rip + names_cachep]
    mov rsi, rbx
    call kmem_cache_free
    mov rax, -ENAMETOOLONG
    LEAVE2
.Lnomem:
    mov rax, -ENOMEM
    LEAVE2
ENDFUNC getname_kernel

FUNC putname                            # rdi filename
    PROLOGUE
    dec dword ptr [rdi+FILENAME_REFCNT]
    jne .Lout
    mov rsi, rdi
    mov rdi, [rip + names_cachep]
    call kmem_cache_free
.Lout:
    EPILOGUE
ENDFUNC putname

# --- permissions ----------------------------------------------------------------------------------

FUNC generic_permission                 # rdi ns, rsi inode, edx mask; eax 0 or -EACCES
    PROLOGUE
    and edx, MAY_READ | MAY_WRITE | MAY_EXEC
    mov ecx, [rsi+INODE_MODE]
    mov eax, ecx
    shr eax, 6                          # every task is root, and the owner of what it makes
    not eax
    and eax, edx
    je .Lout
    mov eax, ecx                        # CAP_DAC_OVERRIDE
    and eax, S_IFMT
    cmp eax, S_IFDIR
    je .Lallowed
    test edx, MAY_EXEC
    je .Lallowed
    test ecx, 0x49                      # 0111
    jne .Lallowed
    mov eax, -EACCES
    EPILOGUE
.Lallowed:
    xor eax, eax
.Lout:
    EPILOGUE
ENDFUNC generic_permission

FUNC inode_permission                   # rdi ns, rsi inode, edx mask; eax 0 or error
    ENTER2
    mov rbx, rsi
    mov r12d, edx
    mov rax, [rsi+INODE_OP]
    mov rax, [rax+IOP_PERMISSION]
    test rax, rax
    jne .Lown
    call generic_permission
    jmp .Lchecked
.Lown:
    call rax
.Lchecked:
    test eax, eax
    jne .Lout
    mov rdi, rbx
    mov esi, r12d
    call security_inode_permission
.Lout:
    LEAVE2
ENDFUNC inode_permission

.data
.balign 8
OBJECT names_cachep
    .quad 0
ENDOBJECT names_cachep
names_cache_name:
    .asciz "names_cache"
