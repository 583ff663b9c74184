# Unicorn hooks in host machine code, for a vCPU that is a whole PC (native_hooks.py).
#
# They run inside uc_emu_start with the host's calling convention, in a page of the process and not of
# the guest; the words below are filled in for each vCPU. ENV_ constants are offsets in CPUX86State.

.data
.balign 16
native_uc:
    .quad 0
native_cpu:
    .quad 0
native_env:
    .quad 0
native_ram:
    .quad 0
stop_flags:                                 # an interrupt is pending; the host wants a turn
    .quad 0
uninterrupted_start:                        # text in which the guest is not stopped
    .quad 0
uninterrupted_bytes:
    .quad 0
hypercalls_start:                           # text whose hypercalls are the host's
    .quad 0
hypercalls_bytes:
    .quad 0
user_stop:                                  # behind the one in user mode that is
    .quad 0
open_records:                               # where the guest counts records it has not finished, or 0
    .quad 0
patience:                                   # for how many blocks it is not stopped because of them
    .quad 0
int3_to_host:                               # not zero: text is being patched
    .quad 0
told:                                       # the guest was stopped by native_block
    .quad 0
ticks:                                      # of the counted clock: bytes of code that have run
    .quad 0
deadline:                                   # the tick at which the host has something to do
    .quad -1
on_interrupt:                               # the host's own function for an interrupt
    .quad 0
exceptions:                                 # delivered so far
    .quad 0
syscalls:
    .quad 0
on_out:                                     # the host's own function for `out`
    .quad 0
sending_port:                               # where bytes are only to be sent, or nowhere
    .quad -1
sent:                                       # how many have been written there since
    .quad 0
sent_bytes:
    .zero SENT_MAX
uc_emu_stop:
    .quad 0
x86_cpu_do_interrupt:
    .quad 0
helper_read_eflags:
    .quad 0
tb_invalidate_phys_page_range:
    .quad 0
tb_invalidate_before:                       # what stood in the two slots of the library
    .quad 0
tlb_reset_dirty:
    .quad 0
tlb_protect_before:
    .quad 0

.text

# (uc, address, size, data), in front of every block of code. Stops there if an interrupt is pending
# that may be delivered, or if the host wants a turn; not in the engine's text, nor while a probe of the
# guest's writes a record.
FUNC_NOTRACE native_block
    cmp word ptr [rip + stop_flags], 0
    je .Lout
    mov rax, rsi
    sub rax, [rip + uninterrupted_start]
    cmp rax, [rip + uninterrupted_bytes]
    jb .Lout
    mov rax, [rip + open_records]
    test rax, rax
    je .Lclosed
    cmp dword ptr [rax], 0
    je .Lpatient
    dec qword ptr [rip + patience]
    jns .Lout
    mov dword ptr [rax], 0                  # whoever should have finished it did not come to it
.Lpatient:
    mov qword ptr [rip + patience], PATIENCE
.Lclosed:
    cmp byte ptr [rip + stop_flags + 1], 0
    jne native_stop
    mov rax, [rip + native_env]
    test dword ptr [rax + ENV_EFLAGS], EFLAGS_IF
    je .Lout
    test dword ptr [rax + ENV_HFLAGS], HF_INHIBIT_IRQ
    jne .Lout
    jmp native_stop
.Lout:
    ret
ENDFUNC native_block

# (uc)
FUNC_NOTRACE native_stop
    mov qword ptr [rip + told], 1
    mov rax, [rip + uc_emu_stop]
    jmp rax
ENDFUNC native_stop

# The same where blocks make the guest's time. It also stops at the deadline, at the first block that
# may be stopped at, interrupts on or off. A block that it stops at has not run, and counts later: who
# stops the guest, and how often, cannot be told from its time.
FUNC_NOTRACE native_counted_block
    mov rax, [rip + ticks]
    cmp word ptr [rip + stop_flags], 0
    jne .Lasked
    cmp rax, [rip + deadline]
    jae .Lasked
.Lcount:
    mov edx, edx
    add rax, rdx
    mov [rip + ticks], rax
    ret
.Lasked:
    mov rcx, rsi
    sub rcx, [rip + uninterrupted_start]
    cmp rcx, [rip + uninterrupted_bytes]
    jb .Lcount
    cmp rax, [rip + deadline]
    jae native_stop
    cmp byte ptr [rip + stop_flags + 1], 0
    jne native_stop
    mov rcx, [rip + native_env]
    test dword ptr [rcx + ENV_EFLAGS], EFLAGS_IF
    je .Lcount
    test dword ptr [rcx + ENV_HFLAGS], HF_INHIBIT_IRQ
    jne .Lcount
    jmp native_stop
ENDFUNC native_counted_block

# (uc, data): rdtsc and rdtscp by the counted clock. They return 1: the instruction is done.
FUNC_NOTRACE native_rdtscp
    mov rax, [rip + native_env]
    mov qword ptr [rax + ENV_RCX], 0        # processor 0
    jmp native_rdtsc
ENDFUNC native_rdtscp
FUNC_NOTRACE native_rdtsc
    mov rax, [rip + native_env]
    mov rcx, [rip + ticks]
    mov edx, ecx
    mov [rax + ENV_RAX], rdx
    shr rcx, 32
    mov [rax + ENV_RDX], rcx
    mov eax, 1
    ret
ENDFUNC native_rdtsc

# (uc, port, size, value, data): `out`. A byte that is only to be sent is kept for the host.
FUNC_NOTRACE native_out
    mov eax, esi
    cmp rax, [rip + sending_port]
    jne .Lhost
    cmp edx, 1
    jne .Lhost
    mov rax, [rip + sent]
    cmp rax, SENT_MAX
    jae .Lhost
    lea r9, [rip + sent_bytes]
    mov [r9 + rax], cl
    inc qword ptr [rip + sent]
    ret
.Lhost:
    mov rax, [rip + on_out]
    jmp rax
ENDFUNC native_out

# (uc, vector, data): QEMU's own delivery through the guest's IDT. A hypercall of the host's code in
# the guest, and int3 while text is being patched, are the host's.
FUNC_NOTRACE native_interrupt
    cmp esi, HYPERCALL
    jne .Lint3
    mov rax, [rip + native_env]
    mov rax, [rax + ENV_RIP]
    cmp rax, [rip + user_stop]
    je .Lhost
    sub rax, [rip + hypercalls_start]
    cmp rax, [rip + hypercalls_bytes]
    jae .Lguest
.Lhost:
    mov rax, [rip + on_interrupt]
    jmp rax
.Lint3:
    cmp esi, 3
    jne .Lguest
    cmp qword ptr [rip + int3_to_host], 0
    jne .Lhost
.Lguest:
    inc qword ptr [rip + exceptions]
    mov rdi, [rip + native_cpu]
    mov rax, [rip + x86_cpu_do_interrupt]
    jmp rax
ENDFUNC native_interrupt

# (uc, data): the exception is #UD already.
FUNC_NOTRACE native_invalid
    sub rsp, 8
    inc qword ptr [rip + exceptions]
    mov rdi, [rip + native_cpu]
    mov rax, [rip + x86_cpu_do_interrupt]
    call rax
    mov eax, 1
    add rsp, 8
    ret
ENDFUNC native_invalid

# (uc, data): what `syscall` does in 64-bit mode, which Unicorn leaves to the hook. The instruction
# ends with rip + 2, so that much is taken off.
FUNC_NOTRACE native_syscall
    push rbx
    inc qword ptr [rip + syscalls]
    mov rbx, [rip + native_env]
    mov rdi, rbx
    mov rax, [rip + helper_read_eflags]
    call rax
    or eax, 2
    mov [rbx + ENV_R11], rax
    mov rcx, [rbx + ENV_RIP]
    add rcx, 2
    mov [rbx + ENV_RCX], rcx
    mov rdx, [rbx + ENV_FMASK]
    or rdx, EFLAGS_RF
    not rdx
    and rdx, rax
    mov ecx, edx
    and ecx, CC_MASK
    mov [rbx + ENV_CC_SRC], rcx
    mov dword ptr [rbx + ENV_CC_OP], CC_OP_EFLAGS
    mov ecx, 1
    test edx, EFLAGS_DF
    je 1f
    neg ecx
1:  mov [rbx + ENV_DF], ecx
    and edx, 0xfffff32a
    or edx, 2
    mov [rbx + ENV_EFLAGS], rdx
    mov ecx, [rbx + ENV_STAR + 4]
    and ecx, 0xfffc
    mov [rbx + ENV_CS], ecx
    add ecx, 8
    mov [rbx + ENV_SS], ecx
    xor ecx, ecx
    mov [rbx + ENV_CS + 8], rcx
    mov [rbx + ENV_SS + 8], rcx
    dec ecx
    mov [rbx + ENV_CS + 16], ecx
    mov [rbx + ENV_SS + 16], ecx
    mov dword ptr [rbx + ENV_CS + 20], FLAT_CODE
    mov dword ptr [rbx + ENV_SS + 20], FLAT_DATA
    mov ecx, [rbx + ENV_HFLAGS]
    and ecx, 0xffffffbc
    or ecx, 0x8030
    mov [rbx + ENV_HFLAGS], ecx
    mov rcx, [rbx + ENV_LSTAR]
    sub rcx, 2
    mov [rbx + ENV_RIP], rcx
    pop rbx
    ret
ENDFUNC native_syscall

# (uc, pages, start, length): a store to a page with translated code. All of the page's translations
# go, since what else has been stored there through another mapping was not told.
FUNC_NOTRACE native_tb_invalidate
    cmp rdi, [rip + native_uc]
    jne .Lother
    and rdx, -4096
    mov rsi, rdx
    lea rdx, [rsi + 4096]
    mov rax, [rip + tb_invalidate_phys_page_range]
    jmp rax
.Lother:
    mov rax, [rip + tb_invalidate_before]
    jmp rax
ENDFUNC native_tb_invalidate

# (uc, ram_addr): a page gets its first translation: stores to it are to be told, through whatever
# mapping.
FUNC_NOTRACE native_tlb_protect
    cmp rdi, [rip + native_uc]
    jne .Lother
    mov rdi, [rip + native_cpu]
    and rsi, -4096
    add rsi, [rip + native_ram]
    mov edx, 4096
    mov rax, [rip + tlb_reset_dirty]
    jmp rax
.Lother:
    mov rax, [rip + tlb_protect_before]
    jmp rax
ENDFUNC native_tlb_protect
