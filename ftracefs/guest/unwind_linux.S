# What both ways of walking a Linux's stack have in common: unwind_orc.S where its functions keep no
# frame pointers, unwind_frame_linux.S where they do.

# From a function of the engine on whose frame rbp is: nothing is known of it there.
FUNC_NOTRACE stack_walk_frames
    ret
ENDFUNC stack_walk_frames

# Carry set unless the word at rax is on the stack of the current task or on that for interrupts. Uses
# r8 and r11.
FUNC_NOTRACE on_stack
    test al, 7
    jne .Lno
    LINUX_GS
    mov r8, [LINUX_CURRENT]
    mov r11, rax
    sub r11, [r8 + LINUX_STACK]
    cmp r11, STACK_BYTES - 8
    jbe .Lyes
    LINUX_GS
    mov r11, [LINUX_HARDIRQ_STACK_PTR]      # the uppermost word
    sub r11, rax
    cmp r11, STACK_BYTES - 8
    ja .Lno
.Lyes:
    clc
    ret
.Lno:
    stc
    ret
ENDFUNC on_stack
