# What the compiler's calls at each function's entry lead to, until ftrace makes nops of them.
    .text
    .globl __fentry__
    .type __fentry__, @function
__fentry__:
    ret
    .size __fentry__, . - __fentry__
    .section .note.GNU-stack, "", @progbits
