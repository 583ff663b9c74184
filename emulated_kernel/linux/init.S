# The guest's first process: mounts what a shell wants, and keeps a shell on the second serial line and
# an agent for the host (agent.S).
#
# It is a static executable of one segment (initramfs.py). On that line it says ACK when it is up, and
# NAK when there is no shell; the shell speaks for itself (shell.py).

TCSETS = 0x5402
TIOCSCTTY = 0x540e

.macro MOUNT type, directory
    lea rdi, [rip + \type]
    lea rsi, [rip + \directory]
    lea rdx, [rip + \type]
    xor r10d, r10d
    xor r8d, r8d
    SYSTEM_CALL SYS_MOUNT
.endm

.text
FUNC_NOTRACE _start
    mov rax, [rsp]
    mov rax, [rsp + rax*8 + 16]             # the environment's first string
    test rax, rax
    je .Linit
    cmp dword ptr [rax], AGENT_MARK
    je agent_begins
.Linit:
    MOUNT devtmpfs, dev
    MOUNT proc_type, proc
    MOUNT sysfs, sys
    MOUNT tmpfs, tmp
    MOUNT tracefs, tracing
    MOUNT debugfs, debug
    call open_line
    xor r13d, r13d
    lea rsi, [rip + up]
    call say

.Lagent:
    SYSTEM_CALL SYS_FORK
    test eax, eax
    je agent
    mov r14d, eax
    test r13d, r13d
    jne .Lwait                              # the shell lives
.Lshell:
    SYSTEM_CALL SYS_FORK
    test eax, eax
    je .Lchild
    mov r13d, eax
.Lwait:
    mov rdi, -1
    lea rsi, [rip + status]
    xor edx, edx
    xor r10d, r10d
    SYSTEM_CALL SYS_WAIT4
    test eax, eax
    js .Lsleep
    cmp eax, r14d
    je .Lagent
    cmp eax, r13d
    jne .Lwait                              # somebody's orphan
    cmp dword ptr [rip + status], 127 << 8
    jne .Lshell
    call open_line                          # the shell's end has hung the old one up
    lea rsi, [rip + no_shell]
    call say
.Lsleep:
    lea rdi, [rip + an_hour]
    xor esi, esi
    SYSTEM_CALL SYS_NANOSLEEP
    jmp .Lsleep

.Lchild:
    SYSTEM_CALL SYS_SETSID
    call open_line
    mov edi, r12d
    mov esi, TIOCSCTTY
    xor edx, edx
    SYSTEM_CALL SYS_IOCTL
    xor esi, esi
.Ldup:
    mov edi, r12d
    SYSTEM_CALL SYS_DUP2
    inc esi
    cmp esi, 3
    jne .Ldup
    lea rdi, [rip + shell]
    lea rsi, [rip + arguments]
    lea rdx, [rip + environment]
    SYSTEM_CALL SYS_EXECVE
    mov edi, 127
    SYSTEM_CALL SYS_EXIT
ENDFUNC _start

# r12d = the line, set up.
FUNC_NOTRACE open_line
    lea rdi, [rip + line]
    mov esi, O_RDWR | O_NOCTTY
    xor edx, edx
    SYSTEM_CALL SYS_OPEN
    mov r12d, eax
    mov edi, eax
    mov esi, TCSETS
    lea rdx, [rip + termios]
    SYSTEM_CALL SYS_IOCTL
    ret
ENDFUNC open_line

# One byte at rsi to the line.
FUNC_NOTRACE say
    mov edi, r12d
    mov edx, 1
    SYSTEM_CALL SYS_WRITE
    ret
ENDFUNC say

.balign 8
arguments:
    .quad shell_name
    .quad script
    .quad 0
environment:
    .quad path
    .quad home
    .quad terminal
    .quad 0
an_hour:
    .quad 3600
    .quad 0
# struct termios: nothing translated or echoed, but control-C is SIGINT and control-\ SIGQUIT. 115200
# baud, 8 bits, ignoring modem lines.
termios:
    .long 0
    .long 0
    .long 0x18b2
    .long 1
    .byte 0
    .byte 3
    .byte 0x1c
    .byte 0
    .byte 0
    .byte 0
    .byte 0
    .byte 1
    .zero 16
status:
    .long 0
up:
    .byte 6
no_shell:
    .byte 0x15
devtmpfs:
    .asciz "devtmpfs"
proc_type:
    .asciz "proc"
sysfs:
    .asciz "sysfs"
tmpfs:
    .asciz "tmpfs"
tracefs:
    .asciz "tracefs"
debugfs:
    .asciz "debugfs"
dev:
    .asciz "/dev"
proc:
    .asciz "/proc"
sys:
    .asciz "/sys"
tmp:
    .asciz "/tmp"
tracing:
    .asciz "/sys/kernel/tracing"
debug:
    .asciz "/sys/kernel/debug"
line:
    .asciz "/dev/ttyS1"
shell:
    .asciz "/bin/sh"
shell_name:
    .asciz "sh"
script:
    .asciz "/etc/commands"
path:
    .asciz "PATH=/bin"
home:
    .asciz "HOME=/"
terminal:
    .asciz "TERM=dumb"
