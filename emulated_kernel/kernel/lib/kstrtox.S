# Text to numbers: lib/kstrtox.c, and the older simple_strto* of lib/vsprintf.c.

.text

KSTRTOX_OVERFLOW = 0x80000000

# The prefix of a number. rdi text, esi base or 0: rax behind the prefix, esi the base.
FUNC_NOTRACE _parse_integer_fixup_radix
    mov rax, rdi
    movzx ecx, byte ptr [rdi]
    test esi, esi
    jne .Lgiven
    mov esi, 10
    cmp ecx, 48
    jne .Lout
    mov esi, 8
    movzx edx, byte ptr [rdi + 1]
    or edx, 32
    cmp edx, 120
    jne .Lout
    movzx edi, byte ptr [rdi + 2]
    call hex_value
    js .Lout
    mov esi, 16
.Lgiven:
    cmp esi, 16
    jne .Lout
    cmp byte ptr [rax], 48
    jne .Lout
    movzx edx, byte ptr [rax + 1]
    or edx, 32
    cmp edx, 120
    jne .Lout
    add rax, 2
.Lout:
    ret
ENDFUNC _parse_integer_fixup_radix

# edi a character: SF clear when it is a hexadecimal digit, whose value is then in edx.
FUNC_NOTRACE hex_value
    lea edx, [rdi - 48]
    cmp edx, 10
    jb .Lout
    mov edx, edi
    or edx, 32
    sub edx, 87
    cmp edx, 10
    jl .Lnone
    cmp edx, 16
    jl .Lout
.Lnone:
    mov edx, -1
.Lout:
    test edx, edx
    ret
ENDFUNC hex_value

# rdi digits, esi base, rdx where the number goes: how many digits, with KSTRTOX_OVERFLOW on
# overflow.
FUNC_NOTRACE _parse_integer
    mov rcx, -1
    jmp _parse_integer_limit
ENDFUNC _parse_integer

# The same for at most rcx characters.
FUNC_NOTRACE _parse_integer_limit
    ENTER5
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    mov r14, rcx
    xor r15d, r15d
    xor r8d, r8d
    xor r9d, r9d
.Lnext:
    cmp r15, r14
    jae .Lout
    movzx edi, byte ptr [rbx + r15]
    call hex_value
    js .Lout
    cmp edx, r12d
    jae .Lout
    mov ecx, edx
    mov rax, r8
    mul r12
    mov r8, rax
    test rdx, rdx
    jne .Loverflow
    add r8, rcx
    jae .Ladvance
.Loverflow:
    mov r9d, KSTRTOX_OVERFLOW
.Ladvance:
    inc r15
    jmp .Lnext
.Lout:
    mov [r13], r8
    mov eax, r15d
    or eax, r9d
    LEAVE5
ENDFUNC _parse_integer_limit

# rdi text, esi base or 0, rdx where the number goes: 0, -EINVAL or -ERANGE. One newline may follow.
FUNC_NOTRACE _kstrtoull
    ENTER3
    push rax
    mov rbx, rdx
    call _parse_integer_fixup_radix
    mov r12, rax
    mov rdi, rax
    mov rdx, rsp
    call _parse_integer
    test eax, eax
    js .Lrange
    je .Linvalid
    add r12, rax
    cmp byte ptr [r12], 10
    jne 1f
    inc r12
1:
    cmp byte ptr [r12], 0
    jne .Linvalid
    mov rax, [rsp]
    mov [rbx], rax
    xor eax, eax
    LEAVE3
.Lrange:
    mov eax, -34
    LEAVE3
.Linvalid:
    mov eax, -22
    LEAVE3
ENDFUNC _kstrtoull

FUNC_NOTRACE kstrtoull
    cmp byte ptr [rdi], 43
    jne _kstrtoull
    inc rdi
    jmp _kstrtoull
ENDFUNC kstrtoull

FUNC_NOTRACE kstrtoll
    ENTER2
    push rax
    push rax
    mov rbx, rdx
    mov rdx, rsp
    cmp byte ptr [rdi], 45
    je .Lnegative
    call kstrtoull
    test eax, eax
    jne .Lout
    mov rcx, [rsp]
    test rcx, rcx
    js .Lrange
    jmp .Lstore
.Lnegative:
    inc rdi
    call _kstrtoull
    test eax, eax
    jne .Lout
    mov rcx, [rsp]
    neg rcx
    test rcx, rcx
    jg .Lrange
.Lstore:
    mov [rbx], rcx
    xor eax, eax
.Lout:
    LEAVE2
.Lrange:
    mov eax, -34
    LEAVE2
ENDFUNC kstrtoll

# A narrower result: \parse gives a u64, which must come back from \extend unchanged.
.macro KSTRTO_NARROW parse, extend, low, store
    ENTER1
    push rax
    mov rbx, rdx
    mov rdx, rsp
    call \parse
    test eax, eax
    jne 1f
    mov rcx, [rsp]
    \extend rdx, \low
    cmp rcx, rdx
    mov eax, -34
    jne 1f
    mov [rbx], \store
    xor eax, eax
1:
    LEAVE1
.endm

FUNC_NOTRACE kstrtoint
    KSTRTO_NARROW kstrtoll, movsxd, ecx, ecx
ENDFUNC kstrtoint

FUNC_NOTRACE kstrtos16
    KSTRTO_NARROW kstrtoll, movsx, cx, cx
ENDFUNC kstrtos16

FUNC_NOTRACE kstrtos8
    KSTRTO_NARROW kstrtoll, movsx, cl, cl
ENDFUNC kstrtos8

FUNC_NOTRACE kstrtou16
    KSTRTO_NARROW kstrtoull, movzx, cx, cx
ENDFUNC kstrtou16

FUNC_NOTRACE kstrtou8
    KSTRTO_NARROW kstrtoull, movzx, cl, cl
ENDFUNC kstrtou8

FUNC_NOTRACE kstrtouint
    ENTER1
    push rax
    mov rbx, rdx
    mov rdx, rsp
    call kstrtoull
    test eax, eax
    jne .Lout
    mov rcx, [rsp]
    mov edx, ecx
    cmp rcx, rdx
    mov eax, -34
    jne .Lout
    mov [rbx], ecx
    xor eax, eax
.Lout:
    LEAVE1
ENDFUNC kstrtouint

# rdi text, rsi where a byte goes: y, Y, t, T, 1, on / n, N, f, F, 0, off.
FUNC_NOTRACE kstrtobool
    test rdi, rdi
    je .Linvalid
    movzx eax, byte ptr [rdi]
    cmp eax, 49
    je .Lyes
    cmp eax, 48
    je .Lno
    or eax, 32
    cmp eax, 121
    je .Lyes
    cmp eax, 116
    je .Lyes
    cmp eax, 110
    je .Lno
    cmp eax, 102
    je .Lno
    cmp eax, 111
    jne .Linvalid
    movzx eax, byte ptr [rdi + 1]
    or eax, 32
    cmp eax, 110
    je .Lyes
    cmp eax, 102
    je .Lno
.Linvalid:
    mov eax, -22
    ret
.Lyes:
    mov byte ptr [rsi], 1
    xor eax, eax
    ret
.Lno:
    mov byte ptr [rsi], 0
    xor eax, eax
    ret
ENDFUNC kstrtobool

# rdi text, rsi where the end of the number goes or 0, edx base or 0: the number.
FUNC_NOTRACE simple_strtoull
    ENTER2
    push rax
    push rax
    mov rbx, rsi
    mov esi, edx
    call _parse_integer_fixup_radix
    mov r12, rax
    mov rdi, rax
    mov rdx, rsp
    call _parse_integer
    and eax, 0x7fffffff
    add r12, rax
    test rbx, rbx
    je 1f
    mov [rbx], r12
1:
    mov rax, [rsp]
    LEAVE2
ENDFUNC simple_strtoull

FUNC_NOTRACE simple_strtoul
    jmp simple_strtoull
ENDFUNC simple_strtoul

FUNC_NOTRACE simple_strtoll
    cmp byte ptr [rdi], 45
    jne simple_strtoull
    push rbp
    mov rbp, rsp
    inc rdi
    call simple_strtoull
    neg rax
    pop rbp
    ret
ENDFUNC simple_strtoll

FUNC_NOTRACE simple_strtol
    jmp simple_strtoll
ENDFUNC simple_strtol

# A size with a suffix K, M, G, T, P or E (lib/cmdline.c). rdi text, rsi where its end goes or 0.
FUNC_NOTRACE memparse
    ENTER1
    push rax
    mov rbx, rsi
    mov rsi, rsp
    xor edx, edx
    call simple_strtoull
    mov rdx, [rsp]
    movzx esi, byte ptr [rdx]
    or esi, 32
    lea rdi, [memparse_suffixes]
    xor ecx, ecx
.Lnext:
    cmp byte ptr [rdi], 0
    je .Lout
    add ecx, 10
    cmp [rdi], sil
    je .Lscale
    inc rdi
    jmp .Lnext
.Lscale:
    shl rax, cl
    inc rdx
.Lout:
    test rbx, rbx
    je 1f
    mov [rbx], rdx
1:
    LEAVE1
ENDFUNC memparse

.data
memparse_suffixes:
    .asciz "kmgtpe"
.text
