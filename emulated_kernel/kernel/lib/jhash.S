# Bob Jenkins' lookup3 hash, as include/linux/jhash.h has it.

.text

JHASH_INITVAL = 0xdeadbeef

# One step on three 32-bit registers.
.macro JHASH_STEP a, b, c, bits
    sub \a, \c
    mov ecx, \c
    rol ecx, \bits
    xor \a, ecx
    add \c, \b
.endm

.macro JHASH_MIX
    JHASH_STEP r8d, r9d, r10d, 4
    JHASH_STEP r9d, r10d, r8d, 6
    JHASH_STEP r10d, r8d, r9d, 8
    JHASH_STEP r8d, r9d, r10d, 16
    JHASH_STEP r9d, r10d, r8d, 19
    JHASH_STEP r10d, r8d, r9d, 4
.endm

.macro JHASH_LAST a, b, bits
    xor \a, \b
    mov ecx, \b
    rol ecx, \bits
    sub \a, ecx
.endm

.macro JHASH_FINAL
    JHASH_LAST r10d, r9d, 14
    JHASH_LAST r8d, r10d, 11
    JHASH_LAST r9d, r8d, 25
    JHASH_LAST r10d, r9d, 16
    JHASH_LAST r8d, r10d, 4
    JHASH_LAST r9d, r8d, 14
    JHASH_LAST r10d, r9d, 24
    mov eax, r10d
.endm

# rdi key, esi length in bytes, edx initial value.
FUNC_NOTRACE jhash
    lea r8d, [rsi + rdx]
    add r8d, JHASH_INITVAL
    mov r9d, r8d
    mov r10d, r8d
.Lnext:
    cmp esi, 12
    jbe .Ltail
    add r8d, [rdi]
    add r9d, [rdi + 4]
    add r10d, [rdi + 8]
    JHASH_MIX
    sub esi, 12
    add rdi, 12
    jmp .Lnext
.Ltail:
    test esi, esi
    je .Lout
.Lbyte:
    dec esi
    js .Lfinal
    movzx eax, byte ptr [rdi + rsi]
    mov ecx, esi
    and ecx, 3
    shl ecx, 3
    shl eax, cl
    cmp esi, 4
    jb .La
    cmp esi, 8
    jb .Lb
    add r10d, eax
    jmp .Lbyte
.Lb:
    add r9d, eax
    jmp .Lbyte
.La:
    add r8d, eax
    jmp .Lbyte
.Lfinal:
    JHASH_FINAL
    ret
.Lout:
    mov eax, r10d
    ret
ENDFUNC jhash

# edi, esi, edx three words, ecx initial value.
FUNC_NOTRACE jhash_3words
    add ecx, JHASH_INITVAL + 12
    lea r8d, [rdi + rcx]
    lea r9d, [rsi + rcx]
    lea r10d, [rdx + rcx]
    JHASH_FINAL
    ret
ENDFUNC jhash_3words

FUNC_NOTRACE jhash_2words
    add edx, JHASH_INITVAL + 8
    lea r8d, [rdi + rdx]
    lea r9d, [rsi + rdx]
    mov r10d, edx
    JHASH_FINAL
    ret
ENDFUNC jhash_2words

FUNC_NOTRACE jhash_1word
    add esi, JHASH_INITVAL + 4
    lea r8d, [rdi + rsi]
    mov r9d, esi
    mov r10d, esi
    JHASH_FINAL
    ret
ENDFUNC jhash_1word
