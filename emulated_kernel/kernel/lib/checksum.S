# The Internet checksum: arch/x86/lib/csum-partial_64.c, lib/checksum.c, include/net/checksum.h.
# Sums are kept as 32 bits in the order the bytes have in memory.

.text

# rdi data, esi length, edx sum so far: 32 bits still to be folded.
FUNC csum_partial
    PROLOGUE
    mov eax, edx
    mov ecx, esi
    shr ecx, 3
    je .Ltail
.Lnext:
    add rax, [rdi]
    adc rax, 0
    add rdi, 8
    dec ecx
    jne .Lnext
.Ltail:
    and esi, 7
    je .Lfold
    xor edx, edx
.Lbyte:
    dec esi
    js .Lrest
    shl rdx, 8
    movzx ecx, byte ptr [rdi + rsi]
    or rdx, rcx
    jmp .Lbyte
.Lrest:
    add rax, rdx
    adc rax, 0
.Lfold:
    mov rdx, rax
    shr rdx, 32
    add eax, edx
    adc eax, 0
    EPILOGUE
ENDFUNC csum_partial

# edi sum: its 16-bit complement, ready for the packet.
FUNC_NOTRACE csum_fold
    mov eax, edi
    shr eax, 16
    movzx edi, di
    add eax, edi
    mov ecx, eax
    shr ecx, 16
    add eax, ecx
    not eax
    movzx eax, ax
    ret
ENDFUNC csum_fold

# rdi data, esi length: the checksum of the whole.
FUNC ip_compute_csum
    PROLOGUE
    xor edx, edx
    call csum_partial
    mov edi, eax
    call csum_fold
    EPILOGUE
ENDFUNC ip_compute_csum

# rdi IP header, esi its length in words of 32 bits.
FUNC_NOTRACE ip_fast_csum
    xor eax, eax
.Lnext:
    mov ecx, [rdi]
    add rax, rcx
    add rdi, 4
    dec esi
    jne .Lnext
    mov rdi, rax
    shr rdi, 32
    add edi, eax
    adc edi, 0
    jmp csum_fold
ENDFUNC ip_fast_csum

# edi source, esi destination, edx length, ecx protocol, r8d sum: with the pseudo header added.
FUNC_NOTRACE csum_tcpudp_nofold
    mov eax, edi
    mov esi, esi
    add rax, rsi
    mov r8d, r8d
    add rax, r8
    add edx, ecx
    bswap edx
    add rax, rdx
    mov rdx, rax
    shr rdx, 32
    add eax, edx
    adc eax, 0
    ret
ENDFUNC csum_tcpudp_nofold

FUNC_NOTRACE csum_tcpudp_magic
    call csum_tcpudp_nofold
    mov edi, eax
    jmp csum_fold
ENDFUNC csum_tcpudp_magic
