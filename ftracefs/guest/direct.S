# Direct calls: a call site that calls a function of somebody else's, entered as a trampoline is
#
#     rsp + 8     return address into the caller of the traced function
#     rsp         return address into the traced function, where it goes on when the target returns
#
# with the traced function's arguments in registers, which it must give back.

# The callback of a direct op, reached beside other ops: the trampoline jumps to the target when all
# of them have been called (kernel/trace/ftrace.c). What it stores means nothing in a frame that is
# not a full pt_regs.
FUNC_NOTRACE call_direct_funcs
    mov rax, [rdx + OP_DIRECT_CALL]
    mov [rcx + PT_ORIG_RAX], rax
    ret
ENDFUNC call_direct_funcs
