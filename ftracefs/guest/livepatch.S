# Live patching (kernel/livepatch/patch.c).

# The callback on a patched function: the call goes on in the function that OP_PRIVATE names, the top
# of the stack of replacements, as if the caller had called that one.
FUNC_NOTRACE klp_ftrace_handler
    mov rax, [rdx + OP_PRIVATE]
    mov [rcx + PT_RIP], rax
    ret
ENDFUNC klp_ftrace_handler
