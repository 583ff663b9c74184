# Checksums: lib/crc32.c, crc16.c, a nibble at a time.

.text

# \table for the polynomial; edi crc, rsi data, rdx length. The crc comes back in eax.
.macro CRC_REFLECTED table
    mov eax, edi
    test rdx, rdx
    je 2f
1:
    movzx ecx, byte ptr [rsi]
    xor eax, ecx
    mov ecx, eax
    and ecx, 15
    shr eax, 4
    xor eax, [rcx*4 + \table]
    mov ecx, eax
    and ecx, 15
    shr eax, 4
    xor eax, [rcx*4 + \table]
    inc rsi
    dec rdx
    jne 1b
2:
.endm

FUNC_NOTRACE crc32_le
    CRC_REFLECTED crc32_le_nibbles
    ret
ENDFUNC crc32_le

FUNC_NOTRACE __crc32c_le
    CRC_REFLECTED crc32c_nibbles
    ret
ENDFUNC __crc32c_le

FUNC_NOTRACE crc16
    movzx edi, di
    CRC_REFLECTED crc16_nibbles
    ret
ENDFUNC crc16

FUNC_NOTRACE crc32_be
    mov eax, edi
    test rdx, rdx
    je .Lout
.Lnext:
    movzx ecx, byte ptr [rsi]
    shl ecx, 24
    xor eax, ecx
    mov ecx, eax
    shr ecx, 28
    shl eax, 4
    xor eax, [rcx*4 + crc32_be_nibbles]
    mov ecx, eax
    shr ecx, 28
    shl eax, 4
    xor eax, [rcx*4 + crc32_be_nibbles]
    inc rsi
    dec rdx
    jne .Lnext
.Lout:
    ret
ENDFUNC crc32_be

.data
.balign 64
crc32_le_nibbles:
    .long 0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac
    .long 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c
    .long 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c
    .long 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c
crc32c_nibbles:
    .long 0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1
    .long 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d
    .long 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9
    .long 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75
crc16_nibbles:
    .long 0x00000000, 0x0000cc01, 0x0000d801, 0x00001400
    .long 0x0000f001, 0x00003c00, 0x00002800, 0x0000e401
    .long 0x0000a001, 0x00006c00, 0x00007800, 0x0000b401
    .long 0x00005000, 0x00009c01, 0x00008801, 0x00004400
crc32_be_nibbles:
    .long 0x00000000, 0x04c11db7, 0x09823b6e, 0x0d4326d9
    .long 0x130476dc, 0x17c56b6b, 0x1a864db2, 0x1e475005
    .long 0x2608edb8, 0x22c9f00f, 0x2f8ad6d6, 0x2b4bcb61
    .long 0x350c9b64, 0x31cd86d3, 0x3c8ea00a, 0x384fbdbd
.text
