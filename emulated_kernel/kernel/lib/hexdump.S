# Hexadecimal text: lib/hexdump.c.

.text

# dil a character: its value, or -1.
FUNC_NOTRACE hex_to_bin
    movzx eax, dil
    lea ecx, [rax - 48]
    cmp ecx, 10
    jb .Lout
    or eax, 32
    lea ecx, [rax - 97]
    cmp ecx, 6
    lea ecx, [rax - 87]
    jb .Lout
    mov ecx, -1
.Lout:
    mov eax, ecx
    ret
ENDFUNC hex_to_bin

# rdi to, rsi text, rdx bytes to make: 0 or -EINVAL.
FUNC_NOTRACE hex2bin
    mov r8, rdi
.Lnext:
    test rdx, rdx
    je .Ldone
    movzx edi, byte ptr [rsi]
    call hex_to_bin
    test eax, eax
    js .Linvalid
    shl eax, 4
    mov r9d, eax
    movzx edi, byte ptr [rsi + 1]
    call hex_to_bin
    test eax, eax
    js .Linvalid
    or eax, r9d
    mov [r8], al
    inc r8
    add rsi, 2
    dec rdx
    jmp .Lnext
.Ldone:
    xor eax, eax
    ret
.Linvalid:
    mov eax, -22
    ret
ENDFUNC hex2bin

# rdi to, rsi bytes, rdx how many: the end of the text.
FUNC_NOTRACE bin2hex
    mov rax, rdi
.Lnext:
    test rdx, rdx
    je .Lout
    movzx ecx, byte ptr [rsi]
    mov r8d, ecx
    shr ecx, 4
    and r8d, 15
    mov cl, [rcx + hex_asc]
    mov r8b, [r8 + hex_asc]
    mov [rax], cl
    mov [rax + 1], r8b
    add rax, 2
    inc rsi
    dec rdx
    jmp .Lnext
.Lout:
    ret
ENDFUNC bin2hex

.data
OBJECT hex_asc
    .ascii "0123456789abcdef"
ENDOBJECT hex_asc
OBJECT hex_asc_upper
    .ascii "0123456789ABCDEF"
ENDOBJECT hex_asc_upper
.text
