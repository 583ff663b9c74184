# Trampolines: from a call site in the traced function to an op's callback and back
# (arch/x86/kernel/ftrace_64.S).
#
# A trampoline is entered by the 5-byte call at a function's entry:
#
#     rsp + 8     return address into the caller of the traced function
#     rsp         return address into the traced function, behind the call site
#
# and hands to its callback: rdi the call site, rsi the address the traced function returns to, rdx
# the op, rcx a pt_regs frame. Callbacks keep rdi rsi rdx rcx rbx rbp r12-r15 and may use rax r8-r11.
# rbp is still the caller's frame, so that a callback walks the stack from the caller on.
#
# ftrace_caller and ftrace_regs_caller serve every op that shares a function with another one. For an
# op that is alone on its functions create_trampoline copies them up to ..._end, with the op pointer
# behind the copy. What is patched in a copy, and later in live text, has a label: ..._op_ptr is the
# load of the op, ftrace_call and ftrace_regs_call the call of the callback.

# \added: bytes pushed between the return address and the frame.
.macro SAVE_MCOUNT_REGS added
    sub rsp, FRAME_BYTES
    mov [rsp + PT_RAX], rax
    mov [rsp + PT_RCX], rcx
    mov [rsp + PT_RDX], rdx
    mov [rsp + PT_RSI], rsi
    mov [rsp + PT_RDI], rdi
    mov [rsp + PT_R8], r8
    mov [rsp + PT_R9], r9
    mov rsi, [rsp + FRAME_BYTES + \added + 8]
    mov rdi, [rsp + FRAME_BYTES + \added]
    mov [rsp + PT_RIP], rdi
    sub rdi, MCOUNT_INSN_SIZE
.endm

# \keep: bytes of the frame's end that stay on the stack.
.macro RESTORE_MCOUNT_REGS keep
    mov r9, [rsp + PT_R9]
    mov r8, [rsp + PT_R8]
    mov rdi, [rsp + PT_RDI]
    mov rsi, [rsp + PT_RSI]
    mov rdx, [rsp + PT_RDX]
    mov rcx, [rsp + PT_RCX]
    mov rax, [rsp + PT_RAX]
    add rsp, FRAME_BYTES - \keep
.endm

# trace_test_and_set_recursion: a callback that is interrupted may run again in the interrupt, but not
# for what it calls itself. One bit for each context (task, hard interrupt, softirq, and a hard
# interrupt in a softirq) from bit \start on; leaves for \out if it is set. Uses rax, r8 and r9.
# Linux keeps the bits in the task; here a callback is never switched out.
.macro RECURSION_ENTER start, out
    mov r9, gs:[TRACE_CTX]                  # all of it at once: its bytes are read together, too
    mov rax, r9
    shr rax, CONTEXT_SHIFT
    and eax, 3
    add eax, \start
    mov r8d, gs:[TRACE_RECURSION]
    bts r8d, eax
    jb \out
    mov gs:[TRACE_RECURSION], r8d
    add r9, ONE_PREEMPT
    mov gs:[TRACE_CTX], r9
.endm

.macro RECURSION_LEAVE start
    mov rax, gs:[TRACE_CTX]
    sub rax, ONE_PREEMPT
    mov gs:[TRACE_CTX], rax
    shr rax, CONTEXT_SHIFT
    and eax, 3
    add eax, \start
    mov r8d, gs:[TRACE_RECURSION]
    btr r8d, eax
    mov gs:[TRACE_RECURSION], r8d
.endm

CONTEXT_SHIFT = 19                          # in TRACE_CTX: hardirq and softirq of IRQ_FLAGS
ONE_PREEMPT = 0x1000000                     # and one of PREEMPT_DEPTH
MCOUNT_INSN_SIZE = 5
TRACE_INTERNAL_START = 0
TRACE_LIST_START = 8

.balign 128, 0xcc
FUNC_NOTRACE ftrace_caller
    SAVE_MCOUNT_REGS 0
    lea rax, [rsp + FRAME_BYTES + 8]
    mov [rsp + PT_RSP], rax                 # where the caller's return address is kept
ftrace_caller_op_ptr:
    mov rdx, [rip + function_trace_op]
    mov qword ptr [rsp + PT_CS], 0          # tells this frame from a full pt_regs
    TRACE_CONTEXT
    mov rcx, rsp
ftrace_call:
    call ftrace_stub
    mov rax, [rsp + PT_RIP]                 # the callback may send it elsewhere
    mov [rsp + FRAME_BYTES], rax
    RESTORE_MCOUNT_REGS 0
    LEAVE_TRAMPOLINE
ftrace_caller_end:
    ret
ENDFUNC ftrace_caller

.balign 128, 0xcc
FUNC_NOTRACE ftrace_regs_caller
    pushfq
    SAVE_MCOUNT_REGS 8
    mov qword ptr [rsp + PT_ORIG_RAX], 0    # a direct call's target, if the callback puts one there
ftrace_regs_caller_op_ptr:
    mov rdx, [rip + function_trace_op]
    mov [rsp + PT_R15], r15
    mov [rsp + PT_R14], r14
    mov [rsp + PT_R13], r13
    mov [rsp + PT_R12], r12
    mov [rsp + PT_R11], r11
    mov [rsp + PT_R10], r10
    mov [rsp + PT_RBX], rbx
    mov [rsp + PT_RBP], rbp
    mov rcx, [rsp + FRAME_BYTES]
    mov [rsp + PT_EFLAGS], rcx
    mov qword ptr [rsp + PT_SS], KERNEL_DS
    mov qword ptr [rsp + PT_CS], KERNEL_CS
    lea rcx, [rsp + FRAME_BYTES + 16]
    mov [rsp + PT_RSP], rcx
    TRACE_CONTEXT
    mov rcx, rsp
ftrace_regs_call:
    call ftrace_stub
    mov rax, [rsp + PT_EFLAGS]
    mov [rsp + FRAME_BYTES], rax
    mov rax, [rsp + PT_RIP]
    mov [rsp + FRAME_BYTES + 8], rax
    mov r15, [rsp + PT_R15]
    mov r14, [rsp + PT_R14]
    mov r13, [rsp + PT_R13]
    mov r12, [rsp + PT_R12]
    mov r10, [rsp + PT_R10]
    mov rbp, [rsp + PT_RBP]
    mov rbx, [rsp + PT_RBX]
    mov rax, [rsp + PT_ORIG_RAX]
    mov [rsp + PT_SS], rax                  # the frame's last word: out of the way of the restore
    test rax, rax
ftrace_regs_caller_jmp:
    jne .Ldirect                            # two nop bytes in a copy: an op of its own is no direct call
    RESTORE_MCOUNT_REGS 0
    LEAVE_REGS_TRAMPOLINE
    popfq
ftrace_regs_caller_end:
    ret
.Ldirect:
    # The target takes the place of the flags on the stack, the flags that of the frame's last word:
    #     target | return into the traced function | return into its caller
    mov rdi, [rsp + FRAME_BYTES]
    mov [rsp + PT_SS], rdi
    mov [rsp + FRAME_BYTES], rax
    RESTORE_MCOUNT_REGS 8
    LEAVE_REGS_TRAMPOLINE
    popfq
    call .Lrebalance                        # a call for the return below, which had none
    int3
.Lrebalance:
    lea rsp, [rsp + 8]                      # not add: the flags are restored already
    ret
ENDFUNC ftrace_regs_caller

FUNC_NOTRACE ftrace_stub
    ret
ENDFUNC ftrace_stub

# Stands in a trampoline for the callback of an op that needs a guard: FTRACE_OPS_FL_RECURSION, _RCU.
FUNC_NOTRACE ftrace_ops_assist_func
    RECURSION_ENTER TRACE_INTERNAL_START, .Lout
    call [rdx + OP_FUNC]
    RECURSION_LEAVE TRACE_INTERNAL_START
.Lout:
    ret
ENDFUNC ftrace_ops_assist_func

# What the list function calls for an op with FTRACE_OPS_FL_SAVE_REGS: its callback, unless the frame is
# no full pt_regs, since the site is about to be patched from ftrace_caller to ftrace_regs_caller.
FUNC_NOTRACE ftrace_ops_regs_func
    cmp qword ptr [rcx + PT_CS], 0
    je .Lout
    jmp [rdx + OP_FUNC]
.Lout:
    ret
ENDFUNC ftrace_ops_regs_func

# Calls every registered op whose hashes let the site through. Linux's name for it in kallsyms.
# The function tracer's callback is in line. It calls nothing, so it takes no recursion bit, and the level
# of preemption that goes with one is counted where it is recorded.
.balign 128, 0xcc
FUNC_NOTRACE arch_ftrace_ops_list_func
ftrace_ops_list_func:
    cmp dword ptr gs:[TRACE_RECURSION], 0
    jne .Lnested
.Lallowed:
    mov rdx, [rip + ftrace_ops_list]
.Lnext:
    mov r8, [rdx + OP_FILTER_TABLE]
    test r8, r8
    je .Lnotrace                            # an empty filter lets everything through
    mov eax, edi
    shr eax, 4
.Lfilter_probe:
    and eax, [rdx + OP_FILTER_MASK]
    mov r9, [r8 + rax*8]
    cmp r9, rdi
    jne .Lfilter_next
.Lcall:
    mov r9, [rdx + OP_LIST_BUFFER]
    add r9, gs:[PERCPU_SELF]
    cmp dword ptr [r9 + RB_GUARD], 0        # and whether there is a buffer
    jne .Lindirect
    TRACE_CLOCK_TSC
    TRACE_FUNCTION TRACE_FN + ONE_PREEMPT
.Lskip:
    mov rdx, [rdx + OP_NEXT]
.Lbehind:
    lea rax, [rip + ftrace_list_end]
    cmp rdx, rax
    jne .Lnext
.Lout:
    ret
.Lindirect:
    RECURSION_ENTER TRACE_LIST_START, .Lout
    push qword ptr [rdx + OP_NEXT]          # the callback may take its own op off the list
    call [rdx + OP_LIST_FUNC]
    pop rdx
    RECURSION_LEAVE TRACE_LIST_START
    jmp .Lbehind
.Lnested:
    mov eax, gs:[TRACE_CTX]
    shr eax, CONTEXT_SHIFT
    and eax, 3
    add eax, TRACE_LIST_START
    mov r8d, gs:[TRACE_RECURSION]
    bt r8d, eax
    jae .Lallowed
    ret
    RB_RARE FTRACE_ENTRY_BYTES, .Lskip
.Lfilter_next:
    inc eax
    test r9, r9
    jne .Lfilter_probe
    jmp .Lskip
.Lnotrace:
    mov r8, [rdx + OP_NOTRACE_TABLE]
    test r8, r8
    je .Lcall
    mov eax, edi
    shr eax, 4
.Lnotrace_probe:
    and eax, [rdx + OP_NOTRACE_MASK]
    mov r9, [r8 + rax*8]
    cmp r9, rdi
    je .Lskip
    inc eax
    test r9, r9
    jne .Lnotrace_probe
    jmp .Lcall
ENDFUNC arch_ftrace_ops_list_func

.data
.balign 64
OBJECT ftrace_list_end                      # struct ftrace_ops: ends ftrace_ops_list, and may be called
    .quad ftrace_stub
    .zero OP_NEXT - 8
    .quad ftrace_list_end
    .zero OP_LIST_FUNC - OP_NEXT - 8
    .quad ftrace_stub
    .zero OP_LIST_BUFFER - OP_LIST_FUNC - 8
    .quad NO_BUFFER
    .zero OP_SIZE - OP_LIST_BUFFER - 8
ENDOBJECT ftrace_list_end
OBJECT ftrace_ops_list                      # the op registered last; the others follow by OP_NEXT
    .quad ftrace_list_end
ENDOBJECT ftrace_ops_list
OBJECT function_trace_op                    # what the uncopied trampolines give as the op
    .quad ftrace_list_end
ENDOBJECT function_trace_op
