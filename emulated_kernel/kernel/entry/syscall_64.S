# arch/x86/entry/syscall_64.c: the table of system calls. A zero entry is answered ENOSYS.

.data
.balign 64
OBJECT sys_call_table
    .zero 8 * 35
    .quad __x64_sys_nanosleep             # 35
    .zero 8 * 3
    .quad __x64_sys_getpid                # 39
    .zero 8 * 16
    .quad __x64_sys_clone                 # 56
    .quad __x64_sys_fork                  # 57
    .zero 8 * 2
    .quad __x64_sys_exit                  # 60
    .quad __x64_sys_wait4                 # 61
    .quad __x64_sys_kill                  # 62
    .zero 8 * 11
    .quad __x64_sys_fsync                 # 74
    .zero 8 * 21
    .quad __x64_sys_gettimeofday          # 96
    .zero 8 * 13
    .quad __x64_sys_getppid               # 110
    .zero 8 * 75
    .quad __x64_sys_gettid                # 186
    .zero 8 * 41
    .quad __x64_sys_clock_gettime         # 228
    .zero 8 * 2
    .quad __x64_sys_exit_group            # 231
    .zero 8 * (NR_SYSCALLS - 232)
ENDOBJECT sys_call_table
