# The housekeeping of mm/vmstat.c: a delayed work on each CPU folds what the CPU counted for
# itself into the machine's totals, and a shepherd sees once a second which CPUs have something to
# fold.

.text

FUNC_NOTRACE start_shepherd_timer
    ENTER2
    mov rax, offset vmstat_shepherd
    mov [rip + shepherd + WORK_FUNC], rax
    xor ebx, ebx
.Lnext:
    imul eax, ebx, DWORK_SIZE
    mov rcx, offset vmstat_update
    mov [rax + vmstat_work + WORK_FUNC], rcx
    inc ebx
    cmp ebx, 8
    jb .Lnext
    mov edi, WORK_CPU_UNBOUND
    mov rsi, offset system_wq
    mov rdx, offset shepherd
    mov ecx, HZ
    call queue_delayed_work_on
    LEAVE2
ENDFUNC start_shepherd_timer

FUNC vmstat_shepherd
    ENTER2
    xor ebx, ebx
.Lnext:
    imul r12d, ebx, DWORK_SIZE
    add r12, offset vmstat_work
    test byte ptr [r12 + WORK_DATA], WORK_STRUCT_PENDING
    jne .Lbusy
    mov edi, ebx
    call need_update
    test eax, eax
    je .Lbusy
    mov edi, ebx
    mov rsi, offset system_wq
    mov rdx, r12
    xor ecx, ecx
    call queue_delayed_work_on
.Lbusy:
    inc ebx
    cmp ebx, [rip + nr_cpu_ids]
    jb .Lnext
    mov edi, WORK_CPU_UNBOUND
    mov rsi, offset system_wq
    mov rdx, offset shepherd
    mov ecx, HZ
    call queue_delayed_work_on
    LEAVE2
ENDFUNC vmstat_shepherd

FUNC need_update                        # edi CPU; eax: whether it has counted anything
    PROLOGUE
    mov edi, edi
    mov rdi, [percpu_table + rdi*8]
    mov rcx, [rdi + IRQ_COUNT]
    sub rcx, [rdi + IRQS_FOLDED]
    or rcx, [rdi + SOFTIRQS_RUN]
    setne al
    movzx eax, al
    EPILOGUE
ENDFUNC need_update

FUNC vmstat_update
    PROLOGUE
    call refresh_cpu_vm_stats
    EPILOGUE
ENDFUNC vmstat_update

FUNC refresh_cpu_vm_stats               # eax: how many counters changed
    ENTER1
    sub rsp, 24
    PREEMPT_DISABLE
    xor eax, eax
    xchg rax, gs:[SOFTIRQS_RUN]
    mov [rsp], rax
    mov rax, gs:[IRQ_COUNT]
    mov rcx, rax
    xchg rcx, gs:[IRQS_FOLDED]
    sub rax, rcx
    mov [rsp + 8], rax
    PREEMPT_ENABLE
    mov rdi, rsp
    call fold_diff
    LEAVE1
ENDFUNC refresh_cpu_vm_stats

FUNC fold_diff                          # rdi differences; eax: how many were not zero
    PROLOGUE
    xor eax, eax
    xor ecx, ecx
.Lnext:
    mov rdx, [rdi + rcx*8]
    test rdx, rdx
    je 1f
    lock add [rcx*8 + vm_stat], rdx
    inc eax
1:
    inc ecx
    cmp ecx, 2
    jb .Lnext
    EPILOGUE
ENDFUNC fold_diff

.data
.balign 64
OBJECT vm_stat                          # softirqs, interrupts
    .zero 16
ENDOBJECT vm_stat
shepherd:
    .zero DWORK_SIZE
vmstat_work:
    .zero 8 * DWORK_SIZE
.text
