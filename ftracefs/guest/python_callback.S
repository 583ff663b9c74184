# The callback of ops whose callback is in Python: a hypercall, so for tests and experiments only.
FUNC_NOTRACE ftrace_python_func
    mov eax, HC_CALLBACK
    int HYPERCALL
    ret
ENDFUNC ftrace_python_func
