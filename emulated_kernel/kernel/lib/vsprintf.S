# Formatted text: lib/vsprintf.c. Conversions d i u o x X c s p and %%, flags - + space # 0, width
# and precision (also *), lengths hh h l ll z t L; of the extensions of %p, %pI4 (an IPv4
# address). %p prints the address itself, unhashed.

.text

FMT_LEFT = 1
FMT_PLUS = 2
FMT_SPACE = 4
FMT_SPECIAL = 8
FMT_ZERO = 16
FMT_SMALL = 32
FMT_SIGN = 64

# Locals of vsnprintf, below rbp.
FMT_WIDTH = 56
FMT_PRECISION = 64
FMT_FLAGS = 72
FMT_LENGTH = 80
FMT_BASE = 88
FMT_DIGITS = 192                        # end of the digits at rbp - 112, written backwards
FMT_DIGITS_END = 112

# rax = the next argument of the va_list in r14.
.macro VA_ARG
    mov ecx, [r14 + VA_GP_OFFSET]
    cmp ecx, 48
    jae 1f
    mov rax, [r14 + VA_REG_SAVE]
    mov rax, [rax + rcx]
    add dword ptr [r14 + VA_GP_OFFSET], 8
    jmp 2f
1:
    mov rcx, [r14 + VA_OVERFLOW]
    mov rax, [rcx]
    add rcx, 8
    mov [r14 + VA_OVERFLOW], rcx
2:
.endm

# One character, al, to rbx; beyond r12 it is only counted.
.macro PUT_CHAR
    cmp rbx, r12
    jae 1f
    mov [rbx], al
1:
    inc rbx
.endm

# rdi to, rsi room, rdx format, rcx va_list: length of the whole text, however much had room.
FUNC_NOTRACE vsnprintf
    ENTER5
    sub rsp, 208
    mov rbx, rdi
    mov r15, rdi
    lea r12, [rdi + rsi]
    cmp r12, rdi
    jae 1f
    mov r12, -1
1:
    mov r13, rdx
    mov r14, rcx
    push rsi
    push rsi
.Lnext:
    movzx eax, byte ptr [r13]
    test al, al
    je .Lend
    inc r13
    cmp al, 37
    je .Lflags
    PUT_CHAR
    jmp .Lnext

.Lflags:
    xor edx, edx
.Lflag:
    movzx eax, byte ptr [r13]
    inc r13
    mov ecx, FMT_LEFT
    cmp al, 45
    je .Lset_flag
    mov ecx, FMT_PLUS
    cmp al, 43
    je .Lset_flag
    mov ecx, FMT_SPACE
    cmp al, 32
    je .Lset_flag
    mov ecx, FMT_SPECIAL
    cmp al, 35
    je .Lset_flag
    mov ecx, FMT_ZERO
    cmp al, 48
    jne .Lwidth
.Lset_flag:
    or edx, ecx
    jmp .Lflag

.Lwidth:
    dec r13
    mov [rbp - FMT_FLAGS], rdx
    cmp al, 42
    jne .Lwidth_digits
    inc r13
    VA_ARG
    movsxd rax, eax
    test rax, rax
    jns .Lhave_width
    neg rax
    or qword ptr [rbp - FMT_FLAGS], FMT_LEFT
    jmp .Lhave_width
.Lwidth_digits:
    call .Lnumber
.Lhave_width:
    mov [rbp - FMT_WIDTH], rax
    mov qword ptr [rbp - FMT_PRECISION], -1
    cmp byte ptr [r13], 46
    jne .Llength
    inc r13
    cmp byte ptr [r13], 42
    jne .Lprecision_digits
    inc r13
    VA_ARG
    movsxd rax, eax
    test rax, rax
    jns .Lhave_precision
    xor eax, eax
    jmp .Lhave_precision
.Lprecision_digits:
    call .Lnumber
.Lhave_precision:
    mov [rbp - FMT_PRECISION], rax

# Length: how many bytes an argument has.
.Llength:
    mov dword ptr [rbp - FMT_LENGTH], 4
.Lqualifier:
    movzx eax, byte ptr [r13]
    inc r13
    cmp al, 108
    je .Llong
    cmp al, 122
    je .Llong
    cmp al, 116
    je .Llong
    cmp al, 76
    je .Llong
    cmp al, 104
    jne .Lconversion
    shr dword ptr [rbp - FMT_LENGTH], 1
    jmp .Lqualifier
.Llong:
    mov dword ptr [rbp - FMT_LENGTH], 8
    jmp .Lqualifier

.Lconversion:
    cmp al, 100
    je .Lsigned
    cmp al, 105
    je .Lsigned
    cmp al, 117
    je .Ldecimal
    cmp al, 120
    je .Llower_hex
    cmp al, 88
    je .Lupper_hex
    cmp al, 115
    je .Lstring
    cmp al, 99
    je .Lchar
    cmp al, 112
    je .Lpointer
    cmp al, 111
    je .Loctal
    cmp al, 37
    je .Lpercent
    test al, al
    je .Lend
    push rax
    mov al, 37
    PUT_CHAR
    pop rax
.Lpercent:
    PUT_CHAR
    jmp .Lnext

.Lchar:
    VA_ARG
    mov [rbp - FMT_DIGITS], al
    lea rsi, [rbp - FMT_DIGITS]
    mov edx, 1
    jmp .Ltext

.Lstring:
    VA_ARG
    mov rsi, rax
    cmp rax, 4096
    jae 1f
    mov rsi, offset null_text
1:
    cmp rax, -4096
    jb 1f
    mov rsi, offset error_text
1:
    mov rdi, rsi
    push rsi
    mov rsi, [rbp - FMT_PRECISION]
    call strnlen
    pop rsi
    mov rdx, rax
# rsi[rdx], padded with blanks to the width.
.Ltext:
    mov rdi, [rbp - FMT_WIDTH]
    sub rdi, rdx
    test byte ptr [rbp - FMT_FLAGS], FMT_LEFT
    jne .Lcopy
    call .Lblanks
.Lcopy:
    test rdx, rdx
    je .Lcopied
    movzx eax, byte ptr [rsi]
    PUT_CHAR
    inc rsi
    dec rdx
    jmp .Lcopy
.Lcopied:
    call .Lblanks
    jmp .Lnext

.Lpointer:
    cmp byte ptr [r13], 73
    je .Lip4
    VA_ARG
    or qword ptr [rbp - FMT_FLAGS], FMT_ZERO | FMT_SMALL
    cmp qword ptr [rbp - FMT_WIDTH], 0
    jne 1f
    mov qword ptr [rbp - FMT_WIDTH], 16
1:
    mov qword ptr [rbp - FMT_BASE], 16
    jmp .Lunsigned

# %pI4: four decimal numbers out of memory.
.Lip4:
    add r13, 2
    VA_ARG
    mov r8d, [rax]
    lea rdi, [rbp - FMT_DIGITS]
    mov ecx, 4
.Loctet:
    movzx eax, r8b
    shr r8d, 8
    xor edx, edx
    mov esi, 100
    div esi
    test eax, eax
    je .Ltens
    add al, 48
    mov [rdi], al
    inc rdi
    mov r9d, 1
    jmp .Ltens_digit
.Ltens:
    xor r9d, r9d
.Ltens_digit:
    mov eax, edx
    xor edx, edx
    mov esi, 10
    div esi
    or r9d, eax
    je .Lones
    add al, 48
    mov [rdi], al
    inc rdi
.Lones:
    add dl, 48
    mov [rdi], dl
    inc rdi
    dec ecx
    je .Lip4_done
    mov byte ptr [rdi], 46
    inc rdi
    jmp .Loctet
.Lip4_done:
    lea rsi, [rbp - FMT_DIGITS]
    mov rdx, rdi
    sub rdx, rsi
    jmp .Ltext

.Loctal:
    mov qword ptr [rbp - FMT_BASE], 8
    jmp .Lfetch
.Llower_hex:
    or qword ptr [rbp - FMT_FLAGS], FMT_SMALL
.Lupper_hex:
    mov qword ptr [rbp - FMT_BASE], 16
    jmp .Lfetch
.Lsigned:
    or qword ptr [rbp - FMT_FLAGS], FMT_SIGN
.Ldecimal:
    mov qword ptr [rbp - FMT_BASE], 10
.Lfetch:
    VA_ARG
    mov ecx, 8
    sub ecx, [rbp - FMT_LENGTH]
    shl ecx, 3
    shl rax, cl
    test byte ptr [rbp - FMT_FLAGS], FMT_SIGN
    jne .Lextend
    shr rax, cl
    jmp .Lunsigned
.Lextend:
    sar rax, cl
    test rax, rax
    jns .Lunsigned
    neg rax
    mov r10d, 45
    jmp .Ldigits

# rax magnitude. r10b becomes the sign to print, or 0.
.Lunsigned:
    xor r10d, r10d
    test byte ptr [rbp - FMT_FLAGS], FMT_SIGN
    je .Ldigits
    mov r10d, 43
    test byte ptr [rbp - FMT_FLAGS], FMT_PLUS
    jne .Ldigits
    mov r10d, 32
    test byte ptr [rbp - FMT_FLAGS], FMT_SPACE
    jne .Ldigits
    xor r10d, r10d
.Ldigits:
    mov r11, rax
    lea rsi, [rbp - FMT_DIGITS_END]
    mov rcx, [rbp - FMT_BASE]
    mov r8, offset hex_asc_upper
    test byte ptr [rbp - FMT_FLAGS], FMT_SMALL
    je .Ldigit
    mov r8, offset hex_asc
.Ldigit:
    xor edx, edx
    div rcx
    mov dl, [r8 + rdx]
    dec rsi
    mov [rsi], dl
    test rax, rax
    jne .Ldigit
    lea rdx, [rbp - FMT_DIGITS_END]
    sub rdx, rsi
# r9 zeros to come before rdx digits at rsi; rdi what is left of the width.
    test byte ptr [rbp - FMT_FLAGS], FMT_LEFT
    je 1f
    and qword ptr [rbp - FMT_FLAGS], 255 - FMT_ZERO
1:
    mov rdi, [rbp - FMT_WIDTH]
    sub rdi, rdx
    mov al, r10b
    neg al
    sbb rdi, 0
    call .Lspecial_width
    xor r9d, r9d
    mov rax, [rbp - FMT_PRECISION]
    sub rax, rdx
    jle 1f
    mov r9, rax
    sub rdi, rax
1:
    test byte ptr [rbp - FMT_FLAGS], FMT_ZERO
    je .Lnumber_blanks
    test rdi, rdi
    jle .Lsign
    add r9, rdi
    xor edi, edi
    jmp .Lsign
.Lnumber_blanks:
    test byte ptr [rbp - FMT_FLAGS], FMT_LEFT
    jne .Lsign
    call .Lblanks
.Lsign:
    test r10b, r10b
    je .Lprefix
    mov eax, r10d
    PUT_CHAR
.Lprefix:
    test byte ptr [rbp - FMT_FLAGS], FMT_SPECIAL
    je .Lzeros
    cmp qword ptr [rbp - FMT_BASE], 10
    je .Lzeros
    test r11, r11
    je 2f
    mov al, 48
    PUT_CHAR
2:
    cmp qword ptr [rbp - FMT_BASE], 16
    jne .Lzeros
    test r11, r11
    jne 3f
    mov al, 48
    PUT_CHAR
3:
    mov al, 88
    test byte ptr [rbp - FMT_FLAGS], FMT_SMALL
    je 4f
    mov al, 120
4:
    PUT_CHAR
.Lzeros:
    test r9, r9
    jle .Lcopy
    mov al, 48
    PUT_CHAR
    dec r9
    jmp .Lzeros

.Lend:
    pop rsi
    pop rsi
    test rsi, rsi
    je .Lout
    mov rax, rbx
    cmp rax, r12
    jb 1f
    lea rax, [r12 - 1]
1:
    mov byte ptr [rax], 0
.Lout:
    mov rax, rbx
    sub rax, r15
    LEAVE5

# rdi blanks, if that is more than none. Leaves rdi 0 or less.
.Lblanks:
    test rdi, rdi
    jle 2f
    mov al, 32
    PUT_CHAR
    dec rdi
    jmp .Lblanks
2:
    ret

# Room for 0x or 0 off the width in rdi.
.Lspecial_width:
    test byte ptr [rbp - FMT_FLAGS], FMT_SPECIAL
    je 2f
    cmp qword ptr [rbp - FMT_BASE], 16
    je 1f
    cmp qword ptr [rbp - FMT_BASE], 8
    jne 2f
    test r11, r11
    je 2f
    dec rdi
    ret
1:
    sub rdi, 2
2:
    ret

# rax = the decimal number at r13, which moves behind it.
.Lnumber:
    xor eax, eax
1:
    movzx ecx, byte ptr [r13]
    sub ecx, 48
    cmp ecx, 10
    jae 2f
    imul eax, eax, 10
    add eax, ecx
    inc r13
    jmp 1b
2:
    ret
ENDFUNC vsnprintf

FUNC_NOTRACE snprintf
    push rbp
    mov rbp, rsp
    VA_START 3
    lea rcx, [rbp - 80]
    call vsnprintf
    leave
    ret
ENDFUNC snprintf

FUNC_NOTRACE sprintf
    push rbp
    mov rbp, rsp
    VA_START 2
    mov rdx, rsi
    mov esi, 0x7fffffff
    lea rcx, [rbp - 80]
    call vsnprintf
    leave
    ret
ENDFUNC sprintf

# The length that had room, without the terminator.
FUNC_NOTRACE vscnprintf
    push rbp
    mov rbp, rsp
    push rsi
    push rsi
    call vsnprintf
    mov rcx, [rbp - 8]
    cmp rax, rcx
    jb .Lout
    lea rax, [rcx - 1]
    test rcx, rcx
    jne .Lout
    xor eax, eax
.Lout:
    leave
    ret
ENDFUNC vscnprintf

FUNC_NOTRACE scnprintf
    push rbp
    mov rbp, rsp
    VA_START 3
    lea rcx, [rbp - 80]
    call vscnprintf
    leave
    ret
ENDFUNC scnprintf

.data
null_text:
    .asciz "(null)"
error_text:
    .asciz "(efault)"
.text
