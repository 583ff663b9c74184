# kernel/irq/, arch/x86/kernel/irq.c: device interrupts, from the vector to the drivers' handlers.
# The host leaves the number of the interrupt in the per-CPU word HOST_ARG.
# Left out: threaded handlers, affinity, chips other than an edge-triggered APIC.

.text

FUNC __common_interrupt                 # rdi pt_regs; interrupts off
    PROLOGUE
    mov rdi, gs:[HOST_ARG]
    call irq_to_desc
    test rax, rax
    je .Lspurious
    mov rdi, rax
    call [rax + IRQ_DESC_HANDLER]
    EPILOGUE
.Lspurious:
    lock inc qword ptr [rip + irq_err_count]
    call apic_ack_irq
    EPILOGUE
ENDFUNC __common_interrupt

FUNC irq_to_desc                        # edi interrupt; rax its descriptor or 0
    PROLOGUE
    xor eax, eax
    cmp rdi, NR_IRQS
    jae 1f
    mov eax, edi
    shl eax, 6
    add rax, offset irq_desc
1:
    EPILOGUE
ENDFUNC irq_to_desc

FUNC apic_ack_irq
    PROLOGUE
    inc qword ptr [rip + apic_eois]
    EPILOGUE
ENDFUNC apic_ack_irq

FUNC apic_ack_edge                      # rdi descriptor
    PROLOGUE
    call apic_ack_irq
    EPILOGUE
ENDFUNC apic_ack_edge

FUNC handle_edge_irq                    # rdi descriptor
    ENTER1
    push rax
    mov rbx, rdi
    call _raw_spin_lock
    cmp qword ptr [rbx + IRQ_DESC_ACTION], 0
    je .Lpend
    cmp dword ptr [rbx + IRQ_DESC_DEPTH], 0
    jne .Lpend
    inc qword ptr [rbx + IRQ_DESC_COUNT]
    mov rdi, rbx
    call apic_ack_edge
.Lagain:
    mov rdi, rbx
    call handle_irq_event
    test dword ptr [rbx + IRQ_DESC_STATE], IRQS_PENDING
    jne .Lagain
    jmp .Lout
.Lpend:
    or dword ptr [rbx + IRQ_DESC_STATE], IRQS_PENDING
    mov rdi, rbx
    call apic_ack_edge
.Lout:
    mov rdi, rbx
    call _raw_spin_unlock
    LEAVE1
ENDFUNC handle_edge_irq

FUNC handle_irq_event                   # rdi descriptor, locked; unlocked while handlers run
    ENTER2
    mov rbx, rdi
    and dword ptr [rbx + IRQ_DESC_STATE], ~IRQS_PENDING
    or dword ptr [rbx + IRQ_DESC_STATE], IRQD_IN_PROGRESS
    call _raw_spin_unlock
    mov rdi, rbx
    call handle_irq_event_percpu
    mov r12d, eax
    mov rdi, rbx
    call _raw_spin_lock
    and dword ptr [rbx + IRQ_DESC_STATE], ~IRQD_IN_PROGRESS
    mov eax, r12d
    LEAVE2
ENDFUNC handle_irq_event

FUNC handle_irq_event_percpu
    ENTER2
    mov rbx, rdi
    call __handle_irq_event_percpu
    mov r12d, eax
    mov edi, [rbx + IRQ_DESC_IRQ]
    call add_interrupt_randomness
    mov rdi, rbx
    mov esi, r12d
    call note_interrupt
    mov eax, r12d
    LEAVE2
ENDFUNC handle_irq_event_percpu

FUNC __handle_irq_event_percpu          # rdi descriptor; eax what its handlers answered, together
    ENTER3
    mov rbx, [rdi + IRQ_DESC_ACTION]
    mov r12d, [rdi + IRQ_DESC_IRQ]
    xor r13d, r13d
.Lnext:
    test rbx, rbx
    je .Lout
    TRACE irq_handler_entry, .Ltrace_entry
.Lentry:
    mov edi, r12d
    mov rsi, [rbx + IRQACTION_DEV]
    call [rbx + IRQACTION_HANDLER]
    or r13d, eax
    TRACE irq_handler_exit, .Ltrace_exit
.Lexit:
    mov rbx, [rbx + IRQACTION_NEXT]
    jmp .Lnext
.Lout:
    mov eax, r13d
    LEAVE3
.Ltrace_entry:
    mov esi, r12d
    mov rdx, rbx
    DO_TRACE irq_handler_entry
    jmp .Lentry
.Ltrace_exit:
    mov esi, r12d
    mov rdx, rbx
    mov ecx, eax
    DO_TRACE irq_handler_exit
    jmp .Lexit
ENDFUNC __handle_irq_event_percpu

DEFINE_TRACE irq_handler_entry          # esi interrupt, rdx action
DEFINE_TRACE irq_handler_exit           # esi interrupt, rdx action, ecx what its handler answered

FUNC note_interrupt                     # rdi descriptor, esi what the handlers answered
    PROLOGUE
    test esi, esi
    jne 1f
    inc qword ptr [rdi + IRQ_DESC_UNHANDLED]
1:
    EPILOGUE
ENDFUNC note_interrupt

# edi interrupt, rsi handler, rdx thread function, ecx flags, r8 name, r9 device: 0 or an error.
FUNC request_threaded_irq
    ENTER5
    push r9
    mov ebx, edi
    mov r12, rsi
    mov r13d, ecx
    mov r14, r8
    mov edi, edi
    call irq_to_desc
    mov r15, rax
    mov eax, -EINVAL
    test r15, r15
    je .Lout
    test r12, r12
    je .Lout
    mov edi, IRQACTION_SIZE
    mov esi, GFP_KERNEL | GFP_ZERO
    call __kmalloc
    mov rsi, rax
    mov eax, -ENOMEM
    test rsi, rsi
    je .Lout
    mov [rsi + IRQACTION_HANDLER], r12
    mov rcx, [rbp - 48]
    mov [rsi + IRQACTION_DEV], rcx
    mov [rsi + IRQACTION_IRQ], ebx
    mov [rsi + IRQACTION_FLAGS], r13d
    mov [rsi + IRQACTION_NAME], r14
    mov rdi, r15
    call __setup_irq
.Lout:
    cdqe
    LEAVE5
ENDFUNC request_threaded_irq

FUNC __setup_irq                        # rdi descriptor, rsi action; 0
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    call _raw_spin_lock_irqsave
    lea rcx, [rbx + IRQ_DESC_ACTION]
.Lend:
    mov rdx, [rcx]
    test rdx, rdx
    je .Lappend
    lea rcx, [rdx + IRQACTION_NEXT]
    jmp .Lend
.Lappend:
    mov [rcx], r12
    mov rdi, rbx
    mov esi, eax
    call _raw_spin_unlock_irqrestore
    xor eax, eax
    LEAVE2
ENDFUNC __setup_irq

FUNC free_irq                           # edi interrupt, rsi device; rax the action's name or 0
    ENTER4
    mov r12, rsi
    mov edi, edi
    call irq_to_desc
    test rax, rax
    je .Lout
    mov rbx, rax
    mov rdi, rax
    call _raw_spin_lock_irqsave
    mov r14d, eax
    lea rcx, [rbx + IRQ_DESC_ACTION]
.Lfind:
    mov r13, [rcx]
    test r13, r13
    je .Lunlock
    cmp [r13 + IRQACTION_DEV], r12
    je .Lunlink
    lea rcx, [r13 + IRQACTION_NEXT]
    jmp .Lfind
.Lunlink:
    mov rax, [r13 + IRQACTION_NEXT]
    mov [rcx], rax
.Lunlock:
    mov rdi, rbx
    mov esi, r14d
    call _raw_spin_unlock_irqrestore
    xor eax, eax
    test r13, r13
    je .Lout
    mov r12, [r13 + IRQACTION_NAME]
    mov rdi, r13
    call kfree
    mov rax, r12
.Lout:
    LEAVE4
ENDFUNC free_irq

# --- /sys/kernel/irq/N (irqdesc.c): rdi descriptor, rsi attribute, rdx page; rax length -----------

FUNC_STATIC name_show
    PROLOGUE
    mov rcx, [rdi + IRQ_DESC_NAME]
    mov rdi, rdx
    xor eax, eax
    test rcx, rcx
    je 1f
    mov rdx, rcx
    mov rsi, offset string_line
    call sprintf
1:
    EPILOGUE
ENDFUNC name_show

FUNC_STATIC hwirq_show
    PROLOGUE
    mov ecx, [rdi + IRQ_DESC_IRQ]
    mov rdi, rdx
    mov edx, ecx
    mov rsi, offset number_line
    call sprintf
    EPILOGUE
ENDFUNC hwirq_show

FUNC_STATIC actions_show
    ENTER3
    mov r12, rdx
    mov rbx, [rdi + IRQ_DESC_ACTION]
    mov r13, rdx
.Lnext:
    test rbx, rbx
    je .Lend
    cmp r12, r13
    je 1f
    mov byte ptr [r12], 44
    inc r12
1:
    mov rdi, r12
    mov rsi, [rbx + IRQACTION_NAME]
    call strcpy
    mov rdi, r12
    call strlen
    add r12, rax
    mov rbx, [rbx + IRQACTION_NEXT]
    jmp .Lnext
.Lend:
    mov rax, r12
    sub rax, r13
    je .Lout
    mov byte ptr [r12], 10
    mov byte ptr [r12 + 1], 0
    inc rax
.Lout:
    LEAVE3
ENDFUNC actions_show

FUNC_NOTRACE irq_sysfs_init             # a directory for each interrupt there can be
    ENTER2
    sub rsp, 32
    xor ebx, ebx
.Lirq:
    mov rdi, rsp
    mov rsi, offset irq_path_format
    mov edx, ebx
    call sprintf
    mov rdi, [rip + sysfs_root_kn]
    mov rsi, rsp
    call sysfs_make_path
    mov r12, rax
    mov edi, ebx
    call irq_to_desc
    mov [r12 + KN_PRIV], rax
    mov rdi, r12
    mov rsi, offset irq_name_attr
    call sysfs_create_file_ns
    mov rdi, r12
    mov rsi, offset irq_hwirq_attr
    call sysfs_create_file_ns
    mov rdi, r12
    mov rsi, offset irq_actions_attr
    call sysfs_create_file_ns
    inc ebx
    cmp ebx, NR_IRQS
    jb .Lirq
    LEAVE2
ENDFUNC irq_sysfs_init

.macro IRQ_DESC number, name
    .long 0, \number
    .quad handle_edge_irq, 0, \name, 0, 0, 0, 0
.endm

.data
.balign 64
OBJECT irq_desc
    IRQ_DESC 0, edge_name
    IRQ_DESC 1, edge_name
    IRQ_DESC 2, edge_name
    IRQ_DESC 3, edge_name
    IRQ_DESC 4, edge_name
    IRQ_DESC 5, edge_name
    IRQ_DESC 6, edge_name
    IRQ_DESC 7, edge_name
    IRQ_DESC 8, edge_name
    IRQ_DESC 9, edge_name
    IRQ_DESC 10, edge_name
    IRQ_DESC 11, edge_name
    IRQ_DESC 12, edge_name
    IRQ_DESC 13, edge_name
    IRQ_DESC 14, edge_name
    IRQ_DESC 15, edge_name
ENDOBJECT irq_desc
OBJECT irq_err_count
    .quad 0
ENDOBJECT irq_err_count
apic_eois:
    .quad 0
irq_name_attr:
    .quad irq_name_text, 0x124, name_show, 0
irq_hwirq_attr:
    .quad irq_hwirq_text, 0x124, hwirq_show, 0
irq_actions_attr:
    .quad irq_actions_text, 0x124, actions_show, 0
irq_path_format:
    .asciz "kernel/irq/%u"
irq_name_text:
    .asciz "name"
irq_hwirq_text:
    .asciz "hwirq"
irq_actions_text:
    .asciz "actions"
edge_name:
    .asciz "edge"
string_line:
    .asciz "%s\n"
number_line:
    .asciz "%u\n"
.text
