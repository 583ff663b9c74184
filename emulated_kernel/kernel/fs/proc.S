# fs/proc: a few files of /proc, each of one record. Left out: processes, sysctl, removing entries.

.text

PROC_SUPER_MAGIC = 0x9fa0
PROC_ROOT_INO = 1

FUNC proc_get_inode                     # rdi super block, rsi proc_dir_entry; rax inode or 0
    ENTER2
    mov rbx, rsi
    call new_inode
    mov r12, rax
    test rax, rax
    je .Lout
    mov [r12+INODE_PRIVATE], rbx
    mov eax, [rbx+PDE_INO]
    mov [r12+INODE_INO], rax
    mov eax, [rbx+PDE_MODE]
    mov [r12+INODE_MODE], eax
    mov rdi, r12
    call current_time
    mov [r12+INODE_ATIME], rax
    mov [r12+INODE_ATIME+8], rdx
    mov [r12+INODE_MTIME], rax
    mov [r12+INODE_MTIME+8], rdx
    mov [r12+INODE_CTIME], rax
    mov [r12+INODE_CTIME+8], rdx
    mov rax, offset proc_reg_file_ops
    mov rcx, offset empty_iops
    cmp qword ptr [rbx+PDE_SHOW], 0
    jne .Lops
    mov rdi, r12
    mov esi, 2
    call set_nlink
    mov rax, offset proc_dir_operations
    mov rcx, offset proc_dir_inode_operations
.Lops:
    mov [r12+INODE_FOP], rax
    mov [r12+INODE_OP], rcx
.Lout:
    mov rax, r12
    LEAVE2
ENDFUNC proc_get_inode

FUNC proc_lookup                        # rdi directory, rsi dentry, edx flags; rax 0 or error
    PROLOGUE
    mov rdx, [rdi+INODE_PRIVATE]
    call proc_lookup_de
    EPILOGUE
ENDFUNC proc_lookup

FUNC proc_lookup_de                     # rdi directory, rsi dentry, rdx its proc_dir_entry; rax 0 or error
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov rdi, offset proc_subdir_lock
    call _raw_read_lock
    mov r13, [r13+PDE_SUBDIR]
.Lnext:
    test r13, r13
    je .Lfound
    mov rdi, [r13+PDE_NAME]
    mov rsi, [r12+DENTRY_NAME+QSTR_NAME]
    call strcmp
    test eax, eax
    je .Lfound
    mov r13, [r13+PDE_NEXT]
    jmp .Lnext
.Lfound:
    mov rdi, offset proc_subdir_lock
    call _raw_read_unlock
    mov rax, -ENOENT
    test r13, r13
    je .Lout
    mov rdi, [rbx+INODE_SB]
    mov rsi, r13
    call proc_get_inode
    mov rdi, rax
    mov rax, -ENOMEM
    test rdi, rdi
    je .Lout
    mov rsi, r12
    call d_splice_alias
.Lout:
    LEAVE4
ENDFUNC proc_lookup_de

FUNC proc_readdir                       # rdi file, rsi ctx; eax 0
    PROLOGUE
    mov rax, [rdi+FILE_INODE]
    mov rdx, [rax+INODE_PRIVATE]
    call proc_readdir_de
    EPILOGUE
ENDFUNC proc_readdir

FUNC proc_readdir_de                    # rdi file, rsi ctx, rdx proc_dir_entry; eax 0
    ENTER3
    push 0
    mov r12, rsi
    mov rbx, [rdx+PDE_SUBDIR]
    call dir_emit_dots
    test al, al
    je .Lout
    mov r13, [r12+CTX_POS]
    sub r13, 2
.Lskip:
    test rbx, rbx
    je .Lout
    test r13, r13
    je .Lemit
    dec r13
    mov rbx, [rbx+PDE_NEXT]
    jmp .Lskip
.Lemit:
    mov rdi, [rbx+PDE_NAME]
    call strlen
    mov edx, eax
    mov rdi, r12
    mov rsi, [rbx+PDE_NAME]
    mov rcx, [r12+CTX_POS]
    mov r8d, [rbx+PDE_INO]
    mov r9d, [rbx+PDE_MODE]
    shr r9d, 12
    call [r12+CTX_ACTOR]
    test al, al
    je .Lout
    inc qword ptr [r12+CTX_POS]
    mov rbx, [rbx+PDE_NEXT]
    test rbx, rbx
    jne .Lemit
.Lout:
    xor eax, eax
    LEAVE3
ENDFUNC proc_readdir_de

FUNC proc_reg_open                      # rdi inode, rsi file; eax 0 or error
    ENTER1
    push 0
    mov rbx, [rdi+INODE_PRIVATE]
    lock inc dword ptr [rbx+PDE_IN_USE]
    call proc_single_open
    lock dec dword ptr [rbx+PDE_IN_USE]
    LEAVE1
ENDFUNC proc_reg_open

FUNC proc_single_open                   # rdi inode, rsi file; eax 0 or error
    PROLOGUE
    mov rax, [rdi+INODE_PRIVATE]
    mov rdi, rsi
    mov rsi, [rax+PDE_SHOW]
    mov rdx, [rax+PDE_DATA]
    call single_open
    EPILOGUE
ENDFUNC proc_single_open

FUNC proc_reg_read_iter                 # rdi kiocb, rsi iter; rax bytes or error
    ENTER1
    push 0
    mov rax, [rdi+KI_FILP]
    mov rax, [rax+FILE_INODE]
    mov rbx, [rax+INODE_PRIVATE]
    lock inc dword ptr [rbx+PDE_IN_USE]
    call seq_read_iter
    lock dec dword ptr [rbx+PDE_IN_USE]
    LEAVE1
ENDFUNC proc_reg_read_iter

FUNC proc_reg_llseek                    # rdi file, rsi offset, edx whence; rax position or error
    PROLOGUE
    call seq_lseek
    EPILOGUE
ENDFUNC proc_reg_llseek

FUNC proc_reg_release                   # rdi inode, rsi file; eax 0
    PROLOGUE
    call single_release
    EPILOGUE
ENDFUNC proc_reg_release

# --- the files: rdi seq; eax 0 ----------------------------------------------------------------------

FUNC_STATIC version_proc_show
    ENTER1
    push 0
    mov rsi, offset linux_proc_banner
    mov rdx, offset uts_sysname
    mov rcx, offset uts_release
    mov r8, offset uts_version
    xor eax, eax
    call seq_printf
    xor eax, eax
    LEAVE1
ENDFUNC version_proc_show

FUNC_STATIC uptime_proc_show
    ENTER2
    mov rbx, rdi
    call ktime_get
    mov ecx, 10000000                   # to hundredths
    xor edx, edx
    div rcx
    mov ecx, 100
    xor edx, edx
    div rcx
    mov rdi, rbx
    mov rsi, offset uptime_format
    mov ecx, edx
    mov rdx, rax
    xor eax, eax
    call seq_printf
    xor eax, eax
    LEAVE2
ENDFUNC uptime_proc_show

FUNC_STATIC loadavg_proc_show
    ENTER2
    mov rbx, rdi
    xor edx, edx
    xor ecx, ecx
.Lcpu:
    mov rax, [percpu_table + rcx*8]
    add edx, [rax+RQ_NR_RUNNING]
    inc ecx
    cmp ecx, [rip + nr_cpu_ids]
    jb .Lcpu
    mov rsi, offset loadavg_format
    mov ecx, [rip + nr_threads]
    mov r8d, [rip + last_pid]
    xor eax, eax
    call seq_printf
    xor eax, eax
    LEAVE2
ENDFUNC loadavg_proc_show

FUNC_STATIC meminfo_proc_show
    ENTER1
    sub rsp, 24
    mov rbx, rdi
    mov rdi, rsp
    call si_meminfo
    mov rdi, rbx
    mov rsi, offset meminfo_format
    mov rdx, [rsp]
    shl rdx, 2
    mov rcx, [rsp+8]
    shl rcx, 2
    mov r8, [rip + nr_file_pages]
    shl r8, 2
    mov r9, [rip + nr_dirty]
    shl r9, 2
    xor eax, eax
    call seq_printf
    xor eax, eax
    LEAVE1
ENDFUNC meminfo_proc_show

FUNC_STATIC filesystems_proc_show
    ENTER2
    mov r12, rdi
    mov rbx, [rip + super_blocks]
.Lnext:
    mov rax, offset super_blocks
    cmp rbx, rax
    je .Lout
    mov rdi, r12
    mov rsi, offset nodev_text
    test qword ptr [rbx+SB_FLAGS], SB_I_WRITEBACK
    je .Lkind
    mov rsi, offset tab_text
.Lkind:
    call seq_puts
    mov rdi, r12
    mov rsi, [rbx+SB_NAME]
    call seq_puts
    mov rdi, r12
    mov esi, 10
    call seq_putc
    mov rbx, [rbx]
    jmp .Lnext
.Lout:
    xor eax, eax
    LEAVE2
ENDFUNC filesystems_proc_show

# rax: the super block of /proc.
FUNC_NOTRACE proc_init
    ENTER2
    mov rdi, offset proc_name
    mov esi, PROC_SUPER_MAGIC
    xor edx, edx
    mov rcx, offset simple_dentry_operations
    xor r8d, r8d
    call alloc_super
    mov rbx, rax
    mov rdi, rax
    mov rsi, offset proc_root
    call proc_get_inode
    mov rdi, rax
    call d_make_root
    mov [rbx+SB_ROOT], rax
    mov rax, rbx
    LEAVE2
ENDFUNC proc_init

# An entry of the root: \next the one behind it.
.macro PROC_ENTRY label, name, number, show, next
\label:
    .quad \name
    .long S_IFREG | 0x124
    .long \number
    .quad proc_root
    .quad 0
    .quad \next
    .quad \show
    .quad 0
    .quad 0
.endm

.data
.balign 8
OBJECT proc_root
    .quad proc_name
    .long S_IFDIR | 0x16d
    .long PROC_ROOT_INO
    .quad proc_root
    .quad proc_filesystems
    .zero PDE_BYTES - 32
ENDOBJECT proc_root
PROC_ENTRY proc_filesystems, filesystems_name, 0xf0000001, filesystems_proc_show, proc_loadavg
PROC_ENTRY proc_loadavg, loadavg_name, 0xf0000002, loadavg_proc_show, proc_meminfo
PROC_ENTRY proc_meminfo, meminfo_name, 0xf0000003, meminfo_proc_show, proc_uptime
PROC_ENTRY proc_uptime, uptime_name, 0xf0000004, uptime_proc_show, proc_version
PROC_ENTRY proc_version, version_name, 0xf0000005, version_proc_show, 0
OBJECT proc_subdir_lock
    .quad 0
ENDOBJECT proc_subdir_lock
OBJECT proc_dir_inode_operations
    .quad proc_lookup
    .zero IOP_BYTES - 8
ENDOBJECT proc_dir_inode_operations
OBJECT proc_dir_operations
    .quad default_llseek
    .quad generic_read_dir
    .zero FOPS_ITERATE - 16
    .quad proc_readdir
    .zero FOPS_BYTES - FOPS_ITERATE - 8
ENDOBJECT proc_dir_operations
OBJECT proc_reg_file_ops
    .quad proc_reg_llseek
    .quad 0
    .quad 0
    .quad proc_reg_read_iter
    .zero FOPS_OPEN - FOPS_WRITE_ITER
    .quad proc_reg_open
    .quad 0
    .quad proc_reg_release
    .quad 0
ENDOBJECT proc_reg_file_ops
OBJECT linux_proc_banner
    .asciz "%s version %s (ftracefs@localhost) (assembled) %s\n"
ENDOBJECT linux_proc_banner
uts_sysname:
    .asciz "Linux"
uts_release:
    .asciz "6.1.0-ftracefs-amd64"
uts_version:
    .asciz "#1 SMP PREEMPT_DYNAMIC"
proc_name:
    .asciz "proc"
filesystems_name:
    .asciz "filesystems"
loadavg_name:
    .asciz "loadavg"
meminfo_name:
    .asciz "meminfo"
uptime_name:
    .asciz "uptime"
version_name:
    .asciz "version"
uptime_format:
    .asciz "%lu.%02u 0.00\n"
loadavg_format:
    .asciz "0.00 0.00 0.00 %u/%u %u\n"
meminfo_format:
    .asciz "MemTotal:       %8lu kB\nMemFree:        %8lu kB\nCached:         %8lu kB\nDirty:          %8lu kB\n"
nodev_text:
    .asciz "nodev\t"
tab_text:
    .asciz "\t"
