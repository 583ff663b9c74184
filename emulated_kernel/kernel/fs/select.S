# fs/select.c: poll. Left out: select, busy polling.

.text

POLL_MAX = 256

FUNC poll_initwait                      # rdi poll_wqueues
    PROLOGUE
    mov rax, offset __pollwait
    mov [rdi+PT_QPROC], rax
    mov qword ptr [rdi+PT_KEY], -1
    mov rax, gs:[CURRENT_TASK]
    mov [rdi+PWQ_TASK], rax
    xor eax, eax
    mov [rdi+PWQ_TRIGGERED], eax
    mov [rdi+PWQ_ERROR], eax
    mov [rdi+PWQ_NR], eax
    EPILOGUE
ENDFUNC poll_initwait

FUNC poll_freewait                      # rdi poll_wqueues
    ENTER2
    mov rbx, rdi
.Lnext:
    cmp dword ptr [rbx+PWQ_NR], 0
    je .Lout
    dec dword ptr [rbx+PWQ_NR]
    mov r12d, [rbx+PWQ_NR]
    shl r12d, 6
    lea r12, [rbx+r12+PWQ_ENTRIES]
    mov rdi, [r12+PWQ_ENTRY_HEAD]
    mov rsi, r12
    call remove_wait_queue
    mov rdi, [r12+PWQ_ENTRY_FILE]
    call fput
    jmp .Lnext
.Lout:
    LEAVE2
ENDFUNC poll_freewait

# Register on a queue if this pass wants to (inlined in Linux): rdi file, rsi queue, rdx poll_table or 0.
FUNC_NOTRACE poll_wait
    test rdx, rdx
    je .Lout
    mov rax, [rdx+PT_QPROC]
    test rax, rax
    je .Lout
    jmp rax
.Lout:
    ret
ENDFUNC poll_wait

FUNC __pollwait                         # rdi file, rsi queue, rdx poll_table of a poll_wqueues
    ENTER3
    push 0
    mov rbx, rdx
    mov r12, rsi
    mov eax, [rdx+PWQ_NR]
    cmp eax, PWQ_MAX
    jae .Lfull
    inc dword ptr [rdx+PWQ_NR]
    shl eax, 6
    lea r13, [rdx+rax+PWQ_ENTRIES]
    call get_file
    mov [r13+PWQ_ENTRY_FILE], rax
    mov [r13+PWQ_ENTRY_HEAD], r12
    mov dword ptr [r13+WAIT_FLAGS], 0
    mov [r13+WAIT_PRIVATE], rbx
    mov rax, offset pollwake
    mov [r13+WAIT_FUNC], rax
    mov rdi, r12
    mov rsi, r13
    call add_wait_queue
    LEAVE3
.Lfull:
    mov dword ptr [rbx+PWQ_ERROR], -ENOMEM
    LEAVE3
ENDFUNC __pollwait

FUNC pollwake                           # rdi entry, esi mode, edx flags, rcx events or 0; eax
    PROLOGUE
    sub rsp, WAIT_SIZE + 8
    mov rax, [rdi+WAIT_PRIVATE]
    test rcx, rcx
    je .Lwake
    test [rax+PT_KEY], rcx
    je .Lnot
.Lwake:
    mov dword ptr [rax+PWQ_TRIGGERED], 1
    mov rax, [rax+PWQ_TASK]
    mov [rsp+WAIT_PRIVATE], rax         # an entry that stands for the poller
    mov rdi, rsp
    call default_wake_function
    leave
    ret
.Lnot:
    xor eax, eax
    leave
    ret
ENDFUNC pollwake

# The end of a timeout that begins now: rdi timespec to fill, rsi seconds, rdx nanoseconds; eax
FUNC poll_select_set_timeout
    ENTER3
    push 0
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    xor eax, eax
    mov rcx, rsi
    or rcx, rdx
    jne .Llater
    mov [rdi], rax
    mov [rdi+8], rax
    LEAVE3
.Llater:
    call ktime_get_ts64
    add r12, [rbx]
    add r13, [rbx+8]
    cmp r13, 1000000000
    jb .Lset
    sub r13, 1000000000
    inc r12
.Lset:
    mov [rbx], r12
    mov [rbx+8], r13
    xor eax, eax
    LEAVE3
ENDFUNC poll_select_set_timeout

POLLFD_EVENTS = 4                       # struct pollfd {int fd, short events, short revents}
POLLFD_REVENTS = 6
SYSPOLL_TABLE = 48 + PWQ_BYTES          # locals of do_sys_poll, below rbp
SYSPOLL_EXPIRES = SYSPOLL_TABLE + 8
SYSPOLL_USER = SYSPOLL_TABLE + 16
SYSPOLL_COUNT = SYSPOLL_TABLE + 20
SYSPOLL_TIMED_OUT = SYSPOLL_TABLE + 24
SYSPOLL_FD = SYSPOLL_TABLE + 32

FUNC do_sys_poll                        # rdi user pollfds, esi how many, rdx end time or 0; eax
    ENTER5
    sub rsp, SYSPOLL_FD + 8 - 40
    mov [rbp-SYSPOLL_USER], rdi
    mov r12d, esi
    mov r13, rdx
    mov eax, -EINVAL
    cmp esi, POLL_MAX
    ja .Lout
    xor r14d, r14d
    test esi, esi
    je .Lcopied
    lea edi, [rsi*8]
    mov esi, GFP_KERNEL
    call __kmalloc
    mov r14, rax
    test rax, rax
    mov eax, -ENOMEM
    je .Lout
    mov rdi, r14
    mov rsi, [rbp-SYSPOLL_USER]
    lea edx, [r12*8]
    call _copy_from_user
    test rax, rax
    mov r15d, -EFAULT
    jne .Lfree
.Lcopied:
    lea rdi, [rbp-SYSPOLL_TABLE]
    call poll_initwait
    mov dword ptr [rbp-SYSPOLL_TIMED_OUT], 0
    mov qword ptr [rbp-SYSPOLL_EXPIRES], 0
    test r13, r13
    je .Lpass
    imul rax, [r13], 1000000000
    add rax, [r13+8]
    mov [rbp-SYSPOLL_EXPIRES], rax
    jne .Lpass
    mov qword ptr [rbp-SYSPOLL_TABLE+PT_QPROC], 0       # only a look
    mov dword ptr [rbp-SYSPOLL_TIMED_OUT], 1
.Lpass:
    xor r15d, r15d
    xor ebx, ebx
.Lfd:
    cmp ebx, r12d
    jae .Lpassed
    mov word ptr [r14+rbx*8+POLLFD_REVENTS], 0
    mov edi, [r14+rbx*8]
    test edi, edi
    js .Lnext
    call __fdget
    mov [rbp-SYSPOLL_FD], rax
    mov rdi, rax
    mov eax, EPOLLNVAL
    and rdi, -4
    je .Lmask
    movzx ecx, word ptr [r14+rbx*8+POLLFD_EVENTS]
    or ecx, EPOLLERR | EPOLLHUP
    mov [rbp-SYSPOLL_TABLE+PT_KEY], rcx
    mov eax, DEFAULT_POLLMASK
    mov rdx, [rdi+FILE_OP]
    mov rdx, [rdx+FOPS_POLL]
    test rdx, rdx
    je .Lpolled
    lea rsi, [rbp-SYSPOLL_TABLE]
    call rdx
.Lpolled:
    movzx ecx, word ptr [r14+rbx*8+POLLFD_EVENTS]
    or ecx, EPOLLERR | EPOLLHUP
    and eax, ecx
    mov [rbp-SYSPOLL_COUNT], eax
    mov rcx, [rbp-SYSPOLL_FD]
    FDPUT rcx
    mov eax, [rbp-SYSPOLL_COUNT]
.Lmask:
    mov [r14+rbx*8+POLLFD_REVENTS], ax
    test eax, eax
    je .Lnext
    inc r15d
    mov qword ptr [rbp-SYSPOLL_TABLE+PT_QPROC], 0       # no need to wait any more
.Lnext:
    inc ebx
    jmp .Lfd
.Lpassed:
    mov qword ptr [rbp-SYSPOLL_TABLE+PT_QPROC], 0
    test r15d, r15d
    jne .Ldone
    mov r15d, [rbp-SYSPOLL_TABLE+PWQ_ERROR]
    mov rax, gs:[CURRENT_TASK]
    cmp dword ptr [rax+TASK_SIGPENDING], 0
    je .Lnosignal
    mov r15d, -EINTR
.Lnosignal:
    test r15d, r15d
    jne .Ldone
    cmp dword ptr [rbp-SYSPOLL_TIMED_OUT], 0
    jne .Ldone
    mov dword ptr [rax+TASK_STATE], TASK_INTERRUPTIBLE
    cmp dword ptr [rbp-SYSPOLL_TABLE+PWQ_TRIGGERED], 0
    jne .Lwoken
    xor edi, edi
    test r13, r13
    je .Lsleep
    lea rdi, [rbp-SYSPOLL_EXPIRES]
.Lsleep:
    xor esi, esi
    xor edx, edx                        # HRTIMER_MODE_ABS
    call schedule_hrtimeout_range
    test eax, eax
    jne .Lwoken
    mov dword ptr [rbp-SYSPOLL_TIMED_OUT], 1
.Lwoken:
    mov rax, gs:[CURRENT_TASK]
    mov dword ptr [rax+TASK_STATE], TASK_RUNNING
    mov dword ptr [rbp-SYSPOLL_TABLE+PWQ_TRIGGERED], 0
    jmp .Lpass
.Ldone:
    lea rdi, [rbp-SYSPOLL_TABLE]
    call poll_freewait
    test r12d, r12d
    je .Lfree
    mov rdi, [rbp-SYSPOLL_USER]
    mov rsi, r14
    lea edx, [r12*8]
    call _copy_to_user
    test rax, rax
    je .Lfree
    mov r15d, -EFAULT
.Lfree:
    mov rdi, r14
    call kfree
    mov eax, r15d
.Lout:
    LEAVE5
ENDFUNC do_sys_poll

FUNC __x64_sys_poll                     # rdi pt_regs: (pollfds, how many, milliseconds or -1)
    ENTER1
    sub rsp, 24
    mov rbx, rdi
    movsxd rax, dword ptr [rdi+PT_RDX]
    xor edx, edx
    test eax, eax
    js .Lpoll
    mov ecx, 1000
    xor edx, edx
    div ecx
    mov rdi, rsp
    mov esi, eax
    imul rdx, rdx, 1000000
    call poll_select_set_timeout
    mov rdx, rsp
.Lpoll:
    mov rdi, [rbx+PT_RDI]
    mov esi, [rbx+PT_RSI]
    call do_sys_poll
    movsxd rax, eax
    LEAVE1
ENDFUNC __x64_sys_poll
