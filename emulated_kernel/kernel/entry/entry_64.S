# arch/x86/entry: system calls, interrupts and exceptions. Everything runs at privilege level 0, a
# task's user mode being the safepoint `user_mode`; so an interrupt frame lies on the current stack.
#
# Who walks the stack by frame pointers finds in rbp, as in Linux: 0 behind a system call, whose
# caller is no part of the kernel, and a pt_regs with bit 0 set behind an interrupt or exception.

.text

.macro PUSH_REGS
    push rdi
    push rsi
    push rdx
    push rcx
    push rax
    push r8
    push r9
    push r10
    push r11
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
.endm

.macro POP_REGS
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop r11
    pop r10
    pop r9
    pop r8
    pop rax
    pop rcx
    pop rdx
    pop rsi
    pop rdi
.endm

# The host enters with rax = number, arguments in rdi rsi rdx r10 r8 r9, rcx = user address to return
# to and r11 = flags, as the syscall instruction leaves them.
FUNC_NOTRACE entry_SYSCALL_64
    or byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_IRQS_OFF
    push KERNEL_DS
    push rsp
    add qword ptr [rsp], 8              # where it was before the first push
    push r11
    push KERNEL_CS
    push rcx
entry_SYSCALL_64_after_hwframe:
    push rax
    PUSH_REGS
    xor ebp, ebp
    mov rdi, rsp
    mov esi, eax
    call do_syscall_64
    POP_REGS
    add rsp, 8                          # orig_rax
    and byte ptr gs:[IRQ_FLAGS], 0xfe
    pop rcx
    add rsp, 8
    pop r11
    pop rsp
    sti
    jmp rcx
ENDFUNC entry_SYSCALL_64

FUNC_NOTRACE do_syscall_64              # rdi pt_regs, esi number
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    mov rbx, rdi
    STATIC_CALL_COND trace_hardirqs_off
    LOCAL_IRQ_ENABLE
    mov r12, gs:[CURRENT_TASK]
    mov [r12 + TASK_SYSCALL_NR], rsi
    mov rax, -ENOSYS
    cmp esi, NR_SYSCALLS
    jae .Lout
    mov eax, esi
    mov rax, [sys_call_table + rax*8]
    test rax, rax
    jne .Lknown
    mov rax, offset __x64_sys_ni_syscall
.Lknown:
    call rax
.Lout:
    mov [rbx + PT_RAX], rax
    mov r12, gs:[CURRENT_TASK]
    mov [r12 + TASK_RETVAL], rax
    mov rdi, rbx
    call syscall_exit_to_user_mode
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC do_syscall_64

FUNC_NOTRACE syscall_exit_to_user_mode  # rdi pt_regs
    push rbp
    mov rbp, rsp
    LOCAL_IRQ_DISABLE
    call exit_to_user_mode_prepare
    STATIC_CALL_COND trace_hardirqs_on
    pop rbp
    ret
ENDFUNC syscall_exit_to_user_mode

FUNC __x64_sys_ni_syscall
    PROLOGUE
    mov rax, -ENOSYS
    EPILOGUE
ENDFUNC __x64_sys_ni_syscall

# Work that is due before a task goes back to user mode (kernel/entry/common.c).
FUNC exit_to_user_mode_prepare          # rdi pt_regs; interrupts off
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
.Lloop:
    mov r12, gs:[CURRENT_TASK]
    cmp dword ptr gs:[NEED_RESCHED], 0
    jne .Lresched
    cmp dword ptr [r12 + TASK_SIGPENDING], 0
    je .Lout
    LOCAL_IRQ_ENABLE
    mov rdi, rbx
    call arch_do_signal_or_restart
    LOCAL_IRQ_DISABLE
    jmp .Lloop
.Lresched:
    LOCAL_IRQ_ENABLE
    call schedule
    LOCAL_IRQ_DISABLE
    jmp .Lloop
.Lout:
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC exit_to_user_mode_prepare

# An interrupt enters at asm_NAME, which saves the registers and calls NAME with pt_regs in rdi.
.macro IDTENTRY_SYSVEC name
FUNC_NOTRACE asm_\name
    push -1
    PUSH_REGS
    or byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_IRQS_OFF
    inc qword ptr gs:[IRQ_COUNT]
    lea rbp, [rsp + 1]
    mov rdi, rsp
    and rsp, -16
    call \name
    lea rdi, [rbp - 1]
    call irqentry_exit
    lea rsp, [rbp - 1]
    POP_REGS
    add rsp, 8
    iretq
ENDFUNC asm_\name
.endm

# The handler proper runs between irq_enter_rcu and irq_exit_rcu.
.macro DEFINE_IDTENTRY_SYSVEC name
FUNC_NOTRACE \name
    push rbp
    mov rbp, rsp
    push rbx
    mov rbx, rdi
    STATIC_CALL_COND trace_hardirqs_off
    call irq_enter_rcu
    mov rdi, rbx
    call __\name
    call irq_exit_rcu
    pop rbx
    pop rbp
    ret
ENDFUNC \name
.endm

IDTENTRY_SYSVEC sysvec_apic_timer_interrupt
IDTENTRY_SYSVEC sysvec_call_function_single
IDTENTRY_SYSVEC sysvec_reschedule_ipi
IDTENTRY_SYSVEC common_interrupt
DEFINE_IDTENTRY_SYSVEC sysvec_apic_timer_interrupt
DEFINE_IDTENTRY_SYSVEC sysvec_call_function_single
DEFINE_IDTENTRY_SYSVEC common_interrupt

# Nothing but a reason to look at NEED_RESCHED on the way out.
FUNC_NOTRACE sysvec_reschedule_ipi
    PROLOGUE
    STATIC_CALL_COND trace_hardirqs_off
    inc qword ptr [rip + irq_resched_count]
    EPILOGUE
ENDFUNC sysvec_reschedule_ipi

FUNC_NOTRACE irqentry_exit              # rdi pt_regs
    mov rax, offset user_mode_halt
    cmp [rdi + PT_RIP], rax
    je irqentry_exit_to_user_mode
    mov rax, offset host_call_halt      # between two slices of a call a task may be preempted too
    cmp [rdi + PT_RIP], rax
    je irqentry_exit_to_user_mode
    test dword ptr [rdi + PT_EFLAGS], 0x200
    je .Lout
    PROLOGUE
    STATIC_CALL_COND trace_hardirqs_on
    and byte ptr gs:[IRQ_FLAGS], 0xfe
    pop rbp
.Lout:
    ret
ENDFUNC irqentry_exit

FUNC_NOTRACE irqentry_exit_to_user_mode # rdi pt_regs
    push rbp
    mov rbp, rsp
    call exit_to_user_mode_prepare
    STATIC_CALL_COND trace_hardirqs_on
    and byte ptr gs:[IRQ_FLAGS], 0xfe
    pop rbp
    ret
ENDFUNC irqentry_exit_to_user_mode

# Exceptions. Only kernel code faults here: each that has no fixup is an oops that ends the task.
.macro IDTENTRY name, trap
FUNC_NOTRACE \name
    PUSH_REGS                           # the processor pushed an error code where orig_rax goes
    or byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_IRQS_OFF
    lea rbp, [rsp + 1]
    mov rdi, rsp
    mov esi, \trap
    and rsp, -16
    call exc_kernel_fault
    mov rsp, rax
    POP_REGS
    add rsp, 8
    iretq
ENDFUNC \name
.endm
.macro IDTENTRY_NO_CODE name, trap
FUNC_NOTRACE \name
    push 0
    PUSH_REGS
    or byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_IRQS_OFF
    lea rbp, [rsp + 1]
    mov rdi, rsp
    mov esi, \trap
    and rsp, -16
    call exc_kernel_fault
    mov rsp, rax
    POP_REGS
    add rsp, 8
    iretq
ENDFUNC \name
.endm

IDTENTRY_NO_CODE asm_exc_divide_error, 0
IDTENTRY_NO_CODE asm_exc_invalid_op, 6
IDTENTRY asm_exc_general_protection, 13
IDTENTRY asm_exc_page_fault, 14

# rdi pt_regs, esi trap; rax pt_regs, if the instruction has a fixup to go on at.
FUNC_NOTRACE exc_kernel_fault
    ENTER2
    mov rbx, rdi
    mov r12d, esi
    call fixup_exception
    test eax, eax
    jne .Lfixed
    mov rdi, rbx
    mov esi, r12d
    cmp esi, 14
    jne .Ldie
    mov rdx, gs:[HOST_ARG]              # cr2
    xor esi, esi
    call bad_area_nosemaphore
.Ldie:
    call die
    ud2
.Lfixed:
    mov qword ptr gs:[HOST_ARG], 0
    test dword ptr [rbx + PT_EFLAGS], 0x200
    je .Lout
    and byte ptr gs:[IRQ_FLAGS], 0xfe
.Lout:
    mov rax, rbx
    LEAVE2
ENDFUNC exc_kernel_fault

FUNC bad_area_nosemaphore               # rdi pt_regs, rsi error code, rdx address
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    mov r12, rdx
    mov rax, gs:[CURRENT_TASK]
    mov [rax + TASK_PRIVATE], rdx       # thread.cr2
    call page_fault_oops
    mov rax, r12
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC bad_area_nosemaphore

FUNC page_fault_oops                    # rdi pt_regs, rsi error code, rdx address
    PROLOGUE
    push rbx
    push r12
    mov rbx, rdi
    call oops_begin
    mov r12, rax
    mov rdi, rbx
    mov esi, 14
    call __die
    mov rdi, r12
    mov rsi, rbx
    mov edx, SIGSEGV
    call oops_end
    pop r12
    pop rbx
    EPILOGUE
ENDFUNC page_fault_oops

FUNC die                                # rdi pt_regs, esi trap
    ENTER3
    mov rbx, rdi
    mov r12d, esi
    call oops_begin
    mov r13, rax
    mov rdi, rbx
    mov esi, r12d
    call __die
    mov rdi, r13
    mov rsi, rbx
    mov edx, SIGSEGV
    call oops_end
    LEAVE3
ENDFUNC die

# Left out: the report, and that a notifier may save the task (NOTIFY_STOP).
FUNC __die                              # rdi pt_regs, esi trap
    PROLOGUE
    inc dword ptr [rip + oops_count]
    call __die_body
    EPILOGUE
ENDFUNC __die

FUNC __die_body                         # rdi pt_regs, esi trap
    PROLOGUE
    mov rdx, rdi
    mov r8d, esi
    mov edi, DIE_OOPS
    mov rsi, offset oops_text
    xor ecx, ecx
    mov r9d, SIGSEGV
    call notify_die
    EPILOGUE
ENDFUNC __die_body

FUNC oops_begin                         # rax: flags for oops_end
    PROLOGUE
    inc dword ptr [rip + die_nest_count]
    movzx eax, byte ptr gs:[IRQ_FLAGS]
    EPILOGUE
ENDFUNC oops_begin

FUNC oops_end                           # rdi flags, rsi pt_regs, edx signal; does not return
    PROLOGUE
    dec dword ptr [rip + die_nest_count]
    mov edi, edx
    call host_kill_current
    EPILOGUE
ENDFUNC oops_end

.data
oops_text:
    .asciz "Oops"
.balign 8
OBJECT oops_count
    .long 0
ENDOBJECT oops_count
OBJECT die_nest_count
    .long 0
ENDOBJECT die_nest_count
OBJECT irq_resched_count
    .quad 0
ENDOBJECT irq_resched_count
