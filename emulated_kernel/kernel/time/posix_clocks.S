# System calls about time: kernel/time/posix-timers.c, time.c, posix-stubs.c.

.text

NANOSLEEP_SECONDS_MAX = 9223372035

# edi clock: its index in posix_clocks in rax, CF set when there is one.
.macro CLOCKID_TO_KCLOCK
    mov eax, edi
    cmp eax, 8
.endm

FUNC posix_get_realtime_timespec
    PROLOGUE
    mov rdi, rsi
    call ktime_get_real_ts64
    xor eax, eax
    EPILOGUE
ENDFUNC posix_get_realtime_timespec

FUNC posix_get_monotonic_timespec
    PROLOGUE
    mov rdi, rsi
    call ktime_get_ts64
    xor eax, eax
    EPILOGUE
ENDFUNC posix_get_monotonic_timespec

FUNC posix_get_boottime_timespec
    PROLOGUE
    mov rdi, rsi
    call ktime_get_ts64
    xor eax, eax
    EPILOGUE
ENDFUNC posix_get_boottime_timespec

FUNC posix_get_realtime_coarse
    PROLOGUE
    mov rdi, rsi
    call ktime_get_coarse_real_ts64
    xor eax, eax
    EPILOGUE
ENDFUNC posix_get_realtime_coarse

FUNC posix_get_monotonic_coarse
    PROLOGUE
    mov rdi, rsi
    call ktime_get_coarse_ts64
    xor eax, eax
    EPILOGUE
ENDFUNC posix_get_monotonic_coarse

# rdi kernel timespec, rsi user timespec: 0 or -EFAULT.
FUNC put_timespec64
    PROLOGUE
    mov rax, rdi
    mov rdi, rsi
    mov rsi, rax
    mov edx, 16
    call _copy_to_user
    test rax, rax
    je 1f
    mov eax, -EFAULT
1:
    EPILOGUE
ENDFUNC put_timespec64

FUNC get_timespec64
    PROLOGUE
    mov edx, 16
    call _copy_from_user
    test rax, rax
    je 1f
    mov eax, -EFAULT
1:
    EPILOGUE
ENDFUNC get_timespec64

# clock_gettime(clock, timespec): rdi pt_regs.
FUNC __x64_sys_clock_gettime
    ENTER1
    sub rsp, 24
    mov rbx, [rdi + PT_RSI]
    mov rdi, [rdi + PT_RDI]
    CLOCKID_TO_KCLOCK
    jae .Linvalid
    mov rax, [rax*8 + posix_clocks]
    test rax, rax
    je .Linvalid
    mov rsi, rsp
    call rax
    test eax, eax
    jne .Lout
    mov rdi, rsp
    mov rsi, rbx
    call put_timespec64
.Lout:
    cdqe
    LEAVE1
.Linvalid:
    mov rax, -EINVAL
    LEAVE1
ENDFUNC __x64_sys_clock_gettime

# gettimeofday(timeval, timezone): rdi pt_regs.
FUNC __x64_sys_gettimeofday
    ENTER2
    sub rsp, 16
    mov rbx, [rdi + PT_RDI]
    mov r12, [rdi + PT_RSI]
    test rbx, rbx
    je .Lzone
    mov rdi, rsp
    call ktime_get_real_ts64
    mov rax, [rsp + 8]
    xor edx, edx
    mov ecx, 1000
    div rcx
    mov [rsp + 8], rax
    mov rdi, rsp
    mov rsi, rbx
    call put_timespec64
    test eax, eax
    jne .Lout
.Lzone:
    xor eax, eax
    test r12, r12
    je .Lout
    mov rdi, r12
    mov rsi, offset sys_tz
    mov edx, 8
    call _copy_to_user
    test rax, rax
    je .Lout
    mov eax, -EFAULT
.Lout:
    cdqe
    LEAVE2
ENDFUNC __x64_sys_gettimeofday

FUNC __x64_sys_time
    ENTER2
    mov rbx, [rdi + PT_RDI]
    call ktime_get_real_seconds
    mov r12, rax
    test rbx, rbx
    je .Lout
    push rax
    push rax
    mov rdi, rbx
    mov rsi, rsp
    mov edx, 8
    call _copy_to_user
    test rax, rax
    je .Lout
    mov r12, -EFAULT
.Lout:
    mov rax, r12
    LEAVE2
ENDFUNC __x64_sys_time

# nanosleep(request, remainder): rdi pt_regs.
FUNC __x64_sys_nanosleep
    ENTER3
    sub rsp, 24
    mov rbx, [rdi + PT_RSI]
    mov rsi, [rdi + PT_RDI]
    mov rdi, rsp
    call get_timespec64
    test eax, eax
    jne .Lout
    mov r12, [rsp]
    mov rcx, [rsp + 8]
    mov eax, -EINVAL
    cmp rcx, NSEC_PER_SEC
    jae .Lout
    test r12, r12
    js .Lout
    mov rax, NANOSLEEP_SECONDS_MAX
    cmp r12, rax
    cmova r12, rax
    imul r12, r12, NSEC_PER_SEC
    add r12, rcx
    call ktime_get
    lea r13, [rax + r12]
    mov rdi, r12
    mov esi, HRTIMER_MODE_REL
    mov edx, CLOCK_MONOTONIC
    call hrtimer_nanosleep
    test eax, eax
    je .Lout
    mov eax, -EINTR
    test rbx, rbx
    je .Lout
    mov rdi, r13
    mov rsi, rbx
    call nanosleep_copyout
.Lout:
    cdqe
    LEAVE3
ENDFUNC __x64_sys_nanosleep

# A signal came: rdi when the sleep was to end, rsi where the time left goes. -EINTR or -EFAULT.
FUNC nanosleep_copyout
    ENTER2
    sub rsp, 16
    mov rbx, rdi
    mov r12, rsi
    call ktime_get
    sub rbx, rax
    jns 1f
    xor ebx, ebx
1:
    mov rdi, rbx
    call ns_to_timespec64
    mov [rsp], rax
    mov [rsp + 8], rdx
    mov rdi, rsp
    mov rsi, r12
    call put_timespec64
    test eax, eax
    jne .Lout
    mov eax, -EINTR
.Lout:
    LEAVE2
ENDFUNC nanosleep_copyout

.data
.balign 8
posix_clocks:
    .quad posix_get_realtime_timespec
    .quad posix_get_monotonic_timespec
    .quad 0
    .quad 0
    .quad posix_get_monotonic_timespec
    .quad posix_get_realtime_coarse
    .quad posix_get_monotonic_coarse
    .quad posix_get_boottime_timespec
OBJECT sys_tz
    .long 0, 0
ENDOBJECT sys_tz
.text
