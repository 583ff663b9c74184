# Arithmetic: lib/math/. Built with call sites, unlike the rest of lib/, where the names are
# functions.

.text

FUNC int_sqrt
    PROLOGUE
    xor eax, eax
    cmp rdi, 1
    jbe .Lsmall
    bsr rcx, rdi
    and ecx, 62
    mov edx, 1
    shl rdx, cl
.Lnext:
    lea rsi, [rax + rdx]
    shr rax, 1
    cmp rdi, rsi
    jb .Lless
    sub rdi, rsi
    add rax, rdx
.Lless:
    shr rdx, 2
    jne .Lnext
    EPILOGUE
.Lsmall:
    mov rax, rdi
    EPILOGUE
ENDFUNC int_sqrt

# rdi base, esi exponent, modulo 2^64.
FUNC int_pow
    PROLOGUE
    mov eax, 1
.Lnext:
    test esi, esi
    je .Lout
    test esi, 1
    je 1f
    imul rax, rdi
1:
    shr esi, 1
    imul rdi, rdi
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC int_pow

FUNC gcd
    PROLOGUE
    mov rax, rdi
.Lnext:
    test rsi, rsi
    je .Lout
    xor edx, edx
    div rsi
    mov rax, rsi
    mov rsi, rdx
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC gcd

FUNC lcm
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    xor eax, eax
    test rdi, rdi
    je .Lout
    test rsi, rsi
    je .Lout
    call gcd
    mov rcx, rax
    mov rax, rbx
    xor edx, edx
    div rcx
    imul rax, r12
.Lout:
    LEAVE2
ENDFUNC lcm

FUNC_NOTRACE div64_u64
    mov rax, rdi
    xor edx, edx
    div rsi
    ret
ENDFUNC div64_u64

# rdi dividend, rsi divisor, rdx where the remainder goes.
FUNC_NOTRACE div64_u64_rem
    mov rcx, rdx
    mov rax, rdi
    xor edx, edx
    div rsi
    mov [rcx], rdx
    ret
ENDFUNC div64_u64_rem

# rdi * rsi / rdx without losing the upper half; the caller sees to it that the quotient fits.
FUNC_NOTRACE mul_u64_u64_div_u64
    mov rcx, rdx
    mov rax, rdi
    mul rsi
    div rcx
    ret
ENDFUNC mul_u64_u64_div_u64
