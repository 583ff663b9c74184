# Bit searches and bit maps: lib/find_bit.c, bitmap.c, hweight.c. A map is an array of u64.

.text

# rdi map, rsi bits, rdx first to look at: the first bit set, or rsi. \flip is 0, or -1 for a
# clear bit.
.macro FIND_NEXT_BIT flip
    mov rax, rsi
    cmp rdx, rsi
    jae 3f
    mov ecx, edx
    mov r8, rdx
    and r8, -64
    shr rdx, 6
    mov r9, [rdi + rdx*8]
    xor r9, \flip
    shr r9, cl
    shl r9, cl
1:
    test r9, r9
    jne 2f
    add r8, 64
    cmp r8, rsi
    jae 3f
    inc rdx
    mov r9, [rdi + rdx*8]
    xor r9, \flip
    jmp 1b
2:
    bsf r9, r9
    add r8, r9
    cmp r8, rsi
    cmovb rax, r8
3:
.endm

FUNC_NOTRACE _find_first_bit
    xor edx, edx
    FIND_NEXT_BIT 0
    ret
ENDFUNC _find_first_bit

FUNC_NOTRACE _find_next_bit
    FIND_NEXT_BIT 0
    ret
ENDFUNC _find_next_bit

FUNC_NOTRACE _find_first_zero_bit
    xor edx, edx
    FIND_NEXT_BIT -1
    ret
ENDFUNC _find_first_zero_bit

FUNC_NOTRACE _find_next_zero_bit
    FIND_NEXT_BIT -1
    ret
ENDFUNC _find_next_zero_bit

FUNC_NOTRACE _find_last_bit
    mov rcx, rsi
.Lnext:
    test rcx, rcx
    je .Lnone
    dec rcx
    bt qword ptr [rdi], rcx
    jae .Lnext
    mov rax, rcx
    ret
.Lnone:
    mov rax, rsi
    ret
ENDFUNC _find_last_bit

FUNC_NOTRACE __sw_hweight32
    popcnt eax, edi
    ret
ENDFUNC __sw_hweight32

FUNC_NOTRACE __sw_hweight64
    popcnt rax, rdi
    ret
ENDFUNC __sw_hweight64

# Words of ecx bits in r8d, and in r9 the mask of the bits used in the last of them.
.macro BITMAP_WORDS
    mov r9, -1
    lea r8d, [rcx + 63]
    shr r8d, 6
    neg ecx
    and ecx, 63
    shr r9, cl
.endm

# dst = a op b over ecx bits; ends with eax 1 when a bit of it is set. rdi dst, rsi a, rdx b.
.macro BITMAP_OP op
    BITMAP_WORDS
    xor r11d, r11d
    xor r10d, r10d
    test r8d, r8d
    je 3f
1:
    mov rax, [rdx + r11*8]
    \op rax, [rsi + r11*8]
    lea ecx, [r11 + 1]
    mov [rdi + r11*8], rax
    cmp ecx, r8d
    jne 2f
    and rax, r9
2:
    or r10, rax
    mov r11d, ecx
    cmp r11d, r8d
    jb 1b
3:
    xor eax, eax
    test r10, r10
    setne al
.endm

FUNC_NOTRACE __bitmap_and
    BITMAP_OP and
    ret
ENDFUNC __bitmap_and

FUNC_NOTRACE __bitmap_or
    BITMAP_OP or
    ret
ENDFUNC __bitmap_or

FUNC_NOTRACE __bitmap_xor
    BITMAP_OP xor
    ret
ENDFUNC __bitmap_xor

# a without b.
FUNC_NOTRACE __bitmap_andnot
    BITMAP_WORDS
    xor r11d, r11d
    xor r10d, r10d
.Lnext:
    cmp r11d, r8d
    jae .Lout
    mov rax, [rdx + r11*8]
    not rax
    and rax, [rsi + r11*8]
    mov [rdi + r11*8], rax
    inc r11d
    cmp r11d, r8d
    jne 1f
    and rax, r9
1:
    or r10, rax
    jmp .Lnext
.Lout:
    xor eax, eax
    test r10, r10
    setne al
    ret
ENDFUNC __bitmap_andnot

# rdi dst, rsi src, edx bits.
FUNC_NOTRACE __bitmap_complement
    add edx, 63
    shr edx, 6
    xor ecx, ecx
.Lnext:
    cmp ecx, edx
    jae .Lout
    mov rax, [rsi + rcx*8]
    not rax
    mov [rdi + rcx*8], rax
    inc ecx
    jmp .Lnext
.Lout:
    ret
ENDFUNC __bitmap_complement

# rdi a, rsi b, edx bits: eax 1 or 0. \test leaves in rax what must be zero in every word.
.macro BITMAP_ALL_ZERO op
    mov ecx, edx
    BITMAP_WORDS
    xor r11d, r11d
1:
    cmp r11d, r8d
    jae 3f
    mov rax, [rsi + r11*8]
    \op rax, [rdi + r11*8]
    inc r11d
    cmp r11d, r8d
    jne 2f
    and rax, r9
2:
    test rax, rax
    je 1b
    xor eax, eax
    ret
3:
    mov eax, 1
    ret
.endm

FUNC_NOTRACE __bitmap_equal
    BITMAP_ALL_ZERO xor
ENDFUNC __bitmap_equal

FUNC_NOTRACE __bitmap_disjoint
    BITMAP_ALL_ZERO and
ENDFUNC __bitmap_disjoint

FUNC_NOTRACE __bitmap_intersects
    call __bitmap_disjoint
    xor eax, 1
    ret
ENDFUNC __bitmap_intersects

# Is every bit of rdi in rsi too?
FUNC_NOTRACE __bitmap_subset
    mov ecx, edx
    BITMAP_WORDS
    xor r11d, r11d
.Lnext:
    cmp r11d, r8d
    jae .Lyes
    mov rax, [rsi + r11*8]
    not rax
    and rax, [rdi + r11*8]
    inc r11d
    cmp r11d, r8d
    jne 1f
    and rax, r9
1:
    test rax, rax
    je .Lnext
    xor eax, eax
    ret
.Lyes:
    mov eax, 1
    ret
ENDFUNC __bitmap_subset

# rdi map, esi bits: how many are set.
FUNC_NOTRACE __bitmap_weight
    mov ecx, esi
    BITMAP_WORDS
    xor eax, eax
    xor r11d, r11d
.Lnext:
    cmp r11d, r8d
    jae .Lout
    mov rdx, [rdi + r11*8]
    inc r11d
    cmp r11d, r8d
    jne 1f
    and rdx, r9
1:
    popcnt rdx, rdx
    add eax, edx
    jmp .Lnext
.Lout:
    ret
ENDFUNC __bitmap_weight

# rdi map, esi first, edx how many.
FUNC_NOTRACE __bitmap_set
.Lnext:
    test edx, edx
    jle .Lout
    mov eax, esi
    bts qword ptr [rdi], rax
    inc esi
    dec edx
    jmp .Lnext
.Lout:
    ret
ENDFUNC __bitmap_set

FUNC_NOTRACE __bitmap_clear
.Lnext:
    test edx, edx
    jle .Lout
    mov eax, esi
    btr qword ptr [rdi], rax
    inc esi
    dec edx
    jmp .Lnext
.Lout:
    ret
ENDFUNC __bitmap_clear

# rdi map, rsi bits, rdx first to look at, ecx wanted, r8 alignment mask: start of a clear run, or
# something above rsi.
FUNC_NOTRACE bitmap_find_next_zero_area_off
    ENTER5
    mov rbx, rdi
    mov r12, rsi
    mov r13d, ecx
    mov r14, r8
    mov r15, rdx
.Lagain:
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r15
    call _find_next_zero_bit
    add rax, r14
    mov rcx, r14
    not rcx
    and rax, rcx
    mov r15, rax
    lea rsi, [rax + r13]
    mov rax, rsi
    cmp rsi, r12
    ja .Lout
    mov rdi, rbx
    mov rdx, r15
    call _find_next_bit
    lea rcx, [r15 + r13]
    cmp rax, rcx
    jae .Lfound
    lea r15, [rax + 1]
    jmp .Lagain
.Lfound:
    mov rax, r15
.Lout:
    LEAVE5
ENDFUNC bitmap_find_next_zero_area_off
