# Who is told that a task dies of an oops (trace_die_handler of kernel/trace/trace.c).

DIE_OOPS = 1
NOTIFY_OK = 1

FUNC_NOTRACE trace_die_handler              # rdi block, rsi what happened, rdx die_args
    cmp rsi, DIE_OOPS
    jne .Lout
    cmp dword ptr [rip + ftrace_dump_on_oops], 0
    je .Lout
    mov eax, HC_DUMP
    int HYPERCALL
.Lout:
    mov eax, NOTIFY_OK
    ret
ENDFUNC trace_die_handler

.data
.balign 8
OBJECT trace_die_notifier                   # struct notifier_block
    .quad trace_die_handler
    .quad 0
    .long 200
    .long 0
ENDOBJECT trace_die_notifier
OBJECT ftrace_dump_on_oops                  # enum ftrace_dump_mode
    .long 0
ENDOBJECT ftrace_dump_on_oops
