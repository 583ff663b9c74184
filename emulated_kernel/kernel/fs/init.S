# fs/dcache.c (vfs_caches_init), init/initramfs.c: the caches of the file systems, what is mounted where,
# and the first files.

.text

RAMFS_MAGIC = 0x858458f6
SYSFS_MAGIC = 0x62656572

FUNC_NOTRACE vfs_caches_init
    PROLOGUE
    call names_init
    call dcache_init
    call inode_init
    call files_init
    call seq_file_init
    call mnt_init
    call init_pipe_fs
    call chr_dev_init
    call populate_rootfs
    EPILOGUE
ENDFUNC vfs_caches_init

# The root: a ramfs, and every idle task stands in it.
FUNC_NOTRACE mnt_init
    ENTER3
    push 0
    mov rdi, offset rootfs_name
    mov esi, RAMFS_MAGIC
    xor edx, edx
    xor ecx, ecx
    mov r8d, SB_I_PINNED
    call alloc_super
    mov rbx, rax
    mov rdi, rax
    xor esi, esi
    mov edx, S_IFDIR | 0x1ed            # 0755
    xor ecx, ecx
    call ramfs_get_inode
    mov rdi, rax
    call d_make_root
    mov [rbx+SB_ROOT], rax
    mov rdi, rbx
    mov rsi, offset rootfs_name
    xor edx, edx
    call vfs_mount_sb
    mov r12, rax
    sub rsp, 16
    mov [rsp+PATH_MNT], r12
    mov rcx, [rax+MNT_ROOT]
    mov [rsp+PATH_DENTRY], rcx
    mov rdi, offset init_files
    call files_struct_init
    mov rax, offset idle_threads
    mov ecx, 8
.Lidle:
    mov rdx, offset init_fs
    mov [rax+TASK_FS], rdx
    mov rdx, offset init_files
    mov [rax+TASK_FILES], rdx
    add rax, TASK_SIZE
    dec ecx
    jne .Lidle
    mov rdi, offset init_fs
    mov rsi, rsp
    call set_fs_root
    mov rdi, offset init_fs
    mov rsi, rsp
    call set_fs_pwd
    LEAVE3
ENDFUNC mnt_init

# --- helpers: paths in kernel memory, and the return value is an error or not --------------------------

FUNC_NOTRACE init_mkdir                 # rdi path, esi mode; eax 0 or error (fs/init.c)
    ENTER1
    push 0
    mov ebx, esi
    call getname_kernel
    cmp rax, ERR_MIN
    jae .Lout
    mov edi, AT_FDCWD
    mov rsi, rax
    mov edx, ebx
    call do_mkdirat
.Lout:
    LEAVE1
ENDFUNC init_mkdir

FUNC_NOTRACE init_symlink               # rdi target, rsi path; eax 0 or error
    ENTER2
    mov r12, rsi
    call getname_kernel
    mov rbx, rax
    mov rdi, r12
    call getname_kernel
    mov rdi, rbx
    mov esi, AT_FDCWD
    mov rdx, rax
    call do_symlinkat
    LEAVE2
ENDFUNC init_symlink

FUNC_NOTRACE init_mknod                 # rdi path, esi mode, edx device; eax 0 or error
    ENTER4
    sub rsp, 16
    mov r12d, esi
    mov r13d, edx
    call getname_kernel
    mov r14, rax
    mov edi, AT_FDCWD
    mov rsi, rax
    lea rdx, [rbp-48]
    xor ecx, ecx
    call filename_create
    mov rbx, rax
    cmp rax, ERR_MIN
    jae .Lput
    mov rdi, offset init_user_ns
    mov rsi, [rbp-48+PATH_DENTRY]
    mov rsi, [rsi+DENTRY_INODE]
    mov rdx, rbx
    mov ecx, r12d
    mov r8d, r13d
    call ramfs_mknod
    movsxd r12, eax
    lea rdi, [rbp-48]
    mov rsi, rbx
    call done_path_create
    mov rbx, r12
.Lput:
    mov rdi, r14
    call putname
    mov rax, rbx
    LEAVE4
ENDFUNC init_mknod

# A file with its contents: rdi path, esi mode, rdx text, rcx length; rax bytes written or error.
FUNC_NOTRACE init_write_file
    ENTER4
    sub rsp, 16
    mov r12, rdx
    mov r13, rcx
    mov edx, esi
    mov esi, O_CREAT | O_WRONLY | O_TRUNC
    call filp_open
    mov rbx, rax
    cmp rax, ERR_MIN
    jae .Lout
    mov qword ptr [rbp-48], 0
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    lea rcx, [rbp-48]
    call kernel_write
    mov r12, rax
    mov rdi, rbx
    call fput
    mov rax, r12
.Lout:
    LEAVE4
ENDFUNC init_write_file

# Mount super block rdi, called rsi, at path rdx; rax mount or 0.
FUNC_NOTRACE init_mount
    ENTER3
    sub rsp, 24
    mov rbx, rdi
    mov r12, rsi
    mov rdi, rdx
    mov esi, LOOKUP_FOLLOW | LOOKUP_DIRECTORY
    lea rdx, [rbp-40]
    call kern_path
    test eax, eax
    jne .Lnone
    mov rdi, rbx
    mov rsi, r12
    lea rdx, [rbp-40]
    call vfs_mount_sb
    mov r13, rax
    lea rdi, [rbp-40]
    call path_put
    mov rax, r13
    LEAVE3
.Lnone:
    xor eax, eax
    LEAVE3
ENDFUNC init_mount

FUNC_NOTRACE populate_rootfs
    ENTER3
    push 0
    mov dword ptr [rip + init_fs + FS_UMASK], 0
    mov rbx, offset initramfs
.Lentry:
    mov rdi, [rbx]
    test rdi, rdi
    je .Lmounts
    mov esi, [rbx+8]
    mov eax, esi
    and eax, S_IFMT
    cmp eax, S_IFDIR
    je .Ldirectory
    cmp eax, S_IFLNK
    je .Llink
    cmp eax, S_IFCHR
    je .Ldevice
    mov rdx, [rbx+16]
    mov rcx, [rbx+24]
    and esi, 0xfff
    call init_write_file
    jmp .Lnext
.Ldirectory:
    and esi, 0xfff
    call init_mkdir
    jmp .Lnext
.Llink:
    mov rsi, rdi
    mov rdi, [rbx+16]
    call init_symlink
    jmp .Lnext
.Ldevice:
    mov edx, [rbx+16]
    call init_mknod
.Lnext:
    add rbx, 32
    jmp .Lentry
.Lmounts:
    call proc_init
    mov rdi, rax
    mov rsi, offset proc_fs_name
    mov rdx, offset proc_path
    call init_mount
    call sysfs_init
    mov rdi, rax
    mov rsi, offset sysfs_fs_name
    mov rdx, offset sys_path
    call init_mount
    call tracefs_init
    mov rdi, rax
    mov rsi, offset tracefs_fs_name
    mov rdx, offset tracing_path
    call init_mount
    mov [rip + tracefs_mount], rax
    mov dword ptr [rip + init_fs + FS_UMASK], 0x12      # 022
    LEAVE3
ENDFUNC populate_rootfs

FUNC_NOTRACE sysfs_init                 # rax super block (fs/sysfs/mount.c, drivers/base)
    ENTER2
    mov rdi, offset sysfs_fs_name
    mov esi, SYSFS_MAGIC
    mov rdx, offset kernfs_sops
    mov rcx, offset kernfs_dops
    xor r8d, r8d
    call alloc_super
    mov rbx, rax
    mov rdi, offset empty_name
    mov esi, S_IFDIR | 0x1ed
    call __kernfs_new_node
    mov [rip + sysfs_root_kn], rax
    mov rdi, rbx
    mov rsi, rax
    call kernfs_get_inode
    mov rdi, rax
    call d_make_root
    mov [rbx+SB_ROOT], rax
    mov rdi, [rip + sysfs_root_kn]
    mov rsi, offset sysfs_tracing_path
    call sysfs_make_path
    call irq_sysfs_init
    call rtc_sysfs_init
    call hwmon_sysfs_init
    call i2c_sysfs_init
    mov rax, rbx
    LEAVE2
ENDFUNC sysfs_init

FUNC_NOTRACE tracefs_init               # rax super block (fs/tracefs/inode.c)
    ENTER2
    mov rdi, offset tracefs_fs_name
    mov esi, 0x74726163
    xor edx, edx
    mov rcx, offset simple_dentry_operations
    mov r8d, SB_I_PINNED
    call alloc_super
    mov rbx, rax
    mov rdi, rax
    call tracefs_get_inode
    mov dword ptr [rax+INODE_MODE], S_IFDIR | 0x1c0     # 0700
    mov rcx, offset simple_dir_inode_operations
    mov [rax+INODE_OP], rcx
    mov rcx, offset simple_dir_operations
    mov [rax+INODE_FOP], rcx
    mov r12, rax
    mov rdi, rax
    call inc_nlink
    mov rdi, r12
    call d_make_root
    mov [rbx+SB_ROOT], rax
    mov rax, rbx
    LEAVE2
ENDFUNC tracefs_init

# An executable /usr/bin/NAME, unless there is one: rdi NAME; rax 0 or error. For programs of the host.
FUNC_NOTRACE host_install_binary
    ENTER3
    sub rsp, 280
    mov r12, rdi
    lea rdi, [rsp+16]
    mov rsi, offset usr_bin_path
    call strcpy
    lea rdi, [rsp+16]
    call strlen
    lea rdi, [rsp+rax+16]
    mov rsi, r12
    mov edx, 240
    call strscpy
    test rax, rax
    js .Lout
    lea rdi, [rsp+16]
    mov esi, LOOKUP_FOLLOW
    mov rdx, rsp
    call kern_path
    test eax, eax
    jne .Linstall
    mov rdi, rsp
    call path_put
    xor eax, eax
    LEAVE3
.Linstall:
    lea rdi, [rsp+16]
    mov esi, 0x1ed
    mov rdx, offset elf_program
    mov ecx, ELF_PROGRAM_BYTES
    call init_write_file
    cmp rax, ERR_MIN
    jae .Lout
    xor eax, eax
.Lout:
    LEAVE3
ENDFUNC host_install_binary

# What a program is to look like: header, program headers, an exit system call.
ELF_BASE = 0x400000
ELF_PROGRAM_BYTES = 64 + 2 * 56 + 16
ELF_ENTRY = 64 + 2 * 56

.macro INITRAMFS_DIR path, mode
    .quad \path
    .quad S_IFDIR | \mode
    .quad 0
    .quad 0
.endm
.macro INITRAMFS_FILE path, mode, text, length
    .quad \path
    .quad S_IFREG | \mode
    .quad \text
    .quad \length
.endm
.macro INITRAMFS_LINK path, target
    .quad \path
    .quad S_IFLNK
    .quad \target
    .quad 0
.endm
.macro INITRAMFS_DEVICE path, mode, minor
    .quad \path
    .quad S_IFCHR | \mode
    .quad (1 << 20) | \minor
    .quad 0
.endm

.data
.balign 8
initramfs:
    INITRAMFS_DIR dev_path, 0x1ed
    INITRAMFS_DIR etc_path, 0x1ed
    INITRAMFS_DIR proc_path, 0x16d
    INITRAMFS_DIR sys_path, 0x16d
    INITRAMFS_DIR tmp_path, 0x1ff
    INITRAMFS_DIR root_path, 0x1c0
    INITRAMFS_DIR usr_path, 0x1ed
    INITRAMFS_DIR usr_bin_dir, 0x1ed
    INITRAMFS_DIR var_path, 0x1ed
    INITRAMFS_DIR var_log_path, 0x1ed
    INITRAMFS_LINK bin_path, usr_bin_target
    INITRAMFS_LINK sbin_path, usr_bin_target
    INITRAMFS_FILE hostname_path, 0x1a4, initramfs_hostname, 9
    INITRAMFS_FILE passwd_path, 0x1a4, initramfs_passwd, 84
    INITRAMFS_FILE sh_path, 0x1ed, elf_program, ELF_PROGRAM_BYTES
    INITRAMFS_FILE bash_path, 0x1ed, elf_program, ELF_PROGRAM_BYTES
    INITRAMFS_FILE cat_path, 0x1ed, elf_program, ELF_PROGRAM_BYTES
    INITRAMFS_FILE echo_path, 0x1ed, elf_program, ELF_PROGRAM_BYTES
    INITRAMFS_FILE ls_path, 0x1ed, elf_program, ELF_PROGRAM_BYTES
    INITRAMFS_FILE true_path, 0x1ed, elf_program, ELF_PROGRAM_BYTES
    INITRAMFS_FILE ldd_path, 0x1ed, initramfs_script, 32
    INITRAMFS_DEVICE null_path, 0x1b6, 3
    INITRAMFS_DEVICE zero_path, 0x1b6, 5
    INITRAMFS_DEVICE full_path, 0x1b6, 7
    .zero 32
elf_program:
    .byte 0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0
    .quad 0
    .word 2, 62
    .long 1
    .quad ELF_BASE + ELF_ENTRY
    .quad 64
    .quad 0
    .long 0
    .word 64, 56, 2, 0, 0, 0
    .long 1, 5                          # PT_LOAD: text
    .quad 0, ELF_BASE, ELF_BASE, ELF_PROGRAM_BYTES, ELF_PROGRAM_BYTES, 4096
    .long 1, 6                          # PT_LOAD: bss only
    .quad 0, ELF_BASE + 0x200000, ELF_BASE + 0x200000, 0, 4096, 4096
    .byte 0x31, 0xff, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05
    .zero 7
initramfs_hostname:
    .ascii "ftracefs\n"
initramfs_passwd:
    .ascii "root:x:0:0:root:/root:/bin/bash\n"
    .ascii "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
initramfs_script:
    .ascii "#!/bin/bash\nexec true /lib/ld.so"
rootfs_name:
    .asciz "rootfs"
proc_fs_name:
    .asciz "proc"
sysfs_fs_name:
    .asciz "sysfs"
tracefs_fs_name:
    .asciz "tracefs"
empty_name:
    .asciz ""
dev_path:
    .asciz "/dev"
etc_path:
    .asciz "/etc"
proc_path:
    .asciz "/proc"
sys_path:
    .asciz "/sys"
tmp_path:
    .asciz "/tmp"
root_path:
    .asciz "/root"
usr_path:
    .asciz "/usr"
usr_bin_dir:
    .asciz "/usr/bin"
usr_bin_path:
    .asciz "/usr/bin/"
usr_bin_target:
    .asciz "usr/bin"
var_path:
    .asciz "/var"
var_log_path:
    .asciz "/var/log"
bin_path:
    .asciz "/bin"
sbin_path:
    .asciz "/sbin"
hostname_path:
    .asciz "/etc/hostname"
passwd_path:
    .asciz "/etc/passwd"
sh_path:
    .asciz "/usr/bin/sh"
bash_path:
    .asciz "/usr/bin/bash"
cat_path:
    .asciz "/usr/bin/cat"
echo_path:
    .asciz "/usr/bin/echo"
ls_path:
    .asciz "/usr/bin/ls"
true_path:
    .asciz "/usr/bin/true"
ldd_path:
    .asciz "/usr/bin/ldd"
null_path:
    .asciz "/dev/null"
zero_path:
    .asciz "/dev/zero"
full_path:
    .asciz "/dev/full"
tracing_path:
    .asciz "/sys/kernel/tracing"
sysfs_tracing_path:
    .asciz "kernel/tracing"
