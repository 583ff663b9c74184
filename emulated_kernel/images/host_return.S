# Where the host lets a function of an image that has nothing of the kind return to.
.text
FUNC_NOTRACE host_return
    hlt
host_return_halt:
    jmp host_return
ENDFUNC host_return
