# arch/x86/kernel/ftrace_64.S as far as the kernel itself needs it: what every call site calls until
# boot has turned the sites into nops.

.text

FUNC_NOTRACE __fentry__
    ret
ENDFUNC __fentry__
