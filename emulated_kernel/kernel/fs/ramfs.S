# fs/ramfs: files that are nothing but their pages in the cache.

.text

FUNC ramfs_get_inode                    # rdi super block, rsi directory or 0, edx mode, ecx device
    ENTER4
    mov r12, rsi
    mov r13d, edx
    mov r14d, ecx
    call new_inode
    mov rbx, rax
    test rax, rax
    je .Lout
    call get_next_ino
    mov [rbx+INODE_INO], rax
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov rdx, r12
    mov ecx, r13d
    call inode_init_owner
    mov rax, offset ramfs_aops
    mov [rbx+INODE_DATA+MAPPING_OPS], rax
    mov rdi, rbx
    call current_time
    mov [rbx+INODE_ATIME], rax
    mov [rbx+INODE_ATIME+8], rdx
    mov [rbx+INODE_MTIME], rax
    mov [rbx+INODE_MTIME+8], rdx
    mov [rbx+INODE_CTIME], rax
    mov [rbx+INODE_CTIME+8], rdx
    mov eax, r13d
    and eax, S_IFMT
    cmp eax, S_IFREG
    je .Lfile
    cmp eax, S_IFDIR
    je .Ldirectory
    cmp eax, S_IFLNK
    je .Llink
    mov rdi, rbx
    mov esi, r13d
    mov edx, r14d
    call init_special_inode
    jmp .Ldone
.Lfile:
    mov rax, offset ramfs_file_inode_operations
    mov [rbx+INODE_OP], rax
    mov rax, offset ramfs_file_operations
    mov [rbx+INODE_FOP], rax
    jmp .Ldone
.Ldirectory:
    mov rax, offset ramfs_dir_inode_operations
    mov [rbx+INODE_OP], rax
    mov rax, offset simple_dir_operations
    mov [rbx+INODE_FOP], rax
    mov rdi, rbx                        # its own "."
    call inc_nlink
    jmp .Ldone
.Llink:
    mov rax, offset simple_symlink_inode_operations
    mov [rbx+INODE_OP], rax
.Ldone:
    mov rax, rbx
.Lout:
    LEAVE4
ENDFUNC ramfs_get_inode

FUNC ramfs_mknod                        # rdi ns, rsi directory, rdx dentry, ecx mode, r8d device; eax
    ENTER4
    mov rbx, rsi
    mov r12, rdx
    mov rdi, [rsi+INODE_SB]
    mov edx, ecx
    mov ecx, r8d
    call ramfs_get_inode
    mov r13, rax
    test rax, rax
    je .Lnospace
    mov rdi, r12
    mov rsi, rax
    call d_instantiate
    cmp qword ptr [r12+DENTRY_HASH_PPREV], 0
    jne .Lhashed                        # the lookup hashed it as a negative one
    mov rdi, r12
    call d_rehash
.Lhashed:
    DGET r12                            # pins it: the dentry is all there is of the name
    mov rdi, rbx
    call current_time
    mov [rbx+INODE_MTIME], rax
    mov [rbx+INODE_MTIME+8], rdx
    mov [rbx+INODE_CTIME], rax
    mov [rbx+INODE_CTIME+8], rdx
    xor eax, eax
    LEAVE4
.Lnospace:
    mov eax, -ENOSPC
    LEAVE4
ENDFUNC ramfs_mknod

FUNC ramfs_mkdir                        # rdi ns, rsi directory, rdx dentry, ecx mode; eax 0 or error
    ENTER1
    push 0
    mov rbx, rsi
    or ecx, S_IFDIR
    xor r8d, r8d
    call ramfs_mknod
    test eax, eax
    jne .Lout
    mov rdi, rbx
    call inc_nlink
    xor eax, eax
.Lout:
    LEAVE1
ENDFUNC ramfs_mkdir

FUNC ramfs_create                       # rdi ns, rsi directory, rdx dentry, ecx mode, r8d exclusive; eax
    PROLOGUE
    or ecx, S_IFREG
    xor r8d, r8d
    call ramfs_mknod
    EPILOGUE
ENDFUNC ramfs_create

FUNC ramfs_symlink                      # rdi ns, rsi directory, rdx dentry, rcx target; eax 0 or error
    ENTER3
    push 0
    mov rbx, rsi
    mov r12, rdx
    mov rdi, rcx
    mov esi, GFP_KERNEL
    call kstrdup
    mov r13, rax
    test rax, rax
    je .Lnomem
    mov rdi, offset init_user_ns
    mov rsi, rbx
    mov rdx, r12
    mov ecx, S_IFLNK | 0x1ff
    xor r8d, r8d
    call ramfs_mknod
    test eax, eax
    jne .Lfree
    mov rbx, [r12+DENTRY_INODE]
    mov [rbx+INODE_LINK], r13
    mov rdi, r13
    call strlen
    mov [rbx+INODE_SIZE], rax
    xor eax, eax
    LEAVE3
.Lfree:
    mov ebx, eax
    mov rdi, r13
    call kfree
    mov eax, ebx
    LEAVE3
.Lnomem:
    mov eax, -ENOMEM
    LEAVE3
ENDFUNC ramfs_symlink

FUNC simple_get_link                    # rdi dentry, rsi inode; rax target (fs/libfs.c)
    PROLOGUE
    mov rax, [rsi+INODE_LINK]
    EPILOGUE
ENDFUNC simple_get_link

FUNC generic_file_mmap                  # rdi file, rsi area; eax 0 (mm/filemap.c)
    ENTER1
    push 0
    mov rbx, rsi
    mov rax, offset generic_file_vm_ops
    mov [rsi+VMA_OPS], rax
    add rdi, FILE_PATH
    call touch_atime
    xor eax, eax
    LEAVE1
ENDFUNC generic_file_mmap

.data
.balign 8
OBJECT ramfs_aops
    .quad simple_read_folio
    .quad simple_write_begin
    .quad simple_write_end
    .quad noop_dirty_folio
    .quad 0
ENDOBJECT ramfs_aops
OBJECT ramfs_file_operations
    .quad generic_file_llseek
    .quad 0
    .quad 0
    .quad generic_file_read_iter
    .quad generic_file_write_iter
    .zero FOPS_MMAP - FOPS_ITERATE
    .quad generic_file_mmap
    .zero FOPS_FSYNC - FOPS_OPEN
    .quad noop_fsync
ENDOBJECT ramfs_file_operations
OBJECT ramfs_file_inode_operations
    .zero IOP_SETATTR
    .quad simple_setattr
    .quad simple_getattr
    .quad 0
ENDOBJECT ramfs_file_inode_operations
OBJECT ramfs_dir_inode_operations
    .quad simple_lookup
    .quad 0
    .quad 0
    .quad ramfs_create
    .quad simple_unlink
    .quad ramfs_symlink
    .quad ramfs_mkdir
    .quad simple_rmdir
    .quad simple_rename
    .zero IOP_BYTES - IOP_SETATTR
ENDOBJECT ramfs_dir_inode_operations
OBJECT simple_symlink_inode_operations
    .quad 0
    .quad simple_get_link
    .zero IOP_BYTES - 16
ENDOBJECT simple_symlink_inode_operations
