# libfuse's own fuse_reply_entry with a time for each name (entry_timeouts.py). In the daemon, with the
# host's calling convention.

.data
.balign 8
reply_entry_before:                         # what libfuse would call
    .quad 0

.text

# (req, struct fuse_entry_param *): where the attributes have a device, which nobody is told, that is
# how long the entry and its attributes are valid, in seconds, a double.
FUNC_NOTRACE reply_entry
    mov rax, [rsi + ENTRY_ST_DEV]
    test rax, rax
    je .Lout
    mov [rsi + ENTRY_ATTR_TIMEOUT], rax
    mov [rsi + ENTRY_ENTRY_TIMEOUT], rax
.Lout:
    mov rax, [rip + reply_entry_before]
    jmp rax
ENDFUNC reply_entry
