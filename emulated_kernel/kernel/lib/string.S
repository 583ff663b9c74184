# Strings and memory: lib/string.c, arch/x86/lib/mem*.S. As all of lib/, built without call sites.

.text

FUNC_NOTRACE memcpy
    mov rax, rdi
    mov rcx, rdx
    rep movsb
    ret
ENDFUNC memcpy

FUNC_NOTRACE memmove
    mov rax, rdi
    mov rcx, rdx
    mov rdx, rdi
    sub rdx, rsi
    cmp rdx, rcx
    jb .Lbackwards
    rep movsb
    ret
.Lbackwards:
    lea rsi, [rsi+rcx-1]
    lea rdi, [rdi+rcx-1]
    std
    rep movsb
    cld
    ret
ENDFUNC memmove

FUNC_NOTRACE memset
    mov r8, rdi
    mov eax, esi
    mov rcx, rdx
    rep stosb
    mov rax, r8
    ret
ENDFUNC memset

# Whole pages: rdi to, rsi from.
FUNC_NOTRACE copy_page
    mov ecx, 512
    rep movsq
    ret
ENDFUNC copy_page

FUNC_NOTRACE clear_page_rep
    mov ecx, 512
    xor eax, eax
    rep stosq
    ret
ENDFUNC clear_page_rep

FUNC_NOTRACE memcmp
    xor ecx, ecx
.Lnext:
    cmp rcx, rdx
    jae .Lequal
    movzx eax, byte ptr [rdi+rcx]
    movzx r8d, byte ptr [rsi+rcx]
    inc rcx
    sub eax, r8d
    je .Lnext
    ret
.Lequal:
    xor eax, eax
    ret
ENDFUNC memcmp

# rdi area, esi byte, rdx size; its address or 0.
FUNC_NOTRACE memchr
    lea rdx, [rdi+rdx]
.Lnext:
    cmp rdi, rdx
    jae .Lnone
    cmp [rdi], sil
    je .Lfound
    inc rdi
    jmp .Lnext
.Lfound:
    mov rax, rdi
    ret
.Lnone:
    xor eax, eax
    ret
ENDFUNC memchr

# The first byte in rdi[rdx] that is not esi, or 0.
FUNC_NOTRACE memchr_inv
    lea rdx, [rdi+rdx]
.Lnext:
    cmp rdi, rdx
    jae .Lnone
    cmp [rdi], sil
    jne .Lfound
    inc rdi
    jmp .Lnext
.Lfound:
    mov rax, rdi
    ret
.Lnone:
    xor eax, eax
    ret
ENDFUNC memchr_inv

FUNC_NOTRACE strlen
    xor eax, eax
    jmp .Ltest
.Lnext:
    inc rax
.Ltest:
    cmp byte ptr [rdi+rax], 0
    jne .Lnext
    ret
ENDFUNC strlen

FUNC_NOTRACE strnlen
    xor eax, eax
.Lnext:
    cmp rax, rsi
    jae .Lout
    cmp byte ptr [rdi+rax], 0
    je .Lout
    inc rax
    jmp .Lnext
.Lout:
    ret
ENDFUNC strnlen

# -1, 0 or 1.
FUNC_NOTRACE strcmp
    xor ecx, ecx
.Lnext:
    movzx eax, byte ptr [rdi+rcx]
    movzx edx, byte ptr [rsi+rcx]
    inc rcx
    cmp al, dl
    jne .Ldiffer
    test al, al
    jne .Lnext
    xor eax, eax
    ret
.Ldiffer:
    sbb eax, eax
    or eax, 1
    ret
ENDFUNC strcmp

FUNC_NOTRACE strncmp
    xor ecx, ecx
.Lnext:
    cmp rcx, rdx
    jae .Lequal
    movzx eax, byte ptr [rdi+rcx]
    movzx r8d, byte ptr [rsi+rcx]
    inc rcx
    cmp al, r8b
    jne .Ldiffer
    test al, al
    jne .Lnext
.Lequal:
    xor eax, eax
    ret
.Ldiffer:
    sbb eax, eax
    or eax, 1
    ret
ENDFUNC strncmp

# The byte in eax, in lower case; leaves everything else.
.macro TO_LOWER
    lea r9d, [rax-65]
    cmp r9d, 26
    jae 1f
    add eax, 32
1:
.endm

FUNC_NOTRACE strcasecmp
    mov rdx, -1
    jmp strncasecmp
ENDFUNC strcasecmp

# The difference of the first unlike pair, in lower case.
FUNC_NOTRACE strncasecmp
    xor ecx, ecx
.Lnext:
    cmp rcx, rdx
    jae .Lequal
    movzx eax, byte ptr [rsi+rcx]
    TO_LOWER
    mov r8d, eax
    movzx eax, byte ptr [rdi+rcx]
    TO_LOWER
    inc rcx
    cmp eax, r8d
    jne .Ldiffer
    test eax, eax
    jne .Lnext
.Lequal:
    xor eax, eax
    ret
.Ldiffer:
    sub eax, r8d
    ret
ENDFUNC strncasecmp

FUNC_NOTRACE strcpy
    mov rax, rdi
    xor ecx, ecx
.Lnext:
    movzx edx, byte ptr [rsi+rcx]
    mov [rdi+rcx], dl
    inc rcx
    test dl, dl
    jne .Lnext
    ret
ENDFUNC strcpy

# Copies at most rdx bytes and fills the rest with zeros.
FUNC_NOTRACE strncpy
    mov rax, rdi
    xor ecx, ecx
.Lnext:
    cmp rcx, rdx
    jae .Lout
    movzx r8d, byte ptr [rsi]
    mov [rdi+rcx], r8b
    inc rcx
    cmp r8b, 1
    sbb rsi, -1
    jmp .Lnext
.Lout:
    ret
ENDFUNC strncpy

# rdi to, rsi from, rdx size: length copied, or -E2BIG when it was cut.
FUNC_NOTRACE strscpy
    xor eax, eax
    test rdx, rdx
    je .Ltoo_big
.Lnext:
    movzx ecx, byte ptr [rsi+rax]
    mov [rdi+rax], cl
    test cl, cl
    je .Lout
    inc rax
    cmp rax, rdx
    jb .Lnext
    mov byte ptr [rdi+rax-1], 0
.Ltoo_big:
    mov rax, -7
.Lout:
    ret
ENDFUNC strscpy

# Like strscpy, but the length of the source is returned.
FUNC_NOTRACE strlcpy
    mov r8, rdi
    mov rdi, rsi
    call strlen
    test rdx, rdx
    je .Lout
    lea rcx, [rdx-1]
    cmp rax, rcx
    cmovb rcx, rax
    mov rdi, r8
    rep movsb
    mov byte ptr [rdi], 0
.Lout:
    ret
ENDFUNC strlcpy

FUNC_NOTRACE strcat
    mov r8, rdi
.Lend:
    cmp byte ptr [rdi], 0
    je .Lcopy
    inc rdi
    jmp .Lend
.Lcopy:
    call strcpy
    mov rax, r8
    ret
ENDFUNC strcat

FUNC_NOTRACE strncat
    mov rax, rdi
.Lend:
    cmp byte ptr [rdi], 0
    je .Lcopy
    inc rdi
    jmp .Lend
.Lcopy:
    test rdx, rdx
    je .Lout
    movzx ecx, byte ptr [rsi]
    mov [rdi], cl
    inc rsi
    inc rdi
    dec rdx
    test cl, cl
    jne .Lcopy
    ret
.Lout:
    mov byte ptr [rdi], 0
    ret
ENDFUNC strncat

FUNC_NOTRACE strchr
    mov rax, rdi
.Lnext:
    cmp [rax], sil
    je .Lout
    cmp byte ptr [rax], 0
    je .Lnone
    inc rax
    jmp .Lnext
.Lnone:
    xor eax, eax
.Lout:
    ret
ENDFUNC strchr

# Like strchr, but the terminator when it is not there.
FUNC_NOTRACE strchrnul
    mov rax, rdi
.Lnext:
    cmp byte ptr [rax], 0
    je .Lout
    cmp [rax], sil
    je .Lout
    inc rax
    jmp .Lnext
.Lout:
    ret
ENDFUNC strchrnul

FUNC_NOTRACE strrchr
    xor eax, eax
.Lnext:
    cmp [rdi], sil
    cmove rax, rdi
    cmp byte ptr [rdi], 0
    je .Lout
    inc rdi
    jmp .Lnext
.Lout:
    ret
ENDFUNC strrchr

FUNC_NOTRACE strnchr
.Lnext:
    test rsi, rsi
    je .Lnone
    dec rsi
    mov rax, rdi
    cmp [rdi], dl
    je .Lout
    cmp byte ptr [rdi], 0
    je .Lnone
    inc rdi
    jmp .Lnext
.Lnone:
    xor eax, eax
.Lout:
    ret
ENDFUNC strnchr

# rdi where, rsi what: its first occurrence, or 0.
FUNC_NOTRACE strstr
    mov rax, rdi
.Lstart:
    xor ecx, ecx
.Lnext:
    movzx edx, byte ptr [rsi+rcx]
    test dl, dl
    je .Lout
    cmp [rax+rcx], dl
    jne .Lmismatch
    inc rcx
    jmp .Lnext
.Lmismatch:
    cmp byte ptr [rax+rcx], 0
    je .Lnone
    inc rax
    jmp .Lstart
.Lnone:
    xor eax, eax
.Lout:
    ret
ENDFUNC strstr

# strstr within the first rdx bytes of rdi.
FUNC_NOTRACE strnstr
    mov r8, rdi
    mov rdi, rsi
    call strlen
    mov r9, rax
    mov rdi, r8
    test r9, r9
    je .Lfound
.Lnext:
    cmp rdx, r9
    jb .Lnone
    dec rdx
    xor ecx, ecx
.Lcompare:
    movzx eax, byte ptr [rsi+rcx]
    cmp [rdi+rcx], al
    jne .Lmismatch
    inc rcx
    cmp rcx, r9
    jb .Lcompare
.Lfound:
    mov rax, rdi
    ret
.Lmismatch:
    inc rdi
    jmp .Lnext
.Lnone:
    xor eax, eax
    ret
ENDFUNC strnstr

# Is the byte in eax white space? ZF set when it is. r9d is clobbered.
.macro IS_SPACE
    lea r9d, [rax-9]
    cmp r9d, 5
    sbb r9d, r9d
    inc r9d
    je 1f
    cmp eax, 32
    je 1f
    cmp eax, 160
1:
.endm

FUNC_NOTRACE skip_spaces
    jmp .Ltest
.Lnext:
    inc rdi
.Ltest:
    movzx eax, byte ptr [rdi]
    IS_SPACE
    je .Lnext
    mov rax, rdi
    ret
ENDFUNC skip_spaces

# Cuts trailing white space in place and returns the first character that is none.
FUNC_NOTRACE strim
    mov r8, rdi
    call strlen
    mov rcx, rax
.Lnext:
    test rcx, rcx
    je .Lcut
    movzx eax, byte ptr [r8+rcx-1]
    IS_SPACE
    jne .Lcut
    dec rcx
    jmp .Lnext
.Lcut:
    mov byte ptr [r8+rcx], 0
    mov rdi, r8
    jmp skip_spaces
ENDFUNC strim

# Length of the start of rdi that consists of characters of rsi.
FUNC_NOTRACE strspn
    xor eax, eax
.Lnext:
    movzx edx, byte ptr [rdi+rax]
    test dl, dl
    je .Lout
    mov rcx, rsi
.Lset:
    cmp byte ptr [rcx], 0
    je .Lout
    inc rcx
    cmp [rcx-1], dl
    jne .Lset
    inc rax
    jmp .Lnext
.Lout:
    ret
ENDFUNC strspn

FUNC_NOTRACE strcspn
    xor eax, eax
.Lnext:
    movzx edx, byte ptr [rdi+rax]
    test dl, dl
    je .Lout
    mov rcx, rsi
.Lset:
    movzx r8d, byte ptr [rcx]
    inc rcx
    test r8b, r8b
    je .Ladvance
    cmp r8b, dl
    jne .Lset
    ret
.Ladvance:
    inc rax
    jmp .Lnext
.Lout:
    ret
ENDFUNC strcspn

FUNC_NOTRACE strpbrk
    call strcspn
    add rax, rdi
    cmp byte ptr [rax], 0
    jne .Lout
    xor eax, eax
.Lout:
    ret
ENDFUNC strpbrk

# rdi address of the string pointer, rsi delimiters: the token, with the pointer moved behind it.
FUNC_NOTRACE strsep
    mov r10, rdi
    mov r11, [rdi]
    test r11, r11
    je .Lout
    mov rdi, r11
    call strpbrk
    test rax, rax
    je .Llast
    mov byte ptr [rax], 0
    inc rax
.Llast:
    mov [r10], rax
.Lout:
    mov rax, r11
    ret
ENDFUNC strsep

# rdi string, rsi prefix: the prefix's length, or 0.
FUNC_NOTRACE str_has_prefix
    xor eax, eax
.Lnext:
    movzx ecx, byte ptr [rsi+rax]
    test cl, cl
    je .Lout
    cmp [rdi+rax], cl
    jne .Lnone
    inc rax
    jmp .Lnext
.Lnone:
    xor eax, eax
.Lout:
    ret
ENDFUNC str_has_prefix

# Equal but for one newline at the end of either? 1 or 0.
FUNC_NOTRACE sysfs_streq
    xor ecx, ecx
.Lnext:
    movzx eax, byte ptr [rdi+rcx]
    movzx edx, byte ptr [rsi+rcx]
    test al, al
    je .Ltail
    cmp al, dl
    jne .Ltail
    inc rcx
    jmp .Lnext
.Ltail:
    cmp al, dl
    je .Lyes
    test al, al
    jne 1f
    cmp dl, 10
    jne .Lno
    cmp byte ptr [rsi+rcx+1], 0
    je .Lyes
.Lno:
    xor eax, eax
    ret
1:
    test dl, dl
    jne .Lno
    cmp al, 10
    jne .Lno
    cmp byte ptr [rdi+rcx+1], 0
    jne .Lno
.Lyes:
    mov eax, 1
    ret
ENDFUNC sysfs_streq

# rdi table of strings, rsi its length, rdx what: index, or -EINVAL. A null entry ends the table.
FUNC_NOTRACE match_string
    xor r8d, r8d
    mov r9, rdi
    mov r10, rsi
    mov rsi, rdx
.Lnext:
    cmp r8, r10
    jae .Lnone
    mov rdi, [r9+r8*8]
    test rdi, rdi
    je .Lnone
    call strcmp
    mov rdx, rsi
    test eax, eax
    je .Lfound
    inc r8
    jmp .Lnext
.Lfound:
    mov eax, r8d
    ret
.Lnone:
    mov eax, -22
    ret
ENDFUNC match_string

# Every esi in rdi becomes dl; the end of the string is returned.
FUNC_NOTRACE strreplace
.Lnext:
    cmp byte ptr [rdi], 0
    je .Lout
    cmp [rdi], sil
    jne 1f
    mov [rdi], dl
1:
    inc rdi
    jmp .Lnext
.Lout:
    mov rax, rdi
    ret
ENDFUNC strreplace
