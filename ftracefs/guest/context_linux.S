# What TRACE_CONTEXT calls when a Linux's words about its context differ from what they were at the last
# traced call.

# SOFTIRQ_OFFSET, what lies above it, HARDIRQ_MASK (include/linux/preempt.h)
LINUX_SOFTIRQ_OFFSET = 0x100
LINUX_BH_MASK = 0xfe00
LINUX_HARDIRQ_MASK = 0xf0000

# CONTEXT_WORDS and CONTEXT_CTX as they are now, and CURRENT_TASK. Counts are told apart up to 15; the
# others look like that. Keeps everything but rax r10 r11 and the flags.
FUNC_NOTRACE linux_context_changed
    CONTEXT_OF_LINUX
    push rdx
    push rcx
    mov rdx, r11
    mov r10, [rax + LINUX_STACK_CANARY]
    cmp r10, gs:[MIRRORED_CANARY]
    je .Lsame
    call linux_switch_mirror
.Lsame:
    mov gs:[CONTEXT_WORDS], rdx
    mov rcx, rdx
    shr rcx, 32
    mov eax, ecx
    shr eax, LINUX_TIF_NEED_RESCHED
    and eax, 1
    shl eax, 18
    mov r10d, ecx
    shr r10d, 16                            # migration_disabled
    cmp r10d, 16
    sbb r11d, r11d
    not r11d
    or r11d, r10d
    shl r11d, 28
    or eax, r11d
    not ecx
    and ecx, X86_EFLAGS_IF
    shl ecx, 16 - 9
    or eax, ecx
    mov r11d, edx                           # preempt_count
    shr r11d, 4
    and r11d, 15
    neg r11d
    sbb r11d, r11d
    or r11d, edx
    and r11d, 15
    shl r11d, 24
    or eax, r11d
    mov r11d, edx
    and r11d, LINUX_SOFTIRQ_OFFSET
    shl r11d, 12
    or eax, r11d
    xor r11d, r11d
    test edx, LINUX_HARDIRQ_MASK
    setne r11b
    shl r11d, 19
    or eax, r11d
    xor r11d, r11d
    test edx, LINUX_BH_MASK
    setne r11b
    shl r11d, 23
    or eax, r11d
    not edx                                 # PREEMPT_NEED_RESCHED is kept the other way round
    shr edx, 31
    shl edx, 21
    or eax, edx
    mov edx, gs:[CURRENT_PID]
    shl rdx, 32
    or rdx, rax
    mov gs:[CONTEXT_CTX], rdx
    pop rcx
    pop rdx
    ret
ENDFUNC linux_context_changed
